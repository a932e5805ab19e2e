//! What a device holds when it is none of the filesystems this program opens, for a helpful refusal.
//!
//! Signatures as blkid(8) knows them.

use undercroft_block::{BlockDevice, Result};

/// Offset, bytes, name.
const SIGNATURES: [(u64, &[u8], &str); 15] = [
    (0, b"XFSB", "an XFS filesystem"),
    (0x1_0040, b"_BHRfS_M", "a btrfs filesystem"),
    (0x400, b"\x10\x20\xf5\xf2", "an F2FS filesystem"),
    (0, b"hsqs", "a squashfs filesystem"),
    (0x400, b"\xe2\xe1\xf5\xe0", "an EROFS filesystem"),
    (3, b"NTFS    ", "an NTFS filesystem"),
    (3, b"EXFAT   ", "an exFAT filesystem"),
    (0x52, b"FAT32   ", "a FAT32 filesystem"),
    (0x36, b"FAT16   ", "a FAT16 filesystem"),
    (0x36, b"FAT12   ", "a FAT12 filesystem"),
    (0x8001, b"CD001", "an ISO 9660 filesystem"),
    (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
    (0x218, b"LVM2 001", "an LVM physical volume"),
    (0xff6, b"SWAPSPACE2", "swap space"),
    (0x1000, b"\xfc\x4e\x2b\xa9", "a member of a Linux RAID array"),
];

/// A name for what is there, with its article.
pub(crate) fn content(device: &dyn BlockDevice) -> Result<Option<&'static str>> {
    for (offset, signature, name) in SIGNATURES {
        let mut bytes = [0; 16];
        let bytes = &mut bytes[..signature.len()];
        if offset + signature.len() as u64 > device.size_bytes() {
            continue;
        }
        device.read_at(offset, bytes)?;
        if bytes == signature {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use undercroft_block::{Access, MemoryDevice};

    use super::{SIGNATURES, content};

    #[test]
    fn every_signature_is_found_at_its_place_only() {
        for (offset, signature, name) in SIGNATURES {
            let mut bytes = vec![0; 0x2_0000];
            bytes[offset as usize..offset as usize + signature.len()].copy_from_slice(signature);
            let device = MemoryDevice::from_bytes(bytes.clone(), Access::ReadOnly);
            assert_eq!(content(&device).unwrap(), Some(name));
            bytes.rotate_right(1);
            assert_eq!(content(&MemoryDevice::from_bytes(bytes, Access::ReadOnly)).unwrap(), None);
        }
    }

    #[test]
    fn a_tiny_device_holds_nothing() {
        let device = MemoryDevice::from_bytes(b"XFS".to_vec(), Access::ReadOnly);
        assert_eq!(content(&device).unwrap(), None);
    }
}
