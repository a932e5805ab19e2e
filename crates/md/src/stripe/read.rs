//! Reads: past the cache straight to the members where they are right, through the stripe where they are not.

use std::sync::Arc;

use undercroft_block::{self as block, Request};

use super::ParityRaid;
use super::pages::{PAGE_BYTES, Pages};
use super::work::Work;
use crate::Result;
use crate::layout::DataPlace;
use crate::level::batch::Batches;
use crate::member::{Lineup, Member};

/// A member that could not read, and its error.
type Failed = (Arc<Member>, block::Error);

/// A part of a request that lies in one chunk.
struct Part<'a> {
    offset: u64,
    place: DataPlace,
    buf: &'a mut [u8],
}

impl ParityRaid {
    /// Reads what lies in one chunk at once, and longer requests from all their members at the same time.
    pub(super) fn read_range(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let left_in_chunk = self.shape.map.chunk_bytes() - offset % self.shape.map.chunk_bytes();
        if buf.len() as u64 <= left_in_chunk {
            return self.read_part(&self.shared.lineup(), offset, buf);
        }
        self.read_many([(offset, buf)])
    }

    /// Reads several ranges from all their members at the same time.
    pub(super) fn read_many<'a>(&self, ranges: impl IntoIterator<Item = (u64, &'a mut [u8])>) -> Result<()> {
        let lineup = self.shared.lineup();
        let mut batches = Batches::default();
        let mut others = Vec::new();
        for (offset, buf) in ranges {
            self.cut_read(offset, buf, |part| match self.source(&lineup, part.place, part.buf.len()) {
                Some(member) => {
                    let request = Request::Read { offset: part.place.member_offset, buf: part.buf };
                    batches.push(part.place.role, member, part.offset, request);
                }
                None => others.push(part),
            });
        }
        for task in batches.run_soon() {
            if task.outcome.is_ok() {
                continue;
            }
            // Which one was it?
            for (offset, request) in task.into_requests() {
                if let Request::Read { buf, .. } = request {
                    self.read_part(&lineup, offset, buf)?;
                }
            }
        }
        for part in others {
            self.read_stripes(part.place, part.buf, None)?;
        }
        Ok(())
    }

    fn cut_read<'a>(&self, offset: u64, buf: &'a mut [u8], mut each: impl FnMut(Part<'a>)) {
        let chunk_bytes = self.shape.map.chunk_bytes();
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let len = (rest.len() as u64).min(chunk_bytes - offset % chunk_bytes);
            let (buf, after) = rest.split_at_mut(len as usize);
            each(Part { offset, place: self.shape.map.locate(offset), buf });
            offset += len;
            rest = after;
        }
    }

    /// Reads a range that lies in one chunk.
    fn read_part(&self, lineup: &Lineup, offset: u64, buf: &mut [u8]) -> Result<()> {
        let place = self.shape.map.locate(offset);
        match self.source(lineup, place, buf.len()) {
            None => self.read_stripes(place, buf, None),
            Some(member) => match member.read_soon(place.member_offset, buf) {
                Ok(()) => Ok(()),
                // Nothing is wrong with its bytes.
                Err(_) if member.is_late() => self.read_stripes(place, buf, None),
                Err(error) => self.read_stripes(place, buf, Some((Arc::clone(member), error))),
            },
        }
    }

    /// The member that can be asked for so many bytes of a chunk.
    fn source<'l>(&self, lineup: &'l Lineup, place: DataPlace, len: usize) -> Option<&'l Arc<Member>> {
        let (offset, len) = (place.member_offset, len as u64);
        let member = self.shared.readable(lineup, place.role, offset, len)?;
        (!self.shared.recorder.has_bad_blocks(member, offset..offset + len)).then_some(member)
    }

    /// Reads a part of a chunk as the owner of its stripes, one after the other.
    fn read_stripes(&self, place: DataPlace, buf: &mut [u8], mut failed: Option<Failed>) -> Result<()> {
        let (mut at, mut rest) = (place.member_offset, buf);
        while !rest.is_empty() {
            let stripe = self.shape.stripe_at(at);
            let start = (at - self.shape.member_offset(stripe)) as usize;
            let len = rest.len().min(self.shape.piece_bytes - start);
            let (part, after) = rest.split_at_mut(len);
            self.read_stripe(stripe, place.index as usize, start, part, &mut failed)?;
            at += len as u64;
            rest = after;
        }
        Ok(())
    }

    fn read_stripe(
        &self,
        stripe: u64,
        column: usize,
        start: usize,
        buf: &mut [u8],
        failed: &mut Option<Failed>,
    ) -> Result<()> {
        let mut owner = self.sets.own(stripe);
        let range = start..start + buf.len();
        let mut work = Work::begin(&self.shared, &self.shape, stripe, &mut owner);
        let pages = Pages::touched_by(range.clone());
        let role = work.buffer.columns[column].role;
        // Only the read as a whole failed: if it was longer than this stripe, it is found out which pages it was.
        let is_precise = buf.len() <= PAGE_BYTES;
        if let Some((_, error)) = failed.take_if(|(member, _)| {
            is_precise && work.lineup.member(role).is_some_and(|present| Arc::ptr_eq(present, member))
        }) {
            work.distrust(column, pages, error);
        }
        work.buffer.columns[column].wanted = pages;
        let result = work.make_valid();
        if result.is_ok() {
            buf.copy_from_slice(work.buffer.columns[column].bytes(range));
            // The data is there. What comes of the healing is for the array to know, not for the reader.
            let _ = work.heal();
        }
        self.leave(owner, stripe, result.is_ok(), None);
        result
    }
}
