//! The superblock: from its bytes to a checked [`Superblock`].
//!
//! The first sector of each allocation group holds a copy; the first group's counts. Validation is in three steps:
//! magic, version and checksum; features, so that an unsupported filesystem is reported as such and not as corrupt;
//! then every number that the geometry is made of.

use undercroft_block::BlockDevice;
use undercroft_vfs::{Error, Ino, Result};
use uuid::Uuid;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::features::{Features, Incompat, QuotaFlags, VersionBits};
use super::geometry::Geometry;
use super::{FsBlock, crc};
use crate::error::{Verdict, corrupt};

/// `XFSB`.
pub(crate) const MAGIC: u32 = 0x5846_5342;

/// The largest sector that the format has.
pub(crate) const SECTOR_MAX_BYTES: usize = 32 << 10;

/// Offset of the checksum.
pub(crate) const CRC_OFFSET: usize = 224;

/// Offset of the position of the last change that the log has.
pub(crate) const LSN_OFFSET: usize = 240;

const STRUCTURE: &str = "superblock";

/// The superblock as it lies on the disk, up to the fields that version 5 begins with.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawSuperblock {
    pub(crate) sb_magicnum: U32,
    pub(crate) sb_blocksize: U32,
    pub(crate) sb_dblocks: U64,
    pub(crate) sb_rblocks: U64,
    pub(crate) sb_rextents: U64,
    pub(crate) sb_uuid: [u8; 16],
    pub(crate) sb_logstart: U64,
    pub(crate) sb_rootino: U64,
    pub(crate) sb_rbmino: U64,
    pub(crate) sb_rsumino: U64,
    pub(crate) sb_rextsize: U32,
    pub(crate) sb_agblocks: U32,
    pub(crate) sb_agcount: U32,
    pub(crate) sb_rbmblocks: U32,
    pub(crate) sb_logblocks: U32,
    pub(crate) sb_versionnum: U16,
    pub(crate) sb_sectsize: U16,
    pub(crate) sb_inodesize: U16,
    pub(crate) sb_inopblock: U16,
    pub(crate) sb_fname: [u8; 12],
    pub(crate) sb_blocklog: u8,
    pub(crate) sb_sectlog: u8,
    pub(crate) sb_inodelog: u8,
    pub(crate) sb_inopblog: u8,
    pub(crate) sb_agblklog: u8,
    pub(crate) sb_rextslog: u8,
    pub(crate) sb_inprogress: u8,
    pub(crate) sb_imax_pct: u8,
    pub(crate) sb_icount: U64,
    pub(crate) sb_ifree: U64,
    pub(crate) sb_fdblocks: U64,
    pub(crate) sb_frextents: U64,
    pub(crate) sb_uquotino: U64,
    pub(crate) sb_gquotino: U64,
    pub(crate) sb_qflags: U16,
    pub(crate) sb_flags: u8,
    pub(crate) sb_shared_vn: u8,
    pub(crate) sb_inoalignmt: U32,
    pub(crate) sb_unit: U32,
    pub(crate) sb_width: U32,
    pub(crate) sb_dirblklog: u8,
    pub(crate) sb_logsectlog: u8,
    pub(crate) sb_logsectsize: U16,
    pub(crate) sb_logsunit: U32,
    pub(crate) sb_features2: U32,
    pub(crate) sb_bad_features2: U32,
    pub(crate) sb_features_compat: U32,
    pub(crate) sb_features_ro_compat: U32,
    pub(crate) sb_features_incompat: U32,
    pub(crate) sb_features_log_incompat: U32,
    pub(crate) sb_crc: [u8; 4],
    pub(crate) sb_spino_align: U32,
    pub(crate) sb_pquotino: U64,
    pub(crate) sb_lsn: U64,
    pub(crate) sb_meta_uuid: [u8; 16],
}

const _: () = assert!(size_of::<RawSuperblock>() == 264);
const _: () = assert!(core::mem::offset_of!(RawSuperblock, sb_crc) == CRC_OFFSET);
const _: () = assert!(core::mem::offset_of!(RawSuperblock, sb_lsn) == LSN_OFFSET);

/// A superblock that has been validated: later code relies on its geometry. Its counters are as the disk has them.
#[derive(Clone, Debug)]
pub struct Superblock {
    raw: RawSuperblock,
    features: Features,
    geometry: Geometry,
    /// The UUID that blocks carry.
    meta_uuid: Uuid,
}

