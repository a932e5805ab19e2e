//! The inode core: the first 100 bytes of an inode in version 4, the first 176 in version 5. Behind it come the data
//! fork and, `di_forkoff` eight-byte words later, the attribute fork.

use bitflags::bitflags;
use undercroft_vfs::{DeviceNumber, FileType, Ino, Timestamp};
use uuid::Uuid;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::extent::EXTENT_BYTES;
use super::superblock::Superblock;
use super::{AgIno, Incompat, crc, time};
use crate::error::Verdict;

/// `IN`.
pub(crate) const MAGIC: u16 = 0x494e;

/// Length of the core of versions 1 and 2.
pub(crate) const CORE_V2_BYTES: usize = 100;

/// Length of the core of version 3.
pub(crate) const CORE_V3_BYTES: usize = 176;

/// Level and count, with which the root of a fork's tree begins in the inode.
pub(crate) const ROOT_HEADER_BYTES: usize = 4;

/// Length of a fork that holds a device's number, if another one follows it.
const DEVICE_BYTES: usize = 8;

/// Offset of the checksum, in version 3.
pub(crate) const CRC_OFFSET: usize = 100;

/// Offset of the position of the last change.
pub(crate) const LSN_OFFSET: usize = core::mem::offset_of!(RawDinode, di_lsn);

/// The core as it lies on the disk. The fields from `di_crc` on exist in version 3.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawDinode {
    pub(crate) di_magic: U16,
    pub(crate) di_mode: U16,
    pub(crate) di_version: u8,
    pub(crate) di_format: u8,
    /// Links in version 1.
    pub(crate) di_onlink: U16,
    pub(crate) di_uid: U32,
    pub(crate) di_gid: U32,
    pub(crate) di_nlink: U32,
    pub(crate) di_projid_lo: U16,
    pub(crate) di_projid_hi: U16,
    /// With nrext64 the count of the data fork's extents; otherwise padding and, in the last two bytes, `di_flushiter`
    /// of versions 1 and 2.
    pub(crate) di_big_nextents: U64,
    pub(crate) di_atime: U64,
    pub(crate) di_mtime: U64,
    pub(crate) di_ctime: U64,
    pub(crate) di_size: U64,
    pub(crate) di_nblocks: U64,
    pub(crate) di_extsize: U32,
    /// With nrext64 the count of the attribute fork's extents, otherwise the data fork's.
    pub(crate) di_nextents: U32,
    /// Without nrext64 the count of the attribute fork's extents.
    pub(crate) di_anextents: U16,
    pub(crate) di_forkoff: u8,
    pub(crate) di_aformat: u8,
    pub(crate) di_dmevmask: U32,
    pub(crate) di_dmstate: U16,
    pub(crate) di_flags: U16,
    pub(crate) di_gen: U32,
    pub(crate) di_next_unlinked: U32,
    pub(crate) di_crc: [u8; 4],
    pub(crate) di_changecount: U64,
    pub(crate) di_lsn: U64,
    pub(crate) di_flags2: U64,
    pub(crate) di_cowextsize: U32,
    pub(crate) di_pad2: [u8; 12],
    pub(crate) di_crtime: U64,
    pub(crate) di_ino: U64,
    pub(crate) di_uuid: [u8; 16],
}

const _: () = assert!(size_of::<RawDinode>() == CORE_V3_BYTES);
const _: () = assert!(core::mem::offset_of!(RawDinode, di_crc) == CRC_OFFSET);

bitflags! {
    /// `di_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct DiFlags: u16 {
        const REALTIME = 0x0001;
        const PREALLOC = 0x0002;
        const NEW_RT_BITMAP = 0x0004;
        const IMMUTABLE = 0x0008;
        const APPEND = 0x0010;
        const SYNC = 0x0020;
        const NOATIME = 0x0040;
        const NODUMP = 0x0080;
        const RT_INHERIT = 0x0100;
        const PROJECT_INHERIT = 0x0200;
        const NO_SYMLINKS = 0x0400;
        const EXTENT_SIZE = 0x0800;
        const EXTENT_SIZE_INHERIT = 0x1000;
        const NO_DEFRAG = 0x2000;
        const FILESTREAM = 0x4000;
        const _ = !0;
    }
}

