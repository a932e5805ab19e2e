//! What was done to a filesystem before power was lost, and what a crash may make of it.
//!
//! Each worker remembers how its own part of the tree looked after each of its changes, and how many requests had
//! reached the device by then. A crash leads back to a moment no older than the last one that was durable, and no newer
//! than the change that was under way.

use std::collections::{HashSet, VecDeque};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use undercroft_block::testing::{Event, Recorder, Recording};
use undercroft_block::{Access, Device, MemoryDevice};
use undercroft_oracle::operations::{Done, Hand, Operation, OurHand, Worker};
use undercroft_vfs::{Credentials, FileSystem, Follow, Vfs};

use super::tree::{SECTOR_BYTES, Seen, Tree, differences, look};
use super::{Operations, Workload, abilities, mount};

/// Files that stay open without a name, at most.
const HELD: usize = 12;

/// Longest wait in microseconds before another thread commits while a change is made.
const COMMIT_DELAY_US: u64 = 300;

/// What was done, and what it led to.
pub(super) struct History {
    pub(super) recording: Recording,
    /// Requests before the first change: everything older is durable.
    start: usize,
    workers: Vec<Told>,
    /// Whether commits came between changes only, so that each change is there whole or not at all.
    whole: bool,
}

/// One worker's story.
#[derive(Debug, Default)]
struct Told {
    /// Its tree before its first change and after each, with the number of requests at that time.
    moments: Vec<(usize, Tree)>,
    /// Changes after which everything before was durable, with the number of requests when that was certain.
    durable: Vec<(usize, usize)>,
    operations: Vec<Operation>,
}

/// Works, records, and closes nothing: the power may go at any time.
pub(super) fn work(base: &Path, seed: u64, workload: &Workload) -> History {
    let base: Device = Arc::new(MemoryDevice::from_bytes(std::fs::read(base).unwrap(), Access::ReadOnly));
    let recorder = Arc::new(Recorder::new(base));
    let (fs, vfs) = mount(Arc::clone(&recorder) as Device, workload.how);
    let hand = OurHand::new(&vfs);
    let ground = [Operation::Mkdir { path: "shared".to_owned() }].into_iter();
    for operation in ground.chain((0..workload.workers).map(Worker::ground)) {
        assert_eq!(hand.act(&operation), Ok(Done::Yes), "{operation}");
    }
    let mut all: Vec<_> = (0..workload.workers).map(|number| (workload.operations)(seed, number)).collect();
    for operation in all.iter_mut().flat_map(|operations| operations.take((workload.before)(seed))) {
        hand.act(&operation).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    fs.sync().unwrap();
    let start = recorder.recording().events().len();
    let workers = thread::scope(|scope| {
        let started: Vec<_> = (0..)
            .zip(all)
            .map(|(number, operations)| {
                let site = Site { recorder: &recorder, fs: &*fs, vfs: &vfs, workload, seed, number };
                scope.spawn(move || site.work(operations))
            })
            .collect();
        started.into_iter().map(|started| started.join().expect("a worker panicked")).collect()
    });
    let recording = recorder.recording();
    drop((hand, vfs));
    // Stops the threads; what they write after this moment is not in the recording.
    fs.close().unwrap();
    History { recording, start, workers, whole: workload.workers == 1 && !workload.interrupted }
}

/// Where a worker works.
struct Site<'a> {
    recorder: &'a Recorder,
    fs: &'a dyn FileSystem,
    vfs: &'a Arc<Vfs>,
    workload: &'a Workload,
    seed: u64,
    number: u64,
}

