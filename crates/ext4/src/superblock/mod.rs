//! The superblock: what the filesystem is, where its parts lie, and what state it was left in.
//!
//! [`Superblock::read`] is the only way to a [`Superblock`], and validates everything that later code relies on: magic,
//! checksum, features, sizes, and that all block groups lie within the device. Later code relies on all sizes. Free
//! counts are hints, as they are for Linux: the group descriptors' are more accurate.

mod change;
mod geometry;
mod mark;
mod raw;
mod settings;
mod state;

use std::fmt;

use undercroft_block::BlockDevice;
use undercroft_vfs::{Error, Result, Timestamp};
use uuid::Uuid;
use zerocopy::{FromBytes, IntoBytes};

use crate::checksum::crc32c;
use crate::error::corrupt;
use crate::features::{Compat, Features, Incompat, RoCompat};
pub(crate) use change::{change, home};
pub use geometry::Geometry;
pub(crate) use mark::{ErrorRecord, Recorded, mark_clean, mark_failed, mark_in_use};
use raw::REVISION_ORIGINAL;
pub(crate) use raw::{MAGIC, RawSuperblock, SUPERBLOCK_OFFSET};
pub(crate) use settings::switch;
pub use settings::{HashAlgorithm, MountDefault, OnError};
pub use state::State;

/// How names are hashed in a directory whose index does not say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashDefaults {
    /// `s_def_hash_version`.
    pub(crate) version: u8,
    /// `s_hash_seed`; all zero stands for the hash's own initial values.
    pub(crate) seed: [u32; 4],
    /// Whether `char` was unsigned on the machine that made the indexes.
    pub(crate) unsigned: bool,
}

/// A superblock that has been validated.
#[derive(Clone)]
pub struct Superblock {
    raw: Box<RawSuperblock>,
    features: Features,
    geometry: Geometry,
    checksum_seed: u32,
}

impl fmt::Debug for Superblock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Superblock")
            .field("family", &self.family())
            .field("uuid", &self.uuid())
            .field("blocks", &self.geometry.blocks())
            .field("block_bytes", &self.geometry.block_bytes())
            .finish_non_exhaustive()
    }
}

impl Superblock {
    /// Reads and validates the primary superblock.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when it is not an ext superblock or contradicts itself or the device's size,
    /// [`Error::Unsupported`] for features that cannot be read, [`Error::Io`].
    pub fn read(device: &dyn BlockDevice) -> Result<Self> {
        let mut bytes = [0; size_of::<RawSuperblock>()];
        if device.size_bytes() < SUPERBLOCK_OFFSET + bytes.len() as u64 {
            return Err(corrupt(
                "superblock",
                format!("{} is only {} bytes long, too short for one", device.name(), device.size_bytes()),
            ));
        }
        device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
        Self::validate(&bytes, device.size_bytes())
    }

