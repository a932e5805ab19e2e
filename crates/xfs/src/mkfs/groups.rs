//! The first blocks of each allocation group: a copy of the superblock, the headers, and the roots of its B+trees.
//!
//! ```text
//! sectors 0 to 3    superblock, free space (AGF), inodes (AGI), free list (AGFL)
//! following blocks  free space by place, free space by size, inodes, [free inodes], [reverse mappings], [references]
//! ```
//!
//! Each tree is a single block. The blocks on the free list are taken from the shortest free run that has enough of them;
//! a group that a filesystem grows by has none there, as in Linux.
//! Source: images made by mkfs.xfs 6.1 and grown by xfs_growfs.

use std::ops::Range;

use uuid::Uuid;
use zerocopy::{FromZeros, IntoBytes};

use super::features::Chosen;
use super::shape::{CHUNK_INODES, Shape};
use crate::ag::agf::{self, RawAgf};
use crate::ag::agfl::{self, RawAgfl};
use crate::ag::agi::{self, RawAgi};
use crate::btree::{BySize, BySpace, Finobt, Inobt, Kind, RefcountBt, RmapBt};
use crate::format::block_header::HeaderKind;
use crate::format::{Superblock, crc};

/// No block, no inode.
const NULL: u32 = u32::MAX;
/// Length of a tree's block header.
const TREE_HEADER: usize = 56;
/// The first place of the free list that is used.
const FREE_LIST_FIRST: u32 = 1;

/// What blocks belong to, where that is no inode.
mod owner {
    pub(super) const HEADERS: i64 = -3;
    pub(super) const LOG: i64 = -4;
    pub(super) const FREE_SPACE: i64 = -5;
    pub(super) const INODE_TREES: i64 = -6;
    pub(super) const INODES: i64 = -7;
    pub(super) const REFERENCES: i64 = -8;
}

/// Inodes in use at the beginning: the root directory, and two files of the real-time section.
pub(super) const INODES_IN_USE: u32 = 3;

/// What the first blocks of all groups of a filesystem have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(super) chosen: Chosen,
    pub(super) block_log: u8,
    pub(super) sector_log: u8,
    pub(super) inode_log: u8,
    pub(super) group_blocks: u32,
}

impl Form {
    /// That of a filesystem of version 5.
    pub(crate) fn of(superblock: &Superblock) -> Self {
        let geometry = superblock.geometry();
        Self {
            chosen: Chosen::of(superblock.features()),
            block_log: geometry.block_log(),
            sector_log: geometry.sector_bytes().trailing_zeros() as u8,
            inode_log: geometry.inode_bytes().trailing_zeros() as u8,
            group_blocks: geometry.ag_blocks(),
        }
    }

    /// Blocks of a group's headers.
    pub(super) fn header_blocks(&self) -> u32 {
        (4_u32 << self.sector_log).div_ceil(1 << self.block_log)
    }

    /// Blocks at the start of each group that are taken: its headers and the roots of its trees.
    pub(super) fn taken_blocks(&self) -> u32 {
        let Chosen { finobt, rmapbt, reflink, .. } = self.chosen;
        self.header_blocks() + 3 + u32::from(finobt) + u32::from(rmapbt) + u32::from(reflink)
    }

    /// Inodes that are allocated together: a chunk, or a block where that holds more.
    pub(super) const fn first_inodes(&self) -> u32 {
        let per_block = 1 << (self.block_log - self.inode_log);
        if per_block > CHUNK_INODES as u32 { per_block } else { CHUNK_INODES as u32 }
    }
}

/// What a group's blocks are used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(super) number: u32,
    pub(super) len: u32,
    /// The blocks on its free list.
    free_list: Vec<u32>,
    /// Runs of free blocks, by place.
    free: Vec<Range<u32>>,
    /// The log, in its group.
    log: Option<Range<u32>>,
    /// The first inodes, in the first group.
    pub(super) inodes: Option<Range<u32>>,
}