bitflags! {
    /// `di_flags2`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct DiFlags2: u64 {
        const DAX = 0x01;
        const REFLINK = 0x02;
        const COW_EXTENT_SIZE = 0x04;
        const BIGTIME = 0x08;
        const NREXT64 = 0x10;
        const METADATA = 0x20;
        const _ = !0;
    }
}

/// How a fork keeps what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForkFormat {
    /// A device's number.
    Device,
    /// The bytes themselves.
    Local,
    /// Extent records.
    Extents,
    /// The root of a B+tree of extent records.
    Btree,
}

impl ForkFormat {
    pub(crate) fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Device,
            1 => Self::Local,
            2 => Self::Extents,
            3 => Self::Btree,
            _ => return None,
        })
    }

    pub(crate) const fn raw(self) -> u8 {
        match self {
            Self::Device => 0,
            Self::Local => 1,
            Self::Extents => 2,
            Self::Btree => 3,
        }
    }
}

/// A core that has been validated: it belongs to the inode that was asked for, its kind exists, and its forks fit.
#[derive(Clone, Debug)]
pub(crate) struct Dinode {
    pub(crate) version: u8,
    pub(crate) kind: FileType,
    /// Permission bits with set-user-ID, set-group-ID and sticky.
    pub(crate) permissions: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) links: u32,
    pub(crate) project: u32,
    pub(crate) size_bytes: u64,
    /// Blocks of both forks, with their B+trees.
    pub(crate) blocks: u64,
    /// Extent size hint, in blocks.
    pub(crate) extent_size: u32,
    /// CoW extent size hint, in blocks.
    pub(crate) cow_extent_size: u32,
    pub(crate) accessed: Timestamp,
    pub(crate) modified: Timestamp,
    pub(crate) changed: Timestamp,
    pub(crate) created: Option<Timestamp>,
    pub(crate) generation: u32,
    pub(crate) change_count: u64,
    pub(crate) flags: DiFlags,
    pub(crate) flags2: DiFlags2,
    /// The next inode of the same bucket of unlinked ones.
    pub(crate) next_unlinked: AgIno,
    pub(crate) data_format: ForkFormat,
    pub(crate) data_extents: u64,
    /// The data fork within the inode's bytes.
    pub(crate) data_fork: std::ops::Range<usize>,
    pub(crate) attr_format: ForkFormat,
    pub(crate) attr_extents: u32,
    /// The attribute fork within the inode's bytes; empty if there is none.
    pub(crate) attr_fork: std::ops::Range<usize>,
}

/// Whether a device's number has no more bits than are kept of it: Linux keeps 14 of the driver, of which it makes no more
/// than 9, above 18 of the device.
pub(crate) const fn holds_device(number: DeviceNumber) -> bool {
    number.major <= 511 && number.minor < 1 << 18
}

/// Length of the core of an inode, by its version.
pub(crate) const fn core_bytes(version: u8) -> usize {
    if version >= 3 { CORE_V3_BYTES } else { CORE_V2_BYTES }
}

/// Validates what an inode of any state has, used or free: magic number, version, checksum, and that it is the inode
/// that was asked for.
pub(crate) fn validate_identity(bytes: &[u8], superblock: &Superblock, ino: Ino) -> Verdict<RawDinode> {
    validate_identity_with(bytes, superblock, ino, || crc::verify(bytes, CRC_OFFSET))
}

