//! What a device holds, by the marks that formats leave at fixed places: one table for every caller that asks.
//!
//! A mark says what is there and not that it is sound. Label and UUID are read where they lie at a fixed place beside
//! the mark, as blkid(8) shows them; they are bytes of the disk and not validated.
//!
//! The first mark in the order of the table counts, as disks keep marks of what they held before: superblocks of arrays
//! first, since a mirror's member looks like the filesystem on it, then filesystems, volumes, tables, and files.
//!
//! At most [`FRONT_BYTES`] and two sectors near the end are read.
//!
//! Sources: the formats' own documentation and blkid(8), whose answers are the oracle of the tests.

use uuid::Uuid;

use crate::{BlockDevice, Result};

/// What a format is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Files and directories.
    Filesystem,
    /// Other things are made of it: arrays, volumes, encrypted ones, swap space.
    Volume,
    /// A partition table or a boot sector.
    Table,
    /// A common file, written to a device or named by mistake.
    File,
}

/// A format that is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// blkid's word for it, where it has one.
    pub name: &'static str,
    /// What it is in words, with an article: "an XFS filesystem".
    pub what: &'static str,
    /// What it is for.
    pub class: Class,
}

/// What was found on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Its format.
    pub format: Format,
    /// Its label, of which any byte may be anything but zero.
    pub label: Option<Vec<u8>>,
    /// Its UUID or serial number, in the form that blkid shows.
    pub uuid: Option<String>,
}

/// So much of the front of a device is looked at, in bytes.
pub const FRONT_BYTES: u64 = 0x1_0300;

const MD_MAGIC: [u8; 4] = [0xFC, 0x4E, 0x2B, 0xA9];

const fn filesystem(name: &'static str, what: &'static str) -> Format {
    Format { name, what, class: Class::Filesystem }
}

const fn volume(name: &'static str, what: &'static str) -> Format {
    Format { name, what, class: Class::Volume }
}

const fn table(name: &'static str, what: &'static str) -> Format {
    Format { name, what, class: Class::Table }
}

const fn file(name: &'static str, what: &'static str) -> Format {
    Format { name, what, class: Class::File }
}

const MD_MEMBER: Format = volume("linux_raid_member", "a member of an md array");

/// Where a mark begins, its bytes, and what it is a mark of. The family of ext is told apart by its features.
const MARKS: [(u64, &[u8], Format); 33] = [
    (0x1000, &MD_MAGIC, MD_MEMBER),
    (0, &MD_MAGIC, MD_MEMBER),
    (1024 + 0x38, &[0x53, 0xEF], filesystem("ext4", "an ext2, ext3 or ext4 filesystem")),
    (0, b"XFSB", filesystem("xfs", "an XFS filesystem")),
    (0x1_0040, b"_BHRfS_M", filesystem("btrfs", "a btrfs filesystem")),
    (1024, &[0x10, 0x20, 0xF5, 0xF2], filesystem("f2fs", "an F2FS filesystem")),
    (0, b"hsqs", filesystem("squashfs", "a squashfs filesystem")),
    (1024, &[0xE2, 0xE1, 0xF5, 0xE0], filesystem("erofs", "an EROFS filesystem")),
    (0x8001, b"CD001", filesystem("iso9660", "an ISO 9660 filesystem")),
    (3, b"NTFS    ", filesystem("ntfs", "an NTFS filesystem")),
    (3, b"EXFAT   ", filesystem("exfat", "an exFAT filesystem")),
    (0x52, b"FAT32   ", filesystem("vfat", "a FAT filesystem")),
    (0x36, b"FAT1", filesystem("vfat", "a FAT filesystem")),
    (4086, b"SWAPSPACE2", volume("swap", "Linux swap space")),
    (65526, b"SWAPSPACE2", volume("swap", "Linux swap space")),
    (0, b"LUKS\xBA\xBE", volume("crypto_LUKS", "a LUKS volume")),
    (0, LVM_LABEL, volume("LVM2_member", "an LVM physical volume")),
    (512, LVM_LABEL, volume("LVM2_member", "an LVM physical volume")),
    (1024, LVM_LABEL, volume("LVM2_member", "an LVM physical volume")),
    (1536, LVM_LABEL, volume("LVM2_member", "an LVM physical volume")),
    (512, b"EFI PART", table("gpt", "a GPT partition table")),
    (4096, b"EFI PART", table("gpt", "a GPT partition table")),
    (257, b"ustar", file("tar", "a tar archive")),
    (0, b"SQLite format 3\0", file("sqlite", "an SQLite database")),
    (0, b"\x7fELF", file("elf", "a program or a library (ELF)")),
    (0, b"\x1f\x8b\x08", file("gzip", "a gzip file")),
    (0, b"\xfd7zXZ\0", file("xz", "an xz file")),
    (0, b"\x28\xb5\x2f\xfd", file("zstd", "a zstd file")),
    (0, b"PK\x03\x04", file("zip", "a zip archive")),
    (0, b"%PDF-", file("pdf", "a PDF document")),
    (0, b"QFI\xfb", file("qcow2", "a qcow2 image")),
    (0, b"BZh", file("bzip2", "a bzip2 file")),
    (510, &[0x55, 0xAA], table("dos", "a partition table or boot sector")),
];