impl Site<'_> {
    fn work(&self, operations: Operations) -> Told {
        if !self.workload.interrupted {
            return self.make_changes(operations, |change| (change(), false));
        }
        thread::scope(|scope| {
            let (start, started) = mpsc::channel::<Duration>();
            let (end, ended) = mpsc::channel();
            scope.spawn(move || {
                for delay in started {
                    let begun = Instant::now();
                    while begun.elapsed() < delay {
                        std::hint::spin_loop();
                    }
                    self.fs.sync().unwrap();
                    if end.send(()).is_err() {
                        break;
                    }
                }
            });
            let mut delays = Worker::new(self.seed, u64::MAX, abilities());
            self.make_changes(operations, |change| {
                start.send(Duration::from_micros(delays.below(COMMIT_DELAY_US))).unwrap();
                let done = change();
                ended.recv().unwrap();
                (done, true)
            })
        })
    }

    /// Makes the changes one after the other, each by way of `during`, which says whether there was a commit after it
    /// had begun.
    fn make_changes(
        &self,
        operations: Operations,
        mut during: impl FnMut(&dyn Fn() -> Result<Done, String>) -> (Result<Done, String>, bool),
    ) -> Told {
        let requests = || self.recorder.recording().events().len();
        let whose = (self.workload.workers > 1).then_some(self.number);
        let hand = OurHand::new(self.vfs);
        let mut told = Told { moments: vec![(requests(), look(self.vfs, whose))], ..Told::default() };
        let mut held = VecDeque::new();
        for operation in operations.take(self.workload.count) {
            let loses = self.workload.holds.then(|| self.open_what_loses_a_name(&operation)).flatten();
            let (done, committed) = during(&|| hand.act(&operation));
            let done = done.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
            if let Some(file) = loses {
                // What becomes of it is not seen any more.
                let _ = file.append(&[0x5A; 3000]).unwrap();
                held.push_front(file);
                held.truncate(HELD);
            }
            told.moments.push((requests(), look(self.vfs, whose)));
            let newest = told.moments.len() - 1;
            if let Operation::Sync { path } = &operation
                && done == Done::Yes
            {
                let durable = told.last_change_of(path);
                told.durable.push((requests(), durable));
            }
            if committed {
                told.durable.push((requests(), newest - 1));
            }
            told.operations.push(operation);
        }
        told
    }

    /// The file whose last name a change takes.
    fn open_what_loses_a_name(&self, operation: &Operation) -> Option<undercroft_vfs::File> {
        let (Operation::Unlink { path } | Operation::Rename { to: path, exchange: false, .. }) = operation
        else {
            return None;
        };
        let caller = Credentials::root();
        let node = self.vfs.resolve(&caller, format!("/{path}").as_bytes(), Follow::NoFollow).ok()?;
        if let Operation::Rename { path, .. } = operation {
            // The one that replaces it must be there, and another file.
            let other = self.vfs.resolve(&caller, format!("/{path}").as_bytes(), Follow::NoFollow).ok()?;
            if other.kind() != node.kind() || other.ino() == node.ino() {
                return None;
            }
        }
        if node.attr().links > 1 {
            return None;
        }
        self.vfs.open_node_for_writing(&node).ok()
    }
}

impl History {
    /// Numbers of requests after which power is lost: `count` at random, and beside them just before and just after
    /// flushes, as many again, or all of them.
    pub(super) fn cuts(&self, seed: u64, count: u64, all_flushes: bool) -> Vec<usize> {
        let events = self.recording.events();
        let requests = events.len();
        let span = requests - self.start + 1;
        let random = (0..count).map(|crash| {
            let fate = (seed << 20 | crash).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
            self.start + fate as usize % span
        });
        let flushes: Vec<_> = (self.start..requests)
            .filter(|&at| matches!(events[at], Event::Flush { .. }))
            .flat_map(|at| [at, at + 1])
            .collect();
        let wanted = if all_flushes { flushes.len() } else { count as usize };
        let step = flushes.len().div_ceil(wanted.max(1)).max(1);
        random.chain(flushes.iter().copied().step_by(step)).collect()
    }

    /// Why the device cannot be what a crash after `requests` leaves.
    pub(super) fn check(&self, requests: usize, vfs: &Arc<Vfs>) -> Result<(), String> {
        self.each_part(vfs, |told, found| told.check(requests, found, self.whole))
    }

    /// Why what was durable has been lost, where changes may be there in part: of a file without later changes,
    /// everything but its name is as it was.
    pub(super) fn check_what_was_durable(&self, requests: usize, vfs: &Arc<Vfs>) -> Result<(), String> {
        let found = look(vfs, None);
        let found: HashSet<_> = found.sectors.iter().collect();
        for told in &self.workers {
            let moments = told.moments_after(requests);
            let (_, durable) = &told.moments[*moments.start()];
            for file in &durable.sectors {
                let since = &told.moments[moments.clone()];
                let alone = since.iter().all(|(_, tree)| tree.sectors.get(file.0) == Some(file.1));
                if alone && !found.contains(&file) {
                    return Err(format!("inode {} is lost since {moments:?}", file.0));
                }
            }
        }
        Ok(())
    }

    fn each_part(
        &self,
        vfs: &Arc<Vfs>,
        check: impl Fn(&Told, &Tree) -> Result<(), String>,
    ) -> Result<(), String> {
        (0..).zip(&self.workers).try_for_each(|(number, told)| {
            let found = look(vfs, (self.workers.len() > 1).then_some(number));
            check(told, &found).map_err(|why| format!("worker {number}: {why}\n{:#?}", told.operations))
        })
    }
}

