//! The hash of a name, by which directories and attributes find it.
//!
//! Each byte is mixed into the hash rotated by seven bits. The feature "ascii-ci" hashes and compares names with the
//! capital letters of ISO 8859-1 made small.

/// The hash of a directory entry's or an attribute's name.
pub(crate) fn hash_name(name: &[u8]) -> u32 {
    name.iter().fold(0_u32, |hash, &byte| hash.rotate_left(7) ^ u32::from(byte))
}

/// The hash of a name in a directory that does not distinguish capital letters.
pub(crate) fn hash_name_folded(name: &[u8]) -> u32 {
    name.iter().fold(0_u32, |hash, &byte| hash.rotate_left(7) ^ u32::from(fold_case(byte)))
}

/// The small letter of a capital one, in ISO 8859-1.
pub(crate) fn fold_case(byte: u8) -> u8 {
    match byte {
        b'A'..=b'Z' | 0xc0..=0xd6 | 0xd8..=0xde => byte + 32,
        _ => byte,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `xfs_db -c "hash NAME"` prints them.
    #[test]
    fn hashes_are_those_of_xfs_db() {
        for (name, hash) in [
            (&b"."[..], 0x0000_002e),
            (b"..", 0x0000_172e),
            (b"lnk", 0x001b_376b),
            (b"short", 0x3d1b_f973),
            (b"SGI_ACL_FILE", 0x275b_19c4),
            (b"\xff\xfe\xfd\xfc\xfb", 0xefff_3ef4),
        ] {
            assert_eq!(hash_name(name), hash, "{name:?}");
        }
    }

    #[test]
    fn capital_letters_hash_as_small_ones() {
        assert_eq!(hash_name_folded(b"ReadMe\xc4\xd7"), hash_name(b"readme\xe4\xd7"));
        assert_eq!(hash_name_folded(b"\xdf\xdeZ[@"), hash_name(b"\xdf\xfez[@"));
    }
}
