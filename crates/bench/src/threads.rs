//! Measuring a filesystem of ours: the workers are threads above one `Vfs`.
//!
//! A worker's histogram and counters are its thread's own until it ends, so workers share nothing but what is
//! measured. Everybody says through a channel to be ready, or goes without a word; then the start is given, for which
//! all wait. A panic in the filesystem under test therefore ends the measurement, and nobody waits for ever.

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, ScopedJoinHandle};

use undercroft_sync::{WaitQueue, stats};
use undercroft_vfs::{Credentials, DirOffset, FileSystem, NewObject, Node, RenameFlags, Vfs, VfsOptions};

use crate::directory::Directory;
use crate::outcome::Measured;
use crate::script::make_standing_names;
use crate::usage::resident_bytes;
use crate::worker::{change, work};
use crate::{BenchError, Job};

/// Set once memory was measured: what a later measurement allocates comes out of what an earlier one gave back, so that
/// the process does not grow by it.
static GROWN: AtomicBool = AtomicBool::new(false);

/// A directory of a filesystem in this process.
struct VfsDirectory {
    vfs: Arc<Vfs>,
    node: Arc<Node>,
    who: Credentials,
}

/// The start that workers wait for.
#[derive(Default)]
struct Start {
    given: AtomicBool,
    waiting: WaitQueue,
}

impl VfsDirectory {
    fn new(fs: Arc<dyn FileSystem>, plain: bool) -> Result<Self, BenchError> {
        let options = VfsOptions { parallel_directory_operations: !plain, ..VfsOptions::default() };
        let (vfs, who) = (Vfs::new(fs, options), Credentials::root());
        let node = vfs
            .root()
            .and_then(|root| vfs.create(&who, &root, b"bench", &NewObject::directory(0o755)))
            .map_err(|source| BenchError::Vfs { what: "make a directory", source })?;
        Ok(Self { vfs, node, who })
    }
}

impl Directory for VfsDirectory {
    fn create(&self, name: &[u8]) -> Result<(), BenchError> {
        let made = self.vfs.create(&self.who, &self.node, name, &NewObject::file(0o644));
        made.map(drop).map_err(|source| BenchError::Vfs { what: "create a file", source })
    }

    fn unlink(&self, name: &[u8]) -> Result<(), BenchError> {
        let removed = self.vfs.unlink(&self.who, &self.node, name);
        removed.map_err(|source| BenchError::Vfs { what: "unlink a file", source })
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), BenchError> {
        let renamed = self.vfs.rename(&self.who, (&self.node, from), (&self.node, to), RenameFlags::empty());
        renamed.map_err(|source| BenchError::Vfs { what: "rename a file", source })
    }

    fn stat(&self, name: &[u8]) -> Result<(), BenchError> {
        let found = self.vfs.lookup(&self.node, name);
        let node = found.map_err(|source| BenchError::Vfs { what: "look a file up", source })?;
        std::hint::black_box(node.attr());
        Ok(())
    }

    fn list(&self) -> Result<u64, BenchError> {
        let mut found = 0;
        let listed = self.node.read_dir(DirOffset::default(), &mut |entry| {
            std::hint::black_box(entry.name);
            found += 1;
            ControlFlow::Continue(())
        });
        listed.map_err(|source| BenchError::Vfs { what: "list the files", source })?;
        Ok(found)
    }
}

impl Start {
    /// Says to be ready and waits; in a process of one's own the start is always given.
    fn wait(&self, ready: mpsc::Sender<()>) -> bool {
        // Received until the last sender is gone, so it cannot fail.
        let _ = ready.send(());
        drop(ready);
        self.waiting.wait(|| self.given.load(Ordering::Acquire));
        true
    }

    fn give(&self) {
        self.given.store(true, Ordering::Release);
        self.waiting.wake_all();
    }
}

