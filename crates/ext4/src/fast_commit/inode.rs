//! One inode as fast commits changed it.

use super::ranges::{Overridden, Ranges};
use crate::numbers::FileBlock;

/// Where the fields lie that decide what a logged inode says; the rest is copied unseen.
mod field {
    use std::ops::Range;

    pub(super) const I_MODE: usize = 0x00;
    pub(super) const I_SIZE_LO: usize = 0x04;
    pub(super) const I_LINKS_COUNT: usize = 0x1A;
    pub(super) const I_BLOCKS_LO: usize = 0x1C;
    pub(super) const I_FLAGS: usize = 0x20;
    pub(super) const I_BLOCK: Range<usize> = 0x28..0x64;
    pub(super) const I_GENERATION: usize = 0x64;
    pub(super) const I_SIZE_HIGH: usize = 0x6C;
    pub(super) const I_BLOCKS_HIGH: usize = 0x74;
}

const FILE_TYPE_MASK: u16 = 0xF000;
const DIRECTORY: u16 = 0x4000;
const REGULAR: u16 = 0x8000;
const SYMLINK: u16 = 0xA000;

const INDEXED_FLAG: u32 = 0x1000;
const HUGE_FILE_FLAG: u32 = 0x0004_0000;
const EXTENTS_FLAG: u32 = 0x0008_0000;
const INLINE_DATA_FLAG: u32 = 0x1000_0000;
/// How an inode keeps its blocks, or a directory its names.
const LAYOUT_FLAGS: u32 = INDEXED_FLAG | HUGE_FILE_FLAG | EXTENTS_FLAG | INLINE_DATA_FLAG;

/// Root of an extent tree without extents: magic, 0 entries, room for 4, depth 0.
const EMPTY_EXTENT_ROOT: [u8; 8] = [0x0A, 0xF3, 0, 0, 4, 0, 0, 0];

/// Distinguishes one use of an inode's number from the next: every new inode draws a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Incarnation {
    generation: u32,
    file_type: u16,
}

impl Incarnation {
    /// That of an inode's bytes; `None` when the number was never used. A deleted inode keeps its own.
    pub(crate) fn of(inode: &[u8]) -> Option<Self> {
        let file_type = file_type(inode);
        (file_type != 0).then(|| Self { generation: u32_at(inode, field::I_GENERATION), file_type })
    }
}

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
    /// Which inode of this number the fields logged so far are of.
    pub(super) fn incarnation(&self) -> Option<Incarnation> {
        self.raw.as_deref().and_then(Incarnation::of)
    }

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

    /// Whether the inode came to be in a fast commit: what the disk has under its number is not its own.
    pub(super) fn is_new(&self) -> bool {
        self.created
    }

    /// The runs of blocks that are mapped otherwise than on disk, in order: first block, count, and what is there.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (FileBlock, u32, Overridden)> {
        self.ranges.iter()
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
    /// A directory's blocks and names are logged by no field and no range. One that is on the disk already keeps the
    /// fields that locate its names, and the count of its links, which belongs to them.
    ///
    /// `inode` has the length of an inode on disk, which is that of logged fields or more.
    pub(crate) fn apply(&self, inode: &mut [u8]) {
        let Some(raw) = &self.raw else { return };
        if self.created {
            inode.fill(0);
        }
        let layout = (!self.created && file_type(raw) == DIRECTORY).then(|| Layout::of(inode));
        let (head, tail) = (..field::I_BLOCK.start, field::I_BLOCK.end..raw.len());
        inode[head].copy_from_slice(&raw[head]);
        inode[tail.clone()].copy_from_slice(&raw[tail]);
        if let Some(layout) = layout {
            return layout.restore(inode);
        }
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

    /// Whether it is a directory that came to be in a fast commit.
    pub(super) fn is_new_directory(&self) -> bool {
        self.created && self.is_directory() == Some(true)
    }

    /// Whether it is a directory, where the fields were logged.
    pub(super) fn is_directory(&self) -> Option<bool> {
        self.raw.as_ref().map(|raw| file_type(raw) == DIRECTORY)
    }
}

/// The fields of a directory that go with the blocks it has on disk.
struct Layout {
    size: [[u8; 4]; 2],
    blocks: ([u8; 4], [u8; 2]),
    links: [u8; 2],
    flags: u32,
}

impl Layout {
    fn of(inode: &[u8]) -> Self {
        Self {
            size: [field::I_SIZE_LO, field::I_SIZE_HIGH].map(|at| bytes_at(inode, at)),
            blocks: (bytes_at(inode, field::I_BLOCKS_LO), bytes_at(inode, field::I_BLOCKS_HIGH)),
            links: bytes_at(inode, field::I_LINKS_COUNT),
            flags: u32_at(inode, field::I_FLAGS) & LAYOUT_FLAGS,
        }
    }

    fn restore(&self, inode: &mut [u8]) {
        let flags = u32_at(inode, field::I_FLAGS) & !LAYOUT_FLAGS | self.flags;
        let fields: [(usize, &[u8]); 6] = [
            (field::I_SIZE_LO, &self.size[0]),
            (field::I_SIZE_HIGH, &self.size[1]),
            (field::I_BLOCKS_LO, &self.blocks.0),
            (field::I_BLOCKS_HIGH, &self.blocks.1),
            (field::I_LINKS_COUNT, &self.links),
            (field::I_FLAGS, &flags.to_le_bytes()),
        ];
        for (at, bytes) in fields {
            inode[at..at + bytes.len()].copy_from_slice(bytes);
        }
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
    u16::from_le_bytes(bytes_at(raw, at))
}

fn u32_at(raw: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(raw, at))
}

fn bytes_at<const N: usize>(raw: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| raw[at + i])
}
