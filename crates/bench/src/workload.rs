//! The workloads by name, and what one operation of each is.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::ArrayForm;
use crate::sizes::{
    FILE_BYTES, OVERWRITE_BYTES, ROW_BYTES, SEQUENTIAL_BYTES, SMALL_WRITE_BYTES, WRITE_BYTES,
};

/// What the workers do, all of them in one directory unless each is given its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Each creates an empty file under a name of its own and unlinks it.
    CreateUnlink,
    /// Each creates a file under a random name, renames it to another, and unlinks it.
    Rename,
    /// Each creates files under names that no other worker has; nothing is removed.
    CreateMany,
    /// Each makes directories of its own with 1000 empty files each; nothing is removed.
    Populate,
    /// Each creates files in one new directory, in a filesystem with many inodes of which few, at random places, are
    /// free.
    InodeAlloc,
    /// Each asks for the attributes of a file of its own, whose name is cached.
    StatOwn,
    /// Each asks for the attributes of random names among those that are there.
    StatMany,
    /// Each lists the directory while one more, which is not counted, creates and removes names in it.
    ReaddirStorm,
    /// Each truncates a file of its own byte by byte from 4096 bytes to one, and extends it again.
    Orphan,
    /// Each writes 4 KiB over random places of one file, past any cache.
    Overwrite,
    /// Each writes a file of its own, 1 MiB at once, and makes it durable at the end.
    Write,
    /// The same, 4 KiB at once, as most programs write that do not set out to be quick.
    WriteSmall,
    /// Each writes files of 4 MiB and makes each durable before it is closed.
    RaidWrite,
    /// Each writes whole rows of chunks of an array at random places.
    RaidWriteRows,
    /// Each writes whole rows of chunks one after the other, in a part of the device that is its own.
    RaidSequential,
    /// Each reads 4 KiB at random places.
    RaidRead,
    /// One fails a member of an array and rebuilds it onto a fresh device.
    RaidRebuild,
}

