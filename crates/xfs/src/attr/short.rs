//! Attributes in their inode.

use super::entry::{Attribute, Flags, Value, check_name};
use crate::error::Verdict;

const HEADER_BYTES: usize = 4;

/// Validated attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShortAttributes<'a> {
    entries: &'a [u8],
    count: u8,
}

impl<'a> ShortAttributes<'a> {
    /// Validates the bytes of the inode's attribute fork. The attributes' header says how many of them they take.
    pub(super) fn validate(bytes: &'a [u8]) -> Verdict<Self> {
        let [high, low, count, _, ..] = *bytes else { return Err("too short for its header".into()) };
        let total = usize::from(u16::from_be_bytes([high, low]));
        let Some(entries) = bytes.get(HEADER_BYTES..total) else {
            return Err(format!("says that it takes {total} bytes of {}", bytes.len()).into());
        };
        let mut rest = entries;
        for number in 0..count {
            let Some((flags, entry, after)) = split_first(rest) else {
                return Err(format!("has {count} attributes, and ends within attribute {number}").into());
            };
            let flags = Flags::of(flags).map_err(|detail| format!("attribute {number}: {detail}"))?;
            check_name(entry.name).map_err(|detail| format!("attribute {number}: {detail}"))?;
            if flags.incomplete {
                return Err(format!("attribute {number} is incomplete").into());
            }
            rest = after;
        }
        if !rest.is_empty() {
            return Err(format!("{} bytes follow its {count} attributes", rest.len()).into());
        }
        Ok(Self { entries, count })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Attribute<'a>> + use<'a> {
        let mut rest = self.entries;
        (0..self.count).map_while(move |_| {
            let (flags, entry, after) = split_first(rest)?;
            rest = after;
            let space = Flags::of(flags).ok()?.space;
            Some(Attribute { space, name: entry.name, value: Value::Here(entry.value), incomplete: false })
        })
    }
}

struct RawEntry<'a> {
    name: &'a [u8],
    value: &'a [u8],
}

fn split_first(bytes: &[u8]) -> Option<(u8, RawEntry<'_>, &[u8])> {
    let (&[name_bytes, value_bytes, flags], rest) = bytes.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(usize::from(name_bytes))?;
    let (value, rest) = rest.split_at_checked(usize::from(value_bytes))?;
    Some((flags, RawEntry { name, value }, rest))
}

#[cfg(test)]
mod tests {
    use super::super::entry::Space;
    use super::*;

    fn fork(count: u8, entries: &[(&[u8], &[u8], u8)]) -> Vec<u8> {
        let mut bytes = vec![0, 0, count, 0];
        for (name, value, flags) in entries {
            bytes.extend([name.len() as u8, value.len() as u8, *flags]);
            bytes.extend([*name, *value].concat());
        }
        let total = bytes.len() as u16;
        bytes[..2].copy_from_slice(&total.to_be_bytes());
        bytes
    }

    #[test]
    fn all_are_found() {
        let mut bytes = fork(2, &[(b"note", b"text", 0), (b"SGI_ACL_FILE", b"", 2)]);
        // What lies after them in the fork is not theirs.
        bytes.extend([0xff; 9]);
        let attributes: Vec<_> = ShortAttributes::validate(&bytes).unwrap().iter().collect();
        let here =
            |space, name, value| Attribute { space, name, value: Value::Here(value), incomplete: false };
        assert_eq!(
            attributes,
            [here(Space::User, &b"note"[..], &b"text"[..]), here(Space::Root, b"SGI_ACL_FILE", b"")]
        );
    }

    #[test]
    fn damage_is_named() {
        let failure = |bytes: &[u8]| ShortAttributes::validate(bytes).unwrap_err().into_owned();
        assert!(failure(&[0, 4, 0]).contains("too short"));
        assert!(failure(&[0, 3, 0, 0]).contains("takes 3 bytes"));
        assert!(failure(&[0, 5, 0, 0]).contains("takes 5 bytes of 4"));
        assert!(failure(&fork(2, &[(b"a", b"", 0)])).contains("ends within attribute 1"));
        assert!(failure(&fork(0, &[(b"a", b"", 0)])).contains("4 bytes follow"));
        assert!(failure(&fork(1, &[(b"", b"", 0)])).contains("no name"));
        assert!(failure(&fork(1, &[(b"a\0b", b"", 0)])).contains("contains NUL"));
        assert!(failure(&fork(1, &[(b"a", b"", 0x80)])).contains("incomplete"));
        assert!(failure(&fork(1, &[(b"a", b"", 6)])).contains("no name space"));
    }
}
