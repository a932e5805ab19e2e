//! Sizes as truncate has them: absolute, or how the size changes.

use crate::exit::Kind;
use crate::failure::Failure;
use crate::plan::mkfs;

/// What a size becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SizeChange {
    To(u64),
    Extend(u64),
    Shrink(u64),
    AtMost(u64),
    AtLeast(u64),
    RoundDown(u64),
    RoundUp(u64),
}

impl SizeChange {
    /// # Errors
    /// [`Kind::Usage`].
    pub(crate) fn parse(typed: &str) -> Result<Self, Failure> {
        let by = |kind: fn(u64) -> Self, rest: &str| mkfs::size(rest).map(kind);
        let change = match typed.split_at_checked(1) {
            Some(("+", rest)) => by(Self::Extend, rest),
            Some(("-", rest)) => by(Self::Shrink, rest),
            Some(("<", rest)) => by(Self::AtMost, rest),
            Some((">", rest)) => by(Self::AtLeast, rest),
            Some(("/", rest)) => by(Self::RoundDown, rest),
            Some(("%", rest)) => by(Self::RoundUp, rest),
            _ => by(Self::To, typed),
        }?;
        match change {
            Self::RoundDown(0) | Self::RoundUp(0) => {
                Err(Failure::new(Kind::Usage, "a size is no multiple of 0"))
            }
            change => Ok(change),
        }
    }

    /// The size that comes of another; none if no file can have it.
    pub(crate) fn apply(self, size: u64) -> Option<u64> {
        match self {
            Self::To(to) => Some(to),
            Self::Extend(by) => size.checked_add(by),
            Self::Shrink(by) => Some(size.saturating_sub(by)),
            Self::AtMost(limit) => Some(size.min(limit)),
            Self::AtLeast(limit) => Some(size.max(limit)),
            Self::RoundDown(unit) => Some(size / unit * unit),
            Self::RoundUp(unit) => size.checked_next_multiple_of(unit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SizeChange;

    #[test]
    fn sizes_change_as_truncate_has_it() {
        for (typed, before, after) in [
            ("0", 7, 0),
            ("1k", 7, 1024),
            ("+1k", 7, 1031),
            ("-5", 7, 2),
            ("-50", 7, 0),
            ("<5", 7, 5),
            ("<50", 7, 7),
            (">5", 7, 7),
            (">50", 7, 50),
            ("/5", 7, 5),
            ("%5", 7, 10),
        ] {
            assert_eq!(SizeChange::parse(typed).unwrap().apply(before), Some(after), "{typed}");
        }
        assert_eq!(SizeChange::parse("+1").unwrap().apply(u64::MAX), None);
        for wrong in ["", "+", "x", "+-1", "%0", "/0"] {
            assert!(SizeChange::parse(wrong).is_err(), "{wrong}");
        }
    }
}
