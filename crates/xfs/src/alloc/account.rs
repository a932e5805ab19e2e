//! Counting: what can be reserved, and what is set aside in each group so that its trees can always grow.

use super::group::{Group, GroupState};
use super::*;
use crate::format::AgNumber;

/// What is set aside in a group.
#[derive(Debug)]
pub(super) struct SetAside {
    /// Blocks of the trees of inodes. Counted here, because not each filesystem counts them in its headers.
    pub(super) agi_iblocks: u32,
    pub(super) agi_fblocks: u32,
}

impl SetAside {
    pub(super) fn new(volume: &Volume, number: AgNumber) -> Self {
        let _ = (volume, number);
        todo!("space")
    }
}

impl GroupState {
    /// Blocks that others than the group's own trees may have; `busy` of the free blocks wait for a commit.
    pub(super) fn reservable(&self, busy: u64) -> u64 {
        let _ = busy;
        todo!("space")
    }
}

impl Allocator {
    /// Brings the sum over all groups up to date after a change of a group, which used up `taken` reserved blocks.
    pub(super) fn recount(&self, group: &Group, state: &mut GroupState, taken: u64) {
        let _ = (group, state, taken);
        todo!("space")
    }
}
