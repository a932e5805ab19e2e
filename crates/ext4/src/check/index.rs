//! The hash tree of one directory: which blocks are its nodes, and which hashes each block of entries may have.
//!
//! Source: kernel documentation, section "Hash Tree Directories". Walked level by level; a block that two entries
//! lead to is not entered again, so a tree that leads back into itself ends.

use std::collections::{BTreeMap, HashMap, HashSet};

use undercroft_diskfs::At;
use undercroft_vfs::Result;

use super::checker::Checker;
use super::raw::{Inode, le16, le32};
use crate::checksum::crc32c;
use crate::dir::{self, NameHasher, fold};
use crate::features::Incompat;
use crate::inode::InodeFlags;
use crate::numbers::FsBlock;
use crate::volume::Volume;

const ROOT_INFO_AT: usize = 24;
const ROOT_ENTRIES_AT: usize = 32;
const NODE_ENTRIES_AT: usize = 8;
const ENTRY_BYTES: usize = 8;
const TAIL_BYTES: usize = 8;
const BLOCK_MASK: u32 = 0x0FFF_FFFF;
const SIPHASH: u8 = 6;

/// A directory's index.
#[derive(Debug, Default)]
pub(super) struct Index {
    nodes: HashSet<u64>,
    /// The hashes that a block of entries may have: from, to and including.
    leaves: HashMap<u64, (u32, u32)>,
    hasher: Option<NameHasher>,
    /// Whether the tree could not be walked, so that nothing follows from what it lacks.
    pub(super) is_broken: bool,
}

/// A node whose entries are to be looked at.
struct Pending {
    file_block: u64,
    levels_below: u8,
    low: u32,
    high: u32,
}

impl Index {
    pub(super) fn read(
        checker: &mut Checker<'_>,
        inode: &Inode<'_>,
        blocks: &BTreeMap<u64, u64>,
    ) -> Result<Self> {
        let at = At::inode(inode.number);
        let mut index = Self { is_broken: true, ..Self::default() };
        let Some(&home) = blocks.get(&0) else { return Ok(index) };
        let root = checker.volume.read_block(FsBlock(home))?;
        let info = &root[ROOT_INFO_AT..ROOT_ENTRIES_AT];
        let (reserved, version, length, levels, flags) = (le32(info, 0), info[4], info[5], info[6], info[7]);
        let large = checker.volume.superblock().features().incompat.contains(Incompat::LARGE_DIR);
        let most_levels = if large { 2 } else { 1 };
        let hashed_by_key = inode.flags().contains(InodeFlags::ENCRYPTED | InodeFlags::CASEFOLD);
        let known = if hashed_by_key { version == SIPHASH } else { version <= 2 };
        if reserved != 0 || !known || length != 8 || flags & 1 != 0 || levels > most_levels {
            let detail = format!(
                "the index begins with reserved {reserved}, hash {version}, length {length}, levels {levels}, \
                 flags {flags:#x}"
            );
            checker.findings.add("directory-index", at.block(home), detail);
            return Ok(index);
        }
        index.is_broken = false;
        index.hasher = NameHasher::new(version, checker.volume.superblock().hash_defaults());
        let mut pending = vec![Pending { file_block: 0, levels_below: levels, low: 0, high: u32::MAX }];
        index.nodes.insert(0);
        while let Some(node) = pending.pop() {
            index.look(checker, inode, blocks, &node, &mut pending)?;
        }
        Ok(index)
    }

