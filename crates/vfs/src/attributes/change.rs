//! Changing what `stat` shows: `chmod`, `chown`, `utimensat`, and the flags and project that `chattr` sets.
//!
//! Two things follow a change without being requested. A new owner or group clears a program's privileges, which were
//! given to the old one: set-user-ID, set-group-ID and file capabilities, for the superuser too. New permission bits go
//! into the access control list as well.

use std::sync::Arc;

use super::xattr::drop_capabilities;
use super::{acl_change, acts_as_owner, check_not_frozen, check_owner, keeps_set_group_id};
use crate::permission::{SET_GROUP_ID, check_access_of, without_privilege};
use crate::{Access, Attr, AttrChange, Credentials, Error, FileType, InodeFlags, NewTime, Node, Result, Vfs};

/// Linux's value for "no user", "no group" and "no project".
const NO_ID: u32 = u32::MAX;

impl Vfs {
    /// Changes attributes, all at once. An access control list follows the permission bits. A new owner or group takes
    /// capabilities from anything but a directory, and set-user-ID and set-group-ID unless `permissions` says what is
    /// to stay. Set-group-ID is cleared for a caller that is not in the group.
    ///
    /// # Errors [`NotPermitted`](Error::NotPermitted) for a caller that is not the owner, for another's group, for the
    /// flags `IMMUTABLE` and `APPEND` without privilege, and for what is immutable or append-only (which still takes
    /// flags, and if it is append-only both times as [`Now`](NewTime::Now));
    /// [`PermissionDenied`](Error::PermissionDenied) for these times from a caller that may not write either;
    /// [`Unsupported`](Error::Unsupported) for permissions of a symbolic link, which has none;
    /// [`InvalidArgument`](Error::InvalidArgument) for times and numbers that cannot be;
    /// [`ReadOnly`](Error::ReadOnly); the filesystem's own. Nothing has changed then, except that capabilities may
    /// have been cleared.
    pub fn set_attr(&self, caller: &Credentials, node: &Arc<Node>, change: &AttrChange) -> Result<()> {
        check_values(change)?;
        self.check_writable()?;
        let _state = node.state().write();
        let attr = node.attr();
        check_change(caller, node, &attr, change)?;
        let decided = AttrChange { permissions: decided_permissions(caller, &attr, change), ..*change };
        if loses_privileges(&attr, change) {
            // First, so that a crash leaves a program with too little rather than another's with too much.
            drop_capabilities(node)?;
        }
        match decided.permissions {
            Some(permissions) => acl_change::change_permissions(node, permissions, &decided),
            None => node.inode().set_attr(&decided),
        }
    }
}

/// Refuses what could not be right for any file.
fn check_values(change: &AttrChange) -> Result<()> {
    let given = |time| match time {
        Some(NewTime::At(time) | NewTime::NowAs(time)) => Some(time),
        Some(NewTime::Now) | None => None,
    };
    let times = [given(change.accessed), given(change.modified), change.changed];
    if times.iter().flatten().any(|time| time.nanoseconds > 999_999_999) {
        return Err(Error::InvalidArgument("a time has a second or more of nanoseconds"));
    }
    if [change.uid, change.gid, change.project].contains(&Some(NO_ID)) {
        return Err(Error::InvalidArgument("the number 4294967295 stands for no user, group or project"));
    }
    Ok(())
}

