//! What leaves a stripe for the members: data and parity of writes, and rebuilt pages that a member could not read.

use std::sync::Arc;

use undercroft_block as block;

use super::buffer::Column;
use super::pages::Pages;
use super::shape::Segment;
use super::work::Work;
use crate::fan_out::at_once;
use crate::member::Member;
use crate::{Error, Result};

/// The dirty pages of one column for one member.
struct WriteTask<'a> {
    column: &'a Column,
    /// Where the bytes are, if not in the column.
    segment: Option<&'a Segment<'a>>,
    target: &'a Arc<Member>,
    outcome: block::Result<()>,
}

impl WriteTask<'_> {
    /// What goes where on the target, for a stripe that begins at `offset` of the data area.
    fn pieces(&self, offset: u64) -> impl Iterator<Item = (u64, &[u8])> {
        self.column.dirty.runs().map(move |run| {
            let at = offset + run.start as u64;
            match self.segment {
                Some(segment) => (at, &segment.data[run]),
                None => (at, self.column.bytes(run)),
            }
        })
    }
}

impl Work<'_> {
    /// Writes the dirty pages of all columns, of data those of `whole` if it has the segments of all columns in order.
    /// What a member does not take is recorded as bad, or the member is left out.
    ///
    /// # Errors
    /// When what was written, or lay beside it, could not be read again.
    pub(super) fn store(&mut self, whole: Option<&[Segment<'_>]>) -> Result<()> {
        let mut tasks = Vec::new();
        for (index, column) in self.buffer.columns.iter().enumerate() {
            if column.dirty.is_empty() {
                continue;
            }
            let segment = whole.and_then(|segments| segments.get(index));
            let places = [self.lineup.member(column.role), self.lineup.replacement(column.role)];
            let targets = places.into_iter().flatten();
            tasks.extend(targets.map(|target| WriteTask { column, segment, target, outcome: Ok(()) }));
        }
        at_once(
            &mut tasks,
            |task| (&task.target.transfer_pace, task.column.dirty.bytes()),
            |task| {
                let outcome =
                    task.pieces(self.offset).try_for_each(|(at, data)| task.target.write_at(at, data));
                task.outcome = outcome;
            },
        );
        let mut lost = Pages::NONE;
        for task in &tasks {
            let pieces = task.pieces(self.offset);
            self.shared.handle_write_errors(task.column.role, task.target, pieces, &task.outcome)?;
            if task.outcome.is_err() {
                lost |= task.column.dirty;
            }
        }
        self.check_kept(lost)
    }

    /// Whether everything in these rows of pages can be had from the members, some of which did not take a write.
    fn check_kept(&self, rows: Pages) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let readable: Vec<Pages> =
            self.buffer.columns.iter().map(|column| self.readable(column.role)).collect();
        let lacking = |row| readable.iter().filter(|pages| !pages.contains(row)).count();
        if rows.iter().all(|row| lacking(row) <= self.shape.parities) { Ok(()) } else { Err(self.too_few()) }
    }

    /// Writes pages that members could not read, and that are valid now, back to them.
    ///
    /// # Errors
    /// When a member that does not take them cannot be done without.
    pub(super) fn heal(&mut self) -> Result<()> {
        for column in &self.buffer.columns {
            let pages = column.unread & column.valid & !column.dirty;
            let Some(member) = self.lineup.member(column.role) else { continue };
            if !self.shared.may_heal(member) {
                continue;
            }
            let mut is_corrected = false;
            for run in pages.runs() {
                let (offset, bytes) = (self.offset + run.start as u64, column.bytes(run));
                let outcome = member.write_at(offset, bytes);
                self.shared.handle_write_errors(column.role, member, [(offset, bytes)], &outcome)?;
                if member.has_failed() {
                    break;
                }
                is_corrected |= outcome.is_ok();
            }
            if is_corrected {
                self.shared.note_corrected(column.role, member, self.offset)?;
            }
        }
        for column in &mut self.buffer.columns {
            column.unread = Pages::NONE;
        }
        Ok(())
    }
}

/// The same for another thread whose work had the same end.
pub(super) fn copy_of(error: &Error) -> Error {
    match error {
        Error::Device(block::Error::Io { operation, offset, len, device, source }) => {
            Error::Device(block::Error::Io {
                operation: *operation,
                offset: *offset,
                len: *len,
                device: device.clone(),
                source: std::io::Error::new(source.kind(), source.to_string()),
            })
        }
        Error::TooFewMembers(what) => Error::TooFewMembers(what.clone()),
        Error::Stopped(cause) => Error::Stopped(cause.clone()),
        other => Error::Invalid(other.to_string()),
    }
}

/// For a write that another thread had taken over and did not bring to its end.
pub(super) fn abandoned() -> Error {
    Error::Invalid("the write was given up half-way by the thread that carried it out: repeat it".to_owned())
}
