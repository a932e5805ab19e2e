//! XFS images that Linux left dirty: copied at one moment while programs write, and after a forced shutdown, with and
//! without the log's memory written out. What we show of them, opened read-only, must be what the kernel shows after
//! its own recovery of another copy, and not one byte of the image may change. Then a copy is opened for writing and
//! written to (see `writing`).
//!
//! Fault model: the image is what had reached the device at one moment between two requests. In `torn` the last
//! records of the log are cut or damaged. Out of scope: requests that reach the device in another order than they were
//! sent. Needs root for the loop mounts.
//!
//! Linux 6.18 faults when it recovers a log with a directory block that lies in several extents. So a dirty image whose
//! directory blocks are larger than its filesystem blocks is never given to it; such images are compared with the tree
//! that was there (see `judge`).
//!
//! `UNDERCROFT_XFS_DIRTY` sets how many filesystems are made (10; there are 16 kinds), up to three images each; `UNDERCROFT_SEED`
//! is the first one's seed.

mod chains;
mod handover;
mod judge;
mod setup;
mod torn;
mod writing;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use judge::{Seen, judge};
use setup::{Bay, SETUPS, make_dirty, make_grown};
use writing::Written;

/// How many images of what kind there were.
#[derive(Debug, Default)]
struct Tally {
    images: u64,
    clean: u64,
    with_unfinished: u64,
    /// Blocks to be freed, changes of the reverse map, of reference counts, and of files' maps.
    unfinished: [usize; 4],
    /// The same where the image has been written to.
    finished: [usize; 4],
    unlinked: u64,
    refused: Vec<String>,
    written: u64,
    /// What is not written to, and how often, numbers left out.
    refused_to_write: BTreeMap<String, u64>,
}

impl Tally {
    fn add(&mut self, seen: Seen) {
        self.images += 1;
        let (recovery, written) = match seen {
            Seen::Refused(said) => return self.refused.push(said),
            Seen::Shown { recovery, written } => (recovery, written),
        };
        match recovery {
            None => self.clean += 1,
            Some(recovery) => {
                self.with_unfinished += u64::from(recovery.unfinished_steps() > 0);
                self.unlinked += recovery.unlinked_inodes() as u64;
                let add = |sums: &mut [usize; 4]| {
                    sums.iter_mut().zip(recovery.unfinished_by_kind()).for_each(|(sum, count)| *sum += count);
                };
                add(&mut self.unfinished);
                if matches!(written, Some(Written::Done)) {
                    add(&mut self.finished);
                }
            }
        }
        match written {
            None => {}
            Some(Written::Done) => self.written += 1,
            Some(Written::Refused(what)) => {
                let what = what.replace(|c: char| c.is_ascii_digit(), "");
                *self.refused_to_write.entry(what).or_default() += 1;
            }
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// Calls `work` with each seed, by as many threads as there are processors, gathers what it returns, and fails if it
/// fails with any.
fn each_seed<T: Send>(default: u64, work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let first = number("UNDERCROFT_SEED").unwrap_or(0);
    let end = first + number("UNDERCROFT_XFS_DIRTY").unwrap_or(default);
    let next = AtomicU64::new(first);
    let some_seeds = || {
        let mut done = Vec::new();
        while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&seed| seed < end) {
            done.push(catch_unwind(AssertUnwindSafe(|| work(seed))).map_err(|_| seed));
        }
        done
    };
    let done: Result<Vec<T>, u64> = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(some_seeds)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    done.unwrap_or_else(|seed| panic!("seed {seed} failed; see above"))
}

/// Filesystems by default.
const FILESYSTEMS: u64 = 10;

#[test]
fn what_is_shown_is_what_the_kernel_recovers() {
    let bay = Bay::new().unwrap();
    let seen = each_seed(FILESYSTEMS, |seed| {
        let setup = &SETUPS[(seed % SETUPS.len() as u64) as usize];
        let images =
            make_dirty(&bay, setup, seed).unwrap_or_else(|error| panic!("seed {seed} ({setup:?}): {error}"));
        let images = images.iter().enumerate();
        images
            .map(|(part, dirty)| judge(dirty, &format!("seed {seed}, image {part} ({})", setup.mkfs)))
            .collect::<Vec<Seen>>()
    });
    let mut tally = Tally::default();
    seen.into_iter().flatten().for_each(|seen| tally.add(seen));
    println!("{tally:?}");
    assert!(tally.clean * 4 < tally.images, "too few images needed any recovery: {tally:?}");
    assert!(tally.unlinked > 0, "no image has unlinked inodes: {tally:?}");
    assert!(tally.refused.is_empty(), "{tally:?}");
    // Some kinds are only read.
    assert!(tally.written * 5 > tally.images * 2, "too few images could be written to: {tally:?}");
    assert!(!tally.refused_to_write.keys().any(|what| what.contains("in the middle")), "{tally:?}");
}

#[test]
fn groups_that_only_the_log_has_are_shown() {
    let bay = Bay::new().unwrap();
    let seen = judge(&make_grown(&bay).unwrap(), "a filesystem that was growing");
    let Seen::Shown { recovery: Some(recovery), written: Some(Written::Done) } = seen else {
        panic!("it is refused, or clean, or not written to")
    };
    assert!(recovery.chunks > 0, "{recovery:?}");
}