impl Group {
    /// Plans a group; `None` if there is no room for the first inodes.
    pub(super) fn plan(shape: &Shape, number: u32) -> Option<Self> {
        let len = shape.group_len(number);
        let log = (number == shape.log_group).then(|| shape.log_start..shape.log_start + shape.log_blocks);
        let mut free = Vec::from([Range { start: shape.taken_blocks(), end: len }]);
        if let Some(log) = &log {
            take(&mut free, log);
        }
        let free_list = fill_free_list(&mut free, shape.free_list);
        let mut inodes = None;
        if number == 0 {
            let alignment = shape.first_inode_alignment();
            let (blocks, free_runs) = (shape.first_inode_blocks(), free.iter());
            let mut places = free_runs.filter_map(|run| {
                let start = run.start.checked_next_multiple_of(alignment)?;
                (start.checked_add(blocks)? <= run.end).then_some(start..start + blocks)
            });
            let place = places.next()?;
            take(&mut free, &place);
            inodes = Some(place);
        }
        Some(Self { number, len, free_list, free, log, inodes })
    }

    /// A group of `len` blocks, at least as many as are taken, that holds nothing.
    pub(crate) fn unused(form: &Form, number: u32, len: u32) -> Self {
        let free = Vec::from([Range { start: form.taken_blocks(), end: len }]);
        Self { number, len, free_list: Vec::new(), free, log: None, inodes: None }
    }

    /// Free blocks, beside those on the free list.
    pub(crate) fn free_blocks(&self) -> u32 {
        self.free.iter().map(ExactSizeIterator::len).sum::<usize>() as u32
    }

    /// All blocks that the group begins with: `superblock` is its copy, in a whole sector.
    pub(crate) fn encode(&self, form: &Form, uuid: Uuid, superblock: &[u8]) -> Vec<u8> {
        let block_bytes = 1_usize << form.block_log;
        let sector = 1_usize << form.sector_log;
        let roots = Roots::of(form);
        let mut bytes = vec![0; form.taken_blocks() as usize * block_bytes];
        let (headers, trees) = bytes.split_at_mut(form.header_blocks() as usize * block_bytes);
        let mut sectors = headers.chunks_exact_mut(sector);
        let contents: [(&[u8], usize); 3] = [
            (&self.agf(form, uuid, &roots), agf::CRC_OFFSET),
            (&self.agi(form, uuid, &roots), agi::CRC_OFFSET),
            (&self.agfl(uuid, sector), agfl::CRC_OFFSET),
        ];
        if let Some(first) = sectors.next() {
            first.copy_from_slice(superblock);
        }
        for (sector, (content, crc_at)) in sectors.zip(contents) {
            sector[..content.len()].copy_from_slice(content);
            crc::seal(sector, crc_at);
        }
        let trees = trees.chunks_exact_mut(block_bytes).zip(roots.first..);
        for ((bytes, block), (magic, records)) in trees.zip(self.trees(form, &roots)) {
            let linear = u64::from(self.number) * u64::from(form.group_blocks) + u64::from(block);
            let sector = linear << (form.block_log - 9);
            encode_tree(bytes, magic, self.number, uuid, sector, &records);
        }
        bytes
    }

    /// The trees in the order of their roots: magic number and records of each.
    fn trees(&self, form: &Form, roots: &Roots) -> Vec<(u32, Vec<Vec<u8>>)> {
        let chosen = form.chosen;
        let run = |run: &Range<u32>| words(&[run.start, run.end - run.start]);
        let mut by_size = self.free.clone();
        by_size.sort_unstable_by_key(|run| (run.end - run.start, run.start));
        let mut trees = vec![
            (BySpace::MAGIC[1], self.free.iter().map(run).collect()),
            (BySize::MAGIC[1], by_size.iter().map(run).collect()),
            (Inobt::MAGIC[1], self.chunks(form)),
        ];
        if chosen.finobt {
            trees.push((Finobt::MAGIC[1], self.chunks(form)));
        }
        if chosen.rmapbt {
            trees.push((RmapBt::MAGIC[1], self.owners(form, roots)));
        }
        if chosen.reflink {
            trees.push((RefcountBt::MAGIC[1], Vec::new()));
        }
        trees
    }

