//! Permission checks: POSIX permission bits, access control lists, the sticky bit, and the owner of a new file.
//!
//! Called by path walking for every directory it passes, and by programs that serve users themselves. The rules and
//! their order are Linux's, so that an image answers here as it does mounted.

use crate::access::grants;
use crate::acl::ACCESS_XATTR;
use crate::{Access, Attr, Credentials, Error, FileType, InodeFlags, Node, Ownership, Result};

/// Refuses unless `caller` may do all of `want` with the file.
///
/// # Errors
/// [`PermissionDenied`](Error::PermissionDenied); the filesystem's own when the access control list cannot be
/// read.
pub fn check_access(caller: &Credentials, node: &Node, want: Access) -> Result<()> {
    check_access_of(caller, node, &node.ownership(), want)
}

/// [`check_access`] for a caller that has the attributes at hand.
pub(crate) fn check_access_of(
    caller: &Credentials,
    node: &Node,
    attr: &Ownership,
    want: Access,
) -> Result<()> {
    // Before anything else, for the superuser too.
    if want.contains(Access::WRITE) && attr.flags.contains(InodeFlags::IMMUTABLE) {
        return Err(Error::NotPermitted);
    }
    if may_override(caller, attr, want) || is_granted(caller, node, attr, want)? {
        return Ok(());
    }
    Err(Error::PermissionDenied)
}

/// Refuses unless `caller` may remove or replace the name of `victim` in `dir`: writing and passing through the
/// directory, and in a sticky one owning either of the two.
///
/// # Errors
/// [`PermissionDenied`](Error::PermissionDenied), or [`NotPermitted`](Error::NotPermitted) because of the
/// sticky bit, as Linux has it.
pub fn check_delete(caller: &Credentials, dir: &Node, victim: &Attr) -> Result<()> {
    check_delete_of(caller, dir, &dir.ownership(), &victim.ownership())
}

