//! One inode as fast commits changed it.

use super::ranges::{Overridden, Ranges};
use crate::numbers::FileBlock;

/// Where the fields lie that decide what a logged inode says; the rest is copied unseen.
mod field {
    use std::ops::Range;

    pub(super) const I_MODE: usize = 0x00;
    pub(super) const I_SIZE_LO: usize = 0x04;
    pub(super) const I_FLAGS: usize = 0x20;
    pub(super) const I_BLOCK: Range<usize> = 0x28..0x64;
    pub(super) const I_SIZE_HIGH: usize = 0x6C;
}

const FILE_TYPE_MASK: u16 = 0xF000;
const DIRECTORY: u16 = 0x4000;
const REGULAR: u16 = 0x8000;
const SYMLINK: u16 = 0xA000;

const EXTENTS_FLAG: u32 = 0x0008_0000;
const INLINE_DATA_FLAG: u32 = 0x1000_0000;

/// Root of an extent tree without extents: magic, 0 entries, room for 4, depth 0.
const EMPTY_EXTENT_ROOT: [u8; 8] = [0x0A, 0xF3, 0, 0, 4, 0, 0, 0];

/// What happened to one inode.
#[derive(Clone, Debug, Default)]
pub(crate) struct InodeChange {
    /// The fields as logged last.
    raw: Option<Box<[u8]>>,
    /// Whether the inode came to be in a fast commit. What the disk holds under its number belonged to another
    /// inode, or to none.
    created: bool,
    ranges: Ranges,
}

impl InodeChange {
    /// Takes newly logged fields; `birth` when they are the first of a new inode.
    pub(super) fn set_fields(&mut self, raw: &[u8], birth: bool) {
        if birth {
            *self = Self { created: true, ..Self::default() };
        }
        self.raw = Some(raw.into());
    }

    pub(super) fn set_range(&mut self, first: FileBlock, len: u32, what: Overridden) {
        self.ranges.set(first, len, what);
    }

    /// Whether its mapping differs from the disk's; without it [`lookup`](Self::lookup) always says `OnDisk`.
    pub(crate) fn remaps(&self) -> bool {
        self.created || !self.ranges.is_empty()
    }

    /// What is mapped at a block of the file, and for how many blocks from there on that answer holds; at least
    /// one.
    ///
    /// Where it says `OnDisk`, the mapping that [`apply`](Self::apply) leaves in the inode decides, for no more
    /// blocks than that.
    pub(crate) fn lookup(&self, at: FileBlock) -> (Overridden, u32) {
        match self.ranges.lookup(at) {
            (Overridden::OnDisk, blocks) if self.created => (Overridden::Hole, blocks.max(1)),
            (what, blocks) => (what, blocks.max(1)),
        }
    }

    /// Turns the inode's bytes on disk into what they are after the fast commits.
    ///
    /// The logged fields replace those on disk, up to the length that was logged. `i_block` stays as it is on
    /// disk where it is the root of a mapping, because changes of the mapping are logged as ranges: for
    /// extents and for indirect blocks alike. An inode without a mapping (inline data, a symbolic link within
    /// the inode, a device) takes it from the log. The inode's checksum does not match the result.
    ///
    /// `inode` has the length of an inode on disk, which is that of logged fields or more.
    pub(crate) fn apply(&self, inode: &mut [u8]) {
        let Some(raw) = &self.raw else { return };
        if self.created {
            inode.fill(0);
        }
        let (head, tail) = (..field::I_BLOCK.start, field::I_BLOCK.end..raw.len());
        inode[head].copy_from_slice(&raw[head]);
        inode[tail.clone()].copy_from_slice(&raw[tail]);
        let root = &mut inode[field::I_BLOCK];
        match block_use(raw) {
            BlockUse::ExtentRoot => {
                if root[..2] != EMPTY_EXTENT_ROOT[..2] {
                    root.fill(0);
                    root[..EMPTY_EXTENT_ROOT.len()].copy_from_slice(&EMPTY_EXTENT_ROOT);
                }
            }
            BlockUse::IndirectRoot => {}
            BlockUse::Content => root.copy_from_slice(&raw[field::I_BLOCK]),
        }
    }

    /// Whether it is a directory, where the fields were logged.
    pub(super) fn is_directory(&self) -> Option<bool> {
        self.raw.as_ref().map(|raw| file_type(raw) == DIRECTORY)
    }
}

/// What `i_block` is.
enum BlockUse {
    ExtentRoot,
    IndirectRoot,
    Content,
}

fn block_use(raw: &[u8]) -> BlockUse {
    let flags = u32_at(raw, field::I_FLAGS);
    if flags & EXTENTS_FLAG != 0 {
        return BlockUse::ExtentRoot;
    }
    if flags & INLINE_DATA_FLAG != 0 {
        return BlockUse::Content;
    }
    let size = u64::from(u32_at(raw, field::I_SIZE_HIGH)) << 32 | u64::from(u32_at(raw, field::I_SIZE_LO));
    match file_type(raw) {
        REGULAR | DIRECTORY => BlockUse::IndirectRoot,
        SYMLINK if size >= field::I_BLOCK.len() as u64 => BlockUse::IndirectRoot,
        _ => BlockUse::Content,
    }
}

fn file_type(raw: &[u8]) -> u16 {
    u16_at(raw, field::I_MODE) & FILE_TYPE_MASK
}

fn u16_at(raw: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([raw[at], raw[at + 1]])
}

fn u32_at(raw: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]])
}