/// Measures once.
pub(crate) fn run(job: &Job, fs: Arc<dyn FileSystem>, plain: bool) -> Result<Measured, BenchError> {
    let dir = VfsDirectory::new(fs, plain)?;
    make_standing_names(job.workload, &dir)?;
    let (start, stop) = (Start::default(), AtomicBool::new(false));
    let (ready, all_ready) = mpsc::channel();
    let threads = job.threads.get();
    thread::scope(|scope| {
        let (dir, start, stop) = (&dir, &start, &stop);
        let worker = |index| {
            let ready = ready.clone();
            scope.spawn(move || work(dir, job.workload, index, job.ops.get(), || start.wait(ready)))
        };
        let workers: Vec<_> = (0..threads).map(worker).collect();
        let changer = job.workload.has_changer().then(|| {
            let ready = ready.clone();
            let stop = || stop.load(Ordering::Relaxed);
            scope.spawn(move || change(dir, job.workload, threads, || start.wait(ready), stop))
        });
        drop(ready);
        // Ends when everybody has said it, or has gone.
        all_ready.iter().for_each(drop);

        let before = if GROWN.swap(true, Ordering::Relaxed) { None } else { resident_bytes() };
        if job.locks {
            stats::reset();
            stats::enable();
        }
        start.give();
        // A panic is passed on when nobody works any more.
        let ended: Vec<_> = workers.into_iter().map(ScopedJoinHandle::join).collect();
        if job.locks {
            stats::disable();
        }
        let after = resident_bytes();
        stop.store(true, Ordering::Relaxed);
        changer.map_or(Ok(()), |changer| returned(changer.join()))?;
        let sheets =
            ended.into_iter().map(returned).filter_map(Result::transpose).collect::<Result<_, _>>()?;
        Ok(Measured {
            sheets,
            grown_bytes: before.zip(after).map(|(before, after)| after.saturating_sub(before)),
            locks: job.locks.then(stats::report),
        })
    })
}

/// What a thread returned; its panic is ours.
fn returned<T>(ended: thread::Result<T>) -> T {
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::num::{NonZeroU32, NonZeroU64};

    use super::*;
    use crate::{Outcome, Target, Workload, measure};

    fn measured(workload: Workload, target: &str, ops: u64, locks: bool) -> Outcome {
        let job = Job {
            workload,
            target: Target::parse(OsStr::new(target)).unwrap(),
            threads: NonZeroU32::new(3).unwrap(),
            ops: NonZeroU64::new(ops).unwrap(),
            locks,
        };
        measure(&job, &|_| panic!("no process is needed")).unwrap()
    }

    #[test]
    fn every_workload_runs_in_both_forms() {
        for target in ["tmpfs:", "tmpfs:plain"] {
            for workload in Workload::ALL {
                let ops = if workload == Workload::ReaddirStorm { 5 } else { 2000 };
                let outcome = measured(workload, target, ops, false);
                assert!(outcome.ops_per_second > 0.0 && outcome.locks.is_none(), "{outcome:?}");
                assert!(outcome.latency_us.p50 <= outcome.latency_us.p99, "{outcome:?}");
                assert!(outcome.latency_us.p99 <= outcome.latency_us.max, "{outcome:?}");
                assert_eq!(outcome.growth.is_some(), workload == Workload::CreateMany);
            }
        }
    }

    /// One test, since the counters are the process's.
    #[test]
    fn the_lock_report_tells_the_two_forms_apart() {
        let taken = |target, class| {
            let locks = measured(Workload::CreateUnlink, target, 2000, true).locks.unwrap();
            let rows = locks.iter().filter(|row| row.class == class && row.mode == "exclusive");
            rows.map(|row| row.acquisitions).sum::<u64>()
        };
        // Three workers, each with two changes an operation. Other tests may take some more meanwhile.
        assert!(taken("tmpfs:", "name") >= 12_000);
        assert!(taken("tmpfs:plain", "directory") >= 12_000);
    }
}
