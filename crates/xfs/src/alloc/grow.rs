//! The allocator of a filesystem that grows.
//!
//! What is new is given out only when the transaction in which the filesystem grew is durable: a handle that is open
//! before the superblock in memory is replaced may go on with the old one until it ends, and no transaction before that
//! one, which a recovery makes with the old superblock, changes a block past the old end.
//!
//! Locks: that of the group, class `group`, and one of the same class to append groups. The caller serializes all calls.

use undercroft_sync::atomic::Ordering;
use undercroft_vfs::{Error, Result};

use super::Allocator;
use super::group::Group;
use super::runs::Run;
use super::set_aside::SetAside;
use crate::format::{AgNumber, Superblock};
use crate::transaction::Handle;
use crate::volume::Volume;

impl Allocator {
    /// The superblock in memory becomes `new`, which has the same last group with more blocks, or more groups, or both; the
    /// last group there is becomes as long as it says. Its new blocks are not given out before
    /// [`open_longer_group`](Self::open_longer_group). Changes [`extent_credits`](Self::extent_credits) blocks.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace) when the trees of free space cannot grow as that may need; corruption; I/O failure. The
    /// filesystem has not grown then, or the changes are aborted.
    pub(crate) fn lengthen_last_group(&self, handle: &Handle<'_>, new: &Superblock) -> Result<()> {
        let volume = handle.volume();
        let last = AgNumber(volume.geometry().ag_count() - 1);
        let (old_len, new_len) = (volume.geometry().ag_len(last), new.geometry().ag_len(last));
        let mut group = self.change_group(handle, last)?;
        let added = Run::new(old_len, new_len - old_len);
        if added.count > 0 {
            group.fill_list()?;
            if !group.list_suffices_to_free(added)? {
                return Err(Error::NoSpace);
            }
        }
        // With the group's lock held until its headers are stored: readers that compare them with the geometry hold it too.
        volume.replace_superblock(new.clone());
        if added.count == 0 {
            return Ok(());
        }
        let inserted = group.insert_extent(added);
        handle.or_abort(inserted)?;
        group.agf_mut().agf_length.set(new_len);
        group.agi_mut().agi_length.set(new_len);
        group.state().blocks().space.add_closed(added);
        Ok(())
    }

    /// The filesystem has durably grown: blocks by which a group became longer may be given out.
    ///
    /// # Errors
    /// There is no such group.
    pub(crate) fn open_longer_group(&self, volume: &Volume, number: AgNumber) -> Result<()> {
        let group = self.group(number)?;
        let mut state = group.state.lock();
        state.aside = SetAside::new(volume, number, &state.agi).with_trees_of(&state.aside);
        if let Some(blocks) = &mut state.blocks {
            blocks.space.open();
        }
        self.recount(group, &mut state, 0);
        Ok(())
    }

    /// The filesystem has durably grown: blocks and inodes of its new groups may be given out.
    ///
    /// # Errors
    /// Corruption of their headers; I/O failure.
    pub(crate) fn add_groups(&self, volume: &Volume) -> Result<()> {
        for number in self.groups.len() as u32..volume.geometry().ag_count() {
            let group = Group::new(volume, AgNumber(number))?;
            let counted = group.state.lock().counted;
            {
                // Waits for readers that began to read the group when it had no lock here.
                let _appending = self.appending.lock();
                self.groups.push(group);
            }
            self.reservable.fetch_add(counted.cast_signed(), Ordering::Relaxed);
        }
        Ok(())
    }
}