/// What a workload is measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// A directory.
    Files,
    /// One file, for which a device may stand.
    Bytes,
    /// A device.
    Device,
    /// An array.
    Array,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::CreateUnlink,
        Self::Rename,
        Self::CreateMany,
        Self::Populate,
        Self::InodeAlloc,
        Self::StatOwn,
        Self::StatMany,
        Self::ReaddirStorm,
        Self::Orphan,
        Self::Overwrite,
        Self::Write,
        Self::WriteSmall,
        Self::RaidWrite,
        Self::RaidWriteRows,
        Self::RaidSequential,
        Self::RaidRead,
        Self::RaidRebuild,
    ];

    /// The name that users type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CreateUnlink => "create-unlink",
            Self::Rename => "rename",
            Self::CreateMany => "create-many",
            Self::Populate => "populate",
            Self::InodeAlloc => "inode-alloc",
            Self::StatOwn => "stat-own",
            Self::StatMany => "stat-many",
            Self::ReaddirStorm => "readdir-storm",
            Self::Orphan => "orphan",
            Self::Overwrite => "overwrite",
            Self::Write => "write",
            Self::WriteSmall => "write-small",
            Self::RaidWrite => "raid5-write",
            Self::RaidWriteRows => "raid5-write-rows",
            Self::RaidSequential => "raid5-sequential",
            Self::RaidRead => "raid5-read",
            Self::RaidRebuild => "raid5-rebuild",
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
            Self::Populate => {
                "one operation creates an empty file, which stays, each 1000 in a directory of their own"
            }
            Self::InodeAlloc => {
                "one operation creates an empty file where few of many inodes (--inodes) are free"
            }
            Self::StatOwn => "one operation looks up the worker's own name and its attributes",
            Self::StatMany => "one operation looks up one of 10,000 names and its attributes",
            Self::ReaddirStorm => "one operation lists 10,000 names while one more worker changes others",
            Self::Orphan => {
                "one operation truncates a file by one byte; at one byte it extends it to 4096 again"
            }
            Self::Overwrite => "one operation writes 4 KiB somewhere over a file that all share, past caches",
            Self::Write => "one operation writes 1 MiB behind what was written; the time ends with fsync",
            Self::WriteSmall => {
                "one operation writes 4 KiB behind what was written; the time ends with fsync"
            }
            Self::RaidWrite => {
                "one operation writes a file of 4 MiB, with fsync before it is closed, and removes it"
            }
            Self::RaidWriteRows => "one operation writes a row of chunks, 192 KiB, somewhere on the array",
            Self::RaidSequential => {
                "one operation writes 1.5 MiB, eight rows of chunks, behind the ones before"
            }
            Self::RaidRead => "one operation reads 4 KiB somewhere",
            Self::RaidRebuild => "one operation rebuilds a lost member onto a fresh device",
        }
    }

    /// Operations for each worker where the user does not say: about a second's worth.
    #[must_use]
    pub const fn default_ops(self, in_process: bool) -> NonZeroU64 {
        let ops = match (self, in_process) {
            (Self::CreateUnlink | Self::Rename, true) => 1_000_000,
            (Self::CreateUnlink | Self::Rename | Self::CreateMany | Self::Populate, false) => 100_000,
            (Self::CreateMany | Self::Populate, true) => 500_000,
            (Self::InodeAlloc, _) => 10_000,
            (Self::StatOwn | Self::StatMany, true) => 5_000_000,
            (Self::StatOwn | Self::StatMany, false) => 1_000_000,
            (Self::ReaddirStorm, _) => 500,
            (Self::Orphan, true) => 200_000,
            (Self::Orphan, false) => 20_000,
            (Self::Overwrite, true) => 1_000_000,
            (Self::Overwrite, false) => 50_000,
            (Self::Write, _) => 256,
            (Self::WriteSmall, _) => 65_536,
            (Self::RaidWrite, _) => 16,
            (Self::RaidWriteRows, _) => 1_000,
            (Self::RaidSequential, _) => 2_000,
            (Self::RaidRead, _) => 1_000_000,
            (Self::RaidRebuild, _) => 3,
        };
        NonZeroU64::new(ops).expect("none of them is zero")
    }

    /// Whether it is about the names in the directory, and not about the content of files.
    #[must_use]
    pub const fn is_about_names(self) -> bool {
        match self {
            Self::CreateUnlink
            | Self::Rename
            | Self::CreateMany
            | Self::Populate
            | Self::InodeAlloc
            | Self::StatOwn
            | Self::StatMany
            | Self::ReaddirStorm => true,
            Self::Orphan
            | Self::Overwrite
            | Self::Write
            | Self::WriteSmall
            | Self::RaidWrite
            | Self::RaidWriteRows
            | Self::RaidSequential
            | Self::RaidRead
            | Self::RaidRebuild => false,
        }
    }

    /// Whether the files that it makes stay.
    pub(crate) const fn keeps_files(self) -> bool {
        matches!(self, Self::CreateMany | Self::Populate | Self::InodeAlloc)
    }

    /// Whether there is but one worker.
    #[must_use]
    pub const fn has_one_worker(self) -> bool {
        matches!(self, Self::RaidRebuild)
    }

    /// Whether each worker may also have a directory of its own. The others share names, or make directories anyway, or
    /// are not about names.
    #[must_use]
    pub const fn knows_separate_directories(self) -> bool {
        matches!(self, Self::CreateUnlink | Self::Rename | Self::CreateMany)
    }

    /// What it is measured on.
    pub(crate) const fn needs(self) -> Needs {
        match self {
            Self::CreateUnlink
            | Self::Rename
            | Self::CreateMany
            | Self::Populate
            | Self::InodeAlloc
            | Self::StatOwn
            | Self::StatMany
            | Self::ReaddirStorm
            | Self::Orphan
            | Self::RaidWrite => Needs::Files,
            Self::Overwrite | Self::Write | Self::WriteSmall => Needs::Bytes,
            Self::RaidWriteRows | Self::RaidSequential | Self::RaidRead => Needs::Device,
            Self::RaidRebuild => Needs::Array,
        }
    }

    /// What one operation writes, if that is what the workload is about. Of a rebuild, what the member gets.
    pub(crate) const fn bytes_written(self, file_bytes: u64) -> Option<u64> {
        match self {
            Self::CreateUnlink
            | Self::Rename
            | Self::CreateMany
            | Self::Populate
            | Self::InodeAlloc
            | Self::StatOwn
            | Self::StatMany
            | Self::ReaddirStorm
            | Self::Orphan
            | Self::RaidRead => None,
            Self::Overwrite => Some(OVERWRITE_BYTES),
            Self::Write => Some(WRITE_BYTES),
            Self::WriteSmall => Some(SMALL_WRITE_BYTES),
            Self::RaidWrite => Some(FILE_BYTES),
            Self::RaidWriteRows => Some(ROW_BYTES),
            Self::RaidSequential => Some(SEQUENTIAL_BYTES),
            Self::RaidRebuild => Some(ArrayForm::member_bytes(file_bytes)),
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
