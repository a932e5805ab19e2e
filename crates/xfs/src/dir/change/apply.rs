//! Making a plan true under a handle.

use std::sync::Arc;

use undercroft_vfs::{Error, Result};

use super::plan::Change;
use crate::format::FileBlock;
use crate::format::dinode::ForkFormat;
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
            let (is_placed, is_left) = (slot.is_placed(), slot.is_left());
            must_store |= is_placed || is_left;
            if is_left {
                slot.old = None;
                map::change::remove_blocks(handle, inode, ForkKind::Data, file, unit)?;
            }
            let Some(new) = slot.new.take().filter(|_| !slot.gone) else { continue };
            if is_placed {
                let home = match slot.held.take() {
                    Some(held) => map::change::add_held(handle, inode, ForkKind::Data, file, held)?,
                    None => map::change::add_block(handle, inode, ForkKind::Data, file)?,
                };
                let fill = |bytes: &mut [u8]| bytes.copy_from_slice(&new);
                handle.make_owned_structure(home, unit, slot.seal, inode.ino.0, fill)?;
            } else if let Some(home) = slot.home {
                let block = handle.volume().structure(home, unit)?;
                // So that the newest version has one holder, and is changed in place.
                slot.old = None;
                handle.change_block(&block, slot.seal, |bytes| bytes.copy_from_slice(&new));
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
