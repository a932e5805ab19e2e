//! Writes to a stripe: whole, or in parts.
//!
//! A whole stripe goes from the caller's buffer to the members, and parity is computed from the same bytes: nothing is
//! read, nothing copied. Parts are put together in the stripe's buffer. In each row of pages that they touch, parity
//! comes about in the way that reads less of what is not in memory yet:
//!
//! - *read-modify-write* (rmw): the old bytes of what changes, and the old parity; parity changes by the difference;
//! - *reconstruct-write* (rcw): the data that does not change; parity is recomputed.
//!
//! Where pages that are needed cannot be read they are rebuilt first, so a degraded stripe needs no third way. Parity
//! whose member is missing is not computed.
//!
//! Writers that find the stripe owned hand over their bytes, in a copy that is small beside the price of going to sleep
//! (longer ones wait for their turn). The owner carries out all of them at once, as one write, unless there is a log.

use std::ops::Range;

use super::buffer::{Column, StripeBuffer};
use super::pages::{PAGE_BYTES, Pages};
use super::set::{Entry, Owner, Released};
use super::shape::Segment;
use super::slots::Content as _;
use super::work::Work;
use super::{ParityRaid, store};
use crate::Result;
use crate::parity;

/// Longer writes are not handed over.
const HANDED_BYTES: usize = 64 * 1024;

/// The bytes of a write that its thread has handed over.
pub(super) struct HandedWrite {
    bytes: Vec<u8>,
    /// Column, start and length of each part, in the order of the bytes.
    parts: Vec<(usize, usize, usize)>,
}

impl HandedWrite {
    /// `None` if it is too long.
    fn new(segments: &[Segment<'_>]) -> Option<Self> {
        let len: usize = segments.iter().map(|segment| segment.data.len()).sum();
        if len > HANDED_BYTES {
            return None;
        }
        let mut bytes = Vec::with_capacity(len);
        let mut parts = Vec::with_capacity(segments.len());
        for segment in segments {
            bytes.extend_from_slice(segment.data);
            parts.push((segment.column, segment.start, segment.data.len()));
        }
        Some(Self { bytes, parts })
    }

    fn segments(&self, stripe: u64) -> impl Iterator<Item = Segment<'_>> {
        let mut rest = &self.bytes[..];
        self.parts.iter().map(move |&(column, start, len)| {
            let (data, after) = rest.split_at(len);
            rest = after;
            Segment { stripe, column, start, data }
        })
    }
}

