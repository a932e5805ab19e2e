//! Names in the superuser's name space that belong to XFS: Linux or its tools read their values.
//!
//! Access control lists are kept under two of them. IRIX kept labels and capabilities under others, which Linux ignores
//! and xfs_repair still examines, in each name that begins so. Linux lets the superuser set all of them to anything.

use super::acl;
use crate::error::Verdict;

const LISTS: [&[u8]; 2] = [b"SGI_ACL_FILE", b"SGI_ACL_DEFAULT"];
const LABEL: &[u8] = b"SGI_MAC_FILE";
const CAPABILITIES: &[u8] = b"SGI_CAP_FILE";

/// Three sets of 64 bits.
const CAPABILITIES_BYTES: usize = 24;

/// Categories and divisions of a label at most.
const LABEL_SETS_MAX: usize = 250;

/// Whether values of the name must have a form.
pub(crate) fn is_reserved(name: &[u8]) -> bool {
    LISTS.contains(&name) || name.starts_with(LABEL) || name.starts_with(CAPABILITIES)
}

/// Refuses a value that the name may not have on the disk.
pub(crate) fn check(name: &[u8], value: &[u8], has_crc: bool) -> Verdict<()> {
    if LISTS.contains(&name) {
        acl::check(value, has_crc)
    } else if name.starts_with(LABEL) && !is_label(value) {
        Err("the value is no label of mandatory access control".into())
    } else if name.starts_with(CAPABILITIES) && value.len() != CAPABILITIES_BYTES {
        Err(format!("capabilities of {} bytes, not {CAPABILITIES_BYTES}", value.len()).into())
    } else {
        Ok(())
    }
}

/// Refuses a value that the superuser may not give the name: beyond what the disk may have, the entries of a list have the
/// order that readers rely on.
pub(super) fn check_new(name: &[u8], value: &[u8]) -> Verdict<()> {
    check(name, value, true)?;
    if LISTS.contains(&name) { acl::check_order(value) } else { Ok(()) }
}

/// Whether these are a label, as xfs_repair reads it on little-endian machines: two types, a level, a grade, the numbers
/// of categories and of divisions, then those, each in ascending order. What is cut off is zero.
fn is_label(value: &[u8]) -> bool {
    const HEADER_BYTES: usize = 8;
    let mut bytes = [0; HEADER_BYTES + 2 * LABEL_SETS_MAX];
    let Some(start) = bytes.get_mut(..value.len()) else { return false };
    start.copy_from_slice(value);
    let Some(&[sensitivity, integrity, level, grade, count @ .., low, high]) =
        bytes.first_chunk::<HEADER_BYTES>()
    else {
        return false;
    };
    let categories = usize::from(u16::from_le_bytes(count));
    let divisions = usize::from(u16::from_le_bytes([low, high]));
    if categories + divisions > LABEL_SETS_MAX {
        return false;
    }
    let sets: Vec<u16> =
        bytes[HEADER_BYTES..].as_chunks().0.iter().map(|&set| u16::from_le_bytes(set)).collect();
    let rise = |sets: &[u16]| sets.is_sorted_by(|one, next| one < next);
    let is_sensitive = match sensitivity {
        b'A' | b'E' | b'H' | b'I' | b'L' | b'N' => level == 0 && categories == 0,
        b'T' | b'M' => rise(&sets[..categories]),
        _ => false,
    };
    is_sensitive
        && match integrity {
            b'b' => rise(&sets[categories..categories + divisions]),
            b'e' | b'h' | b'l' => grade == 0 && divisions == 0,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_irix_count_by_their_beginnings() {
        for (name, is_one) in [
            ("SGI_ACL_FILE", true),
            ("SGI_ACL_FILE2", false),
            ("SGI_ACL_DEFAULT", true),
            ("SGI_MAC_FILE", true),
            ("SGI_MAC_FILES", true),
            ("SGI_CAP_FILE.old", true),
            ("SGI_CAP_FIL", false),
            ("sgi_acl_file", false),
        ] {
            assert_eq!(is_reserved(name.as_bytes()), is_one, "{name}");
        }
        assert_eq!(check(b"SGI_ACL_FILES", b"anything", true), Ok(()));
        assert_eq!(check(b"SGI_CAP_FILE", &[1; 24], true), Ok(()));
        assert!(check(b"SGI_CAP_FILE", &[1; 23], true).unwrap_err().contains("23 bytes"));
        assert!(check(b"SGI_CAP_FILE_", b"", true).is_err());
        assert!(check(b"SGI_MAC_FILE", b"", true).is_err());
    }

    #[test]
    fn labels_have_known_types_and_rising_sets() {
        let label = |types: &[u8; 2], level: u8, grade: u8, categories: &[u16], divisions: &[u16]| {
            let counts = [categories.len() as u16, divisions.len() as u16];
            let sets = counts.iter().chain(categories).chain(divisions);
            let bytes: Vec<u8> = [types[0], types[1], level, grade]
                .into_iter()
                .chain(sets.flat_map(|n| n.to_le_bytes()))
                .collect();
            check(LABEL, &bytes, true).is_ok()
        };
        for (types, is_one) in
            [(b"Ae", true), (b"Hh", true), (b"Nl", true), (b"Tb", true), (b"Ue", false), (b"Ax", false)]
        {
            assert_eq!(label(types, 0, 0, &[], &[]), is_one, "{types:?}");
        }
        assert!(check(LABEL, b"Ae", true).is_ok());
        assert!(!label(b"Ae", 1, 0, &[], &[]) && !label(b"Ae", 0, 1, &[], &[]));
        assert!(!label(b"Ae", 0, 0, &[1], &[]) && !label(b"Ae", 0, 0, &[], &[1]));
        assert!(label(b"Mb", 9, 9, &[1, 2, 9], &[3, 4]) && label(b"Tb", 0, 0, &[0], &[0]));
        assert!(!label(b"Mb", 9, 9, &[1, 1], &[]) && !label(b"Mb", 9, 9, &[], &[4, 3]));
        let many: Vec<u16> = (0..251).collect();
        assert!(label(b"Tb", 0, 0, &many[..250], &[]) && !label(b"Tb", 0, 0, &many, &[]));
    }
}
