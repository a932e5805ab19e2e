//! Block maps of ext2 and ext3: 12 block numbers in the inode, then blocks of block numbers, up to three deep.
//!
//! Source: kernel documentation, section "Direct/Indirect Block Addressing". Numbers have 32 bits, 0 is a hole
//! at any level. Indirect blocks carry no checksum, so every number is checked when it is used.

use undercroft_cache::Buffer;
use undercroft_vfs::Result;

use super::{FILE_BLOCKS, Run, RunState};
use crate::error::corrupt_inode;
use crate::inode::Inode;
use crate::numbers::{FileBlock, FsBlock};
use crate::volume::Volume;

const STRUCTURE: &str = "block map";
const DIRECT: u64 = 12;

pub(super) fn lookup(volume: &Volume, inode: &Inode, block: FileBlock) -> Result<Run> {
    let wanted = u64::from(block.0);
    if wanted < DIRECT {
        let run = count_run(&Numbers::Inode(&inode.i_block), wanted, DIRECT);
        return finish(volume, inode, None, block, run);
    }
    let per_block = u64::from(volume.block_bytes() / 4);
    // Find the tree that holds the block: one, two or three levels of indirect blocks.
    let (mut first, mut span) = (DIRECT, per_block);
    let mut levels = 1;
    while wanted >= first + span {
        if levels == 3 {
            // Past what a block map can address nothing can be mapped.
            return Ok(Run::hole(block, FILE_BLOCKS));
        }
        first += span;
        span *= per_block;
        levels += 1;
    }
    let mut number = Numbers::Inode(&inode.i_block).get(DIRECT + levels - 1);
    let mut home = None;
    loop {
        // `number` is the root of a subtree that maps `span` file blocks from `first` on.
        if number == 0 {
            return Ok(Run::hole(block, (first + span).min(FILE_BLOCKS)));
        }
        let at = FsBlock(u64::from(number));
        check(volume, inode, home, at, 1)?;
        let buffer = volume.read_block(at)?;
        home = Some(at);
        span /= per_block;
        if span == 1 {
            let run = count_run(&Numbers::Block(buffer), wanted - first, per_block);
            return finish(volume, inode, home, block, run);
        }
        let slot = (wanted - first) / span;
        number = Numbers::Block(buffer).get(slot);
        first += slot * span;
    }
}

/// Block numbers, wherever they lie.
enum Numbers<'a> {
    Inode(&'a [u8; 60]),
    Block(Buffer),
}

impl Numbers<'_> {
    fn get(&self, slot: u64) -> u32 {
        let bytes: &[u8] = match self {
            Self::Inode(bytes) => *bytes,
            Self::Block(buffer) => buffer,
        };
        bytes.get(slot as usize * 4..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
    }
}

/// The number in `slot`, and how many slots before `end` go on from it: all zero, or each one more.
fn count_run(numbers: &Numbers<'_>, slot: u64, end: u64) -> (u32, u64) {
    let first = numbers.get(slot);
    let follows = |n: u64| {
        let expected = if first == 0 { Some(0) } else { first.checked_add(n as u32) };
        expected == Some(numbers.get(slot + n))
    };
    let len = (1..end - slot).find(|&n| !follows(n)).unwrap_or(end - slot);
    (first, len)
}

fn finish(
    volume: &Volume,
    inode: &Inode,
    home: Option<FsBlock>,
    start: FileBlock,
    (first, len): (u32, u64),
) -> Result<Run> {
    let len = len.min(FILE_BLOCKS - u64::from(start.0));
    if first == 0 {
        return Ok(Run { start, len, state: RunState::Hole });
    }
    let first = FsBlock(u64::from(first));
    check(volume, inode, home, first, len)?;
    Ok(Run { start, len, state: RunState::Mapped(first) })
}

fn check(volume: &Volume, inode: &Inode, home: Option<FsBlock>, first: FsBlock, len: u64) -> Result<()> {
    if volume.superblock().geometry().contains(first, len) {
        return Ok(());
    }
    let detail = format!("maps {len} blocks from {first} outside the filesystem");
    Err(corrupt_inode(STRUCTURE, inode.number, home, detail))
}
