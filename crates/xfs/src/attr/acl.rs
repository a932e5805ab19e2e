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

#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    ae_tag: U32,
    ae_id: U32,
    ae_perm: U16,
    ae_pad: U16,
}

/// The value of `system.posix_acl_access` or `system.posix_acl_default`.
pub(super) fn to_xattr(disk: &[u8]) -> Verdict<Vec<u8>> {
    let Some((count, entries)) = disk.split_first_chunk() else {
        return Err("access control list is too short for its count".into());
    };
    let count = u32::from_be_bytes(*count);
    let entries = match <[RawEntry]>::ref_from_bytes(entries) {
        Ok(entries) if entries.len() == count as usize => entries,
        _ => {
            let len = disk.len();
            return Err(format!("access control list of {count} entries has {len} bytes").into());
        }
    };
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
