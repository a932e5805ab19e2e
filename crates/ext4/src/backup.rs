//! Copies of the superblock, and reading a filesystem through one of them.
//!
//! Groups at the start of the device's first, third, fifth part and so on begin with a copy of the superblock and of
//! the group descriptors, as mke2fs or the last growth wrote them: their sizes and locations are right, their counts
//! are old. A filesystem whose first superblock is lost is read through an overlay in memory that has the copy in its
//! place, and the copies of descriptors in place of damaged ones. As in e2fsck, the copied counts of unused inodes are
//! ignored, and the journal is recovered even if the copy says that it needs no recovery.
//!
//! No locks. Left out: copies in groups of an unusual size, and of filesystems with `sparse_super2` but in the last
//! group; these are read where they are named. Writing.

use std::sync::Arc;

use undercroft_block::{BlockDevice, Device, Overlay};
use undercroft_vfs::{Error, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::checksum::crc32c;
use crate::error::corrupt_block;
use crate::features::{Incompat, RoCompat};
use crate::group::{GroupDetails, GroupFlags};
use crate::numbers::{FsBlock, Group};
use crate::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock};
use crate::volume::Volume;

/// Base-2 logarithms of the block sizes.
const BLOCK_BITS: std::ops::RangeInclusive<u32> = 10..=16;

/// Groups that have a copy with `sparse_super`, as far as copies are looked for.
const GROUPS: [u64; 10] = [1, 3, 5, 7, 9, 25, 27, 49, 81, 125];

/// Metadata that is kept in memory while the descriptors are looked at, in bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// A copy of the superblock that agrees with itself and with where it lies.
#[derive(Clone, Debug)]
pub struct BackupSuperblock {
    block: u64,
    group: Group,
    superblock: Superblock,
}