/// The same, where the checksum is right if `verify_checksum` says so.
pub(crate) fn validate_identity_with(
    bytes: &[u8],
    superblock: &Superblock,
    ino: Ino,
    verify_checksum: impl FnOnce() -> Verdict<()>,
) -> Verdict<RawDinode> {
    let Ok((mut raw, _)) = RawDinode::read_from_prefix(bytes) else {
        return Err(format!("has only {} bytes", bytes.len()).into());
    };
    if raw.di_magic.get() != MAGIC {
        return Err(format!("magic number is {:#06x}", raw.di_magic).into());
    }
    let has_crc = superblock.features().has_crc();
    if if has_crc { raw.di_version != 3 } else { !matches!(raw.di_version, 1 | 2) } {
        return Err(format!("version is {}", raw.di_version).into());
    }
    if !has_crc {
        // What lies behind the core is a fork and no field.
        let core = raw.as_mut_bytes();
        core[CORE_V2_BYTES..].fill(0);
        return Ok(raw);
    }
    verify_checksum()?;
    if raw.di_ino.get() != ino.0 {
        return Err(format!("says that it is inode {}", raw.di_ino).into());
    }
    let uuid = Uuid::from_bytes(raw.di_uuid);
    if uuid != superblock.meta_uuid() {
        return Err(format!("UUID is {uuid}, the filesystem's is {}", superblock.meta_uuid()).into());
    }
    Ok(raw)
}

/// Validates an inode's bytes; `None` for one that is free.
pub(crate) fn validate(bytes: &[u8], superblock: &Superblock, ino: Ino) -> Verdict<Option<Dinode>> {
    validate_core(&validate_identity(bytes, superblock, ino)?, bytes.len(), superblock)
}

/// Validates the core of an inode of `inode_bytes` bytes, whose identity is right; `None` for one that is free.
pub(crate) fn validate_core(
    raw: &RawDinode,
    inode_bytes: usize,
    superblock: &Superblock,
) -> Verdict<Option<Dinode>> {
    if raw.di_mode.get() == 0 {
        return Ok(None);
    }
    Dinode::from_raw(raw, inode_bytes, superblock).map(Some)
}