impl Superblock {
    /// Reads and validates the first superblock of a device.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Unsupported`], [`Error::Io`].
    pub fn read<D: BlockDevice + ?Sized>(device: &D) -> Result<Self> {
        let superblock = Self::of_any_size(device)?;
        superblock.check_size(device)?;
        Ok(superblock)
    }

    /// The size in bytes that the superblock gives the filesystem, if it is good but for that the device may be
    /// smaller.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn declared_bytes<D: BlockDevice + ?Sized>(device: &D) -> Result<u64> {
        Ok(Self::of_any_size(device)?.geometry.data_bytes())
    }

    fn of_any_size<D: BlockDevice + ?Sized>(device: &D) -> Result<Self> {
        let mut bytes = vec![0; (SECTOR_MAX_BYTES as u64).min(device.size_bytes()) as usize];
        device.read_at(0, &mut bytes)?;
        Self::from_sector(&bytes)
    }

    /// Validates a superblock from the start of its sector; what lies behind the sector in `bytes` is not looked at.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Unsupported`].
    pub fn from_sector(bytes: &[u8]) -> Result<Self> {
        let Ok((raw, _)) = RawSuperblock::read_from_prefix(bytes) else {
            return Err(corrupt(STRUCTURE, format!("the device ends after {} bytes", bytes.len())));
        };
        if raw.sb_magicnum.get() != MAGIC {
            return Err(corrupt(
                STRUCTURE,
                format!("magic number is {:#010x}, not that of XFS", raw.sb_magicnum),
            ));
        }
        let features = Features::new(
            raw.sb_versionnum.get(),
            raw.sb_features2.get() | raw.sb_bad_features2.get(),
            raw.sb_features_compat.get(),
            raw.sb_features_ro_compat.get(),
            raw.sb_features_incompat.get(),
            raw.sb_features_log_incompat.get(),
        );
        if !matches!(features.version(), 4 | 5) {
            return Err(Error::Unsupported(format!("XFS of version {}", features.version()).into()));
        }
        validate_sector_size(&raw).map_err(|detail| corrupt(STRUCTURE, detail))?;
        if features.has_crc() {
            let sector = usize::from(raw.sb_sectsize.get());
            let sector = bytes.get(..sector).ok_or_else(|| {
                corrupt(STRUCTURE, format!("the device ends within its sector of {sector} bytes"))
            })?;
            crc::verify(sector, CRC_OFFSET).map_err(|detail| corrupt(STRUCTURE, detail))?;
        }
        features.check_readable()?;
        if raw.sb_rblocks.get() != 0 || raw.sb_rextents.get() != 0 {
            return Err(Error::Unsupported("an XFS filesystem with a real-time section".into()));
        }
        if raw.sb_inprogress != 0 {
            return Err(Error::Unsupported(
                "an XFS filesystem that mkfs.xfs or xfs_copy has not finished (sb_inprogress)".into(),
            ));
        }
        let geometry = Geometry::new(&raw, &features).map_err(|detail| corrupt(STRUCTURE, detail))?;
        let own = features.incompat().contains(Incompat::META_UUID);
        let meta_uuid = Uuid::from_bytes(if own { raw.sb_meta_uuid } else { raw.sb_uuid });
        let superblock = Self { raw, features, geometry, meta_uuid };
        superblock.validate_rest().map_err(|detail| corrupt(STRUCTURE, detail))?;
        Ok(superblock)
    }

    /// Inodes of the filesystem itself, to which no name leads: of the real-time section and of quotas.
    pub(crate) fn own_inodes(&self) -> impl Iterator<Item = u64> + use<> {
        let raw = &self.raw;
        let project = if self.features.has_crc() { raw.sb_pquotino.get() } else { 0 };
        let quota = [raw.sb_uquotino.get(), raw.sb_gquotino.get(), project];
        let quota = quota.into_iter().filter(|ino| !matches!(*ino, 0 | u64::MAX));
        [raw.sb_rbmino.get(), raw.sb_rsumino.get()].into_iter().chain(quota)
    }

    fn validate_rest(&self) -> Verdict<()> {
        let Self { raw, geometry, .. } = self;
        if raw.sb_imax_pct > 100 {
            return Err(format!("{} percent of the space may hold inodes", raw.sb_imax_pct).into());
        }
        if geometry.split_ino(Ino(raw.sb_rootino.get())).is_none() {
            return Err(format!("the root directory is inode {}, which cannot exist", raw.sb_rootino).into());
        }
        Ok(())
    }

    /// Whether the device holds the filesystem.
    pub(crate) fn check_size<D: BlockDevice + ?Sized>(&self, device: &D) -> Result<()> {
        let needed = self.geometry.data_bytes();
        if needed > device.size_bytes() {
            return Err(corrupt(
                STRUCTURE,
                format!("the filesystem has {needed} bytes, the device only {}", device.size_bytes()),
            ));
        }
        Ok(())
    }

    /// Sizes and counts, and conversions of addresses.
    #[must_use]
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Which features it has.
    #[must_use]
    pub const fn features(&self) -> &Features {
        &self.features
    }

    /// The fields as the disk has them.
    pub(crate) const fn raw(&self) -> &RawSuperblock {
        &self.raw
    }

    /// The UUID that users see.
    #[must_use]
    pub const fn uuid(&self) -> Uuid {
        Uuid::from_bytes(self.raw.sb_uuid)
    }

    /// The UUID that blocks of metadata carry.
    #[must_use]
    pub const fn meta_uuid(&self) -> Uuid {
        self.meta_uuid
    }

    /// The label, without the zeroes behind it.
    #[must_use]
    pub fn label(&self) -> &[u8] {
        let label = &self.raw.sb_fname;
        &label[..label.iter().position(|&byte| byte == 0).unwrap_or(label.len())]
    }

    /// The root directory.
    #[must_use]
    pub const fn root(&self) -> Ino {
        Ino(self.raw.sb_rootino.get())
    }

    /// Inodes in all chunks, as the superblock has it.
    #[must_use]
    pub const fn inodes(&self) -> u64 {
        self.raw.sb_icount.get()
    }

    /// Free inodes in all chunks, as the superblock has it.
    #[must_use]
    pub const fn free_inodes(&self) -> u64 {
        self.raw.sb_ifree.get()
    }

    /// Free blocks, as the superblock has it.
    #[must_use]
    pub const fn free_blocks(&self) -> u64 {
        self.raw.sb_fdblocks.get()
    }

    /// First block of the log; `None` for a log on a device of its own.
    pub(crate) fn log_start(&self) -> Option<FsBlock> {
        let start = self.raw.sb_logstart.get();
        (start != 0).then_some(FsBlock(start))
    }

    /// Whether the log lies on a device of its own.
    #[must_use]
    pub const fn has_external_log(&self) -> bool {
        self.raw.sb_logstart.get() == 0
    }

    /// Length of the log in filesystem blocks.
    #[must_use]
    pub const fn log_blocks(&self) -> u32 {
        self.raw.sb_logblocks.get()
    }

    /// Size of the log's sectors in bytes.
    #[must_use]
    pub fn log_sector_bytes(&self) -> u32 {
        if self.features.version_bits().contains(VersionBits::SECTOR) {
            u32::from(self.raw.sb_logsectsize.get())
        } else {
            512
        }
    }

    /// Log records begin at multiples of so many bytes, if the log has a stripe unit.
    #[must_use]
    pub const fn log_stripe_bytes(&self) -> u32 {
        self.raw.sb_logsunit.get()
    }

    /// Stripe unit of the device, in blocks; 0 without one.
    #[must_use]
    pub const fn stripe_unit_blocks(&self) -> u32 {
        self.raw.sb_unit.get()
    }

    /// Stripe width of the device, in blocks; 0 without one.
    #[must_use]
    pub const fn stripe_width_blocks(&self) -> u32 {
        self.raw.sb_width.get()
    }

    /// So many percent of the space may hold inodes; 0 without a bound.
    #[must_use]
    pub const fn inode_percent(&self) -> u8 {
        self.raw.sb_imax_pct
    }

    /// Quota state.
    #[must_use]
    pub const fn quota_flags(&self) -> QuotaFlags {
        QuotaFlags::from_bits_retain(self.raw.sb_qflags.get())
    }
}