impl BackupSuperblock {
    /// The good copies at the usual places of a device, by rising block size and block.
    ///
    /// # Errors
    /// I/O failure.
    pub fn find(device: &dyn BlockDevice) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for bits in BLOCK_BITS {
            let first = u64::from(bits == 10);
            let per_group = 8_u64 << bits;
            let blocks = device.size_bytes() >> bits;
            let last = blocks.saturating_sub(first + 1) / per_group;
            let usual = GROUPS.into_iter().filter(|&group| group < last);
            for group in usual.chain((last > 0).then_some(last)) {
                match Self::at(device, first + group * per_group, bits) {
                    Ok(copy) => found.push(copy),
                    Err(error @ Error::Io(_)) => return Err(error),
                    Err(_) => {}
                }
            }
        }
        Ok(found)
    }

    /// The copy that begins at `block`, counted in blocks of the filesystem's own size, as e2fsck's `-b` has it.
    ///
    /// # Errors
    /// Corruption, if there is none; [`Unsupported`](Error::Unsupported) features; I/O failure.
    pub fn read(device: &dyn BlockDevice, block: u64) -> Result<Self> {
        let mut closest = None;
        for bits in BLOCK_BITS {
            match Self::at(device, block, bits) {
                Ok(copy) => return Ok(copy),
                Err(error @ (Error::Io(_) | Error::Unsupported(_))) => return Err(error),
                Err(error) if Self::is_magic_at(device, block, bits) => closest = Some(error),
                Err(_) => {}
            }
        }
        Err(closest.unwrap_or_else(|| corrupt_block("superblock", FsBlock(block), "there is no copy of it")))
    }

    fn at(device: &dyn BlockDevice, block: u64, bits: u32) -> Result<Self> {
        let wrong = |detail: String| corrupt_block("superblock", FsBlock(block), detail);
        let mut bytes = [0; size_of::<RawSuperblock>()];
        let offset = block.checked_mul(1 << bits).filter(|offset| {
            offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= device.size_bytes())
        });
        let Some(offset) = offset else { return Err(wrong("lies past the end of the device".into())) };
        device.read_at(offset, &mut bytes)?;
        let Ok(raw) = RawSuperblock::read_from_bytes(&bytes) else { return Err(wrong("too short".into())) };
        let said = raw.s_block_group_nr.get();
        // The end of the image may be missing.
        let superblock = Superblock::from_raw(raw, u64::MAX)?;
        let geometry = superblock.geometry();
        if geometry.block_bits() != bits {
            return Err(wrong(format!("says that blocks have {} bytes", geometry.block_bytes())));
        }
        let per_group = u64::from(geometry.blocks_per_group());
        let from_first = block.checked_sub(geometry.first_data_block().into());
        let group = from_first.filter(|from_first| from_first % per_group == 0).map(|from| from / per_group);
        let group = group.filter(|&group| group < u64::from(geometry.groups())).map(|group| group as u32);
        match group {
            // The field has 16 bits.
            Some(group) if group > 0 && group as u16 == said => {
                Ok(Self { block, group: Group(group), superblock })
            }
            _ => Err(wrong(format!("says that it is the copy in group {said}"))),
        }
    }

    fn is_magic_at(device: &dyn BlockDevice, block: u64, bits: u32) -> bool {
        let mut magic = [0; 2];
        block
            .checked_mul(1 << bits)
            .and_then(|offset| offset.checked_add(0x38))
            .is_some_and(|offset| device.read_at(offset, &mut magic).is_ok())
            && u16::from_le_bytes(magic) == crate::superblock::MAGIC
    }

    /// The block that it begins at, in blocks of the filesystem.
    #[must_use]
    pub fn block(&self) -> u64 {
        self.block
    }

    /// What it says.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The device as it would be with this copy in the place of the first superblock. What differs is kept in memory.
    ///
    /// # Errors
    /// I/O failure.
    pub fn laid_over(&self, device: Device) -> Result<Device> {
        let overlay = Arc::new(Overlay::new(device));
        let superblock = self.as_first()?;
        overlay.write_at(SUPERBLOCK_OFFSET, superblock.raw().as_bytes())?;
        // What it reads is what lies on the device: nothing is written before all of it has been looked at.
        let volume = Volume::new(Arc::clone(&overlay) as Device, superblock, BUFFER_BYTES);
        let mut mended = Vec::new();
        for group in (0..volume.superblock().geometry().groups()).map(Group) {
            if GroupDetails::read_on_disk(&volume, group).is_err()
                && let Some(bytes) = self.descriptor(&volume, group)
            {
                mended.push((volume.superblock().geometry().descriptor_location(group), bytes));
            }
        }
        for ((block, byte), bytes) in mended {
            let offset = (block.0 << volume.superblock().geometry().block_bits()) + byte as u64;
            overlay.write_at(offset, &bytes)?;
        }
        Ok(overlay)
    }

    /// This copy as it would be the first.
    fn as_first(&self) -> Result<Superblock> {
        let mut raw = self.superblock.raw().clone();
        raw.s_block_group_nr.set(0);
        if self.superblock.journal_inode().is_some() {
            // The copy does not say whether the log is empty; recovery finds out.
            raw.s_feature_incompat.set(raw.s_feature_incompat.get() | Incompat::RECOVER.bits());
        }
        if self.superblock.features().ro_compat.contains(RoCompat::METADATA_CSUM) {
            let sum = crc32c(!0, &raw.as_bytes()[..size_of::<RawSuperblock>() - 4]);
            raw.s_checksum.set(sum);
        }
        Superblock::from_raw(raw, u64::MAX)
    }

    /// The copy of a group's descriptor that lies with this superblock, if it is good.
    fn descriptor(&self, volume: &Volume, group: Group) -> Option<Vec<u8>> {
        let superblock = volume.superblock();
        let geometry = superblock.geometry();
        let per_block = geometry.descriptors_per_block();
        let (index, slot) = (group.0 / per_block, group.0 % per_block);
        let block = if index < geometry.first_meta_group() {
            FsBlock(geometry.group_start(self.group).0 + 1 + u64::from(index))
        } else {
            // A meta group's first, second and last group have its block of descriptors.
            let second = Group((index * per_block).checked_add(1)?);
            if second.0 >= geometry.groups() {
                return None;
            }
            FsBlock(geometry.group_start(second).0 + u64::from(geometry.has_superblock(second)))
        };
        let bytes = usize::from(geometry.descriptor_bytes());
        let buffer = volume.read_block(block).ok()?;
        let mut copy = buffer[slot as usize * bytes..][..bytes].to_vec();
        let mut details = GroupDetails::validate(superblock, group, block, &copy).ok()?;
        // What has been used since the copy was made is not known.
        details.flags &= !(GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT);
        details.descriptor.unused_inodes = 0;
        details.put(superblock, group, &mut copy);
        Some(copy)
    }
}