impl Dinode {
    /// Validates the fields of a core of an inode that is in use and has `inode_bytes` bytes.
    fn from_raw(raw: &RawDinode, inode_bytes: usize, superblock: &Superblock) -> Verdict<Self> {
        let features = superblock.features();
        let mode = u32::from(raw.di_mode.get());
        let Some(kind) = FileType::from_mode(mode) else {
            return Err(format!("mode {mode:#o} is no kind of file").into());
        };
        let flags = DiFlags::from_bits_retain(raw.di_flags.get());
        let flags2 = DiFlags2::from_bits_retain(if raw.di_version >= 3 { raw.di_flags2.get() } else { 0 });
        if flags.contains(DiFlags::REALTIME) {
            return Err("its data lies in a real-time section, which the filesystem does not have".into());
        }
        for (flag, has, name) in [
            (DiFlags2::BIGTIME, features.incompat().contains(Incompat::BIGTIME), "bigtime"),
            (DiFlags2::NREXT64, features.incompat().contains(Incompat::NREXT64), "nrext64"),
            (DiFlags2::REFLINK, features.has_reflink(), "reflink"),
        ] {
            if flags2.contains(flag) && !has {
                return Err(
                    format!("has the flag of {name}, a feature that the filesystem does not have").into()
                );
            }
        }
        if flags2.contains(DiFlags2::REFLINK) && kind != FileType::Regular {
            return Err("shares blocks and is no regular file".into());
        }
        let size_bytes = raw.di_size.get();
        if size_bytes > i64::MAX as u64 {
            return Err(format!("size is {size_bytes} bytes").into());
        }
        let (data_extents, attr_extents) = if flags2.contains(DiFlags2::NREXT64) {
            (raw.di_big_nextents.get(), raw.di_nextents.get())
        } else {
            (u64::from(raw.di_nextents.get()), u32::from(raw.di_anextents.get()))
        };
        let blocks = raw.di_nblocks.get();
        if blocks > superblock.geometry().blocks() && !flags2.contains(DiFlags2::REFLINK) {
            return Err(format!("has {blocks} blocks, more than the filesystem").into());
        }
        let extents = data_extents.saturating_add(u64::from(attr_extents));
        if extents > blocks || extents == 0 && blocks > 0 {
            return Err(format!("has {blocks} blocks in {extents} extents").into());
        }
        if raw.di_version >= 2 && raw.di_onlink.get() != 0 {
            return Err(format!("counts {} links as inodes of version 1 do", raw.di_onlink).into());
        }
        let first = core_bytes(raw.di_version);
        let forkoff = usize::from(raw.di_forkoff) * 8;
        // The last words of an inode that are not eight bytes are no fork.
        if forkoff > 0 && forkoff / 8 >= (inode_bytes - first) / 8 {
            return Err(format!("the attribute fork begins {forkoff} bytes after the core").into());
        }
        let data_end = if forkoff > 0 { first + forkoff } else { inode_bytes };
        let data_fork = first..data_end;
        let attr_fork = data_end..inode_bytes;
        let data_format = data_format(raw.di_format, kind)?;
        let links = if raw.di_version == 1 { u32::from(raw.di_onlink.get()) } else { raw.di_nlink.get() };
        if links > 0 && size_bytes == 0 && matches!(kind, FileType::Directory | FileType::Symlink) {
            return Err("is a directory or a symbolic link without content".into());
        }
        match data_format {
            ForkFormat::Local if size_bytes > data_fork.len() as u64 => {
                return Err(format!("keeps {size_bytes} bytes in a fork of {}", data_fork.len()).into());
            }
            ForkFormat::Device if forkoff > 0 && data_fork.len() != DEVICE_BYTES => {
                return Err(format!("keeps a device's number in a fork of {} bytes", data_fork.len()).into());
            }
            ForkFormat::Extents | ForkFormat::Btree
                if kind == FileType::Directory && (1..=data_fork.len() as u64).contains(&size_bytes) =>
            {
                let detail =
                    format!("keeps {size_bytes} bytes in blocks, which fit its fork of {}", data_fork.len());
                return Err(detail.into());
            }
            _ => check_extent_count("data", data_format, data_extents, data_fork.len())?,
        }
        let attr_format = attr_format(raw, forkoff, attr_extents)?;
        check_extent_count("attribute", attr_format, u64::from(attr_extents), attr_fork.len())?;
        let bigtime = flags2.contains(DiFlags2::BIGTIME);
        let decode = |raw: U64| time::decode(raw.get(), bigtime);
        let project_high = if features.has_projid32() { u32::from(raw.di_projid_hi.get()) << 16 } else { 0 };
        let project = if raw.di_version == 1 { 0 } else { project_high | u32::from(raw.di_projid_lo.get()) };
        Ok(Self {
            version: raw.di_version,
            kind,
            permissions: (mode & 0o7777) as u16,
            uid: raw.di_uid.get(),
            gid: raw.di_gid.get(),
            links,
            project,
            size_bytes,
            blocks,
            extent_size: raw.di_extsize.get(),
            cow_extent_size: raw.di_cowextsize.get(),
            accessed: decode(raw.di_atime),
            modified: decode(raw.di_mtime),
            changed: decode(raw.di_ctime),
            created: (raw.di_version >= 3).then(|| decode(raw.di_crtime)),
            generation: raw.di_gen.get(),
            change_count: raw.di_changecount.get(),
            flags,
            flags2,
            next_unlinked: AgIno(raw.di_next_unlinked.get()),
            data_format,
            data_extents,
            data_fork,
            attr_format,
            attr_extents,
            attr_fork,
        })
    }

    /// Writes the fields into a core of version 3 that belongs to the inode already. Fields that this type lacks stay as
    /// they are, and so does the link of the unlinked list.
    pub(crate) fn write(&self, raw: &mut RawDinode) {
        debug_assert_eq!(self.version, 3, "only inodes of version 3 are written");
        let bigtime = self.flags2.contains(DiFlags2::BIGTIME);
        let encode = |time| time::encode(time, bigtime);
        raw.di_version = 3;
        raw.di_mode.set((self.kind.mode_bits() | u32::from(self.permissions)) as u16);
        raw.di_onlink.set(0);
        raw.di_uid.set(self.uid);
        raw.di_gid.set(self.gid);
        raw.di_nlink.set(self.links);
        raw.di_projid_lo.set(self.project as u16);
        raw.di_projid_hi.set((self.project >> 16) as u16);
        if self.flags2.contains(DiFlags2::NREXT64) {
            raw.di_big_nextents.set(self.data_extents);
            raw.di_nextents.set(self.attr_extents);
            raw.di_anextents.set(0);
        } else {
            raw.di_big_nextents.set(0);
            raw.di_nextents.set(self.data_extents as u32);
            raw.di_anextents.set(self.attr_extents as u16);
        }
        raw.di_atime.set(encode(self.accessed));
        raw.di_mtime.set(encode(self.modified));
        raw.di_ctime.set(encode(self.changed));
        raw.di_crtime.set(encode(self.created.unwrap_or_default()));
        raw.di_size.set(self.size_bytes);
        raw.di_nblocks.set(self.blocks);
        raw.di_extsize.set(self.extent_size);
        raw.di_cowextsize.set(self.cow_extent_size);
        raw.di_forkoff = self.forkoff();
        raw.di_format = self.data_format.raw();
        raw.di_aformat = self.attr_format.raw();
        raw.di_flags.set(self.flags.bits());
        raw.di_flags2.set(self.flags2.bits());
        raw.di_gen.set(self.generation);
        raw.di_changecount.set(self.change_count);
    }

