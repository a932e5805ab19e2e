//! Trees whose root is in a fork: made of a list, moved into a fork of another size, dissolved.

use std::marker::PhantomData;
use std::sync::Arc;

use undercroft_vfs::{Ino, Result};

use super::super::node::FORK_HEADER_BYTES;
use super::super::{Btree, Root};
use super::view::{Entries, Layout, View};
use super::{ChangeKind, Held, TreeSpace};
use crate::error::corrupt_inode;
use crate::format::AgNumber;
use crate::transaction::Handle;
use crate::volume::Volume;

impl<'a, K: ChangeKind> Btree<'a, K> {
    /// How many records a leaf holds.
    pub(crate) fn leaf_room(volume: &Volume) -> usize {
        Layout::of_block::<K>(volume.geometry(), 0).room
    }

    /// Makes a tree of one leaf with these records, in order and at least one, whose root is a fork of `fork_bytes`.
    ///
    /// # Errors
    /// Corruption: there are more records than a leaf holds, or the fork has no room for a root; I/O failure; those of
    /// `space`.
    pub(crate) fn make_in_fork(
        handle: &Handle<'a>,
        space: &mut dyn TreeSpace,
        ino: Ino,
        fork_bytes: usize,
        records: &[K::Record],
    ) -> Result<Self> {
        debug_assert!(K::LONG);
        let volume: &'a Volume = handle.volume();
        let geometry = volume.geometry();
        let layout = Layout::of_fork::<K>(fork_bytes);
        if layout.room == 0 || records.is_empty() || records.len() > Self::leaf_room(volume) {
            let detail = format!("would have {} records under a root of {fork_bytes} bytes", records.len());
            return Err(corrupt_inode(K::NAME, ino, None, detail));
        }
        let mut tree = Self {
            volume,
            root: Root::Fork(vec![0; fork_bytes].into()),
            levels: 2,
            ag: AgNumber(0),
            ino: Some(ino),
            kind: PhantomData,
        };
        let mut entries = Entries { keys: vec![0; records.len() * K::RECORD_BYTES], ..Entries::default() };
        entries.count = records.len();
        for (record, bytes) in records.iter().zip(entries.keys.chunks_exact_mut(K::RECORD_BYTES)) {
            K::pack(record, bytes, geometry);
        }
        let made = space.take(handle).and_then(|at| {
            let leaf = tree.make_block(handle, at, 0)?;
            tree.set_entries(handle, &leaf, &entries);
            let entry = Entries::one(&tree.pointer_key(&leaf)[..K::KEY_BYTES], &tree.pointer_to(at));
            tree.edit(handle, &Held { block: None, level: 1 }, |mut view| {
                view.set_entries(&entry);
                view.set_level(1);
            });
            Ok(())
        });
        handle.or_abort(made)?;
        Ok(tree)
    }

    /// The root for a fork of another size; `None` if its entries do not fit there.
    pub(crate) fn resized_root(root: &[u8], fork_bytes: usize) -> Option<Arc<[u8]>> {
        let (old, new) = (Layout::of_fork::<K>(root.len()), Layout::of_fork::<K>(fork_bytes));
        if root.len() < FORK_HEADER_BYTES || fork_bytes < FORK_HEADER_BYTES {
            return None;
        }
        let view = View::new(root, old);
        if view.count() > old.room.min(new.room) {
            return None;
        }
        let mut bytes = vec![0; fork_bytes];
        bytes[..2].copy_from_slice(&root[..2]);
        View::new(&mut bytes[..], new).set_entries(&view.entries());
        Some(bytes.into())
    }

    /// Gives back all blocks of the tree, whose records the caller has read. The tree is of no use after that.
    ///
    /// # Errors
    /// Corruption; I/O failure; those of `space`.
    pub(crate) fn dissolve(self, handle: &Handle<'_>, space: &mut dyn TreeSpace) -> Result<()> {
        let mut blocks = Vec::new();
        self.for_each_block(|block, _| {
            blocks.push(block);
            Ok(())
        })?;
        let put = blocks.into_iter().try_for_each(|block| {
            handle.forget(block);
            space.put(handle, block)
        });
        handle.or_abort(put)
    }
}
