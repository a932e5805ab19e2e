//! Full names of attributes, and what the first byte of a stored name stands for.
//!
//! Source: kernel documentation, section "Extended Attributes" (the table of name indices), and which of them
//! `listxattr` shows to the superuser.

/// Inline data; never shown.
pub(crate) const INDEX_SYSTEM: u8 = 7;

/// A beginning that is stored as a number.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) index: u8,
    pub(super) text: &'static [u8],
    /// Whether nothing may follow.
    is_whole: bool,
    /// Whether Linux lists such names.
    pub(super) is_listed: bool,
    /// Whether Linux takes such names.
    is_settable: bool,
}

pub(super) const INDEX_ACL_ACCESS: u8 = 2;
pub(super) const INDEX_ACL_DEFAULT: u8 = 3;

/// Indices without a line here (Lustre's, inline data, the encryption context) have no name outside.
const PREFIXES: &[Prefix] = &[
    Prefix { index: 1, text: b"user.", is_whole: false, is_listed: true, is_settable: true },
    Prefix {
        index: INDEX_ACL_ACCESS,
        text: b"system.posix_acl_access",
        is_whole: true,
        is_listed: true,
        is_settable: true,
    },
    Prefix {
        index: INDEX_ACL_DEFAULT,
        text: b"system.posix_acl_default",
        is_whole: true,
        is_listed: true,
        is_settable: true,
    },
    Prefix { index: 4, text: b"trusted.", is_whole: false, is_listed: true, is_settable: true },
    Prefix { index: 6, text: b"security.", is_whole: false, is_listed: true, is_settable: true },
    // Linux as released has no such attributes, so it does not list them.
    Prefix { index: 8, text: b"system.richacl", is_whole: true, is_listed: false, is_settable: false },
    Prefix { index: 10, text: b"gnu.", is_whole: false, is_listed: true, is_settable: false },
];

/// How a full name is stored: an index and the rest. `None` for a name that no attribute can have.
pub(super) fn split(full: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|prefix| {
        let rest = full.strip_prefix(prefix.text)?;
        (rest.is_empty() == prefix.is_whole).then_some((prefix.index, rest))
    })
}

/// How a full name that attributes are set by is stored. `None` for a name that Linux does not take.
pub(super) fn split_settable(full: &[u8]) -> Option<(u8, &[u8])> {
    let (index, rest) = split(full)?;
    PREFIXES.iter().any(|prefix| prefix.index == index && prefix.is_settable).then_some((index, rest))
}

/// The full name of what is stored so, if Linux lists it.
pub(super) fn join_listed(index: u8, rest: &[u8]) -> Option<Vec<u8>> {
    let prefix = PREFIXES.iter().find(|prefix| prefix.index == index && prefix.is_listed)?;
    (rest.is_empty() == prefix.is_whole).then(|| [prefix.text, rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fall_apart_and_come_together() {
        for full in
            [&b"user.note"[..], b"trusted.t", b"security.selinux", b"system.posix_acl_access", b"gnu.x"]
        {
            let (index, rest) = split(full).unwrap();
            assert_eq!(join_listed(index, rest).unwrap(), full);
        }
        assert_eq!(split(b"user.note"), Some((1, &b"note"[..])));
    }

    #[test]
    fn hidden_and_impossible_names() {
        for full in [&b"system.data"[..], b"user.", b"user", b"system.posix_acl_accessory", b"", b"other.x"] {
            assert_eq!(split(full), None, "{full:?}");
        }
        assert_eq!(join_listed(INDEX_SYSTEM, b"data"), None);
        assert_eq!(join_listed(9, b"c"), None);
        assert_eq!(join_listed(2, b"rest"), None);
        assert_eq!(split(b"system.richacl"), Some((8, &b""[..])));
        for full in [&b"system.richacl"[..], b"gnu.x", b"system.data", b"other.x"] {
            assert_eq!(split_settable(full), None, "{full:?}");
        }
        assert_eq!(split_settable(b"security.x"), Some((6, &b"x"[..])));
    }
}
