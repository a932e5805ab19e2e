//! The blocks that are reserved for a file and not in its map yet.
//!
//! They are held from the moment a write is prepared until the write is finished, in memory only: after a crash they are
//! free. A growing file gets more than was asked for (speculative preallocation), so that small writes to it lie in large
//! extents even while other files grow too. The surplus is freed when the last user of the file goes, when its size is
//! set, and when space runs short.
//!
//! A write in flight was prepared and not finished. It is known by its thread, which has one at a time. Until it ends, no
//! piece that it touches is freed, also where another write prepared it. It owns what finishing may need:
//!
//! - free blocks for the map, reserved ([`MapReservation`]), so that finishing does not fail for want of space after the bytes
//!   were written;
//! - for a write to shared blocks, the blocks that will take their place. They are this write's alone and end with it:
//!   blocks of a write that failed never come into the map.
//!
//! A write that was neither finished nor cancelled ends when its thread prepares the next one, or when a thread that holds
//! the inode's state exclusively clears the window.

use std::ops::Range;
use std::sync::Arc;

use undercroft_vfs::{Error, Result};

use crate::alloc::{Allocator, Goal, Held};
use crate::format::FsBlock;
use crate::transaction::Handle;
use crate::volume::Volume;

/// Pieces without a write under way that are kept at most.
const PIECES_MAX: usize = 64;
/// A growing file reserves at most this part of the free blocks ahead.
const PART_OF_FREE: u64 = 64;

#[derive(Debug, Default)]
pub(super) struct Window {
    /// By rising file block; they do not overlap.
    pieces: Vec<Piece>,
    flights: Vec<Flight>,
    /// The end of the last write that was prepared.
    next: u64,
    /// Whether the file is in the [list](undercroft_diskfs::in_use::WindowList).
    pub(super) is_listed: bool,
}

#[derive(Debug)]
struct Piece {
    at: u64,
    blocks: Held,
}

impl Piece {
    fn end(&self) -> u64 {
        self.at + self.blocks.len()
    }
}

/// A write in flight.
#[derive(Debug)]
pub(super) struct Flight {
    thread: usize,
    pub(super) blocks: Range<u64>,
    pub(super) reserve: FlightSpace,
}

/// What a write in flight has for its end.
#[derive(Debug, Default)]
pub(super) struct FlightSpace {
    /// Blocks for the map.
    pub(super) spare: MapReservation,
    /// Blocks that take the place of shared ones, from the first of the write's on.
    pub(super) copies: Option<Held>,
}

/// Reserved free blocks for the map, wherever they lie. Dropping it frees them.
#[derive(Debug, Default)]
pub(super) struct MapReservation(Option<(Arc<Allocator>, u64)>);

impl MapReservation {
    /// Reserves `blocks`.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace).
    pub(super) fn new(allocator: &Arc<Allocator>, blocks: u64) -> Result<Self> {
        if blocks == 0 {
            return Ok(Self(None));
        }
        if allocator.reserve(blocks) {
            Ok(Self(Some((Arc::clone(allocator), blocks))))
        } else {
            Err(Error::NoSpace)
        }
    }

    /// Gives them to a handle.
    pub(super) fn lend(&mut self, handle: &Handle<'_>) {
        if let Some((_, blocks)) = self.0.take() {
            handle.add_space(blocks);
        }
    }

    /// Takes back what a handle has not used.
    pub(super) fn take_back(&mut self, allocator: &Arc<Allocator>, handle: &Handle<'_>) {
        let blocks = handle.space();
        if blocks > 0 && handle.use_space(blocks) {
            *self = Self(Some((Arc::clone(allocator), blocks)));
        }
    }
}

impl Drop for MapReservation {
    fn drop(&mut self) {
        if let Some((allocator, blocks)) = self.0.take() {
            allocator.unreserve(blocks);
        }
    }
}

