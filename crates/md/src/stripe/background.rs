//! Background work on stripes: parity compared with the data and made right, members brought up.
//!
//! Each stripe is owned while it is worked on, so only its own writers wait. Nothing that the cache remembers is used:
//! what is to be compared is what lies on the members.

use std::sync::Arc;

use super::ParityRaid;
use super::pages::{PAGE_BYTES, Pages};
use super::slots::Content as _;
use super::work::Work;
use crate::level::{SyncStep, SyncWork};
use crate::member::{Member, Role};
use crate::{Result, parity};

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
        self.leave(owner, stripe, false);
        result
    }
}

impl Work<'_> {
    /// Compares parity with the data, and makes it right if `mend`. Where members are missing, what is left of the
    /// redundancy is compared.
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
        self.make_valid()?;
        let differing = self.find_differing();
        if mend {
            for run in differing.runs() {
                self.compute_parity(run);
            }
            for column in self.buffer.columns[self.shape.data..].iter_mut() {
                column.dirty = differing & column.wanted;
            }
            self.store(None)?;
        }
        self.heal()?;
        Ok(u64::from(differing.count()) * PAGE_BYTES as u64)
    }

    /// The rows of pages whose parity in the buffer is not that of the data.
    fn find_differing(&mut self) -> Pages {
        let mut scratch = [[0; PAGE_BYTES]; 2];
        let mut differing = Pages::NONE;
        for row in 0..self.shape.piece_bytes / PAGE_BYTES {
            let range = row * PAGE_BYTES..(row + 1) * PAGE_BYTES;
            let [p, q] = &mut scratch;
            let (data, parities) = self.buffer.columns.split_at(self.shape.data);
            let sources: Vec<&[u8]> = data.iter().map(|column| column.bytes(range.clone())).collect();
            if self.shape.parities == 2 {
                parity::syndrome(p, q, &self.by_exponent(&sources));
            } else {
                parity::xor_of(p, &sources);
            }
            let differs = |(column, right): (&super::buffer::Column, &[u8; PAGE_BYTES])| {
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
                    if !self.shared.recorder.bad_blocks_found(target, start..start + PAGE_BYTES as u64)? {
                        return Err(error);
                    }
                }
            }
        }
        for run in self.buffer.columns[index].valid.runs() {
            let offset = self.offset + run.start as u64;
            if let Err(cause) = self.put(target, offset, self.buffer.columns[index].bytes(run)) {
                return self.shared.fail(role, target, &cause);
            }
        }
        Ok(())
    }
}
