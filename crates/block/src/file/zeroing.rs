//! Giving space back and zeroing it without writing, where the kernel can.
//!
//! What a file refuses once it refuses always, so the answer is remembered and the call is spared. Both ways
//! leave zeroes behind, and neither changes the file's size.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::geometry::Kind;
use crate::Result;

/// What has been refused so far. No other memory is ordered by the flags: a thread that sees one late asks once more.
#[derive(Debug, Default)]
pub(super) struct Zeroing {
    no_punch: AtomicBool,
    no_zero_range: AtomicBool,
}

/// Whether a range has been zeroed or is still to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Yes,
    No,
}

impl Zeroing {
    /// Gives a range's space back, or does nothing where that is impossible.
    pub(super) fn punch(&self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        attempt(&self.no_punch, file, flags, offset, len).map(|_| ())
    }

    /// Zeroes a range without writing, if possible.
    pub(super) fn zero(&self, file: &File, kind: Kind, offset: u64, len: u64) -> io::Result<Done> {
        let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        match (attempt(&self.no_zero_range, file, flags, offset, len)?, kind) {
            (Done::Yes, _) => Ok(Done::Yes),
            // A hole in a file reads as zeroes; tmpfs has these and not the other.
            (Done::No, Kind::Regular) => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                attempt(&self.no_punch, file, flags, offset, len)
            }
            (Done::No, Kind::BlockDevice) => Ok(Done::No),
        }
    }
}

fn attempt(
    refused: &AtomicBool,
    file: &File,
    flags: FallocateFlags,
    offset: u64,
    len: u64,
) -> io::Result<Done> {
    if refused.load(Ordering::Relaxed) {
        return Ok(Done::No);
    }
    loop {
        return match fallocate(file, flags, offset, len) {
            Ok(()) => Ok(Done::Yes),
            Err(Errno::INTR) => continue,
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NODEV) => {
                refused.store(true, Ordering::Relaxed);
                Ok(Done::No)
            }
            // A block device that a mount has claimed: the kernel drops no cached blocks under it.
            Err(Errno::BUSY) => Ok(Done::No),
            Err(errno) => Err(errno.into()),
        };
    }
}

/// Zeroes a range by writing it, in pieces.
pub(super) fn by_writing(offset: u64, len: u64, write: impl Fn(u64, &[u8]) -> Result<()>) -> Result<()> {
    const PIECE: u64 = 1024 * 1024;
    let zeroes = vec![0; len.min(PIECE) as usize];
    let mut at = offset;
    while at < offset + len {
        let step = (offset + len - at).min(PIECE);
        write(at, &zeroes[..step as usize])?;
        at += step;
    }
    Ok(())
}
