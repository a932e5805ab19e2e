//! A stripe at work: its owner brings pages into memory, from the members or, where they cannot be read, out of the
//! others by arithmetic.
//!
//! A caller that wants pages says so in the columns (`wanted`) and calls [`Work::make_valid`]. What a member cannot read is
//! rebuilt and written back to it (healed); if it does not take that, the blocks are recorded as bad or the member
//! fails, as with any other write (see [`write_errors`](crate::level::write_errors)). The lineup is loaded once, after the stripe
//! has become the owner's: a member that joins does so while nothing is written, and background work that brings it up owns
//! the stripe like every other user.

use std::sync::Arc;

use undercroft_block as block;

use super::buffer::{Column, StripeBuffer};
use super::pages::{PAGE_BYTES, Pages};
use super::shape::Shape;
use crate::fan_out::at_once;
use crate::level::Shared;
use crate::member::{Lineup, Member, Role};
use crate::{Error, Result};

/// See the module's description.
pub(super) struct Work<'a> {
    pub(super) shared: &'a Shared,
    pub(super) shape: &'a Shape,
    pub(super) lineup: arc_swap::Guard<Arc<Lineup>>,
    pub(super) stripe: u64,
    /// Where the stripe begins in the members' data areas.
    pub(super) offset: u64,
    pub(super) buffer: &'a mut StripeBuffer,
    /// The first error of a member that could not read.
    cause: Option<block::Error>,
    /// Members that are late are waited for: nothing can be read without them, or parity is not right yet.
    waits: bool,
}

impl<'a> Work<'a> {
    pub(super) fn begin(
        shared: &'a Shared,
        shape: &'a Shape,
        stripe: u64,
        buffer: &'a mut StripeBuffer,
    ) -> Self {
        let lineup = shared.lineup();
        let offset = shape.member_offset(stripe);
        for (index, column) in buffer.columns.iter_mut().enumerate() {
            let role = shape.role(stripe, index);
            let member = shared.readable(&lineup, role, offset, shape.piece_bytes as u64);
            column.begin(role, readable_pages(shared, member, offset, shape.piece_bytes));
        }
        let waits = !shared.is_resynced(offset, shape.piece_bytes as u64);
        Self { shared, shape, lineup, stripe, offset, buffer, cause: None, waits }
    }

    /// The pages that the member of a role can be asked for.
    pub(super) fn readable(&self, role: Role) -> Pages {
        let member = self.lineup.readable(role, self.offset, self.shape.piece_bytes as u64);
        readable_pages(self.shared, member, self.offset, self.shape.piece_bytes)
    }

    /// Whether a member takes what is written to the column.
    pub(super) fn has_target(&self, column: usize) -> bool {
        let role = self.buffer.columns[column].role;
        self.lineup.member(role).is_some() || self.lineup.replacement(role).is_some()
    }

    /// # Errors
    /// When what is written could not be read again.
    pub(super) fn check_enough_targets(&self) -> Result<()> {
        let missing = (0..self.shape.columns()).filter(|&column| !self.has_target(column)).count();
        if missing > self.shape.parities { Err(self.too_few()) } else { Ok(()) }
    }

    /// The member at `column` failed to read these pages; they are to be rebuilt, and written back to it.
    pub(super) fn distrust(&mut self, column: usize, pages: Pages, cause: block::Error) {
        let column = &mut self.buffer.columns[column];
        column.unread |= pages & column.readable;
        column.readable &= !pages;
        self.cause.get_or_insert(cause);
    }

    /// Makes the pages valid that are wanted.
    ///
    /// # Errors
    /// When too few members can be read: the cause is the first error of one of them, if there was any.
    pub(super) fn make_valid(&mut self) -> Result<()> {
        loop {
            let Some(rows) = self.choose_reads() else {
                if self.wait_from_now_on() {
                    continue;
                }
                return Err(match self.cause.take() {
                    Some(cause) => Error::Device(cause),
                    None => self.too_few(),
                });
            };
            // Each round in vain makes pages unreadable, so there are not many.
            if self.read_members() {
                self.rebuild(rows);
                return Ok(());
            }
        }
    }

    /// Has members that are late be asked as well, and waited for. `false`: they are already.
    fn wait_from_now_on(&mut self) -> bool {
        if self.waits {
            return false;
        }
        self.waits = true;
        for index in 0..self.shape.columns() {
            let column = &self.buffer.columns[index];
            let readable = self.readable(column.role) & !column.unread;
            self.buffer.columns[index].readable = readable;
        }
        true
    }

