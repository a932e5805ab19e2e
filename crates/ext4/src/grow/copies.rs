//! Copies of the superblock and the group descriptors, written when what they are copies of is durable.
//!
//! They lie in blocks that are the filesystem's own and that nothing else writes, so they go past the transactions. In
//! old groups, only what has changed is written.

use undercroft_vfs::Result;
use zerocopy::{FromBytes, IntoBytes};

use super::resize_inode::backups;
use super::{size, switch};
use crate::features::{Incompat, RoCompat};
use crate::numbers::{FsBlock, Group};
use crate::superblock::{self, RawSuperblock, SUPERBLOCK_OFFSET, Superblock};
use crate::volume::Volume;

/// Writes copies of the new superblock into new groups, where nothing leads yet: a crash before [`write`] then leaves no
/// group without one.
///
/// # Errors
/// I/O failure.
pub(super) fn write_new(volume: &Volume, old: &Superblock, new: &Superblock) -> Result<()> {
    let geometry = new.geometry();
    for group in backups(geometry).filter(|group| group.0 >= old.geometry().groups()) {
        let at = geometry.group_start(group).0 * u64::from(geometry.block_bytes());
        volume.device().write_at(at, as_copy(new.raw().clone(), new, group).as_bytes())?;
    }
    Ok(())
}

/// Writes the copies of a filesystem that has grown.
///
/// # Errors
/// I/O failure.
pub(super) fn write(volume: &Volume, old: &Superblock) -> Result<()> {
    let groups = old.geometry().groups();
    write_from(volume, groups, (groups - 1) / old.geometry().descriptors_per_block())
}

/// Writes all copies of a filesystem that has become smaller.
///
/// # Errors
/// I/O failure.
pub(crate) fn write_all(volume: &Volume) -> Result<()> {
    write_from(volume, volume.superblock().geometry().groups(), 0)
}

/// Writes copies of the superblock, and of blocks of descriptors: in groups from `first_new` on all of them, in others
/// those from `first_changed` on.
fn write_from(volume: &Volume, first_new: u32, first_changed: u32) -> Result<()> {
    let new = volume.superblock();
    let geometry = new.geometry();
    let block_bytes = u64::from(geometry.block_bytes());
    let device = volume.device();
    let in_front = geometry.descriptor_blocks_before_meta_groups();
    let reserved = u64::from(geometry.reserved_descriptor_blocks());
    for group in backups(geometry) {
        let at = geometry.group_start(group).0;
        let is_new = group.0 >= first_new;
        let superblock = superblock_copy(volume, new, group)?;
        // A group whose descriptor lies in a meta group has no others behind its superblock.
        if group.0 / geometry.descriptors_per_block() >= geometry.first_meta_group() {
            device.write_at(at * block_bytes, superblock.as_bytes())?;
            continue;
        }
        for index in (if is_new { 0 } else { first_changed })..in_front {
            let bytes = volume.read_block(switch::home_of(new, index))?;
            device.write_at((at + 1 + u64::from(index)) * block_bytes, &bytes)?;
        }
        if is_new && reserved > 0 {
            let first = at + 1 + u64::from(in_front);
            device.write_zeroes(first * block_bytes, reserved * block_bytes)?;
        }
        // Last, so that it tells that the others are there.
        device.write_at(at * block_bytes, superblock.as_bytes())?;
    }
    for index in first_changed.max(in_front)..geometry.descriptor_blocks() {
        let first = index * geometry.descriptors_per_block();
        let bytes = volume.read_block(switch::home_of(new, index))?;
        for group in [first + 1, first + geometry.descriptors_per_block() - 1].map(Group) {
            if group.0 < geometry.groups() && group.0 > first {
                let at = geometry.group_start(group).0 + u64::from(geometry.has_superblock(group));
                device.write_at(at * block_bytes, &bytes)?;
            }
        }
    }
    Ok(())
}

/// Writes the copies of the superblock as it is now, which is durable.
///
/// # Errors
/// I/O failure.
pub(crate) fn write_superblocks(volume: &Volume) -> Result<()> {
    let new = volume.superblock();
    let geometry = new.geometry();
    for group in backups(geometry) {
        let at = geometry.group_start(group).0 * u64::from(geometry.block_bytes());
        volume.device().write_at(at, superblock_copy(volume, new, group)?.as_bytes())?;
    }
    Ok(())
}

