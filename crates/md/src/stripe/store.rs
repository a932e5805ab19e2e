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
    error: Option<block::Error>,
}

impl Work<'_> {
    /// Writes the dirty pages of all columns, of data those of `whole` if it has the segments of all columns in order.
    /// A member that fails is left out.
    ///
    /// # Errors
    /// When what was written could not be read again.
    pub(super) fn store(&mut self, whole: Option<&[Segment<'_>]>) -> Result<()> {
        let mut tasks = Vec::new();
        for (index, column) in self.buffer.columns.iter().enumerate() {
            if column.dirty.is_empty() {
                continue;
            }
            let segment = whole.and_then(|segments| segments.get(index));
            let places = [self.lineup.member(column.role), self.lineup.replacement(column.role)];
            let targets = places.into_iter().flatten();
            tasks.extend(targets.map(|target| WriteTask { column, segment, target, error: None }));
        }
        at_once(
            &mut tasks,
            |task| (&task.target.transfer_pace, task.column.dirty.bytes()),
            |task| task.error = self.write_column(task).err(),
        );
        for task in tasks {
            if let Some(cause) = task.error {
                self.shared.fail(task.column.role, task.target, &cause)?;
            }
        }
        Ok(())
    }

    fn write_column(&self, task: &WriteTask<'_>) -> block::Result<()> {
        for run in task.column.dirty.runs() {
            let offset = self.offset + run.start as u64;
            let bytes = match task.segment {
                Some(segment) => &segment.data[run],
                None => task.column.bytes(run),
            };
            self.put(task.target, offset, bytes)?;
        }
        Ok(())
    }

    /// Writes to one member, and tells the recorder if blocks that were bad are good again.
    pub(super) fn put(&self, target: &Member, offset: u64, bytes: &[u8]) -> block::Result<()> {
        target.write_at(offset, bytes)?;
        let range = offset..offset + bytes.len() as u64;
        if self.shared.recorder.has_bad_blocks(target, range.clone()) {
            self.shared.recorder.bad_blocks_written(target, range);
        }
        Ok(())
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
            for run in pages.runs() {
                let offset = self.offset + run.start as u64;
                let Err(cause) = self.put(member, offset, column.bytes(run.clone())) else {
                    continue;
                };
                let range = offset..offset + run.len() as u64;
                if !self.shared.recorder.bad_blocks_found(member, range)? {
                    self.shared.fail(column.role, member, &cause)?;
                    break;
                }
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
