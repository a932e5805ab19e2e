//! Orphans: inodes that a crash must not forget, because they are in use without a name or are being truncated.
//!
//! Source: kernel documentation, sections "Orphan list" and "Orphan file". Two homes: a list that begins in the
//! superblock and goes on in each inode's deletion time, and a file of inode numbers with a checksum a block. An inode
//! is entered under the handle that takes its last name or makes its truncation visible, and leaves under the handle
//! that frees it or ends the truncation, so whatever a crash leaves is found by who [recovers](recover).
//!
//! Whether an inode is an orphan it knows itself, so that question takes no lock. In the file nobody waits for anybody:
//! threads are dealt out to its blocks. When the file is full, the list takes over.
//!
//! Who ends a truncation leaves an inode that has lost its last name meanwhile where it is.
//!
//! Locks: `list` (class `orphan`) for the list's links.

mod file;
mod list;
mod read;
mod recover;
#[cfg(test)]
mod tests;

use undercroft_sync::atomic::{AtomicU64, Ordering};
use undercroft_vfs::Result;

use crate::checksum::crc32c;
use crate::live::Live;
use crate::numbers::FsBlock;
use crate::transaction::Handle;
use crate::volume::Volume;
use crate::writer::{OrphanForm, WriteOptions};
use file::OrphanFile;
use list::OrphanList;
pub(crate) use read::collect;
pub(crate) use recover::recover;

/// Blocks that entering an orphan, or letting one go, changes: a block of the file, and the superblock for the first;
/// or a neighbour in the list and the inode's own place in its table.
pub(crate) const CREDITS: u32 = 3;

/// What an inode in use knows of its own place among the orphans.
///
/// | value | meaning |
/// | --- | --- |
/// | 0 | it is no orphan |
/// | 1 | it is being entered |
/// | 2 | in the list |
/// | 3 + n | in slot n of the file |
#[derive(Debug, Default)]
pub(crate) struct Membership(AtomicU64);

const NONE: u64 = 0;
const BEING_ENTERED: u64 = 1;
const IN_LIST: u64 = 2;
const IN_FILE: u64 = 3;

/// The orphans of a filesystem that takes changes.
#[derive(Debug)]
pub(crate) struct Orphans {
    form: OrphanForm,
    file: Option<OrphanFile>,
    list: OrphanList,
}

impl Orphans {
    /// Begins with what the disk has.
    ///
    /// # Errors
    /// Corruption of the orphan file; I/O failure.
    pub(crate) fn new(volume: &Volume, options: &WriteOptions) -> Result<Self> {
        let list = OrphanList::new(volume.superblock().first_orphan());
        Ok(Self { form: options.orphans, file: OrphanFile::new(volume)?, list })
    }

    /// Whether the orphan file, if there is one, has no entry: then the superblock may say so.
    pub(crate) fn file_is_empty(&self) -> bool {
        self.file.as_ref().is_none_or(OrphanFile::is_empty)
    }

    fn enter(&self, handle: &Handle<'_>, live: &Live) -> Result<u64> {
        if self.form == OrphanForm::Best
            && let Some(file) = &self.file
            && let Some(slot) = file.enter(handle, live.number)?
        {
            return Ok(IN_FILE + slot);
        }
        self.list.enter(handle, live.number, live.location)?;
        Ok(IN_LIST)
    }

    fn leave(&self, handle: &Handle<'_>, live: &Live, membership: u64) -> Result<()> {
        match (membership.checked_sub(IN_FILE), &self.file) {
            (Some(slot), Some(file)) => {
                file.leave(handle, slot);
                Ok(())
            }
            _ => self.list.leave(handle, live.number),
        }
    }
}

/// Whether an inode is entered.
#[cfg(test)]
pub(crate) fn is_member(live: &Live) -> bool {
    live.orphan.0.load(Ordering::Acquire) != NONE
}

/// Enters an inode, unless it is there already. Changes [`CREDITS`] blocks.
///
/// # Errors
/// I/O failure; nothing has changed then.
pub(crate) fn add(handle: &Handle<'_>, live: &Live) -> Result<()> {
    let orphans = &handle.volume().writer()?.orphans;
    orphans.ask_locked();
    let state = &live.orphan.0;
    if state.compare_exchange(NONE, BEING_ENTERED, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return Ok(());
    }
    let entered = orphans.enter(handle, live);
    state.store(*entered.as_ref().unwrap_or(&NONE), Ordering::Release);
    entered.map(drop)
}

/// Lets an inode go, if it is there. Changes [`CREDITS`] blocks. On the list its deletion time is in use until then.
///
/// # Errors
/// I/O failure.
pub(crate) fn remove(handle: &Handle<'_>, live: &Live) -> Result<()> {
    let orphans = &handle.volume().writer()?.orphans;
    orphans.ask_locked();
    let membership = live.orphan.0.load(Ordering::Acquire);
    if membership == NONE {
        return Ok(());
    }
    orphans.leave(handle, live, membership)?;
    live.orphan.0.store(NONE, Ordering::Release);
    Ok(())
}

impl Orphans {
    /// In the plain form every question takes the list's lock.
    fn ask_locked(&self) {
        if self.form == OrphanForm::Locked {
            self.list.ask();
        }
    }
}

/// Puts the checksum of a block of the orphan file, which lies at `home`, into its end.
pub(crate) fn seal_block(seed: u32, home: FsBlock, bytes: &mut [u8]) {
    let Some(end) = bytes.len().checked_sub(read::TAIL_BYTES) else { return };
    let sum = crc32c(crc32c(seed, &home.0.to_le_bytes()), &bytes[..end]);
    bytes[end + 4..].copy_from_slice(&sum.to_le_bytes());
}