const LVM_LABEL: &[u8] = b"LABELONE";

/// Finds what a device holds; `None` if it holds nothing that is known.
///
/// # Errors
/// The device failed.
pub fn probe<D: BlockDevice + ?Sized>(device: &D) -> Result<Option<Content>> {
    let mut front = vec![0; device.size_bytes().min(FRONT_BYTES) as usize];
    device.read_at(0, &mut front)?;
    if let Some(content) = md_at_the_end(device)? {
        return Ok(Some(content));
    }
    let found = MARKS.iter().find(|(at, mark, _)| bytes_at(&front, *at, mark.len()) == Some(*mark));
    Ok(found.map(|&(at, _, format)| describe(&front, at, format)))
}

/// Superblocks of arrays that lie at the end of a member: version 1.0, and 0.90 in either order of bytes.
fn md_at_the_end<D: BlockDevice + ?Sized>(device: &D) -> Result<Option<Content>> {
    const RESERVED: u64 = 64 << 10;
    let size = device.size_bytes();
    let read = |at: Option<u64>| -> Result<Option<[u8; 64]>> {
        let Some(at) = at.filter(|at| at.checked_add(64).is_some_and(|end| end <= size)) else {
            return Ok(None);
        };
        let mut bytes = [0; 64];
        device.read_at(at, &mut bytes)?;
        Ok(Some(bytes))
    };
    let one = read((size / 512).checked_sub(16).map(|sector| (sector & !7) * 512).filter(|&at| at > 0))?;
    if let Some(bytes) = one.filter(|bytes| bytes.starts_with(&MD_MAGIC) && bytes[4..8] == [1, 0, 0, 0]) {
        return Ok(Some(describe(&bytes, 0, MD_MEMBER)));
    }
    let old = read((size & !(RESERVED - 1)).checked_sub(RESERVED))?;
    let is_member = |bytes: &[u8; 64]| {
        (bytes.starts_with(&MD_MAGIC) && bytes[4..12] == [0, 0, 0, 0, 90, 0, 0, 0])
            || (bytes.starts_with(&[0xA9, 0x2B, 0x4E, 0xFC]) && bytes[4..12] == [0, 0, 0, 0, 0, 0, 0, 90])
    };
    Ok(old.filter(is_member).map(|_| Content { format: MD_MEMBER, label: None, uuid: None }))
}

/// Label and UUID of a format whose mark lies at `mark` of what was read.
fn describe(front: &[u8], mark: u64, format: Format) -> Content {
    let label = |at: u64, len: usize| bytes_at(front, at, len).and_then(trimmed);
    let uuid = |at: u64| {
        let bytes = bytes_at(front, at, 16).filter(|bytes| bytes.iter().any(|&byte| byte != 0))?;
        Uuid::from_slice(bytes).ok().map(|uuid| uuid.to_string())
    };
    let (format, label, uuid) = match format.name {
        "ext4" => (ext_family(front).unwrap_or(format), label(1024 + 120, 16), uuid(1024 + 104)),
        "xfs" => (format, label(108, 12), uuid(32)),
        "btrfs" => (format, label(0x1_012b, 256), uuid(0x1_0020)),
        "erofs" => (format, label(1024 + 64, 16), uuid(1024 + 48)),
        "iso9660" => (format, label(0x8028, 32), None),
        "ntfs" => (format, None, serial::<8>(front, 72)),
        "exfat" => (format, None, serial::<4>(front, 100)),
        "vfat" if mark == 0x52 => (format, fat_label(label(71, 11)), serial::<4>(front, 67)),
        "vfat" => (format, fat_label(label(43, 11)), serial::<4>(front, 39)),
        "swap" => (format, label(1024 + 28, 16), uuid(1024 + 12)),
        "crypto_LUKS" => {
            let is_second = bytes_at(front, 6, 2) == Some(&[0, 2]);
            let text = label(168, 40).filter(|text| text.is_ascii());
            let uuid = text.and_then(|text| String::from_utf8(text).ok());
            (format, label(24, 48).filter(|_| is_second), uuid)
        }
        "LVM2_member" => (format, None, lvm_uuid(front, mark)),
        // Set name and UUID of version 1; one of version 0.90 has none at these places.
        "linux_raid_member" => (format, label(mark + 32, 32), uuid(mark + 16)),
        _ => (format, None, None),
    };
    Content { format, label, uuid }
}

