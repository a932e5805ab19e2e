//! Access control lists: between the form on disk and the one that `getxattr` gives and `setxattr` takes.
//!
//! On disk a count comes first, then twelve bytes for each entry, big-endian. Outside, version 2: eight bytes for each,
//! little-endian. Tags and permission bits mean the same.

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::error::Verdict;

const XATTR_VERSION: u32 = 2;
/// In place of an id where there is none.
const NO_ID: u32 = u32::MAX;

const USER_OBJ: u32 = 0x01;
const USER: u32 = 0x02;
const GROUP_OBJ: u32 = 0x04;
const GROUP: u32 = 0x08;
const MASK: u32 = 0x10;
const OTHER: u32 = 0x20;

/// Entries that a list has at most without checksums.
const ENTRIES_MAX_VERSION_4: usize = 25;

#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    ae_tag: U32,
    ae_id: U32,
    ae_perm: U16,
    ae_pad: U16,
}

fn entries(disk: &[u8]) -> Verdict<&[RawEntry]> {
    let Some((count, entries)) = disk.split_first_chunk() else {
        return Err("access control list is too short for its count".into());
    };
    let count = u32::from_be_bytes(*count);
    match <[RawEntry]>::ref_from_bytes(entries) {
        Ok(entries) if entries.len() == count as usize => Ok(entries),
        _ => Err(format!("access control list of {count} entries has {} bytes", disk.len()).into()),
    }
}

/// Refuses a list that xfs_repair calls illegal. The order of the entries does not matter to it. Version 4, without
/// checksums, has fewer entries.
pub(super) fn check(disk: &[u8], has_crc: bool) -> Verdict<()> {
    let entries = entries(disk)?;
    if !has_crc && entries.len() > ENTRIES_MAX_VERSION_4 {
        return Err(format!("access control list has {} entries", entries.len()).into());
    }
    let mut seen: Vec<(u32, u32)> = Vec::with_capacity(entries.len());
    for entry in entries {
        let (tag, permissions) = (entry.ae_tag.get(), entry.ae_perm.get());
        if permissions > 0o7 {
            return Err(format!("access control list has an entry with permissions {permissions:#o}").into());
        }
        seen.push(match tag {
            USER | GROUP => (tag, entry.ae_id.get()),
            USER_OBJ | GROUP_OBJ | MASK | OTHER => (tag, NO_ID),
            _ => return Err(format!("access control list has an entry with tag {tag:#x}").into()),
        });
    }
    seen.sort_unstable();
    if let Some([(tag, id), _]) = seen.array_windows().find(|[one, next]| one == next) {
        return Err(match *tag {
            USER => format!("access control list names user {id} twice"),
            GROUP => format!("access control list names group {id} twice"),
            tag => format!("access control list has two entries with tag {tag:#x}"),
        }
        .into());
    }
    let has = |wanted: u32| seen.iter().any(|&(tag, _)| tag == wanted);
    if !(has(USER_OBJ) && has(GROUP_OBJ) && has(OTHER)) {
        return Err("access control list has no entry for owner, owning group or others".into());
    }
    if (has(USER) || has(GROUP)) && !has(MASK) {
        return Err("access control list names users or groups and has no mask".into());
    }
    Ok(())
}

/// Refuses a list whose entries are in another order than Linux stores, or name the user or group of number -1, which is none.
pub(super) fn check_order(disk: &[u8]) -> Verdict<()> {
    let entries = entries(disk)?;
    if !entries.is_sorted_by_key(|entry| entry.ae_tag.get()) {
        return Err("access control list has its entries out of order".into());
    }
    let has_no_id =
        |entry: &RawEntry| matches!(entry.ae_tag.get(), USER | GROUP) && entry.ae_id.get() == NO_ID;
    if entries.iter().any(has_no_id) {
        return Err("access control list names a user or group that cannot be".into());
    }
    Ok(())
}

