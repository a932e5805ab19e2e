//! Extended attributes: the right to read and to change each namespace.
//!
//! | namespace | reading | changing |
//! | --- | --- | --- |
//! | `user.` | users that may read; only regular files and directories have any | users that may write; in a sticky directory its owner |
//! | `trusted.` | the privileged; for others there are none | the privileged |
//! | `security.` | all users | the privileged |
//! | `system.posix_acl_` | all users | the owner (see `acl_change.rs`) |
//!
//! There are no other namespaces. What is read is as the filesystem stores it; Linux itself shows a
//! `security.capability` of version 3 for the first user namespace as one of version 2.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::acl_change::{self, ListKind};
use super::{check_not_frozen, check_owner};
use crate::acl::Acl;
use crate::permission::{STICKY, check_access_of};
use crate::{Access, Attr, AttrChange, Credentials, Error, FileType, Node, Result, Vfs, XattrMode};

/// Where a program's capabilities are kept.
pub(super) const CAPABILITY_XATTR: &[u8] = b"security.capability";

/// Longest name in bytes, with its namespace, as Linux has it.
const NAME_MAX_BYTES: usize = 255;

/// Longest value in bytes, as Linux has it.
const VALUE_MAX_BYTES: usize = 65536;

impl Vfs {
    /// Sets an extended attribute by its full name. A new access control list takes the permission bits along; an
    /// empty one removes the list, and for lists the `mode` means nothing.
    ///
    /// # Errors
    /// [`NotPermitted`](Error::NotPermitted), [`PermissionDenied`](Error::PermissionDenied) for a caller without the
    /// right, for immutable and append-only files, and for `user.` attributes of special files;
    /// [`Exists`](Error::Exists) and [`NoAttribute`](Error::NoAttribute) by `mode`;
    /// [`ValueTooLarge`](Error::ValueTooLarge); [`InvalidArgument`](Error::InvalidArgument) for an empty name and for a
    /// value that is no list or no capabilities; [`NameTooLong`](Error::NameTooLong);
    /// [`Unsupported`](Error::Unsupported) for another namespace and for a list of a symbolic link;
    /// [`ReadOnly`](Error::ReadOnly); the filesystem's own, [`NoSpace`](Error::NoSpace) first.
    pub fn set_xattr(
        &self,
        caller: &Credentials,
        node: &Arc<Node>,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        check_name(name)?;
        if value.len() > VALUE_MAX_BYTES {
            return Err(Error::ValueTooLarge);
        }
        self.check_writable()?;
        if let Some(kind) = ListKind::of(name) {
            return acl_change::set_list(caller, node, kind, Acl::from_user(value)?.as_ref());
        }
        if name == CAPABILITY_XATTR {
            check_capabilities(value)?;
        }
        change(caller, node, name, Some(value), mode)
    }

    /// Removes an extended attribute by its full name. Permission bits stay as they are when a list goes.
    ///
    /// # Errors
    /// [`NoAttribute`](Error::NoAttribute), except for lists; otherwise as for [`set_xattr`](Self::set_xattr).
    pub fn remove_xattr(&self, caller: &Credentials, node: &Arc<Node>, name: &[u8]) -> Result<()> {
        check_name(name)?;
        self.check_writable()?;
        match ListKind::of(name) {
            Some(kind) => acl_change::set_list(caller, node, kind, None),
            None => change(caller, node, name, None, XattrMode::Replace),
        }
    }

