//! The trees of an allocation group and of a fork: what their records and keys are.

use undercroft_vfs::Ino;

use super::Kind;
use crate::error::Verdict;
use crate::format::extent::{EXTENT_BYTES, Extent, RawExtent};
use crate::format::geometry::CHUNK_INODES;
use crate::format::{AgBlock, AgIno, AgNumber, FileBlock, Geometry};

/// A big-endian number of `bytes`, which are long enough.
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |n, &byte| n << 8 | u32::from(byte))
}

fn long_word(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) << 32 | u64::from(word(bytes, at + 4))
}

fn check_run(what: &str, start: AgBlock, count: u32, geometry: &Geometry, ag: AgNumber) -> Verdict<()> {
    let end = start.0.checked_add(count);
    if count == 0 || end.is_none_or(|end| end > geometry.ag_len(ag)) {
        return Err(format!("{what} of {count} blocks at {start} does not lie in group {ag}").into());
    }
    Ok(())
}

/// A run of free blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeExtent {
    pub(crate) start: AgBlock,
    pub(crate) count: u32,
}

impl FreeExtent {
    fn unpack(bytes: &[u8]) -> Self {
        Self { start: AgBlock(word(bytes, 0)), count: word(bytes, 4) }
    }
}

/// Free space by place (bnobt).
#[derive(Debug)]
pub(crate) struct BySpace;

impl Kind for BySpace {
    type Record = FreeExtent;
    type Key = AgBlock;

    const NAME: &'static str = "free space B+tree by place (bnobt)";
    const MAGIC: [u32; 2] = [0x4142_5442, 0x4142_3342];
    const LONG: bool = false;
    const RECORD_BYTES: usize = 8;
    const KEY_BYTES: usize = 8;

    fn unpack(bytes: &[u8], _: &Geometry) -> FreeExtent {
        FreeExtent::unpack(bytes)
    }

    fn validate(record: &FreeExtent, geometry: &Geometry, ag: AgNumber) -> Verdict<()> {
        check_run("a free extent", record.start, record.count, geometry, ag)
    }

    fn key(record: &FreeExtent) -> AgBlock {
        record.start
    }

    fn unpack_key(bytes: &[u8]) -> AgBlock {
        AgBlock(word(bytes, 0))
    }

    fn in_order(before: &FreeExtent, after: &FreeExtent) -> bool {
        before.start.0.checked_add(before.count).is_some_and(|end| end <= after.start.0)
            && before.start < after.start
    }
}

/// Free space by size (cntbt).
#[derive(Debug)]
pub(crate) struct BySize;

impl Kind for BySize {
    type Record = FreeExtent;
    type Key = (u32, AgBlock);

    const NAME: &'static str = "free space B+tree by size (cntbt)";
    const MAGIC: [u32; 2] = [0x4142_5443, 0x4142_3343];
    const LONG: bool = false;
    const RECORD_BYTES: usize = 8;
    const KEY_BYTES: usize = 8;

    fn unpack(bytes: &[u8], _: &Geometry) -> FreeExtent {
        FreeExtent::unpack(bytes)
    }

    fn validate(record: &FreeExtent, geometry: &Geometry, ag: AgNumber) -> Verdict<()> {
        BySpace::validate(record, geometry, ag)
    }

    fn key(record: &FreeExtent) -> (u32, AgBlock) {
        (record.count, record.start)
    }

    fn unpack_key(bytes: &[u8]) -> (u32, AgBlock) {
        Self::key(&FreeExtent::unpack(bytes))
    }
}

/// 64 inodes, of which a sparse chunk lacks some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InodeChunk {
    pub(crate) start: AgIno,
    /// A bit for each four inodes that do not exist; zero in a full chunk.
    pub(crate) holes: u16,
    /// Inodes that exist.
    pub(crate) count: u8,
    /// Of those, the free ones.
    pub(crate) free_count: u32,
    /// A bit for each inode that is free or does not exist.
    pub(crate) free: u64,
}

impl InodeChunk {
    /// A bit for each inode that exists.
    pub(crate) fn existing(&self) -> u64 {
        (0..16).filter(|n| self.holes >> n & 1 == 0).fold(0, |mask, n| mask | 0xf << (4 * n))
    }

    /// A bit for each inode that is in use.
    pub(crate) fn used(&self) -> u64 {
        self.existing() & !self.free
    }

