//! What a new file has from its directory's default list.

use crate::acl::{Acl, DEFAULT_XATTR};
use crate::{FileType, Node, Result};

/// What a new file has from its directory's default list.
pub(crate) struct Inherited {
    /// The permission bits that are left.
    pub(crate) permissions: u16,
    /// The file's own list, where permission bits do not say the same.
    pub(crate) access: Option<Vec<u8>>,
    /// The default list of a new directory.
    pub(crate) default: Option<Vec<u8>>,
}

/// Decides the permissions of a new file in `dir`. The mask counts only where there is no default list.
pub(crate) fn inherit(dir: &Node, kind: FileType, permissions: u16, umask: u16) -> Result<Inherited> {
    let plain = |permissions| Inherited { permissions, access: None, default: None };
    if kind == FileType::Symlink {
        return Ok(plain(0o777));
    }
    let Some(default) =
        dir.directory()?.default_acl_cell().get(dir.ino(), || dir.inode().xattr(DEFAULT_XATTR))?
    else {
        return Ok(plain(permissions & !(umask & 0o777)));
    };
    let mut access = Acl::clone(&default);
    access.restrict(permissions);
    Ok(Inherited {
        permissions: permissions & !0o777 | access.permission_bits(),
        access: (!access.is_plain()).then(|| access.to_bytes()),
        default: (kind == FileType::Directory).then(|| default.to_bytes()),
    })
}
