//! Access control lists and permission bits, each following the other.
//!
//! The bits of a file with a list show the list's owner, mask and others. So a `chmod` writes these entries, a new
//! list writes the bits, and both reach the filesystem as one change. A list that says no more than permission bits
//! can is kept as permission bits only.

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

/// Gives a file the decided change of its attributes, `permissions` among them, and its list these permissions.
pub(super) fn change_permissions(node: &Node, permissions: u16, decided: &AttrChange) -> Result<()> {
    match node.acl_cell().get(node.ino(), || node.inode().xattr(ACCESS_XATTR))? {
        None => node.inode().set_attr(decided),
        Some(acl) => {
            let mut acl = Acl::clone(&acl);
            acl.set_permissions(permissions);
            put_list(node, ListKind::Access, Some(&acl), decided)
        }
    }
}

/// Sets a list as a user asks for it, or removes it. `Create` and `Replace` mean nothing for lists, and a list
/// that was never there can be removed.
pub(super) fn set_list(caller: &Credentials, node: &Node, kind: ListKind, list: Option<&Acl>) -> Result<()> {
    let _state = node.state().write();
    let attr = node.attr();
    check_not_frozen(&attr)?;
    if attr.kind == FileType::Symlink {
        return Err(no_list_of_symlink());
    }
    if kind == ListKind::Default && attr.kind != FileType::Directory {
        return if list.is_some() { Err(Error::PermissionDenied) } else { Ok(()) };
    }
    check_owner(caller, &attr)?;
    let permissions = match (list, kind) {
        (Some(acl), ListKind::Access) => Some(permissions_with(caller, &attr, acl)),
        _ => None,
    };
    put_list(node, kind, list, &AttrChange { permissions, ..AttrChange::default() })
}

/// Why a symbolic link has no list: its permissions mean nothing.
pub(super) fn no_list_of_symlink() -> Error {
    Error::Unsupported("an access control list of a symbolic link".into())
}

/// The permission bits of a file that `caller` gives this list.
fn permissions_with(caller: &Credentials, attr: &Attr, acl: &Acl) -> u16 {
    let mut special = attr.permissions & !0o777;
    if !keeps_set_group_id(caller, attr.gid) {
        special &= !SET_GROUP_ID;
    }
    special | acl.permission_bits()
}

