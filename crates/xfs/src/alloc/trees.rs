//! The trees of a group: where each begins, where it gets its blocks from, and how its root is stored after a change.
//!
//! The trees of free space and of reverse mappings take their blocks from the group's free list and put them back there:
//! blocks on the list belong to the group in the reverse map already, so that nothing else changes. The other trees get
//! theirs as anything else does, near their root.

use std::marker::PhantomData;

use undercroft_vfs::Result;

use super::changing::ChangingGroup;
use super::*;
use crate::ag::agf::RawAgf;
use crate::ag::agi::RawAgi;
use crate::btree::{Btree, BySize, BySpace, ChangeKind, Finobt, Inobt, RefcountBt, RmapBt, TreeSpace};
use crate::format::AgBlock;

/// A tree of a group.
pub(super) trait GroupTree: ChangeKind {
    /// Whether it takes its blocks from the free list.
    const IS_ON_LIST: bool;
    /// What its blocks belong to.
    const OWNER: Owner;

    /// Its root and its levels.
    fn place(agf: &RawAgf, agi: &RawAgi) -> (u32, u32);
    /// Stores them.
    fn set_place(group: &mut ChangingGroup<'_>, root: u32, levels: u32);
    /// Counts one block more, or one less, where blocks of the tree are counted.
    fn count(group: &mut ChangingGroup<'_>, more: bool);
}

fn step(count: u32, more: bool) -> u32 {
    if more { count.saturating_add(1) } else { count.saturating_sub(1) }
}

macro_rules! agf_tree {
    ($kind:ident, $root:ident, $levels:ident, $is_on_list:expr, $owner:expr, $count:expr) => {
        impl GroupTree for $kind {
            const IS_ON_LIST: bool = $is_on_list;
            const OWNER: Owner = $owner;

            fn place(agf: &RawAgf, _: &RawAgi) -> (u32, u32) {
                (agf.$root.get(), agf.$levels.get())
            }

            fn set_place(group: &mut ChangingGroup<'_>, root: u32, levels: u32) {
                group.agf_mut().$root.set(root);
                group.agf_mut().$levels.set(levels);
            }

            fn count(group: &mut ChangingGroup<'_>, more: bool) {
                let count: fn(&mut RawAgf, bool) = $count;
                count(group.agf_mut(), more);
            }
        }
    };
}

fn count_btreeblks(agf: &mut RawAgf, more: bool) {
    agf.agf_btreeblks.set(step(agf.agf_btreeblks.get(), more));
}

agf_tree!(BySpace, agf_bno_root, agf_bno_level, true, Owner::FreeSpace, count_btreeblks);
agf_tree!(BySize, agf_cnt_root, agf_cnt_level, true, Owner::FreeSpace, count_btreeblks);
agf_tree!(RmapBt, agf_rmap_root, agf_rmap_level, true, Owner::FreeSpace, |agf, more| {
    count_btreeblks(agf, more);
    agf.agf_rmap_blocks.set(step(agf.agf_rmap_blocks.get(), more));
});
agf_tree!(RefcountBt, agf_refcount_root, agf_refcount_level, false, Owner::RefcountTree, |agf, more| agf
    .agf_refcount_blocks
    .set(step(agf.agf_refcount_blocks.get(), more)));

macro_rules! agi_tree {
    ($kind:ident, $root:ident, $levels:ident, $blocks:ident) => {
        impl GroupTree for $kind {
            const IS_ON_LIST: bool = false;
            const OWNER: Owner = Owner::InodeTrees;

            fn place(_: &RawAgf, agi: &RawAgi) -> (u32, u32) {
                (agi.$root.get(), agi.$levels.get())
            }

            fn set_place(group: &mut ChangingGroup<'_>, root: u32, levels: u32) {
                group.agi_mut().$root.set(root);
                group.agi_mut().$levels.set(levels);
            }

            fn count(group: &mut ChangingGroup<'_>, more: bool) {
                group.state().aside.$blocks = step(group.state().aside.$blocks, more);
                if group.volume().superblock().features().has_inode_tree_counts() {
                    let blocks = &mut group.agi_mut().$blocks;
                    blocks.set(step(blocks.get(), more));
                }
            }
        }
    };
}

agi_tree!(Inobt, agi_root, agi_level, agi_iblocks);
agi_tree!(Finobt, agi_free_root, agi_free_level, agi_fblocks);

impl<'g> ChangingGroup<'g> {
    /// A tree, to be read.
    ///
    /// # Errors
    /// Corruption of its root's address or of its depth.
    pub(super) fn tree<K: GroupTree>(&self) -> Result<Btree<'g, K>> {
        let (root, levels) = K::place(self.agf(), self.agi());
        Btree::in_ag(self.volume(), self.number(), AgBlock(root), levels)
    }

    /// Changes a tree, and stores its root if it is another afterwards. The free list has been filled for the change of
    /// one record of each tree.
    ///
    /// # Errors
    /// Corruption; I/O failure; those of `change`.
    pub(super) fn change<K: GroupTree, R>(
        &mut self,
        change: impl FnOnce(&mut Btree<'g, K>, &mut dyn TreeSpace) -> Result<R>,
    ) -> Result<R> {
        let before = K::place(self.agf(), self.agi());
        let mut tree = self.tree::<K>()?;
        let result = change(&mut tree, &mut GroupSpace::<K> { group: self, kind: PhantomData });
        let (root, levels) = tree.place_in_ag();
        let after = (self.within(root)?.0, levels);
        if after != before {
            K::set_place(self, after.0, after.1);
        }
        result
    }

    /// Inserts a record.
    ///
    /// # Errors
    /// Those of [`Btree::insert`].
    pub(super) fn insert<K: GroupTree>(&mut self, record: &K::Record) -> Result<()> {
        let handle = self.handle;
        self.change::<K, _>(|tree, space| tree.insert(handle, space, record))
    }

    /// Deletes a record.
    ///
    /// # Errors
    /// Those of [`Btree::delete`].
    pub(super) fn delete<K: GroupTree>(&mut self, key: &K::Key) -> Result<()> {
        let handle = self.handle;
        self.change::<K, _>(|tree, space| tree.delete(handle, space, key))
    }

    /// Replaces a record by one that goes to the same place in the order.
    ///
    /// # Errors
    /// Those of [`Btree::update`].
    pub(super) fn update<K: GroupTree>(&mut self, key: &K::Key, record: &K::Record) -> Result<()> {
        let handle = self.handle;
        self.change::<K, _>(|tree, _| tree.update(handle, key, record))
    }
}

impl ChangingGroup<'_> {
    /// Replaces a record, which is `before`, by one with the same key.
    ///
    /// # Errors
    /// Those of [`Btree::replace`].
    pub(super) fn replace<K: GroupTree>(&mut self, before: &K::Record, after: &K::Record) -> Result<()>
    where
        K::Record: PartialEq,
    {
        let handle = self.handle;
        self.change::<K, _>(|tree, _| tree.replace(handle, before, after))
    }
}

/// Where a tree of the group gets its blocks.
struct GroupSpace<'s, 'g, K> {
    group: &'s mut ChangingGroup<'g>,
    kind: PhantomData<K>,
}

impl<K: GroupTree> TreeSpace for GroupSpace<'_, '_, K> {
    fn take(&mut self, _: &Handle<'_>) -> Result<FsBlock> {
        let block = if K::IS_ON_LIST {
            self.group.take_from_list()?
        } else {
            let (root, _) = K::place(self.group.agf(), self.group.agi());
            self.group.take_for_tree(AgBlock(root), K::OWNER)?
        };
        K::count(self.group, true);
        self.group.block(block)
    }

    fn put(&mut self, _: &Handle<'_>, block: FsBlock) -> Result<()> {
        let block = self.group.within(block)?;
        if K::IS_ON_LIST {
            self.group.put_on_list(block)?;
        } else {
            self.group.free_of_tree(block, K::OWNER)?;
        }
        K::count(self.group, false);
        Ok(())
    }
}