/// ext2, ext3 or ext4, as blkid tells them apart: by a journal, and by features that ext3 does not know. `None` where the
/// superblock is cut off before its features.
fn ext_family(front: &[u8]) -> Option<Format> {
    const HAS_JOURNAL: u32 = 0x4;
    const EXT3_INCOMPAT: u32 = 0x2 | 0x4 | 0x10;
    const EXT3_RO_COMPAT: u32 = 0x1 | 0x2 | 0x4;
    let word = |at: u64| Some(u32::from_le_bytes(bytes_at(front, 1024 + at, 4)?.try_into().ok()?));
    let (compat, incompat, ro_compat) = (word(0x5c)?, word(0x60)?, word(0x64)?);
    Some(if incompat & !EXT3_INCOMPAT != 0 || ro_compat & !EXT3_RO_COMPAT != 0 {
        filesystem("ext4", "an ext4 filesystem")
    } else if compat & HAS_JOURNAL != 0 {
        filesystem("ext3", "an ext3 filesystem")
    } else {
        filesystem("ext2", "an ext2 filesystem")
    })
}

/// `6ef2Kf-...`: the UUID of a physical volume, from the header behind its label.
fn lvm_uuid(front: &[u8], label: u64) -> Option<String> {
    const GROUPS: [usize; 7] = [6, 4, 4, 4, 4, 4, 6];
    let offset = u32::from_le_bytes(bytes_at(front, label + 20, 4)?.try_into().ok()?);
    let text = bytes_at(front, label + u64::from(offset), 32)?;
    if offset > 480 || !text.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let mut rest = text;
    let groups = GROUPS.map(|len| {
        let (group, after) = rest.split_at(len);
        rest = after;
        String::from_utf8_lossy(group).into_owned()
    });
    Some(groups.join("-"))
}

/// A serial number of little-endian bytes: `1A2B-3C4D` of four, without a hyphen of eight.
fn serial<const BYTES: usize>(front: &[u8], at: u64) -> Option<String> {
    let bytes = bytes_at(front, at, BYTES)?;
    let digits: String = bytes.iter().rev().map(|byte| format!("{byte:02X}")).collect();
    Some(if BYTES == 4 { format!("{}-{}", &digits[..4], &digits[4..]) } else { digits })
}

fn fat_label(label: Option<Vec<u8>>) -> Option<Vec<u8>> {
    label.filter(|label| label != b"NO NAME")
}

/// What stands before the first zero, without spaces at its end.
fn trimmed(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = bytes.split(|&byte| byte == 0).next()?.trim_ascii_end();
    (!text.is_empty()).then(|| text.to_vec())
}

fn bytes_at(front: &[u8], at: u64, len: usize) -> Option<&[u8]> {
    let at = usize::try_from(at).ok()?;
    front.get(at..at.checked_add(len)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, MemoryDevice};

    fn found(bytes: Vec<u8>) -> Option<Content> {
        probe(&MemoryDevice::from_bytes(bytes, Access::ReadOnly)).unwrap()
    }

    #[test]
    fn every_mark_is_found_at_its_place_only() {
        for (offset, mark, format) in MARKS {
            let mut bytes = vec![0; 0x2_0000];
            bytes[offset as usize..offset as usize + mark.len()].copy_from_slice(mark);
            let content = found(bytes.clone()).unwrap();
            assert_eq!(content.format.class, format.class, "{format:?}");
            bytes.rotate_right(1);
            assert_eq!(found(bytes), None, "{format:?}");
        }
    }

    #[test]
    fn a_tiny_device_holds_nothing() {
        assert_eq!(found(b"XFS".to_vec()), None);
        assert_eq!(found(Vec::new()), None);
    }

    #[test]
    fn a_superblock_without_its_features_is_of_any_of_the_ext_family() {
        let mut bytes = vec![0; 2048];
        bytes[1024 + 0x38..][..2].copy_from_slice(&[0x53, 0xEF]);
        bytes[1024 + 0x60] = 0x40;
        let what = |len: usize| found(bytes[..len].to_vec()).unwrap().format.what;
        assert_eq!(what(1100), "an ext2, ext3 or ext4 filesystem");
        assert_eq!(what(1024 + 0x67), "an ext2, ext3 or ext4 filesystem");
        assert_eq!(what(1024 + 0x68), "an ext4 filesystem");
    }

    #[test]
    fn an_lvm_header_that_lies_elsewhere_has_no_uuid() {
        let mut bytes = vec![0; 8192];
        bytes[512..520].copy_from_slice(LVM_LABEL);
        bytes[532..536].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(found(bytes).unwrap().uuid, None);
    }
}
