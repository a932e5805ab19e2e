//! The workloads by name, and what one operation of each is.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Names that the workloads about existing names find in their directory.
pub(crate) const STANDING_NAMES: u64 = 10_000;

/// What the workers do, all of them in one directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Each creates an empty file under a name of its own and unlinks it.
    CreateUnlink,
    /// Each creates a file under a random name, renames it to another, and unlinks it.
    Rename,
    /// Each creates files under names that nobody else has; nothing is removed.
    CreateMany,
    /// Each asks for the attributes of random names among those that are there.
    StatMany,
    /// Each lists the directory while one more, which is not counted, creates and removes names in it.
    ReaddirStorm,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::CreateUnlink, Self::Rename, Self::CreateMany, Self::StatMany, Self::ReaddirStorm];

    /// The name that users type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CreateUnlink => "create-unlink",
            Self::Rename => "rename",
            Self::CreateMany => "create-many",
            Self::StatMany => "stat-many",
            Self::ReaddirStorm => "readdir-storm",
        }
    }

    /// What is counted as one operation. One of [`Rename`](Self::Rename) renames once, so that its operations a second
    /// are renames a second.
    #[must_use]
    pub const fn operation(self) -> &'static str {
        match self {
            Self::CreateUnlink => "one operation creates an empty file and unlinks it",
            Self::Rename => "one operation creates a file, renames it once and unlinks it",
            Self::CreateMany => "one operation creates an empty file, which stays",
            Self::StatMany => "one operation looks up one of 10,000 names and its attributes",
            Self::ReaddirStorm => "one operation lists 10,000 names while one more worker changes others",
        }
    }

    /// Operations for each worker where the user does not say: about a second's worth.
    #[must_use]
    pub const fn default_ops(self, in_process: bool) -> NonZeroU64 {
        let ops = match (self, in_process) {
            (Self::CreateUnlink | Self::Rename, true) => 1_000_000,
            (Self::CreateUnlink | Self::Rename | Self::CreateMany, false) => 100_000,
            (Self::CreateMany, true) => 500_000,
            (Self::StatMany, true) => 5_000_000,
            (Self::StatMany, false) => 1_000_000,
            (Self::ReaddirStorm, _) => 500,
        };
        NonZeroU64::new(ops).expect("none of them is zero")
    }

    /// Names that must be there before anything starts.
    pub(crate) const fn standing_names(self) -> u64 {
        match self {
            Self::CreateUnlink | Self::Rename | Self::CreateMany => 0,
            Self::StatMany | Self::ReaddirStorm => STANDING_NAMES,
        }
    }

    /// Whether one more worker changes names while the others work.
    pub(crate) const fn has_changer(self) -> bool {
        matches!(self, Self::ReaddirStorm)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|workload| workload.name() == typed).ok_or_else(|| {
            format!("there is no such workload; there are {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

impl Serialize for Workload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Workload;

    #[test]
    fn names_are_read_as_they_are_written() {
        for workload in Workload::ALL {
            assert_eq!(workload.to_string().parse(), Ok(workload));
        }
        assert!("create".parse::<Workload>().unwrap_err().contains("create-unlink, rename"));
    }
}
