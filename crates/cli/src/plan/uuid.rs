//! UUIDs of filesystems, with the words that tools have for them: those of mke2fs and tune2fs (`clear`, `null`, `random`,
//! `time`) and of xfs_admin (`generate`, `nil`, `restore`), each by whatever command, in letters of either case.

use std::time::{SystemTime, UNIX_EPOCH};

use undercroft_diskfs::mkfs::random_uuid;
use uuid::Uuid;

use crate::exit::Kind;
use crate::failure::Failure;

/// What a filesystem's UUID becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UuidChange {
    To(Uuid),
    Random,
    /// The one that it was made with.
    Original,
}

impl UuidChange {
    /// What a word or a UUID stands for; `None` if it is neither.
    fn of(typed: &str) -> Result<Option<Self>, Failure> {
        Ok(Some(match &*typed.to_ascii_lowercase() {
            "random" | "generate" => Self::Random,
            "clear" | "null" | "nil" => Self::To(Uuid::nil()),
            "time" => Self::To(uuid_of_now()?),
            "restore" => Self::Original,
            typed => return Ok(Uuid::parse_str(typed).ok().map(Self::To)),
        }))
    }

    /// Of a filesystem that is there.
    pub(super) fn parse(typed: &str) -> Result<Self, Failure> {
        let advice = "give one, or time, random, clear or restore";
        Self::of(typed)?.ok_or_else(|| no_uuid(typed).advise(advice))
    }
}

/// The UUID of a filesystem that is made; `None` is a random one.
pub(super) fn of_new(typed: &str) -> Result<Option<Uuid>, Failure> {
    match UuidChange::of(typed)? {
        Some(UuidChange::To(uuid)) => Ok(Some(uuid)),
        Some(UuidChange::Random) => Ok(None),
        Some(UuidChange::Original) => {
            let what = format!("-U {typed}: a filesystem that is made has no UUID that could come back");
            Err(Failure::new(Kind::Usage, what).advise("name the UUID"))
        }
        None => Err(no_uuid(typed).advise("give one, or time, random or clear")),
    }
}

/// A UUID for which there are no words.
pub(super) fn given(typed: &str) -> Result<Uuid, Failure> {
    Uuid::parse_str(typed).map_err(|_| no_uuid(typed))
}

fn no_uuid(typed: &str) -> Failure {
    Failure::new(Kind::Usage, format!("{typed:?} is no UUID"))
}

/// A UUID of version 1: the time, in units of 100 ns since 1582-10-15, and chance in place of the machine's address.
fn uuid_of_now() -> Result<Uuid, Failure> {
    const BEFORE_1970: u128 = 0x01b2_1dd2_1381_4000;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ticks = since.as_nanos() / 100 + BEFORE_1970;
    let mut bytes = random_uuid().map_err(|error| Failure::of(Kind::of_mkfs(&error), &error))?.into_bytes();
    bytes[..4].copy_from_slice(&(ticks as u32).to_be_bytes());
    bytes[4..6].copy_from_slice(&((ticks >> 32) as u16).to_be_bytes());
    bytes[6..8].copy_from_slice(&((ticks >> 48) as u16 & 0x0fff | 0x1000).to_be_bytes());
    // An address of this kind is no machine's.
    bytes[10] |= 1;
    Ok(Uuid::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_commands_know_the_words_of_all_tools() {
        let uuid = Uuid::from_u128(0xc1b9_d5a2_f162_11cf_9ece_0020_afc7_6f16);
        for (typed, change) in [
            ("random", UuidChange::Random),
            ("GENERATE", UuidChange::Random),
            ("clear", UuidChange::To(Uuid::nil())),
            ("null", UuidChange::To(Uuid::nil())),
            ("Nil", UuidChange::To(Uuid::nil())),
            ("restore", UuidChange::Original),
            ("C1b9d5a2-f162-11cf-9ece-0020afc76f16", UuidChange::To(uuid)),
        ] {
            assert_eq!(UuidChange::parse(typed).unwrap(), change, "{typed}");
            match change {
                UuidChange::To(uuid) => assert_eq!(of_new(typed).unwrap(), Some(uuid)),
                UuidChange::Random => assert_eq!(of_new(typed).unwrap(), None),
                UuidChange::Original => {
                    let refused = of_new(typed).unwrap_err();
                    assert_eq!(refused.kind(), Kind::Usage);
                    assert!(refused.to_string().contains("-U restore"), "{refused}");
                }
            }
        }
        let (Ok(UuidChange::To(one)), Ok(Some(other))) = (UuidChange::parse("time"), of_new("TIME")) else {
            panic!("the time is a UUID")
        };
        assert_eq!((one.get_version_num(), other.get_version_num()), (1, 1));
        assert_ne!(one, other);
        for refused in ["5", "", "rewrite", "randomly"] {
            assert_eq!(UuidChange::parse(refused).unwrap_err().kind(), Kind::Usage, "{refused}");
            assert_eq!(of_new(refused).unwrap_err().kind(), Kind::Usage, "{refused}");
        }
        assert!(given("random").is_err() && given(&uuid.to_string()).is_ok_and(|given| given == uuid));
    }
}
