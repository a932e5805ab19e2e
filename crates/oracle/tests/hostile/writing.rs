//! Damaged images that are written to: every change is made, refused or answered with a clear error, and soon. What is
//! half done when damage turns up ends the changes, the superblock says so, and what is left can be looked at.
//!
//! What is damaged, and how, stands in `damage`. Out of scope here: a device that fails.
//!
//! `UNDERCROFT_SEED` replays one damage and what is done to it, `UNDERCROFT_DAMAGED_WRITES` sets how many damaged images
//! are written to (400).

use crate::damage;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use undercroft_block::{Device, Overlay};
use undercroft_ext4::{Ext4, OpenOptions, State, Superblock, WriteOptions};
use undercroft_oracle::deeds::{Abilities, Deed, Done, Hand, OurHand, Worker};
use undercroft_vfs::{Error, FileSystem, SpaceChange, Vfs, VfsOptions};

use crate::damage::walk::{Outcome, walk};
use crate::damage::{Extent, Random, Victim, check_sentence, number_from_environment};

const IMAGES: u64 = 400;
/// More than the changes can miss, and seldom what keeps an image from being opened.
const DAMAGE: Extent = Extent { structures: 60, one_in_is_first: 200 };
/// Changes to what is new, and how many to what the image has come with each.
const DEEDS: usize = 60;
const OLD_TO_NEW: usize = 6;

/// What became of damaged images.
#[derive(Debug, Default)]
struct Tally {
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
    let tally = Tally::default();
    if let Some(seed) = number_from_environment("UNDERCROFT_SEED") {
        damage::one(&victims, seed, DAMAGE, |victim, device, random| write(victim, device, random, &tally));
        return;
    }
    let images = number_from_environment("UNDERCROFT_DAMAGED_WRITES").unwrap_or(IMAGES);
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&n| n < images) {
                    damage::one(&victims, seed, DAMAGE, |victim, device, random| {
                        write(victim, device, random, &tally);
                    });
                }
            });
        }
    });
    eprintln!("{images} damaged images: {tally:?}");
    // The damage must have got through to something, or this test shows nothing.
    for (what, count) in
        [("refused", tally.refused), ("hurt", tally.hurt), ("ended", tally.ended), ("unhurt", tally.unhurt)]
    {
        assert!(count.into_inner() > 0, "none of {images} images was {what}");
    }
}

/// Opens a damaged image, changes all it can, closes it and looks at what is left.
fn write(victim: &Victim, damaged: Device, random: &mut Random, tally: &Tally) {
    let device: Device = Arc::new(Overlay::new(damaged));
    let options = OpenOptions { buffer_bytes: 4 << 20, ..OpenOptions::default() };
    let fs = match Ext4::open(Arc::clone(&device), options, WriteOptions::default()) {
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
    for deed in deeds(victim, random) {
        if let Err(error) = hand.act(&deed) {
            check_sentence(error.strip_prefix(&format!("{deed}: ")).unwrap());
            hurt = true;
        }
    }
    let synced = fs.sync();
    let ended = match &synced {
        Ok(()) => false,
        Err(error) => {
            assert!(matches!(error, Error::TurnedReadOnly(_)), "{}: {error}", victim.name);
            let late = hand.act(&Deed::Mkdir { path: "late".to_owned() });
            assert_ne!(late, Ok(Done::Yes), "{}: changes have ended: {error}", victim.name);
            true
        }
    };
    drop((hand, vfs));
    let closed = fs.close();
    drop(fs);
    if let Err(error) = &closed {
        check_sentence(&error.to_string());
    }
    if ended {
        assert!(closed.is_err(), "{}: the failure was forgotten: {synced:?}", victim.name);
        let state = Superblock::read(&*device).unwrap().state();
        assert!(state.contains(State::ERRORS), "{}: the superblock says nothing of {synced:?}", victim.name);
    }
    match walk(device) {
        Outcome::Refused => assert!(closed.is_err(), "{}: what was closed well is refused", victim.name),
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

/// Changes to what the damaged tree has, between changes that make and use something new.
fn deeds(victim: &Victim, random: &mut Random) -> Vec<Deed> {
    let abilities =
        Abilities { extents: true, block_bytes: 1024, value_max_bytes: 3000, reach_bytes: 300_000 };
    let mut worker = Worker::new(random.below(1 << 40), 0, abilities);
    let mut deeds = vec![Deed::Mkdir { path: "shared".to_owned() }, Worker::ground(0)];
    for _ in 0..DEEDS {
        deeds.extend(worker.next());
        deeds.extend((0..OLD_TO_NEW).map(|_| change_of_old(victim, random)));
    }
    deeds
}

fn change_of_old(victim: &Victim, random: &mut Random) -> Deed {
    let mut any = || victim.paths[random.below(victim.paths.len() as u64) as usize].clone();
    let (path, other) = (any(), any());
    let beside = format!("{other}-{}", random.below(100));
    let (offset, len) = (random.below(300_000), 1 + random.below(30_000));
    let space = |change| Deed::Space {
        path: path.clone(),
        change,
        offset: offset / 4096 * 4096,
        len,
        keep_size: false,
    };
    match random.below(16) {
        0 => Deed::Create { path: beside },
        1 => Deed::Create { path: format!("{path}/new-{}", random.below(100)) },
        2 => Deed::Mkdir { path: format!("{path}/new-{}", random.below(100)) },
        3 => Deed::Link { path, to: beside },
        4 | 5 => Deed::Unlink { path },
        6 => Deed::Rmdir { path },
        7 => Deed::Rename { path, to: beside, exchange: false },
        8 => Deed::Rename { path, to: other, exchange: random.below(2) == 0 },
        9 => Deed::Write { path, offset, len: len as usize, seed: offset },
        10 => Deed::Append { path, len: len as usize, seed: offset },
        11 => Deed::Truncate { path, size: offset >> random.below(20) },
        12 => space(SpaceChange::PunchHole),
        13 => space(SpaceChange::Allocate),
        14 => Deed::SetXattr {
            path,
            name: format!("user.{}", len % 3),
            value: vec![1; random.below(2000) as usize],
        },
        _ => Deed::Chmod { path, mode: (len % 512) as u16 },
    }
}