impl Told {
    /// The moments that a crash after `requests` may lead back to.
    fn moments_after(&self, requests: usize) -> RangeInclusive<usize> {
        let oldest =
            self.durable.iter().filter(|(at, _)| *at <= requests).map(|durable| durable.1).max().unwrap_or(0);
        // The change that was under way then may be there already.
        let newest = self.moments.iter().position(|(at, _)| *at > requests);
        oldest..=newest.unwrap_or(self.moments.len() - 1)
    }

    fn check(&self, requests: usize, found: &Tree, whole: bool) -> Result<(), String> {
        let moments = self.moments_after(requests);
        let mut foreign = None;
        for at in moments.clone() {
            let half_done = if whole { HashSet::new() } else { self.changed_next(at) };
            if same_names(&self.moments[at].1, found, &half_done) {
                foreign = self.foreign_sector(moments.clone(), found, &half_done);
                if foreign.is_none() {
                    return Ok(());
                }
            }
        }
        if let Some((ino, at)) = foreign {
            return Err(format!("sector {at} of inode {ino} was never like this in the moments {moments:?}"));
        }
        let candidates = self.moments[moments.clone()].iter();
        let nearest = candidates.map(|(_, tree)| differences(&tree.names, &found.names)).min_by_key(Vec::len);
        Err(format!(
            "the tree is that of none of the moments {moments:?}: {:#?}",
            nearest.unwrap_or_default()
        ))
    }

    /// The moment after the last change of a file: what a sync of it makes durable, with everything before. A sync of
    /// a file without changes since the last commit need not commit anything.
    fn last_change_of(&self, path: &str) -> usize {
        let path = format!("/{path}");
        let at = |moment: usize| {
            let (_, tree) = &self.moments[moment];
            tree.names.get(&path).map(|seen| (seen, tree.sectors.get(&seen.ino)))
        };
        (1..self.moments.len()).rev().find(|&moment| at(moment) != at(moment - 1)).unwrap_or(0)
    }

    /// The files whose bytes the change after moment `at` changes: a commit may come in the middle of that.
    fn changed_next(&self, at: usize) -> HashSet<u64> {
        let Some((_, next)) = self.moments.get(at + 1) else { return HashSet::new() };
        let (_, tree) = &self.moments[at];
        tree.sectors
            .iter()
            .filter(|(ino, was)| next.sectors.get(ino) != Some(was))
            .map(|(ino, _)| *ino)
            .collect()
    }

    /// A sector that no moment shows, by inode and number.
    fn foreign_sector(
        &self,
        moments: RangeInclusive<usize>,
        found: &Tree,
        half_done: &HashSet<u64>,
    ) -> Option<(u64, usize)> {
        let candidates = &self.moments[moments];
        let whole = found.sectors.iter().filter(|(ino, _)| !half_done.contains(ino));
        let mut all =
            whole.flat_map(|(ino, sectors)| sectors.iter().enumerate().map(|(at, now)| (*ino, at, now)));
        // A write that makes a file longer may have reached its last sector before the size did: then there is what it wrote, up
        // to the old size, and such a sector none of the moments has.
        let size_of =
            |tree: &Tree, ino| tree.names.values().find(|seen| seen.ino == ino).map(|seen| seen.size);
        let is_cut = |ino, at: usize| {
            size_of(found, ino).is_some_and(|size| {
                let grows = || candidates.iter().any(|(_, tree)| size_of(tree, ino) > Some(size));
                size % SECTOR_BYTES as u64 != 0 && size / SECTOR_BYTES as u64 == at as u64 && grows()
            })
        };
        let is_foreign = |&(ino, at, now): &(u64, usize, &u64)| {
            let was = |tree: &Tree| tree.sectors.get(&ino).and_then(|was| was.get(at)) == Some(now);
            !candidates.iter().any(|(_, tree)| was(tree)) && !is_cut(ino, at)
        };
        all.find(is_foreign).map(|(ino, at, _)| (ino, at))
    }
}

/// Whether two trees are alike but for the size of some files.
fn same_names(tree: &Tree, found: &Tree, half_done: &HashSet<u64>) -> bool {
    let alike = |was: &Seen, is: &Seen| was == is || half_done.contains(&was.ino) && was.is_but_for_size(is);
    tree.names.len() == found.names.len()
        && tree.names.iter().zip(&found.names).all(|(was, is)| was.0 == is.0 && alike(was.1, is.1))
}