    /// The value of an extended attribute by its full name, as this user sees it; `None` when there is none.
    /// [`Node::xattr`] checks no permission.
    ///
    /// # Errors
    /// [`PermissionDenied`](Error::PermissionDenied) for a `user.` attribute without being allowed to read;
    /// [`InvalidArgument`](Error::InvalidArgument), [`NameTooLong`](Error::NameTooLong),
    /// [`Unsupported`](Error::Unsupported) for a name that cannot be; the filesystem's own.
    pub fn xattr(&self, caller: &Credentials, node: &Node, name: &[u8]) -> Result<Option<Vec<u8>>> {
        check_name(name)?;
        if ListKind::of(name).is_some() {
            if node.kind() == FileType::Symlink {
                return Err(acl_change::no_list_of_symlink());
            }
            return node.xattr(name);
        }
        let namespace = Namespace::of(name);
        match namespace {
            Some(Namespace::Trusted) if !caller.override_dac => return Ok(None),
            Some(Namespace::User) if !has_user_attributes(node.kind()) => return Ok(None),
            Some(Namespace::User) | None => check_access_of(caller, node, &node.ownership(), Access::READ)?,
            Some(Namespace::Trusted | Namespace::Security | Namespace::System) => {}
        }
        check_kept(namespace, name)?;
        node.xattr(name)
    }

    /// The full names of all extended attributes that this user sees: without privilege none that begin with
    /// `trusted.`.
    ///
    /// # Errors
    /// The filesystem's own.
    pub fn list_xattrs(&self, caller: &Credentials, node: &Node) -> Result<Vec<Vec<u8>>> {
        let mut names = node.list_xattrs()?;
        names.retain(|name| caller.override_dac || Namespace::of(name) != Some(Namespace::Trusted));
        Ok(names)
    }
}

/// What stands before a name's first dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespace {
    User,
    Trusted,
    Security,
    System,
}

impl Namespace {
    const ALL: [(Self, &'static [u8]); 4] = [
        (Self::User, b"user."),
        (Self::Trusted, b"trusted."),
        (Self::Security, b"security."),
        (Self::System, b"system."),
    ];

    fn of(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, prefix)| name.starts_with(prefix)).map(|(namespace, _)| namespace)
    }
}

/// Refuses unless `caller` may change attributes of this namespace.
fn check_may_change(
    caller: &Credentials,
    node: &Node,
    attr: &Attr,
    namespace: Option<Namespace>,
) -> Result<()> {
    match namespace {
        Some(Namespace::System) => Ok(()),
        Some(Namespace::Trusted | Namespace::Security) if caller.override_dac => Ok(()),
        Some(Namespace::Trusted | Namespace::Security) => Err(Error::NotPermitted),
        Some(Namespace::User) => {
            // The permission bits of special files are about devices and pipes, not about space on the disk.
            if !has_user_attributes(attr.kind) {
                return Err(Error::NotPermitted);
            }
            if attr.kind == FileType::Directory && attr.permissions & STICKY != 0 {
                check_owner(caller, attr)?;
            }
            check_access_of(caller, node, &attr.ownership(), Access::WRITE)
        }
        None => check_access_of(caller, node, &attr.ownership(), Access::WRITE),
    }
}

fn has_user_attributes(kind: FileType) -> bool {
    matches!(kind, FileType::Regular | FileType::Directory)
}

/// Takes a file's capabilities away, if it has any, and returns whether it had. That it has none is remembered. The
/// caller holds the inode's state exclusively.
pub(crate) fn drop_capabilities(node: &Node) -> Result<bool> {
    if node.no_capabilities().load(Ordering::Relaxed) {
        return Ok(false);
    }
    let has_some = node.xattr(CAPABILITY_XATTR)?.is_some();
    if has_some {
        node.inode().set_xattr(CAPABILITY_XATTR, None, XattrMode::Set, &AttrChange::default())?;
    }
    node.no_capabilities().store(true, Ordering::Relaxed);
    Ok(has_some)
}

