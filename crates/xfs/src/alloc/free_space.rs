//! A group's free space in memory.

use undercroft_vfs::Result;

use super::free_list::FreeList;
use super::*;
use crate::ag::agf::RawAgf;
use crate::format::AgNumber;

/// A group's free space in memory.
#[derive(Debug)]
pub(super) struct FreeSpace {}

impl FreeSpace {
    pub(super) fn load(volume: &Volume, number: AgNumber, agf: &RawAgf, list: &FreeList) -> Result<Self> {
        let _ = (volume, number, agf, list);
        todo!("space")
    }
}