/// Writes copies again if the last one of the superblock has another UUID, another label or other features: a crash came
/// before all were written. That the orphan file has entries, and that the journal has changes, is no matter for copies.
/// Those of the descriptors go with it where their checksums are of another kind.
///
/// # Errors
/// I/O failure.
pub(crate) fn refresh(volume: &Volume) -> Result<()> {
    let now = volume.superblock();
    let Some(last) = backups(now.geometry()).last() else { return Ok(()) };
    let mut bytes = [0; size_of::<RawSuperblock>()];
    let at = now.geometry().group_start(last).0 * u64::from(now.geometry().block_bytes());
    volume.device().read_at(at, &mut bytes)?;
    let Ok(copy) = RawSuperblock::read_from_bytes(&bytes) else { return Ok(()) };
    let raw = now.raw();
    let kinds = (RoCompat::METADATA_CSUM | RoCompat::GDT_CSUM).bits();
    let has_other_checksums = (copy.s_feature_ro_compat.get() ^ raw.s_feature_ro_compat.get()) & kinds != 0;
    let ro_compat =
        (copy.s_feature_ro_compat.get() ^ raw.s_feature_ro_compat.get()) & !RoCompat::ORPHAN_PRESENT.bits();
    let is_old = copy.s_uuid != raw.s_uuid
        || copy.s_volume_name != raw.s_volume_name
        || ro_compat != 0
        || copy.s_feature_compat != raw.s_feature_compat
        || copy.s_feature_incompat.get() != raw.s_feature_incompat.get() & !Incompat::RECOVER.bits();
    match copy.s_magic == raw.s_magic {
        true if has_other_checksums => write_all(volume),
        true if is_old => write_superblocks(volume),
        _ => Ok(()),
    }
}

/// The superblock as it is now, as a copy for a group, which says that no recovery is needed.
fn superblock_copy(volume: &Volume, new: &Superblock, group: Group) -> Result<RawSuperblock> {
    let home: FsBlock = superblock::home(volume);
    let bytes = volume.read_block(home)?;
    let at = (SUPERBLOCK_OFFSET % u64::from(volume.block_bytes())) as usize;
    let Ok((raw, _)) = RawSuperblock::read_from_prefix(&bytes[at..]) else {
        unreachable!("a superblock fits where it is, in a block of any size")
    };
    Ok(as_copy(raw, new, group))
}

fn as_copy(mut raw: RawSuperblock, new: &Superblock, group: Group) -> RawSuperblock {
    raw.s_block_group_nr.set(group.0 as u16);
    raw.s_feature_incompat.set(raw.s_feature_incompat.get() & !Incompat::RECOVER.bits());
    size::seal(new, &mut raw);
    raw
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use undercroft_block::{Device, MemoryDevice};

    use super::*;
    use crate::mkfs::{Family, MkfsOptions, mkfs};
    use crate::{Ext4, OpenOptions, WriteOptions};

    /// A crash may come before copies have another label or other features.
    #[test]
    fn copies_with_another_label_or_other_features_are_written_again() {
        let device: Device = Arc::new(MemoryDevice::new(64 << 20));
        let options = MkfsOptions { label: b"new".to_vec(), ..MkfsOptions::new(Family::Ext4) };
        let made = mkfs(&*device, &options).unwrap();
        let at = made.backups.last().unwrap() * u64::from(made.superblock.geometry().block_bytes());
        let read = || {
            let mut bytes = [0; size_of::<RawSuperblock>()];
            device.read_at(at, &mut bytes).unwrap();
            RawSuperblock::read_from_bytes(&bytes).unwrap()
        };
        let good = read();
        let changes: [fn(&mut RawSuperblock); 3] = [
            |copy| copy.s_volume_name = *b"old\0\0\0\0\0\0\0\0\0\0\0\0\0",
            |copy| copy.s_feature_ro_compat.set(copy.s_feature_ro_compat.get() ^ RoCompat::DIR_NLINK.bits()),
            |copy| copy.s_feature_compat.set(0),
        ];
        for (n, change) in changes.into_iter().enumerate() {
            let mut copy = good.clone();
            change(&mut copy);
            device.write_at(at, copy.as_bytes()).unwrap();
            let open = OpenOptions::default();
            let ext4 = Ext4::open(Arc::clone(&device), open, WriteOptions::default()).unwrap();
            // As after a crash.
            refresh(ext4.volume()).unwrap();
            ext4.close().unwrap();
            let copy = read();
            assert_eq!(copy.s_volume_name, good.s_volume_name, "{n}");
            assert_eq!(copy.s_feature_ro_compat, good.s_feature_ro_compat, "{n}");
            assert_eq!(copy.s_feature_compat, good.s_feature_compat, "{n}");
        }
    }
}