#[cfg(test)]
mod tests {
    use undercroft_block::MemoryDevice;
    use undercroft_vfs::{Credentials, FileSystem, Vfs, VfsOptions};

    use super::*;
    use crate::{Ext4, Family, MkfsOptions, OpenOptions, WriteOptions, mkfs};

    /// Of five groups, with a file, and closed unless it `crashed`.
    fn filesystem(family: Family, features: &str, crashed: bool) -> Arc<MemoryDevice> {
        let device = Arc::new(MemoryDevice::new(40 << 20));
        let options = MkfsOptions {
            block_bytes: Some(1024),
            features: features.to_owned(),
            ..MkfsOptions::new(family)
        };
        mkfs(&*device, &options).unwrap();
        let ext4 = Ext4::open(device.clone(), OpenOptions::default(), WriteOptions::default()).unwrap();
        let vfs = Vfs::new(ext4, VfsOptions::default());
        for number in 0..300 {
            vfs.write(&Credentials::root(), format!("/{number}"), "stone").unwrap();
        }
        if crashed {
            vfs.sync().unwrap();
            let before = Arc::new(MemoryDevice::new(40 << 20));
            let mut bytes = vec![0; 40 << 20];
            device.read_at(0, &mut bytes).unwrap();
            before.write_at(0, &bytes).unwrap();
            vfs.close().unwrap();
            return before;
        }
        vfs.close().unwrap();
        device
    }

    fn read_all(device: Device) {
        let ext4 = Ext4::open_read_only(device, OpenOptions::default()).unwrap();
        assert!(ext4.statfs().unwrap().blocks_free > 0);
        let vfs = Vfs::new(ext4, VfsOptions::default());
        for number in 0..300 {
            assert_eq!(vfs.read(&Credentials::root(), format!("/{number}")).unwrap(), b"stone");
        }
    }

    #[test]
    fn a_copy_replaces_the_first_superblock_and_its_descriptors() {
        for (family, features) in [
            (Family::Ext4, ""),
            (Family::Ext2, ""),
            (Family::Ext3, ""),
            (Family::Ext4, "meta_bg,^resize_inode"),
        ] {
            for (crashed, lost) in [(false, 1024..2048), (false, 1024..3072), (true, 1024..3072)] {
                let device = filesystem(family, features, crashed);
                device.write_at(lost.start, &vec![0; (lost.end - lost.start) as usize]).unwrap();
                assert!(Ext4::open_read_only(device.clone(), OpenOptions::default()).is_err());
                let copies = BackupSuperblock::find(&*device).unwrap();
                assert_eq!(copies.iter().map(BackupSuperblock::block).collect::<Vec<_>>(), [8193, 24577]);
                let copy = BackupSuperblock::read(&*device, 24577).unwrap();
                read_all(copy.laid_over(device).unwrap());
            }
        }
    }

    #[test]
    fn what_is_no_copy_is_refused() {
        let device = filesystem(Family::Ext4, "", false);
        for wrong in [0, 1, 2, 8192, 16385, 40960, u64::MAX] {
            assert!(matches!(BackupSuperblock::read(&*device, wrong), Err(Error::Corrupt(_))), "{wrong}");
        }
        // Of another filesystem that lies elsewhere.
        let mut bytes = [0; 1024];
        device.read_at(8193 * 1024, &mut bytes).unwrap();
        device.write_at(16385 * 1024, &bytes).unwrap();
        let error = BackupSuperblock::read(&*device, 16385).unwrap_err().to_string();
        assert!(error.contains("copy in group 1"), "{error}");
        device.write_at(8193 * 1024 + 4, &[0xff]).unwrap();
        let error = BackupSuperblock::read(&*device, 8193).unwrap_err().to_string();
        assert!(error.contains("checksum"), "{error}");
        assert_eq!(BackupSuperblock::find(&*device).unwrap().len(), 1);
    }
}
