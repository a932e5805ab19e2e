//! Which blocks an inode names: its extent tree or its block map, walked from end to end.
//!
//! Every node is looked at once. While blocks are claimed, a node that has another owner is not entered, so a
//! map that leads back into itself ends; afterwards only maps that were found good are walked again.

use undercroft_cache::Buffer;
use undercroft_diskfs::At;
use undercroft_vfs::Result;

use super::checker::Checker;
use super::raw::{BAD_BLOCKS_INODE, Inode, le16, le32};
use crate::checksum::crc32c;
use crate::inode::InodeFlags;
use crate::numbers::FsBlock;

const EXTENT_MAGIC: u16 = 0xF30A;
const EXTENT_BYTES: usize = 12;
const MAX_DEPTH: u16 = 5;
const MAX_WRITTEN_LEN: u64 = 1 << 15;
const DIRECT: u64 = 12;
/// One past the largest number of a file's block.
const FILE_BLOCKS: u64 = 1 << 32;

/// Blocks of a file that are consecutive on the device too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) file_block: u64,
    pub(super) first: u64,
    pub(super) count: u64,
    pub(super) unwritten: bool,
}

/// What a walk came to.
#[derive(Clone, Debug, Default)]
pub(super) struct Walked {
    /// Runs in the order of the file.
    pub(super) runs: Vec<Run>,
    /// Clusters of the file, those of its map included.
    pub(super) clusters: u64,
    /// Whether something was wrong with the map.
    pub(super) damaged: bool,
}

impl Walked {
    /// One past the last block, 0 for an empty file.
    pub(super) fn end(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.file_block + run.count)
    }

    /// One past the last block that is not unwritten.
    pub(super) fn written_end(&self) -> u64 {
        self.runs.iter().rev().find(|run| !run.unwritten).map_or(0, |run| run.file_block + run.count)
    }
}

/// Whether blocks are the inode's from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Claim,
    LookOnly,
}

/// A node of an extent tree that is being walked.
struct Node {
    bytes: Box<[u8]>,
    home: Option<u64>,
    depth: u16,
    slot: usize,
    /// File blocks that it answers for.
    low: u64,
    high: u64,
}

