//! A directory that is being changed under a handle, and its leaves under their locks.
//!
//! Locks: the caller holds the directory's `index`, shared or exclusively. A thread holds one leaf's lock at a time
//! (`locks`).

use std::borrow::Cow;

use undercroft_cache::Buffer;
use undercroft_vfs::{Error, Result};

use super::directory::{Block, Directory, Shape};
use super::edit::{self, Look, Place};
use super::index::Leaves;
use super::locks::LeafGuard;
use super::query::Query;
use crate::error::{Verdict, corrupt_inode};
use crate::features::Incompat;
use crate::inode::{Inode, InodeFlags, InodeState};
use crate::numbers::{FileBlock, FsBlock};
use crate::transaction::{Handle, Seal};
use crate::volume::Volume;

/// Refuses to change a directory whose names mean more than their bytes.
///
/// # Errors
/// [`NoKey`](Error::NoKey), [`Unsupported`](Error::Unsupported).
pub(crate) fn check_changeable(volume: &Volume, inode: &Inode) -> Result<()> {
    let features = volume.superblock().features().incompat;
    if inode.flags.contains(InodeFlags::ENCRYPTED) && features.contains(Incompat::ENCRYPT) {
        return Err(Error::NoKey);
    }
    if inode.flags.contains(InodeFlags::CASEFOLD) && features.contains(Incompat::CASEFOLD) {
        return Err(Error::Unsupported("changing a directory that ignores case".into()));
    }
    Ok(())
}

/// A directory that is not inline, as it is while its `index` is held.
#[derive(Clone, Copy)]
pub(super) struct Changing<'a> {
    pub(super) handle: &'a Handle<'a>,
    pub(super) state: &'a InodeState,
    pub(super) directory: Directory<'a>,
    /// Of the checksums of its blocks.
    pub(super) seed: u32,
}

impl<'a> Changing<'a> {
    pub(super) fn open(handle: &'a Handle<'a>, state: &'a InodeState, inode: &'a Inode) -> Result<Self> {
        let volume = handle.volume();
        check_changeable(volume, inode)?;
        let directory = Directory::open(volume, inode)?;
        Ok(Self { handle, state, directory, seed: inode.checksum_seed(volume) })
    }

    pub(super) fn has_checksums(&self) -> bool {
        self.directory.volume.superblock().has_metadata_checksums()
    }

    pub(super) fn seal(&self, shape: Shape) -> Seal {
        match shape {
            Shape::Leaf => Seal::DirectoryLeaf(self.seed),
            Shape::IndexRoot | Shape::IndexNode => Seal::DirectoryIndex(self.seed),
        }
    }

    /// A block under its lock; `None` where there is a hole.
    pub(super) fn lock_block(&self, at: FileBlock) -> Result<Option<LockedBlock<'a>>> {
        let Some(home) = self.directory.home_or_hole(at)? else { return Ok(None) };
        self.lock_home(at, home).map(Some)
    }

    /// A leaf that the index leads to, under its lock.
    pub(super) fn lock_leaf(&self, at: FileBlock) -> Result<LockedBlock<'a>> {
        let leaf = self.lock_home(at, self.directory.home(at)?)?;
        // Without checksums an inner node and an empty leaf look the same.
        let is_leaf = match leaf.validated.shape {
            Shape::Leaf => true,
            Shape::IndexRoot => false,
            Shape::IndexNode => !self.has_checksums(),
        };
        if is_leaf { Ok(leaf) } else { Err(leaf.corrupt("the index takes it for a leaf, and it is none")) }
    }

    fn lock_home(&self, at: FileBlock, home: FsBlock) -> Result<LockedBlock<'a>> {
        let volume = self.directory.volume;
        let leaf = self.handle.writer().directory_leaves.lock(volume, home)?;
        let newest = leaf.block().buffer();
        leaf.lines.note(leaf.block(), &newest);
        let validated = Block::validate(&self.directory, at, home, newest)?;
        let end = validated.region(&self.directory).bytes.len();
        Ok(LockedBlock { changing: *self, validated, end, leaf })
    }

    pub(super) fn corrupt(&self, detail: &'static str) -> Error {
        corrupt_inode("directory", self.state.number, None, detail)
    }

    /// Finds a name in whatever block has it.
    pub(super) fn find(&self, name: &[u8]) -> Result<Option<(LockedBlock<'a>, Place)>> {
        if self.directory.is_indexed()
            && let Some(mut leaves) =
                self.unless_damaged(Leaves::find(self.directory, &Query::Exact(name)))?
        {
            let mut by_index = || {
                while let Some(at) = leaves.next_place()? {
                    let leaf = self.lock_leaf(at)?;
                    if let Look::Found(place) = leaf.look(name)? {
                        return Ok(Some(Some((leaf, place))));
                    }
                }
                Ok(Some(None))
            };
            if let Some(found) = self.unless_damaged(by_index())? {
                return Ok(found);
            }
        }
        for at in 0..self.directory.blocks {
            let Some(block) = self.lock_block(FileBlock(at as u32))? else { continue };
            if let Look::Found(place) = block.look(name)? {
                return Ok(Some((block, place)));
            }
        }
        Ok(None)
    }

    /// What the index led to. `None` if the index is damaged and the directory has no checksums: it is read without the
    /// index then, as in a lookup.
    fn unless_damaged<T>(&self, led_to: Result<Option<T>>) -> Result<Option<T>> {
        match led_to {
            Err(Error::Corrupt(_)) if !self.has_checksums() => Ok(None),
            led_to => led_to,
        }
    }
}

/// A block of entries whose lock is held.
pub(super) struct LockedBlock<'a> {
    changing: Changing<'a>,
    validated: Block,
    /// Where the entries end.
    end: usize,
    /// Last, since fields are dropped in this order.
    leaf: LeafGuard<'a>,
}

impl LockedBlock<'_> {
    pub(super) fn look(&self, name: &[u8]) -> Result<Look> {
        self.validate(|bytes| edit::look(bytes, self.changing.directory.format, name))
    }

    /// Looks at the entries.
    pub(super) fn validate<R>(&self, validate: impl FnOnce(&[u8]) -> Verdict<R>) -> Result<R> {
        validate(&self.validated.buffer[..self.end]).map_err(|detail| self.corrupt(detail))
    }

    pub(super) fn home(&self) -> FsBlock {
        self.validated.home
    }

    /// The block as it is now.
    pub(super) fn version(&self) -> &Buffer {
        &self.validated.buffer
    }

    /// Changes the entries.
    pub(super) fn change<R>(self, change: impl FnOnce(&mut [u8]) -> R) -> R {
        let seal = self.changing.seal(self.validated.shape);
        // A version without another holder is changed where it lies.
        drop(self.validated);
        self.changing.handle.change_block(self.leaf.block(), seal, |bytes| change(&mut bytes[..self.end]))
    }

    pub(super) fn corrupt(&self, detail: impl Into<Cow<'static, str>>) -> Error {
        self.validated.corrupt(&self.changing.directory, detail)
    }
}
