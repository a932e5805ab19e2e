//! How an array of parity is cut into the stripes of the cache. No I/O.
//!
//! A *row* is what [`ParityMap`] calls a stripe: one chunk on each member. A *stripe* here is the same piece of all
//! chunks of a row: as long as a chunk where chunks are short, otherwise a part of it, so that a stripe's buffers stay
//! within bounds. Stripes are numbered by where they lie on the members. A *column* is what a stripe has of one member:
//! first the data in the order of the array, then P, then Q; which member that is differs from row to row.

use std::ops::Range;

use crate::Geometry;
use crate::layout::ParityMap;
use crate::member::Role;

use super::pages::{MAX_PIECE_BYTES, PAGE_BYTES};

/// A piece longer than this gains nothing: the copying of 64 KiB takes far longer than the finding of a stripe.
const LONGEST_PIECE_BYTES: usize = 64 * 1024;
const _: () = assert!(LONGEST_PIECE_BYTES <= MAX_PIECE_BYTES);
/// A cache should have so many slots, even if pieces have to be shorter for that.
const WANTED_SLOTS: usize = 64;

/// See the module's description.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) map: ParityMap,
    /// Number of data columns.
    pub(super) data: usize,
    /// Number of parity columns.
    pub(super) parities: usize,
    pub(super) piece_bytes: usize,
    /// Bytes used of each member.
    pub(super) member_bytes: u64,
}

/// Bytes of a request that lie in one column of one stripe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment<'a> {
    pub(super) stripe: u64,
    pub(super) column: usize,
    /// From the beginning of the piece.
    pub(super) start: usize,
    pub(super) data: &'a [u8],
}

impl Segment<'_> {
    pub(super) fn range(&self) -> Range<usize> {
        self.start..self.start + self.data.len()
    }
}

impl Shape {
    /// The shape of a checked geometry of RAID4, 5 or 6, with pieces of so many bytes: a power of two of pages, and no
    /// longer than a chunk.
    pub(super) fn new(geometry: &Geometry, piece_bytes: usize) -> Self {
        let map = ParityMap::new(geometry);
        let data = map.data_members() as usize;
        let columns = geometry.members as usize;
        let member_bytes = geometry.member_bytes.iter().copied().min().unwrap_or(0);
        Self { map, data, parities: columns - data, piece_bytes, member_bytes }
    }

    /// How long pieces are best, in a cache of about so many bytes.
    pub(super) fn best_piece_bytes(geometry: &Geometry, cache_bytes: usize) -> usize {
        let columns = geometry.members as usize;
        let mut piece_bytes = (geometry.chunk_bytes as usize).min(LONGEST_PIECE_BYTES);
        while piece_bytes > PAGE_BYTES && cache_bytes / (columns * piece_bytes) < WANTED_SLOTS {
            piece_bytes /= 2;
        }
        piece_bytes
    }

    pub(super) fn columns(&self) -> usize {
        self.data + self.parities
    }

    pub(super) fn p_column(&self) -> usize {
        self.data
    }

    pub(super) fn q_column(&self) -> Option<usize> {
        (self.parities == 2).then_some(self.data + 1)
    }

    /// The stripe that holds a byte of the members' data areas.
    pub(super) fn stripe_at(&self, member_offset: u64) -> u64 {
        member_offset / self.piece_bytes as u64
    }

    /// Where a stripe begins in the members' data areas.
    pub(super) fn member_offset(&self, stripe: u64) -> u64 {
        stripe * self.piece_bytes as u64
    }

    pub(super) fn row(&self, stripe: u64) -> u64 {
        self.member_offset(stripe) / self.map.chunk_bytes()
    }

    pub(super) fn role(&self, stripe: u64, column: usize) -> Role {
        let row = self.row(stripe);
        if column < self.data {
            return self.map.data_role(row, column as u32);
        }
        match self.map.q_role(row) {
            Some(role) if column > self.data => role,
            _ => self.map.p_role(row),
        }
    }

    /// First byte of the array in a data column.
    pub(super) fn array_offset(&self, stripe: u64, column: usize) -> u64 {
        let row = self.row(stripe);
        let in_chunk = self.member_offset(stripe) - self.map.member_offset(row);
        self.map.array_offset(row, column as u32) + in_chunk
    }

    /// Cuts a write into what goes to each column of each stripe.
    pub(super) fn cut<'a>(&self, offset: u64, data: &'a [u8], segments: &mut Vec<Segment<'a>>) {
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let place = self.map.locate(at);
            let stripe = self.stripe_at(place.member_offset);
            let start = (place.member_offset - self.member_offset(stripe)) as usize;
            let (part, after) = rest.split_at(rest.len().min(self.piece_bytes - start));
            segments.push(Segment { stripe, column: place.index as usize, start, data: part });
            at += part.len() as u64;
            rest = after;
        }
    }

    /// About how many segments a write of so many bytes has.
    pub(super) fn segments_of(&self, len: usize) -> usize {
        len / self.piece_bytes + 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layout, Level, ParityLayout};

    fn geometry(level: Level, members: u32, chunk_bytes: u32) -> Geometry {
        Geometry {
            level,
            layout: Layout::Parity(ParityLayout::LeftSymmetric),
            members,
            chunk_bytes,
            member_bytes: vec![1 << 30; members as usize],
        }
    }

    #[test]
    fn pieces_are_short_enough_for_the_cache_and_no_longer_than_chunks() {
        let piece =
            |members, chunk, cache| Shape::best_piece_bytes(&geometry(Level::Raid5, members, chunk), cache);
        assert_eq!(piece(4, 512 << 10, 32 << 20), 64 << 10);
        assert_eq!(piece(4, 16 << 10, 32 << 20), 16 << 10);
        assert_eq!(piece(32, 512 << 10, 32 << 20), 16 << 10);
        assert_eq!(piece(4, 512 << 10, 0), 4 << 10);
    }

    #[test]
    fn what_is_cut_lies_where_the_map_puts_it_and_is_everything() {
        let shape = Shape::new(&geometry(Level::Raid6, 5, 256 << 10), 65536);
        let data: Vec<u8> = (0..3_000_000u32).map(|byte| (byte >> 9) as u8).collect();
        for (offset, len) in [(0, 3_000_000), (65535, 2), (123_457, 1), (262_143, 786_433), (1 << 20, 4096)] {
            let mut segments = Vec::new();
            shape.cut(offset, &data[..len], &mut segments);
            assert!(segments.len() <= shape.segments_of(len) + 1);
            let mut at = offset;
            for segment in segments {
                let place = shape.map.locate(at);
                let (stripe, column) = (segment.stripe, segment.column);
                assert_eq!(shape.member_offset(stripe) + segment.start as u64, place.member_offset);
                assert_eq!(shape.role(stripe, column), place.role);
                assert_eq!(shape.array_offset(stripe, column) + segment.start as u64, at);
                assert!(segment.range().end <= shape.piece_bytes);
                let from = (at - offset) as usize;
                assert_eq!(segment.data, &data[from..from + segment.data.len()]);
                at += segment.data.len() as u64;
            }
            assert_eq!(at, offset + len as u64);
        }
    }
}
