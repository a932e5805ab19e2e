//! What is on a device already that somebody may miss.
//!
//! Marks of filesystems, volumes and partition tables, as wipefs(8) looks for them; not all it knows.

use undercroft_block::BlockDevice;

use super::error::MkfsError;

/// A mark: where it begins, its bytes, and what it is a mark of.
const MARKS: [(u64, &[u8], &str); 19] = [
    (1024 + 0x38, &[0x53, 0xEF], "an ext2, ext3 or ext4 filesystem"),
    (0, b"XFSB", "an XFS filesystem"),
    (0x1_0040, b"_BHRfS_M", "a btrfs filesystem"),
    (1024, &[0x10, 0x20, 0xF5, 0xF2], "an F2FS filesystem"),
    (0, b"hsqs", "a squashfs filesystem"),
    (1024, &[0xE2, 0xE1, 0xF5, 0xE0], "an EROFS filesystem"),
    (0x8001, b"CD001", "an ISO 9660 filesystem"),
    (3, b"NTFS    ", "an NTFS filesystem"),
    (3, b"EXFAT   ", "an exFAT filesystem"),
    (0x36, b"FAT1", "a FAT filesystem"),
    (0x52, b"FAT32", "a FAT filesystem"),
    (4086, b"SWAPSPACE2", "Linux swap space"),
    (0, b"LUKS\xBA\xBE", "a LUKS volume"),
    (512, b"LABELONE", "an LVM physical volume"),
    (4096, &[0xFC, 0x4E, 0x2B, 0xA9], "a member of an md array"),
    (0, &[0xFC, 0x4E, 0x2B, 0xA9], "a member of an md array"),
    (512, b"EFI PART", "a GPT partition table"),
    (4096, b"EFI PART", "a GPT partition table"),
    (510, &[0x55, 0xAA], "a partition table or boot sector"),
];

/// What the first mark that is found stands for.
pub(super) fn find(device: &dyn BlockDevice) -> Result<Option<&'static str>, MkfsError> {
    const LOOKED_AT: u64 = 0x1_0048;
    let mut bytes = vec![0; device.size_bytes().min(LOOKED_AT) as usize];
    device.read_at(0, &mut bytes)?;
    let found = MARKS.iter().find(|(at, mark, _)| {
        let at = *at as usize;
        bytes.get(at..at + mark.len()).is_some_and(|there| there == *mark)
    });
    Ok(found.map(|(_, _, what)| *what))
}
