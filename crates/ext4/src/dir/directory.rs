//! One directory, validated: how large it is, how its names are kept, and its blocks by number.

use std::borrow::Cow;

use undercroft_cache::Buffer;
use undercroft_vfs::{Error, FileType, Result};

use super::casefold::Casefold;
use super::entry::{Entries, Entry, EntryFormat};
use super::{index, tail};
use crate::error::{Verdict, corrupt_inode};
use crate::features::{Compat, Incompat};
use crate::inode::{Inode, InodeFlags, ROOT_INODE};
use crate::map::{self, RunState};
use crate::numbers::{FileBlock, FsBlock};
use crate::volume::{Validated, Volume};

const STRUCTURE: &str = "directory";
const BLOCK_STRUCTURE: &str = "directory block";

/// How names are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// As they are.
    Plain,
    /// As they are, and found without regard to case.
    Casefolded(Casefold),
    /// Encrypted; shown in the disguise that Linux gives them while the key is missing.
    Encrypted {
        /// Whether each entry carries the hash of its name after it, because only the key's holder can compute
        /// it.
        hash_in_entry: bool,
    },
}

/// A directory that is no inline one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Directory<'a> {
    pub(super) volume: &'a Volume,
    pub(super) inode: &'a Inode,
    pub(super) format: EntryFormat,
    pub(super) names: Names,
    /// Size in blocks; at most as many as the filesystem has.
    pub(super) blocks: u64,
}

impl<'a> Directory<'a> {
    pub(super) fn open(volume: &'a Volume, inode: &'a Inode) -> Result<Self> {
        if inode.kind != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        let superblock = volume.superblock();
        let geometry = superblock.geometry();
        let blocks = inode.size_bytes >> geometry.block_bits();
        // Inline directories have other sizes and none of these blocks.
        if !inode.has_inline_data() {
            let whole = inode.size_bytes.is_multiple_of(u64::from(geometry.block_bytes()));
            if !whole || blocks > geometry.blocks().min(u64::from(u32::MAX)) {
                let detail = format!(
                    "is {} bytes long, in a filesystem of {} blocks of {} bytes",
                    inode.size_bytes,
                    geometry.blocks(),
                    geometry.block_bytes()
                );
                return Err(corrupt_inode(STRUCTURE, inode.number, None, detail));
            }
        }
        let features = superblock.features().incompat;
        let is_casefolded =
            inode.flags.contains(InodeFlags::CASEFOLD) && features.contains(Incompat::CASEFOLD);
        let names = if inode.flags.contains(InodeFlags::ENCRYPTED) && features.contains(Incompat::ENCRYPT) {
            Names::Encrypted { hash_in_entry: is_casefolded }
        } else {
            match Casefold::of(superblock) {
                Some(casefold) if is_casefolded => Names::Casefolded(casefold),
                _ => Names::Plain,
            }
        };
        Ok(Self { volume, inode, format: EntryFormat::of(superblock), names, blocks })
    }

    /// Whether the directory says that it has an index, and the filesystem agrees.
    pub(super) fn is_indexed(&self) -> bool {
        self.inode.flags.contains(InodeFlags::INDEXED)
            && self.volume.superblock().features().compat.contains(Compat::DIR_INDEX)
    }

    /// How many bytes of a leaf are for entries.
    pub(super) fn leaf_bytes(&self) -> usize {
        let has_tail = self.volume.superblock().has_metadata_checksums();
        self.format.block_bytes - if has_tail { tail::LEAF_TAIL_BYTES } else { 0 }
    }

    /// A block that an index leads to: unlike one met while walking through the directory it must be there.
    pub(super) fn read_block(&self, at: FileBlock) -> Result<Block> {
        Block::read(self, at, self.home(at)?)
    }

    /// Where a block lies that must be there.
    pub(super) fn home(&self, at: FileBlock) -> Result<FsBlock> {
        if u64::from(at.0) >= self.blocks {
            let detail = format!("index leads to block {at} of {}", self.blocks);
            return Err(corrupt_inode(STRUCTURE, self.inode.number, None, detail));
        }
        self.home_or_hole(at)?.ok_or_else(|| {
            let detail = format!("index leads to block {at}, where there is a hole");
            corrupt_inode(STRUCTURE, self.inode.number, None, detail)
        })
    }

    /// Where a block lies, unless it is missing.
    pub(super) fn home_or_hole(&self, at: FileBlock) -> Result<Option<FsBlock>> {
        Ok(match map::lookup(self.volume, self.inode, at)?.state {
            RunState::Mapped(home) => Some(home),
            RunState::Hole | RunState::Unwritten(_) => None,
        })
    }

