//! A file's access control list beside its mode: the same permissions twice, which change together.
//!
//! The form is that of `getxattr`: version 2, then entries of tag, permissions and number, all little-endian. The mode's bits
//! of the group are those of the list's mask, where it has one, as the kernel has it.

use crate::{Metadata, Xattr};

/// Where Linux keeps the list.
pub(crate) const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// XFS shows the list to root by this name too.
const ACCESS_LIST_OF_XFS: &[u8] = b"trusted.SGI_ACL_FILE";

const VERSION: [u8; 4] = [2, 0, 0, 0];
const OWNER: u16 = 0x01;
const OWNING_GROUP: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The bits of a mode that a list has too.
const LISTED: u16 = 0o777;

type Entry = [u8; 8];

/// Changes the mode of a file, and its list as chmod changes it on Linux.
pub(crate) fn change_mode(metadata: &mut Metadata, change: impl FnOnce(u16) -> u16) {
    // It would come back with the old permissions, also where it is the only one.
    metadata.xattrs.retain(|xattr| *xattr.name != *ACCESS_LIST_OF_XFS);
    let list = metadata.xattrs.iter_mut().find(|xattr| *xattr.name == *ACCESS_LIST);
    let Some(entries) = list.and_then(entries) else {
        metadata.permissions = change(metadata.permissions);
        return;
    };
    let has_mask = entries.iter().any(|entry| tag(entry) == MASK);
    let listed =
        entries.iter().filter_map(|entry| Some(u16::from(entry[2] & 0o7) << shift_of(entry, has_mask)?));
    let listed = listed.fold(0, |mode, bits| mode | bits);
    // What a source says of the mode may be older than its list, which the file gets last.
    let permissions = change(metadata.permissions & !LISTED | listed);
    for entry in entries {
        if let Some(shift) = shift_of(entry, has_mask) {
            entry[2] = (permissions >> shift & 0o7) as u8;
        }
    }
    metadata.permissions = permissions;
}

/// The entries of a list; `None` for what is none, which the filesystem will refuse.
fn entries(list: &mut Xattr) -> Option<&mut [Entry]> {
    let (version, body) = list.value.split_first_chunk_mut()?;
    let (entries, rest) = body.as_chunks_mut();
    (*version == VERSION && !entries.is_empty() && rest.is_empty()).then_some(entries)
}

/// Where in a mode the bits of an entry are; `None` where the mode has them not.
const fn shift_of(entry: &Entry, has_mask: bool) -> Option<u32> {
    match tag(entry) {
        OWNER => Some(6),
        MASK => Some(3),
        OWNING_GROUP if !has_mask => Some(3),
        OTHER => Some(0),
        _ => None,
    }
}

const fn tag(entry: &Entry) -> u16 {
    u16::from_le_bytes([entry[0], entry[1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(name: &[u8], entries: &[(u16, u8)]) -> Xattr {
        let entries = entries.iter().map(|&(tag, bits)| {
            let [low, high] = tag.to_le_bytes();
            [low, high, bits, 0, 255, 255, 255, 255]
        });
        Xattr { name: name.into(), value: VERSION.into_iter().chain(entries.flatten()).collect() }
    }

    fn changed(xattrs: Vec<Xattr>, permissions: u16, to: u16) -> Metadata {
        let mut metadata = Metadata { permissions, xattrs, ..Metadata::default() };
        change_mode(&mut metadata, |mode| mode & to);
        metadata
    }

    #[test]
    fn the_mask_and_the_others_follow_the_mode() {
        let before = [(OWNER, 6), (2, 7), (OWNING_GROUP, 4), (MASK, 7), (OTHER, 4)];
        let after = [(OWNER, 6), (2, 7), (OWNING_GROUP, 4), (MASK, 0), (OTHER, 0)];
        let xattrs = vec![list(ACCESS_LIST, &before), list(ACCESS_LIST_OF_XFS, &before)];
        let metadata = changed(xattrs, 0o4644, 0o7700);
        assert_eq!(metadata.permissions, 0o4600);
        assert_eq!(metadata.xattrs, [list(ACCESS_LIST, &after)]);
    }

    #[test]
    fn the_list_of_xfs_alone_keeps_no_permissions() {
        let before = [(OWNER, 6), (2, 7), (OWNING_GROUP, 4), (MASK, 7), (OTHER, 4)];
        let metadata = changed(vec![list(ACCESS_LIST_OF_XFS, &before)], 0o674, 0o700);
        assert_eq!((metadata.permissions, metadata.xattrs), (0o600, vec![]));
    }

    #[test]
    fn the_group_follows_where_there_is_no_mask() {
        let before = [(OWNER, 7), (OWNING_GROUP, 5), (OTHER, 5)];
        let metadata = changed(vec![list(ACCESS_LIST, &before)], 0o644, 0o727);
        assert_eq!(metadata.permissions, 0o705);
        assert_eq!(metadata.xattrs, [list(ACCESS_LIST, &[(OWNER, 7), (OWNING_GROUP, 0), (OTHER, 5)])]);
    }

    #[test]
    fn what_is_no_list_stays() {
        for value in [&b""[..], b"\x02\0\0\0", b"\x02\0\0\0\x01", b"\x01\0\0\0\x01\0\x07\0\0\0\0\0"] {
            let xattr = Xattr { name: ACCESS_LIST.into(), value: value.into() };
            let metadata = changed(vec![xattr.clone()], 0o755, 0o700);
            assert_eq!((metadata.permissions, metadata.xattrs), (0o700, vec![xattr]));
        }
    }
}