impl Superblock {
    /// Refuses what this program only reads, by name. The caller says whether records of the log's stripe unit can be
    /// written.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub(crate) fn check_writable(&self, log_can_be_written: bool) -> Result<()> {
        let mut names = self.features.not_writable();
        if !log_can_be_written {
            names.push(format!("a stripe unit of {} bytes in the log", self.log_stripe_bytes()));
        }
        if names.is_empty() {
            return Ok(());
        }
        let what =
            format!("writing to a filesystem with {}, which this program can only read", names.join(", "));
        Err(Error::Unsupported(what.into()))
    }
}

/// Stores in the first superblock, durably, what holds once a filesystem takes changes: inodes may have attributes, and
/// quotas must be recounted.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn prepare_for_changes<D: BlockDevice + ?Sized>(
    device: &D,
    superblock: &Superblock,
) -> Result<()> {
    let checked = QuotaFlags::USER_CHECKED | QuotaFlags::GROUP_CHECKED | QuotaFlags::PROJECT_CHECKED;
    let (raw, quota) = (superblock.raw(), superblock.quota_flags());
    let attributes = superblock.features().version_bits().contains(VersionBits::ATTR);
    if attributes && !quota.intersects(checked) {
        return Ok(());
    }
    let mut sector = vec![0; superblock.geometry().sector_bytes() as usize];
    device.read_at(0, &mut sector)?;
    let versionnum = raw.sb_versionnum.get() | VersionBits::ATTR.bits();
    for (at, value) in [
        (core::mem::offset_of!(RawSuperblock, sb_versionnum), versionnum),
        (core::mem::offset_of!(RawSuperblock, sb_qflags), quota.difference(checked).bits()),
    ] {
        sector[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
    crc::seal(&mut sector, CRC_OFFSET);
    device.write_at(0, &sector)?;
    Ok(device.flush()?)
}

fn validate_sector_size(raw: &RawSuperblock) -> Verdict<()> {
    let bytes = u32::from(raw.sb_sectsize.get());
    let is_power = raw.sb_sectlog < 16 && bytes == 1 << raw.sb_sectlog;
    if !is_power || !(512..=SECTOR_MAX_BYTES as u32).contains(&bytes) {
        return Err(format!("sectors have {bytes} bytes, as a power of two {}", raw.sb_sectlog).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use undercroft_block::{Access, MemoryDevice};

    use super::*;
    use crate::format::testing;

    #[test]
    fn a_superblock_as_mkfs_makes_it_is_read() {
        let superblock = Superblock::from_sector(&testing::superblock_sector(|_| {})).unwrap();
        assert_eq!((superblock.root(), superblock.label()), (Ino(128), &b"undercroft"[..]));
        assert!(superblock.features().has_finobt() && superblock.features().has_ftype());
        assert_eq!(superblock.log_sector_bytes(), 512);
        assert_eq!(superblock.meta_uuid(), superblock.uuid());
    }

    #[test]
    fn damage_is_reported_by_field() {
        let refusal = |change: fn(&mut RawSuperblock)| {
            Superblock::from_sector(&testing::superblock_sector(change)).unwrap_err().to_string()
        };
        for (word, change) in [
            ("magic", (|raw| raw.sb_magicnum.set(1)) as fn(&mut RawSuperblock)),
            ("sectors have 0 bytes", |raw| raw.sb_sectsize.set(0)),
            ("blocks have", |raw| raw.sb_blocksize.set(4095)),
            ("inodes have", |raw| raw.sb_inodesize.set(96)),
            ("directory blocks", |raw| raw.sb_dirblklog = 9),
            ("allocation group", |raw| raw.sb_agblocks.set(5)),
            ("allocation group", |raw| raw.sb_agblocks.set(u32::MAX)),
            ("allocation group", |raw| raw.sb_agcount.set(0)),
            ("allocation groups", |raw| raw.sb_agcount.set(u32::MAX)),
            ("root directory", |raw| raw.sb_rootino.set(u64::MAX)),
            ("log", |raw| raw.sb_logstart.set(1 << 50)),
            ("real-time", |raw| raw.sb_rblocks.set(8)),
            ("not finished", |raw| raw.sb_inprogress = 1),
            ("percent", |raw| raw.sb_imax_pct = 101),
            ("version 3", |raw| raw.sb_versionnum.set(0xb4a3)),
        ] {
            let refusal = refusal(change);
            assert!(refusal.contains(word), "{word}: {refusal}");
        }
        let mut sector = testing::superblock_sector(|_| {});
        sector[200] ^= 1;
        assert!(Superblock::from_sector(&sector).unwrap_err().to_string().contains("checksum"));
    }

    #[test]
    fn a_filesystem_that_is_larger_than_its_device_is_refused() {
        let mut bytes = testing::superblock_sector(|_| {});
        bytes.resize(1 << 20, 0);
        let device = MemoryDevice::from_bytes(bytes, Access::ReadOnly);
        let refusal = Superblock::read(&device).unwrap_err().to_string();
        assert!(refusal.contains("the device only 1048576"), "{refusal}");
    }
}
