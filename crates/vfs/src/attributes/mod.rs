//! Changing attributes and extended attributes, access control lists among them: the same for every filesystem.
//!
//! Called by node. Checks whether the user may, decides what else is cleared or follows (set-user-ID and set-group-ID
//! bits, file capabilities, and permission bits and lists, which must agree), and passes one complete change to the
//! filesystem. Changes of attributes are in `change.rs`, the namespaces of extended attributes in `xattr.rs`, lists in
//! `acl_change.rs`. The rules, and the order of refusals, are Linux's.
//!
//! A change holds the inode's state lock exclusively from the first look at the attributes to the end, so nothing
//! changes between the check and the change, and a `chmod` never sees a half-made change of a list. The node's cached
//! lists are cleared before the lock is released (see [`AclCell`](crate::acl::AclCell)). The lock of such a cache and
//! the filesystem's own locks are taken under it.
//!
//! Credentials that override permissions have all of Linux's privileges here (`CAP_CHOWN`, `CAP_FOWNER`, `CAP_FSETID`,
//! `CAP_LINUX_IMMUTABLE`, `CAP_SETFCAP`, `CAP_SYS_ADMIN`). Sizes are not changed here.

mod access;
mod acl_change;
mod change;
#[cfg(all(test, shuttle))]
mod model_tests;
#[cfg(test)]
mod recorder;
mod xattr;

pub(crate) use xattr::drop_capabilities;

use crate::{Attr, Credentials, Error, InodeFlags, Result};

/// Whether `caller` is the owner or need not be.
fn acts_as_owner(caller: &Credentials, attr: &Attr) -> bool {
    caller.uid == attr.uid || caller.override_dac
}

/// Refuses callers that [`acts_as_owner`] does not let through.
fn check_owner(caller: &Credentials, attr: &Attr) -> Result<()> {
    if acts_as_owner(caller, attr) { Ok(()) } else { Err(Error::NotPermitted) }
}

/// Whether `caller` may leave a file of the group `gid` with its set-group-ID bit.
fn keeps_set_group_id(caller: &Credentials, gid: u32) -> bool {
    caller.in_group(gid) || caller.override_dac
}

/// Refuses to change what is immutable or can only be appended to.
fn check_not_frozen(attr: &Attr) -> Result<()> {
    let frozen = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
    if attr.flags.intersects(frozen) { Err(Error::NotPermitted) } else { Ok(()) }
}
