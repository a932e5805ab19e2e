//! Access control lists: from the text that archives have to the bytes that Linux has.
//!
//! The text is that of `acl_from_text(3)`: entries `user:NAME:rwx` separated by commas or newlines. star puts the number of
//! a user or group behind the permissions.

use super::names::{Numbers, Whose};
use crate::SourceErrorKind;

/// Linux's tags, with the one of a named entry where there is one.
const OWNER: u16 = 1;
const USER: u16 = 2;
const OWNING_GROUP: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;

const VERSION: u32 = 2;

/// The bytes of `system.posix_acl_access` or `_default`; `None` for an empty list.
pub(super) fn from_text(
    text: &[u8],
    numbers: &mut Numbers<'_>,
) -> Result<Option<Box<[u8]>>, SourceErrorKind> {
    let text = std::str::from_utf8(text).map_err(|_| malformed("its bytes are no text"))?;
    let mut entries = Vec::new();
    for entry in text.split([',', '\n']) {
        let entry = entry.split_once('#').map_or(entry, |(entry, _)| entry).trim();
        if !entry.is_empty() {
            entries.push(entry_of(entry, numbers)?);
        }
    }
    if entries.is_empty() {
        return Ok(None);
    }
    entries.sort_unstable();
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (tag, id, permissions) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    Ok(Some(bytes.into()))
}

/// Tag, number and permissions of an entry.
fn entry_of(entry: &str, numbers: &mut Numbers<'_>) -> Result<(u16, u32, u16), SourceErrorKind> {
    let mut parts = entry.split(':').map(str::trim);
    let mut next = || parts.next().unwrap_or_default();
    let (kind, name, permissions, number) = (next(), next(), next(), next());
    let (kind, name, permissions) = match (kind, name, permissions) {
        // Written short: `other:r--`.
        ("m" | "mask" | "o" | "other", permissions, "") => (kind, "", permissions),
        parts => parts,
    };
    let (tag, whose) = match (kind, name.is_empty()) {
        ("u" | "user", true) => (OWNER, None),
        ("u" | "user", false) => (USER, Some(Whose::User)),
        ("g" | "group", true) => (OWNING_GROUP, None),
        ("g" | "group", false) => (GROUP, Some(Whose::Group)),
        ("m" | "mask", true) => (MASK, None),
        ("o" | "other", true) => (OTHER, None),
        _ => return Err(malformed(&format!("{entry:?} is no entry"))),
    };
    let id = match whose {
        None => u32::MAX,
        Some(whose) => [number, name]
            .into_iter()
            .find_map(|number| number.parse().ok())
            .or_else(|| numbers.of(whose, name.as_bytes()))
            .or_else(|| (name == "root").then_some(0))
            .ok_or_else(|| {
                let what = format!(
                    "its access control list names {name:?}, whose number the archive does not say: GNU tar stores \
                     names in lists, unless it is called without --acls and with --xattrs-include='system.*'"
                );
                SourceErrorKind::Unsupported(what)
            })?,
    };
    let mut bits = 0;
    for letter in permissions.bytes() {
        bits |= match letter {
            b'r' => 4,
            b'w' => 2,
            b'x' => 1,
            b'-' => 0,
            _ => return Err(malformed(&format!("{entry:?} is no entry"))),
        };
    }
    Ok((tag, id, bits))
}

fn malformed(what: &str) -> SourceErrorKind {
    SourceErrorKind::Malformed(format!("its access control list is damaged: {what}"))
}

#[cfg(test)]
mod tests {
    use super::super::OpenArchive;
    use super::super::names::Names;
    use super::*;

    #[test]
    fn lists_are_those_of_linux() {
        let mut names = Names::default();
        names.users.insert(b"lisa"[..].into(), 502);
        let open: OpenArchive = Box::new(|| Err(std::io::ErrorKind::Unsupported.into()));
        let mut numbers = Numbers { names: &mut names, open: &open };
        let mut list = |text: &str| from_text(text.as_bytes(), &mut numbers);
        let expected: Vec<u8> = [
            [2, 0, 0, 0].as_slice(),
            &[1, 0, 7, 0, 255, 255, 255, 255],
            &[2, 0, 5, 0, 246, 1, 0, 0],
            &[4, 0, 4, 0, 255, 255, 255, 255],
            &[16, 0, 5, 0, 255, 255, 255, 255],
            &[32, 0, 0, 0, 255, 255, 255, 255],
        ]
        .concat();
        for text in [
            "user::rwx,user:lisa:r-x,group::r--,mask::r-x,other::---",
            "user::rwx\nuser:502:r-x\t#effective:r-x\ngroup::r--\nmask::r-x\nother::---\n",
            "u::rwx,g::r,other:---,mask:r-x,u:unknown:rx:502",
        ] {
            assert_eq!(list(text).unwrap().as_deref(), Some(&expected[..]), "{text}");
        }
        assert_eq!(list("").unwrap(), None);
        for wrong in ["user:other:r--", "everyone::r--", "user::rwz", "mask:502:r--"] {
            assert!(list(wrong).is_err(), "{wrong}");
        }
    }
}