/// Refuses unless `caller` may change all of it.
fn check_change(caller: &Credentials, node: &Node, attr: &Attr, change: &AttrChange) -> Result<()> {
    let AttrChange { permissions, uid, gid, accessed, modified, changed, flags, project, hints } = *change;
    // Only both times together count as a touch, for which it is enough to be allowed to write.
    let touches = match (accessed, modified) {
        (Some(NewTime::Now), Some(NewTime::Now)) => changed.is_none(),
        (Some(NewTime::NowAs(one)), Some(NewTime::NowAs(other))) => one == other && changed == Some(one),
        _ => false,
    };
    let sets_times = !touches && (accessed.is_some() || modified.is_some() || changed.is_some());

    if permissions.is_some() || uid.is_some() || gid.is_some() || sets_times {
        check_not_frozen(attr)?;
    }
    // A change of nothing still changes the time of change.
    if (touches || *change == AttrChange::default()) && attr.flags.contains(InodeFlags::IMMUTABLE) {
        return Err(Error::NotPermitted);
    }
    if touches && !acts_as_owner(caller, attr) {
        check_access_of(caller, node, &attr.ownership(), Access::WRITE)?;
    }
    if permissions.is_some() && attr.kind == FileType::Symlink {
        return Err(Error::Unsupported("permissions of a symbolic link".into()));
    }
    if uid.is_some_and(|uid| uid != attr.uid) && !caller.override_dac {
        return Err(Error::NotPermitted);
    }
    if gid.is_some_and(|gid| gid != attr.gid && !caller.in_group(gid)) && !caller.override_dac {
        return Err(Error::NotPermitted);
    }
    let owners_only = permissions.is_some()
        || uid.is_some()
        || gid.is_some()
        || sets_times
        || flags.is_some()
        || project.is_some()
        || hints.is_some();
    if owners_only {
        check_owner(caller, attr)?;
    }
    let guarded = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
    if flags.is_some_and(|flags| (flags ^ attr.flags).intersects(guarded)) && !caller.override_dac {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// Whether the file's privileges go, because it gets another owner or group. That it is the same one again makes
/// no difference.
fn loses_privileges(attr: &Attr, change: &AttrChange) -> bool {
    attr.kind != FileType::Directory && (change.uid.is_some() || change.gid.is_some())
}

/// The permission bits that come of a change, if any do.
fn decided_permissions(caller: &Credentials, attr: &Attr, change: &AttrChange) -> Option<u16> {
    let mut permissions = match change.permissions {
        Some(permissions) => permissions & 0o7777,
        None if loses_privileges(attr, change) => {
            let mut left = without_privilege(attr.permissions);
            if !keeps_set_group_id(caller, attr.gid) {
                left &= !SET_GROUP_ID;
            }
            if left == attr.permissions {
                return None;
            }
            left
        }
        None => return None,
    };
    if !keeps_set_group_id(caller, change.gid.unwrap_or(attr.gid)) {
        permissions &= !SET_GROUP_ID;
    }
    Some(permissions)
}

#[cfg(test)]
mod tests {
    use super::super::recorder::{Call, Subject};
    use super::super::xattr::CAPABILITY_XATTR;
    use super::*;
    use crate::Timestamp;
    use crate::conformance::{AclEntry, acl_bytes};
    use crate::permission::check_access;

    const CAPABILITIES: [u8; 20] = [1, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    fn user(uid: u32, groups: &[u32]) -> Credentials {
        Credentials::user(uid, 8, groups.to_vec())
    }

    fn chmod(permissions: u16) -> AttrChange {
        AttrChange { permissions: Some(permissions), ..AttrChange::default() }
    }

    fn chown(uid: Option<u32>, gid: Option<u32>) -> AttrChange {
        AttrChange { uid, gid, ..AttrChange::default() }
    }

    fn set_flags(flags: InodeFlags) -> AttrChange {
        AttrChange { flags: Some(flags), ..AttrChange::default() }
    }

    fn times(accessed: Option<NewTime>, modified: Option<NewTime>) -> AttrChange {
        AttrChange { accessed, modified, ..AttrChange::default() }
    }

    const SOME_TIME: NewTime = NewTime::At(Timestamp { seconds: 1, nanoseconds: 5 });

    #[test]
    fn a_new_owner_gets_no_privileges() {
        let (root, outside, inside) = (Credentials::root(), user(7, &[]), user(7, &[9]));
        let (uid, gid) = (chown(Some(7), None), chown(None, Some(8)));
        // As Linux's tmpfs and ext4 answered.
        for (before, caller, change, after) in [
            (0o6755, &root, uid, 0o755),
            (0o6755, &root, gid, 0o755),
            (0o6755, &outside, gid, 0o755),
            (0o6755, &inside, gid, 0o755),
            (0o6745, &root, uid, 0o2745),
            (0o6745, &root, gid, 0o2745),
            (0o6745, &outside, gid, 0o745),
            (0o6745, &inside, gid, 0o2745),
            (0o6700, &root, gid, 0o2700),
            (0o6700, &outside, uid, 0o700),
            (0o6700, &inside, uid, 0o2700),
            (0o1755, &root, uid, 0o1755),
        ] {
            let file = Subject::new(FileType::Regular, before, 7, 9);
            assert_eq!(file.set_attr(caller, change), "ok");
            assert_eq!(file.permissions(), after, "{before:o} {caller:?} {change:?}");
            let directory = Subject::new(FileType::Directory, before, 7, 9);
            assert_eq!(directory.set_attr(caller, change), "ok");
            assert_eq!(directory.permissions(), before, "{caller:?} {change:?}");
        }
        let file = Subject::new(FileType::Regular, 0o755, 7, 9);
        let both = AttrChange { permissions: Some(0o6755), ..uid };
        assert_eq!(file.set_attr(&root, both), "ok");
        assert_eq!(file.permissions(), 0o6755, "what is asked for stays");
    }

    #[test]
    fn owners_change_as_linux_permits() {
        let (root, owner, other) = (Credentials::root(), user(7, &[77]), user(3, &[9]));
        for (caller, change, expected) in [
            (&owner, chown(Some(7), None), "ok"),
            (&owner, chown(None, Some(9)), "ok"),
            (&owner, chown(None, Some(8)), "ok"),
            (&owner, chown(None, Some(77)), "ok"),
            (&owner, chown(Some(7), Some(78)), "NotPermitted"),
            (&owner, chown(Some(8), None), "NotPermitted"),
            (&other, chown(Some(7), None), "NotPermitted"),
            (&other, chown(Some(3), None), "NotPermitted"),
            (&other, chown(None, Some(9)), "NotPermitted"),
            (&root, chown(Some(3), Some(4)), "ok"),
            (&root, chown(Some(u32::MAX), None), "InvalidArgument"),
            (&root, chown(None, Some(u32::MAX)), "InvalidArgument"),
        ] {
            let file = Subject::new(FileType::Regular, 0o644, 7, 9);
            assert_eq!(file.set_attr(caller, change), expected, "{caller:?} {change:?}");
            assert_eq!(file.take_calls().is_empty(), expected != "ok");
        }
    }

    #[test]
    fn capabilities_fall_with_the_owner_and_before() {
        let with = |kind| Subject::new(kind, 0o755, 7, 9).with_xattr(CAPABILITY_XATTR, &CAPABILITIES);
        let file = with(FileType::Regular);
        assert_eq!(file.set_attr(&Credentials::root(), chmod(0o700)), "ok");
        assert!(file.stored(CAPABILITY_XATTR).is_some());
        assert_eq!(file.set_attr(&user(3, &[]), chown(Some(3), None)), "NotPermitted");
        assert!(file.stored(CAPABILITY_XATTR).is_some());
        file.take_calls();
        assert_eq!(file.set_attr(&Credentials::root(), chown(Some(7), None)), "ok");
        let removal =
            Call::Xattr { name: CAPABILITY_XATTR.to_vec(), value: None, attributes: AttrChange::default() };
        assert_eq!(file.take_calls(), [removal, Call::Attr(chown(Some(7), None))]);
        let directory = with(FileType::Directory);
        assert_eq!(directory.set_attr(&Credentials::root(), chown(Some(7), None)), "ok");
        assert!(directory.stored(CAPABILITY_XATTR).is_some());
    }

    #[test]
    fn permissions_change_as_linux_permits() {
        let (root, outside, inside, other) =
            (Credentials::root(), user(7, &[]), user(7, &[9]), user(3, &[9]));
        for (caller, change, expected, after) in [
            (&outside, chmod(0o2755), "ok", 0o755),
            (&inside, chmod(0o2755), "ok", 0o2755),
            (&root, chmod(0o2755), "ok", 0o2755),
            (&outside, chmod(0o5700), "ok", 0o5700),
            (&outside, AttrChange { gid: Some(8), ..chmod(0o2755) }, "ok", 0o2755),
            (&inside, AttrChange { gid: Some(9), ..chmod(0o2755) }, "ok", 0o2755),
            (&root, chmod(0o10_777), "ok", 0o777),
            (&other, chmod(0o777), "NotPermitted", 0o644),
        ] {
            for kind in [FileType::Regular, FileType::Directory] {
                let subject = Subject::new(kind, 0o644, 7, 9);
                assert_eq!(subject.set_attr(caller, change), expected, "{caller:?} {change:?}");
                assert_eq!(subject.permissions(), after, "{caller:?} {change:?}");
            }
        }
        let link = Subject::new(FileType::Symlink, 0o777, 7, 9);
        assert_eq!(link.set_attr(&root, chmod(0o700)), "Unsupported");
        assert_eq!(link.set_attr(&root, chown(Some(3), Some(4))), "ok");
        assert_eq!(link.set_attr(&root, times(None, Some(SOME_TIME))), "ok");
    }

    #[test]
    fn times_change_as_linux_permits() {
        let (now, set) = (Some(NewTime::Now), Some(SOME_TIME));
        let (owner, other) = (user(7, &[]), user(3, &[]));
        for (accessed, modified, writer, reader) in [
            (now, now, "ok", "PermissionDenied"),
            (now, None, "NotPermitted", "NotPermitted"),
            (None, now, "NotPermitted", "NotPermitted"),
            (now, set, "NotPermitted", "NotPermitted"),
            (set, now, "NotPermitted", "NotPermitted"),
            (set, set, "NotPermitted", "NotPermitted"),
            (None, None, "ok", "ok"),
        ] {
            let change = times(accessed, modified);
            let with = |permissions| Subject::new(FileType::Regular, permissions, 7, 9);
            assert_eq!(with(0o666).set_attr(&other, change), writer, "{change:?}");
            assert_eq!(with(0o644).set_attr(&other, change), reader, "{change:?}");
            assert_eq!(with(0o444).set_attr(&owner, change), "ok", "{change:?}");
        }
        let file = Subject::new(FileType::Regular, 0o666, 7, 9);
        let changed = Some(Timestamp::default());
        let inode_time = AttrChange { changed, ..times(now, now) };
        assert_eq!(file.set_attr(&other, inode_time), "NotPermitted");
        let too_fine = Timestamp { seconds: 0, nanoseconds: 1_000_000_000 };
        for change in [
            times(Some(NewTime::At(too_fine)), None),
            times(None, Some(NewTime::At(too_fine))),
            AttrChange { changed: Some(too_fine), ..AttrChange::default() },
        ] {
            assert_eq!(file.set_attr(&owner, change), "InvalidArgument", "{change:?}");
        }
    }

    #[test]
    fn what_is_frozen_takes_only_flags_and_touches() {
        let now = Some(NewTime::Now);
        let (immutable, append) = (InodeFlags::IMMUTABLE, InodeFlags::APPEND);
        let root = Credentials::root();
        for (change, of_immutable, of_append) in [
            (chmod(0o600), "NotPermitted", "NotPermitted"),
            (chown(Some(7), None), "NotPermitted", "NotPermitted"),
            (chown(None, Some(9)), "NotPermitted", "NotPermitted"),
            (times(Some(SOME_TIME), None), "NotPermitted", "NotPermitted"),
            (times(now, None), "NotPermitted", "NotPermitted"),
            (times(now, now), "NotPermitted", "ok"),
            (AttrChange::default(), "NotPermitted", "ok"),
            (set_flags(InodeFlags::NODUMP), "ok", "ok"),
            (
                AttrChange { permissions: Some(0o600), ..set_flags(InodeFlags::NODUMP) },
                "NotPermitted",
                "NotPermitted",
            ),
        ] {
            for (flag, expected) in [(immutable, of_immutable), (append, of_append)] {
                let file = Subject::new(FileType::Regular, 0o644, 7, 9).flagged(flag);
                assert_eq!(file.set_attr(&root, change), expected, "{flag:?} {change:?}");
            }
        }
    }

    #[test]
    fn flags_change_as_linux_permits() {
        let (root, owner, other) = (Credentials::root(), user(7, &[]), user(3, &[]));
        let (nodump, immutable, append) = (InodeFlags::NODUMP, InodeFlags::IMMUTABLE, InodeFlags::APPEND);
        let none = InodeFlags::empty();
        for (before, after, of_owner) in [
            (none, nodump, "ok"),
            (nodump, none, "ok"),
            (none, immutable, "NotPermitted"),
            (none, append | nodump, "NotPermitted"),
            (immutable, none, "NotPermitted"),
            (append, append | nodump, "ok"),
        ] {
            let file = || Subject::new(FileType::Regular, 0o666, 7, 9).flagged(before);
            assert_eq!(file().set_attr(&root, set_flags(after)), "ok");
            assert_eq!(file().set_attr(&owner, set_flags(after)), of_owner, "{before:?} {after:?}");
            assert_eq!(file().set_attr(&other, set_flags(after)), "NotPermitted");
        }
        let project = |number| AttrChange { project: Some(number), ..AttrChange::default() };
        let file = Subject::new(FileType::Regular, 0o666, 7, 9);
        assert_eq!(file.set_attr(&owner, project(5)), "ok");
        assert_eq!(file.set_attr(&other, project(5)), "NotPermitted");
        assert_eq!(file.set_attr(&root, project(u32::MAX)), "InvalidArgument");
    }

    #[test]
    fn a_change_of_a_read_only_filesystem_does_not_reach_it() {
        let file = Subject::read_only();
        let caller = user(3, &[]);
        for change in
            [AttrChange::default(), chmod(0o600), chown(Some(3), None), set_flags(InodeFlags::NODUMP)]
        {
            assert_eq!(file.set_attr(&caller, change), "ReadOnly", "{change:?}");
        }
        assert_eq!(file.take_calls(), []);
    }

    #[test]
    fn a_list_follows_the_permission_bits_in_one_step() {
        use AclEntry::{Mask, Other, Owner, OwningGroup, User};
        const LIST: &[u8] = b"system.posix_acl_access";
        let before = acl_bytes(&[Owner(6), User(5, 7), OwningGroup(4), Mask(7), Other(0)]);
        let file = Subject::new(FileType::Regular, 0o670, 7, 9).with_xattr(LIST, &before);
        let named = user(5, &[]);
        assert!(check_access(&named, &file.node, Access::WRITE).is_ok());
        assert_eq!(file.set_attr(&user(7, &[]), chmod(0o2642)), "ok");
        let after = acl_bytes(&[Owner(6), User(5, 7), OwningGroup(4), Mask(4), Other(2)]);
        let one_step = Call::Xattr { name: LIST.to_vec(), value: Some(after), attributes: chmod(0o642) };
        assert_eq!(file.take_calls(), [one_step]);
        assert!(check_access(&named, &file.node, Access::WRITE).is_err());
        assert!(check_access(&named, &file.node, Access::READ).is_ok());

        // Without a mask the owning group's entry stands for the group bits, and the list says nothing of its own.
        let plain = acl_bytes(&[Owner(6), OwningGroup(4), Other(0)]);
        let file = Subject::new(FileType::Regular, 0o640, 7, 9).with_xattr(LIST, &plain);
        assert_eq!(file.set_attr(&user(7, &[]), chmod(0o604)), "ok");
        assert_eq!((file.permissions(), file.stored(LIST)), (0o604, None));

        let broken = Subject::new(FileType::Regular, 0o640, 7, 9).with_xattr(LIST, b"no list");
        assert_eq!(broken.set_attr(&user(7, &[]), chmod(0o600)), "Corrupt");
        assert_eq!(broken.take_calls(), []);
    }
}
