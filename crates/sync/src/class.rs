//! A lock's class: one name for the order check, the lock report and the documentation.

/// Place of a class in the lock order: a lock may be taken only while every held lock has a lower rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(pub u16);

/// What a lock is: every lock is created with a reference to one of the statics in [`crate::order`].
#[derive(Debug)]
pub struct LockClass {
    name: &'static str,
    rank: Rank,
}

impl LockClass {
    /// A class by its name and its place in the order.
    #[must_use]
    pub const fn new(name: &'static str, rank: Rank) -> Self {
        Self { name, rank }
    }

    /// The name, as the lock report prints it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The place in the lock order.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        self.rank
    }
}
