//! Access control lists and permission bits, each following the other.
//!
//! The bits of a file with a list show the list's owner, mask and others. So a `chmod` writes these entries, a new
//! list writes the bits, and both reach the filesystem as one change. A list that says no more than permission
//! bits can is kept as permission bits alone.

use super::{check_not_frozen, check_owner, keeps_set_group_id};
use crate::acl::{ACCESS_XATTR, Acl, AclCell, DEFAULT_XATTR};
use crate::permission::SET_GROUP_ID;
use crate::{Attr, AttrChange, Credentials, Error, FileType, Node, Result, XattrMode};

/// Which of the two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListKind {
    /// The one that governs access.
    Access,
    /// The one that new files of a directory inherit.
    Default,
}

impl ListKind {
    /// The list that an extended attribute holds.
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        match name {
            ACCESS_XATTR => Some(Self::Access),
            DEFAULT_XATTR => Some(Self::Default),
            _ => None,
        }
    }

    fn xattr_name(self) -> &'static [u8] {
        match self {
            Self::Access => ACCESS_XATTR,
            Self::Default => DEFAULT_XATTR,
        }
    }

    fn cell(self, node: &Node) -> Result<&AclCell> {
        Ok(match self {
            Self::Access => node.acl_cell(),
            Self::Default => node.directory()?.default_acl_cell(),
        })
    }
}

/// Gives a file the settled change of its attributes, `permissions` among them, and its list these permissions.
pub(super) fn change_permissions(node: &Node, permissions: u16, settled: &AttrChange) -> Result<()> {
    match node.acl_cell().get(node.inode(), ACCESS_XATTR)? {
        None => node.inode().set_attr(settled),
        Some(acl) => {
            let mut acl = Acl::clone(&acl);
            acl.set_permissions(permissions);
            put_list(node, ListKind::Access, Some(&acl), settled)
        }
    }
}

/// Sets a list as a user asks for it, or removes it. `Create` and `Replace` mean nothing for lists, and a list
/// that was never there can be removed.
pub(super) fn set_list(who: &Credentials, node: &Node, kind: ListKind, list: Option<Acl>) -> Result<()> {
    let _state = node.state().write();
    let attr = node.attr();
    check_not_frozen(&attr)?;
    if attr.kind == FileType::Symlink {
        return Err(no_list_of_symlink());
    }
    if kind == ListKind::Default && attr.kind != FileType::Directory {
        return if list.is_some() { Err(Error::PermissionDenied) } else { Ok(()) };
    }
    check_owner(who, &attr)?;
    let permissions = match (&list, kind) {
        (Some(acl), ListKind::Access) => Some(permissions_with(who, &attr, acl)),
        _ => None,
    };
    put_list(node, kind, list.as_ref(), &AttrChange { permissions, ..AttrChange::default() })
}

/// Why a symbolic link has no list: its permissions mean nothing.
pub(super) fn no_list_of_symlink() -> Error {
    Error::Unsupported("an access control list of a symbolic link".into())
}

/// The permission bits of a file that `who` gives this list.
fn permissions_with(who: &Credentials, attr: &Attr, acl: &Acl) -> u16 {
    let mut special = attr.permissions & !0o777;
    if !keeps_set_group_id(who, attr.gid) {
        special &= !SET_GROUP_ID;
    }
    special | acl.permission_bits()
}

/// Stores a list, or that there is none, in one step with `settled`.
fn put_list(node: &Node, kind: ListKind, list: Option<&Acl>, settled: &AttrChange) -> Result<()> {
    let cell = kind.cell(node)?;
    let bytes = list.filter(|list| kind == ListKind::Default || !list.is_plain()).map(Acl::to_bytes);
    let put = node.inode().set_xattr(kind.xattr_name(), bytes.as_deref(), XattrMode::Set, settled);
    // After a failure too: nobody knows what the filesystem will answer then.
    cell.forget();
    match put {
        Err(Error::NoAttribute) if bytes.is_none() => match settled.permissions {
            Some(_) => node.inode().set_attr(settled),
            None => Ok(()),
        },
        put => put,
    }
}