    /// Whether the device carries the magic number of the ext family, whatever else may be wrong with it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn is_present(device: &dyn BlockDevice) -> Result<bool> {
        let mut magic = [0; 2];
        if device.size_bytes() < SUPERBLOCK_OFFSET + size_of::<RawSuperblock>() as u64 {
            return Ok(false);
        }
        device.read_at(SUPERBLOCK_OFFSET + 0x38, &mut magic)?;
        Ok(u16::from_le_bytes(magic) == MAGIC)
    }

    /// The size in bytes that the superblock gives the filesystem, if it is good but for that the device may be
    /// smaller.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn declared_bytes(device: &dyn BlockDevice) -> Result<u64> {
        let mut bytes = [0; size_of::<RawSuperblock>()];
        if device.size_bytes() < SUPERBLOCK_OFFSET + bytes.len() as u64 {
            return Err(corrupt("superblock", "the device is too short for one"));
        }
        device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
        let superblock = Self::validate(&bytes, u64::MAX)?;
        Ok(superblock.geometry.size_bytes())
    }

    fn validate(bytes: &[u8; size_of::<RawSuperblock>()], device_bytes: u64) -> Result<Self> {
        let Ok(raw) = RawSuperblock::read_from_bytes(bytes) else {
            return Err(corrupt("superblock", "too short"));
        };
        Self::from_raw(raw, device_bytes)
    }

    /// Validates a superblock that need not be on a device.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub(crate) fn from_raw(raw: RawSuperblock, device_bytes: u64) -> Result<Self> {
        let magic = raw.s_magic.get();
        if magic != MAGIC {
            let detail =
                format!("magic number is {magic:#06x}, not {MAGIC:#06x}: this is not ext2, ext3 or ext4");
            return Err(corrupt("superblock", detail));
        }
        let features = if raw.s_rev_level.get() == REVISION_ORIGINAL {
            Features { compat: Compat::empty(), incompat: Incompat::empty(), ro_compat: RoCompat::empty() }
        } else {
            Features {
                compat: Compat::from_bits_retain(raw.s_feature_compat.get()),
                incompat: Incompat::from_bits_retain(raw.s_feature_incompat.get()),
                ro_compat: RoCompat::from_bits_retain(raw.s_feature_ro_compat.get()),
            }
        };
        features.check_readable()?;
        if features.ro_compat.contains(RoCompat::METADATA_CSUM) {
            Self::verify_checksum(&raw)?;
        }
        let geometry = Geometry::validate(&raw, &features, device_bytes)?;
        let checksum_seed = if features.incompat.contains(Incompat::CSUM_SEED) {
            raw.s_checksum_seed.get()
        } else {
            crc32c(!0, &raw.s_uuid)
        };
        Ok(Self { raw: Box::new(raw), features, geometry, checksum_seed })
    }

    fn verify_checksum(raw: &RawSuperblock) -> Result<()> {
        /// The only checksum that is defined: CRC-32C.
        const CRC32C: u8 = 1;
        if raw.s_checksum_type != CRC32C {
            let name = format!("metadata checksum algorithm {}", raw.s_checksum_type);
            return Err(Error::Unsupported(name.into()));
        }
        let computed = crc32c(!0, &raw.as_bytes()[..size_of::<RawSuperblock>() - 4]);
        let stored = raw.s_checksum.get();
        if computed != stored {
            let detail = format!("checksum is {stored:#010x}, its content gives {computed:#010x}");
            return Err(corrupt("superblock", detail));
        }
        Ok(())
    }

    /// The features in use.
    #[must_use]
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Sizes and counts.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The filesystem's UUID.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        Uuid::from_bytes(self.raw.s_uuid)
    }

    /// The label, without trailing NULs: at most 16 bytes, any encoding.
    #[must_use]
    pub fn label(&self) -> &[u8] {
        until_nul(&self.raw.s_volume_name)
    }

    /// Where it was mounted last; empty if never.
    #[must_use]
    pub fn last_mounted(&self) -> &[u8] {
        until_nul(&self.raw.s_last_mounted)
    }

    /// `ext2`, `ext3` or `ext4`, by the features in use, as `blkid` tells them apart.
    #[must_use]
    pub fn family(&self) -> &'static str {
        let (incompat, ro_compat) = (self.features.incompat, self.features.ro_compat);
        let ext3_incompat = Incompat::FILETYPE | Incompat::RECOVER | Incompat::META_BG;
        let ext3_ro_compat = RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE | RoCompat::BTREE_DIR;
        if !ext3_incompat.contains(incompat) || !ext3_ro_compat.contains(ro_compat) {
            "ext4"
        } else if self.features.compat.contains(Compat::HAS_JOURNAL) {
            "ext3"
        } else {
            "ext2"
        }
    }

    /// Whether the journal must be replayed before anything else is read.
    #[must_use]
    pub fn needs_recovery(&self) -> bool {
        self.features.incompat.contains(Incompat::RECOVER)
    }

    /// The state word: clean, with errors, with orphans.
    #[must_use]
    pub fn state(&self) -> State {
        State::from_bits_retain(self.raw.s_state.get())
    }

    /// How many errors the kernel has recorded since the last check.
    #[must_use]
    pub fn error_count(&self) -> u32 {
        self.raw.s_error_count.get()
    }

    /// When it was made.
    #[must_use]
    pub fn created(&self) -> Timestamp {
        wide_time(self.raw.s_mkfs_time.get(), self.raw.s_mkfs_time_hi)
    }

    /// When it was mounted last; the epoch if never.
    #[must_use]
    pub fn mounted(&self) -> Timestamp {
        wide_time(self.raw.s_mtime.get(), self.raw.s_mtime_hi)
    }

    /// When the superblock was written last.
    #[must_use]
    pub fn written(&self) -> Timestamp {
        wide_time(self.raw.s_wtime.get(), self.raw.s_wtime_hi)
    }

    /// When it was checked last.
    #[must_use]
    pub fn checked(&self) -> Timestamp {
        wide_time(self.raw.s_lastcheck.get(), self.raw.s_lastcheck_hi)
    }

    /// Mounts since the last check.
    #[must_use]
    pub fn mount_count(&self) -> u16 {
        self.raw.s_mnt_count.get()
    }

    /// Mounts after which it is to be checked; `None` for any number.
    #[must_use]
    pub fn mounts_most(&self) -> Option<u16> {
        let most = self.raw.s_max_mnt_count.get();
        (1..=i16::MAX.unsigned_abs()).contains(&most).then_some(most)
    }

    /// Seconds after which it is to be checked; `None` for any time.
    #[must_use]
    pub fn check_interval_s(&self) -> Option<u32> {
        Some(self.raw.s_checkinterval.get()).filter(|&seconds| seconds > 0)
    }

    /// What the kernel does when it finds damage; `None` where the number means nothing.
    #[must_use]
    pub fn on_error(&self) -> Option<OnError> {
        OnError::by_number(self.raw.s_errors.get())
    }

    /// The user and the group that reserved blocks are for, beside the superuser.
    #[must_use]
    pub fn reserved_for(&self) -> (u16, u16) {
        (self.raw.s_def_resuid.get(), self.raw.s_def_resgid.get())
    }

    /// The mount options that it has by itself, by the names that tune2fs gives them.
    #[must_use]
    pub fn mount_defaults(&self) -> Vec<&'static str> {
        MountDefault::names_in(self.raw.s_default_mount_opts.get())
    }

    /// More mount options that it has by itself, as text.
    #[must_use]
    pub fn mount_options(&self) -> &[u8] {
        let text = &self.raw.s_mount_opts;
        let len = text.iter().position(|&byte| byte == 0);
        len.map_or(&text[..], |len| &text[..len])
    }

    /// Blocks on a disk of an array before the next disk, and on all disks that hold data; 0 where that is not said.
    #[must_use]
    pub fn stripe(&self) -> (u16, u32) {
        (self.raw.s_raid_stride.get(), self.raw.s_raid_stripe_width.get())
    }

    /// How names in new directories are hashed; `None` where the number is not known.
    #[must_use]
    pub fn hash_algorithm(&self) -> Option<HashAlgorithm> {
        HashAlgorithm::by_number(self.raw.s_def_hash_version)
    }

    /// KiB ever written through a mount.
    #[must_use]
    pub fn lifetime_writes_kib(&self) -> u64 {
        self.raw.s_kbytes_written.get()
    }

    /// The journal's inode number; `None` without a journal or with an external one.
    #[must_use]
    pub fn journal_inode(&self) -> Option<u32> {
        let ino = self.raw.s_journal_inum.get();
        (self.features.compat.contains(Compat::HAS_JOURNAL) && ino != 0).then_some(ino)
    }

    /// The UUID of the external journal, where the journal is one.
    #[must_use]
    pub fn external_journal(&self) -> Option<Uuid> {
        let external = self.features.compat.contains(Compat::HAS_JOURNAL)
            && self.raw.s_journal_inum.get() == 0
            && self.raw.s_journal_dev.get() != 0;
        external.then(|| Uuid::from_bytes(self.raw.s_journal_uuid))
    }

    /// Name of the encoding by which casefolded directories compare names.
    #[must_use]
    pub fn encoding(&self) -> Option<&'static str> {
        const UTF8_12_1: u16 = 1;
        if !self.features.incompat.contains(Incompat::CASEFOLD) {
            return None;
        }
        Some(if self.raw.s_encoding.get() == UTF8_12_1 { "utf8-12.1.0" } else { "unknown" })
    }

    /// Inodes that hold user, group and project quotas; 0 where there is none.
    #[must_use]
    pub fn quota_inodes(&self) -> [u32; 3] {
        [self.raw.s_usr_quota_inum.get(), self.raw.s_grp_quota_inum.get(), self.raw.s_prj_quota_inum.get()]
    }

    /// Seed of every metadata checksum but the superblock's.
    pub(crate) fn checksum_seed(&self) -> u32 {
        self.checksum_seed
    }

    pub(crate) fn has_metadata_checksums(&self) -> bool {
        self.features.ro_compat.contains(RoCompat::METADATA_CSUM)
    }

    /// The seed of names' hashes.
    #[must_use]
    pub fn hash_seed(&self) -> Uuid {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(zerocopy::IntoBytes::as_bytes(&self.raw.s_hash_seed));
        Uuid::from_bytes(bytes)
    }

    pub(crate) fn hash_defaults(&self) -> HashDefaults {
        /// `EXT2_FLAGS_UNSIGNED_HASH`: `char` was unsigned where the directories were hashed.
        const UNSIGNED_HASH: u32 = 0x0002;
        HashDefaults {
            version: self.raw.s_def_hash_version,
            seed: self.raw.s_hash_seed.map(zerocopy::little_endian::U32::get),
            unsigned: self.raw.s_flags.get() & UNSIGNED_HASH != 0,
        }
    }

    /// Groups whose bitmaps and inode tables lie together; 1 where each group has its own. As for Linux, a number that
    /// makes no sense counts as 1.
    pub(crate) fn groups_per_flex(&self) -> u32 {
        let log = u32::from(self.raw.s_log_groups_per_flex);
        if self.features.incompat.contains(Incompat::FLEX_BG) {
            1_u32.checked_shl(log).unwrap_or(1)
        } else {
            1
        }
    }

    /// What is wrong with the size of flex groups, which Linux reads as 1 then, and e2fsck takes for damage.
    pub(crate) fn flex_group_fault(&self) -> Option<String> {
        let log = self.raw.s_log_groups_per_flex;
        let is_wrong = self.raw.s_rev_level.get() != REVISION_ORIGINAL && log > 31;
        is_wrong.then(|| format!("flex groups have 2^{log} groups; 2^31 are the most"))
    }

    /// Refuses changes of sizes and settings where the superblock contradicts itself in what readers ignore.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with what is wrong.
    pub(crate) fn refuse_faults(&self) -> Result<()> {
        match self.flex_group_fault() {
            Some(fault) => Err(corrupt("superblock", format!("{fault}; e2fsck -f repairs it"))),
            None => Ok(()),
        }
    }

    /// The head of the list of orphaned inodes; 0 when it is empty.
    pub(crate) fn first_orphan(&self) -> u32 {
        self.raw.s_last_orphan.get()
    }

    /// The orphan file's inode number, where the feature is on.
    pub(crate) fn orphan_file_inode(&self) -> Option<u32> {
        let ino = self.raw.s_orphan_file_inum.get();
        (self.features.compat.contains(Compat::ORPHAN_FILE) && ino != 0).then_some(ino)
    }

    /// Where the multiple-mount protection block lies, and the seconds between its updates.
    pub(crate) fn mmp(&self) -> Option<(u64, u16)> {
        self.features
            .incompat
            .contains(Incompat::MMP)
            .then(|| (self.raw.s_mmp_block.get(), self.raw.s_mmp_interval.get()))
    }

    pub(crate) fn raw(&self) -> &RawSuperblock {
        &self.raw
    }

    /// Clusters that Linux holds back for extent conversions that must not fail: 2 percent, at most 4096, and none
    /// without extents.
    pub(crate) fn kept_for_maps(&self) -> u64 {
        if !self.features().incompat.contains(Incompat::EXTENTS) {
            return 0;
        }
        let geometry = self.geometry();
        (geometry.blocks() / u64::from(geometry.blocks_per_cluster()) / 50).min(4096)
    }
}

