//! The blocks of a fork, read from the volume through the fork's map.

use undercroft_vfs::{Ino, Result};

use super::fork::{Block, ForkBlocks};
use crate::error::corrupt_inode;
use crate::format::block_header::{self, HeaderKind};
use crate::format::{FileBlock, FsBlock};
use crate::inode::Fork;
use crate::map::{self, Run};
use crate::volume::{Blocks, Validated, Volume};

/// What lies under a block of a fork, and how far that extends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Blocks from the one that was asked for on; at least one.
    pub(crate) len: u64,
    /// Where the one that was asked for lies; `None` in a hole.
    pub(crate) home: Option<FsBlock>,
}

/// Longer runs than this are not asked for: a link's target has two blocks at most.
const RUN_MAX_BLOCKS: u32 = 64;

/// The blocks of one fork, located by `map`.
pub(crate) struct MappedFork<'a, M> {
    pub(crate) volume: &'a Volume,
    pub(crate) owner: Ino,
    /// What corruption reports call the fork.
    pub(crate) structure: &'static str,
    pub(crate) map: M,
}

impl<'a> MappedFork<'a, ()> {
    /// The blocks of a fork of `ino`. Directories, links and attributes are written as they get their blocks, so a block
    /// of theirs that was never written is corruption.
    pub(crate) fn of(
        volume: &'a Volume,
        ino: Ino,
        structure: &'static str,
        fork: &'a Fork,
    ) -> MappedFork<'a, impl Fn(FileBlock) -> Result<Piece> + 'a> {
        let map = move |at: FileBlock| match map::lookup(volume, ino, fork, at)? {
            Run::Extent(extent) if extent.unwritten => {
                let detail = format!("the extent at block {} of its fork was never written", extent.file);
                Err(corrupt_inode(structure, ino, None, detail))
            }
            Run::Extent(extent) => Ok(Piece { len: extent.end() - at.0, home: Some(extent.block_of(at.0)) }),
            Run::Hole { end, .. } => Ok(Piece { len: end - at.0, home: None }),
        };
        MappedFork { volume, owner: ino, structure, map }
    }
}

impl<M: Fn(FileBlock) -> Result<Piece>> MappedFork<'_, M> {
    /// Where the pieces of `count` blocks from `at` on lie; `None` when one of the blocks is not there.
    pub(crate) fn pieces(&self, at: u32, count: u32) -> Result<Option<Vec<(FsBlock, u32)>>> {
        let (mut at, mut left) = (u64::from(at), count);
        let mut pieces = Vec::with_capacity(1);
        while left > 0 {
            let piece = (self.map)(FileBlock(at))?;
            let Some(home) = piece.home else { return Ok(None) };
            let len = piece.len.clamp(1, u64::from(left)) as u32;
            pieces.push((home, len));
            at += u64::from(len);
            left -= len;
        }
        Ok(Some(pieces))
    }

    /// Reads the block at `at`, which lies in these pieces, and verifies its header. `None` where there is no piece.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn read_pieces(
        &self,
        at: u32,
        pieces: &[(FsBlock, u32)],
        kind: HeaderKind,
    ) -> Result<Option<Block>> {
        let Some(&(home, first)) = pieces.first() else { return Ok(None) };
        let bytes = if pieces.len() == 1 {
            self.volume.read_structure(home, first)?
        } else {
            let mut bytes = Vec::new();
            for &(home, count) in pieces {
                bytes.extend_from_slice(&self.volume.read_blocks(home, count)?);
            }
            Blocks::Several(bytes.into())
        };
        let validated = match kind {
            HeaderKind::ShortBtree => Validated::ShortBtree,
            HeaderKind::LongBtree => Validated::LongBtree,
            HeaderKind::DirBlock => Validated::DirBlock,
            HeaderKind::DaBlock => Validated::DaBlock,
            HeaderKind::Remote => Validated::Remote,
        };
        let verdict =
            bytes.verify_once(validated, || self.volume.validate_header(&bytes, kind, home, self.owner.0));
        let corrupt = |detail| corrupt_inode(self.structure, self.owner, Some(home), detail);
        verdict.map_err(corrupt)?;
        // A block that two inodes claim has been verified for the other one, perhaps.
        let owner = block_header::owner(&bytes, kind);
        if self.volume.geometry().has_crc() && owner != self.owner.0 {
            return Err(corrupt(format!("says that it belongs to inode {owner}").into()));
        }
        Ok(Some(Block { bytes, at, home }))
    }
}

impl<M: Fn(FileBlock) -> Result<Piece>> ForkBlocks for MappedFork<'_, M> {
    fn read(&self, at: u32, count: u32, kind: HeaderKind) -> Result<Option<Block>> {
        match self.pieces(at, count)? {
            Some(pieces) => self.read_pieces(at, &pieces, kind),
            None => Ok(None),
        }
    }

    fn next_present(&self, at: u32, end: u32) -> Result<Option<u32>> {
        let (mut at, end) = (u64::from(at), u64::from(end));
        while at < end {
            let piece = (self.map)(FileBlock(at))?;
            if piece.home.is_some() {
                return Ok(Some(at as u32));
            }
            at = at.saturating_add(piece.len.max(1));
        }
        Ok(None)
    }

    fn run_length(&self, at: u32) -> Result<u32> {
        let (mut len, mut expected) = (0_u32, None);
        while len < RUN_MAX_BLOCKS {
            let piece = (self.map)(FileBlock(u64::from(at) + u64::from(len)))?;
            let Some(home) = piece.home else { break };
            if expected.is_some_and(|expected| expected != home) {
                break;
            }
            let more = piece.len.clamp(1, u64::from(RUN_MAX_BLOCKS));
            len += more as u32;
            expected = Some(FsBlock(home.0.saturating_add(more)));
        }
        Ok(len.min(RUN_MAX_BLOCKS))
    }

    fn prefetch(&self, at: u32, end: u32, unit: u32) {
        let (mut at, end, unit) = (u64::from(at), u64::from(end), u64::from(unit.max(1)));
        let mut homes = Vec::new();
        while at < end {
            // The read that follows returns the failure.
            let Ok(piece) = (self.map)(FileBlock(at)) else { break };
            let len = piece.len.clamp(1, end - at);
            if let Some(home) = piece.home {
                // What lies in several extents is read piece by piece.
                homes.extend((0..len / unit).map(|n| FsBlock(home.0.saturating_add(n * unit))));
            }
            at += len.next_multiple_of(unit);
        }
        if homes.len() > 1 {
            self.volume.prefetch_structures(homes.into_iter(), unit as u32);
        }
    }
}
