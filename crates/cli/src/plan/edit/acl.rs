//! Entries of access control lists as setfacl has them, before names are looked up.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::owner::Id;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;

/// What to do with the lists of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct AclChange {
    pub(crate) remove_all: bool,
    pub(crate) remove_default: bool,
    pub(crate) remove: Vec<AclEntry>,
    pub(crate) modify: Vec<AclEntry>,
}

/// An entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AclEntry {
    /// It is of the list that new files of a directory get.
    pub(crate) default: bool,
    pub(crate) subject: Subject,
    /// `None` where it is to be removed.
    pub(crate) permissions: Option<Permissions>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Owner,
    User(Id),
    OwningGroup,
    Group(Id),
    Mask,
    Other,
}

/// Reading 4, writing 2, executing 1; execution also (`X`) for directories and what any user may execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permissions {
    pub(crate) bits: u16,
    pub(crate) execute_if_any: bool,
}

impl AclChange {
    /// Whether the lists are to be shown and not changed.
    pub(crate) fn is_none(&self) -> bool {
        !self.remove_all && !self.remove_default && self.remove.is_empty() && self.modify.is_empty()
    }
}

/// The entries that stand between commas; `all_default` as for `-d`.
///
/// # Errors
/// [`Kind::Usage`].
pub(crate) fn entries(typed: &OsStr, is_removal: bool, all_default: bool) -> Result<Vec<AclEntry>, Failure> {
    let entries = typed.as_bytes().split(|byte| *byte == b',').filter(|entry| !entry.is_empty());
    entries.map(|typed| entry(typed, is_removal, all_default)).collect()
}

fn entry(typed: &[u8], is_removal: bool, all_default: bool) -> Result<AclEntry, Failure> {
    let wrong = || {
        Failure::new(Kind::Usage, format!("{} is no entry of an access control list", safe(typed))).advise(
            match is_removal {
                true => "write it as u:USER, g:GROUP or m:, without permissions",
                false => "write it as u:USER:rwx, g:GROUP:r-x, m::rwx or o::---",
            },
        )
    };
    let mut parts: Vec<&[u8]> = typed.split(|byte| *byte == b':').map(<[u8]>::trim_ascii).collect();
    let default = matches!(parts[0], b"d" | b"default");
    if default {
        parts.remove(0);
    }
    let permissions = match is_removal {
        true => None,
        false if parts.len() < 2 => return Err(wrong()),
        false => Some(parts.pop().and_then(permissions).ok_or_else(wrong)?),
    };
    let is_short = !is_removal && parts.len() == 1;
    let (tag, name) = match parts[..] {
        // Only of a mask and of others the second colon may be left out.
        [b"u" | b"user" | b"g" | b"group"] if is_short => return Err(wrong()),
        [tag] => (tag, &b""[..]),
        [tag, name] => (tag, name),
        _ => return Err(wrong()),
    };
    let subject = match (tag, name) {
        (b"u" | b"user", b"") => Subject::Owner,
        (b"u" | b"user", name) => Subject::User(Id::parse(name)?),
        (b"g" | b"group", b"") => Subject::OwningGroup,
        (b"g" | b"group", name) => Subject::Group(Id::parse(name)?),
        (b"m" | b"mask", b"") => Subject::Mask,
        (b"o" | b"other", b"") => Subject::Other,
        _ => return Err(wrong()),
    };
    if is_removal && matches!(subject, Subject::Owner | Subject::OwningGroup | Subject::Other) {
        let what = format!("{} cannot be removed: each list has an entry for it", safe(typed));
        return Err(Failure::new(Kind::Usage, what));
    }
    Ok(AclEntry { default: default || all_default, subject, permissions })
}

fn permissions(typed: &[u8]) -> Option<Permissions> {
    if let [digit @ b'0'..=b'7'] = typed {
        return Some(Permissions { bits: u16::from(digit - b'0'), execute_if_any: false });
    }
    let mut found = Permissions { bits: 0, execute_if_any: false };
    for letter in typed {
        match letter {
            b'r' => found.bits |= 4,
            b'w' => found.bits |= 2,
            b'x' => found.bits |= 1,
            b'X' => found.execute_if_any = true,
            b'-' => {}
            _ => return None,
        }
    }
    (!typed.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::{Id, Subject, entries};

    #[test]
    fn entries_are_those_of_setfacl() {
        let found = entries(OsStr::new("u:7:rw,d:group:staff:r-X,m::7,o:---,user::x"), false, false).unwrap();
        let subjects: Vec<_> = found.iter().map(|entry| (entry.default, entry.subject.clone())).collect();
        assert_eq!(
            subjects,
            [
                (false, Subject::User(Id::Number(7))),
                (true, Subject::Group(Id::Name(b"staff".to_vec()))),
                (false, Subject::Mask),
                (false, Subject::Other),
                (false, Subject::Owner),
            ]
        );
        let bits: Vec<_> = found.iter().map(|entry| entry.permissions.unwrap().bits).collect();
        assert_eq!(bits, [6, 4, 7, 0, 1]);
        assert!(found[1].permissions.unwrap().execute_if_any);
        assert!(entries(OsStr::new("u:7,g:staff"), true, true).unwrap().iter().all(|entry| entry.default));
        for (wrong, is_removal) in [
            ("u", false),
            ("u:7", false),
            ("u:7:q", false),
            ("q:7:r", false),
            ("m:5:r", false),
            ("u:7:r", true),
            ("u:", true),
            ("o", true),
        ] {
            assert!(entries(OsStr::new(wrong), is_removal, false).is_err(), "{wrong}");
        }
    }
}
