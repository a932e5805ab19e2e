//! What goes into the partial parity log before members are written to; see [`ppl`](crate::ppl).
//!
//! The log is that of the member that holds the stripe's parity. An entry tells of rows of pages in which the same data
//! columns change, columns that follow each other: one write that is without gaps in the array has no others. So where
//! there is a log, writes of different threads are not carried out as one.
//!
//! A member whose log fails has failed, and its parity with it: what is left of the stripe needs no log.

use std::ops::Range;
use std::sync::Arc;

use undercroft_block as block;

use super::pages::{PAGE_BYTES, Pages};
use super::work::Work;
use crate::member::{Member, Role};
use crate::ppl::{LogEntry, Logged};
use crate::{Error, Result, parity};

/// Rows of pages in which the same data columns are written.
struct Rows {
    columns: Range<usize>,
    /// In the piece.
    bytes: Range<usize>,
}

impl Work<'_> {
    /// The member whose log the stripe's writes go to, if there is one.
    pub(super) fn logger(&self) -> Option<Arc<Member>> {
        let role = self.buffer.columns[self.shape.p_column()].role;
        self.lineup.member(role).filter(|member| member.log().is_some()).cloned()
    }

    /// Logs what is about to be written. To be called when all old pages that are wanted are in memory, and before any
    /// new ones are. `None`: the member of the log has failed.
    ///
    /// # Errors
    /// When the array cannot go on without a member that failed.
    pub(super) fn log<'l>(
        &self,
        logger: &'l Arc<Member>,
        rows: Pages,
        modified: Pages,
    ) -> Result<Option<Logged<'l>>> {
        let Some(log) = logger.log() else { return Ok(None) };
        let rows = self.rows_alike(rows);
        let partial: Vec<Vec<u8>> = rows.iter().map(|rows| self.partial_parity(rows, modified)).collect();
        let entries: Vec<LogEntry<'_>> = rows
            .iter()
            .zip(&partial)
            .map(|(rows, partial_parity)| LogEntry {
                array_offset: self.shape.array_offset(self.stripe, rows.columns.start)
                    + rows.bytes.start as u64,
                data_bytes: (rows.columns.len() * rows.bytes.len()) as u32,
                partial_parity,
                roles: self.roles(&rows.columns),
            })
            .collect();
        let flush = |roles| self.shared.flush(|role| roles & role_bit(role) != 0);
        match log.write(&entries, &flush) {
            Ok(logged) => Ok(Some(logged)),
            Err(error) => {
                let cause = match error {
                    Error::Device(cause) => cause,
                    other => block::Error::Io {
                        operation: block::Operation::Write,
                        offset: 0,
                        len: 0,
                        device: logger.device().name(),
                        source: std::io::Error::other(other.to_string()),
                    },
                };
                let role = self.buffer.columns[self.shape.p_column()].role;
                self.shared.fail(role, logger, &cause).map(|()| None)
            }
        }
    }

    /// The rows, in runs in which the same columns are written.
    fn rows_alike(&self, rows: Pages) -> Vec<Rows> {
        let mut runs: Vec<Rows> = Vec::with_capacity(3);
        for row in rows.iter() {
            let written = |column: &usize| self.buffer.columns[*column].dirty.contains(row);
            let first = (0..self.shape.data).find(written).unwrap_or(0);
            let last = (0..self.shape.data).rfind(written).unwrap_or(0);
            debug_assert!((first..=last).all(|column| written(&column)), "a write without gaps");
            let bytes = row * PAGE_BYTES..(row + 1) * PAGE_BYTES;
            match runs.last_mut() {
                Some(run) if run.bytes.end == bytes.start && run.columns == (first..last + 1) => {
                    run.bytes.end = bytes.end;
                }
                _ => runs.push(Rows { columns: first..last + 1, bytes }),
            }
        }
        runs
    }

    /// The XOR of the columns that are not written, in these rows; nothing if all are.
    fn partial_parity(&self, rows: &Rows, modified: Pages) -> Vec<u8> {
        if rows.columns.len() == self.shape.data {
            return Vec::new();
        }
        let columns = &self.buffer.columns;
        let mut partial = vec![0; rows.bytes.len()];
        for (page, partial) in rows.bytes.clone().step_by(PAGE_BYTES).zip(partial.chunks_mut(PAGE_BYTES)) {
            let bytes = page..page + PAGE_BYTES;
            let sources: Vec<&[u8]> = if modified.contains(page / PAGE_BYTES) {
                // Out of the old parity with what is written.
                let written = columns[rows.columns.clone()].iter();
                written
                    .chain([&columns[self.shape.p_column()]])
                    .map(|column| column.bytes(bytes.clone()))
                    .collect()
            } else {
                let (before, rest) = columns[..self.shape.data].split_at(rows.columns.start);
                let after = &rest[rows.columns.len()..];
                before.iter().chain(after).map(|column| column.bytes(bytes.clone())).collect()
            };
            parity::xor_of(partial, &sources);
        }
        partial
    }

    /// The members that are written to, as the log counts roles.
    fn roles(&self, columns: &Range<usize>) -> u64 {
        let written = columns.clone().chain([self.shape.p_column()]);
        written.fold(0, |roles, column| roles | role_bit(self.buffer.columns[column].role))
    }
}

/// All roles from 63 on share a bit.
fn role_bit(role: Role) -> u64 {
    1 << role.0.min(u64::BITS - 1)
}
