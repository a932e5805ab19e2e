//! The blocks of a fork: its extents in order, each claimed, and the tree that holds them.

use undercroft_vfs::{FileType, Result};
use zerocopy::{FromBytes, IntoBytes};

use super::Checker;
use super::inodes::Inode;
use super::space::Owner;
use super::trees::{Form, Siblings, Start};
use crate::format::dinode::{DiFlags2, ForkFormat};
use crate::format::extent::{EXTENT_BYTES, Extent, RawExtent};
use crate::format::{FileBlock, FsBlock};

/// What a fork came to.
#[derive(Debug)]
pub(super) struct Fork {
    /// Its extents, for forks that hold metadata; of files' content only the last.
    pub(super) extents: Vec<Extent>,
    /// Blocks, with those of the tree.
    pub(super) blocks: u64,
    /// Whether all of it could be followed.
    pub(super) complete: bool,
}

impl Fork {
    /// Where a block of the fork lies.
    pub(super) fn block_at(&self, at: u64) -> Option<FsBlock> {
        let n = self.extents.partition_point(|extent| extent.file.0 <= at).checked_sub(1)?;
        let extent = &self.extents[n];
        (at < extent.end()).then(|| extent.block_of(at))
    }

    /// How many blocks from `at` on lie together on the disk, `most` or fewer.
    pub(super) fn run_at(&self, at: u64, most: u64) -> u64 {
        let first = self.block_at(at).map(|block| block.0);
        let follows = |n: &u64| self.block_at(at + n).map(|block| block.0) == first.map(|first| first + n);
        (0..most).take_while(follows).count() as u64
    }

    /// The first block after the last extent.
    pub(super) fn end(&self) -> u64 {
        self.extents.last().map_or(0, Extent::end)
    }
}

/// Takes the extents of one fork, one after the other.
struct Taker<'c, 'i> {
    checker: &'c Checker<'c>,
    inode: &'i Inode<'i>,
    is_attribute: bool,
    fork: Fork,
    end: u64,
    count: u64,
    shared: u64,
}

impl Checker<'_> {
    /// Checks where a fork's blocks lie, and claims them.
    pub(super) fn check_fork(&self, inode: &Inode<'_>, is_attribute: bool) -> Result<Fork> {
        let core = inode.core;
        let (format, range, count) = if is_attribute {
            (core.attr_format, core.attr_fork.clone(), u64::from(core.attr_extents))
        } else {
            (core.data_format, core.data_fork.clone(), core.data_extents)
        };
        let bytes = inode.bytes.get(range).unwrap_or(&[]);
        let name = if is_attribute { "attribute fork" } else { "data fork" };
        let fork = Fork { extents: Vec::new(), blocks: 0, complete: true };
        let mut taker = Taker { checker: self, inode, is_attribute, fork, end: 0, count: 0, shared: 0 };
        let remap = self.interrupted.map_of(inode.number, is_attribute);
        match format {
            ForkFormat::Device | ForkFormat::Local => return Ok(taker.fork),
            ForkFormat::Extents if remap.is_some() => {}
            ForkFormat::Extents => {
                for record in bytes.chunks_exact(EXTENT_BYTES).take(count as usize) {
                    taker.take(record);
                }
            }
            ForkFormat::Btree => self.walk_map(inode, bytes, is_attribute, &mut taker, remap.is_none())?,
        }
        for extent in remap.map_or(&[][..], |remap| &remap.extents) {
            taker.take(RawExtent::pack(extent).as_bytes());
        }
        let report = |detail: String| self.findings.add("map", inode.at(), detail);
        if taker.fork.complete && remap.is_none() && taker.count != count {
            report(format!("the {name} counts {count} extents, and has {}", taker.count));
        }
        if !is_attribute && taker.shared > 0 && !core.flags2.contains(DiFlags2::REFLINK) {
            let detail = format!(
                "{} blocks of the data fork are shared, and the inode has no flag for it",
                taker.shared
            );
            self.findings.add("inode-field", inode.at(), detail);
        }
        Ok(taker.fork)
    }

    fn walk_map(
        &self,
        inode: &Inode<'_>,
        bytes: &[u8],
        is_attribute: bool,
        taker: &mut Taker<'_, '_>,
        takes: bool,
    ) -> Result<()> {
        let at = inode.at();
        let Some((level, children)) = self.root_in_inode(bytes) else {
            self.findings.add(
                "map",
                at,
                "the root of the map has no level, no records, or more than have room",
            );
            taker.fork.complete = false;
            return Ok(());
        };
        if level > 32 {
            self.findings.add("map", at, format!("the map has {level} levels"));
            taker.fork.complete = false;
            return Ok(());
        }
        let flags = Owner::MAP_BLOCK | if is_attribute { Owner::ATTRIBUTE_FORK } else { 0 };
        let owner = Owner { number: inode.number, offset: 0, flags };
        let mut siblings = Siblings::default();
        let mut before = None;
        let mut blocks = 0;
        let mut complete = true;
        let may_be_small = children.len() == 1;
        for (key, pointer) in children {
            if before.is_some_and(|before| before >= key) {
                self.findings.add("map", at, "the root of the map has its keys in the wrong order");
            }
            before = Some(key);
            let mut claim = |block: FsBlock| self.claim_block(block, owner);
            let start = Start {
                form: Form::BMBT,
                level: level - 1,
                at,
                code: "map",
                owner: inode.number,
                group: 0,
                may_be_small,
                claim: &mut claim,
            };
            let key = key.to_be_bytes();
            let walked = self.walk_tree(start, pointer, Some(&key), &mut siblings, &mut |record| {
                if takes {
                    taker.take(record);
                }
            })?;
            blocks += walked.blocks;
            complete &= walked.complete;
        }
        if complete && let Some(detail) = siblings.finish() {
            self.findings.add("map", at, format!("{detail} of the map"));
        }
        taker.fork.blocks += blocks;
        taker.fork.complete &= complete;
        Ok(())
    }

    /// Gives one block of metadata to an inode; `false` if it has an owner already.
    fn claim_block(&self, block: FsBlock, owner: Owner) -> bool {
        let Some((ag, within)) = self.geometry.split(block) else { return false };
        self.groups[ag.0 as usize].space.lock().claim(within.0, 1, owner) == 0
    }
}