    /// Records of the first inodes' chunks.
    fn chunks(&self, form: &Form) -> Vec<Vec<u8>> {
        let Some(inodes) = &self.inodes else { return Vec::new() };
        let first = inodes.start << (form.block_log - form.inode_log);
        let chunks = form.first_inodes() / CHUNK_INODES as u32;
        let chunk = |n: u32| {
            let used = if n == 0 { INODES_IN_USE } else { 0 };
            let free_count = CHUNK_INODES as u32 - used;
            // Where chunks may have holes, the upper bytes say that this one has none.
            let counts =
                if form.chosen.sparse { (CHUNK_INODES as u32) << 8 | free_count } else { free_count };
            let free = u64::MAX << used;
            words(&[first + n * CHUNK_INODES as u32, counts, (free >> 32) as u32, free as u32])
        };
        (0..chunks).map(chunk).collect()
    }

    /// Records of what each block belongs to.
    fn owners(&self, form: &Form, roots: &Roots) -> Vec<Vec<u8>> {
        let mut owners = vec![
            (0..form.header_blocks(), owner::HEADERS),
            (roots.by_space..roots.by_size + 1, owner::FREE_SPACE),
            (roots.inodes..roots.inodes + 1 + u32::from(form.chosen.finobt), owner::INODE_TREES),
            (roots.owners..roots.owners + 1, owner::FREE_SPACE),
        ];
        if form.chosen.reflink {
            owners.push((roots.references..roots.references + 1, owner::REFERENCES));
        }
        owners.extend(self.log.clone().map(|log| (log, owner::LOG)));
        owners.extend(self.free_list.iter().map(|&block| (block..block + 1, owner::FREE_SPACE)));
        owners.extend(self.inodes.clone().map(|inodes| (inodes, owner::INODES)));
        owners.sort_unstable_by_key(|(blocks, _)| blocks.start);
        owners.dedup_by(|next, before| {
            let joins = next.1 == before.1 && next.0.start == before.0.end;
            if joins {
                before.0.end = next.0.end;
            }
            joins
        });
        let record = |(blocks, owner): &(Range<u32>, i64)| {
            [&words(&[blocks.start, blocks.end - blocks.start])[..], &owner.to_be_bytes(), &[0; 8]].concat()
        };
        owners.iter().map(record).collect()
    }

    fn agf(&self, form: &Form, uuid: Uuid, roots: &Roots) -> Vec<u8> {
        let chosen = form.chosen;
        let mut raw = RawAgf::new_zeroed();
        raw.agf_magicnum.set(agf::MAGIC);
        raw.agf_versionnum.set(1);
        raw.agf_seqno.set(self.number);
        raw.agf_length.set(self.len);
        raw.agf_bno_root.set(roots.by_space);
        raw.agf_bno_level.set(1);
        raw.agf_cnt_root.set(roots.by_size);
        raw.agf_cnt_level.set(1);
        if chosen.rmapbt {
            raw.agf_rmap_root.set(roots.owners);
            raw.agf_rmap_level.set(1);
            raw.agf_rmap_blocks.set(1);
        }
        if chosen.reflink {
            raw.agf_refcount_root.set(roots.references);
            raw.agf_refcount_level.set(1);
            raw.agf_refcount_blocks.set(1);
        }
        let on_list = self.free_list.len() as u32;
        raw.agf_flfirst.set(FREE_LIST_FIRST);
        raw.agf_fllast.set(FREE_LIST_FIRST + on_list - 1);
        raw.agf_flcount.set(on_list);
        raw.agf_freeblks.set(self.free_blocks());
        raw.agf_longest.set(self.free.iter().map(|run| run.end - run.start).max().unwrap_or(0));
        raw.agf_uuid = uuid.into_bytes();
        raw.as_bytes().to_vec()
    }