/// Puts the checksum into the primary superblock, which lies within the block `bytes`.
pub(crate) fn seal(block_bytes: u32, bytes: &mut [u8]) {
    let at = place_in_block(block_bytes);
    let end = at + size_of::<RawSuperblock>();
    let sum = crc32c(!0, &bytes[at..end - 4]);
    bytes[end - 4..end].copy_from_slice(&sum.to_le_bytes());
}

/// Puts the checksum into a superblock that is going to have one.
pub(crate) fn seal_raw(raw: &mut RawSuperblock) {
    let sum = crc32c(!0, &raw.as_bytes()[..size_of::<RawSuperblock>() - 4]);
    raw.s_checksum.set(sum);
}

/// The byte at which the primary superblock begins in its block.
fn place_in_block(block_bytes: u32) -> usize {
    (SUPERBLOCK_OFFSET % u64::from(block_bytes)) as usize
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len())]
}

/// The superblock's times have 40 bits and no sign.
fn wide_time(low: u32, high: u8) -> Timestamp {
    Timestamp { seconds: i64::from(low) | i64::from(high) << 32, nanoseconds: 0 }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::numbers::Group;

    /// As mke2fs makes a filesystem of 64 MiB with blocks of 1 KiB.
    fn good() -> RawSuperblock {
        let mut raw = RawSuperblock::new_zeroed();
        raw.s_magic.set(MAGIC);
        raw.s_rev_level.set(1);
        raw.s_blocks_count_lo.set(65536);
        raw.s_first_data_block.set(1);
        raw.s_blocks_per_group.set(8192);
        raw.s_clusters_per_group.set(8192);
        raw.s_inodes_per_group.set(2048);
        raw.s_inodes_count.set(8 * 2048);
        raw.s_first_ino.set(11);
        raw.s_inode_size.set(256);
        raw.s_desc_size.set(64);
        raw.s_feature_incompat.set(0x2c2);
        raw.s_feature_ro_compat.set(0x46b);
        raw.s_checksum_type = 1;
        raw
    }

    fn validate(mut raw: RawSuperblock) -> Result<Superblock> {
        let sum = crc32c(!0, &raw.as_bytes()[..1020]);
        raw.s_checksum.set(sum);
        let mut bytes = [0; 1024];
        bytes.copy_from_slice(raw.as_bytes());
        Superblock::validate(&bytes, 64 << 20)
    }

    #[test]
    fn a_good_superblock_is_accepted() {
        let superblock = validate(good()).unwrap();
        let geometry = superblock.geometry();
        assert_eq!(
            (geometry.groups(), geometry.block_bytes(), geometry.inode_table_blocks()),
            (8, 1024, 512)
        );
        assert_eq!(superblock.family(), "ext4");
        let with_copies: Vec<u32> = (0..8).filter(|&g| geometry.has_superblock(Group(g))).collect();
        assert_eq!(with_copies, [0, 1, 3, 5, 7]);
    }

    /// Each wrong field, and a word of the error.
    #[test]
    fn each_wrong_field_is_rejected() {
        type Lie = fn(&mut RawSuperblock);
        let lies: [(Lie, &str); 19] = [
            (|raw| raw.s_magic.set(0), "magic"),
            (|raw| raw.s_log_block_size.set(7), "block size"),
            (|raw| raw.s_log_block_size.set(u32::MAX), "block size"),
            (|raw| raw.s_blocks_count_lo.set(65537), "cut short"),
            (|raw| raw.s_blocks_count_hi.set(u32::MAX), "cut short"),
            (|raw| raw.s_blocks_count_lo.set(0), "first data block"),
            (|raw| raw.s_first_data_block.set(0), "first data block"),
            (|raw| raw.s_first_data_block.set(u32::MAX), "first data block"),
            (|raw| raw.s_blocks_per_group.set(0), "per group"),
            (|raw| raw.s_blocks_per_group.set(u32::MAX), "per group"),
            (|raw| raw.s_inodes_per_group.set(0), "inodes per group"),
            (|raw| raw.s_inodes_per_group.set(8193), "inodes per group"),
            (|raw| raw.s_inodes_count.set(1), "inodes"),
            (|raw| raw.s_inode_size.set(0), "inode size"),
            (|raw| raw.s_inode_size.set(2048), "inode size"),
            (|raw| raw.s_first_ino.set(2), "first inode"),
            (|raw| raw.s_desc_size.set(48), "descriptors"),
            (|raw| raw.s_feature_incompat.set(0x1_02c2 | 1 << 30), "FEATURE_I30"),
            (|raw| raw.s_checksum_type = 9, "algorithm 9"),
        ];
        for (lie, word) in lies {
            let mut raw = good();
            lie(&mut raw);
            let answer = validate(raw).unwrap_err().to_string();
            assert!(answer.contains(word), "{word}: {answer}");
        }
    }

    #[test]
    fn a_broken_checksum_is_found() {
        let mut bytes = [0; 1024];
        bytes.copy_from_slice(good().as_bytes());
        let answer = Superblock::validate(&bytes, 64 << 20).unwrap_err().to_string();
        assert!(answer.contains("checksum"), "{answer}");
    }
}
