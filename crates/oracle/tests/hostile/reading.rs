//! Damaged images: every answer must be data or a clear error, soon, and in little memory.
//!
//! What is damaged, and how, stands in `damage`. Each damaged image is opened, and everything in it is walked: names,
//! attributes, extended attributes, link targets, the map and the first bytes of every file. Out of scope: a device
//! that fails, or changes under the reader.
//!
//! `UNDERCROFT_SEED` replays one damage (the failure prints it), `UNDERCROFT_HOSTILE_IMAGES` sets how many
//! damaged images are made in all (5,000).

use crate::damage;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::damage::walk::{Outcome, walk};
use crate::damage::{Extent, number_from_environment};

const IMAGES: u64 = 5_000;
const DAMAGE: Extent = Extent { structures: 4, one_in_is_first: 8 };
const MEMORY_LIMIT_KIB: u64 = 256 * 1024;

pub(crate) fn damaged_images_are_answered_with_data_or_a_clear_error() {
    let victims = damage::victims();
    let try_one = |seed| damage::one(&victims, seed, DAMAGE, |_, damaged, _| walk(damaged));
    every_seed(try_one);
}

/// Has each seed's damaged image looked at, by all threads, and judges what came of all.
pub(crate) fn every_seed(try_one: impl Fn(u64) -> Outcome + Sync) {
    let images = number_from_environment("UNDERCROFT_HOSTILE_IMAGES").unwrap_or(IMAGES);
    // The damage must have got through to something, or this test shows nothing.
    each_of(images, try_one, |(refused, hurt, unhurt)| {
        assert!(refused > images / 100, "only {refused} of {images} images were refused at once");
        assert!(hurt > images / 10, "only {hurt} of {images} images showed an error in the walk");
        assert!(unhurt > images / 100, "only {unhurt} of {images} images were walked without an error");
    });
}

/// The same with so many seeds; `judge` gets how many images were refused, walked with errors, and without.
pub(crate) fn each_of(
    images: u64,
    try_one: impl Fn(u64) -> Outcome + Sync,
    judge: impl FnOnce((u64, u64, u64)),
) {
    let tally = Tally::default();
    if each_seed(images, |seed| tally.add(&try_one(seed))) {
        tally.report(images);
        judge(tally.get());
    }
}

/// Calls `work` with so many seeds, by all threads, or with the one that the environment says; whether with all of them.
/// Fails if that takes much memory.
pub(crate) fn each_seed(images: u64, work: impl Fn(u64) + Sync) -> bool {
    // From here on the peak is recounted: making the images does not belong to it.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before_kib = peak_memory_kib();
    let only = number_from_environment("UNDERCROFT_SEED");
    if let Some(seed) = only {
        work(seed);
    } else {
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&n| n < images)
                    {
                        work(seed);
                    }
                });
            }
        });
    }
    let grown_kib = peak_memory_kib() - before_kib;
    assert!(grown_kib < MEMORY_LIMIT_KIB, "work on damaged images took {grown_kib} KiB of memory");
    only.is_none()
}

#[derive(Default)]
struct Tally {
    refused: AtomicU64,
    hurt: AtomicU64,
    unhurt: AtomicU64,
}

impl Tally {
    fn add(&self, outcome: &Outcome) {
        let counter = match outcome {
            Outcome::Refused => &self.refused,
            Outcome::Walked { errors: 0 } => &self.unhurt,
            Outcome::Walked { .. } => &self.hurt,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> (u64, u64, u64) {
        let [refused, hurt, unhurt] =
            [&self.refused, &self.hurt, &self.unhurt].map(|counter| counter.load(Ordering::Relaxed));
        (refused, hurt, unhurt)
    }

    fn report(&self, images: u64) {
        let (refused, hurt, unhurt) = self.get();
        println!("{images} damaged images: {refused} refused, {hurt} walked with errors, {unhurt} without");
    }
}

/// The most memory that this process has had since the count began, in KiB.
fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
