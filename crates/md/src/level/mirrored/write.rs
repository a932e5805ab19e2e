//! Writing to all copies.
//!
//! A member that is being rebuilt is written like any other, beyond its mark too, so that it need not be known where
//! the rebuilding is just now; replacements as well. What a member does not take is recorded, or the member fails (see
//! [`write_errors`](crate::level::write_errors)). The write has succeeded when a member that may be read has taken each byte.

use std::sync::Arc;

use undercroft_block::{self as block, Request};

use super::{Mirrored, no_copy_left};
use crate::Result;
use crate::fan_out::at_once;
use crate::layout::Copy;
use crate::level::batch::{Batches, Task};
use crate::member::{Lineup, Member, Role};

/// A write within one run, to one member.
struct ToOne<'m> {
    role: Role,
    member: &'m Arc<Member>,
    member_offset: u64,
    outcome: block::Result<()>,
}

impl Mirrored {
    /// Writes a range within one run to all copies; the caller has taken it.
    pub(super) fn write_run(&self, offset: u64, data: &[u8]) -> Result<()> {
        let len = data.len() as u64;
        let lineup = self.shared.lineup();
        let mut tasks = Vec::with_capacity(self.map.copies() + 1);
        let is_kept = self.each_target(&lineup, offset, len, |copy, member| {
            tasks.push(ToOne { role: copy.role, member, member_offset: copy.member_offset, outcome: Ok(()) });
        });
        if !is_kept {
            return Err(no_copy_left(offset, len));
        }
        at_once(
            &mut tasks,
            |task| (&task.member.transfer_pace, len),
            |task| task.outcome = task.member.write_at(task.member_offset, data),
        );
        for task in &tasks {
            let piece = [(task.member_offset, data)];
            self.shared.handle_write_errors(task.role, task.member, piece, &task.outcome)?;
        }
        if self.is_kept(&lineup, offset, len) { Ok(()) } else { Err(no_copy_left(offset, len)) }
    }

    /// Writes ranges that may span runs to all copies; the caller has taken them.
    pub(super) fn write_many<'r>(&self, writes: impl Iterator<Item = (u64, &'r [u8])>) -> Result<()> {
        let lineup = self.shared.lineup();
        let mut batches = Batches::default();
        let mut runs = Vec::new();
        for (mut offset, mut data) in writes {
            while !data.is_empty() {
                let len = self.map.run_bytes(offset).min(data.len() as u64);
                let (piece, rest) = data.split_at(len as usize);
                let is_kept = self.each_target(&lineup, offset, len, |copy, member| {
                    let request = Request::Write { offset: copy.member_offset, data: piece };
                    batches.push(copy.role, member, offset, request);
                });
                if !is_kept {
                    return Err(no_copy_left(offset, len));
                }
                runs.push((offset, len));
                (offset, data) = (offset + len, rest);
            }
        }
        for task in batches.run() {
            self.finish_task(&task)?;
        }
        match runs.into_iter().find(|&(offset, len)| !self.is_kept(&lineup, offset, len)) {
            None => Ok(()),
            Some((offset, len)) => Err(no_copy_left(offset, len)),
        }
    }

    /// Names the members that have to write a range within one run, and tells whether one that may be read is among
    /// them.
    fn each_target<'m>(
        &self,
        lineup: &'m Lineup,
        offset: u64,
        len: u64,
        mut target: impl FnMut(Copy, &'m Arc<Member>),
    ) -> bool {
        let mut is_kept = false;
        for number in 0..self.map.copies() {
            let copy = self.map.copy(offset, number);
            is_kept |= lineup.readable(copy.role, copy.member_offset, len).is_some();
            let place = [lineup.member(copy.role), lineup.replacement(copy.role)];
            place.into_iter().flatten().for_each(|member| target(copy, member));
        }
        is_kept
    }

    /// What follows from how a member took its part of a batch of writes.
    pub(super) fn finish_task(&self, task: &Task<'_, '_>) -> Result<()> {
        self.shared.handle_write_errors(task.role, task.member, task.member_writes(), &task.outcome)
    }
}
