//! Reading from one copy, from another when that fails, and writing again what could not be read.
//!
//! What could not be read is *healed*: block by block, a member that can be read gives the block, which is written to the member that
//! cannot, and reads it back. A block that does not take it is recorded as bad; a member that cannot record it fails.
//! While that goes on no other thread writes there. Nothing is healed on an array that takes no writes.

use std::sync::Arc;

use undercroft_block::{self as block, Request};

use super::{BLOCK_BYTES, Mirrored, Present, SECTOR_BYTES, no_copy_left, pieces};
use crate::level::batch::Batches;
use crate::member::{Member, Role};
use crate::{Error, Result};

impl Mirrored {
    /// Reads ranges that may span runs. `is_taken`: the caller has taken the ranges that it reads.
    pub(super) fn read_many<'r>(
        &self,
        reads: impl Iterator<Item = (u64, &'r mut [u8])>,
        is_taken: bool,
    ) -> Result<()> {
        let lineup = self.shared.lineup();
        let mut batches = Batches::default();
        let mut hard = Vec::new();
        for (mut offset, mut buf) in reads {
            while !buf.is_empty() {
                let len = self.map.run_bytes(offset).min(buf.len() as u64);
                let (piece, rest) = buf.split_at_mut(len as usize);
                match self.readable(&lineup, offset, len).next() {
                    Some(Present { role, member, member_offset }) => {
                        let request = Request::Read { offset: member_offset, buf: piece };
                        batches.push(role, member, offset, request);
                    }
                    None => hard.push((offset, piece, None)),
                }
                (offset, buf) = (offset + len, rest);
            }
        }
        for task in batches.run_soon() {
            if task.outcome.is_ok() {
                continue;
            }
            let suspect = Some((task.role, task.member));
            for (offset, request) in task.into_requests() {
                if let Request::Read { buf, .. } = request {
                    hard.push((offset, buf, suspect));
                }
            }
        }
        for (offset, buf, suspect) in hard {
            self.read_around(offset, buf, suspect, is_taken)?;
        }
        Ok(())
    }

    /// Reads a range within one run.
    pub(super) fn read_run(&self, offset: u64, buf: &mut [u8], is_taken: bool) -> Result<()> {
        let lineup = self.shared.lineup();
        let suspect = match self.readable(&lineup, offset, buf.len() as u64).next() {
            Some(Present { role, member, member_offset }) => match member.read_soon(member_offset, buf) {
                Ok(()) => return Ok(()),
                Err(_) => Some((role, member)),
            },
            None => None,
        };
        self.read_around(offset, buf, suspect, is_taken)
    }

    /// Reads a range within one run that a member, the suspect, could not read, or that no copy has without bad
    /// blocks.
    fn read_around(
        &self,
        offset: u64,
        buf: &mut [u8],
        suspect: Option<(Role, &Arc<Member>)>,
        is_taken: bool,
    ) -> Result<()> {
        let lineup = self.shared.lineup();
        let len = buf.len() as u64;
        let mut failed: Vec<(Role, &Arc<Member>)> = suspect.into_iter().collect();
        let mut is_read = false;
        for copy in self.readable(&lineup, offset, len) {
            if failed.iter().any(|(_, member)| Arc::ptr_eq(member, copy.member)) {
                continue;
            }
            if copy.member.read_soon(copy.member_offset, buf).is_ok() {
                is_read = true;
                break;
            }
            failed.push((copy.role, copy.member));
        }
        if !is_read {
            self.read_blocks(offset, buf)?;
        }
        for (role, member) in failed {
            // What was asked for has been read. That a member is lost and cannot be recorded is kept for the writers.
            let _ = self.heal(offset, len, role, member, is_taken);
        }
        Ok(())
    }