    /// Chooses what to read from members, and returns the rows of pages in which arithmetic is needed. `None` when
    /// too few members can be read.
    fn choose_reads(&mut self) -> Option<Pages> {
        let mut rows = Pages::NONE;
        for column in &mut self.buffer.columns {
            column.to_read = column.wanted & !column.valid & column.readable;
            rows |= column.wanted & !column.at_hand();
        }
        let (data, parities) = self.buffer.columns.split_at_mut(self.shape.data);
        for row in rows.iter() {
            let page = Pages::one(row);
            let mut unknown = 0;
            for column in &mut *data {
                if column.at_hand().contains(row) {
                    column.to_read |= page & !column.valid;
                } else {
                    unknown += 1;
                }
            }
            for column in parities.iter_mut().filter(|column| column.at_hand().contains(row)) {
                if unknown > 0 {
                    column.to_read |= page & !column.valid;
                    unknown -= 1;
                }
            }
            if unknown > 0 {
                return None;
            }
        }
        Some(rows)
    }

    /// Reads what was chosen, from slow members at the same time. Returns whether all could be read.
    fn read_members(&mut self) -> bool {
        let mut tasks = Vec::new();
        let mut all = true;
        let waits = self.waits;
        for column in self.buffer.columns.iter_mut().filter(|column| !column.to_read.is_empty()) {
            // It was there when the reads were chosen, out of the same lineup; only its failure may have come between.
            match self.lineup.member(column.role) {
                Some(member) => tasks.push(ReadTask { column, member, error: None }),
                None => {
                    column.readable = Pages::NONE;
                    all = false;
                }
            }
        }
        at_once(
            &mut tasks,
            |task| (&task.member.transfer_pace, task.column.to_read.bytes()),
            |task| task.error = read_column(task.member, self.offset, task.column, waits),
        );
        for error in tasks.into_iter().filter_map(|task| task.error) {
            self.cause.get_or_insert(error);
            all = false;
        }
        all
    }

    pub(super) fn too_few(&self) -> Error {
        let missing: Vec<String> = (0..self.shared.geometry.members)
            .filter(|&role| {
                self.lineup.readable(Role(role), self.offset, self.shape.piece_bytes as u64).is_none()
            })
            .map(|role| role.to_string())
            .collect();
        let begin = self.shape.array_offset(self.stripe, 0);
        Error::TooFewMembers(format!(
            "what lies in the row of chunks around byte {begin} of the array cannot be had without the members \
             in roles {}",
            missing.join(", ")
        ))
    }
}

struct ReadTask<'a> {
    column: &'a mut Column,
    member: &'a Member,
    error: Option<block::Error>,
}

/// Reads the pages that are to be read; returns the last error if not all could be.
fn read_column(member: &Member, begin: u64, column: &mut Column, waits: bool) -> Option<block::Error> {
    let read = |offset, buf: &mut [u8]| {
        if waits { member.read_at(offset, buf) } else { member.read_soon(offset, buf) }
    };
    let mut failure = None;
    for run in column.to_read.runs() {
        let pages = Pages::covered_by(run.clone());
        match read(begin + run.start as u64, column.bytes_mut(run)) {
            Ok(()) => {
                column.valid |= pages;
                continue;
            }
            // Nothing is wrong with its bytes, so nothing is to be written back.
            Err(error) if !waits && member.is_late() => {
                column.readable = Pages::NONE;
                return Some(error);
            }
            Err(_) => {}
        }
        // Which of them is it?
        for page in pages.iter() {
            let start = page * PAGE_BYTES;
            match read(begin + start as u64, column.bytes_mut(start..start + PAGE_BYTES)) {
                Ok(()) => column.valid |= Pages::one(page),
                Err(error) => {
                    column.unread |= Pages::one(page);
                    column.readable &= !Pages::one(page);
                    failure = Some(error);
                }
            }
        }
    }
    failure
}

/// Which pages of its piece a member may be asked for.
fn readable_pages(shared: &Shared, member: Option<&Arc<Member>>, offset: u64, piece_bytes: usize) -> Pages {
    let Some(member) = member else { return Pages::NONE };
    let all = Pages::first(piece_bytes / PAGE_BYTES);
    if !shared.recorder.has_bad_blocks(member, offset..offset + piece_bytes as u64) {
        return all;
    }
    let is_good = |page: &usize| {
        let start = offset + (page * PAGE_BYTES) as u64;
        !shared.recorder.has_bad_blocks(member, start..start + PAGE_BYTES as u64)
    };
    all.iter().filter(is_good).fold(Pages::NONE, |good, page| good | Pages::one(page))
}
