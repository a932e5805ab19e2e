//! Damaged images that are written to: every change is made, refused or answered with a clear error, and soon. What is
//! half done when damage turns up ends the changes, the superblock says so, and what is left can be looked at.
//!
//! What is damaged, and how, stands in `damage`; images of XFS are in `xfs_writing`. Out of scope here: a device that
//! fails.
//!
//! `UNDERCROFT_SEED` replays one damage and what is done to it, `UNDERCROFT_DAMAGED_WRITES` sets how many damaged images
//! are written to (400).

use crate::damage;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use undercroft_block::{Device, Overlay};
use undercroft_ext4::{Ext4, OpenOptions, State, Superblock, WriteOptions};
use undercroft_oracle::operations::{Done, Hand, Operation, OurHand};
use undercroft_vfs::{Error, FileSystem, Result, Vfs, VfsOptions};

use crate::damage::changes::operations;
use crate::damage::walk::{Outcome, walk};
use crate::damage::{Extent, check_sentence, number_from_environment};
use crate::reading::each_seed;

const IMAGES: u64 = 400;
/// More than the changes can miss, and seldom what keeps an image from being opened.
const DAMAGE: Extent = Extent { structures: 60, one_in_is_first: 200 };
/// Changes to what is new, with some to what the image came with after each.
const OPERATIONS: usize = 60;

/// What became of damaged images.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    refused: AtomicU64,
    /// Changes failed, and later ones could be made.
    hurt: AtomicU64,
    /// The changes ended.
    ended: AtomicU64,
    unhurt: AtomicU64,
    /// Errors met by looking at what was left.
    found_later: AtomicU64,
}

pub(crate) fn damaged_images_are_written_to_or_end_with_a_clear_error() {
    let victims = damage::victims();
    every_seed(IMAGES, |seed, tally| {
        damage::one(&victims, seed, DAMAGE, |victim, device, random| {
            let device: Device = Arc::new(Overlay::new(device));
            let options = OpenOptions { buffer_bytes: 4 << 20, ..OpenOptions::default() };
            let opened = Ext4::open(Arc::clone(&device), options, WriteOptions::default());
            let judge = |ended: bool| {
                if ended {
                    let state = Superblock::read(&*device).unwrap().state();
                    assert!(state.contains(State::ERRORS), "{}: the superblock says nothing", victim.name);
                }
                walk(Arc::clone(&device))
            };
            write(victim.name, opened, &operations(&victim.paths, random, OPERATIONS), tally, judge);
        });
    });
}

/// Has each seed's damaged image written to, `images` of them by default, and judges what became of all.
pub(crate) fn every_seed(images: u64, work: impl Fn(u64, &Tally) + Sync) {
    let images = number_from_environment("UNDERCROFT_DAMAGED_WRITES").unwrap_or(images);
    let tally = Tally::default();
    if !each_seed(images, |seed| work(seed, &tally)) {
        return;
    }
    eprintln!("{images} damaged images: {tally:?}");
    // The damage must have got through to something, or this test shows nothing.
    for (what, count) in
        [("refused", tally.refused), ("hurt", tally.hurt), ("ended", tally.ended), ("unhurt", tally.unhurt)]
    {
        assert!(count.into_inner() > 0, "none of {images} images was {what}");
    }
}

/// Changes all it can of a damaged image that was opened, and closes it. `judge` looks at what is left, and is told whether
/// the changes ended.
pub(crate) fn write<F: FileSystem>(
    name: &str,
    opened: Result<Arc<F>>,
    operations: &[Operation],
    tally: &Tally,
    judge: impl FnOnce(bool) -> Outcome,
) {
    let fs = match opened {
        Ok(fs) => fs,
        Err(error) => {
            check_sentence(&error.to_string());
            tally.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
    };
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
    let hand = OurHand::new(&vfs);
    let mut hurt = false;
    for operation in operations {
        if let Err(error) = hand.act(operation) {
            check_sentence(error.strip_prefix(&format!("{operation}: ")).unwrap());
            hurt = true;
        }
    }
    let synced = fs.sync();
    let ended = match &synced {
        Ok(()) => false,
        Err(error) => {
            assert!(matches!(error, Error::TurnedReadOnly(_)), "{name}: {error}");
            let late = hand.act(&Operation::Mkdir { path: "late".to_owned() });
            assert_ne!(late, Ok(Done::Yes), "{name}: changes have ended: {error}");
            true
        }
    };
    drop((hand, vfs));
    let closed = fs.close();
    drop(fs);
    if let Err(error) = &closed {
        check_sentence(&error.to_string());
    }
    assert!(!ended || closed.is_err(), "{name}: the failure was forgotten: {synced:?}");
    match judge(ended) {
        Outcome::Refused => assert!(closed.is_err(), "{name}: what was closed well is refused"),
        Outcome::Walked { errors } => drop(tally.found_later.fetch_add(errors, Ordering::Relaxed)),
    }
    let outcome = if ended {
        &tally.ended
    } else if hurt {
        &tally.hurt
    } else {
        &tally.unhurt
    };
    outcome.fetch_add(1, Ordering::Relaxed);
}