/// [`check_delete`] for a caller that has the directory's attributes at hand.
pub(crate) fn check_delete_of(
    caller: &Credentials,
    dir: &Node,
    attr: &Ownership,
    victim: &Ownership,
) -> Result<()> {
    check_access_of(caller, dir, attr, Access::WRITE | Access::EXECUTE)?;
    let dir = attr;
    if dir.permissions & STICKY != 0
        && !caller.override_dac
        && caller.uid != victim.uid
        && caller.uid != dir.uid
    {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// The owner and permission bits of a file that `caller` creates in `dir`: in a set-group-ID directory the group comes
/// from the directory, and directories hand the bit on.
#[must_use]
pub fn new_file_owner(caller: &Credentials, dir: &Ownership, kind: FileType, permissions: u16) -> NewFile {
    let mut new = NewFile { uid: caller.uid, gid: caller.gid, permissions };
    if dir.permissions & SET_GROUP_ID != 0 {
        new.gid = dir.gid;
        if kind == FileType::Directory {
            new.permissions |= SET_GROUP_ID;
        } else if permissions & (SET_GROUP_ID | GROUP_EXECUTE) == SET_GROUP_ID | GROUP_EXECUTE
            && !caller.in_group(dir.gid)
            && !caller.override_dac
        {
            // Otherwise a directory of another user's group would lend that group's rights to programs.
            new.permissions &= !SET_GROUP_ID;
        }
    }
    new
}

/// Owner and permission bits of a file to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits with set-user-ID, set-group-ID and sticky.
    pub permissions: u16,
}

/// Of permission bits: the file runs with its owner's rights.
pub const SET_USER_ID: u16 = 0o4000;
/// Of permission bits: the file runs with its group's rights; what is made in the directory gets its group.
pub const SET_GROUP_ID: u16 = 0o2000;
pub(crate) const STICKY: u16 = 0o1000;
const GROUP_EXECUTE: u16 = 0o010;
const ANY_EXECUTE: u16 = 0o111;

/// A file's permission bits without those that lend rights to the user that runs it. Where the group may not execute,
/// set-group-ID lends none; it once asked for mandatory locks.
pub(crate) fn without_privilege(permissions: u16) -> u16 {
    let lends_group = permissions & GROUP_EXECUTE != 0;
    permissions & !(SET_USER_ID | if lends_group { SET_GROUP_ID } else { 0 })
}

/// Whether the superuser's privilege suffices. It does not make a file a program.
fn may_override(caller: &Credentials, attr: &Ownership, want: Access) -> bool {
    caller.override_dac
        && (attr.kind == FileType::Directory
            || !want.contains(Access::EXECUTE)
            || attr.permissions & ANY_EXECUTE != 0)
}

fn is_granted(caller: &Credentials, node: &Node, attr: &Ownership, want: Access) -> Result<bool> {
    if caller.uid == attr.uid {
        return Ok(grants(attr.permissions >> 6, want));
    }
    // The group bits of a file with a list are the list's mask. Linux leaves the list unread when they are all clear
    // and goes on to the bits for others, even for a user that the list names.
    if attr.permissions & 0o070 != 0
        && let Some(acl) = node.acl_cell().get(node.ino(), || node.inode().xattr(ACCESS_XATTR))?
    {
        return Ok(acl.grants(caller, attr, want));
    }
    let class = if caller.in_group(attr.gid) { attr.permissions >> 3 } else { attr.permissions };
    Ok(grants(class, want))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::conformance::{AclEntry, Content, Object, Tree, acl_bytes};
    use crate::memory_fs::MemoryFs;
    use crate::{Follow, Result, Vfs};

    fn file() -> Object {
        Object::File(Content::full(10, 1))
    }

    fn node(vfs: &Vfs, path: &str) -> std::sync::Arc<Node> {
        vfs.resolve(&Credentials::root(), path.as_bytes(), Follow::NoFollow).unwrap()
    }

    fn is<T>(result: Result<T>, expected: &str) -> bool {
        result.is_err_and(|error| format!("{error:?}") == expected)
    }

    #[test]
    fn the_superuser_runs_only_what_some_user_may_run() {
        let mut tree = Tree::new();
        tree.add("text", file()).owned(0o644, 5, 5);
        tree.add("program", file()).owned(0o001, 5, 5);
        tree.add("closed", Object::Directory).owned(0o000, 5, 5);
        let (vfs, _) = MemoryFs::new(&tree).mount(1 << 20, 1 << 20);
        let root = Credentials::root();
        let allowed = |path, want| check_access(&root, &node(&vfs, path), want).is_ok();
        assert!(allowed("text", Access::READ | Access::WRITE));
        assert!(!allowed("text", Access::EXECUTE));
        assert!(!allowed("text", Access::READ | Access::EXECUTE));
        assert!(allowed("program", Access::all()));
        assert!(allowed("closed", Access::all()));
    }

    #[test]
    fn a_list_is_read_once_and_not_for_the_owner() {
        use AclEntry::{Mask, Other, Owner, OwningGroup, User};
        let mut tree = Tree::new();
        let list = acl_bytes(&[Owner(6), User(7, 6), OwningGroup(0), Mask(6), Other(0)]);
        tree.add("with", file()).owned(0o660, 5, 5).xattr("system.posix_acl_access", list);
        tree.add("without", file()).owned(0o640, 5, 5);
        tree.add("broken", file()).owned(0o640, 5, 5).xattr("system.posix_acl_access", [2, 0, 0]);
        let (vfs, fs) = MemoryFs::new(&tree).mount(1 << 20, 1 << 20);
        let reads = || fs.calls.xattr.load(Ordering::Relaxed);
        let (with, without, broken) = (node(&vfs, "with"), node(&vfs, "without"), node(&vfs, "broken"));
        let (owner, named, other) = (
            Credentials::user(5, 5, vec![]),
            Credentials::user(7, 9, vec![]),
            Credentials::user(9, 9, vec![]),
        );
        for node in [&with, &without, &broken] {
            assert!(check_access(&owner, node, Access::READ).is_ok());
        }
        assert_eq!(reads(), 0);
        for _ in 0..3 {
            assert!(check_access(&named, &with, Access::READ | Access::WRITE).is_ok());
            assert!(is(check_access(&other, &with, Access::READ), "PermissionDenied"));
            assert!(is(check_access(&named, &without, Access::READ), "PermissionDenied"));
        }
        assert_eq!(reads(), 2);
        assert!(matches!(check_access(&named, &broken, Access::READ), Err(Error::Corrupt(_))));
    }

    #[test]
    fn only_owners_remove_from_a_sticky_directory() {
        let mut tree = Tree::new();
        tree.add("sticky", Object::Directory).owned(0o1777, 5, 5);
        tree.add("sticky/file", file()).owned(0o666, 6, 6);
        tree.add("plain", Object::Directory).owned(0o777, 5, 5);
        tree.add("closed", Object::Directory).owned(0o1755, 5, 5);
        let (vfs, _) = MemoryFs::new(&tree).mount(1 << 20, 1 << 20);
        let victim = node(&vfs, "sticky/file").attr();
        let delete = |uid, dir| {
            let caller = if uid == 0 { Credentials::root() } else { Credentials::user(uid, 9, vec![]) };
            check_delete(&caller, &node(&vfs, dir), &victim)
        };
        for uid in [0, 5, 6] {
            assert!(delete(uid, "sticky").is_ok(), "user {uid}");
        }
        assert!(is(delete(7, "sticky"), "NotPermitted"));
        assert!(delete(7, "plain").is_ok());
        assert!(is(delete(6, "closed"), "PermissionDenied"));
    }

    #[test]
    fn a_set_group_id_directory_hands_its_group_on() {
        let mut tree = Tree::new();
        tree.add("shared", Object::Directory).owned(0o2777, 5, 50);
        tree.add("plain", Object::Directory).owned(0o777, 5, 50);
        let (vfs, _) = MemoryFs::new(&tree).mount(1 << 20, 1 << 20);
        let (shared, plain) = (node(&vfs, "shared").ownership(), node(&vfs, "plain").ownership());
        let (stranger, member) = (Credentials::user(7, 9, vec![]), Credentials::user(7, 9, vec![50]));
        let (regular, directory) = (FileType::Regular, FileType::Directory);
        for (caller, dir, kind, permissions, expected) in [
            (&stranger, &plain, regular, 0o2755, (9, 0o2755)),
            (&stranger, &plain, directory, 0o755, (9, 0o755)),
            (&stranger, &shared, directory, 0o755, (50, 0o2755)),
            (&stranger, &shared, regular, 0o644, (50, 0o644)),
            (&stranger, &shared, regular, 0o2755, (50, 0o755)),
            (&stranger, &shared, regular, 0o2745, (50, 0o2745)),
            (&member, &shared, regular, 0o2755, (50, 0o2755)),
            (&Credentials::root(), &shared, regular, 0o2755, (50, 0o2755)),
        ] {
            let new = new_file_owner(caller, dir, kind, permissions);
            assert_eq!((new.gid, new.permissions), expected, "{caller:?} {kind:?} {permissions:o}");
            assert_eq!(new.uid, caller.uid);
        }
    }
}
