//! The first pass: the headers of a group, its trees against each other, and its free list.

use undercroft_diskfs::At;
use undercroft_vfs::Result;
use uuid::Uuid;

use super::chunks::{Chunk, Chunks};
use super::raw::{be16, be32, be64, mix};
use super::space::{Owner, SharedRun, Space};
use super::trees::{Form, Siblings, Start};
use super::{Checker, Counts, interrupted};
use crate::format::{AgBlock, AgNumber, RoCompat, crc};

/// What one group came to.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) space: Space,
    pub(super) chunks: Chunks,
    pub(super) counts: Counts,
    /// Lists of unlinked inodes that have any, each with its first.
    pub(super) unlinked: Vec<(u32, u32)>,
}

/// A header's checksum, UUID and change number lie at these offsets.
struct Header {
    name: &'static str,
    magic: &'static [u8; 4],
    crc: usize,
    uuid: usize,
}

const AGF: Header = Header { name: "AGF", magic: b"XAGF", crc: 216, uuid: 64 };
const AGI: Header = Header { name: "AGI", magic: b"XAGI", crc: 312, uuid: 296 };
const AGFL: Header = Header { name: "AGFL", magic: b"XAFL", crc: 32, uuid: 8 };

/// Lists of unlinked inodes in each group.
pub(super) const BUCKETS: u32 = 64;

/// Trees deeper than this cannot be: a level has at least two blocks for each of the one above.
const LEVELS_MAX: u32 = 32;

const CODE: &str = "group-header";

