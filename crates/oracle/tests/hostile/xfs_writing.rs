//! Damaged images of XFS that are written to, as those of ext4 are in `writing`.
//!
//! The superblock of XFS has no place for "there were errors": what ended the changes leaves the log dirty, and the closing
//! fails.
//!
//! `UNDERCROFT_SEED` replays one damage and what is done to it, `UNDERCROFT_DAMAGED_WRITES` sets how many damaged images
//! are written to (120).

use std::sync::Arc;

use undercroft_block::{Device, Overlay};
use undercroft_xfs::{OpenOptions, WriteOptions, Xfs};

use crate::damage::changes::operations;
use crate::damage::check_sentence;
use crate::damage::walk::{Outcome, walk_all};
use crate::writing::{every_seed, write};
use crate::xfs::{Extent, Victim, one};

const IMAGES: u64 = 120;
/// More than the changes can miss, and seldom what keeps an image from being opened.
const DAMAGE: Extent = Extent { structures: 60, one_in_is_header: 200, one_in_is_log: 2000 };
/// Changes to what is new, with some to what the image came with after each.
const OPERATIONS: usize = 60;

pub(crate) fn damaged_images_are_written_to_or_end_with_a_clear_error(victims: &[Victim]) {
    every_seed(IMAGES, |seed, tally| {
        one(victims, seed, DAMAGE, |victim, damaged, random| {
            let device: Device = Arc::new(Overlay::new(damaged));
            let options = || OpenOptions { buffer_bytes: 4 << 20, ..OpenOptions::default() };
            let opened = Xfs::open(Arc::clone(&device), options(), WriteOptions::default());
            let judge = |_ended: bool| match Xfs::open_read_only(Arc::clone(&device), options()) {
                Ok(fs) => walk_all(fs, Ok(())),
                Err(error) => {
                    check_sentence(&error.to_string());
                    Outcome::Refused
                }
            };
            write(victim.name, opened, &operations(&victim.paths, random, OPERATIONS), tally, judge);
        });
    });
}
