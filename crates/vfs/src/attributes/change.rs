//! Changing what `stat` shows: `chmod`, `chown`, `utimensat`, and the flags and project that `chattr` sets.
//!
//! Two things follow a change without being asked for. A new owner takes programs' privileges away, since they
//! were not given to him: set-user-ID, set-group-ID and file capabilities fall, for the superuser too. New
//! permission bits go into the access control list as well.

use std::sync::Arc;

use super::xattr::CAPABILITY_XATTR;
use super::{acl_change, check_not_frozen, check_owner, check_takes_changes, keeps_set_group_id};
use crate::permission::{GROUP_EXECUTE, SET_GROUP_ID, SET_USER_ID, check_access_of};
use crate::{
    Access, Attr, AttrChange, Credentials, Error, FileType, InodeFlags, NewTime, Node, Result, Vfs, XattrMode,
};

/// Linux's value for "no user", "no group" and "no project".
const NO_ID: u32 = u32::MAX;

impl Vfs {
    /// Changes attributes, all at once. Permission bits keep an access control list in step; a new owner or group
    /// takes set-user-ID, set-group-ID and file capabilities from anything but a directory, unless `permissions`
    /// says what is to stay. Set-group-ID falls for who is not in the group.
    ///
    /// # Errors
    /// [`NotPermitted`](Error::NotPermitted) for who is not the owner, for another's group, for the flags
    /// `IMMUTABLE` and `APPEND` without privilege, and for what is immutable or append-only (which still takes
    /// flags, and if it is append-only both times as [`Now`](NewTime::Now));
    /// [`PermissionDenied`](Error::PermissionDenied) for these times from who may not write either;
    /// [`Unsupported`](Error::Unsupported) for permissions of a symbolic link, which has none;
    /// [`InvalidArgument`](Error::InvalidArgument) for times and numbers that cannot be;
    /// [`ReadOnly`](Error::ReadOnly); the filesystem's own. Nothing has changed then, except that capabilities
    /// may have fallen.
    pub fn set_attr(&self, who: &Credentials, node: &Arc<Node>, change: &AttrChange) -> Result<()> {
        check_values(change)?;
        check_takes_changes(self)?;
        let _state = node.state().write();
        let attr = node.attr();
        check_change(who, node, &attr, change)?;
        let settled = AttrChange { permissions: settle_permissions(who, &attr, change), ..*change };
        if loses_privileges(&attr, change) && node.xattr(CAPABILITY_XATTR)?.is_some() {
            // First, so that a crash leaves a program with too little rather than another's with too much.
            node.inode().set_xattr(CAPABILITY_XATTR, None, XattrMode::Set, &AttrChange::default())?;
        }
        match settled.permissions {
            Some(permissions) => acl_change::change_permissions(node, permissions, &settled),
            None => node.inode().set_attr(&settled),
        }
    }
}

/// Refuses what could not be right for any file.
fn check_values(change: &AttrChange) -> Result<()> {
    let too_fine = |time| time > 999_999_999;
    let given = |time| match time {
        Some(NewTime::At(time)) => Some(time),
        Some(NewTime::Now) | None => None,
    };
    let times = [given(change.accessed), given(change.modified), change.changed];
    if times.iter().flatten().any(|time| too_fine(time.nanoseconds)) {
        return Err(Error::InvalidArgument("a time has a second or more of nanoseconds"));
    }
    if [change.uid, change.gid, change.project].contains(&Some(NO_ID)) {
        return Err(Error::InvalidArgument("the number 4294967295 stands for no user, group or project"));
    }
    Ok(())
}

/// Refuses unless `who` may change all of it.
fn check_change(who: &Credentials, node: &Node, attr: &Attr, change: &AttrChange) -> Result<()> {
    let AttrChange { permissions, uid, gid, accessed, modified, changed, flags, project } = *change;
    // Only both times together count as a touch, for which it is enough to be allowed to write.
    let touches = (accessed, modified, changed) == (Some(NewTime::Now), Some(NewTime::Now), None);
    let sets_times = !touches && (accessed.is_some() || modified.is_some() || changed.is_some());

    if permissions.is_some() || uid.is_some() || gid.is_some() || sets_times {
        check_not_frozen(attr)?;
    }
    if touches {
        if attr.flags.contains(InodeFlags::IMMUTABLE) {
            return Err(Error::NotPermitted);
        }
        if check_owner(who, attr).is_err() {
            check_access_of(who, node, attr, Access::WRITE)?;
        }
    }
    if permissions.is_some() && attr.kind == FileType::Symlink {
        return Err(Error::Unsupported("permissions of a symbolic link".into()));
    }
    if uid.is_some_and(|uid| uid != attr.uid) && !who.override_dac {
        return Err(Error::NotPermitted);
    }
    if gid.is_some_and(|gid| gid != attr.gid && !who.in_group(gid)) && !who.override_dac {
        return Err(Error::NotPermitted);
    }
    let owners_only = permissions.is_some()
        || uid.is_some()
        || gid.is_some()
        || sets_times
        || flags.is_some()
        || project.is_some();
    if owners_only {
        check_owner(who, attr)?;
    }
    let guarded = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
    if flags.is_some_and(|flags| (flags ^ attr.flags).intersects(guarded)) && !who.override_dac {
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
fn settle_permissions(who: &Credentials, attr: &Attr, change: &AttrChange) -> Option<u16> {
    let mut permissions = match change.permissions {
        Some(permissions) => permissions & 0o7777,
        None if loses_privileges(attr, change) => {
            let mut left = attr.permissions & !SET_USER_ID;
            // Without group execute the bit is no privilege; it once asked for mandatory locks.
            if attr.permissions & GROUP_EXECUTE != 0 || !keeps_set_group_id(who, attr.gid) {
                left &= !SET_GROUP_ID;
            }
            if left == attr.permissions {
                return None;
            }
            left
        }
        None => return None,
    };
    if !keeps_set_group_id(who, change.gid.unwrap_or(attr.gid)) {
        permissions &= !SET_GROUP_ID;
    }
    Some(permissions)
}