    fn agi(&self, form: &Form, uuid: Uuid, roots: &Roots) -> Vec<u8> {
        let chosen = form.chosen;
        let mut raw = RawAgi::new_zeroed();
        raw.agi_magicnum.set(agi::MAGIC);
        raw.agi_versionnum.set(1);
        raw.agi_seqno.set(self.number);
        raw.agi_length.set(self.len);
        raw.agi_root.set(roots.inodes);
        raw.agi_level.set(1);
        raw.agi_newino.set(NULL);
        raw.agi_dirino.set(NULL);
        raw.agi_unlinked.fill(NULL.into());
        if let Some(inodes) = &self.inodes {
            raw.agi_count.set(form.first_inodes());
            raw.agi_freecount.set(form.first_inodes() - INODES_IN_USE);
            raw.agi_newino.set(inodes.start << (form.block_log - form.inode_log));
        }
        if chosen.finobt {
            raw.agi_free_root.set(roots.inodes + 1);
            raw.agi_free_level.set(1);
        }
        if chosen.inobtcount {
            raw.agi_iblocks.set(1);
            raw.agi_fblocks.set(u32::from(chosen.finobt));
        }
        raw.agi_uuid = uuid.into_bytes();
        raw.as_bytes().to_vec()
    }

    fn agfl(&self, uuid: Uuid, sector: usize) -> Vec<u8> {
        let mut raw = RawAgfl::new_zeroed();
        raw.agfl_magicnum.set(agfl::MAGIC);
        raw.agfl_seqno.set(self.number);
        raw.agfl_uuid = uuid.into_bytes();
        let mut bytes = raw.as_bytes().to_vec();
        bytes.extend(words(&vec![NULL; FREE_LIST_FIRST as usize]));
        bytes.extend(words(&self.free_list));
        bytes.resize(sector, 0xff);
        bytes
    }
}

/// Blocks of the trees' roots.
struct Roots {
    first: u32,
    by_space: u32,
    by_size: u32,
    /// The tree of free inodes has the next block, if there is one.
    inodes: u32,
    owners: u32,
    references: u32,
}

impl Roots {
    fn of(form: &Form) -> Self {
        let first = form.header_blocks();
        let owners = first + 3 + u32::from(form.chosen.finobt);
        let references = owners + u32::from(form.chosen.rmapbt);
        Self { first, by_space: first, by_size: first + 1, inodes: first + 2, owners, references }
    }
}

/// Takes a run out of the free runs; it lies within one of them.
fn take(free: &mut Vec<Range<u32>>, taken: &Range<u32>) {
    let parts = |run: &Range<u32>| {
        let before = run.start..taken.start.clamp(run.start, run.end);
        let after = taken.end.clamp(run.start, run.end)..run.end;
        [before, after]
    };
    *free = free.iter().flat_map(parts).filter(|run| !run.is_empty()).collect();
}

/// Takes `count` blocks for the free list: from the shortest run that has so many, or else from the longest ones.
fn fill_free_list(free: &mut Vec<Range<u32>>, count: u32) -> Vec<u32> {
    let mut list = Vec::new();
    while let missing @ 1.. = count - list.len() as u32 {
        let len = |run: &&Range<u32>| run.end - run.start;
        let enough = free.iter().filter(|run| len(run) >= missing).min_by_key(|run| (len(run), run.start));
        let Some(run) = enough.or_else(|| free.iter().max_by_key(|run| (len(run), run.start))) else { break };
        let taken = run.start..run.end.min(run.start + missing);
        list.extend(taken.clone());
        take(free, &taken);
    }
    list
}

/// A tree's only block, of a leaf.
fn encode_tree(bytes: &mut [u8], magic: u32, group: u32, uuid: Uuid, sector: u64, records: &[Vec<u8>]) {
    let header = [
        &words(&[magic, records.len() as u32, NULL, NULL])[..],
        &sector.to_be_bytes(),
        &[0; 8],
        uuid.as_bytes(),
        &group.to_be_bytes(),
        &[0; 4],
        &records.concat(),
    ]
    .concat();
    debug_assert!(header.len() >= TREE_HEADER);
    bytes[..header.len()].copy_from_slice(&header);
    crc::seal(bytes, HeaderKind::ShortBtree.crc_offset());
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}
