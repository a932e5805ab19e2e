//! Full names of attributes, and the name spaces that they are stored in.

use super::entry::Space;

/// The prefixes that stand for name spaces.
const PREFIXES: [(&[u8], Space); 3] =
    [(b"user.", Space::User), (b"trusted.", Space::Root), (b"security.", Space::Secure)];

/// Access control lists: the full names, and those under which they are stored in the name space of the superuser. They
/// can be asked for under both.
const LISTS: [(&[u8], &[u8]); 2] =
    [(b"system.posix_acl_access", b"SGI_ACL_FILE"), (b"system.posix_acl_default", b"SGI_ACL_DEFAULT")];

/// Under which name an attribute is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored<'a> {
    pub(super) space: Space,
    pub(super) name: &'a [u8],
    /// The value is an access control list, to be shown in Linux's form.
    pub(super) is_acl: bool,
}

/// How an attribute with this full name is stored. `None` for a name that no attribute can have.
pub(super) fn split(full: &[u8]) -> Option<Stored<'_>> {
    if let Some((_, name)) = LISTS.iter().find(|(list, _)| *list == full) {
        return Some(Stored { space: Space::Root, name, is_acl: true });
    }
    PREFIXES.iter().find_map(|&(prefix, space)| {
        let name = full.strip_prefix(prefix)?;
        (!name.is_empty()).then_some(Stored { space, name, is_acl: false })
    })
}

/// The full names under which Linux lists what is stored so: a list of access control under two, a parent pointer under
/// none.
pub(super) fn join(space: Space, name: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let list = LISTS.iter().find(|(_, stored)| space == Space::Root && *stored == name);
    let prefix = PREFIXES.iter().find(|(_, of)| *of == space);
    let list = list.map(|(full, _)| full.to_vec());
    list.into_iter().chain(prefix.map(|(prefix, _)| [prefix, name].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(space: Space, name: &[u8]) -> Vec<String> {
        join(space, name).map(|name| String::from_utf8(name).unwrap()).collect()
    }

    #[test]
    fn names_fall_apart_and_come_together() {
        let stored = |space, name, is_acl| Some(Stored { space, name, is_acl });
        assert_eq!(split(b"user.note"), stored(Space::User, &b"note"[..], false));
        assert_eq!(split(b"trusted.SGI_ACL_FILE"), stored(Space::Root, &b"SGI_ACL_FILE"[..], false));
        assert_eq!(split(b"system.posix_acl_default"), stored(Space::Root, &b"SGI_ACL_DEFAULT"[..], true));
        assert_eq!(split(b"security.selinux"), stored(Space::Secure, &b"selinux"[..], false));
        for full in [&b"user."[..], b"user", b"system.posix_acl", b"", b"other.x"] {
            assert_eq!(split(full), None);
        }
        assert_eq!(joined(Space::User, b"SGI_ACL_FILE"), ["user.SGI_ACL_FILE"]);
        assert_eq!(joined(Space::Secure, b"x"), ["security.x"]);
        assert_eq!(joined(Space::Root, b"SGI_ACL_FILE"), ["system.posix_acl_access", "trusted.SGI_ACL_FILE"]);
        assert_eq!(joined(Space::Parent, b"x"), [""; 0]);
    }
}
