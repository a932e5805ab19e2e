//! A lock's class: one name for the order check, the lock report and the documentation.

use std::fmt;
use std::sync::OnceLock;

use crate::stats::counters::ClassCounters;

/// Place of a class in the lock order: a lock may be taken only while every held lock has a lower rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(pub u16);

/// What a lock is: every lock is created with a reference to one of the statics in [`crate::order`].
///
/// Two classes are the same when they are the same static.
pub struct LockClass {
    name: &'static str,
    rank: Rank,
    /// Filled, and the class added to the report, by the first measured acquisition.
    counters: OnceLock<Box<ClassCounters>>,
}

impl LockClass {
    /// A class by its name and its place in the order.
    #[must_use]
    pub const fn new(name: &'static str, rank: Rank) -> Self {
        Self { name, rank, counters: OnceLock::new() }
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

    /// Where the statistics keep their counters.
    pub(crate) fn counters(&self) -> &OnceLock<Box<ClassCounters>> {
        &self.counters
    }
}

impl fmt::Debug for LockClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClass").field("name", &self.name).field("rank", &self.rank.0).finish()
    }
}
