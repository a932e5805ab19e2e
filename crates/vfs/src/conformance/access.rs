//! Permissions: everything under `modes` and `acls` against many users, compared with a plain model.

use super::check::{Check, show};
use super::outcome::Finds;
use super::tree::{Entry, Object};
use crate::{Access, Credentials, Follow, check_access};

/// One entry of an access control list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclEntry {
    /// The file's owner.
    Owner(u16),
    /// A user by number.
    User(u32, u16),
    /// The file's group.
    OwningGroup(u16),
    /// A group by number.
    Group(u32, u16),
    /// The most that users by number and all groups get.
    Mask(u16),
    /// All other users.
    Other(u16),
}

/// A list in the form that `setxattr` takes.
#[must_use]
pub fn acl_bytes(entries: &[AclEntry]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for entry in entries {
        let (tag, permissions, id) = match *entry {
            AclEntry::Owner(permissions) => (0x01_u16, permissions, u32::MAX),
            AclEntry::User(id, permissions) => (0x02, permissions, id),
            AclEntry::OwningGroup(permissions) => (0x04, permissions, u32::MAX),
            AclEntry::Group(id, permissions) => (0x08, permissions, id),
            AclEntry::Mask(permissions) => (0x10, permissions, u32::MAX),
            AclEntry::Other(permissions) => (0x20, permissions, u32::MAX),
        };
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// The entries of a list as [`acl_bytes`] makes it.
fn acl_entries(bytes: &[u8]) -> Vec<AclEntry> {
    let entry = |entry: &[u8; 8]| {
        let permissions = u16::from_le_bytes([entry[2], entry[3]]);
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        match entry[0] {
            0x01 => AclEntry::Owner(permissions),
            0x02 => AclEntry::User(id, permissions),
            0x04 => AclEntry::OwningGroup(permissions),
            0x08 => AclEntry::Group(id, permissions),
            0x10 => AclEntry::Mask(permissions),
            _ => AclEntry::Other(permissions),
        }
    };
    bytes[4..].as_chunks::<8>().0.iter().map(entry).collect()
}

/// The access check algorithm of `acl(5)`, as it reads there. `file` is the file's owner and group, `want` is
/// made of the permission bits 4, 2 and 1.
#[must_use]
pub fn reference_acl_grants(entries: &[AclEntry], file: (u32, u32), caller: &Credentials, want: u16) -> bool {
    let mask = entries
        .iter()
        .find_map(|entry| if let AclEntry::Mask(bits) = entry { Some(*bits) } else { None })
        .unwrap_or(0o7);
    let contains = |bits: u16| bits & want == want;

    // "If the effective user ID of the process matches the user ID of the file object owner..."
    if caller.uid == file.0 {
        return entries.iter().any(|entry| matches!(entry, AclEntry::Owner(bits) if contains(*bits)));
    }
    // "else if the effective user ID matches the qualifier of any entry of type ACL_USER..."
    for entry in entries {
        if let AclEntry::User(id, bits) = entry
            && *id == caller.uid
        {
            return contains(bits & mask);
        }
    }
    // "else if the effective group ID or any supplementary group IDs match..."
    let groups: Vec<u16> = entries
        .iter()
        .filter_map(|entry| match entry {
            AclEntry::OwningGroup(bits) if caller.in_group(file.1) => Some(*bits),
            AclEntry::Group(id, bits) if caller.in_group(*id) => Some(*bits),
            _ => None,
        })
        .collect();
    if !groups.is_empty() {
        return groups.iter().any(|bits| contains(bits & mask));
    }
    entries.iter().any(|entry| matches!(entry, AclEntry::Other(bits) if contains(*bits)))
}

/// What the rules come to for an object of the tree.
fn expected(object: &Entry, caller: &Credentials, want: u16) -> bool {
    let contains = |shift: u16| (object.permissions >> shift) & want == want;
    if caller.override_dac {
        return object.object == Object::Directory || want & 1 == 0 || object.permissions & 0o111 != 0;
    }
    let acl = object.xattrs.iter().find(|(name, _)| name == b"system.posix_acl_access");
    match acl {
        // With an empty mask, Linux checks only the permission bits.
        Some((_, bytes)) if object.permissions & 0o070 != 0 => {
            reference_acl_grants(&acl_entries(bytes), (object.uid, object.gid), caller, want)
        }
        _ if caller.uid == object.uid => contains(6),
        _ if caller.in_group(object.gid) => contains(3),
        _ => contains(0),
    }
}

/// Users beside the owners of the standard tree's files.
fn users() -> Vec<Credentials> {
    let mut users = vec![Credentials::root()];
    for (uid, gid, groups) in [
        (1000, 2000, vec![]),
        (1000, 9, vec![]),
        (9, 2000, vec![]),
        (9, 9, vec![8, 2000]),
        (9, 9, vec![]),
        (1001, 9, vec![]),
        (1001, 2000, vec![2001]),
        (1002, 9, vec![2001, 2002]),
        (1007, 2001, vec![]),
        (9, 2001, vec![]),
        (9, 9, vec![2001, 2002]),
        (9, 2000, vec![2001]),
        (70_000, 9, vec![]),
        (9, 80_000, vec![]),
        (u32::MAX - 1, 9, vec![]),
        (9, u32::MAX - 1, vec![]),
    ] {
        users.push(Credentials::user(uid, gid, groups));
    }
    users
}

pub(super) fn check(check: &mut Check<'_>) {
    let tree = check.tree;
    let below = |entry: &&Entry| entry.path.starts_with(b"modes/") || entry.path.starts_with(b"acls/");
    for entry in tree.entries.iter().filter(below) {
        let Some(node) = check.node(entry) else { continue };
        for caller in users() {
            for want in 0..8 {
                let wanted = Access::from_bits_truncate(want);
                let got = check_access(&caller, &node, wanted);
                let what = || format!("{wanted:?} of {} for {caller:?}", show(&entry.path));
                if expected(entry, &caller, u16::from(want)) {
                    check.ok(what, got);
                } else {
                    check.refused(what, got, "PermissionDenied");
                }
            }
            check_way(check, entry, &caller);
        }
    }
}

/// Whether the way to an entry is open depends on the directories passed, and opening it on its own bits too.
fn check_way(check: &mut Check<'_>, entry: &Entry, caller: &Credentials) {
    let passes = check
        .tree
        .entries
        .iter()
        .filter(|dir| {
            dir.object == Object::Directory
                && entry.path.strip_prefix(&dir.path[..]).is_some_and(|rest| rest.starts_with(b"/"))
        })
        .all(|dir| expected(dir, caller, 1));
    let path = check.path(&entry.path);
    let what = || format!("the way to {} for {caller:?}", show(&entry.path));
    let got = check.vfs.resolve(caller, &path, Follow::Last);
    if !passes {
        return check.refused(what, got, "PermissionDenied");
    }
    check.ok(what, got);
    let opened = check.vfs.open(caller, &path);
    match entry.object {
        Object::Directory => check.refused(what, opened, "IsDirectory"),
        _ if expected(entry, caller, 4) => drop(check.ok(what, opened)),
        _ => check.refused(what, opened, "PermissionDenied"),
    }
}
