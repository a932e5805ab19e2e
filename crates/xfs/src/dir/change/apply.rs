//! Making a plan true under a handle.

use std::sync::Arc;

use undercroft_vfs::{Error, Result};

use super::pieces;
use super::plan::Change;
use crate::alloc::Held;
use crate::format::dinode::ForkFormat;
use crate::format::{FileBlock, FsBlock, Geometry};
use crate::inode::{Fork, ForkKind, Inode};
use crate::map;
use crate::transaction::Handle;

impl Change<'_> {
    /// Applies the plan. `touch` changes the inode's times and links, and returns whether it is to be stored for them.
    /// The handle has room for what the plan [needs](Change::credits).
    ///
    /// # Errors
    /// I/O failure, which aborts the changes.
    pub(crate) fn apply(self, handle: &Handle<'_>, touch: impl FnOnce(&mut Inode) -> bool) -> Result<()> {
        let rest = self.apply_all(handle, touch);
        handle.or_abort(rest)
    }

    fn apply_all(mut self, handle: &Handle<'_>, touch: impl FnOnce(&mut Inode) -> bool) -> Result<()> {
        let dir = self.dir;
        let mut fields = dir.fields.write();
        let inode = &mut *fields;
        let mut must_store = self.inode_changes || inode.core.size_bytes != self.inode.core.size_bytes;
        if !self.is_short() && matches!(inode.data, Fork::Local(_)) {
            inode.data = Fork::Extents(Arc::from([]));
            inode.core.data_format = ForkFormat::Extents;
            inode.core.data_extents = 0;
            must_store = true;
        }
        let unit = self.layout.dir_block_count();
        for (&at, slot) in &mut self.slots {
            let file = FileBlock(u64::from(at));
            let is_placed = slot.is_placed();
            must_store |= is_placed || slot.gone;
            if slot.gone {
                slot.old = None;
                map::change::remove_blocks(handle, inode, ForkKind::Data, file, unit)?;
                continue;
            }
            let Some(new) = slot.new.take() else { continue };
            if is_placed {
                slot.pieces = enter(handle, inode, file, std::mem::take(&mut slot.held))?;
            }
            match slot.pieces[..] {
                [(home, _)] if is_placed => {
                    let fill = |bytes: &mut [u8]| bytes.copy_from_slice(&new);
                    handle.make_owned_structure(home, unit, slot.seal, inode.ino.0, fill)?;
                }
                [(home, _)] => {
                    let block = handle.volume().structure(home, unit)?;
                    // So that the newest version has one holder, and is changed in place.
                    slot.old = None;
                    handle.change_block(&block, slot.seal, |bytes| bytes.copy_from_slice(&new));
                }
                _ => {
                    let old = slot.old.take();
                    let places = pieces::Places { pieces: &slot.pieces, seal: slot.seal, owner: inode.ino };
                    places.write(handle, old.as_deref(), new)?;
                }
            }
        }
        inode.core.size_bytes = self.inode.core.size_bytes;
        if let Fork::Local(content) = &self.inode.data
            && self.inode_changes
        {
            if content.len() > inode.core.data_fork.len() {
                return Err(Error::NoSpace);
            }
            inode.data = Fork::Local(Arc::clone(content));
            inode.core.data_format = ForkFormat::Local;
            inode.core.data_extents = 0;
        }
        if touch(inode) || must_store {
            inode.store(handle)?;
            dir.lazy_times.clear();
        }
        Ok(())
    }
}

/// Enters the blocks of a directory block that is added: those that are held for it, or a single one. Returns the runs in
/// which they lie, as the map has them: what was held in two runs may lie together.
fn enter(
    handle: &Handle<'_>,
    inode: &mut Inode,
    at: FileBlock,
    held: Vec<Held>,
) -> Result<Vec<(FsBlock, u32)>> {
    if held.is_empty() {
        return Ok(vec![(map::change::add_block(handle, inode, ForkKind::Data, at)?, 1)]);
    }
    let mut runs: Vec<(FsBlock, u32)> = Vec::with_capacity(held.len());
    let mut at = at;
    for held in held {
        let count = held.len();
        for run in map::change::add_held(handle, inode, ForkKind::Data, at, held)? {
            append_run(handle.volume().geometry(), &mut runs, run);
        }
        at.0 += count;
    }
    Ok(runs)
}

/// Appends a run of blocks, as a part of the last one if it follows that within one group.
fn append_run(geometry: &Geometry, runs: &mut Vec<(FsBlock, u32)>, (first, count): (FsBlock, u32)) {
    if let Some((before, len)) = runs.last_mut()
        && before.0 + u64::from(*len) == first.0
        && geometry.check_run(*before, u64::from(*len + count)).is_some()
    {
        *len += count;
        return;
    }
    runs.push((first, count));
}