    /// Whether an inode of the group lies in the chunk and is in use.
    pub(crate) fn has_in_use(&self, ino: AgIno) -> bool {
        let used = ino.0.checked_sub(self.start.0).and_then(|n| self.used().checked_shr(n));
        used.is_some_and(|used| used & 1 == 1)
    }

    fn unpack(bytes: &[u8], geometry: &Geometry) -> Self {
        let (start, free) = (AgIno(word(bytes, 0)), long_word(bytes, 8));
        if !geometry.has_sparse_inodes() {
            return Self { start, holes: 0, count: CHUNK_INODES as u8, free_count: word(bytes, 4), free };
        }
        let holes = u16::from_be_bytes([bytes[4], bytes[5]]);
        Self { start, holes, count: bytes[6], free_count: u32::from(bytes[7]), free }
    }

    fn validate(&self, geometry: &Geometry, ag: AgNumber) -> Verdict<()> {
        let Self { start, count, free_count, .. } = *self;
        let existing = self.existing();
        // The block of the first and the last inode that exist: the ends of a sparse chunk may lie outside.
        let first = start.0.checked_add(existing.trailing_zeros());
        let last = start.0.checked_add(63 - existing.leading_zeros().min(63));
        let shift = geometry.inodes_per_block_log();
        let within = |ino: Option<u32>| ino.is_some_and(|ino| ino >> shift < geometry.ag_len(ag));
        if existing == 0 || !within(first) || !within(last) {
            return Err(format!("an inode chunk at {start} does not lie in group {ag}").into());
        }
        if !start.0.is_multiple_of(CHUNK_INODES.min(geometry.inodes_per_block())) {
            return Err(format!("an inode chunk at {start} does not begin with a block").into());
        }
        if u32::from(count) != existing.count_ones() {
            return Err(format!(
                "the inode chunk at {start} counts {count} inodes and has {}",
                existing.count_ones()
            )
            .into());
        }
        let free = (existing & self.free).count_ones();
        if free_count != free {
            return Err(
                format!("the inode chunk at {start} counts {free_count} free inodes and has {free}").into()
            );
        }
        Ok(())
    }

    fn in_order(before: &Self, after: &Self) -> bool {
        before.start.0.checked_add(CHUNK_INODES).is_some_and(|end| end <= after.start.0)
    }
}

macro_rules! inode_tree {
    ($(#[$doc:meta])* $kind:ident, $name:literal, $magic:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $kind;

        impl Kind for $kind {
            type Record = InodeChunk;
            type Key = AgIno;

            const NAME: &'static str = $name;
            const MAGIC: [u32; 2] = $magic;
            const LONG: bool = false;
            const RECORD_BYTES: usize = 16;
            const KEY_BYTES: usize = 4;

            fn unpack(bytes: &[u8], geometry: &Geometry) -> InodeChunk {
                InodeChunk::unpack(bytes, geometry)
            }

            fn validate(record: &InodeChunk, geometry: &Geometry, ag: AgNumber) -> Verdict<()> {
                record.validate(geometry, ag)
            }

            fn key(record: &InodeChunk) -> AgIno {
                record.start
            }

            fn unpack_key(bytes: &[u8]) -> AgIno {
                AgIno(word(bytes, 0))
            }

            fn in_order(before: &InodeChunk, after: &InodeChunk) -> bool {
                InodeChunk::in_order(before, after)
            }
        }
    };
}

inode_tree!(
    /// All inode chunks.
    Inobt,
    "inode B+tree (inobt)",
    [0x4941_4254, 0x4941_4233]
);
inode_tree!(
    /// Inode chunks that have free inodes.
    Finobt,
    "free inode B+tree (finobt)",
    [0x4649_4254, 0x4649_4233]
);

/// What a run of blocks belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// An inode.
    Inode(Ino),
    /// Blocks of the filesystem itself. The numbers count down from the largest: see the constants.
    Own(u64),
}

impl Owner {
    /// The B+trees of free space and of reverse mappings, and the free list.
    pub(crate) const AG_BTREES: Self = Self::Own(0_u64.wrapping_sub(5));
    /// The B+trees of inodes.
    pub(crate) const INODE_BTREES: Self = Self::Own(0_u64.wrapping_sub(6));
    /// Inode chunks.
    pub(crate) const INODES: Self = Self::Own(0_u64.wrapping_sub(7));
    /// The B+tree of reference counts.
    pub(crate) const REFCOUNT: Self = Self::Own(0_u64.wrapping_sub(8));
    /// Copies of shared blocks that are being made.
    pub(crate) const COPIES: Self = Self::Own(0_u64.wrapping_sub(9));

