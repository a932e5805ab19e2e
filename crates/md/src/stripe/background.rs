//! Background work on stripes: parity compared with the data and made right, members brought up.
//!
//! Each stripe is owned while it is worked on, so only its own writers wait. Nothing that the cache remembers is used:
//! what is to be compared is what lies on the members.

use std::sync::Arc;

use super::ParityRaid;
use super::buffer::Column;
use super::pages::{PAGE_BYTES, Pages};
use super::slots::Content as _;
use super::work::Work;
use crate::level::{SyncStep, SyncWork};
use crate::member::{Member, Role};
use crate::{Error, Result, parity};

impl ParityRaid {
    pub(super) fn sync_range(&self, position: u64, len: u64, work: SyncWork) -> Result<SyncStep> {
        let end = position.saturating_add(len).min(self.shape.member_bytes);
        let mut step = SyncStep::default();
        let mut at = position;
        while at < end {
            let stripe = self.shape.stripe_at(at);
            step.mismatched += self.sync_stripe(stripe, work)?;
            at = self.shape.member_offset(stripe + 1).min(end);
        }
        step.done = at - position;
        Ok(step)
    }

    /// Returns how many bytes of parity did not agree, in whole pages of the members.
    fn sync_stripe(&self, stripe: u64, what: SyncWork) -> Result<u64> {
        let mut owner = self.sets.own(stripe);
        owner.forget();
        let mut work = Work::begin(&self.shared, &self.shape, stripe, &mut owner);
        let result = match what {
            SyncWork::Recover => work.recover().map(|()| 0),
            SyncWork::Check => work.compare(false),
            SyncWork::Resync | SyncWork::Repair => work.compare(true),
        };
        self.leave(owner, stripe, false, None);
        result
    }
}

impl Work<'_> {
    /// Compares parity with the data, and makes it right if `mend`, which also writes blocks anew that are on lists of
    /// bad blocks. Where members are missing, what is left of the redundancy is compared; rows of which too much is on
    /// these lists are passed over.
    fn compare(&mut self, mend: bool) -> Result<u64> {
        let all = Pages::first(self.shape.piece_bytes / PAGE_BYTES);
        let present =
            |work: &Self, column: usize| work.lineup.member(work.buffer.columns[column].role).is_some();
        let missing = (0..self.shape.columns()).filter(|&column| !present(self, column)).count();
        if missing >= self.shape.parities {
            // Nothing is redundant here.
            return Ok(0);
        }
        for index in 0..self.shape.columns() {
            let is_present = present(self, index);
            let column = &mut self.buffer.columns[index];
            column.wanted = if index < self.shape.data || is_present { all } else { Pages::NONE };
        }
        let listed: Vec<Pages> = self.buffer.columns.iter().map(|column| self.listed(column)).collect();
        let rows = self.make_rows_valid(all)?;
        let differing = self.find_differing(rows);
        if mend {
            for run in differing.runs() {
                self.compute_parity(run);
            }
            for (index, (column, listed)) in self.buffer.columns.iter_mut().zip(listed).enumerate() {
                let wrong = if index < self.shape.data { Pages::NONE } else { differing & column.wanted };
                column.dirty = wrong | listed & rows;
            }
            self.store(None)?;
        }
        self.heal()?;
        Ok(u64::from(differing.count()) * PAGE_BYTES as u64)
    }

    /// The pages that a member would be asked for if its list of bad blocks did not name them.
    fn listed(&self, column: &Column) -> Pages {
        let len = self.shape.piece_bytes;
        match self.lineup.readable(column.role, self.offset, len as u64) {
            Some(_) => Pages::first(len / PAGE_BYTES) & !column.readable,
            None => Pages::NONE,
        }
    }

    /// Makes the pages valid that are wanted, in all rows in which lists of bad blocks leave enough. Returns those.
    fn make_rows_valid(&mut self, all: Pages) -> Result<Pages> {
        match self.make_valid() {
            Ok(()) => return Ok(all),
            Err(Error::TooFewMembers(_)) => {}
            Err(error) => return Err(error),
        }
        let wanted: Vec<Pages> = self.buffer.columns.iter().map(|column| column.wanted).collect();
        let mut rows = Pages::NONE;
        for row in all.iter() {
            for (column, wanted) in self.buffer.columns.iter_mut().zip(&wanted) {
                column.wanted = *wanted & Pages::one(row);
            }
            match self.make_valid() {
                Ok(()) => rows |= Pages::one(row),
                Err(Error::TooFewMembers(_)) => {}
                Err(error) => return Err(error),
            }
        }
        for (column, wanted) in self.buffer.columns.iter_mut().zip(wanted) {
            column.wanted = wanted & rows;
        }
        Ok(rows)
    }

    /// Those of the rows of pages whose parity in the buffer is not that of the data.
    fn find_differing(&mut self, rows: Pages) -> Pages {
        let mut scratch = [[0; PAGE_BYTES]; 2];
        let mut differing = Pages::NONE;
        for row in rows.iter() {
            let range = row * PAGE_BYTES..(row + 1) * PAGE_BYTES;
            let [p, q] = &mut scratch;
            let (data, parities) = self.buffer.columns.split_at(self.shape.data);
            let sources: Vec<&[u8]> = data.iter().map(|column| column.bytes(range.clone())).collect();
            if self.shape.parities == 2 {
                parity::syndrome(p, q, &self.by_exponent(&sources));
            } else {
                parity::xor_of(p, &sources);
            }
            let differs = |(column, right): (&Column, &[u8; PAGE_BYTES])| {
                column.valid.contains(row) && column.bytes(range.clone()) != right
            };
            if parities.iter().zip(&scratch).any(differs) {
                differing |= Pages::one(row);
            }
        }
        differing
    }

    /// Writes the piece to members, and replacements, that are not right here so far.
    fn recover(&mut self) -> Result<()> {
        let (offset, len) = (self.offset, self.shape.piece_bytes as u64);
        let mut targets: Vec<(usize, Role, Arc<Member>)> = Vec::new();
        for (index, column) in self.buffer.columns.iter().enumerate() {
            let places = [self.lineup.member(column.role), self.lineup.replacement(column.role)];
            let to_do = places.into_iter().flatten().filter(|member| !member.is_right(offset, len));
            targets.extend(to_do.map(|member| (index, column.role, Arc::clone(member))));
        }
        for (index, role, target) in targets {
            self.bring_up(index, role, &target)?;
        }
        self.heal()
    }

    fn bring_up(&mut self, index: usize, role: Role, target: &Arc<Member>) -> Result<()> {
        let all = Pages::first(self.shape.piece_bytes / PAGE_BYTES);
        self.buffer.columns[index].wanted = all;
        if let Err(error) = self.make_valid() {
            // Perhaps it is a few pages only that cannot be had.
            for page in all.iter() {
                self.buffer.columns[index].wanted = Pages::one(page);
                if self.make_valid().is_err() {
                    let start = self.offset + (page * PAGE_BYTES) as u64;
                    let page = start..start + PAGE_BYTES as u64;
                    if !self.shared.recorder.bad_blocks_found(target, &[page])? {
                        return Err(error);
                    }
                }
            }
        }
        for run in self.buffer.columns[index].valid.runs() {
            let (offset, bytes) = (self.offset + run.start as u64, self.buffer.columns[index].bytes(run));
            let outcome = target.write_at(offset, bytes);
            self.shared.handle_write_errors(role, target, [(offset, bytes)], &outcome)?;
            if target.has_failed() {
                break;
            }
        }
        Ok(())
    }
}