impl Checker<'_> {
    /// Walks the map of an inode that has one.
    pub(super) fn walk_map(&mut self, inode: &Inode<'_>, mode: Mode) -> Result<Walked> {
        let mut walked = Walked::default();
        if inode.flags().contains(InodeFlags::EXTENTS) {
            self.walk_extents(inode, mode, &mut walked)?;
        } else {
            self.walk_indirect(inode, mode, &mut walked)?;
        }
        Ok(walked)
    }

    fn walk_extents(&mut self, inode: &Inode<'_>, mode: Mode, walked: &mut Walked) -> Result<()> {
        let root = &inode.raw.i_block;
        let depth = le16(root, 6);
        let mut stack =
            vec![Node { bytes: (*root).into(), home: None, depth, slot: 0, low: 0, high: FILE_BLOCKS }];
        if let Some(detail) = node_fault(root, None) {
            walked.damaged = true;
            self.findings.add("extent-tree", At::inode(inode.number), detail);
            return Ok(());
        }
        while let Some(node) = stack.last_mut() {
            let entries = usize::from(le16(&node.bytes, 2));
            if node.slot == entries {
                stack.pop();
                continue;
            }
            let at = EXTENT_BYTES * (1 + node.slot);
            node.slot += 1;
            let first = u64::from(le32(&node.bytes, at));
            let place = node.home.map_or(At::inode(inode.number), |home| At::inode(inode.number).block(home));
            if first < node.low {
                walked.damaged = true;
                let detail = format!("entry for file block {first} comes after file block {}", node.low);
                self.findings.add("extent-order", place, detail);
                continue;
            }
            if node.depth == 0 {
                let extent = decode_extent(&node.bytes[at..]);
                let high = node.high;
                match self.extent_fault(&extent, high) {
                    Some(detail) => {
                        walked.damaged = true;
                        self.findings.add("extent-range", place, detail);
                    }
                    None => {
                        node.low = extent.file_block + extent.count;
                        self.take_run(inode, mode, walked, extent);
                    }
                }
                continue;
            }
            let next = at + EXTENT_BYTES;
            let high = if node.slot < entries { u64::from(le32(&node.bytes, next)) } else { node.high };
            let child = u64::from(le32(&node.bytes, at + 4)) | u64::from(le16(&node.bytes, at + 8)) << 32;
            node.low = first + 1;
            let depth = node.depth - 1;
            if let Some(node) = self.enter(inode, mode, walked, place, child, depth)? {
                if u64::from(le32(&node.bytes, EXTENT_BYTES)) != first {
                    walked.damaged = true;
                    let detail = format!("its parent says that it begins at file block {first}");
                    self.findings.add("extent-order", At::inode(inode.number).block(child), detail);
                }
                stack.push(Node { low: first, high: high.max(first), ..node });
            }
        }
        Ok(())
    }

    /// A node below the root, if it can be walked.
    fn enter(
        &mut self,
        inode: &Inode<'_>,
        mode: Mode,
        walked: &mut Walked,
        parent: At,
        home: u64,
        depth: u16,
    ) -> Result<Option<Node>> {
        if !self.volume.superblock().geometry().contains(FsBlock(home), 1) {
            walked.damaged = true;
            self.findings.add(
                "extent-range",
                parent,
                format!("leads to block {home} outside the filesystem"),
            );
            return Ok(None);
        }
        walked.clusters += 1;
        if mode == Mode::Claim && !self.claim(inode.number, home, 1) {
            walked.damaged = true;
            return Ok(None);
        }
        let buffer = self.volume.read_block(FsBlock(home))?;
        let place = At::inode(inode.number).block(home);
        if let Some(detail) = node_fault(&buffer, Some(depth)) {
            walked.damaged = true;
            self.findings.add("extent-tree", place, detail);
            return Ok(None);
        }
        if mode == Mode::Claim && self.volume.superblock().has_metadata_checksums() {
            let covered = EXTENT_BYTES * (1 + usize::from(le16(&buffer, 4)));
            let computed = crc32c(inode.seed(self.volume.superblock()), &buffer[..covered]);
            let stored = le32(&buffer, covered);
            if stored != computed {
                let detail = format!("checksum is {stored:#010x}, its content gives {computed:#010x}");
                self.findings.add("extent-checksum", place, detail);
            }
        }
        let bytes = buffer[..].into();
        Ok(Some(Node { bytes, home: Some(home), depth, slot: 0, low: 0, high: FILE_BLOCKS }))
    }

    fn extent_fault(&self, extent: &Run, high: u64) -> Option<String> {
        let Run { file_block, first, count, .. } = *extent;
        if count == 0 {
            return Some(format!("extent at file block {file_block} is empty"));
        }
        if !self.volume.superblock().geometry().contains(FsBlock(first), count) {
            return Some(format!(
                "maps {count} blocks from {first} at file block {file_block}, outside the filesystem"
            ));
        }
        if file_block + count > high {
            return Some(format!("{count} blocks at file block {file_block} reach past file block {high}"));
        }
        let per_cluster = self.per_cluster;
        (file_block % per_cluster != first % per_cluster)
            .then(|| format!("file block {file_block} lies at {first}, at another place in its cluster"))
    }

    fn take_run(&mut self, inode: &Inode<'_>, mode: Mode, walked: &mut Walked, run: Run) {
        let last = walked.runs.last().copied();
        if mode == Mode::Claim {
            // The cluster in which the last run ended may go on here.
            let per_cluster = self.per_cluster;
            let shared = last.is_some_and(|last| {
                let end = last.first + last.count - 1;
                end / per_cluster == run.first / per_cluster
                    && (last.file_block + last.count - 1) / per_cluster == run.file_block / per_cluster
            });
            let skip = if shared { per_cluster - run.first % per_cluster } else { 0 };
            if run.count > skip {
                let (first, count) = (run.first + skip, run.count - skip);
                match inode.number {
                    BAD_BLOCKS_INODE => self.claim_bad(inode.number, first, count),
                    number => self.claim_content(number, first, count),
                }
            }
            let clusters = (run.first + run.count).div_ceil(per_cluster) - run.first / per_cluster;
            walked.clusters += clusters - u64::from(shared);
        }
        match walked.runs.last_mut() {
            Some(last)
                if last.unwritten == run.unwritten
                    && last.file_block + last.count == run.file_block
                    && last.first + last.count == run.first =>
            {
                last.count += run.count;
            }
            _ => walked.runs.push(run),
        }
    }

    fn walk_indirect(&mut self, inode: &Inode<'_>, mode: Mode, walked: &mut Walked) -> Result<()> {
        let per_block = u64::from(self.volume.block_bytes() / 4);
        let slots = &inode.raw.i_block;
        for slot in 0..DIRECT {
            let block = le32(slots, slot as usize * 4);
            self.take_block(inode, mode, walked, slot, block);
        }
        let (mut first, mut span) = (DIRECT, per_block);
        for level in 1..=3_u32 {
            let block = le32(slots, (DIRECT as usize + level as usize - 1) * 4);
            self.walk_numbers(inode, mode, walked, (block, first, level))?;
            first += span;
            span *= per_block;
        }
        Ok(())
    }

    /// The tree of block numbers whose root is `block`: `level` levels of them, the first for file block `first`.
    fn walk_numbers(
        &mut self,
        inode: &Inode<'_>,
        mode: Mode,
        walked: &mut Walked,
        (block, first, level): (u32, u64, u32),
    ) -> Result<()> {
        let per_block = u64::from(self.volume.block_bytes() / 4);
        let mut stack: Vec<(Buffer, u64, u64, u32)> = Vec::new();
        let Some(buffer) = self.enter_numbers(inode, mode, walked, block)? else { return Ok(()) };
        stack.push((buffer, 0, first, level));
        while let Some((buffer, slot, first, level)) = stack.last_mut() {
            if *slot == per_block {
                stack.pop();
                continue;
            }
            let span = per_block.pow(*level - 1);
            let block = le32(buffer, *slot as usize * 4);
            let (file_block, below) = (*first + *slot * span, *level - 1);
            *slot += 1;
            if block == 0 {
                continue;
            }
            if below == 0 {
                self.take_block(inode, mode, walked, file_block, block);
            } else if let Some(buffer) = self.enter_numbers(inode, mode, walked, block)? {
                stack.push((buffer, 0, file_block, below));
            }
        }
        Ok(())
    }

    fn enter_numbers(
        &mut self,
        inode: &Inode<'_>,
        mode: Mode,
        walked: &mut Walked,
        block: u32,
    ) -> Result<Option<Buffer>> {
        let home = u64::from(block);
        if block == 0 {
            return Ok(None);
        }
        if !self.in_filesystem(inode, walked, home) {
            return Ok(None);
        }
        walked.clusters += 1;
        if mode == Mode::Claim && !self.claim(inode.number, home, 1) {
            walked.damaged = true;
            return Ok(None);
        }
        self.volume.read_block(FsBlock(home)).map(Some)
    }

    fn take_block(
        &mut self,
        inode: &Inode<'_>,
        mode: Mode,
        walked: &mut Walked,
        file_block: u64,
        block: u32,
    ) {
        let first = u64::from(block);
        if block != 0 && self.in_filesystem(inode, walked, first) {
            self.take_run(inode, mode, walked, Run { file_block, first, count: 1, unwritten: false });
        }
    }

    fn in_filesystem(&mut self, inode: &Inode<'_>, walked: &mut Walked, block: u64) -> bool {
        let inside = self.volume.superblock().geometry().contains(FsBlock(block), 1);
        if !inside {
            walked.damaged = true;
            let detail = format!("names block {block} outside the filesystem");
            self.findings.add("block-map-range", At::inode(inode.number), detail);
        }
        inside
    }
}