impl Checker<'_> {
    /// Checks everything of a group that does not need its inodes.
    pub(super) fn check_group(&self, number: u32) -> Result<Group> {
        let ag = AgNumber(number);
        let features = self.superblock.features();
        let blocks = self.geometry.ag_len(ag);
        let mut group = Group {
            space: Space::new(blocks, features.has_rmapbt()),
            chunks: Chunks::default(),
            counts: Counts::default(),
            unlinked: Vec::new(),
        };
        let sector = self.geometry.sector_bytes() as usize;
        let first = self.geometry.ag_header_blocks();
        group.space.claim(0, first, Owner::HEADERS);
        let raw = self.superblock.raw();
        if let Some(start) = self.superblock.log_start()
            && let Some((log_ag, within)) = self.geometry.split(start)
            && log_ag == ag
        {
            let taken = group.space.claim(within.0, raw.sb_logblocks.get(), Owner::LOG);
            if taken > 0 {
                self.findings.add(
                    "superblock-field",
                    At::filesystem(),
                    "the log lies over the group's headers",
                );
            }
        }
        let Some(block) = self.geometry.join(ag, AgBlock(0)) else { return Ok(group) };
        let headers = self.read(block, first)?;
        if number > 0 {
            self.check_copy(number, &headers[..sector]);
        }
        self.check_behind_fields(number, &headers[..sector]);
        let agf = &headers[sector..2 * sector];
        let agi = &headers[2 * sector..3 * sector];
        let agfl = &headers[3 * sector..4 * sector];
        self.check_header(&AGF, number, agf);
        self.check_header(&AGI, number, agi);
        if features.has_crc() {
            self.check_header(&AGFL, number, agfl);
        }
        self.check_free_list(number, agf, agfl, &mut group.space);
        self.check_free_space(number, agf, &mut group)?;
        self.check_reference_counts(number, agf, &mut group.space)?;
        self.finish_interrupted(number, &mut group.space);
        self.mark_shared(number, &mut group.space);
        self.check_inode_trees(number, agi, &mut group)?;
        group.unlinked = (0..BUCKETS)
            .map(|bucket| (bucket, be32(agi, 40 + bucket as usize * 4)))
            .filter(|(_, first)| *first != u32::MAX)
            .collect();
        Ok(group)
    }

    /// What a copy of the superblock has in common with the first one.
    fn check_copy(&self, number: u32, sector: &[u8]) {
        let at = At::group(number);
        let report = |detail: String| self.findings.add("superblock-copy", at, detail);
        if self.geometry.has_crc()
            && let Err(detail) = crc::verify(sector, crate::format::superblock::CRC_OFFSET)
        {
            report(format!("the copy of the superblock: {detail}"));
        }
        let own = zerocopy::IntoBytes::as_bytes(self.superblock.raw());
        for (name, from, to) in [
            ("magic number", 0, 4),
            ("block size", 4, 8),
            ("number of blocks", 8, 16),
            ("real-time size", 16, 32),
            ("log's start", 48, 56),
            ("real-time extent size", 80, 84),
            ("blocks of a group", 84, 88),
            ("number of groups", 88, 92),
            ("real-time bitmap's size", 92, 96),
            ("log's size", 96, 100),
            ("sector and inode sizes", 102, 108),
            ("sizes as powers of two", 120, 126),
            ("inode alignment", 180, 184),
            ("directory block size", 192, 193),
            ("log's sectors", 193, 200),
            ("set of features", 208, 220),
            ("alignment of parts of inode chunks", 228, 232),
        ] {
            // Version 4 ends before its words of features.
            if own[from..to] != sector[from..to] && (from < 208 || self.geometry.has_crc()) {
                report(format!("the copy of the superblock has another {name}"));
            }
        }
        if be16(sector, 100) & 0xf != be16(own, 100) & 0xf {
            report("the copy of the superblock has another version".to_owned());
        }
    }

    fn check_header(&self, header: &Header, number: u32, bytes: &[u8]) {
        let Header { name, magic, crc: crc_at, uuid } = *header;
        let at = At::group(number);
        let report = |detail: String| self.findings.add(CODE, at, format!("the {name} {detail}"));
        if bytes[..4] != *magic {
            report(format!("has magic number {:#010x}", be32(bytes, 0)));
        }
        if self.geometry.has_crc() {
            if let Err(detail) = crc::verify(bytes, crc_at) {
                report(format!("is damaged: {detail}"));
            }
            let uuid = Uuid::from_slice(&bytes[uuid..uuid + 16]).unwrap_or_default();
            if uuid != self.superblock.meta_uuid() {
                report(format!("has UUID {uuid}, the filesystem {}", self.superblock.meta_uuid()));
            }
        }
        if name == "AGFL" {
            if be32(bytes, 4) != number {
                report(format!("says that it is group {}'s", be32(bytes, 4)));
            }
            return;
        }
        if be32(bytes, 4) != 1 {
            report(format!("has version {}", be32(bytes, 4)));
        }
        if be32(bytes, 8) != number {
            report(format!("says that it is group {}'s", be32(bytes, 8)));
        }
        let blocks = self.geometry.ag_len(AgNumber(number));
        if be32(bytes, 12) != blocks {
            report(format!("says that the group has {} blocks, and it has {blocks}", be32(bytes, 12)));
        }
    }

    fn check_free_list(&self, number: u32, agf: &[u8], agfl: &[u8], space: &mut Space) {
        let header = if self.geometry.has_crc() { 36 } else { 0 };
        let slots = (agfl.len() - header) as u32 / 4;
        let (first, last, count) = (be32(agf, 40), be32(agf, 44), be32(agf, 48));
        let at = At::group(number);
        if first >= slots || last >= slots || count > slots {
            let detail = format!("the free list has {count} blocks in slots {first} to {last} of {slots}");
            self.findings.add("free-list", at, detail);
            return;
        }
        let between = if last >= first { last - first + 1 } else { slots - first + last + 1 };
        if between != count && !(count == 0 && between == slots) {
            let detail = format!(
                "the free list counts {count} blocks, and its slots {first} to {last} have {between}"
            );
            self.findings.add("free-list", at, detail);
        }
        for n in 0..count {
            let slot = (first + n) % slots;
            let block = be32(agfl, header + slot as usize * 4);
            let Some(named) = self.geometry.join(AgNumber(number), AgBlock(block)) else {
                let detail = format!("slot {slot} of the free list has block {block}, which cannot be");
                self.findings.add("free-list", at, detail);
                continue;
            };
            if space.claim(block, 1, Owner::FREE_SPACE) > 0 {
                let detail = format!("slot {slot} of the free list has a block that has an owner already");
                self.findings.add("free-list", at.block(named.0), detail);
            }
        }
    }

    /// Walks one tree of a group whose root and levels a header has; returns its blocks, and `None` if it could not be
    /// followed everywhere.
    fn walk_group_tree(
        &self,
        number: u32,
        form: Form,
        (root, levels): (u32, u32),
        owner: Owner,
        space: &mut Space,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<u64>> {
        let at = At::group(number);
        let code = code_of(form.name);
        if levels == 0 || levels > LEVELS_MAX {
            let detail = format!("the {} has {levels} levels", form.name);
            self.findings.add(code, at, detail);
            return Ok(None);
        }
        let mut siblings = Siblings::default();
        let geometry = self.geometry;
        let mut claim =
            |block| geometry.split(block).is_some_and(|(_, within)| space.claim(within.0, 1, owner) == 0);
        let start = Start {
            form,
            level: (levels - 1) as u16,
            at,
            code,
            owner: number.into(),
            group: number,
            may_be_small: true,
            claim: &mut claim,
        };
        let walked = self.walk_tree(start, root.into(), None, &mut siblings, visit)?;
        if walked.complete
            && let Some(detail) = siblings.finish()
        {
            self.findings.add(code, at, format!("{} of the {}", detail, form.name));
        }
        Ok(walked.complete.then_some(walked.blocks))
    }

    fn check_free_space(&self, number: u32, agf: &[u8], group: &mut Group) -> Result<()> {
        let at = At::group(number);
        let blocks = self.geometry.ag_len(AgNumber(number));
        let features = self.superblock.features();
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let by_place = self.walk_group_tree(
            number,
            Form::BNOBT,
            (be32(agf, 16), be32(agf, 28)),
            Owner::FREE_SPACE,
            &mut group.space,
            &mut |record| runs.push((be32(record, 0), be32(record, 4))),
        )?;
        let (mut by_size_sum, mut by_size_count) = (0_u64, 0_usize);
        let by_size = self.walk_group_tree(
            number,
            Form::CNTBT,
            (be32(agf, 20), be32(agf, 32)),
            Owner::FREE_SPACE,
            &mut group.space,
            &mut |record| {
                by_size_sum =
                    by_size_sum.wrapping_add(mix(&[be32(record, 0).into(), be32(record, 4).into()]));
                by_size_count += 1;
            },
        )?;
        let (mut free, mut longest, mut sum) = (0_u64, 0, 0_u64);
        let mut end_before = 0_u64;
        for &(start, count) in &runs {
            sum = sum.wrapping_add(mix(&[start.into(), count.into()]));
            let end = u64::from(start) + u64::from(count);
            if count == 0 || end > u64::from(blocks) {
                let detail = format!("the bnobt has {count} free blocks at block {start} of {blocks}");
                self.findings.add("free-space", at, detail);
                continue;
            }
            if u64::from(start) < end_before {
                let detail = format!("the free blocks at {start} begin within those before them");
                self.findings.add("free-space", at, detail);
                continue;
            }
            end_before = end;
            free += u64::from(count);
            longest = longest.max(count);
            let taken = group.space.free(start, count);
            if taken > 0 {
                let detail =
                    format!("{taken} of {count} free blocks at block {start} are in use or free twice");
                self.findings.add("free-space", at, detail);
            }
        }
        group.counts.free_blocks = free + u64::from(be32(agf, 48));
        if by_place.is_some() && by_size.is_some() && (sum, runs.len()) != (by_size_sum, by_size_count) {
            let detail = format!(
                "the bnobt has {} runs of free blocks, the cntbt {by_size_count}, and they are not the same",
                runs.len()
            );
            self.findings.add("free-space-differs", at, detail);
        }
        let mut rmap_blocks = Some(0);
        if features.has_rmapbt() {
            rmap_blocks = self.check_reverse_map(number, agf, &mut group.space)?;
        }
        if by_place.is_some() {
            self.same(at, "free blocks", be32(agf, 52).into(), free);
            self.same(at, "blocks in the longest free run", be32(agf, 56).into(), longest.into());
        }
        if let (Some(by_place), Some(by_size), Some(rmap)) = (by_place, by_size, rmap_blocks) {
            let trees = by_place + by_size - 2 + rmap.saturating_sub(1);
            group.counts.free_blocks += trees;
            if features.has_lazy_counters() {
                self.same(at, "blocks of the free space trees but their roots", be32(agf, 60).into(), trees);
            }
        }
        Ok(())
    }

    fn same(&self, at: At, what: &str, stored: u64, found: u64) {
        if stored != found {
            let detail = format!("{stored} {what} are counted, and {found} were found");
            self.findings.add("group-count", at, detail);
        }
    }

    fn check_reverse_map(&self, number: u32, agf: &[u8], space: &mut Space) -> Result<Option<u64>> {
        let at = At::group(number);
        let blocks = self.geometry.ag_len(AgNumber(number));
        let mut expected = space.expectation();
        let watched = self.interrupted.freed_in(number);
        let mut met = Vec::new();
        let mut wrong: Option<String> = None;
        let walked = self.walk_group_tree(
            number,
            Form::RMAPBT,
            (be32(agf, 24), be32(agf, 36)),
            Owner::FREE_SPACE,
            space,
            &mut |record| {
                let (start, count) = (be32(record, 0), be32(record, 4));
                let (owner, offset) = (be64(record, 8), be64(record, 16));
                if count == 0 || u64::from(start) + u64::from(count) > u64::from(blocks) {
                    wrong = Some(format!("the rmapbt has {count} blocks at block {start} of {blocks}"));
                    return;
                }
                let owner = Owner { number: owner, offset: offset & !(7 << 61), flags: offset & 7 << 61 };
                if owner.number >> 63 != 0 && (owner.offset != 0 || owner.flags != 0) {
                    wrong = Some(format!("the rmapbt has an offset for block {start}, which no file has"));
                }
                expected.add(start, count, owner);
                if met.len() <= interrupted::MOST && watched.meets(start, count) {
                    met.push((start, count, owner));
                }
            },
        )?;
        if let Some(detail) = wrong {
            self.findings.add("reverse-map", at, detail);
        }
        space.expect_all(&expected);
        space.watched = met;
        if let Some(found) = walked {
            self.same(at, "blocks of the rmapbt", be32(agf, 80).into(), found);
        }
        Ok(walked)
    }

    fn check_reference_counts(&self, number: u32, agf: &[u8], space: &mut Space) -> Result<()> {
        const COPY: u32 = 1 << 31;
        if !self.superblock.features().has_reflink() {
            return Ok(());
        }
        let at = At::group(number);
        let blocks = self.geometry.ag_len(AgNumber(number));
        let mut records = Vec::new();
        let walked = self.walk_group_tree(
            number,
            Form::REFCOUNTBT,
            (be32(agf, 88), be32(agf, 92)),
            Owner::REFERENCE_COUNTS,
            space,
            &mut |record| records.push((be32(record, 0), be32(record, 4), be32(record, 8))),
        )?;
        let (mut end_before, mut copies_end_before) = (0, 0);
        for (start, count, owners) in records {
            let (start, is_copy) = (start & !COPY, start & COPY != 0);
            let end = u64::from(start) + u64::from(count);
            let least = if is_copy { 1 } else { 2 };
            if count == 0 || end > u64::from(blocks) || owners < least || is_copy && owners != 1 {
                let detail = format!(
                    "the refcountbt counts {owners} owners of {count} blocks at block {start} of {blocks}"
                );
                self.findings.add("reference-count", at, detail);
                continue;
            }
            if is_copy {
                if u64::from(start) < copies_end_before {
                    let detail = format!("the blocks for copies at {start} begin within those before them");
                    self.findings.add("reference-count", at, detail);
                    continue;
                }
                copies_end_before = end;
                // Space for copies that are under way belongs to no file yet.
                if space.claim(start, count, Owner::COPIES) > 0 {
                    let detail = format!("{count} blocks for copies at block {start} have another owner");
                    self.findings.add("reference-count", at, detail);
                }
                continue;
            }
            if u64::from(start) < end_before {
                let detail = format!("the counted blocks at {start} begin within those before them");
                self.findings.add("reference-count", at, detail);
                continue;
            }
            end_before = end;
            space.shared.push(SharedRun::new(start, count, owners));
        }
        if let Some(found) = walked {
            self.same(at, "blocks of the refcountbt", be32(agf, 84).into(), found);
        }
        Ok(())
    }

    /// What is shared is content of files.
    fn mark_shared(&self, number: u32, space: &mut Space) {
        let taken = space.mark_shared();
        if taken > 0 {
            let detail = format!(
                "{taken} blocks that the refcountbt counts are free or have an owner that is no file"
            );
            self.findings.add("reference-count", At::group(number), detail);
        }
    }

    fn check_inode_trees(&self, number: u32, agi: &[u8], group: &mut Group) -> Result<()> {
        let at = At::group(number);
        let features = self.superblock.features();
        let mut records: Vec<Chunk> = Vec::new();
        let sparse = features.has_sparse_inodes();
        let blocks = self.walk_group_tree(
            number,
            Form::INOBT,
            (be32(agi, 20), be32(agi, 24)),
            Owner::INODE_TREES,
            &mut group.space,
            &mut |record| records.push(Chunk::from_record(record, sparse)),
        )?;
        let mut end_before = 0;
        let mut kept: Vec<Chunk> = Vec::new();
        for chunk in records {
            if let Err(detail) = chunk.validate(&self.geometry, number) {
                self.findings.add(
                    "inode-tree",
                    at,
                    format!("the inobt's record of inode {}: {detail}", chunk.start),
                );
                if !chunk.is_placed(&self.geometry, number) {
                    continue;
                }
            }
            if chunk.start < end_before {
                let detail = format!("the chunk at {} begins within the one before it", chunk.start);
                self.findings.add("inode-tree", at, detail);
                continue;
            }
            end_before = chunk.start.saturating_add(64);
            kept.push(chunk);
        }
        for chunk in &kept {
            for block in chunk.blocks(&self.geometry) {
                if group.space.claim_inodes(block) > 0 {
                    let detail = format!("block {block} of the chunk at {} has another owner", chunk.start);
                    self.findings.add("block-claimed-twice", at, detail);
                }
            }
        }
        let (inodes, free) = kept.iter().fold((0_u64, 0_u64), |(inodes, free), chunk| {
            (inodes + u64::from(chunk.inodes()), free + u64::from(chunk.free_inodes()))
        });
        (group.counts.inodes, group.counts.free_inodes) = (inodes, free);
        if blocks.is_some() {
            self.same(at, "inodes", be32(agi, 16).into(), inodes);
            self.same(at, "free inodes", be32(agi, 28).into(), free);
        }
        let mut free_blocks = None;
        if features.has_finobt() {
            let mut with_free: Vec<Chunk> = Vec::new();
            free_blocks = self.walk_group_tree(
                number,
                Form::FINOBT,
                (be32(agi, 328), be32(agi, 332)),
                Owner::INODE_TREES,
                &mut group.space,
                &mut |record| with_free.push(Chunk::from_record(record, sparse)),
            )?;
            if blocks.is_some() && free_blocks.is_some() {
                self.compare_inode_trees(at, &kept, &with_free);
            }
        }
        if features.ro_compat().contains(RoCompat::INOBTCOUNT) {
            if let Some(found) = blocks {
                self.same(at, "blocks of the inobt", be32(agi, 336).into(), found);
            }
            if let Some(found) = free_blocks {
                self.same(at, "blocks of the finobt", be32(agi, 340).into(), found);
            }
        }
        // The newest chunk may be gone again.
        let newest = be32(agi, 32);
        let place = self.geometry.join(AgNumber(number), AgBlock(newest / self.geometry.inodes_per_block()));
        if newest != u32::MAX && place.is_none() {
            let detail = format!("the newest chunk is said to begin at inode {newest}, outside the group");
            self.findings.add("inode-tree", at, detail);
        }
        if be32(agi, 36) != u32::MAX {
            self.findings.add("inode-tree", at, format!("the AGI names a directory inode {}", be32(agi, 36)));
        }
        group.chunks = Chunks::new(kept);
        Ok(())
    }

    /// The finobt has the chunks with free inodes, and nothing else.
    fn compare_inode_trees(&self, at: At, all: &[Chunk], with_free: &[Chunk]) {
        let mut expected = all.iter().filter(|chunk| chunk.free_inodes() > 0).peekable();
        for chunk in with_free {
            while let Some(missing) = expected.next_if(|other| other.start < chunk.start) {
                let detail =
                    format!("the finobt lacks the chunk at {}, which has free inodes", missing.start);
                self.findings.add("free-inode-tree", at, detail);
            }
            match expected.next_if(|other| other.start == chunk.start) {
                None => {
                    let detail = format!(
                        "the finobt has a chunk at {}, and the inobt none with free inodes",
                        chunk.start
                    );
                    self.findings.add("free-inode-tree", at, detail);
                }
                Some(same) if same != chunk => {
                    let detail =
                        format!("the finobt has the chunk at {} otherwise than the inobt", chunk.start);
                    self.findings.add("free-inode-tree", at, detail);
                }
                Some(_) => {}
            }
        }
        for missing in expected {
            let detail = format!("the finobt lacks the chunk at {}, which has free inodes", missing.start);
            self.findings.add("free-inode-tree", at, detail);
        }
    }
}

