//! Crashes: power is lost after any request to the device, and what was not flushed survives in any subset.
//!
//! Changes are recorded with what the tree looked like after each. A crash may leave the tree as it was after any of
//! them that was not before the last one made durable, and nothing else: each change is there whole or not at all. Of
//! bytes that were overwritten since then each sector is an old one or a new one of the same file. Where a commit
//! comes in the middle of changes, the change of a file's bytes may be there in part, and nothing but that.
//!
//! Power is lost at random requests, and just before and just after flushes. After some crashes it goes again, once or
//! twice, in the midst of our recovery. Each crash is recovered from twice, by us and by Linux, both find the same, and
//! Linux's checker looks at both. Without a journal e2fsck mends, once, and nothing that
//! was durable is lost.
//!
//! `UNDERCROFT_CRASHES` says how many crashes at random are tried for each workload, beside which each flush is tried;
//! `UNDERCROFT_SEED` replays the changes of one worker.

mod history;
mod tree;
mod xfs;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use undercroft_block::Device;
use undercroft_block::testing::Recorder;
use undercroft_ext4::{OrphanForm, WriteOptions};
use undercroft_oracle::operations::{Abilities, Operation, Worker};
use undercroft_oracle::{How, LoopMount, Make, Mke2fs, MountMode, Scratch, Tool, save_device};
use undercroft_vfs::{FileSystem, Vfs, VfsOptions};

use self::history::{History, work};
use self::tree::{differences, look};
use crate::number;

/// What a disk writes at once: a superblock is written in place and has no copy that Linux would turn to by itself, so
/// on a disk that tears it no filesystem opens.
const WHOLE_BYTES: u32 = 1024;

/// Crashes at random that are tried with the same changes.
const CRASHES_A_SEED: u64 = 60;

/// Crashes that are tried at once: nearly all of the time the kernel waits for itself to unmount.
const AT_ONCE: usize = 6;

/// Of so many crashes, the recovery from one is cut short.
const CUT_AGAIN_EVERY: usize = 3;

/// Of so many changes of one kind one is a sync.
const SYNC_EVERY: u64 = 15;

type Operations = Box<dyn Iterator<Item = Operation> + Send>;

/// What is done to a filesystem before power is lost.
struct Workload {
    make: Make,
    /// Whether that makes a journal.
    journal: bool,
    how: How,
    /// What a disk writes at once.
    whole_bytes: u32,
    /// How many threads work at once.
    workers: u64,
    /// Another thread commits while changes are made, at random moments.
    interrupted: bool,
    /// Files that lose their last name are kept open.
    holds: bool,
    /// A worker's changes, by seed and number.
    operations: fn(u64, u64) -> Operations,
    /// How many of them are made before the power may go, by seed.
    before: fn(u64) -> usize,
    /// How many are made after that.
    count: usize,
}

impl Workload {
    fn new(features: &str, operations: fn(u64, u64) -> Operations) -> Self {
        Self {
            make: Make::Ext4(small().args(["-J", "size=1"]).features(features)),
            journal: true,
            how: How::Ext4(how()),
            whole_bytes: WHOLE_BYTES,
            workers: 1,
            interrupted: false,
            holds: false,
            operations,
            before: |_| 0,
            count: 120,
        }
    }
}

fn small() -> Mke2fs {
    Mke2fs::new("ext4", 16).block_bytes(1024).inodes(4096)
}

/// How ext4 is written to: commits come only when a thread asks for them, so that a seed leads to the same requests.
fn how() -> WriteOptions {
    WriteOptions { commit_seconds: 3600, ..WriteOptions::default() }
}

const fn abilities() -> Abilities {
    Abilities { extents: true, shares: false, block_bytes: 1024, value_max_bytes: 700, reach_bytes: 40_000 }
}

fn everything(seed: u64, number: u64) -> Operations {
    Box::new(Worker::new(seed, number, abilities()))
}

/// Changes of one kind, with files for them, of which one is made durable now and then.
fn only(seed: u64, number: u64, of: fn(&Operation) -> bool) -> Operations {
    among(Worker::new(seed, number, abilities()), of)
}

/// Those of a worker's changes that are of one kind, with files for them.
fn among(worker: Worker, of: fn(&Operation) -> bool) -> Operations {
    let mut worker =
        worker.filter(move |operation| matches!(operation, Operation::Create { .. }) || of(operation));
    let mut newest = None;
    Box::new((1_u64..).map_while(move |n| match newest.take_if(|_| n.is_multiple_of(SYNC_EVERY)) {
        Some(path) => Some(Operation::Sync { path }),
        None => worker.next().inspect(|operation| {
            if let Operation::Create { path } = operation {
                newest = Some(path.clone());
            }
        }),
    }))
}

