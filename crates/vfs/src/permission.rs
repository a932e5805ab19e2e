//! Whether a user may: POSIX permission bits, access control lists, the sticky bit, and whom a new file
//! belongs to.
//!
//! Called by path walking for every directory it passes, and by whoever serves users itself. The rules and
//! their order are Linux's, so that an image answers here as it does mounted.

use crate::{Attr, Credentials, Error, FileType, Node, Result};

bitflags::bitflags! {
    /// What is wanted of a file, with the values of `access(2)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access: u8 {
        /// Run a file; pass through a directory.
        const EXECUTE = 1;
        /// Change content; add and remove names.
        const WRITE = 2;
        /// Read content; list names.
        const READ = 4;
    }
}

/// Refuses unless `who` may do all of `want` with the file.
///
/// # Errors
/// [`PermissionDenied`](Error::PermissionDenied); the filesystem's own when the access control list cannot be
/// read.
pub fn check_access(who: &Credentials, node: &Node, want: Access) -> Result<()> {
    let attr = node.attr();
    if may_override(who, &attr, want) || is_granted(who, node, &attr, want)? {
        return Ok(());
    }
    Err(Error::PermissionDenied)
}

/// Refuses unless `who` may remove or replace the name of `victim` in `dir`: writing and passing through the
/// directory, and in a sticky one owning either of the two.
///
/// # Errors
/// [`PermissionDenied`](Error::PermissionDenied), or [`NotPermitted`](Error::NotPermitted) because of the
/// sticky bit, as Linux has it.
pub fn check_delete(who: &Credentials, dir: &Node, victim: &Attr) -> Result<()> {
    check_access(who, dir, Access::WRITE | Access::EXECUTE)?;
    let dir = dir.attr();
    if dir.permissions & STICKY != 0 && !who.override_dac && who.uid != victim.uid && who.uid != dir.uid {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// Whom a file that `who` creates in `dir` belongs to, and its permission bits: in a set-group-ID directory
/// the group comes from the directory, and directories hand the bit on.
#[must_use]
pub fn new_file_owner(who: &Credentials, dir: &Attr, kind: FileType, permissions: u16) -> NewFile {
    let mut new = NewFile { uid: who.uid, gid: who.gid, permissions };
    if dir.permissions & SET_GROUP_ID != 0 {
        new.gid = dir.gid;
        if kind == FileType::Directory {
            new.permissions |= SET_GROUP_ID;
        } else if permissions & (SET_GROUP_ID | GROUP_EXECUTE) == SET_GROUP_ID | GROUP_EXECUTE
            && !who.in_group(dir.gid)
            && !who.override_dac
        {
            // Otherwise a directory of somebody else's group would lend that group's rights to programs.
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

const SET_GROUP_ID: u16 = 0o2000;
const STICKY: u16 = 0o1000;
const GROUP_EXECUTE: u16 = 0o010;
const ANY_EXECUTE: u16 = 0o111;

/// Whether the superuser's privilege suffices. It does not make a file a program.
fn may_override(who: &Credentials, attr: &Attr, want: Access) -> bool {
    who.override_dac
        && (attr.kind == FileType::Directory
            || !want.contains(Access::EXECUTE)
            || attr.permissions & ANY_EXECUTE != 0)
}

fn is_granted(who: &Credentials, node: &Node, attr: &Attr, want: Access) -> Result<bool> {
    if who.uid == attr.uid {
        return Ok(grants(attr.permissions >> 6, want));
    }
    // The group bits of a file with a list are the list's mask. Linux leaves the list unread when they are all
    // clear and goes on to the bits for others, even for a user whom the list names.
    if attr.permissions & 0o070 != 0
        && let Some(acl) = node.acl_cell().get(node.inode())?
    {
        return Ok(acl.grants(who, attr, want));
    }
    let class = if who.in_group(attr.gid) { attr.permissions >> 3 } else { attr.permissions };
    Ok(grants(class, want))
}

/// Whether three permission bits contain all of `want`.
pub(crate) fn grants(bits: u16, want: Access) -> bool {
    Access::from_bits_truncate((bits & 0o7) as u8).contains(want)
}