    /// Where the attribute fork begins, in words of eight bytes behind the core; 0 without one.
    pub(crate) fn forkoff(&self) -> u8 {
        if self.attr_fork.is_empty() { 0 } else { (self.data_fork.len() / 8) as u8 }
    }

    /// Whether it may share blocks with other files.
    pub(crate) const fn may_share_blocks(&self) -> bool {
        self.flags2.contains(DiFlags2::REFLINK)
    }
}

/// The data fork's format, if files of this kind may have it.
fn data_format(raw: u8, kind: FileType) -> Verdict<ForkFormat> {
    let format = ForkFormat::from_raw(raw);
    let allowed = match kind {
        FileType::Regular => matches!(format, Some(ForkFormat::Extents | ForkFormat::Btree)),
        FileType::Directory | FileType::Symlink => {
            matches!(format, Some(ForkFormat::Local | ForkFormat::Extents | ForkFormat::Btree))
        }
        FileType::Fifo | FileType::CharDevice | FileType::BlockDevice | FileType::Socket => {
            format == Some(ForkFormat::Device)
        }
    };
    match format {
        Some(format) if allowed => Ok(format),
        _ => Err(format!("the data fork has format {raw}, which a file of its kind cannot have").into()),
    }
}

/// The attribute fork's format. An inode without the fork has no extents in it.
fn attr_format(raw: &RawDinode, forkoff: usize, extents: u32) -> Verdict<ForkFormat> {
    let format = ForkFormat::from_raw(raw.di_aformat);
    match format {
        Some(format @ (ForkFormat::Local | ForkFormat::Extents | ForkFormat::Btree)) if forkoff > 0 => {
            Ok(format)
        }
        Some(ForkFormat::Device | ForkFormat::Extents) if forkoff == 0 && extents == 0 => {
            Ok(ForkFormat::Extents)
        }
        _ => Err(format!(
            "the attribute fork has format {} and {extents} extents, {forkoff} bytes after the core",
            raw.di_aformat
        )
        .into()),
    }
}

