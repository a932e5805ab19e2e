//! Changing what a filesystem is known by: its label, and its UUID.
//!
//! The label changes while the filesystem is in use or not, in one transaction with its copies
//! ([`superblocks`](crate::superblocks)).
//!
//! The UUID that users see changes while the filesystem is not in use. Blocks carry the UUID that the filesystem was made
//! with: that goes on as `sb_meta_uuid`, with the incompatible feature that says so, until the old one comes back. Records of
//! the log carry the UUID that users see, and Linux mounts no filesystem whose last record has another one, but any one
//! whose last record has none. So, durably one after the other:
//!
//! 1. the log ends in a record without a UUID;
//! 2. the copies of the superblock have the new UUID;
//! 3. the first superblock has it;
//! 4. the log ends in a record with it.
//!
//! A crash in between leaves a filesystem that is mounted as before, with the old UUID or the new one; between 2 and 3
//! xfs_repair finds copies that differ, until the UUID is changed again.
//!
//! Sources: what xfs_admin makes of images, and which of them Linux mounts.

use std::mem::offset_of;
use std::sync::Arc;

use undercroft_block::{Access, BlockDevice, Device, LatchedDevice};
use undercroft_vfs::{Error, Result};
use uuid::Uuid;

use crate::Xfs;
use crate::alloc::GROUPS_MAX;
use crate::error::corrupt;
use crate::format::superblock::RawSuperblock;
use crate::format::{Incompat, Superblock};
use crate::log;
use crate::superblocks::{self, Superblocks};

/// The longest label in bytes.
pub const LABEL_MAX_BYTES: usize = 12;

/// Which UUID users are to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewUuid {
    /// This one. None at all is possible; Linux mounts such a filesystem with the option `nouuid` only.
    Uuid(Uuid),
    /// The one that the filesystem was made with.
    Original,
}

/// Whether a filesystem can have that label.
///
/// # Errors
/// [`Error::Unsupported`] when it cannot.
pub fn check_label(label: &[u8]) -> Result<()> {
    if label.len() > LABEL_MAX_BYTES || label.contains(&0) {
        return Err(Error::InvalidArgument("a label of XFS has at most 12 bytes, none of them zero"));
    }
    Ok(())
}

impl Xfs {
    /// Changes the label. The filesystem may be in use; the label is durable on return.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a label that it cannot have, [`Error::ReadOnly`]; I/O failure.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        let volume = self.volume();
        let writer = volume.writer()?;
        check_label(label)?;
        let _resizing = writer.resizing.lock();
        let mut sector = superblocks::sector(volume)?;
        let at = offset_of!(RawSuperblock, sb_fname);
        sector[at..at + LABEL_MAX_BYTES].fill(0);
        sector[at..at + label.len()].copy_from_slice(label);
        superblocks::seal(&mut sector);
        let superblock = Superblock::from_sector(&sector)?;
        let groups = volume.geometry().ag_count();
        let with_first = groups.min(Superblocks::at_once(volume)?);
        let first = Superblocks::read(volume, 0..with_first)?;
        first.replace(&volume.start(with_first)?, &sector);
        volume.replace_superblock(superblock);
        let rest = superblocks::replace(volume, with_first..groups, &sector)
            .and_then(|()| writer.transactions.commit_everything(volume));
        rest.or_else(|error| {
            // Groups have different copies in memory. The first cause is told, which may be an earlier one.
            let what = format!("the label has changed, but not in all copies of the superblock: {error}");
            writer.transactions.abort_with(&what, &error);
            writer.transactions.check()
        })
    }
}