/// Sets or removes what is no list.
fn change(
    caller: &Credentials,
    node: &Node,
    name: &[u8],
    value: Option<&[u8]>,
    mode: XattrMode,
) -> Result<()> {
    let _state = node.state().write();
    let attr = node.attr();
    check_not_frozen(&attr)?;
    let namespace = Namespace::of(name);
    check_may_change(caller, node, &attr, namespace)?;
    check_kept(namespace, name)?;
    if name == CAPABILITY_XATTR {
        // Before the change: afterwards no thread may take capabilities for absent.
        node.no_capabilities().store(false, Ordering::Relaxed);
    }
    node.inode().set_xattr(name, value, mode, &AttrChange::default())
}

fn check_name(name: &[u8]) -> Result<()> {
    match name {
        [] => Err(Error::InvalidArgument("an attribute's name cannot be empty")),
        name if name.len() > NAME_MAX_BYTES => Err(Error::NameTooLong),
        name if name.contains(&0) => {
            Err(Error::InvalidArgument("an attribute's name cannot hold a NUL byte"))
        }
        _ => Ok(()),
    }
}

/// Refuses a namespace that does not exist, and a name with nothing after it.
fn check_kept(namespace: Option<Namespace>, name: &[u8]) -> Result<()> {
    if matches!(namespace, None | Some(Namespace::System)) {
        return Err(Error::Unsupported("this namespace of attributes".into()));
    }
    if name.iter().position(|&byte| byte == b'.') == Some(name.len() - 1) {
        return Err(Error::InvalidArgument("an attribute's name cannot be its namespace alone"));
    }
    Ok(())
}