    pub(crate) fn from_raw(raw: u64) -> Self {
        if raw >> 63 == 0 { Self::Inode(Ino(raw)) } else { Self::Own(raw) }
    }

    pub(crate) fn raw(self) -> u64 {
        match self {
            Self::Inode(ino) => ino.0,
            Self::Own(raw) => raw,
        }
    }
}

/// What a run of blocks is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RmapRecord {
    pub(crate) start: AgBlock,
    pub(crate) count: u32,
    pub(crate) owner: Owner,
    /// The first block within the owner's fork; zero for blocks of the filesystem itself.
    pub(crate) offset: FileBlock,
    pub(crate) attr_fork: bool,
    /// Blocks of the fork's B+tree.
    pub(crate) bmbt: bool,
    pub(crate) unwritten: bool,
}

/// What reverse mappings are ordered by: place, owner, and offset with the flags that tell forks apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RmapKey {
    pub(crate) start: AgBlock,
    pub(crate) owner: u64,
    pub(crate) offset: u64,
}

pub(super) const RMAP_ATTR_FORK: u64 = 1 << 63;
pub(super) const RMAP_BMBT: u64 = 1 << 62;
pub(super) const RMAP_UNWRITTEN: u64 = 1 << 61;
const RMAP_OFFSET: u64 = (1 << 54) - 1;

/// Reverse mappings.
#[derive(Debug)]
pub(crate) struct RmapBt;

impl Kind for RmapBt {
    type Record = RmapRecord;
    type Key = RmapKey;

    const NAME: &'static str = "reverse mapping B+tree (rmapbt)";
    const MAGIC: [u32; 2] = [0, 0x524d_4233];
    const LONG: bool = false;
    const RECORD_BYTES: usize = 24;
    /// The lowest key below the pointer, and the highest.
    const KEY_BYTES: usize = 40;

    fn unpack(bytes: &[u8], _: &Geometry) -> RmapRecord {
        let offset = long_word(bytes, 16);
        RmapRecord {
            start: AgBlock(word(bytes, 0)),
            count: word(bytes, 4),
            owner: Owner::from_raw(long_word(bytes, 8)),
            offset: FileBlock(offset & RMAP_OFFSET),
            attr_fork: offset & RMAP_ATTR_FORK != 0,
            bmbt: offset & RMAP_BMBT != 0,
            unwritten: offset & RMAP_UNWRITTEN != 0,
        }
    }

    fn validate(record: &RmapRecord, geometry: &Geometry, ag: AgNumber) -> Verdict<()> {
        check_run("a reverse mapping", record.start, record.count, geometry, ag)?;
        if let Owner::Inode(ino) = record.owner
            && geometry.split_ino(ino).is_none()
        {
            return Err(format!("a reverse mapping names inode {ino}, which cannot exist").into());
        }
        Ok(())
    }

    fn key(record: &RmapRecord) -> RmapKey {
        let attr_fork = if record.attr_fork { RMAP_ATTR_FORK } else { 0 };
        let bmbt = if record.bmbt { RMAP_BMBT } else { 0 };
        RmapKey { start: record.start, owner: record.owner.raw(), offset: record.offset.0 | attr_fork | bmbt }
    }

    fn unpack_key(bytes: &[u8]) -> RmapKey {
        RmapKey {
            start: AgBlock(word(bytes, 0)),
            owner: long_word(bytes, 4),
            offset: long_word(bytes, 12) & !RMAP_UNWRITTEN,
        }
    }
}

/// How many files share a run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefcountRecord {
    pub(crate) start: AgBlock,
    pub(crate) count: u32,
    /// Users of each block: two or more, or one of a copy that is being made.
    pub(crate) users: u32,
    /// A copy of shared blocks that is being written, and belongs to no file yet.
    pub(crate) cow: bool,
}

pub(super) const REFCOUNT_COW: u32 = 1 << 31;

/// Reference counts of shared blocks. Copies that are being written come after all others.
#[derive(Debug)]
pub(crate) struct RefcountBt;

