//! One attribute, and the bits that encode its name space.

use crate::error::Verdict;

const LOCAL: u8 = 0x01;
const ROOT: u8 = 0x02;
const SECURE: u8 = 0x04;
const PARENT: u8 = 0x08;
const INCOMPLETE: u8 = 0x80;

/// The longest value that Linux writes or gives out, in bytes.
pub(crate) const VALUE_MAX_BYTES: u32 = 1 << 16;

/// Name spaces. Equal names in two of them are different attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Space {
    /// `user.`
    User,
    /// `trusted.`, and access control lists.
    Root,
    /// `security.`
    Secure,
    /// Parent pointers: each the name of the inode in a directory.
    Parent,
}

/// The bits of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flags {
    pub(super) space: Space,
    /// The value lies beside the name.
    pub(super) local: bool,
    pub(super) incomplete: bool,
}

impl Flags {
    pub(super) fn of(bits: u8) -> Verdict<Self> {
        let space = match bits & !(LOCAL | INCOMPLETE) {
            0 => Space::User,
            ROOT => Space::Root,
            SECURE => Space::Secure,
            PARENT => Space::Parent,
            _ => return Err(format!("flags {bits:#04x} name no name space").into()),
        };
        Ok(Self { space, local: bits & LOCAL != 0, incomplete: bits & INCOMPLETE != 0 })
    }

    pub(super) const fn bits(self) -> u8 {
        let space = match self.space {
            Space::User => 0,
            Space::Root => ROOT,
            Space::Secure => SECURE,
            Space::Parent => PARENT,
        };
        space | if self.local { LOCAL } else { 0 } | if self.incomplete { INCOMPLETE } else { 0 }
    }
}

/// Refuses a name that no attribute can have. A list of names has NUL between them.
pub(super) fn check_name(name: &[u8]) -> Verdict<()> {
    if name.is_empty() {
        return Err("it has no name".into());
    }
    if name.contains(&0) {
        return Err(format!("its name \"{}\" contains NUL", name.escape_ascii()).into());
    }
    Ok(())
}

/// One attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attribute<'a> {
    pub(crate) space: Space,
    /// Without what stands for the name space; never empty.
    pub(crate) name: &'a [u8],
    pub(crate) value: Value<'a>,
    /// It was being written or removed.
    pub(crate) incomplete: bool,
}

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// Beside the name.
    Here(&'a [u8]),
    /// In blocks of the fork from this one on, this many bytes of it: at most [`VALUE_MAX_BYTES`], unless incomplete.
    Remote { block: u32, bytes: u32 },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_in_one_name_space() {
        let space = |bits| Flags::of(bits).map(|flags| (flags.space, flags.local, flags.incomplete));
        assert_eq!(space(0x00), Ok((Space::User, false, false)));
        assert_eq!(space(0x03), Ok((Space::Root, true, false)));
        assert_eq!(space(0x84), Ok((Space::Secure, false, true)));
        assert_eq!(space(0x09), Ok((Space::Parent, true, false)));
        for bits in [0x00, 0x03, 0x84, 0x09, 0x81] {
            assert_eq!(Flags::of(bits).unwrap().bits(), bits);
        }
        for bits in [0x06, 0x0a, 0x10, 0x41] {
            assert!(space(bits).unwrap_err().contains("no name space"), "{bits:#x}");
        }
    }
}