/// Refuses capabilities that Linux would not run a program with.
fn check_capabilities(value: &[u8]) -> Result<()> {
    let revision = value.first_chunk().map(|magic| u32::from_le_bytes(*magic) & 0xff00_0000);
    match (revision, value.len()) {
        // Empty, it takes the place of what was there.
        (None, 0) | (Some(0x0200_0000), 20) | (Some(0x0300_0000), 24) => Ok(()),
        _ => Err(Error::InvalidArgument("capabilities have version 2 or 3 and its length")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::recorder::{Subject, outcome};
    use super::*;
    use crate::InodeFlags;

    const LIST: &[u8] = b"system.posix_acl_access";

    /// Sets, reads and removes an attribute, each of an inode that is as at first.
    fn try_all(caller: &Credentials, make: impl Fn() -> Subject, name: &[u8]) -> [String; 3] {
        let read = make();
        let value = read.vfs.xattr(caller, &read.node, name);
        let value = match value {
            Ok(None) => "none".into(),
            value => outcome(value),
        };
        [make().set_xattr(caller, name, b"x"), value, make().remove_xattr(caller, name)]
    }

    #[test]
    fn each_namespace_has_its_permissions() {
        let (root, stranger) = (Credentials::root(), Credentials::user(3, 4, vec![]));
        let names: [&[u8]; 4] = [b"user.a", b"trusted.a", b"security.a", b"foo.a"];
        let make = |kind, permissions| {
            move || {
                names.iter().fold(Subject::new(kind, permissions, 0, 0), |subject, name| {
                    subject.with_xattr(name, b"value")
                })
            }
        };
        const OK: &str = "ok";
        const EPERM: &str = "NotPermitted";
        const EACCES: &str = "PermissionDenied";
        const UNSUPPORTED: &str = "Unsupported";
        const INVALID: &str = "InvalidArgument";
        // As Linux's tmpfs and ext4 answered.
        for (caller, kind, permissions, name, expected) in [
            (&root, FileType::Regular, 0o600, "user.a", [OK, OK, OK]),
            (&root, FileType::Regular, 0o600, "trusted.a", [OK, OK, OK]),
            (&root, FileType::Regular, 0o600, "security.a", [OK, OK, OK]),
            (&root, FileType::Regular, 0o600, "user.", [INVALID, INVALID, INVALID]),
            (&root, FileType::Regular, 0o600, "trusted.", [INVALID, INVALID, INVALID]),
            (&root, FileType::Regular, 0o600, "security.", [INVALID, INVALID, INVALID]),
            (&root, FileType::Regular, 0o600, "user", [UNSUPPORTED, UNSUPPORTED, UNSUPPORTED]),
            (&root, FileType::Regular, 0o600, "system.a", [UNSUPPORTED, UNSUPPORTED, UNSUPPORTED]),
            (&root, FileType::Regular, 0o600, "foo.a", [UNSUPPORTED, UNSUPPORTED, UNSUPPORTED]),
            (&stranger, FileType::Regular, 0o600, "user.a", [EACCES, EACCES, EACCES]),
            (&stranger, FileType::Regular, 0o604, "user.a", [EACCES, OK, EACCES]),
            (&stranger, FileType::Regular, 0o606, "user.a", [OK, OK, OK]),
            (&stranger, FileType::Regular, 0o666, "trusted.a", [EPERM, "none", EPERM]),
            (&stranger, FileType::Regular, 0o600, "trusted.", [EPERM, "none", EPERM]),
            (&stranger, FileType::Regular, 0o600, "security.a", [EPERM, OK, EPERM]),
            (&stranger, FileType::Regular, 0o600, "security.", [EPERM, INVALID, EPERM]),
            (&stranger, FileType::Regular, 0o600, "foo.a", [EACCES, EACCES, EACCES]),
            (&stranger, FileType::Regular, 0o666, "foo.a", [UNSUPPORTED, UNSUPPORTED, UNSUPPORTED]),
            (&stranger, FileType::Regular, 0o600, "system.a", [UNSUPPORTED, UNSUPPORTED, UNSUPPORTED]),
            (&stranger, FileType::Directory, 0o777, "user.a", [OK, OK, OK]),
            (&stranger, FileType::Directory, 0o1777, "user.a", [EPERM, OK, EPERM]),
            (&root, FileType::Directory, 0o1777, "user.a", [OK, OK, OK]),
            (&root, FileType::Fifo, 0o666, "user.a", [EPERM, "none", EPERM]),
            (&root, FileType::Symlink, 0o777, "user.a", [EPERM, "none", EPERM]),
            (&root, FileType::Symlink, 0o777, "trusted.a", [OK, OK, OK]),
            (&root, FileType::Symlink, 0o777, "security.a", [OK, OK, OK]),
        ] {
            let found = try_all(caller, make(kind, permissions), name.as_bytes());
            assert_eq!(found, expected, "{name} of a {kind:?} with {permissions:o} by {}", caller.uid);
        }
        let owner = Credentials::user(0, 4, vec![]);
        assert_eq!(try_all(&owner, make(FileType::Directory, 0o1777), b"user.a"), [OK, OK, OK]);
        assert_eq!(try_all(&owner, make(FileType::Regular, 0o066), b"user.a"), [EACCES, EACCES, EACCES]);
    }

    #[test]
    fn what_is_frozen_or_read_only_takes_no_attributes() {
        let root = Credentials::root();
        for name in [&b"user.a"[..], b"trusted.a", b"security.a", b"system.a", b"foo"] {
            for flag in [InodeFlags::IMMUTABLE, InodeFlags::APPEND] {
                let file = Subject::new(FileType::Regular, 0o666, 7, 9).flagged(flag);
                assert_eq!(file.set_xattr(&root, name, b""), "NotPermitted");
                assert_eq!(file.remove_xattr(&root, name), "NotPermitted");
            }
            assert_eq!(Subject::read_only().set_xattr(&root, name, b""), "ReadOnly");
            assert_eq!(Subject::read_only().remove_xattr(&root, name), "ReadOnly");
        }
    }

    #[test]
    fn names_and_values_have_bounds() {
        let root = Credentials::root();
        let file = Subject::new(FileType::Regular, 0o666, 7, 9);
        let long = |len: usize| [b"user.".to_vec(), vec![b'a'; len - 5]].concat();
        for (name, len, expected) in [
            (long(255), 1, "ok"),
            (long(255), 0, "ok"),
            (long(6), 65536, "ok"),
            (long(6), 65537, "ValueTooLarge"),
            (LIST.to_vec(), 65537, "ValueTooLarge"),
            (long(256), 1, "NameTooLong"),
            (b"user.a\0b".to_vec(), 1, "InvalidArgument"),
            (Vec::new(), 1, "InvalidArgument"),
        ] {
            assert_eq!(file.set_xattr(&root, &name, &vec![0; len]), expected, "{} {len}", name.len());
            if expected != "ok" && expected != "ValueTooLarge" {
                assert_eq!(file.remove_xattr(&root, &name), expected);
                assert_eq!(outcome(file.vfs.xattr(&root, &file.node, &name)), expected);
            }
        }
    }

    #[test]
    fn the_filesystem_checks_the_mode() {
        let root = Credentials::root();
        let file = Subject::new(FileType::Regular, 0o666, 7, 9);
        let set = |mode| outcome(file.vfs.set_xattr(&root, &file.node, b"user.a", b"1", mode));
        assert_eq!(set(XattrMode::Replace), "NoAttribute");
        assert_eq!(file.remove_xattr(&root, b"user.a"), "NoAttribute");
        assert_eq!(set(XattrMode::Create), "ok");
        assert_eq!(set(XattrMode::Create), "Exists");
        assert_eq!(set(XattrMode::Replace), "ok");
        assert_eq!(file.remove_xattr(&root, b"user.a"), "ok");
    }

    #[test]
    fn capabilities_are_validated_before_the_user_is_checked() {
        let version_2 = [&[1, 0, 0, 2][..], &[0; 16]].concat();
        let version_3 = [&[1, 0, 0, 3][..], &[0; 20]].concat();
        let file = Subject::new(FileType::Regular, 0o666, 7, 9);
        let owner = Credentials::user(7, 9, vec![]);
        for (value, good) in [
            (b"x".to_vec(), false),
            (version_2.clone(), true),
            (version_3.clone(), true),
            (version_2[..12].to_vec(), false),
            (version_3[..20].to_vec(), false),
            ([&version_2[..], b"x"].concat(), false),
            (vec![], true),
        ] {
            let [of_root, of_owner] = if good { ["ok", "NotPermitted"] } else { ["InvalidArgument"; 2] };
            assert_eq!(file.set_xattr(&owner, CAPABILITY_XATTR, &value), of_owner, "{value:?}");
            assert_eq!(file.set_xattr(&Credentials::root(), CAPABILITY_XATTR, &value), of_root, "{value:?}");
        }
        assert_eq!(file.remove_xattr(&owner, CAPABILITY_XATTR), "NotPermitted");
        assert_eq!(file.remove_xattr(&Credentials::root(), CAPABILITY_XATTR), "ok");
    }

    #[test]
    fn what_a_user_sees() {
        let file = [&b"security.a"[..], LIST, b"trusted.a", b"user.a"]
            .into_iter()
            .fold(Subject::new(FileType::Regular, 0o000, 7, 9), |file, name| file.with_xattr(name, b"value"));
        let names = |caller| file.vfs.list_xattrs(caller, &file.node).unwrap();
        let (root, stranger) = (Credentials::root(), Credentials::user(3, 4, vec![]));
        assert_eq!(names(&root), [&b"security.a"[..], LIST, b"trusted.a", b"user.a"]);
        assert_eq!(names(&stranger), [&b"security.a"[..], LIST, b"user.a"]);
        let value = |name| file.vfs.xattr(&stranger, &file.node, name);
        assert_eq!(value(LIST).unwrap().as_deref(), Some(&b"value"[..]));
        assert_eq!(value(b"system.posix_acl_default").unwrap(), None);
        let link = Subject::new(FileType::Symlink, 0o777, 7, 9);
        assert_eq!(outcome(link.vfs.xattr(&root, &link.node, LIST)), "Unsupported");
    }
}
