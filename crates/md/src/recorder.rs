//! What the levels tell to the recorder of the array's state on the members.

use std::fmt;
use std::ops::Range;

use crate::Result;
use crate::member::{Lineup, Member};

/// Keeps on the members what must be known after a crash. Implemented by the array over its superblocks, and by tests.
pub(crate) trait Recorder: Send + Sync + fmt::Debug {
    /// A member was left out for this cause: `lineup` is the array without it. Returns when that is durable on all members that are
    /// left, before which no write that the failed member missed may be answered.
    ///
    /// # Errors
    /// When it cannot be recorded: the array must not take writes any more.
    fn member_failed(&self, failed: &Member, lineup: &Lineup, cause: &dyn fmt::Display) -> Result<()>;

    /// Nothing is written any more: threads that wait for work on the array must look again.
    fn stopped(&self) {}

    /// Whether the member has a list of bad blocks.
    fn keeps_bad_blocks(&self, member: &Member) -> bool;

    /// Blocks of the member's data area do not hold what they should and cannot be written. Returns whether they are
    /// recorded, all of them and durably, before which no write that they missed may be answered; if not (no list, or
    /// no room), nothing has changed and the member has to be failed.
    ///
    /// # Errors
    /// When it cannot be recorded: the array must not take writes any more.
    fn bad_blocks_found(&self, member: &Member, ranges: &[Range<u64>]) -> Result<bool>;

    /// Blocks of the member's data area were written and hold what they should.
    fn bad_blocks_written(&self, member: &Member, range: Range<u64>);

    /// Whether any byte of the range is on the member's list of bad blocks. Costs next to nothing where the list is
    /// empty.
    fn has_bad_blocks(&self, member: &Member, range: Range<u64>) -> bool;
}