/// Changes the UUID of a filesystem that is not in use. Returns the old one and the new one.
///
/// # Errors
/// [`Error::Unsupported`] naming what stands against it, a log that holds changes for one; [`Error::ReadOnly`] for a device
/// that is; [`Error::Corrupt`], when nothing has changed; I/O failure.
pub fn set_uuid(device: Device, new: NewUuid) -> Result<(Uuid, Uuid)> {
    let device: Device = Arc::new(LatchedDevice::new(device));
    if device.access() == Access::ReadOnly {
        return Err(Error::ReadOnly);
    }
    let superblock = Superblock::read(&*device)?;
    superblock.check_writable(log::can_write(&superblock))?;
    let old = superblock.uuid();
    let uuid = match new {
        NewUuid::Uuid(uuid) => uuid,
        NewUuid::Original => superblock.meta_uuid(),
    };
    let is_everywhere = is_in_all_copies(&*device, &superblock, uuid)?;
    let replayed =
        log::recover_onto_device(&device, None, &superblock, |recovered| match &recovered.recovery {
            None => Ok(()),
            Some(_) => {
                let what = "changing the UUID of a filesystem whose log holds changes: mount it once";
                Err(Error::Unsupported(what.into()))
            }
        })?;
    if uuid == old && is_everywhere {
        return Ok((old, uuid));
    }
    replayed.unmount_as(&device, Uuid::nil())?;
    for at in places(&superblock).skip(1) {
        device.write_at(at, &changed(&*device, &superblock, at, uuid)?)?;
    }
    device.flush()?;
    // The counters of the first one may have been made right meanwhile.
    let now = Superblock::read(&*device)?;
    device.write_at(0, &changed(&*device, &now, 0, uuid)?)?;
    device.flush()?;
    let now = Superblock::read(&*device)?;
    log::recover_onto_device(&device, None, &now, |_| Ok(()))?.unmount_as(&device, uuid)?;
    Ok((old, uuid))
}

/// Where the superblocks of all groups lie, the first one first.
fn places(superblock: &Superblock) -> impl Iterator<Item = u64> + use<> {
    let geometry = superblock.geometry();
    let group_bytes = u64::from(geometry.ag_blocks()) << geometry.block_log();
    (0..u64::from(geometry.ag_count())).map(move |group| group * group_bytes)
}

/// Validates the superblocks of all groups. Whether all have that UUID.
fn is_in_all_copies(device: &dyn BlockDevice, superblock: &Superblock, uuid: Uuid) -> Result<bool> {
    if superblock.geometry().ag_count() > GROUPS_MAX {
        return Err(Error::Unsupported("writing to a filesystem of so many allocation groups".into()));
    }
    let at = offset_of!(RawSuperblock, sb_uuid);
    let mut all = true;
    for place in places(superblock) {
        all &= copy_at(device, superblock, place)?[at..at + 16] == *uuid.as_bytes();
    }
    Ok(all)
}

/// The superblock at a place of the device, which is a copy of `superblock`.
fn copy_at(device: &dyn BlockDevice, superblock: &Superblock, at: u64) -> Result<Vec<u8>> {
    let mut sector = vec![0; superblock.geometry().sector_bytes() as usize];
    device.read_at(at, &mut sector)?;
    if !superblocks::is_copy(&sector, superblock) {
        let detail = format!("the copy at byte {at} is damaged: run xfs_repair on the filesystem");
        return Err(corrupt("superblock", detail));
    }
    Ok(sector)
}

/// The superblock at a place of the device, a copy of `superblock`, with another UUID.
fn changed(device: &dyn BlockDevice, superblock: &Superblock, at: u64, uuid: Uuid) -> Result<Vec<u8>> {
    let mut sector = copy_at(device, superblock, at)?;
    let mut put = |at: usize, value: &[u8]| sector[at..at + value.len()].copy_from_slice(value);
    let (original, is_original) = (superblock.meta_uuid(), uuid == superblock.meta_uuid());
    let mut incompat = superblock.features().incompat();
    incompat.set(Incompat::META_UUID, !is_original);
    let meta_uuid = if is_original { Uuid::nil() } else { original };
    put(offset_of!(RawSuperblock, sb_uuid), uuid.as_bytes());
    put(offset_of!(RawSuperblock, sb_meta_uuid), meta_uuid.as_bytes());
    put(offset_of!(RawSuperblock, sb_features_incompat), &incompat.bits().to_be_bytes());
    superblocks::seal(&mut sector);
    Ok(sector)
}
