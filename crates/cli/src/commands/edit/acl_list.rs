//! An access control list as a list of entries, to be changed and shown.
//!
//! The form of the attribute is that of `getxattr`: see `text/acl.rs`. Entries are kept in its order: by tag, then by
//! number.

use std::collections::BTreeMap;

pub(super) const OWNER: u16 = 0x01;
pub(super) const USER: u16 = 0x02;
pub(super) const OWNING_GROUP: u16 = 0x04;
pub(super) const GROUP: u16 = 0x08;
pub(super) const MASK: u16 = 0x10;
pub(super) const OTHER: u16 = 0x20;
/// In entries that name no user or group.
pub(super) const NO_ID: u32 = u32::MAX;

const VERSION: u32 = 2;

/// Permissions by tag and number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct List(pub(super) BTreeMap<(u16, u32), u16>);

impl List {
    /// The list that a mode is.
    pub(super) fn of_mode(permissions: u16) -> Self {
        let entries = [(OWNER, 6), (OWNING_GROUP, 3), (OTHER, 0)];
        Self(entries.into_iter().map(|(tag, shift)| ((tag, NO_ID), permissions >> shift & 0o7)).collect())
    }

    /// The list in an attribute, which the vfs has validated.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let (version, entries) = value.split_first_chunk()?;
        let (entries, []) = entries.as_chunks::<8>() else { return None };
        if u32::from_le_bytes(*version) != VERSION {
            return None;
        }
        let entries = entries.iter().map(|&[t0, t1, p0, p1, id @ ..]| {
            let (tag, permissions) = (u16::from_le_bytes([t0, t1]), u16::from_le_bytes([p0, p1]));
            let id = if matches!(tag, USER | GROUP) { u32::from_le_bytes(id) } else { NO_ID };
            ((tag, id), permissions & 0o7)
        });
        Some(Self(entries.collect()))
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (&(tag, id), permissions) in &self.0 {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    /// Only the entries that a mode has.
    pub(super) fn base(&self) -> Self {
        let base = self.0.iter().filter(|((tag, _), _)| matches!(*tag, OWNER | OWNING_GROUP | OTHER));
        Self(base.map(|(key, permissions)| (*key, *permissions)).collect())
    }

    /// Whether it has more than a mode.
    pub(super) fn is_extended(&self) -> bool {
        self.0.len() > 3
    }

    pub(super) fn any_executes(&self) -> bool {
        self.0.values().any(|permissions| permissions & 1 != 0)
    }

    /// Lets the mask be what users and groups by name and the owning group have together.
    pub(super) fn set_mask(&mut self) {
        let in_mask = self.0.iter().filter(|((tag, _), _)| matches!(*tag, USER | GROUP | OWNING_GROUP));
        let mask = in_mask.fold(0, |mask, (_, permissions)| mask | permissions);
        self.0.insert((MASK, NO_ID), mask);
    }

    /// The lines of getfacl, with `before` in front of each.
    pub(super) fn lines(&self, before: &str) -> Vec<String> {
        let mask = self.0.get(&(MASK, NO_ID)).copied();
        let line = |(&(tag, id), &permissions): (&(u16, u32), &u16)| {
            let subject = match tag {
                OWNER => "user:".to_owned(),
                USER => format!("user:{id}"),
                OWNING_GROUP => "group:".to_owned(),
                GROUP => format!("group:{id}"),
                MASK => "mask:".to_owned(),
                _ => "other:".to_owned(),
            };
            let masked =
                mask.filter(|mask| matches!(tag, USER | GROUP | OWNING_GROUP) && permissions & !mask != 0);
            let effective = masked.map(|mask| format!("\t#effective:{}", letters(permissions & mask)));
            format!("{before}{subject}:{}{}", letters(permissions), effective.unwrap_or_default())
        };
        self.0.iter().map(line).collect()
    }
}

fn letters(permissions: u16) -> String {
    [(4, 'r'), (2, 'w'), (1, 'x')]
        .map(|(bit, letter)| if permissions & bit != 0 { letter } else { '-' })
        .iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{GROUP, List, MASK, NO_ID, USER};

    #[test]
    fn a_list_is_what_it_was_after_a_round_trip() {
        let mut list = List::of_mode(0o754);
        assert_eq!(list.lines(""), ["user::rwx", "group::r-x", "other::r--"]);
        assert!(!list.is_extended());
        list.0.insert((USER, 7), 6);
        list.0.insert((GROUP, 3), 1);
        list.set_mask();
        assert_eq!(list.0[&(MASK, NO_ID)], 7);
        assert_eq!(List::parse(&list.to_bytes()), Some(list.clone()));
        list.0.insert((MASK, NO_ID), 4);
        assert_eq!(list.lines("default:")[1], "default:user:7:rw-\t#effective:r--");
        assert_eq!(list.base(), List::of_mode(0o754));
        assert_eq!(List::parse(b"\x02\0\0\0\x01"), None);
    }
}