fn decode_extent(bytes: &[u8]) -> Run {
    let len = u64::from(le16(bytes, 4));
    let unwritten = len > MAX_WRITTEN_LEN;
    Run {
        file_block: u64::from(le32(bytes, 0)),
        first: u64::from(le32(bytes, 8)) | u64::from(le16(bytes, 6)) << 32,
        count: if unwritten { len - MAX_WRITTEN_LEN } else { len },
        unwritten,
    }
}

/// What is wrong with a node's header. `depth` is what the parent promises; the root has none.
fn node_fault(bytes: &[u8], depth: Option<u16>) -> Option<String> {
    let (magic, entries, max, own) = (le16(bytes, 0), le16(bytes, 2), le16(bytes, 4), le16(bytes, 6));
    let room = (bytes.len() / EXTENT_BYTES - 1) as u16;
    if magic != EXTENT_MAGIC {
        return Some(format!("magic number is {magic:#06x}, not {EXTENT_MAGIC:#06x}"));
    }
    if depth.is_some_and(|depth| depth != own) || own > MAX_DEPTH {
        return Some(format!("depth is {own}, where {} is expected", depth.unwrap_or(MAX_DEPTH)));
    }
    if entries > max || max > room || max + 2 < room {
        return Some(format!("{entries} entries of at most {max}, with room for {room}"));
    }
    (entries == 0 && (depth.is_some() || own > 0)).then(|| "a node without entries".into())
}
