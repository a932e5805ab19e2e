//! Reading a directory from end to end.
//!
//! The stream's positions are byte positions in the directory, whatever its index says: the order in which
//! names come is that of the blocks. A position need not be the beginning of an entry: the block that it lies in is
//! read from its start and what is before the position left out, so an arbitrary position never yields a false entry.
//! `.` and `..` that are not stored as entries have the positions that they have in a block. Names that only fast
//! commits have come last, at positions beyond any directory's end.

use std::ops::ControlFlow;

use undercroft_vfs::{DirEntry, DirOffset, FileType, Ino, Result};

use super::directory::{Directory, Names, Region};
use super::hash::{NameHash, NameHasher};
use super::inline::InlineEntries;
use super::nokey::{ENCRYPTED_MIN_BYTES, MAX_NAME_BYTES, disguise};
use super::walk::Walk;
use super::{entry::Entry, index};
use crate::error::corrupt_inode;
use crate::fast_commit::DirectoryChange;
use crate::features::{Compat, Incompat};
use crate::inode::Inode;

type Sink<'s> = dyn FnMut(DirEntry<'_>) -> ControlFlow<()> + 's;

const DOT_POSITION: u64 = 0;
const DOT_DOT_POSITION: u64 = 12;
const AFTER_DOTS: u64 = 24;
/// Where the names begin that only fast commits have. The largest directory ends at 2^48.
const ADDED_POSITION: u64 = 1 << 60;

/// Gives `sink` the entries from `from` on.
pub(super) fn read(
    directory: &Directory<'_>,
    change: Option<&DirectoryChange>,
    from: DirOffset,
    sink: &mut Sink<'_>,
) -> Result<()> {
    let mut listing = Listing { directory, change, hasher: None, from: from.0, sink };
    let flow = if let Some(parent) = change.and_then(DirectoryChange::created_in) {
        listing.give_dots(parent)
    } else if directory.inode.has_inline_data() {
        listing.give_inline()?
    } else {
        listing.give_blocks()?
    };
    if flow.is_continue() {
        // The sink's answer does not matter any more: nothing follows.
        let _ = listing.give_added();
    }
    Ok(())
}

struct Listing<'a, 's, 'f> {
    directory: &'a Directory<'a>,
    change: Option<&'a DirectoryChange>,
    /// Hashes encrypted names for their disguise, where Linux does.
    hasher: Option<NameHasher>,
    from: u64,
    sink: &'s mut Sink<'f>,
}

impl Listing<'_, '_, '_> {
    fn give_blocks(&mut self) -> Result<ControlFlow<()>> {
        self.hasher = self.find_hasher()?;
        let first = self.from / self.directory.format.block_bytes as u64;
        let mut walk = Walk::new(*self.directory, first);
        while let Some(block) = walk.next()? {
            if self.give_region(block.region(self.directory))?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn give_inline(&mut self) -> Result<ControlFlow<()>> {
        let entries = InlineEntries::read(self.directory)?;
        if self.give_dots(entries.parent).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        for region in entries.regions() {
            if self.give_region(region)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn give_region(&mut self, region: Region<'_>) -> Result<ControlFlow<()>> {
        for entry in region.entries(self.directory) {
            let entry = entry?;
            if region.position + (entry.at as u64) < self.from {
                continue;
            }
            if let Err(detail) = self.directory.check_entry(&entry) {
                return Err(corrupt_inode(
                    "directory entry",
                    self.directory.inode.number,
                    region.home,
                    detail,
                ));
            }
            if self.change.is_some_and(|change| !change.keeps(entry.name, entry.ino)) {
                continue;
            }
            let mut space = [0; MAX_NAME_BYTES];
            let name = match self.directory.names {
                Names::Encrypted { hash_in_entry } if !matches!(entry.name, b"." | b"..") => {
                    if entry.name.len() < ENCRYPTED_MIN_BYTES {
                        let detail = format!("encrypted name at byte {} is too short for one", entry.at);
                        let ino = self.directory.inode.number;
                        return Err(corrupt_inode("directory entry", ino, region.home, detail));
                    }
                    disguise(self.hash(&entry, hash_in_entry), entry.name, &mut space)
                }
                _ => entry.name,
            };
            let next = region.position + entry.next as u64;
            if self.give(name, entry.ino, entry.kind, next).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// `.` and `..` where the directory has no entries for them.
    fn give_dots(&mut self, parent: u32) -> ControlFlow<()> {
        let directory = Some(FileType::Directory);
        if self.from == DOT_POSITION {
            self.give(b".", self.directory.inode.number, directory, DOT_DOT_POSITION)?;
        }
        if self.from <= DOT_DOT_POSITION {
            self.give(b"..", parent, directory, AFTER_DOTS)?;
        }
        ControlFlow::Continue(())
    }

    fn give_added(&mut self) -> ControlFlow<()> {
        let Some(change) = self.change else { return ControlFlow::Continue(()) };
        let given = usize::try_from(self.from.saturating_sub(ADDED_POSITION)).unwrap_or(usize::MAX);
        for (index, (name, ino)) in change.added().enumerate().skip(given) {
            self.give(name, ino, self.kind_of_added(ino), ADDED_POSITION + index as u64 + 1)?;
        }
        ControlFlow::Continue(())
    }

    /// The type that the entry will have on the disk. A fast commit names the inode only, so the type is read from it.
    /// If the inode cannot be read the type is unknown, and a lookup of the name returns the error.
    fn kind_of_added(&self, ino: u32) -> Option<FileType> {
        let volume = self.directory.volume;
        let tells_types = volume.superblock().features().incompat.contains(Incompat::FILETYPE);
        if tells_types { Inode::read(volume, ino).ok().map(|inode| inode.kind) } else { None }
    }

    fn give(&mut self, name: &[u8], ino: u32, kind: Option<FileType>, next: u64) -> ControlFlow<()> {
        (self.sink)(DirEntry { name, ino: Ino(u64::from(ino)), kind, next: DirOffset(next) })
    }

    /// The hash that Linux puts into the disguise of a name: none where it reads the directory block by block.
    fn hash(&self, entry: &Entry<'_>, hash_in_entry: bool) -> NameHash {
        const NONE: NameHash = NameHash { major: 0, minor: 0 };
        if !hash_in_entry {
            return self.hasher.map_or(NONE, |hasher| hasher.hash(entry.name));
        }
        let Some((major, rest)) = entry.slack.split_first_chunk() else { return NONE };
        let Some((minor, _)) = rest.split_first_chunk() else { return NONE };
        NameHash { major: u32::from_le_bytes(*major), minor: u32::from_le_bytes(*minor) }
    }

    fn find_hasher(&self) -> Result<Option<NameHasher>> {
        let superblock = self.directory.volume.superblock();
        let hashes = matches!(self.directory.names, Names::Encrypted { hash_in_entry: false })
            && superblock.features().compat.contains(Compat::DIR_INDEX);
        if hashes && self.directory.is_indexed() {
            return index::read_hasher(self.directory);
        }
        // A directory of one block is read by hash as well, though it has no index.
        let defaults = superblock.hash_defaults();
        Ok(NameHasher::new(defaults.version, defaults).filter(|_| hashes && self.directory.blocks == 1))
    }
}