impl Kind for RefcountBt {
    type Record = RefcountRecord;
    /// Whether it is a copy being written, and the place.
    type Key = (bool, AgBlock);

    const NAME: &'static str = "reference count B+tree (refcountbt)";
    const MAGIC: [u32; 2] = [0, 0x5233_4643];
    const LONG: bool = false;
    const RECORD_BYTES: usize = 12;
    const KEY_BYTES: usize = 4;

    fn unpack(bytes: &[u8], _: &Geometry) -> RefcountRecord {
        let (cow, start) = Self::unpack_key(bytes);
        RefcountRecord { start, count: word(bytes, 4), users: word(bytes, 8), cow }
    }

    fn validate(record: &RefcountRecord, geometry: &Geometry, ag: AgNumber) -> Verdict<()> {
        check_run("a reference count", record.start, record.count, geometry, ag)?;
        let RefcountRecord { start, users, cow, .. } = *record;
        if if cow { users != 1 } else { users < 2 } {
            return Err(format!("the blocks at {start} have {users} users").into());
        }
        Ok(())
    }

    fn key(record: &RefcountRecord) -> (bool, AgBlock) {
        (record.cow, record.start)
    }

    fn unpack_key(bytes: &[u8]) -> (bool, AgBlock) {
        let start = word(bytes, 0);
        (start & REFCOUNT_COW != 0, AgBlock(start & !REFCOUNT_COW))
    }

    fn in_order(before: &RefcountRecord, after: &RefcountRecord) -> bool {
        !before.cow && after.cow
            || before.cow == after.cow
                && before.start < after.start
                && before.start.0.checked_add(before.count).is_some_and(|end| end <= after.start.0)
    }
}

/// The extents of a fork.
#[derive(Debug)]
pub(crate) struct Bmbt;

impl Kind for Bmbt {
    type Record = Extent;
    type Key = FileBlock;

    const NAME: &'static str = "extent B+tree (bmbt)";
    const MAGIC: [u32; 2] = [0x424d_4150, 0x424d_4133];
    const LONG: bool = true;
    const RECORD_BYTES: usize = EXTENT_BYTES;
    const KEY_BYTES: usize = 8;

    fn unpack(bytes: &[u8], _: &Geometry) -> Extent {
        RawExtent::from_words(long_word(bytes, 0), long_word(bytes, 8)).unpack()
    }

    fn validate(record: &Extent, geometry: &Geometry, _: AgNumber) -> Verdict<()> {
        record.validate(geometry)
    }

    fn key(record: &Extent) -> FileBlock {
        record.file
    }

    fn unpack_key(bytes: &[u8]) -> FileBlock {
        FileBlock(long_word(bytes, 0))
    }

    fn in_order(before: &Extent, after: &Extent) -> bool {
        before.file < after.file && before.end() <= after.file.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Incompat, Superblock, testing};

    /// A record of a chunk at inode 128 whose 61 last inodes are free, as a filesystem with sparse chunks has it.
    const RECORD: [u8; 16] = [0, 0, 0, 128, 0, 0, 64, 61, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xf8];

    fn geometry(change: impl FnOnce(&mut crate::format::superblock::RawSuperblock)) -> Geometry {
        *Superblock::from_sector(&testing::superblock_sector(change)).unwrap().geometry()
    }

    /// mkfs.xfs leaves the alignment of sparse chunks at zero where a block holds a whole chunk.
    #[test]
    fn the_feature_decides_how_a_chunk_is_read_and_not_its_alignment() {
        for alignment in [4, 0] {
            let geometry = geometry(|raw| raw.sb_spino_align.set(alignment));
            let chunk = Inobt::unpack(&RECORD, &geometry);
            assert_eq!((chunk.holes, chunk.count, chunk.free_count), (0, 64, 61));
            assert_eq!(Inobt::validate(&chunk, &geometry, AgNumber(0)), Ok(()));
            assert_eq!(chunk.used(), 0b111);
        }
        let geometry = geometry(|raw| {
            let sparse = Incompat::SPARSE_INODES.bits();
            raw.sb_features_incompat.set(raw.sb_features_incompat.get() & !sparse);
        });
        let mut record = RECORD;
        record[4..8].copy_from_slice(&61_u32.to_be_bytes());
        let chunk = Inobt::unpack(&record, &geometry);
        assert_eq!((chunk.holes, chunk.count, chunk.free_count), (0, 64, 61));
    }
}
