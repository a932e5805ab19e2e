//! Directories: finding a name, and listing all of them.
//!
//! | module | what it has |
//! | --- | --- |
//! | `directory` | one directory and its blocks, validated |
//! | `entry`, `tail` | entries in a block, and the checksum after them |
//! | `index`, `hash` | the tree over hashes of names |
//! | `walk`, `list` | the blocks in order, the entries in order |
//! | `query`, `casefold`, `nokey` | which names are the same |
//! | `inline` | directories in their inode |
//! | `checksums` | directories whose blocks get checksums, or lose them |
//!
//! A name is found through the index where there is one, and else by reading all blocks. With checksums a damaged index
//! is an error; without checksums, and for an index of an unknown kind, the directory is read as if it had none. Damage
//! is reported when the search comes to it, so names before it are found.
//!
//! What fast commits changed ([`DirectoryChange`]) is laid over both operations here and in `list`, nowhere
//! else. Left out: names in encrypted directories are never decrypted, and SipHash, which takes their key, is not
//! computed.

mod add;
mod by_hash;
mod casefold;
mod changing;
mod checksums;
mod directory;
mod edit;
mod entry;
mod hash;
mod index;
mod inline;
mod inline_change;
mod links;
mod list;
mod live;
mod locks;
mod node;
mod nokey;
mod parent;
mod query;
mod remove;
mod renumber;
mod tail;
mod walk;

#[cfg(test)]
mod tests;

pub(crate) use add::{ADD_CREDITS, add};
pub(crate) use casefold::fold;
pub(crate) use changing::check_changeable;
pub(crate) use checksums::{IndexBlock, index_blocks, make_room, put_leaf_checksum, survey};
pub(crate) use entry::{NAME_MAX_BYTES, code_of, record_bytes};
pub(crate) use hash::NameHasher;
pub(crate) use links::links;
pub(crate) use live::{behind_block, lookup_live, read_dir_live};
pub(crate) use locks::{DirectoryLocks, LeafLocks};
pub(crate) use nokey::{ENCRYPTED_MIN_BYTES, disguise_target, disguised_bytes};
pub(crate) use parent::{check_parent, is_empty, make_first, set_parent};
pub(crate) use remove::{REMOVE_CREDITS, move_in_block, remove, replace};
pub(crate) use renumber::{Named, for_each_named, lead_elsewhere};
pub(crate) use tail::{seal_index, seal_leaf};

use std::ops::ControlFlow;

use undercroft_vfs::{DirEntry, DirOffset, Error, Result};

use crate::error::corrupt_inode;
use crate::fast_commit::DirectoryChange;
use crate::inode::Inode;
use crate::numbers::FileBlock;
use crate::volume::Volume;
use directory::{Block, Directory, Names, Region};
use index::Leaves;
use inline::InlineEntries;
use query::{Fit, Query};
use walk::Walk;

/// The number that `name` leads to, as the directory has it: `.` and `..` included.
///
/// # Errors
/// [`Error::NotDirectory`], corruption, I/O failure.
pub(crate) fn lookup(volume: &Volume, inode: &Inode, name: &[u8]) -> Result<Option<u32>> {
    let directory = Directory::open(volume, inode)?;
    let Some(query) = Query::new(name, directory.names) else { return Ok(None) };
    let change = volume.fast_commits().directory(inode.number);
    if let Some(change) = change {
        if let Some(number) = added(change, &query, name) {
            return Ok(Some(number));
        }
        if let Some(parent) = change.created_in() {
            return Ok(match name {
                b"." => Some(inode.number),
                b".." => Some(parent),
                _ => None,
            });
        }
    }
    Search { directory, query, change, folded: None }.run(name)
}

/// The same without what fast commits changed.
///
/// # Errors
/// As for [`lookup`].
pub(crate) fn lookup_on_disk(volume: &Volume, inode: &Inode, name: &[u8]) -> Result<Option<u32>> {
    let directory = Directory::open(volume, inode)?;
    let Some(query) = Query::new(name, directory.names) else { return Ok(None) };
    Search { directory, query, change: None, folded: None }.run(name)
}