impl ParityRaid {
    /// Writes segments, stripe after stripe.
    pub(super) fn write_segments(&self, segments: &mut [Segment<'_>]) -> Result<()> {
        segments.sort_unstable_by_key(|segment| (segment.stripe, segment.column, segment.start));
        let mut groups = segments.chunk_by(|a, b| a.stripe == b.stripe).peekable();
        let mut owner = None;
        while let Some(group) = groups.next() {
            let next = groups.peek().map(|group| group[0].stripe);
            owner = self.write_stripe(owner, group, next)?;
        }
        Ok(())
    }

    /// Whether some member keeps a partial parity log.
    pub(super) fn has_logs(&self) -> bool {
        let lineup = self.shared.lineup();
        lineup.places.iter().filter_map(|place| place.member.as_ref()).any(|member| member.log().is_some())
    }

    fn is_whole(&self, segments: &[Segment<'_>]) -> bool {
        segments.len() == self.shape.data
            && segments.iter().enumerate().all(|(index, segment)| {
                segment.column == index && segment.data.len() == self.shape.piece_bytes
            })
    }

    /// Writes segments of one stripe, which `owner` has already if there is one. Returns the owner of the `next` one,
    /// if the slot went on to that.
    fn write_stripe<'a>(
        &'a self,
        owner: Option<Owner<'a, StripeBuffer>>,
        segments: &[Segment<'_>],
        next: Option<u64>,
    ) -> Result<Option<Owner<'a, StripeBuffer>>> {
        let stripe = segments[0].stripe;
        let whole = self.is_whole(segments);
        let hand_over = || if whole { None } else { HandedWrite::new(segments) };
        let mut owner = match owner.map_or_else(|| self.sets.enter(stripe, hand_over), Entry::Owner) {
            Entry::Done(answer) => return answer.map(|()| None),
            Entry::Owner(owner) => owner,
        };
        let mut work = Work::begin(&self.shared, &self.shape, stripe, &mut owner);
        let result = if whole { work.write_whole(segments) } else { work.write_parts(segments) };
        // What was written whole is not kept: there is nothing that it could spare.
        let keep = result.is_ok() && !whole;
        let next = self.leave(owner, stripe, keep, next.filter(|_| result.is_ok()));
        result.map(|()| next)
    }

    /// Gives a stripe back; before, carries out what others have handed over. Returns the owner of the `next` one, if
    /// the slot went on to that.
    pub(super) fn leave<'a>(
        &self,
        mut owner: Owner<'a, StripeBuffer>,
        stripe: u64,
        mut keep: bool,
        next: Option<u64>,
    ) -> Option<Owner<'a, StripeBuffer>> {
        loop {
            let handed = match owner.release(keep, next) {
                Released::Gone => return None,
                Released::Moved(owner) => return Some(owner),
                Released::More(again, handed) => {
                    owner = again;
                    handed
                }
            };
            let mut rest = &handed[..];
            keep = true;
            let mut answers = Vec::with_capacity(handed.len());
            while !rest.is_empty() {
                let mut work = Work::begin(&self.shared, &self.shape, stripe, &mut owner);
                let together = if work.logger().is_some() { 1 } else { rest.len() };
                let (now, later) = rest.split_at(together);
                let segments: Vec<_> = now.iter().flat_map(|handed| handed.work().segments(stripe)).collect();
                let result = work.write_parts(&segments);
                if result.is_err() {
                    // What is in the buffer is not what the members hold.
                    keep = false;
                    owner.forget();
                }
                for _ in now {
                    answers.push(match &result {
                        Ok(()) => Ok(()),
                        Err(error) => Err(store::copy_of(error)),
                    });
                }
                rest = later;
            }
            for (handed, answer) in handed.into_iter().zip(answers) {
                handed.answer(answer);
            }
        }
    }
}

