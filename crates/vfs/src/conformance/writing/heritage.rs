//! What a new object inherits from its directory: the group, set-group-ID, and access control lists.

use std::sync::Arc;

use super::super::access::{AclEntry, acl_bytes};
use super::super::check::show;
use super::super::outcome::Finds;
use super::ground::{Checked, Ground, ROOT, user};
use crate::{Credentials, NewKind, NewObject, Node, Result, XattrMode};

pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
pub(super) const DEFAULT: &[u8] = b"system.posix_acl_default";

pub(super) fn check(on: &mut Ground<'_>) -> Checked {
    groups(on)?;
    if on.profile.holds.acls { lists(on) } else { Ok(()) }
}

fn create(
    on: &Ground<'_>,
    caller: &Credentials,
    dir: &Arc<Node>,
    name: &str,
    kind: NewKind<'_>,
    permissions: u16,
) -> Result<Arc<Node>> {
    on.vfs.create(caller, dir, name.as_bytes(), &NewObject { kind, permissions, umask: 0o022 })
}

fn groups(on: &mut Ground<'_>) -> Checked {
    let dir = on.directory(&on.top, "of a group")?;
    on.chown(&dir, 0, 77)?;
    on.chmod(&dir, 0o2777)?;
    let member = Credentials::user(1000, 1000, vec![77]);
    for (name, caller, kind, permissions, expected) in [
        ("file", user(), NewKind::Regular, 0o666, (77, 0o644)),
        ("program", user(), NewKind::Regular, 0o2775, (77, 0o755)),
        ("member's program", member, NewKind::Regular, 0o2775, (77, 0o2755)),
        ("no program", user(), NewKind::Regular, 0o2664, (77, 0o2644)),
        ("directory", user(), NewKind::Directory, 0o777, (77, 0o2755)),
        ("link", user(), NewKind::Symlink(b"x"), 0o777, (77, 0o777)),
        ("root's program", ROOT, NewKind::Regular, 0o6777, (77, 0o6755)),
    ] {
        let attr = create(on, &caller, &dir, name, kind, permissions)?.attr();
        on.equal(|| format!("group and permissions of \"{name}\""), &(attr.gid, attr.permissions), &expected);
    }
    let tmpfile = on.vfs.tmpfile(&user(), &dir, 0o666, 0o022)?.attr();
    on.equal(|| "group of a tmpfile".to_owned(), &(tmpfile.uid, tmpfile.gid), &(1000, 77));
    let inner = on.vfs.lookup(&dir, b"directory")?;
    let inside = create(on, &user(), &inner, "inside", NewKind::Directory, 0o700)?.attr();
    on.equal(|| "handed on twice".to_owned(), &(inside.gid, inside.permissions), &(77, 0o2700));
    Ok(())
}

/// Compares permissions and both lists of a node.
fn has(
    on: &mut Ground<'_>,
    what: &str,
    node: &Node,
    permissions: u16,
    access: Option<&[u8]>,
    default: Option<&[u8]>,
) -> Checked {
    on.equal(|| format!("permissions of {what}"), &node.attr().permissions, &permissions);
    for (name, expected) in [(ACCESS, access), (DEFAULT, default)] {
        let got = node.xattr(name)?;
        on.equal(|| format!("{} of {what}", show(name)), &got.as_deref(), &expected);
        let listed = node.list_xattrs()?.iter().any(|listed| listed == name);
        on.equal(|| format!("{} among the names of {what}", show(name)), &listed, &expected.is_some());
    }
    Ok(())
}

fn lists(on: &mut Ground<'_>) -> Checked {
    use AclEntry::{Mask, Other, Owner, OwningGroup, User};
    let dir = on.directory(&on.top, "with a list")?;
    let named = |owner, user, group, mask, other| {
        acl_bytes(&[Owner(owner), User(1001, user), OwningGroup(group), Mask(mask), Other(other)])
    };
    let default = named(7, 7, 5, 7, 1);
    on.vfs.set_xattr(&ROOT, &dir, DEFAULT, &default, XattrMode::Set)?;
    has(on, "the directory", &dir, 0o755, None, Some(&default))?;

    // The mask of the caller means nothing here: the list takes its place.
    let file = create(on, &ROOT, &dir, "file", NewKind::Regular, 0o666)?;
    has(on, "a file", &file, 0o660, Some(&named(6, 7, 5, 6, 0)), None)?;
    let sub = create(on, &ROOT, &dir, "sub", NewKind::Directory, 0o777)?;
    has(on, "a directory", &sub, 0o771, Some(&default), Some(&default))?;
    let deeper = create(on, &ROOT, &sub, "file", NewKind::Regular, 0o640)?;
    has(on, "a file further down", &deeper, 0o640, Some(&named(6, 7, 5, 4, 0)), None)?;
    let link = create(on, &ROOT, &dir, "link", NewKind::Symlink(b"x"), 0o777)?;
    on.equal(|| "permissions of a link".to_owned(), &link.attr().permissions, &0o777);
    let tmpfile = on.vfs.tmpfile(&ROOT, &dir, 0o600, 0o022)?;
    has(on, "a tmpfile", &tmpfile, 0o600, Some(&named(6, 7, 5, 0, 0)), None)?;

    on.chmod(&file, 0o604)?;
    has(on, "a file after a chmod", &file, 0o604, Some(&named(6, 7, 5, 0, 4)), None)?;

    // A list that says no more than permission bits leaves none on what is made.
    let plain = acl_bytes(&[Owner(7), OwningGroup(5), Other(0)]);
    on.vfs.set_xattr(&ROOT, &dir, DEFAULT, &plain, XattrMode::Set)?;
    let file = create(on, &ROOT, &dir, "plain", NewKind::Regular, 0o666)?;
    has(on, "a file under a plain list", &file, 0o640, None, None)?;
    on.vfs.remove_xattr(&ROOT, &dir, DEFAULT)?;
    let file = create(on, &ROOT, &dir, "after", NewKind::Regular, 0o666)?;
    has(on, "a file after the list has gone", &file, 0o644, None, None)
}