fn mount(device: Device, how: How) -> (Arc<dyn FileSystem>, Arc<Vfs>) {
    let fs = how.open(device).unwrap();
    let vfs = Vfs::new(Arc::clone(&fs), VfsOptions::default());
    (fs, vfs)
}

/// The device as a crash in the midst of our recovery leaves it, after any request until it is closed.
fn crash_again(device: &Device, workload: &Workload, fate: u64) -> Device {
    let recorder = Arc::new(Recorder::new(Arc::clone(device)));
    let (fs, vfs) = mount(Arc::clone(&recorder) as Device, workload.how);
    drop(vfs);
    fs.close().unwrap();
    let recording = recorder.recording();
    let cut = fate.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    let cut = cut as usize % (recording.events().len() + 1);
    recording.crash_in_sectors(cut, fate, workload.whole_bytes).unwrap().0
}

/// One crash.
struct Trial<'a> {
    history: &'a History,
    workload: &'a Workload,
    /// Requests that had reached the device.
    cut: usize,
    device: Device,
    scratch: &'a Path,
}

impl Trial<'_> {
    /// Recovers with the journal, both ways.
    fn recover(&self) -> Result<(), String> {
        let kernels = self.scratch.join("kernels");
        save_device(&*self.device, &kernels).unwrap();

        let (fs, vfs) = mount(Arc::clone(&self.device), self.workload.how);
        self.history.check(self.cut, &vfs).map_err(|why| format!("our recovery: {why}"))?;
        let found = look(&vfs, None);
        drop(vfs);
        fs.close().unwrap();
        let ours = self.scratch.join("ours");
        save_device(&*self.device, &ours).unwrap();
        let how = self.workload.how;
        how.check(&ours).map_err(|why| format!("after our recovery: {why}"))?;

        LoopMount::new(&kernels, how.kind(), MountMode::ReadWrite, how.mounted())
            .and_then(LoopMount::unmount)
            .map_err(|error| format!("the kernel's recovery: {error}"))?;
        how.check(&kernels).map_err(|why| format!("after the kernel's recovery: {why}"))?;
        let by_kernel = look(&how.read(&kernels), None);
        if by_kernel != found {
            let differ = differences(&by_kernel.names, &found.names);
            return Err(format!("the kernel recovers something else: {differ:#?}"));
        }
        Ok(())
    }

    /// There is no journal: e2fsck mends what is there.
    fn mend(&self) -> Result<(), String> {
        let mended = self.scratch.join("mended");
        save_device(&*self.device, &mended).unwrap();
        let run = Tool::new("e2fsck").args(["-f", "-y"]).arg(&mended).accept(&[0, 1]).run();
        run.map_err(|error| error.to_string())?;
        self.workload.how.check(&mended).map_err(|why| format!("e2fsck a second time: {why}"))?;
        self.history.check_what_was_durable(self.cut, &self.workload.how.read(&mended))
    }
}

fn survives(workload: &Workload, crashes: u64) {
    let first = number("UNDERCROFT_SEED").unwrap_or(1);
    let wanted = number("UNDERCROFT_CRASHES");
    let crashes = wanted.unwrap_or(crashes);
    let image = workload.make.make().unwrap();
    let seeds = if number("UNDERCROFT_SEED").is_some() { 1 } else { crashes.div_ceil(CRASHES_A_SEED) };
    let (tried, tried_again) = (AtomicU64::new(0), AtomicU64::new(0));
    for seed in first..first + seeds {
        let history = work(image.path(), seed, workload);
        let cuts = history.cuts(seed, crashes.div_ceil(seeds), wanted.is_some());
        let requests = history.recording.events().len();
        let try_some = |offset| {
            let scratch = Scratch::new("crash").unwrap();
            for (crash, &cut) in cuts.iter().enumerate().skip(offset).step_by(AT_ONCE) {
                let fate = seed << 20 | crash as u64;
                let (mut device, _) =
                    history.recording.crash_in_sectors(cut, fate, workload.whole_bytes).unwrap();
                let again = [CUT_AGAIN_EVERY, 2 * CUT_AGAIN_EVERY].map(|every| crash.is_multiple_of(every));
                let again = if workload.journal { again.iter().filter(|&&again| again).count() } else { 0 };
                for time in 0..again {
                    device = crash_again(&device, workload, fate << 2 | time as u64);
                    tried_again.fetch_add(1, Ordering::Relaxed);
                }
                let trial = Trial { history: &history, workload, cut, device, scratch: scratch.path() };
                let outcome = if workload.journal { trial.recover() } else { trial.mend() };
                if let Err(why) = outcome {
                    panic!(
                        "UNDERCROFT_SEED={seed}, crash {crash} after {cut} of {requests} requests, and {again} in the \
                         recovery: {why}"
                    );
                }
                tried.fetch_add(1, Ordering::Relaxed);
            }
        };
        thread::scope(|scope| {
            for offset in 0..AT_ONCE {
                scope.spawn(move || try_some(offset));
            }
        });
    }
    let (tried, again) = (tried.into_inner(), tried_again.into_inner());
    eprintln!("{tried} crashes with {seeds} seeds and {again} in recoveries, all recovered from");
}

