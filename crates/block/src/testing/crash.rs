//! What is left of writes that were not flushed when power was lost.

use std::fmt;

use super::Event;
use crate::rng::Rng;
use crate::{BlockDevice, Result};

/// Writes are torn at multiples of this many bytes on a device of which nothing else is said.
pub(super) const SECTOR_BYTES: u32 = 512;

/// What became of the unflushed changes in a crash; prints what is needed to repeat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Decided what survives.
    pub seed: u64,
    /// Changes that a flush had made durable.
    pub flushed: usize,
    /// Unflushed changes that survived as a whole.
    pub kept: usize,
    /// Unflushed changes that survived in part.
    pub torn: usize,
    /// Unflushed changes that are gone.
    pub lost: usize,
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, flushed, kept, torn, lost } = self;
        write!(
            f,
            "crash with seed {seed}: {flushed} changes flushed, then {kept} kept, {torn} torn, {lost} lost"
        )
    }
}

/// Applies to `device` what survives of `unflushed`.
pub(super) fn apply_survivors<D: BlockDevice + ?Sized>(
    device: &D,
    flushed: usize,
    unflushed: &[Event],
    seed: u64,
    sector_bytes: u32,
) -> Result<Crash> {
    let mut rng = Rng::new(seed);
    // One in eight crashes loses everything and one keeps everything: with many changes chance alone would never
    // find these two, which are the likeliest in practice.
    let extreme = rng.below(8);
    let mut crash = Crash { seed, flushed, kept: 0, torn: 0, lost: 0 };
    for event in unflushed.iter().filter(|event| event.is_change()) {
        let fate = if extreme < 2 { extreme * 2 } else { rng.below(3) };
        match (fate, event) {
            (0, _) => crash.lost += 1,
            (1, Event::Write { offset, data })
                if crosses_sectors(*offset, data.len() as u64, u64::from(sector_bytes)) =>
            {
                crash.torn += 1;
                tear(device, *offset, data, sector_bytes, &mut rng)?;
            }
            _ => {
                crash.kept += 1;
                event.apply(device)?;
            }
        }
    }
    Ok(crash)
}

fn crosses_sectors(offset: u64, len: u64, sector: u64) -> bool {
    len > 0 && offset / sector != (offset + len - 1) / sector
}

/// Writes some of the sectors of a write.
fn tear<D: BlockDevice + ?Sized>(
    device: &D,
    offset: u64,
    data: &[u8],
    sector_bytes: u32,
    rng: &mut Rng,
) -> Result<()> {
    for part in crate::span::spans(offset, data.len() as u64, sector_bytes as usize) {
        let at = part.chunk * u64::from(sector_bytes) + part.start as u64;
        let start = (at - offset) as usize;
        if rng.below(2) == 0 {
            device.write_at(at, &data[start..start + part.len])?;
        }
    }
    Ok(())
}
