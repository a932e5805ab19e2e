//! The free index of a directory whose hash index is a tree: the largest unused space of each block of names.
//!
//! A block of it has a header of 64 bytes with the number of the first block of names that it knows, at byte 48, how many
//! it has places for and how many of these are there, and then two bytes for each. A block that knows of none is
//! removed.

use undercroft_vfs::{Error, Result};

use super::leaf::NO_BLOCK;
use super::plan::Change;
use super::raw::{MAGIC_FREE, get16, get32, put16, put32};
use crate::da::Layout;
use crate::error::Verdict;
use crate::format::block_header::HeaderKind;
use crate::transaction::Seal;

const HEADER_BYTES: usize = 64;

/// Where the header has the first block's number, how many places there are, and how many are used.
const FIRST_AT: usize = 48;
const VALID_AT: usize = 52;
const USED_AT: usize = 56;

fn best_at(place: usize) -> usize {
    HEADER_BYTES + place * 2
}

/// How many blocks of names one block of the index knows.
pub(super) fn room(layout: &Layout) -> usize {
    (layout.dir_block_bytes - HEADER_BYTES) / 2
}

/// Validates a block of the index, the one of this number, whose header has been verified; returns how many places it has.
pub(super) fn validate(bytes: &[u8], layout: &Layout, index: u32) -> Verdict<usize> {
    let first = u64::from(index) * room(layout) as u64;
    let (valid, used) = (get32(bytes, VALID_AT) as usize, get32(bytes, USED_AT) as usize);
    if !bytes.starts_with(MAGIC_FREE) {
        return Err("is no block of the free index".into());
    }
    if u64::from(get32(bytes, FIRST_AT)) != first || valid > room(layout) || used > valid {
        let from = get32(bytes, FIRST_AT);
        return Err(
            format!("has {used} of {valid} blocks from {from} on, in block {index} of the index").into()
        );
    }
    Ok(valid)
}

/// The places of a block of the index.
pub(super) fn best_bytes(bytes: &[u8], valid: usize) -> &[u8] {
    &bytes[HEADER_BYTES..best_at(valid)]
}

/// What a place has.
pub(super) fn best(bytes: &[u8], place: usize) -> u16 {
    get16(bytes, best_at(place))
}

/// Changes what a place has, in which there was a block and is one.
pub(super) fn put_best(bytes: &mut [u8], place: usize, best: u16) {
    put16(bytes, best_at(place), usize::from(best));
}

impl Change<'_> {
    fn free_room(&self) -> usize {
        room(&self.layout)
    }

    /// The block of the index that knows a block of names.
    fn free_block_of(&self, block: u32) -> u32 {
        self.free_block(block / self.free_room() as u32)
    }

    /// The block of the index of this number.
    fn free_block(&self, index: u32) -> u32 {
        self.layout.free_start() + index * self.unit()
    }

    /// The number of a block of the index.
    fn free_index(&self, at: u32) -> u32 {
        (at - self.layout.free_start()) / self.unit()
    }

    /// Makes the index of a directory that had one leaf.
    pub(super) fn make_free_index(&mut self, bests: &[u16]) -> Result<()> {
        self.add_free_block(self.layout.free_start())?;
        for (block, &best) in bests.iter().enumerate() {
            self.set_best(block as u32, best)?;
        }
        Ok(())
    }

    fn add_free_block(&mut self, at: u32) -> Result<()> {
        let first = self.free_index(at) as usize * self.free_room();
        let bytes = self.add_block(at, Seal::DirFree)?;
        bytes[..4].copy_from_slice(MAGIC_FREE);
        put32(bytes, FIRST_AT, first as u32);
        Ok(())
    }

    /// Reads a block of the index; returns how many places it has.
    fn load_free(&mut self, at: u32) -> Result<usize> {
        self.load(at, HeaderKind::DirBlock)?;
        let verdict = validate(self.bytes(at), &self.layout, self.free_index(at));
        self.checked(at, verdict)
    }

    /// A block of names with an unused space of `len` bytes, or the number that a new one gets.
    pub(super) fn find_space(&mut self, len: usize) -> Result<(u32, bool)> {
        let room = self.free_room();
        let end = self.data_blocks();
        let mut hole = end;
        for index in (0..=end.saturating_sub(1) / room as u32).rev() {
            let at = self.free_block(index);
            if !self.is_present(at)? {
                continue;
            }
            let valid = self.load_free(at)?;
            let first = index as usize * room;
            let bytes = self.bytes(at);
            // Names that come one after another go into the block that was added last.
            for place in (0..valid).rev() {
                let best = get16(bytes, best_at(place));
                if best == NO_BLOCK {
                    hole = hole.min((first + place) as u32);
                } else if usize::from(best) >= len {
                    return Ok(((first + place) as u32, false));
                }
            }
        }
        if hole >= self.layout.names_end() { Err(Error::NoSpace) } else { Ok((hole, true)) }
    }

    /// Notes the largest unused space of a block of names, or that the block is gone.
    pub(super) fn set_best(&mut self, block: u32, best: u16) -> Result<()> {
        let at = self.free_block_of(block);
        if !self.is_present(at)? {
            if best == NO_BLOCK {
                return Ok(());
            }
            self.add_free_block(at)?;
        }
        let mut valid = self.load_free(at)?;
        let place = block as usize % self.free_room();
        let bytes = self.bytes(at);
        let before = if place < valid { get16(bytes, best_at(place)) } else { NO_BLOCK };
        if before == best {
            return Ok(());
        }
        let used = get32(bytes, USED_AT) + u32::from(before == NO_BLOCK);
        let Some(used) = used.checked_sub(u32::from(best == NO_BLOCK)) else {
            return Err(self.corrupt(self.home(at), "counts none of the blocks that it knows"));
        };
        let bytes = self.edit(at, Seal::DirFree);
        while valid <= place {
            put16(bytes, best_at(valid), usize::from(NO_BLOCK));
            valid += 1;
        }
        put16(bytes, best_at(place), usize::from(best));
        while valid > 0 && get16(bytes, best_at(valid - 1)) == NO_BLOCK {
            valid -= 1;
            put16(bytes, best_at(valid), 0);
        }
        put32(bytes, VALID_AT, valid as u32);
        put32(bytes, USED_AT, used);
        if used == 0 {
            self.remove_block(at);
        }
        Ok(())
    }

    /// What the index has, where it is one block; and which.
    pub(super) fn only_free_block(&mut self) -> Result<Option<(Vec<u16>, u32)>> {
        let at = self.layout.free_start();
        if self.data_blocks() as usize > self.free_room() || !self.is_present(at)? {
            return Ok(None);
        }
        let valid = self.load_free(at)?;
        let bytes = self.bytes(at);
        Ok(Some(((0..valid).map(|place| get16(bytes, best_at(place))).collect(), at)))
    }
}
