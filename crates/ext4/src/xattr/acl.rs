//! Access control lists: between the compact form on disk and the one that `getxattr` gives and `setxattr` takes.
//!
//! Source: the comments in Linux's `fs/ext4/acl.h` on the format, and lists that `setfacl` made. On disk, version
//! 1: entries for the owner, the owning group, the mask and others take four bytes, those that name a user or a
//! group eight. Outside, version 2: all take eight.

use crate::error::Verdict;

const DISK_VERSION: u32 = 1;
const XATTR_VERSION: u32 = 2;
/// In place of an id where there is none.
const NO_ID: u32 = u32::MAX;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The value of `system.posix_acl_access` or `system.posix_acl_default`.
pub(super) fn to_xattr(disk: &[u8]) -> Verdict<Vec<u8>> {
    let (version, mut rest) = take_u32(disk)?;
    if version != DISK_VERSION {
        return Err(format!("access control list has version {version}, not {DISK_VERSION}").into());
    }
    let mut xattr = XATTR_VERSION.to_le_bytes().to_vec();
    while !rest.is_empty() {
        let (tag_and_permissions, after) = take_u32(rest)?;
        let tag = tag_and_permissions as u16;
        let (id, after) = match tag {
            USER | GROUP => take_u32(after)?,
            USER_OBJ | GROUP_OBJ | MASK | OTHER => (NO_ID, after),
            _ => return Err(format!("access control list has an entry with tag {tag:#x}").into()),
        };
        xattr.extend(tag_and_permissions.to_le_bytes());
        xattr.extend(id.to_le_bytes());
        rest = after;
    }
    Ok(xattr)
}

/// What is stored for a value of `system.posix_acl_access` or `system.posix_acl_default`.
pub(super) fn from_xattr(xattr: &[u8]) -> Verdict<Vec<u8>> {
    let (version, mut rest) = take_u32(xattr)?;
    if version != XATTR_VERSION {
        return Err(format!("access control list has version {version}, not {XATTR_VERSION}").into());
    }
    let mut disk = DISK_VERSION.to_le_bytes().to_vec();
    while !rest.is_empty() {
        let (tag_and_permissions, after) = take_u32(rest)?;
        let (id, after) = take_u32(after)?;
        disk.extend(tag_and_permissions.to_le_bytes());
        match tag_and_permissions as u16 {
            USER | GROUP => disk.extend(id.to_le_bytes()),
            USER_OBJ | GROUP_OBJ | MASK | OTHER => {}
            tag => return Err(format!("access control list has an entry with tag {tag:#x}").into()),
        }
        rest = after;
    }
    Ok(disk)
}

fn take_u32(bytes: &[u8]) -> Verdict<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk().ok_or("access control list ends within an entry")?;
    Ok((u32::from_le_bytes(*word), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_get_their_ids() {
        let disk = [
            &[1, 0, 0, 0][..],
            &[0x01, 0, 7, 0],
            &[0x02, 0, 4, 0, 0xe8, 3, 0, 0],
            &[0x04, 0, 5, 0],
            &[0x10, 0, 5, 0],
            &[0x20, 0, 1, 0],
        ]
        .concat();
        let xattr = [
            &[2, 0, 0, 0][..],
            &[0x01, 0, 7, 0, 0xff, 0xff, 0xff, 0xff],
            &[0x02, 0, 4, 0, 0xe8, 3, 0, 0],
            &[0x04, 0, 5, 0, 0xff, 0xff, 0xff, 0xff],
            &[0x10, 0, 5, 0, 0xff, 0xff, 0xff, 0xff],
            &[0x20, 0, 1, 0, 0xff, 0xff, 0xff, 0xff],
        ]
        .concat();
        assert_eq!(to_xattr(&disk).unwrap(), xattr);
        assert_eq!(from_xattr(&xattr).unwrap(), disk);
    }

    #[test]
    fn damage_is_named() {
        assert!(to_xattr(&[1, 0]).unwrap_err().contains("ends"));
        assert!(to_xattr(&[2, 0, 0, 0]).unwrap_err().contains("version 2"));
        assert!(to_xattr(&[1, 0, 0, 0, 2, 0, 7, 0]).unwrap_err().contains("ends"));
        assert!(to_xattr(&[1, 0, 0, 0, 3, 0, 7, 0]).unwrap_err().contains("tag 0x3"));
        assert!(from_xattr(&[2, 0]).unwrap_err().contains("ends"));
        assert!(from_xattr(&[1, 0, 0, 0]).unwrap_err().contains("version 1"));
        assert!(from_xattr(&[2, 0, 0, 0, 1, 0, 7, 0]).unwrap_err().contains("ends"));
        assert!(from_xattr(&[2, 0, 0, 0, 3, 0, 7, 0, 0, 0, 0, 0]).unwrap_err().contains("tag 0x3"));
    }
}