    fn look(
        &mut self,
        checker: &mut Checker<'_>,
        inode: &Inode<'_>,
        blocks: &BTreeMap<u64, u64>,
        node: &Pending,
        pending: &mut Vec<Pending>,
    ) -> Result<()> {
        let Some(&home) = blocks.get(&node.file_block) else { return Ok(()) };
        let at = At::inode(inode.number).block(home);
        let buffer = checker.volume.read_block(FsBlock(home))?;
        let entries_at = if node.file_block == 0 { ROOT_ENTRIES_AT } else { NODE_ENTRIES_AT };
        let checksums = checker.volume.superblock().has_metadata_checksums();
        let room = (buffer.len() - entries_at - if checksums { TAIL_BYTES } else { 0 }) / ENTRY_BYTES;
        let (limit, count) =
            (usize::from(le16(&buffer, entries_at)), usize::from(le16(&buffer, entries_at + 2)));
        // A root is disguised as `.` and a long `..`, other nodes as one unused entry.
        let disguise = if node.file_block == 0 { 12 } else { 0 };
        let disguised = dir::record_bytes(le16(&buffer, disguise + 4), buffer.len())
            == buffer.len() - disguise
            && (disguise > 0 || le32(&buffer, 0) == 0);
        if limit != room || count == 0 || count > limit || !disguised {
            self.is_broken = true;
            let detail = format!("index node with {count} entries of {limit}, with room for {room}");
            checker.findings.add("directory-index", at, detail);
            return Ok(());
        }
        if checksums {
            let tail = entries_at + limit * ENTRY_BYTES;
            let sum =
                crc32c(inode.seed(checker.volume.superblock()), &buffer[..entries_at + count * ENTRY_BYTES]);
            let computed = crc32c(crc32c(sum, &buffer[tail..tail + 4]), &[0; 4]);
            let stored = le32(&buffer, tail + 4);
            if stored != computed {
                let detail = format!("index checksum is {stored:#010x}, its content gives {computed:#010x}");
                checker.findings.add("directory-index-checksum", at, detail);
            }
        }
        let mut low = node.low;
        for slot in 0..count {
            let entry = entries_at + slot * ENTRY_BYTES;
            let hash = if slot == 0 { node.low } else { le32(&buffer, entry) };
            let child = u64::from(le32(&buffer, entry + 4) & BLOCK_MASK);
            let high = if slot + 1 < count { le32(&buffer, entry + ENTRY_BYTES) } else { node.high };
            if hash < low || hash > node.high {
                let detail = format!("index entry {slot} has the hash {hash:#010x}, after {low:#010x}");
                checker.findings.add("directory-index", at, detail);
            }
            low = hash;
            if !blocks.contains_key(&child) {
                let detail = format!("index entry {slot} leads to file block {child}, which is not there");
                checker.findings.add("directory-index", at, detail);
                continue;
            }
            let is_new = if node.levels_below > 0 {
                self.nodes.insert(child)
            } else {
                // The next block goes on with names of its first hash, if that is odd: it is one more than theirs.
                self.leaves
                    .insert(child, (hash, if high & 1 == 1 { high & !1 } else { high.saturating_sub(1) }))
                    .is_none()
            };
            if !is_new || child == 0 {
                self.is_broken = true;
                checker.findings.add(
                    "directory-index",
                    at,
                    format!("two index entries lead to file block {child}"),
                );
            } else if node.levels_below > 0 {
                pending.push(Pending {
                    file_block: child,
                    levels_below: node.levels_below - 1,
                    low: hash,
                    high,
                });
            }
        }
        Ok(())
    }

    /// Whether a block of the directory is a node of the index, the root included.
    pub(super) fn is_node(&self, file_block: u64) -> bool {
        self.nodes.contains(&file_block)
    }

    /// The hashes that a block of entries may have.
    pub(super) fn leaf(&self, file_block: u64) -> Option<(u32, u32)> {
        self.leaves.get(&file_block).copied()
    }

    /// The hash that leads to a name; `None` when only the key's holder can tell.
    pub(super) fn hash(&self, volume: &Volume, inode: &Inode<'_>, name: &[u8]) -> Option<u32> {
        let hasher = self.hasher?;
        let casefolded = inode.flags().contains(InodeFlags::CASEFOLD)
            && volume.superblock().features().incompat.contains(Incompat::CASEFOLD);
        let folded = if casefolded { fold(name) } else { None };
        Some(hasher.hash(folded.as_ref().map_or(name, |folded| folded.as_bytes())).major)
    }
}
