//! The records of a fork, changed in either form: a list in the inode while they fit there, otherwise a B+tree.
//!
//! Which of the two follows from their number alone: a change by which they fit no more, or fit again, converts them.
//! A list has as many records as a fork has room for, at most about a hundred; it is replaced as a whole. A tree is
//! changed by the few records concerned.
//!
//! What can be refused is refused before the first change: a tree that is damaged where it is changed, more records than
//! the inode can count, no space for the tree. A failure after that aborts the changes.

use std::sync::{Arc, OnceLock};

use undercroft_vfs::{Error, Ino, Result};

use super::known;
use crate::alloc::Owner;
use crate::btree::{Bmbt, Btree, Kind, TreeSpace};
use crate::error::corrupt_inode;
use crate::format::block_header::HeaderKind;
use crate::format::dinode::{DiFlags2, ForkFormat, ROOT_HEADER_BYTES};
use crate::format::extent::{EXTENT_BYTES, EXTENT_MAX_BLOCKS, Extent, RawExtent};
use crate::format::{FileBlock, FsBlock, Incompat};
use crate::inode::{ExtentTree, Fork, ForkKind, Found, IncoreExtents, Inode};
use crate::transaction::{Handle, Seal};
use crate::volume::Volume;
use zerocopy::IntoBytes;

/// Length of the header of a tree's block.
pub(super) const HEADER_BYTES: usize = HeaderKind::LongBtree.bytes();

/// Blocks of a tree, at most, whose records fit an inode: of the smallest blocks half a leaf has 29 records, and the largest
/// inode 117.
const SMALL_TREE_BLOCKS: usize = 12;

/// A key and a pointer in such a root.
const ROOT_ENTRY_BYTES: usize = 16;

/// A fork of an inode whose records are changed under a handle.
pub(super) struct Records<'a, 'h> {
    pub(super) handle: &'a Handle<'h>,
    pub(super) inode: &'a mut Inode,
    pub(super) kind: ForkKind,
}

/// What lies around a block of a fork.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Around {
    /// The last record that begins at the block or before it.
    pub(super) before: Option<Extent>,
    /// The first one that begins behind the block.
    pub(super) after: Option<Extent>,
}

/// Both as one record, where that can be: they follow each other in the file and on the disk, within one group.
pub(super) fn joined(volume: &Volume, one: &Extent, next: &Extent) -> Option<Extent> {
    let count = one.count.checked_add(next.count).filter(|&count| count <= EXTENT_MAX_BLOCKS)?;
    let joins = one.end() == next.file.0
        && one.block_of(one.end()) == next.block
        && one.unwritten == next.unwritten
        && volume.geometry().check_run(one.block, u64::from(count)).is_some();
    joins.then_some(Extent { count, ..*one })
}

/// What lies around `at`.
pub(super) fn around(volume: &Volume, ino: Ino, fork: &Fork, at: u64) -> Result<Around> {
    Ok(match fork {
        Fork::Device(_) | Fork::Local(_) => return Err(no_blocks(ino)),
        Fork::Extents(extents) => {
            let n = extents.partition_point(|extent| extent.file.0 <= at);
            Around {
                before: n.checked_sub(1).and_then(|n| extents.get(n).copied()),
                after: extents.get(n).copied(),
            }
        }
        Fork::Btree(fork) => {
            if let Some(known) = known(volume, ino, fork)? {
                let (before, after) = known.around(at);
                return Ok(Around { before, after });
            }
            let tree = Btree::<Bmbt>::in_fork(volume, ino, &fork.root)?;
            let mut cursor = tree.cursor();
            let before = cursor.lookup_le(&FileBlock(at))?;
            let after = if before.is_some() { cursor.increment()? } else { cursor.first()? };
            Around { before, after }
        }
    })
}

fn no_blocks(ino: Ino) -> Error {
    corrupt_inode("fork", ino, None, "has its bytes in the inode and no blocks")
}

impl Records<'_, '_> {
    pub(super) fn volume(&self) -> &Volume {
        self.handle.volume()
    }

    pub(super) fn fork(&self) -> Result<&Fork> {
        self.inode.fork(self.kind).ok_or_else(|| no_blocks(self.inode.ino))
    }

