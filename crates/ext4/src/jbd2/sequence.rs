//! Transaction numbers, which wrap around.

use std::fmt;

/// A transaction's number. It wraps after 2^32 transactions, so "later" means "less than 2^31 ahead".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sequence(pub(crate) u32);

impl Sequence {
    /// The transaction after this one.
    pub(crate) fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Whether this transaction is `other` or came after it.
    pub(crate) fn is_at_or_after(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() >= 0
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        assert!(Sequence(0).is_at_or_after(Sequence(u32::MAX)));
        assert!(!Sequence(u32::MAX).is_at_or_after(Sequence(0)));
        assert!(Sequence(7).is_at_or_after(Sequence(7)));
        assert_eq!(Sequence(u32::MAX).next(), Sequence(0));
    }
}
