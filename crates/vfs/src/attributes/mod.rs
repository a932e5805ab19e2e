//! Changing attributes and extended attributes, access control lists among them: the same for every filesystem.
//!
//! Called by node. Judges whether the user may, settles what else falls or follows (set-user-ID and set-group-ID
//! bits, file capabilities, permission bits and lists, which speak of each other), and hands the filesystem one
//! change that is complete. Changes of attributes are in `change.rs`, the namespaces of extended attributes in
//! `xattr.rs`, lists in `acl_change.rs`. The rules, and the order of refusals, are Linux's.
//!
//! A change holds the inode's state lock alone from the first look at the attributes to the end, so what was
//! judged is what is changed, and a `chmod` never meets a new list half-way. What a node remembers of its lists
//! is forgotten before the lock goes (see [`AclCell`](crate::acl::AclCell)). Under it are taken the lock of such a
//! memory, and the filesystem's own.
//!
//! Whoever may override permissions stands here for all of Linux's privileges (`CAP_CHOWN`, `CAP_FOWNER`,
//! `CAP_FSETID`, `CAP_LINUX_IMMUTABLE`, `CAP_SETFCAP`, `CAP_SYS_ADMIN`). Sizes are not changed here.

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

/// Whether `who` is the owner or need not be.
fn acts_as_owner(who: &Credentials, attr: &Attr) -> bool {
    who.uid == attr.uid || who.override_dac
}

/// Refuses whom [`acts_as_owner`] does not let through.
fn check_owner(who: &Credentials, attr: &Attr) -> Result<()> {
    if acts_as_owner(who, attr) { Ok(()) } else { Err(Error::NotPermitted) }
}

/// Whether `who` may leave a file of the group `gid` with its set-group-ID bit.
fn keeps_set_group_id(who: &Credentials, gid: u32) -> bool {
    who.in_group(gid) || who.override_dac
}

/// Refuses to change what is immutable or can only be appended to.
fn check_not_frozen(attr: &Attr) -> Result<()> {
    let frozen = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
    if attr.flags.intersects(frozen) { Err(Error::NotPermitted) } else { Ok(()) }
}