    pub(super) fn around(&self, at: u64) -> Result<Around> {
        around(self.volume(), self.inode.ino, self.fork()?, at)
    }

    pub(super) fn corrupt(&self, detail: impl Into<std::borrow::Cow<'static, str>>) -> Error {
        let structure = match self.kind {
            ForkKind::Data => "data fork",
            ForkKind::Attr => "attribute fork",
        };
        corrupt_inode(structure, self.inode.ino, None, detail)
    }

    /// Refuses a change by which the fork may get `more` records: the inode must be able to count them, and the handle
    /// must have the space that a tree may need.
    ///
    /// # Errors
    /// [`FileTooLarge`](Error::FileTooLarge); [`NoSpace`](Error::NoSpace).
    pub(super) fn check_room(&self, more: u64) -> Result<()> {
        if count(self.inode, self.kind) + more > most_extents(self.volume(), self.inode, self.kind) {
            return Err(Error::FileTooLarge);
        }
        if more > 0 && fork_bytes(self.inode, self.kind) < ROOT_HEADER_BYTES + ROOT_ENTRY_BYTES {
            // Linux makes no such fork; the next extent could not be entered.
            return Err(self.corrupt("has no room for the root of a tree"));
        }
        if more > 0 && self.handle.space() < super::change::needed_space(self.inode, self.kind, more) {
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    /// Puts `new` in the place of `here`, or into a hole, joined with each other and with their neighbours where that can
    /// be. The caller has [asked](Self::check_room) whether there is room.
    pub(super) fn substitute(&mut self, here: Option<Extent>, new: &[Extent]) -> Result<()> {
        let (mut old, mut put) = (Vec::with_capacity(3), Vec::with_capacity(4));
        if let Some(first) = new.first() {
            let before = first.file.0.checked_sub(1).map(|at| self.around(at)).transpose()?;
            if let Some(before) = before.and_then(|around| around.before)
                && joined(self.volume(), &before, first).is_some()
            {
                old.push(before);
                put.push(before);
            }
        }
        old.extend(here);
        for extent in new {
            self.push(&mut put, *extent);
        }
        if let Some(last) = new.last()
            && let Some(after) = self.around(last.end().max(here.map_or(0, |here| here.end())) - 1)?.after
            && put.last().is_some_and(|last| joined(self.volume(), last, &after).is_some())
        {
            old.push(after);
            self.push(&mut put, after);
        }
        self.splice(&old, &put)
    }

    fn push(&self, list: &mut Vec<Extent>, extent: Extent) {
        if let Some(last) = list.last_mut()
            && let Some(both) = joined(self.volume(), last, &extent)
        {
            *last = both;
        } else {
            list.push(extent);
        }
    }

    /// Puts `new` in the place of `old`: records that follow each other, or none, and come to lie between the same
    /// neighbours.
    pub(super) fn splice(&mut self, old: &[Extent], new: &[Extent]) -> Result<()> {
        if old == new {
            return Ok(());
        }
        match self.fork()?.clone() {
            Fork::Device(_) | Fork::Local(_) => Err(no_blocks(self.inode.ino)),
            Fork::Extents(list) => {
                let list = spliced(&list, old, new);
                self.set_list(list)
            }
            Fork::Btree(tree) => {
                let total = (tree.extents + new.len() as u64).saturating_sub(old.len() as u64);
                if total <= capacity(self.inode, self.kind) as u64 {
                    return self.tree_to_list(&tree, old, new);
                }
                let mut space = self.space();
                let changed = change_tree(self.handle, self.inode.ino, &tree.root, &mut space, old, new);
                self.count_blocks(space.taken);
                let found = tree.found.get();
                let known = found.and_then(|found| found.known.as_ref()?.spliced(old, new));
                self.set_tree(changed?, total, known);
                Ok(())
            }
        }
    }

    /// Gives the fork these records: in the inode, or in a tree of one leaf where they do not fit.
    pub(super) fn set_list(&mut self, list: Vec<Extent>) -> Result<()> {
        if list.len() <= capacity(self.inode, self.kind) {
            self.set_fork(Fork::Extents(list.into()), ForkFormat::Extents);
            return Ok(());
        }
        let mut space = self.space();
        let made = make_tree(self.handle, self.inode, self.kind, &mut space, &list);
        self.count_blocks(space.taken);
        self.set_tree(made?, list.len() as u64, Some(list.into_iter().collect()));
        Ok(())
    }

    /// Takes the records of a tree into the inode, where they fit after the change, and frees the tree's blocks.
    fn tree_to_list(&mut self, tree: &ExtentTree, old: &[Extent], new: &[Extent]) -> Result<()> {
        let (mut list, mut blocks) = (Vec::new(), Vec::new());
        {
            let tree = Btree::<Bmbt>::in_fork(self.volume(), self.inode.ino, &tree.root)?;
            tree.for_each(|extent| {
                list.push(extent);
                Ok(())
            })?;
            tree.for_each_block(|block, _| {
                blocks.push(block);
                Ok(())
            })?;
        }
        if blocks.len() > SMALL_TREE_BLOCKS {
            let (blocks, extents) = (blocks.len(), list.len());
            return Err(self.corrupt(format!("has a tree of {blocks} blocks for {extents} extents")));
        }
        let list = spliced(&list, old, new);
        let mut space = self.space();
        let freed = blocks.into_iter().try_for_each(|block| {
            self.handle.forget(block);
            space.put(self.handle, block)
        });
        self.count_blocks(space.taken);
        self.handle.or_abort(freed)?;
        self.set_fork(Fork::Extents(list.into()), ForkFormat::Extents);
        Ok(())
    }

    pub(super) fn set_tree(&mut self, root: Arc<[u8]>, extents: u64, known: Option<IncoreExtents>) {
        // All of the tree was read before it was changed, and the change is counted.
        let found = OnceLock::from(Found { extents, known });
        self.set_fork(Fork::Btree(Arc::new(ExtentTree { root, extents, found })), ForkFormat::Btree);
    }

    fn set_fork(&mut self, fork: Fork, format: ForkFormat) {
        let extents = match &fork {
            Fork::Extents(list) => list.len() as u64,
            Fork::Btree(tree) => tree.extents,
            Fork::Device(_) | Fork::Local(_) => 0,
        };
        let core = &mut self.inode.core;
        match self.kind {
            ForkKind::Data => {
                (core.data_format, core.data_extents) = (format, extents);
                self.inode.data = fork;
            }
            ForkKind::Attr => {
                (core.attr_format, core.attr_extents) = (format, extents as u32);
                self.inode.attr = Some(fork);
            }
        }
    }

    pub(super) fn space(&self) -> ForkSpace {
        ForkSpace {
            owner: Owner::ForkTree { ino: self.inode.ino, attr: self.kind == ForkKind::Attr },
            goal: near_inode(self.volume(), self.inode.ino),
            taken: 0,
        }
    }

    /// Adds to the blocks that the inode counts.
    pub(super) fn count_blocks(&mut self, more: i64) {
        let core = &mut self.inode.core;
        core.blocks = core.blocks.saturating_add_signed(more);
    }
}

/// Records that a fork counts.
pub(super) fn count(inode: &Inode, kind: ForkKind) -> u64 {
    match kind {
        ForkKind::Data => inode.core.data_extents,
        ForkKind::Attr => u64::from(inode.core.attr_extents),
    }
}

/// As many records as an inode can count; its counters become large ones when they must and the volume knows them.
/// Source: the kernel's documentation of large extent counters.
fn most_extents(volume: &Volume, inode: &Inode, kind: ForkKind) -> u64 {
    let is_large = inode.core.flags2.contains(DiFlags2::NREXT64)
        || volume.superblock().features().incompat().contains(Incompat::NREXT64);
    match (kind, is_large) {
        (ForkKind::Data, false) => i32::MAX as u64,
        (ForkKind::Data, true) => (1 << 48) - 1,
        (ForkKind::Attr, false) => i16::MAX as u64,
        (ForkKind::Attr, true) => u64::from(u32::MAX),
    }
}

/// Whether the inode can count as many records more as one change makes.
pub(super) fn can_count_more(volume: &Volume, inode: &Inode, kind: ForkKind) -> bool {
    count(inode, kind) + 2 <= most_extents(volume, inode, kind)
}

fn fork_bytes(inode: &Inode, kind: ForkKind) -> usize {
    match kind {
        ForkKind::Data => inode.core.data_fork.len(),
        ForkKind::Attr => inode.core.attr_fork.len(),
    }
}

/// Records that have room in the inode.
pub(super) fn capacity(inode: &Inode, kind: ForkKind) -> usize {
    fork_bytes(inode, kind) / EXTENT_BYTES
}

/// The block that an inode lies in.
pub(crate) fn near_inode(volume: &Volume, ino: Ino) -> FsBlock {
    volume.geometry().inode_place(ino).map_or(FsBlock(0), |(block, _)| block)
}

/// A list with `new` in the place of `old`.
fn spliced(list: &[Extent], old: &[Extent], new: &[Extent]) -> Vec<Extent> {
    let first = old.first().or(new.first()).map_or(0, |extent| extent.file.0);
    let at = list.partition_point(|extent| extent.file.0 < first);
    let mut result = Vec::with_capacity(list.len() + new.len());
    result.extend_from_slice(&list[..at]);
    result.extend_from_slice(new);
    result.extend_from_slice(list.get(at + old.len()..).unwrap_or_default());
    result
}

/// Changes a tree record by record, so that no two of them overlap in between. Returns the new root.
///
/// # Errors
/// Corruption; I/O failure; those of `space`. Nothing has changed then, or the changes are aborted.
fn change_tree(
    handle: &Handle<'_>,
    ino: Ino,
    root: &Arc<[u8]>,
    space: &mut ForkSpace,
    old: &[Extent],
    new: &[Extent],
) -> Result<Arc<[u8]>> {
    let mut tree = Btree::<Bmbt>::in_fork(handle.volume(), ino, root)?;
    let mut is_first = true;
    let mut step =
        |result: Result<()>| if std::mem::take(&mut is_first) { result } else { handle.or_abort(result) };
    let stay = old.len().min(new.len());
    for extent in old[stay..].iter().rev() {
        step(tree.delete(handle, space, &extent.file))?;
    }
    // A boundary between two records moves by shrinking one first.
    let mut current = old[..stay].to_vec();
    loop {
        let next = (0..stay).find(|&n| {
            let overlaps = |other: &Extent| new[n].file.0 < other.end() && other.file.0 < new[n].end();
            current[n] != new[n]
                && !(0..stay).any(|other| other.abs_diff(n) == 1 && overlaps(&current[other]))
        });
        let Some(n) = next else { break };
        step(tree.update(handle, &current[n].file, &new[n]))?;
        current[n] = new[n];
    }
    debug_assert_eq!(current, new[..stay], "records that cannot be exchanged one by one");
    for extent in &new[stay..] {
        step(tree.insert(handle, space, extent))?;
    }
    match tree.fork_root() {
        Some(root) => Ok(Arc::clone(root)),
        None => Err(no_blocks(ino)),
    }
}

/// Makes a tree of one leaf, and returns its root.
///
/// # Errors
/// As for [`change_tree`].
fn make_tree(
    handle: &Handle<'_>,
    inode: &Inode,
    kind: ForkKind,
    space: &mut ForkSpace,
    list: &[Extent],
) -> Result<Arc<[u8]>> {
    let superblock = handle.volume().superblock();
    let geometry = superblock.geometry();
    debug_assert!(HEADER_BYTES + list.len() * EXTENT_BYTES <= geometry.block_bytes() as usize);
    let block = space.take(handle)?;
    let put = |bytes: &mut [u8], at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let leaf = handle.make_owned(block, Seal::LongBtree, inode.ino.0, |bytes| {
        put(bytes, 0, &Bmbt::MAGIC[1].to_be_bytes());
        put(bytes, 6, &(list.len() as u16).to_be_bytes());
        put(bytes, 8, &[0xff; 16]);
        for (n, extent) in list.iter().enumerate() {
            put(bytes, HEADER_BYTES + n * EXTENT_BYTES, RawExtent::pack(extent).as_bytes());
        }
    });
    handle.or_abort(leaf)?;
    let mut root = vec![0; fork_bytes(inode, kind)];
    let room = (root.len() - ROOT_HEADER_BYTES) / ROOT_ENTRY_BYTES;
    put(&mut root, 0, &[0, 1, 0, 1]);
    let first = list.first().map_or(0, |extent| extent.file.0);
    put(&mut root, ROOT_HEADER_BYTES, &first.to_be_bytes());
    put(&mut root, ROOT_HEADER_BYTES + room * 8, &block.0.to_be_bytes());
    Ok(root.into())
}

/// The space of a fork's tree: blocks near the inode out of the handle's space.
pub(super) struct ForkSpace {
    owner: Owner,
    goal: FsBlock,
    /// Blocks that were taken, less those that were freed.
    pub(super) taken: i64,
}

impl TreeSpace for ForkSpace {
    fn take(&mut self, handle: &Handle<'_>) -> Result<FsBlock> {
        let allocator = &handle.writer().allocator;
        let (block, _) = allocator.take(handle, self.goal, 1)?;
        self.taken += 1;
        handle.or_abort(allocator.note_owner(handle, block, 1, self.owner))?;
        Ok(block)
    }

    fn put(&mut self, handle: &Handle<'_>, block: FsBlock) -> Result<()> {
        let allocator = &handle.writer().allocator;
        // It has been forgotten.
        let noted = allocator.note_no_owner(handle, block, 1, self.owner);
        handle.or_abort(noted.and_then(|()| allocator.free(handle, block, 1)))?;
        self.taken -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use undercroft_block::MemoryDevice;

    use super::*;
    use crate::format::{Superblock, testing};

    /// Groups of 2^22 blocks.
    fn volume() -> Volume {
        let sector = testing::superblock_sector(|raw| {
            raw.sb_agblocks.set(1 << 22);
            raw.sb_agblklog = 22;
            raw.sb_dblocks.set(4 << 22);
        });
        let superblock = Superblock::from_sector(&sector).unwrap();
        Volume::new(Arc::new(MemoryDevice::new(1 << 20)), superblock, 1 << 20)
    }

    #[test]
    fn neighbours_join_up_to_the_longest_extent_and_within_a_group() {
        let volume = volume();
        let extent = |file, block, count| Extent {
            file: FileBlock(file),
            block: FsBlock(block),
            count,
            unwritten: false,
        };
        let (one, next) = (extent(5, 100, 10), extent(15, 110, 4));
        assert_eq!(joined(&volume, &one, &next), Some(extent(5, 100, 14)));
        assert_eq!(joined(&volume, &next, &one), None);
        assert_eq!(joined(&volume, &one, &extent(16, 110, 4)), None, "a hole between");
        assert_eq!(joined(&volume, &one, &extent(15, 111, 4)), None, "apart on the disk");
        assert_eq!(joined(&volume, &one, &Extent { unwritten: true, ..next }), None);
        let most = extent(0, 100, EXTENT_MAX_BLOCKS - 1);
        let after = |count| extent(most.end(), 100 + u64::from(most.count), count);
        assert_eq!(joined(&volume, &most, &after(1)).map(|both| both.count), Some(EXTENT_MAX_BLOCKS));
        assert_eq!(joined(&volume, &most, &after(2)), None);
        let last = extent(0, (1 << 22) - 10, 10);
        assert_eq!(joined(&volume, &last, &extent(10, 1 << 22, 4)), None, "the next group");
    }

    #[test]
    fn a_list_changes_where_the_old_records_were() {
        let extent =
            |file| Extent { file: FileBlock(file), block: FsBlock(100 + file), count: 1, unwritten: false };
        let list: Vec<_> = [1, 3, 5, 7].map(extent).into();
        assert_eq!(spliced(&list, &[extent(3), extent(5)], &[extent(4)]), [1, 4, 7].map(extent));
        assert_eq!(spliced(&list, &[], &[extent(4)]), [1, 3, 4, 5, 7].map(extent));
        assert_eq!(spliced(&list, &[extent(7)], &[]), [1, 3, 5].map(extent));
        assert_eq!(spliced(&[], &[], &[extent(4)]), [4].map(extent));
    }
}