impl Taker<'_, '_> {
    fn take(&mut self, record: &[u8]) {
        let Self { checker, inode, is_attribute, .. } = *self;
        let at = inode.at();
        let name = if is_attribute { "attribute fork" } else { "data fork" };
        let report = |detail: String| checker.findings.add("map", at, format!("the {name}: {detail}"));
        self.count += 1;
        let Ok((raw, _)) = RawExtent::read_from_prefix(record) else { return };
        let extent = raw.unpack();
        if let Err(detail) = extent.validate(&checker.geometry) {
            report(detail.into_owned());
            self.fork.complete = false;
            return;
        }
        if extent.file.0 < self.end {
            report(format!("the extent at file block {} begins within the one before it", extent.file));
            self.fork.complete = false;
            return;
        }
        self.end = extent.end();
        let holds_metadata = is_attribute || inode.core.kind != FileType::Regular;
        if extent.unwritten && holds_metadata {
            report(format!("the extent at file block {} is marked as never written", extent.file));
        }
        if holds_metadata && extent.end() > u64::from(u32::MAX) + 1 {
            report(format!("the extent at file block {} lies past where metadata can", extent.file));
        }
        self.fork.blocks += u64::from(extent.count);
        let mut flags = if is_attribute { Owner::ATTRIBUTE_FORK } else { 0 };
        if extent.unwritten {
            flags |= Owner::UNWRITTEN;
        }
        let owner = Owner { number: inode.number, offset: extent.file.0, flags };
        let Some((ag, within)) = checker.geometry.split(extent.block) else { return };
        let mut space = checker.groups[ag.0 as usize].space.lock();
        let (taken, shared) = if holds_metadata {
            (space.claim(within.0, extent.count, owner), 0)
        } else {
            let sharing = space.claim_shared(within.0, extent.count, owner);
            (sharing.taken, sharing.shared)
        };
        drop(space);
        self.shared += u64::from(shared);
        if taken > 0 {
            let detail = format!(
                "{taken} of {} blocks at file block {} have an owner already",
                extent.count, extent.file
            );
            checker.findings.add("block-claimed-twice", at.block(extent.block.0), detail);
            self.fork.complete &= !holds_metadata;
        }
        if holds_metadata {
            self.fork.extents.push(extent);
        } else {
            self.fork.extents = vec![Extent { file: FileBlock(extent.file.0), ..extent }];
        }
    }
}