    /// Validates an entry that is in use: whether a file can have this name and number.
    pub(super) fn check_entry(&self, entry: &Entry<'_>) -> Verdict<()> {
        let at = entry.at;
        self.check_inode_number(entry.ino).map_err(|wrong| format!("entry at byte {at} {wrong}"))?;
        if entry.name.is_empty() {
            return Err(format!("entry at byte {at} has no name").into());
        }
        let may_hold_anything = matches!(self.names, Names::Encrypted { .. });
        if !may_hold_anything && entry.name.iter().any(|byte| matches!(byte, 0 | b'/')) {
            return Err(format!("name at byte {at} contains a slash or NUL").into());
        }
        Ok(())
    }

    pub(super) fn check_inode_number(&self, ino: u32) -> Verdict<()> {
        let geometry = self.volume.superblock().geometry();
        let (first, last) = (geometry.first_inode(), geometry.inodes());
        if ino == ROOT_INODE || (first..=last).contains(&ino) {
            return Ok(());
        }
        Err(format!("leads to inode {ino}; files have numbers from {first} to {last}").into())
    }
}

/// What a block is, by its place and first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Entries and perhaps a checksum.
    Leaf,
    /// `.`, `..` and the root of the index, which lies in the space of `..`.
    IndexRoot,
    /// Index entries behind an unused directory entry.
    IndexNode,
}

/// A block of a directory whose checksum has been validated. Its entries have not.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) buffer: Buffer,
    pub(super) at: FileBlock,
    pub(super) home: FsBlock,
    pub(super) shape: Shape,
}

impl Block {
    pub(super) fn read(directory: &Directory<'_>, at: FileBlock, home: FsBlock) -> Result<Self> {
        Self::validate(directory, at, home, directory.volume.read_block(home)?)
    }

    /// Validates a version of a block that the caller has.
    pub(super) fn validate(
        directory: &Directory<'_>,
        at: FileBlock,
        home: FsBlock,
        buffer: Buffer,
    ) -> Result<Self> {
        let shape = match at {
            _ if !directory.is_indexed() => Shape::Leaf,
            FileBlock(0) => Shape::IndexRoot,
            _ if directory.format.is_one_unused_entry(&buffer) => Shape::IndexNode,
            _ => Shape::Leaf,
        };
        let block = Self { buffer, at, home, shape };
        if directory.volume.superblock().has_metadata_checksums() {
            block.check(directory)?;
        }
        Ok(block)
    }

    fn check(&self, directory: &Directory<'_>) -> Result<()> {
        let kind = match self.shape {
            Shape::Leaf => Validated::DirectoryBlock,
            Shape::IndexRoot | Shape::IndexNode => Validated::IndexNode,
        };
        self.buffer.verify_once(kind as u32, || {
            let seed = directory.inode.checksum_seed(directory.volume);
            let validation = match self.shape {
                Shape::Leaf => tail::check_leaf(seed, &self.buffer),
                Shape::IndexRoot | Shape::IndexNode => index::check_checksum(seed, self),
            };
            validation.map_err(|detail| self.corrupt(directory, detail))
        })
    }

    /// The stretch of the block that holds entries.
    pub(super) fn region(&self, directory: &Directory<'_>) -> Region<'_> {
        let end = if self.shape == Shape::Leaf { directory.leaf_bytes() } else { self.buffer.len() };
        Region {
            bytes: &self.buffer[..end],
            position: u64::from(self.at.0) * self.buffer.len() as u64,
            home: Some(self.home),
        }
    }

    pub(super) fn corrupt(&self, directory: &Directory<'_>, detail: impl Into<Cow<'static, str>>) -> Error {
        corrupt_inode(BLOCK_STRUCTURE, directory.inode.number, Some(self.home), detail)
    }
}

/// A stretch of bytes that is filled with entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region<'a> {
    pub(super) bytes: &'a [u8],
    /// The directory stream's position of the first byte.
    pub(super) position: u64,
    /// `None` within the inode.
    pub(super) home: Option<FsBlock>,
}

impl<'a> Region<'a> {
    /// The entries in use, each validated when the iteration comes to it; none follows a failure after which it is
    /// unknown where the next entry begins.
    pub(super) fn entries<'d>(
        self,
        directory: &'d Directory<'d>,
    ) -> impl Iterator<Item = Result<Entry<'a>>> + use<'a, 'd> {
        Entries::new(self.bytes, directory.format)
            .filter(|entry| entry.as_ref().map_or(true, |entry| entry.ino != 0))
            .map(move |entry| {
                entry.map_err(|detail| {
                    let structure = if self.home.is_some() { BLOCK_STRUCTURE } else { "inline directory" };
                    corrupt_inode(structure, directory.inode.number, self.home, detail)
                })
            })
    }
}