impl Work<'_> {
    /// Writes all data of the stripe; `segments` are its columns in order.
    fn write_whole(&mut self, segments: &[Segment<'_>]) -> Result<()> {
        self.check_enough_targets()?;
        self.buffer.counts.whole += 1;
        let all = Pages::first(self.shape.piece_bytes / PAGE_BYTES);
        for (index, column) in self.buffer.columns.iter_mut().enumerate() {
            column.valid = Pages::NONE;
            column.dirty = all;
            column.covered = if index < self.shape.data { all } else { Pages::NONE };
        }
        let sources: Vec<&[u8]> = segments.iter().map(|segment| segment.data).collect();
        self.parity_of(&sources, 0..self.shape.piece_bytes);
        let logger = self.logger();
        let _logged = match &logger {
            Some(logger) => self.log(logger, all, Pages::NONE)?,
            None => None,
        };
        self.store(Some(segments))
    }

    /// Writes parts of the stripe; where they overlap, the later one is meant.
    fn write_parts(&mut self, segments: &[Segment<'_>]) -> Result<()> {
        self.check_enough_targets()?;
        let mut rows = Pages::NONE;
        for segment in segments {
            let column = &mut self.buffer.columns[segment.column];
            let pages = Pages::touched_by(segment.range());
            column.dirty |= pages;
            column.covered |= Pages::covered_by(segment.range());
            rows |= pages;
        }
        let modified = self.plan(rows);
        self.make_valid()?;
        let logger = self.logger();
        let logged = match &logger {
            Some(logger) => self.log(logger, rows, modified)?,
            None => None,
        };
        self.apply(segments, rows, modified);
        self.store(None)?;
        drop(logged);
        self.heal()
    }

    /// Decides for each row of pages, and says what pages are wanted for it. Returns the rows for read-modify-write.
    fn plan(&mut self, rows: Pages) -> Pages {
        let data = self.shape.data;
        let kept: Vec<usize> =
            (data..self.shape.columns()).filter(|&column| self.has_target(column)).collect();
        // Parity that cannot be read is rebuilt from all data: about as much as all columns cost.
        let far = self.shape.columns() as u32;
        // Parity that may be wrong is not built upon.
        let may_modify =
            !kept.is_empty() && self.shared.is_resynced(self.offset, self.shape.piece_bytes as u64);
        let columns = &mut self.buffer.columns;
        let mut modified = Pages::NONE;
        for row in rows.iter() {
            let reads = |column: &Column| match column {
                column if column.valid.contains(row) => 0,
                column if column.readable.contains(row) => 1,
                _ => far,
            };
            let rmw: u32 = (columns[..data].iter().filter(|column| column.dirty.contains(row)))
                .chain(kept.iter().map(|&parity| &columns[parity]))
                .map(reads)
                .sum();
            let stays = |column: &&Column| is_needed_to_reconstruct(column, row, !kept.is_empty());
            let rcw: u32 = columns[..data].iter().filter(stays).map(reads).sum();
            if may_modify && rmw <= rcw && rcw > 0 {
                modified |= Pages::one(row);
            }
        }
        for row in rows.iter() {
            let modify = modified.contains(row);
            for column in &mut columns[..data] {
                let needed = match modify {
                    true => column.dirty.contains(row),
                    false => is_needed_to_reconstruct(column, row, !kept.is_empty()),
                };
                if needed {
                    column.wanted |= Pages::one(row);
                }
            }
        }
        for parity in kept {
            columns[parity].wanted |= modified;
            columns[parity].dirty = rows;
        }
        let counts = &mut self.buffer.counts;
        *(if modified.is_empty() { &mut counts.reconstructed } else { &mut counts.modified }) += 1;
        modified
    }

    /// Brings the new bytes into the buffer, and parity with them.
    fn apply(&mut self, segments: &[Segment<'_>], rows: Pages, modified: Pages) {
        for segment in segments {
            let range = segment.range();
            for run in (Pages::touched_by(range.clone()) & modified).runs() {
                self.modify(segment, range.start.max(run.start)..range.end.min(run.end));
            }
            for run in (Pages::touched_by(range.clone()) & !modified).runs() {
                let part = range.start.max(run.start)..range.end.min(run.end);
                let new = &segment.data[part.start - range.start..part.end - range.start];
                self.buffer.columns[segment.column].bytes_mut(part).copy_from_slice(new);
            }
        }
        let (data, parities) = self.buffer.columns.split_at_mut(self.shape.data);
        for column in data {
            column.valid |= column.dirty;
        }
        for column in parities {
            // What has no target is not kept right.
            column.valid &= !rows | column.dirty;
            column.valid &= !(rows & !modified);
        }
        // Without a member to keep parity the data that it comes from is not in memory either.
        if self.buffer.columns[self.shape.data..].iter().any(|column| !column.dirty.is_empty()) {
            (rows & !modified).runs().for_each(|run| self.compute_parity(run));
        }
    }

    /// Read-modify-write of bytes of one segment.
    fn modify(&mut self, segment: &Segment<'_>, range: Range<usize>) {
        let new = &segment.data[range.start - segment.start..range.end - segment.start];
        // The difference first: in place of the old bytes.
        let mut column = self.buffer.lift(segment.column);
        let bytes = column.bytes_mut(range.clone());
        parity::xor_into(bytes, new);
        let p = &mut self.buffer.columns[self.shape.p_column()];
        if !p.dirty.is_empty() {
            parity::xor_into(p.bytes_mut(range.clone()), bytes);
        }
        if let Some(q) = self.shape.q_column() {
            let exponent = self.shape.map.exponent(self.shape.row(self.stripe), segment.column as u32);
            let q = &mut self.buffer.columns[q];
            if !q.dirty.is_empty() {
                parity::add_scaled(q.bytes_mut(range), bytes, exponent);
            }
        }
        bytes.copy_from_slice(new);
        self.buffer.put_back(column);
    }
}

/// Whether a data column's old bytes are needed to compute the parity of a row anew (`anew`), or to write whole pages.
fn is_needed_to_reconstruct(column: &Column, row: usize, anew: bool) -> bool {
    if column.dirty.contains(row) { !column.covered.contains(row) } else { anew }
}