#[test]
fn with_an_orphan_file() {
    survives(&Workload::new("orphan_file", everything), 40);
}

#[test]
fn with_an_orphan_list_and_no_checksums() {
    survives(&Workload::new("^orphan_file,^metadata_csum,^64bit", everything), 20);
}

#[test]
fn with_an_orphan_list_beside_an_orphan_file() {
    let workload = Workload::new("orphan_file", everything);
    let how = How::Ext4(WriteOptions { orphans: OrphanForm::List, ..how() });
    survives(&Workload { how, holds: true, ..workload }, 15);
}

#[test]
fn with_indirect_blocks() {
    let operations = |seed, number| -> Operations {
        Box::new(Worker::new(seed, number, Abilities { extents: false, ..abilities() }))
    };
    survives(&Workload::new("^extent,^64bit", operations), 20);
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
    survives(&Workload::new("orphan_file", operations), 15);
}

#[test]
fn appends() {
    let operations =
        |seed, number| only(seed, number, |operation| matches!(operation, Operation::Append { .. }));
    survives(&Workload::new("orphan_file", operations), 15);
}

#[test]
fn overwrites() {
    let operations =
        |seed, number| only(seed, number, |operation| matches!(operation, Operation::Write { .. }));
    survives(&Workload::new("orphan_file", operations), 15);
}

#[test]
fn overwrites_by_way_of_the_journal() {
    let operations =
        |seed, number| only(seed, number, |operation| matches!(operation, Operation::Write { .. }));
    let workload = Workload::new("orphan_file", operations);
    let how = How::Ext4(WriteOptions { journaled_overwrites: true, ..how() });
    survives(&Workload { how, ..workload }, 15);
}

#[test]
fn truncation_with_discards() {
    let operations = |seed, number| {
        only(seed, number, |operation| {
            matches!(
                operation,
                Operation::Truncate { .. } | Operation::Append { .. } | Operation::Unlink { .. }
            )
        })
    };
    let workload = Workload::new("orphan_file", operations);
    let how = How::Ext4(WriteOptions { discard: true, ..how() });
    survives(&Workload { how, ..workload }, 15);
}

#[test]
fn changes_of_space() {
    let operations = |seed, number| {
        only(seed, number, |operation| {
            matches!(operation, Operation::Space { .. } | Operation::Append { .. })
        })
    };
    survives(&Workload::new("orphan_file", operations), 15);
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
    survives(&Workload::new("orphan_file", operations), 15);
}

/// Names that make one directory grow, and what is done of it before power is lost.
fn growing(seed: u64, number: u64) -> Operations {
    let path =
        move |n: u64| format!("worker-{number}/{seed}-{n:-<width$}", width = 60 + (n * 37 % 180) as usize);
    Box::new((1..).map(move |n| match n % 40 {
        39 => Operation::Sync { path: path(1) },
        17 => Operation::Unlink { path: path(n - 10) },
        _ => Operation::Create { path: path(n) },
    }))
}

fn growing_before(seed: u64) -> usize {
    (seed * 331 % 2400) as usize
}

/// A directory's index gets its second level at some 400 of these names.
#[test]
fn a_directory_that_grows() {
    survives(&Workload { before: growing_before, ..Workload::new("orphan_file", growing) }, 15);
}

#[test]
fn files_that_are_open_without_a_name() {
    let operations = |seed, number| {
        only(seed, number, |operation| {
            matches!(
                operation,
                Operation::Unlink { .. }
                    | Operation::Rename { .. }
                    | Operation::Append { .. }
                    | Operation::SetXattr { .. }
            )
        })
    };
    for features in ["orphan_file", "^orphan_file"] {
        survives(&Workload { holds: true, ..Workload::new(features, operations) }, 10);
    }
}

#[test]
fn commits_in_the_middle_of_changes() {
    survives(&Workload { interrupted: true, holds: true, ..Workload::new("orphan_file", everything) }, 15);
    survives(&Workload { interrupted: true, ..Workload::new("^orphan_file", everything) }, 10);
}

#[test]
fn several_threads() {
    survives(&Workload { workers: 3, holds: true, ..Workload::new("orphan_file", everything) }, 15);
    survives(&Workload { workers: 3, interrupted: true, ..Workload::new("^orphan_file", everything) }, 10);
}

#[test]
fn without_a_journal() {
    let make = Make::Ext4(small().features("^has_journal"));
    survives(&Workload { make, journal: false, ..Workload::new("", everything) }, 40);
}