/// Gives `sink` the entries from `from` on, `.` and `..` included, until it breaks.
///
/// # Errors
/// [`Error::NotDirectory`], corruption, I/O failure; entries already given were good.
pub(crate) fn read_dir(
    volume: &Volume,
    inode: &Inode,
    from: DirOffset,
    sink: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let directory = Directory::open(volume, inode)?;
    list::read(&directory, volume.fast_commits().directory(inode.number), from, sink)
}

/// Where a name leads that was added by a fast commit.
fn added(change: &DirectoryChange, query: &Query<'_>, name: &[u8]) -> Option<u32> {
    let exact = change.lookup(name, None);
    exact.or_else(|| match query {
        Query::Folded { .. } => change.added().find(|(n, _)| query.fit(n) != Fit::Not).map(|(_, ino)| ino),
        Query::Exact(_) | Query::Disguised(_) => None,
    })
}

/// One search for a name among the entries on disk.
struct Search<'a> {
    directory: Directory<'a>,
    query: Query<'a>,
    change: Option<&'a DirectoryChange>,
    /// The first entry that fits by folding, while an exact one may still come.
    folded: Option<u32>,
}

impl Search<'_> {
    fn run(&mut self, name: &[u8]) -> Result<Option<u32>> {
        if self.directory.inode.has_inline_data() {
            return self.run_inline(name);
        }
        // An index does not contain `.` and `..`, which are the first entries of the first block.
        let is_first = matches!(name, b"." | b"..");
        // Without the blocks after it, which the walk below would fetch along with it.
        if is_first && let Some(home) = self.directory.home_or_hole(FileBlock(0))? {
            let block = Block::read(&self.directory, FileBlock(0), home)?;
            if let Some(number) = self.look_through(block.region(&self.directory))? {
                return Ok(Some(number));
            }
        }
        if self.directory.is_indexed() && !is_first {
            match self.run_indexed() {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(Error::Corrupt(_)) if !self.directory.volume.superblock().has_metadata_checksums() => {}
                Err(error) => return Err(error),
            }
            self.folded = None;
        }
        let mut walk = Walk::new(self.directory, 0);
        while let Some(block) = walk.next()? {
            let region = block.region(&self.directory);
            if let Some(number) = self.look_through(region)? {
                return Ok(Some(number));
            }
        }
        Ok(self.folded)
    }

    fn run_inline(&mut self, name: &[u8]) -> Result<Option<u32>> {
        let entries = InlineEntries::read(&self.directory)?;
        match name {
            b"." => return Ok(Some(self.directory.inode.number)),
            b".." => return Ok(Some(entries.parent)),
            _ => {}
        }
        for region in entries.regions() {
            if let Some(number) = self.look_through(region)? {
                return Ok(Some(number));
            }
        }
        Ok(self.folded)
    }

    /// The result of the index; `None` when it has none, or when only reading the whole directory can confirm it.
    fn run_indexed(&mut self) -> Result<Option<Option<u32>>> {
        let Some(mut leaves) = Leaves::find(self.directory, &self.query)? else { return Ok(None) };
        while let Some(block) = leaves.next()? {
            let region = block.region(&self.directory);
            if let Some(number) = self.look_through(region)? {
                return Ok(Some(Some(number)));
            }
        }
        if self.folded.is_some() {
            return Ok(Some(self.folded));
        }
        let may_be_elsewhere = match self.directory.names {
            Names::Plain => false,
            Names::Casefolded(casefold) => casefold.may_be_misplaced,
            // A disguise from before the directory had an index carries no hash.
            Names::Encrypted { .. } => true,
        };
        Ok(if may_be_elsewhere { None } else { Some(None) })
    }

    fn look_through(&mut self, region: Region<'_>) -> Result<Option<u32>> {
        for entry in region.entries(&self.directory) {
            let entry = entry?;
            let fit = self.query.fit(entry.name);
            if fit == Fit::Not || self.change.is_some_and(|change| !change.keeps(entry.name, entry.ino)) {
                continue;
            }
            if let Err(detail) = self.directory.check_entry(&entry) {
                let number = self.directory.inode.number;
                return Err(corrupt_inode("directory entry", number, region.home, detail));
            }
            match fit {
                Fit::Exact => return Ok(Some(entry.ino)),
                _ => self.folded = self.folded.or(Some(entry.ino)),
            }
        }
        Ok(None)
    }
}