impl Window {
    /// Blocks for the file blocks `wanted`, or for the first of them: where they begin and how many there are. The file
    /// has a hole there which ends at `hole_end`. A file that grows gets more, up to `ahead_max`. The caller
    /// [begins](Self::begin) the write with the lock still held.
    pub(super) fn prepare(
        &mut self,
        volume: &Volume,
        allocator: &Arc<Allocator>,
        wanted: Range<u64>,
        hole_end: u64,
        goal: Goal,
        ahead_max: u64,
    ) -> Result<(FsBlock, u64)> {
        let place = match self.find(wanted.start) {
            Ok(place) => place,
            Err(place) => {
                let room =
                    self.pieces.get(place).map_or(hole_end, |next| next.at.min(hole_end)) - wanted.start;
                // As much again as the file has.
                let grows = wanted.start == self.next && wanted.start > 0;
                let ahead = wanted.end.min(ahead_max).min(allocator.free_blocks() / PART_OF_FREE);
                let want = (wanted.end - wanted.start) + if grows { ahead } else { 0 };
                let goal = place
                    .checked_sub(1)
                    .map(|before| &self.pieces[before])
                    .filter(|before| before.end() == wanted.start)
                    .map_or(goal, |before| Goal {
                        block: FsBlock(before.blocks.first().0 + before.blocks.len()),
                        goes_on: true,
                        ..goal
                    });
                let blocks = allocator.hold(volume, goal, want.min(room))?;
                self.pieces.insert(place, Piece { at: wanted.start, blocks });
                place
            }
        };
        let piece = &self.pieces[place];
        let into = wanted.start - piece.at;
        let count = (piece.blocks.len() - into).min(wanted.end - wanted.start);
        self.next = wanted.start + count;
        Ok((FsBlock(piece.blocks.first().0 + into), count))
    }

    /// A write of this thread begins; an earlier one that never ended is over.
    pub(super) fn begin(&mut self, blocks: Range<u64>, reserve: FlightSpace) {
        let thread = undercroft_sync::thread_number();
        self.flights.retain(|flight| flight.thread != thread);
        self.flights.push(Flight { thread, blocks, reserve });
        if self.pieces.len() > PIECES_MAX {
            self.free_unused();
        }
    }

    /// What this thread's write has for its end, if it is the one from `at` on. Its blocks stay protected until it
    /// [ends](Self::end).
    pub(super) fn take_space(&mut self, at: u64) -> Option<FlightSpace> {
        let thread = undercroft_sync::thread_number();
        let flight =
            self.flights.iter_mut().find(|flight| flight.thread == thread && flight.blocks.start == at)?;
        Some(std::mem::take(&mut flight.reserve))
    }

    /// This thread's write is over.
    pub(super) fn end(&mut self) {
        let thread = undercroft_sync::thread_number();
        self.flights.retain(|flight| flight.thread != thread);
    }

    /// Where the first write in flight behind `at` begins.
    ///
    /// # Errors
    /// Where one ends that writes to the block `at`.
    pub(super) fn before_flights(&self, at: u64) -> std::result::Result<u64, u64> {
        if let Some(over) = self.flights.iter().find(|flight| flight.blocks.contains(&at)) {
            return Err(over.blocks.end);
        }
        let behind = self.flights.iter().map(|flight| flight.blocks.start).filter(|&start| start > at);
        Ok(behind.min().unwrap_or(u64::MAX))
    }

    /// How many writes are in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Takes the blocks for file blocks from `at` on, `most` at most, for good: where they begin and how many there
    /// are.
    pub(super) fn take(
        &mut self,
        allocator: &Allocator,
        handle: &Handle<'_>,
        at: u64,
        most: u64,
    ) -> Result<(FsBlock, u64)> {
        let Ok(mut place) = self.find(at) else {
            return Err(Error::InvalidArgument("the end of a write that was not prepared"));
        };
        if at > self.pieces[place].at {
            let before = &mut self.pieces[place];
            let blocks = before.blocks.split_off(at - before.at);
            place += 1;
            self.pieces.insert(place, Piece { at, blocks });
        }
        let piece = &mut self.pieces[place];
        let count = most.min(piece.blocks.len());
        // Nothing has changed if this fails.
        let first = allocator.take_held(handle, &mut piece.blocks, count)?;
        piece.at += count;
        if piece.blocks.len() == 0 {
            self.pieces.remove(place);
        }
        Ok((first, count))
    }

    /// Whether there is a surplus.
    pub(super) fn has_surplus(&self) -> bool {
        self.pieces.last().is_some_and(|last| last.end() > self.next)
    }

    /// Frees what has no write under way. `false` if there was nothing.
    pub(super) fn free_unused(&mut self) -> bool {
        let Self { pieces, flights, .. } = self;
        let before = pieces.len();
        pieces.retain(|piece| {
            flights.iter().any(|Flight { blocks, .. }| blocks.start < piece.end() && piece.at < blocks.end)
        });
        pieces.len() < before
    }

    /// Frees everything: no write is under way.
    pub(super) fn clear(&mut self) {
        *self = Self { is_listed: self.is_listed, ..Self::default() };
    }

    /// The piece in which a file block lies, or the place for one.
    fn find(&self, at: u64) -> std::result::Result<usize, usize> {
        let after = self.pieces.partition_point(|piece| piece.at <= at);
        match after.checked_sub(1) {
            Some(place) if at < self.pieces[place].end() => Ok(place),
            _ => Err(after),
        }
    }
}
