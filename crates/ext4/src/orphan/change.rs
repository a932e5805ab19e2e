//! Entering and removing orphans, under a handle.

use undercroft_sync::atomic::Ordering;
use undercroft_sync::thread_number;
use undercroft_vfs::Result;

use super::file::OrphanFile;
use super::list::{Member, OrphanList};
use super::orphans::{BEING_ENTERED, IN_FILE, IN_LIST, NONE, Orphans};
use crate::features::RoCompat;
use crate::inode::{InodeState, Location, set_deletion_time};
use crate::options::OrphanForm;
use crate::superblock;
use crate::transaction::{Handle, Seal};

/// Whether an inode is entered.
#[cfg(test)]
pub(crate) fn is_member(inode: &InodeState) -> bool {
    inode.orphan.0.load(Ordering::Acquire) != NONE
}

/// Enters an inode, unless it is there already. Changes [`CREDITS`](super::CREDITS) blocks.
///
/// # Errors
/// I/O failure; nothing has changed then.
pub(crate) fn add(handle: &Handle<'_>, inode: &InodeState) -> Result<()> {
    let orphans = &handle.writer().orphans;
    orphans.lock_as_plain_form();
    let state = &inode.orphan.0;
    if state.compare_exchange(NONE, BEING_ENTERED, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return Ok(());
    }
    let entered = orphans.enter(handle, inode);
    state.store(*entered.as_ref().unwrap_or(&NONE), Ordering::Release);
    entered.map(drop)
}

/// Removes an inode, if it is there. Changes [`CREDITS`](super::CREDITS) blocks. While an inode is on the list, its
/// deletion time holds the link to the next one.
///
/// # Errors
/// I/O failure.
pub(crate) fn remove(handle: &Handle<'_>, inode: &InodeState) -> Result<()> {
    let orphans = &handle.writer().orphans;
    orphans.lock_as_plain_form();
    let membership = inode.orphan.0.load(Ordering::Acquire);
    if membership == NONE {
        return Ok(());
    }
    orphans.leave(handle, inode, membership)?;
    inode.orphan.0.store(NONE, Ordering::Release);
    Ok(())
}

/// Enters an inode that is not in memory, and has no name, into the list. Changes [`CREDITS`](super::CREDITS) blocks.
///
/// # Errors
/// I/O failure.
pub(crate) fn add_to_list(handle: &Handle<'_>, number: u32, location: Location) -> Result<()> {
    handle.writer().orphans.list.enter(handle, number, location)
}

impl Orphans {
    fn enter(&self, handle: &Handle<'_>, inode: &InodeState) -> Result<u64> {
        if self.form == OrphanForm::Best
            && let Some(file) = &self.file
            && let Some(slot) = file.enter(handle, inode.number)?
        {
            return Ok(IN_FILE + slot);
        }
        self.list.enter(handle, inode.number, inode.location)?;
        Ok(IN_LIST)
    }

    fn leave(&self, handle: &Handle<'_>, inode: &InodeState, membership: u64) -> Result<()> {
        match (membership.checked_sub(IN_FILE), &self.file) {
            (Some(slot), Some(file)) => {
                file.leave(handle, slot);
                Ok(())
            }
            _ => self.list.leave(handle, inode.number),
        }
    }
}

impl OrphanFile {
    /// Writes a number into a free slot and returns the slot; `None` when all are taken.
    pub(super) fn enter(&self, handle: &Handle<'_>, number: u32) -> Result<Option<u64>> {
        if !self.announced.load(Ordering::Acquire) {
            superblock::change(handle, |raw| {
                raw.s_feature_ro_compat.set(raw.s_feature_ro_compat.get() | RoCompat::ORPHAN_PRESENT.bits());
            })?;
            self.announced.store(true, Ordering::Release);
        }
        let count = self.blocks.len();
        let start = thread_number();
        for index in (0..count).map(|step| (start + step) % count) {
            if let Some(slot) = self.blocks[index].claim() {
                self.write(handle, index, slot, number);
                return Ok(Some(index as u64 * u64::from(self.slots_per_block) + u64::from(slot)));
            }
        }
        Ok(None)
    }

    /// Clears a slot.
    pub(super) fn leave(&self, handle: &Handle<'_>, slot: u64) {
        let per_block = u64::from(self.slots_per_block);
        let (index, slot) = ((slot / per_block) as usize, (slot % per_block) as u32);
        self.write(handle, index, slot, 0);
        self.blocks[index].give(slot);
    }

    fn write(&self, handle: &Handle<'_>, index: usize, slot: u32, number: u32) {
        let at = slot as usize * 4;
        handle.change_block(&self.blocks[index].block, Seal::Orphans(self.seed), |bytes| {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        });
    }
}

impl OrphanList {
    /// Puts an inode before all others.
    pub(super) fn enter(&self, handle: &Handle<'_>, number: u32, location: Location) -> Result<()> {
        let table = handle.volume().block(location.block)?;
        let mut links = self.0.lock();
        let after = links.head;
        set_deletion_time(handle, number, location, after)?;
        set_head(handle, number)?;
        links.head = number;
        if let Some(after) = links.members.get_mut(&after) {
            after.before = number;
        }
        links.members.insert(number, Member { before: 0, after, location, _table: table });
        Ok(())
    }

    /// Takes an inode out.
    pub(super) fn leave(&self, handle: &Handle<'_>, number: u32) -> Result<()> {
        let mut links = self.0.lock();
        let Some(member) = links.members.remove(&number) else { return Ok(()) };
        if let Some(before) = links.members.get_mut(&member.before) {
            before.after = member.after;
            set_deletion_time(handle, member.before, before.location, member.after)?;
        } else {
            links.head = member.after;
            set_head(handle, member.after)?;
        }
        if let Some(after) = links.members.get_mut(&member.after) {
            after.before = member.before;
        }
        drop(links);
        set_deletion_time(handle, number, member.location, 0)
    }

    /// Takes out the first, which is not in use; `next` comes after it.
    pub(super) fn leave_first(
        &self,
        handle: &Handle<'_>,
        number: u32,
        location: Location,
        next: u32,
    ) -> Result<()> {
        let mut links = self.0.lock();
        set_deletion_time(handle, number, location, 0)?;
        set_head(handle, next)?;
        links.head = next;
        links.members.remove(&number);
        if let Some(next) = links.members.get_mut(&next) {
            next.before = 0;
        }
        Ok(())
    }
}

fn set_head(handle: &Handle<'_>, number: u32) -> Result<()> {
    superblock::change(handle, |raw| raw.s_last_orphan.set(number))
}
