//! Block maps of ext2 and ext3: 12 block numbers in the inode, then blocks of block numbers, up to three deep.
//!
//! Source: kernel documentation, section "Direct/Indirect Block Addressing". Numbers have 32 bits, 0 is a hole at any
//! level. Indirect blocks carry no checksum, so every number is checked when it is used. There is no mark for a block
//! that was never written.
//!
//! Locks: the caller holds the inode's fields, shared to look up and exclusively to change.

mod change;
mod relocate;

use undercroft_cache::Buffer;
use undercroft_vfs::{Error, Result};

use super::run::{FILE_BLOCKS, Run, RunState};
use crate::error::corrupt_inode;
use crate::inode::Inode;
use crate::numbers::{FileBlock, FsBlock};
use crate::volume::Volume;

pub(super) use self::change::{CREDITS, insert, remove};
pub(super) use self::relocate::{nodes, relocate};

const STRUCTURE: &str = "block map";
const DIRECT: u64 = 12;
const MAX_LEVELS: usize = 3;

/// One more than the largest number that a file block can have in a map of blocks with so many numbers each.
pub(super) fn limit(per_block: u64) -> u64 {
    (DIRECT + per_block + per_block.pow(2) + per_block.pow(3)).min(FILE_BLOCKS)
}

/// The slots that lead to a file block's number: first one in the inode, then one in each indirect block.
#[derive(Clone, Copy)]
struct Route {
    wanted: u64,
    /// The number of indirect blocks on the way.
    levels: usize,
    slots: [u64; MAX_LEVELS + 1],
    /// The first file block of the tree that the inode's slot leads to.
    first: u64,
    per_block: u64,
}

impl Route {
    /// `None` past what a block map can address.
    fn to(volume: &Volume, wanted: u64) -> Option<Self> {
        let per_block = u64::from(volume.block_bytes() / 4);
        if wanted < DIRECT {
            return Some(Self { wanted, levels: 0, slots: [wanted, 0, 0, 0], first: wanted, per_block });
        }
        let (mut first, mut span, mut levels) = (DIRECT, per_block, 1);
        while wanted >= first + span {
            if levels == MAX_LEVELS {
                return None;
            }
            first += span;
            span *= per_block;
            levels += 1;
        }
        let mut route = Self { wanted, levels, slots: [0; MAX_LEVELS + 1], first, per_block };
        route.slots[0] = DIRECT + levels as u64 - 1;
        for level in 1..=levels {
            route.slots[level] = (wanted - first) / route.span(level) % per_block;
        }
        Some(route)
    }

    /// How many file blocks a slot of that level answers for.
    fn span(&self, level: usize) -> u64 {
        self.per_block.pow((self.levels - level) as u32)
    }

    /// The file block after those that the slot of that level answers for.
    fn end(&self, level: usize) -> u64 {
        let span = self.span(level);
        (self.first + ((self.wanted - self.first) / span + 1) * span).min(FILE_BLOCKS)
    }

    /// The slot of the block's own number, and the end of the slots beside it.
    fn last_slots(&self) -> (u64, u64) {
        let end = if self.levels == 0 { DIRECT } else { self.per_block };
        (self.slots[self.levels], end)
    }
}

pub(super) fn lookup(volume: &Volume, inode: &Inode, block: FileBlock) -> Result<Run> {
    let Some(route) = Route::to(volume, u64::from(block.0)) else {
        // Past what a block map can address nothing can be mapped.
        return Ok(Run::hole(block, FILE_BLOCKS));
    };
    let mut buffer: Option<(FsBlock, Buffer)> = None;
    for level in 0..route.levels {
        let bytes = buffer.as_ref().map_or(&inode.i_block[..], |(_, buffer)| buffer);
        let number = get(bytes, route.slots[level]);
        if number == 0 {
            return Ok(Run::hole(block, route.end(level)));
        }
        let at = FsBlock(u64::from(number));
        check(volume, inode, buffer.as_ref().map(|(home, _)| *home), at, 1)?;
        buffer = Some((at, volume.read_block(at)?));
    }
    let bytes = buffer.as_ref().map_or(&inode.i_block[..], |(_, buffer)| buffer);
    let (slot, end) = route.last_slots();
    let (first, len) = count_run(bytes, slot, end);
    let len = len.min(FILE_BLOCKS - u64::from(block.0));
    if first == 0 {
        return Ok(Run::hole(block, u64::from(block.0) + len));
    }
    let first = FsBlock(u64::from(first));
    check(volume, inode, buffer.map(|(home, _)| home), first, len)?;
    Ok(Run { start: block, len, before: 0, state: RunState::Mapped(first) })
}

fn get(bytes: &[u8], slot: u64) -> u32 {
    bytes.get(slot as usize * 4..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

fn set(bytes: &mut [u8], slot: u64, number: u32) {
    if let Some(word) = bytes.get_mut(slot as usize * 4..).and_then(|b| b.first_chunk_mut()) {
        *word = number.to_le_bytes();
    }
}

/// The number in `slot`, and how many slots before `end` go on from it: all zero, or each one more.
fn count_run(bytes: &[u8], slot: u64, end: u64) -> (u32, u64) {
    let first = get(bytes, slot);
    let follows = |n: u64| {
        let expected = if first == 0 { Some(0) } else { first.checked_add(n as u32) };
        expected == Some(get(bytes, slot + n))
    };
    let len = (1..end - slot).find(|&n| !follows(n)).unwrap_or(end - slot);
    (first, len)
}

fn check(volume: &Volume, inode: &Inode, home: Option<FsBlock>, first: FsBlock, len: u64) -> Result<()> {
    if volume.superblock().geometry().contains(first, len) {
        return Ok(());
    }
    Err(corrupt(inode, home, format!("maps {len} blocks from {first} outside the filesystem")))
}

fn corrupt(inode: &Inode, home: Option<FsBlock>, detail: String) -> Error {
    corrupt_inode(STRUCTURE, inode.number, home, detail)
}