    /// Reads block after block, each from a member that can, or its sectors from several.
    fn read_blocks(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        for (begin, len) in pieces(offset, buf.len() as u64, BLOCK_BYTES) {
            let at = (begin - offset) as usize;
            let block = &mut buf[at..at + len as usize];
            if self.read_block(begin, block, None).is_ok() {
                continue;
            }
            for (sector, len) in pieces(begin, len, SECTOR_BYTES) {
                let at = (sector - begin) as usize;
                self.read_block(sector, &mut block[at..at + len as usize], None)?;
            }
        }
        Ok(())
    }

    /// Reads a range within a block from any member that can, but for one.
    pub(super) fn read_block(
        &self,
        offset: u64,
        buf: &mut [u8],
        not_from: Option<&Arc<Member>>,
    ) -> Result<()> {
        let lineup = self.shared.lineup();
        let mut cause = None;
        for copy in self.readable(&lineup, offset, buf.len() as u64) {
            if not_from.is_some_and(|member| Arc::ptr_eq(member, copy.member)) {
                continue;
            }
            match copy.member.read_at(copy.member_offset, buf) {
                Ok(()) => return Ok(()),
                Err(error) => cause = Some(error),
            }
        }
        Err(cause.map_or_else(|| no_copy_left(offset, buf.len() as u64), Error::Device))
    }

    /// Writes again to a member what it cannot read of a range within one run.
    pub(super) fn heal(
        &self,
        offset: u64,
        len: u64,
        role: Role,
        member: &Arc<Member>,
        is_taken: bool,
    ) -> Result<()> {
        if !self.shared.may_heal(member) {
            return Ok(());
        }
        let range = self.whole_blocks(offset, len);
        let _taken = (!is_taken).then(|| self.ranges.take(range.clone()));
        let number = (0..self.map.copies()).find(|&number| self.map.copy(offset, number).role == role);
        let Some(number) = number else { return Ok(()) };
        let mut buf = [0; BLOCK_BYTES as usize];
        let mut is_corrected = false;
        for begin in range.clone().step_by(BLOCK_BYTES as usize) {
            let buf = &mut buf[..(range.end - begin).min(BLOCK_BYTES) as usize];
            let place = self.map.copy(begin, number).member_offset;
            let is_listed = self.shared.recorder.has_bad_blocks(member, place..place + buf.len() as u64);
            // Read now, by ourselves: it may have been written since, and not all blocks are bad.
            if !is_listed && member.read_at(place, buf).is_ok() {
                continue;
            }
            // Where no member can read it there is nothing to write; the member is as good as any.
            if self.read_block(begin, buf, Some(member)).is_ok() {
                match self.rewrite(role, member, place, buf)? {
                    Rewritten::Corrected => is_corrected = true,
                    Rewritten::Bad => {}
                    Rewritten::Failed => break,
                }
            }
        }
        if is_corrected { self.shared.note_corrected(role, member, offset) } else { Ok(()) }
    }

    /// Writes to a member what it should hold and reads it back; records what it does not take.
    pub(super) fn rewrite(
        &self,
        role: Role,
        member: &Arc<Member>,
        place: u64,
        data: &[u8],
    ) -> Result<Rewritten> {
        let outcome = write_and_verify(member, place, data);
        match &outcome {
            Ok(()) => self.shared.note_written(member, place, data.len()),
            Err(cause) => {
                self.shared.lose_block(role, member, place..place + data.len() as u64, cause)?;
            }
        }
        Ok(match outcome {
            _ if member.has_failed() => Rewritten::Failed,
            Ok(()) => Rewritten::Corrected,
            Err(_) => Rewritten::Bad,
        })
    }
}

/// What became of a block that was written again.
pub(super) enum Rewritten {
    Corrected,
    /// It was not taken, which is recorded.
    Bad,
    /// The member is lost.
    Failed,
}

fn write_and_verify(member: &Member, place: u64, data: &[u8]) -> block::Result<()> {
    member.write_at(place, data)?;
    let mut back = vec![0; data.len()];
    member.read_at(place, &mut back)
}
