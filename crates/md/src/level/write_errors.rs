//! What follows from how a member took a write.
//!
//! A member that answers with an error is asked again, block by block. What it does not take then is recorded on its
//! list of bad blocks, durably before the writer is told, and the member goes on: these blocks are read from the others
//! until a write to them succeeds, which takes them off the list. A member without a list, or without room on it, is
//! left out of the array. Either way the caller sees whether what was written can still be read.
//!
//! Source: `md(4)` on bad block logs; `drivers/md/raid1.c` and `drivers/md/raid5.c`, read for facts.

use std::ops::Range;
use std::slice;
use std::sync::Arc;

use undercroft_block as block;

use super::Shared;
use crate::Result;
use crate::member::{Member, Role};

/// What is rewritten and recorded as bad at once, at most: a page.
pub(crate) const BLOCK_BYTES: u64 = 4096;

impl Shared {
    /// A member took a write of these pieces of its data area, or some of them, or none.
    ///
    /// # Errors
    /// When it failed and the array cannot do without it, or what it lacks cannot be recorded.
    pub(crate) fn handle_write_errors<'d>(
        &self,
        role: Role,
        member: &Arc<Member>,
        pieces: impl IntoIterator<Item = (u64, &'d [u8])>,
        outcome: &block::Result<()>,
    ) -> Result<()> {
        let Err(cause) = outcome else {
            pieces.into_iter().for_each(|(offset, data)| self.note_written(member, offset, data.len()));
            return Ok(());
        };
        if member.has_failed() || member.hung().is_some() || !self.recorder.keeps_bad_blocks(member) {
            return self.fail(role, member, cause);
        }
        let mut bad: Vec<Range<u64>> = Vec::new();
        for (offset, data) in pieces.into_iter().flat_map(|(offset, data)| blocks(offset, data)) {
            match member.write_at(offset, data) {
                Ok(()) => self.note_written(member, offset, data.len()),
                Err(_) => bad.push(offset..offset + data.len() as u64),
            }
        }
        if bad.is_empty() { Ok(()) } else { self.lose_blocks(role, member, &bad, cause) }
    }

    /// Blocks of a member do not hold what they should, and cannot be written. Returns when that is recorded, or the
    /// member is left out.
    ///
    /// # Errors
    /// When the array can do neither.
    pub(crate) fn lose_blocks(
        &self,
        role: Role,
        member: &Arc<Member>,
        ranges: &[Range<u64>],
        cause: &block::Error,
    ) -> Result<()> {
        member.want_replacement();
        match self.recorder.bad_blocks_found(member, ranges) {
            Ok(true) => Ok(()),
            Ok(false) => self.fail(role, member, cause),
            Err(error) => {
                let name = member.device().name();
                Err(self.stop(format!("that {name} has bad blocks ({cause}) could not be recorded: {error}")))
            }
        }
    }

    /// The same for one range that the member did not take, although it was written by itself.
    ///
    /// # Errors
    /// As for [`lose_blocks`](Self::lose_blocks).
    pub(crate) fn lose_block(
        &self,
        role: Role,
        member: &Arc<Member>,
        range: Range<u64>,
        cause: &block::Error,
    ) -> Result<()> {
        self.lose_blocks(role, member, slice::from_ref(&range), cause)
    }

    /// What was written well is good, whatever it was before.
    pub(crate) fn note_written(&self, member: &Member, offset: u64, len: usize) {
        let range = offset..offset + len as u64;
        if self.recorder.has_bad_blocks(member, range.clone()) {
            self.recorder.bad_blocks_written(member, range);
        }
    }
}

/// Data for a member, cut where its blocks end.
fn blocks(offset: u64, data: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut rest = (offset, data);
    std::iter::from_fn(move || {
        let (offset, data) = rest;
        let len = (BLOCK_BYTES - offset % BLOCK_BYTES).min(data.len() as u64) as usize;
        let (block, after) = data.split_at(len);
        rest = (offset + len as u64, after);
        (len > 0).then_some((offset, block))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_cut_where_blocks_end() {
        let lens = |offset, len| {
            blocks(offset, &vec![0; len]).map(|(at, data)| (at, data.len())).collect::<Vec<_>>()
        };
        assert_eq!(lens(4000, 5000), [(4000, 96), (4096, 4096), (8192, 808)]);
        assert_eq!(lens(8192, 4096), [(8192, 4096)]);
        assert!(lens(10, 0).is_empty());
    }
}
