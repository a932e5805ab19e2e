//! The blocks that are reserved for a file and not in its map yet.
//!
//! They are reserved from the moment a write is prepared until the write is finished, in memory only: after a crash
//! they are free. A growing file gets more than was asked for (speculative preallocation), so that small writes to it
//! lie in large extents even while other files grow too. The surplus is freed when the last user of the file goes, when
//! its size is set, and when space runs short.
//!
//! Blocks in flight (prepared and not finished) are never freed while a write to them may be under way. A write that
//! fails is never finished; its blocks stay reserved until a thread holds the inode's state exclusively and clears the
//! window.

use std::ops::Range;
use std::sync::Arc;

use undercroft_vfs::{Error, Result};

use crate::alloc::{Allocator, Reservation};
use crate::numbers::FsBlock;
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
    in_flight: Vec<Range<u64>>,
    /// The end of the last write that was prepared.
    next: u64,
    /// Whether the file is in the [list](undercroft_diskfs::in_use::WindowList).
    pub(super) is_listed: bool,
}

#[derive(Debug)]
struct Piece {
    at: u64,
    blocks: Reservation,
}

impl Piece {
    fn end(&self) -> u64 {
        self.at + self.blocks.len()
    }
}

impl Window {
    /// Blocks for the file blocks `wanted`, or for the first of them: where they begin and how many there are. The file
    /// has a hole there which ends at `hole_end`. A file that grows gets more, up to `ahead_max`.
    pub(super) fn prepare(
        &mut self,
        volume: &Volume,
        allocator: &Arc<Allocator>,
        wanted: Range<u64>,
        hole_end: u64,
        goal: FsBlock,
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
                    .map_or(goal, |before| FsBlock(before.blocks.first().0 + before.blocks.len()));
                let blocks = allocator.reserve(volume, goal, want.min(room), 1)?;
                self.pieces.insert(place, Piece { at: wanted.start, blocks });
                place
            }
        };
        let piece = &self.pieces[place];
        let into = wanted.start - piece.at;
        let answer = (
            FsBlock(piece.blocks.first().0 + into),
            (piece.blocks.len() - into).min(wanted.end - wanted.start),
        );
        self.next = wanted.start + answer.1;
        self.in_flight.push(wanted.start..self.next);
        if self.pieces.len() > PIECES_MAX {
            self.free_unused();
        }
        Ok(answer)
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
        let first = allocator.take(handle, &mut piece.blocks, count)?;
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

    /// A write that was prepared from `at` on is finished.
    pub(super) fn finish(&mut self, at: u64) {
        if let Some(place) = self.in_flight.iter().position(|range| range.start == at) {
            self.in_flight.swap_remove(place);
        }
    }

    /// Frees what has no write under way. `false` if there was nothing.
    pub(super) fn free_unused(&mut self) -> bool {
        let Self { pieces, in_flight, .. } = self;
        let before = pieces.len();
        pieces
            .retain(|piece| in_flight.iter().any(|range| range.start < piece.end() && piece.at < range.end));
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