fn code_of(tree: &str) -> &'static str {
    match tree {
        "bnobt" | "cntbt" => "free-space",
        "rmapbt" => "reverse-map",
        "refcountbt" => "reference-count",
        "finobt" => "free-inode-tree",
        _ => "inode-tree",
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use crate::format::block_header::HeaderKind;

    /// A tree that is one leaf, of records of 32-bit numbers.
    fn put_leaf<const N: usize>(bench: &Bench, at: u64, magic: &[u8; 4], records: &[[u32; N]]) {
        let mut bytes = vec![0; 4096];
        bytes[..4].copy_from_slice(magic);
        bytes[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
        bytes[8..16].fill(0xff);
        let numbers = records.iter().flatten().flat_map(|number| number.to_be_bytes());
        bytes[56..].iter_mut().zip(numbers).for_each(|(byte, number)| *byte = number);
        bench.put_owned(at, 0, HeaderKind::ShortBtree, bytes);
    }

    fn agf(fields: &[(usize, u32)]) -> Vec<u8> {
        let mut agf = vec![0; 512];
        for &(at, value) in fields {
            agf[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        agf
    }

    #[test]
    fn a_free_run_within_another_is_reported_once_and_left() {
        let bench = Bench::new(|_| {});
        put_leaf(&bench, 10, b"AB3B", &[[100, 20], [110, 30], [119, 1], [150, 5]]);
        put_leaf(&bench, 11, b"AB3C", &[[119, 1], [150, 5], [100, 20], [110, 30]]);
        let agf = agf(&[(16, 10), (20, 11), (28, 1), (32, 1), (52, 25), (56, 20)]);
        let checker = bench.checker();
        let mut group = Group {
            space: Space::new(32_768, false),
            chunks: Chunks::default(),
            counts: Counts::default(),
            unlinked: Vec::new(),
        };
        checker.check_free_space(0, &agf, &mut group).unwrap();
        assert_eq!(group.counts.free_blocks, 25);
        let reported = checker.reported();
        assert_eq!(reported.len(), 2, "{reported:?}");
        assert!(
            reported.iter().all(|reported| reported.contains("begin within those before them")),
            "{reported:?}"
        );
    }

    #[test]
    fn a_run_for_copies_within_another_is_reported_once_and_left() {
        const COPY: u32 = 1 << 31;
        let bench = Bench::new(|_| {});
        let records = [[100, 20, 2], [COPY | 200, 20, 1], [COPY | 210, 30, 1], [COPY | 220, 5, 1]];
        put_leaf(&bench, 12, b"R3FC", &records);
        let agf = agf(&[(84, 1), (88, 12), (92, 1)]);
        let checker = bench.checker();
        let mut space = Space::new(32_768, false);
        checker.check_reference_counts(0, &agf, &mut space).unwrap();
        assert_eq!(space.claim(220, 5, Owner::INODES), 5);
        let reported = checker.reported();
        assert_eq!(reported.len(), 1, "{reported:?}");
        assert!(reported[0].contains("the blocks for copies at 210 begin within"), "{reported:?}");
    }

    #[test]
    fn shared_blocks_that_are_free_are_found() {
        let bench = Bench::new(|_| {});
        put_leaf(&bench, 12, b"R3FC", &[[100, 20, 2]]);
        let agf = agf(&[(84, 1), (88, 12), (92, 1)]);
        let checker = bench.checker();
        let mut space = Space::new(32_768, false);
        space.free(90, 12);
        checker.check_reference_counts(0, &agf, &mut space).unwrap();
        checker.mark_shared(0, &mut space);
        let reported = checker.reported();
        assert!(
            reported.len() == 1 && reported[0].contains("2 blocks that the refcountbt counts are free"),
            "{reported:?}"
        );
    }
}