/// Stores a list, or that there is none, in one step with `decided`.
fn put_list(node: &Node, kind: ListKind, list: Option<&Acl>, decided: &AttrChange) -> Result<()> {
    let cell = kind.cell(node)?;
    let bytes = list.filter(|list| kind == ListKind::Default || !list.is_plain()).map(Acl::to_bytes);
    let put = node.inode().set_xattr(kind.xattr_name(), bytes.as_deref(), XattrMode::Set, decided);
    // After a failure too: it is unknown what the filesystem will answer then.
    cell.forget();
    match put {
        Err(Error::NoAttribute) if bytes.is_none() => match decided.permissions {
            Some(_) => node.inode().set_attr(decided),
            None => Ok(()),
        },
        put => put,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use undercroft_sync::thread;

    use super::super::recorder::{Call, Subject, outcome};
    use super::*;
    use crate::conformance::AclEntry::{Mask, Other, Owner, OwningGroup, User};
    use crate::conformance::acl_bytes;
    use crate::namespace::inherit;
    use crate::permission::check_access;
    use crate::{Access, InodeFlags};

    fn owner(groups: &[u32]) -> Credentials {
        Credentials::user(7, 8, groups.to_vec())
    }

    /// A list that names user 5.
    fn naming(permissions: u16) -> Vec<u8> {
        acl_bytes(&[Owner(6), User(5, permissions), OwningGroup(4), Mask(7), Other(0)])
    }

    fn file() -> Subject {
        Subject::new(FileType::Regular, 0o640, 7, 9)
    }

    fn may_write(subject: &Subject) -> bool {
        check_access(&Credentials::user(5, 5, vec![]), &subject.node, Access::WRITE).is_ok()
    }

    #[test]
    fn permission_bits_follow_a_list_in_one_step() {
        let file = file();
        assert_eq!(file.set_xattr(&owner(&[]), ACCESS_XATTR, &naming(6)), "ok");
        let bits = AttrChange { permissions: Some(0o670), ..AttrChange::default() };
        let one_step = Call::Xattr { name: ACCESS_XATTR.to_vec(), value: Some(naming(6)), attributes: bits };
        assert_eq!(file.take_calls(), [one_step]);
        assert_eq!(file.permissions(), 0o670);
    }

    #[test]
    fn a_plain_list_becomes_permission_bits() {
        let plain = acl_bytes(&[Owner(7), OwningGroup(1), Other(4)]);
        for before in [None, Some(naming(6))] {
            let mut file = file();
            if let Some(list) = before {
                file = file.with_xattr(ACCESS_XATTR, &list);
            }
            assert_eq!(file.set_xattr(&owner(&[]), ACCESS_XATTR, &plain), "ok");
            assert_eq!((file.permissions(), file.stored(ACCESS_XATTR)), (0o714, None));
            assert_eq!(file.take_calls().len(), 1);
        }
        let directory = Subject::new(FileType::Directory, 0o640, 7, 9);
        assert_eq!(directory.set_xattr(&owner(&[]), DEFAULT_XATTR, &plain), "ok");
        assert_eq!((directory.permissions(), directory.stored(DEFAULT_XATTR)), (0o640, Some(plain)));
    }

    #[test]
    fn a_list_goes_and_permission_bits_stay() {
        type Removal = fn(&Subject, &[u8]) -> String;
        let removals: [Removal; 3] = [
            |subject, name| subject.remove_xattr(&owner(&[]), name),
            |subject, name| subject.set_xattr(&owner(&[]), name, b""),
            |subject, name| subject.set_xattr(&owner(&[]), name, &acl_bytes(&[])),
        ];
        for remove in removals {
            for name in [ACCESS_XATTR, DEFAULT_XATTR] {
                let directory = Subject::new(FileType::Directory, 0o2670, 7, 9).with_xattr(name, &naming(6));
                assert_eq!(remove(&directory, name), "ok");
                assert_eq!((directory.permissions(), directory.stored(name)), (0o2670, None));
                directory.take_calls();
                assert_eq!(remove(&directory, name), "ok", "that there was none does not matter");
                assert_eq!(directory.take_calls(), []);
            }
        }
    }

    #[test]
    fn set_group_id_is_cleared_for_callers_outside_of_the_group() {
        let root = Credentials::root();
        for (caller, name, after) in [
            (&owner(&[]), ACCESS_XATTR, 0o670),
            (&owner(&[9]), ACCESS_XATTR, 0o2670),
            (&root, ACCESS_XATTR, 0o2670),
            (&owner(&[]), DEFAULT_XATTR, 0o2755),
        ] {
            let directory = Subject::new(FileType::Directory, 0o2755, 7, 9);
            assert_eq!(directory.set_xattr(caller, name, &naming(6)), "ok");
            assert_eq!(directory.permissions(), after, "{caller:?}");
        }
    }

    #[test]
    fn a_list_is_its_owners_to_change() {
        let (root, stranger) = (Credentials::root(), Credentials::user(3, 9, vec![]));
        let (access, default) = (ACCESS_XATTR, DEFAULT_XATTR);
        for (kind, caller, name, set, remove) in [
            (FileType::Regular, &owner(&[]), access, "ok", "ok"),
            (FileType::Fifo, &root, access, "ok", "ok"),
            (FileType::Regular, &stranger, access, "NotPermitted", "NotPermitted"),
            (FileType::Regular, &root, default, "PermissionDenied", "ok"),
            (FileType::Regular, &stranger, default, "PermissionDenied", "ok"),
            (FileType::Directory, &stranger, default, "NotPermitted", "NotPermitted"),
            (FileType::Symlink, &root, access, "Unsupported", "Unsupported"),
            (FileType::Symlink, &root, default, "Unsupported", "Unsupported"),
        ] {
            let subject = Subject::new(kind, 0o666, 7, 9);
            assert_eq!(subject.set_xattr(caller, name, &naming(6)), set, "{kind:?} {caller:?}");
            assert_eq!(subject.remove_xattr(caller, name), remove, "{kind:?} {caller:?}");
        }
        for flag in [InodeFlags::IMMUTABLE, InodeFlags::APPEND] {
            let file = file().flagged(flag);
            assert_eq!(file.set_xattr(&root, access, &naming(6)), "NotPermitted");
            assert_eq!(file.remove_xattr(&root, access), "NotPermitted");
        }
        let file = Subject::read_only();
        assert_eq!(file.set_xattr(&root, access, &naming(6)), "ReadOnly");
        assert_eq!(file.remove_xattr(&root, access), "ReadOnly");
    }

    #[test]
    fn bytes_that_are_no_list_are_an_invalid_argument() {
        let good = naming(6);
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        for (bytes, expected) in [
            (good.clone(), "ok"),
            (acl_bytes(&[Owner(6), User(9, 7), User(5, 7), OwningGroup(4), Mask(7), Other(0)]), "ok"),
            (with(0, 1), "Unsupported"),
            (vec![2, 0, 0], "InvalidArgument"),
            (good[..good.len() - 1].to_vec(), "InvalidArgument"),
            (with(4, 0x40), "InvalidArgument"),
            (with(6, 8), "InvalidArgument"),
            (acl_bytes(&[OwningGroup(4), Owner(6), Other(0)]), "InvalidArgument"),
            (acl_bytes(&[Owner(6), User(5, 7), OwningGroup(4), Other(0)]), "InvalidArgument"),
            (acl_bytes(&[Owner(6), User(u32::MAX, 7), OwningGroup(4), Mask(7), Other(0)]), "InvalidArgument"),
        ] {
            let file = file();
            assert_eq!(file.set_xattr(&owner(&[]), ACCESS_XATTR, &bytes), expected, "{bytes:?}");
            assert_eq!(file.take_calls().is_empty(), expected != "ok", "{bytes:?}");
        }
    }

    #[test]
    fn a_list_takes_no_notice_of_create_and_replace() {
        let file = file();
        for mode in [XattrMode::Replace, XattrMode::Create, XattrMode::Create] {
            let set = file.vfs.set_xattr(&owner(&[]), &file.node, ACCESS_XATTR, &naming(6), mode);
            assert_eq!(outcome(set), "ok");
        }
    }

    #[test]
    fn what_was_remembered_is_forgotten() {
        let file = file();
        assert!(!may_write(&file));
        for (list, expected) in [(naming(6), true), (naming(4), false), (naming(7), true)] {
            assert_eq!(file.set_xattr(&owner(&[]), ACCESS_XATTR, &list), "ok");
            assert_eq!(may_write(&file), expected);
        }
        assert_eq!(file.remove_xattr(&owner(&[]), ACCESS_XATTR), "ok");
        assert!(!may_write(&file));
    }

    #[test]
    fn a_default_list_governs_the_next_file() {
        let directory = Subject::new(FileType::Directory, 0o755, 7, 9);
        let permissions = || inherit(&directory.node, FileType::Regular, 0o666, 0o077).unwrap().permissions;
        assert_eq!(permissions(), 0o600);
        assert_eq!(directory.set_xattr(&owner(&[]), DEFAULT_XATTR, &naming(6)), "ok");
        assert_eq!(permissions(), 0o660);
        assert_eq!(directory.remove_xattr(&owner(&[]), DEFAULT_XATTR), "ok");
        assert_eq!(permissions(), 0o600);
    }

    #[test]
    fn after_a_failure_the_list_is_read_again() {
        let file = file();
        assert!(!may_write(&file));
        file.inode.set_failing();
        assert_eq!(file.set_xattr(&owner(&[]), ACCESS_XATTR, &naming(6)), "NoSpace");
        assert!(may_write(&file), "the filesystem made the change before it failed");
    }

    #[test]
    fn an_old_answer_is_not_left_behind_by_a_slow_reader() {
        let lists = [None, Some(naming(4)), Some(naming(6))];
        for before in &lists {
            for after in &lists {
                let mut file = Subject::new(FileType::Regular, 0o670, 7, 9);
                if let Some(list) = before {
                    file = file.with_xattr(ACCESS_XATTR, list);
                }
                let (vfs, node) = (Arc::clone(&file.vfs), Arc::clone(&file.node));
                let list = after.clone().unwrap_or_default();
                file.inode.while_reading(move || {
                    let set = vfs.set_xattr(&owner(&[]), &node, ACCESS_XATTR, &list, XattrMode::Set);
                    assert_eq!(outcome(set), "ok");
                });
                // It has read the list before the change and gets to remember it after.
                may_write(&file);
                assert_eq!(file.stored(ACCESS_XATTR), *after, "the change came in between");
                let known = file
                    .node
                    .acl_cell()
                    .get(file.node.ino(), || file.node.inode().xattr(ACCESS_XATTR))
                    .unwrap();
                assert_eq!(known.map(|acl| acl.to_bytes()), *after);
            }
        }
    }

    #[test]
    fn readers_see_each_change_when_it_is_over() {
        let file = Arc::new(Subject::new(FileType::Regular, 0o670, 7, 9));
        let over = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let (file, over) = (Arc::clone(&file), Arc::clone(&over));
                thread::spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        may_write(&file);
                    }
                })
            })
            .collect();
        for round in 0..3000 {
            let list = [naming(6), naming(4), vec![]][round % 3].clone();
            assert_eq!(file.set_xattr(&owner(&[]), ACCESS_XATTR, &list), "ok");
            let known =
                file.node.acl_cell().get(file.node.ino(), || file.node.inode().xattr(ACCESS_XATTR)).unwrap();
            assert_eq!(known.map(|acl| acl.to_bytes()).unwrap_or_default(), list, "round {round}");
        }
        over.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
    }
}