/// As many extents as fit in the fork are kept there, and no B+tree.
fn check_extent_count(fork: &str, format: ForkFormat, extents: u64, fork_bytes: usize) -> Verdict<()> {
    let room = (fork_bytes / EXTENT_BYTES) as u64;
    let fits = match format {
        ForkFormat::Device | ForkFormat::Local => extents == 0,
        ForkFormat::Extents => extents <= room,
        ForkFormat::Btree => extents > room,
    };
    if fits {
        return Ok(());
    }
    Err(format!("the {fork} fork counts {extents} extents in {fork_bytes} bytes of format {format:?}").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing;

    fn superblock() -> Superblock {
        Superblock::from_sector(&testing::superblock_sector(|_| {})).unwrap()
    }

    /// The verdict on a regular file of 512 bytes of inode, changed and with its checksum right.
    fn verdict(change: impl FnOnce(&mut RawDinode)) -> Verdict<Option<Dinode>> {
        let superblock = superblock();
        validate(&testing::dinode(&superblock, Ino(131), change), &superblock, Ino(131))
    }

    #[test]
    fn an_inode_as_linux_writes_it_is_read() {
        let inode = verdict(|_| {}).unwrap().unwrap();
        assert_eq!((inode.kind, inode.permissions, inode.links), (FileType::Regular, 0o640, 1));
        assert_eq!((inode.data_fork, inode.attr_fork), (176..176 + 280, 176 + 280..512));
        assert_eq!(inode.project, 0x2_0001);
        assert_eq!(inode.modified, Timestamp { seconds: 5, nanoseconds: 6 });
        assert!(verdict(|raw| raw.di_mode.set(0)).unwrap().is_none(), "a free inode");
    }

    #[test]
    fn damage_is_reported_by_field() {
        for (word, change) in [
            ("magic", (|raw| raw.di_magic.set(1)) as fn(&mut RawDinode)),
            ("version is 2", |raw| raw.di_version = 2),
            ("inode 132", |raw| raw.di_ino.set(132)),
            ("UUID", |raw| raw.di_uuid[0] ^= 1),
            ("no kind", |raw| raw.di_mode.set(0o070_644)),
            ("size is", |raw| raw.di_size.set(1 << 63)),
            ("more than the filesystem", |raw| raw.di_nblocks.set(1 << 40)),
            ("after the core", |raw| raw.di_forkoff = 42),
            ("format 1", |raw| raw.di_format = 1),
            ("format 9", |raw| raw.di_format = 9),
            ("attribute fork has format 7", |raw| raw.di_aformat = 7),
            ("counts 18 extents", |raw| {
                raw.di_nblocks.set(18);
                raw.di_nextents.set(18);
            }),
            ("counts 0 extents", |raw| raw.di_format = 3),
            ("has 1 blocks in 2 extents", |raw| {
                raw.di_nblocks.set(1);
                raw.di_nextents.set(2);
            }),
            ("has 1 blocks in 0 extents", |raw| raw.di_nblocks.set(1)),
            ("counts 1 links", |raw| raw.di_onlink.set(1)),
            ("device's number in a fork of 16 bytes", |raw| {
                raw.di_mode.set(0o010_640);
                raw.di_format = 0;
                raw.di_forkoff = 2;
            }),
            ("keeps 6 bytes in blocks", |raw| {
                raw.di_mode.set(0o040_755);
                raw.di_size.set(6);
                raw.di_nblocks.set(1);
                raw.di_nextents.set(1);
            }),
            ("real-time", |raw| raw.di_flags.set(1)),
            ("nrext64", |raw| raw.di_flags2.set(0x10)),
            ("without content", |raw| {
                raw.di_mode.set(0o120_777);
                raw.di_size.set(0);
            }),
        ] {
            let refusal = verdict(change).unwrap_err();
            assert!(refusal.contains(word), "{word}: {refusal}");
        }
        let of_version_4 = Superblock::from_sector(&testing::superblock_sector(|raw| {
            raw.sb_versionnum.set(0xb4a4);
            raw.sb_features2.set(0x8a);
            raw.sb_bad_features2.set(0x8a);
            raw.sb_inodesize.set(256);
            raw.sb_inodelog = 8;
            raw.sb_inopblock.set(16);
            raw.sb_inopblog = 4;
        }))
        .unwrap();
        // 156 bytes for two forks: the second one may begin after 18 words, and not after 19.
        let last_words = |words: u8| {
            let bytes = testing::dinode(&of_version_4, Ino(131), |raw| {
                raw.di_version = 2;
                raw.di_flags2.set(0);
                raw.di_forkoff = words;
            });
            validate(&bytes[..256], &of_version_4, Ino(131)).map(drop)
        };
        assert_eq!(last_words(18), Ok(()));
        assert!(last_words(19).unwrap_err().contains("152 bytes after the core"));
        let superblock = superblock();
        let mut bytes = testing::dinode(&superblock, Ino(131), |_| {});
        bytes[300] ^= 1;
        assert!(validate(&bytes, &superblock, Ino(131)).unwrap_err().contains("checksum"));
        assert!(validate(&bytes[..99], &superblock, Ino(131)).unwrap_err().contains("only 99"));
    }
}
