//! Owners as chown has them: `U`, `U:G`, `U:` or `:G`, each a number or a name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::exit::Kind;
use crate::failure::Failure;
use crate::text::names::safe;

/// A user or a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    Number(u32),
    Name(Vec<u8>),
}

/// Whom a file is to belong to; what is not said stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerSpec {
    pub(crate) user: Option<Id>,
    pub(crate) group: Option<GroupSpec>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GroupSpec {
    Is(Id),
    /// The one that the user has in /etc/passwd.
    OfUser,
}

impl Id {
    /// A number where it is one.
    ///
    /// # Errors
    /// [`Kind::Usage`].
    pub(crate) fn parse(typed: &[u8]) -> Result<Self, Failure> {
        let text = std::str::from_utf8(typed).ok();
        match text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit())) {
            Some(digits) => {
                digits.parse().ok().filter(|id| *id != u32::MAX).map(Self::Number).ok_or_else(|| {
                    Failure::new(Kind::Usage, format!("{} is no number of a user or group", safe(typed)))
                        .advise("they are from 0 to 4294967294")
                })
            }
            None => Ok(Self::Name(typed.to_vec())),
        }
    }
}

impl OwnerSpec {
    /// # Errors
    /// [`Kind::Usage`].
    pub(crate) fn parse(typed: &OsStr) -> Result<Self, Failure> {
        let bytes = typed.as_bytes();
        let id = |part: &[u8]| if part.is_empty() { Ok(None) } else { Id::parse(part).map(Some) };
        let (user, group) = match bytes.iter().position(|byte| *byte == b':') {
            None => (id(bytes)?, None),
            Some(at) => {
                let user = id(&bytes[..at])?;
                let group = id(&bytes[at + 1..])?.map(GroupSpec::Is);
                let of_user = user.as_ref().map(|_| GroupSpec::OfUser);
                (user, group.or(of_user))
            }
        };
        if user.is_none() && group.is_none() {
            return Err(Failure::new(Kind::Usage, format!("{} names no owner", safe(bytes)))
                .advise("write it as USER, USER:GROUP or :GROUP"));
        }
        Ok(Self { user, group })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::{GroupSpec, Id, OwnerSpec};

    #[test]
    fn owners_are_read_as_chown_reads_them() {
        let number = |id| Some(Id::Number(id));
        let name = |name: &str| Id::Name(name.into());
        for (typed, user, group) in [
            ("5", number(5), None),
            ("5:6", number(5), Some(GroupSpec::Is(Id::Number(6)))),
            (":6", None, Some(GroupSpec::Is(Id::Number(6)))),
            ("www", Some(name("www")), None),
            ("www:", Some(name("www")), Some(GroupSpec::OfUser)),
            ("0:staff", number(0), Some(GroupSpec::Is(name("staff")))),
        ] {
            assert_eq!(OwnerSpec::parse(OsStr::new(typed)).unwrap(), OwnerSpec { user, group }, "{typed}");
        }
        for wrong in ["", ":", "4294967295", "99999999999:1"] {
            assert!(OwnerSpec::parse(OsStr::new(wrong)).is_err(), "{wrong}");
        }
    }
}
