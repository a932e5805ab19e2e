//! Crashes of XFS: the workloads of this module's parent, on images by mkfs.xfs.

use undercroft_oracle::operations::{Abilities, Operation, Worker};
use undercroft_oracle::{How, Make, MkfsXfs};
use undercroft_xfs::WriteOptions;

use super::{Operations, Workload, growing, growing_before, survives};

/// A sector is written whole, and each structure that has no copy elsewhere is one.
const WHOLE_BYTES: u32 = 512;

const fn abilities() -> Abilities {
    // Where the volume cannot, it is refused.
    Abilities { extents: true, shares: true, block_bytes: 4096, value_max_bytes: 3000, reach_bytes: 60_000 }
}

fn everything(seed: u64, number: u64) -> Operations {
    Box::new(Worker::new(seed, number, abilities()))
}

fn workload(args: &str, operations: fn(u64, u64) -> Operations) -> Workload {
    let make = Make::Xfs(MkfsXfs::new(32, args));
    let how = How::Xfs(WriteOptions::default()).without_clock();
    Workload { make, how, whole_bytes: WHOLE_BYTES, ..Workload::new("", operations) }
}

/// Changes of one kind, with files for them, of which one is made durable now and then.
fn only(seed: u64, number: u64, of: fn(&Operation) -> bool) -> Operations {
    super::among(Worker::new(seed, number, abilities()), of)
}

#[test]
fn with_everything_that_mkfs_makes_today() {
    survives(&workload("", everything), 30);
}

#[test]
fn with_a_reverse_map() {
    survives(&workload("-m rmapbt=1", everything), 20);
}

#[test]
fn without_a_tree_of_free_inodes() {
    survives(&workload("-m finobt=0,reflink=0 -i sparse=0", everything), 15);
}

/// The log's records begin at multiples of a stripe, and name another UUID than the metadata.
#[test]
fn with_a_striped_log_and_a_new_uuid() {
    let make = Make::Xfs(MkfsXfs::new(32, "-d su=32k,sw=2 -l su=32k -m rmapbt=1").new_uuid());
    survives(&Workload { make, ..workload("", everything) }, 15);
}

#[test]
fn with_large_blocks() {
    let operations = |seed, number| -> Operations {
        Box::new(Worker::new(seed, number, Abilities { block_bytes: 16_384, ..abilities() }))
    };
    let make = Make::Xfs(MkfsXfs::new(64, "-b size=16384 -n size=16384"));
    survives(&Workload { make, ..workload("", operations) }, 10);
}

#[test]
fn with_small_blocks() {
    let operations = |seed, number| -> Operations {
        Box::new(Worker::new(seed, number, Abilities { block_bytes: 1024, ..abilities() }))
    };
    survives(&workload("-b size=1024 -m rmapbt=1", operations), 20);
}

/// Directory blocks of several blocks are one buffer of the log each, and are freed as one.
#[test]
fn names_in_directory_blocks_of_several_blocks() {
    let operations = |seed, number| {
        only(seed, number, |operation| {
            use Operation::{Link, Mkdir, Rename, Rmdir, Symlink, Unlink};
            matches!(
                operation,
                Mkdir { .. } | Rmdir { .. } | Link { .. } | Unlink { .. } | Rename { .. } | Symlink { .. }
            )
        })
    };
    survives(&workload("-b size=1024", operations), 10);
    survives(&workload("-n size=16384", operations), 10);
}

#[test]
fn a_directory_that_grows_in_blocks_of_several() {
    for args in ["-b size=1024", "-b size=2048 -n size=8192"] {
        survives(&Workload { before: growing_before, ..workload(args, growing) }, 10);
    }
}

/// By seed power is lost in another round of the log, the least that Linux takes.
#[test]
fn when_the_log_has_wrapped() {
    let before = |seed| (seed * 731 % 4000) as usize;
    survives(&Workload { before, ..workload("-m reflink=0", everything) }, 10);
}

/// From the inode's own bytes to a tree of leaves and an index of free space.
#[test]
fn a_directory_that_grows() {
    survives(&Workload { before: growing_before, ..workload("", growing) }, 15);
}

#[test]
fn names_that_come_and_go() {
    let operations = |seed, number| {
        only(seed, number, |operation| {
            use Operation::{Link, Mkdir, Rename, Rmdir, Symlink, Unlink};
            matches!(
                operation,
                Mkdir { .. } | Rmdir { .. } | Link { .. } | Unlink { .. } | Rename { .. } | Symlink { .. }
            )
        })
    };
    survives(&workload("", operations), 15);
}

#[test]
fn changes_of_content_and_space() {
    let operations = |seed, number| {
        only(seed, number, |operation| {
            use Operation::{Append, Share, Space, Truncate, Write};
            matches!(operation, Append { .. } | Share { .. } | Space { .. } | Truncate { .. } | Write { .. })
        })
    };
    survives(&workload("-m rmapbt=1", operations), 15);
}

#[test]
fn attributes() {
    let operations = |seed, number| {
        only(seed, number, |operation| {
            use Operation::{Chmod, Chown, RemoveXattr, SetXattr, Unlink};
            matches!(
                operation,
                SetXattr { .. } | RemoveXattr { .. } | Chmod { .. } | Chown { .. } | Unlink { .. }
            )
        })
    };
    survives(&workload("", operations), 15);
}

#[test]
fn files_that_are_open_without_a_name() {
    let operations = |seed, number| {
        only(seed, number, |operation| {
            use Operation::{Append, Rename, SetXattr, Unlink};
            matches!(operation, Unlink { .. } | Rename { .. } | Append { .. } | SetXattr { .. })
        })
    };
    survives(&Workload { holds: true, ..workload("", operations) }, 15);
}

#[test]
fn commits_in_the_middle_of_changes() {
    survives(&Workload { interrupted: true, holds: true, ..workload("-m rmapbt=1", everything) }, 15);
}

#[test]
fn several_threads() {
    survives(&Workload { workers: 3, holds: true, ..workload("", everything) }, 15);
}