/// The value of `system.posix_acl_access` or `system.posix_acl_default`.
pub(super) fn to_xattr(disk: &[u8]) -> Verdict<Vec<u8>> {
    let entries = entries(disk)?;
    let mut xattr = XATTR_VERSION.to_le_bytes().to_vec();
    for entry in entries {
        let tag = entry.ae_tag.get();
        let id = match tag {
            USER | GROUP => entry.ae_id.get(),
            USER_OBJ | GROUP_OBJ | MASK | OTHER => NO_ID,
            _ => return Err(format!("access control list has an entry with tag {tag:#x}").into()),
        };
        xattr.extend((tag as u16).to_le_bytes());
        xattr.extend(entry.ae_perm.get().to_le_bytes());
        xattr.extend(id.to_le_bytes());
    }
    Ok(xattr)
}

/// What is stored for a value of `system.posix_acl_access` or `system.posix_acl_default`.
pub(super) fn from_xattr(xattr: &[u8]) -> Verdict<Vec<u8>> {
    let Some((version, entries)) = xattr.split_first_chunk() else {
        return Err("access control list is too short for its version".into());
    };
    let version = u32::from_le_bytes(*version);
    if version != XATTR_VERSION {
        return Err(format!("access control list has version {version}, not {XATTR_VERSION}").into());
    }
    let (entries, rest) = entries.as_chunks::<8>();
    if !rest.is_empty() {
        return Err("access control list ends within an entry".into());
    }
    let mut disk = (entries.len() as u32).to_be_bytes().to_vec();
    for &[tag_low, tag_high, permissions_low, permissions_high, id @ ..] in entries {
        let tag = u32::from(u16::from_le_bytes([tag_low, tag_high]));
        let id = match tag {
            USER | GROUP => u32::from_le_bytes(id),
            USER_OBJ | GROUP_OBJ | MASK | OTHER => NO_ID,
            _ => return Err(format!("access control list has an entry with tag {tag:#x}").into()),
        };
        disk.extend(tag.to_be_bytes());
        disk.extend(id.to_be_bytes());
        disk.extend([permissions_high, permissions_low, 0, 0]);
    }
    Ok(disk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_converted() {
        let disk = [
            &[0, 0, 0, 3][..],
            &[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 7, 0, 0],
            &[0, 0, 0, 2, 0, 0, 3, 0xe8, 0, 4, 0, 0],
            &[0, 0, 0, 0x20, 0, 0, 0, 0, 0, 1, 0, 0],
        ]
        .concat();
        let xattr = [
            &[2, 0, 0, 0][..],
            &[0x01, 0, 7, 0, 0xff, 0xff, 0xff, 0xff],
            &[0x02, 0, 4, 0, 0xe8, 3, 0, 0],
            &[0x20, 0, 1, 0, 0xff, 0xff, 0xff, 0xff],
        ]
        .concat();
        assert_eq!(to_xattr(&disk).unwrap(), xattr);
        assert_eq!(to_xattr(&[0; 4]).unwrap(), [2, 0, 0, 0]);
        let mut stored = disk;
        stored[32..36].fill(0xff);
        assert_eq!(from_xattr(&xattr).unwrap(), stored);
    }

    /// A list on disk, of tags, identities and permissions.
    fn list(entries: &[(u32, u32, u16)]) -> Vec<u8> {
        let entries = entries.iter().flat_map(|&(tag, id, permissions)| {
            [&tag.to_be_bytes()[..], &id.to_be_bytes(), &permissions.to_be_bytes(), &[0; 2]].concat()
        });
        let mut disk = entries.collect::<Vec<u8>>();
        let count = disk.len() as u32 / 12;
        disk.splice(..0, count.to_be_bytes());
        disk
    }

    #[test]
    fn lists_on_disk_are_validated_as_xfs_repair_does() {
        const OWNER: (u32, u32, u16) = (USER_OBJ, NO_ID, 7);
        const OWNING: (u32, u32, u16) = (GROUP_OBJ, 0, 5);
        const ALL: (u32, u32, u16) = (MASK, NO_ID, 7);
        const REST: (u32, u32, u16) = (OTHER, NO_ID, 0);
        let verdict = |entries: &[(u32, u32, u16)]| check(&list(entries), true);
        for good in [
            &[OWNER, OWNING, REST][..],
            &[REST, OWNING, OWNER],
            &[OWNER, OWNING, ALL, REST],
            &[OWNER, (USER, 5, 7), (USER, 6, 0), OWNING, (GROUP, 5, 4), ALL, REST],
            &[OWNER, (USER, NO_ID, 7), OWNING, ALL, REST],
        ] {
            assert_eq!(verdict(good), Ok(()), "{good:?}");
        }
        for (bad, detail) in [
            (&[][..], "no entry for owner"),
            (&[OWNER, OWNING], "no entry for owner"),
            (&[OWNER, REST], "no entry for owner"),
            (&[OWNING, REST], "no entry for owner"),
            (&[OWNER, OWNER, OWNING, REST], "two entries with tag 0x1"),
            (&[OWNER, OWNING, ALL, ALL, REST], "two entries with tag 0x10"),
            (&[OWNER, (USER, 5, 7), OWNING, REST], "no mask"),
            (&[OWNER, OWNING, (GROUP, 5, 7), REST], "no mask"),
            (&[OWNER, (USER, 5, 7), (USER, 6, 7), (USER, 5, 0), OWNING, ALL, REST], "user 5 twice"),
            (&[OWNER, OWNING, (GROUP, 5, 7), (GROUP, 5, 7), ALL, REST], "group 5 twice"),
            (&[OWNER, OWNING, (OTHER, 0, 8)], "permissions 0o10"),
            (&[OWNER, OWNING, REST, (0x40, 0, 0)], "tag 0x40"),
        ] {
            let error = verdict(bad).unwrap_err();
            assert!(error.contains(detail), "{bad:?}: {error}");
        }
        assert!(check(&[0; 3], true).is_err());
        let good = list(&[OWNER, OWNING, REST]);
        assert!(check(&good[..good.len() - 1], true).is_err());
        assert!(check(&[&good[..], &[0]].concat(), true).is_err());
        let users = |count: u32| {
            let users = (0..count).map(|id| (USER, id, 7));
            list(&[OWNER].into_iter().chain(users).chain([OWNING, ALL, REST]).collect::<Vec<_>>())
        };
        assert_eq!(check(&users(21), false), Ok(()));
        assert!(check(&users(22), false).unwrap_err().contains("26 entries"));
        assert_eq!(check(&users(5000), true), Ok(()));
        assert_eq!(check_order(&users(2)), Ok(()));
        assert!(check_order(&list(&[REST, OWNING, OWNER])).unwrap_err().contains("order"));
        assert!(check_order(&list(&[OWNER, (USER, NO_ID, 7), OWNING, ALL, REST])).is_err());
    }

    #[test]
    fn damage_is_named() {
        assert!(to_xattr(&[0; 3]).unwrap_err().contains("too short"));
        assert!(to_xattr(&[0, 0, 0, 1]).unwrap_err().contains("1 entries has 4 bytes"));
        assert!(to_xattr(&[0, 0, 0, 0, 0]).unwrap_err().contains("0 entries has 5 bytes"));
        let wrong = [&[0, 0, 0, 1][..], &[0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert!(to_xattr(&wrong).unwrap_err().contains("tag 0x3"));
        assert!(from_xattr(&[2, 0]).unwrap_err().contains("too short"));
        assert!(from_xattr(&[1, 0, 0, 0]).unwrap_err().contains("version 1"));
        assert!(from_xattr(&[2, 0, 0, 0, 1, 0, 7, 0]).unwrap_err().contains("ends"));
        assert!(from_xattr(&[2, 0, 0, 0, 3, 0, 7, 0, 0, 0, 0, 0]).unwrap_err().contains("tag 0x3"));
    }
}
