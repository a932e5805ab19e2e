//! The filesystem as it is with its fast commits applied, for a reader that does not apply them on disk.
//!
//! Folded once, before the first operation, and never changed after that, so any number of threads read it
//! without a lock. How the filesystem consults it:
//!
//! - **Reading an inode:** [`FastCommitView::inode`], then [`InodeChange::apply`] on its bytes from disk, after
//!   their checksum was verified. An inode that is created is not verified: its place on disk holds no inode
//!   or another one's. A directory's link count comes from [`FastCommitView::directory_links`].
//! - **Mapping a block:** [`InodeChange::lookup`] first; where it says `OnDisk`, the extent tree or indirect
//!   blocks, limited to the run it gave.
//! - **A name:** [`FastCommitView::directory`], then [`DirectoryChange::lookup`] with what the disk says.
//! - **Listing:** each entry on disk for which [`DirectoryChange::keeps`], then [`DirectoryChange::added`]. An
//!   added entry has no type of its own; it is the inode's. A directory with
//!   [`DirectoryChange::created_in`] has no blocks to read.
//!
//! What the log does not say: new times and sizes of directories, whose inodes fast commits leave out, and
//! which inodes are free. An inode whose last name is gone can still be read by number. Names are compared byte
//! by byte, so the writer must have used the spelling of the entry (with case folding it may not have).
//!
//! Correct is the tree that was there when the log was written. Linux 6.18 itself does not always restore it:
//! `docs/TESTING.md` lists where its replay goes wrong.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use undercroft_vfs::Result;

use super::directory::DirectoryChange;
use super::inode::{Incarnation, InodeChange};
use super::operation::FastCommitOp;
use super::ranges::Overridden;

/// Links of a directory that has too many subdirectories to be counted.
const UNCOUNTED_LINKS: u16 = 1;

/// The links that a directory can have: its name, its own dot, and one from each subdirectory.
const COUNTED_LINKS: RangeInclusive<u16> = 2..=65_000;

/// All changes, by inode.
#[derive(Clone, Debug, Default)]
pub(crate) struct FastCommitView {
    inodes: BTreeMap<u32, InodeChange>,
    directories: BTreeMap<u32, DirectoryChange>,
    /// What happened in directories whose numbers have gone to other inodes since.
    replaced: Vec<(u32, DirectoryChange)>,
}

impl FastCommitView {
    /// Folds a list of operations, in their order. `on_disk` returns which inode has a number on disk.
    ///
    /// An operation may have happened on disk already: what is done while a full transaction commits is both in that
    /// transaction and in the next fast commit. So a `Create` alone does not mean a new inode; another incarnation
    /// does.
    ///
    /// # Errors
    /// Those of `on_disk`.
    pub(crate) fn fold(
        operations: &[FastCommitOp],
        mut on_disk: impl FnMut(u32) -> Result<Option<Incarnation>>,
    ) -> Result<Self> {
        let mut view = Self::default();
        for operation in operations {
            view.add(operation, &mut on_disk)?;
        }
        Ok(view)
    }

    fn add(
        &mut self,
        operation: &FastCommitOp,
        on_disk: &mut impl FnMut(u32) -> Result<Option<Incarnation>>,
    ) -> Result<()> {
        match operation {
            FastCommitOp::AddRange { ino, lblk, len, pblk, unwritten } => {
                let what = Overridden::Mapped { pblk: *pblk, unwritten: *unwritten };
                self.inodes.entry(*ino).or_default().set_range(*lblk, *len, what);
            }
            FastCommitOp::DelRange { ino, lblk, len } => {
                self.inodes.entry(*ino).or_default().set_range(*lblk, *len, Overridden::Hole);
            }
            FastCommitOp::Inode { ino, raw } => {
                let change = self.inodes.entry(*ino).or_default();
                let before = match change.incarnation() {
                    Some(before) => Some(before),
                    None => on_disk(*ino)?,
                };
                let birth = before != Incarnation::of(raw);
                change.set_fields(raw, birth);
                if birth {
                    // Names in a directory that had this number before.
                    self.replaced.extend(self.directories.remove(ino).map(|change| (*ino, change)));
                }
            }
            FastCommitOp::Create { parent, ino, name } => {
                if self.inodes.get(ino).is_some_and(InodeChange::is_new_directory) {
                    self.directories.entry(*ino).or_default().set_created_in(*parent);
                }
                self.directories.entry(*parent).or_default().link(name, *ino);
            }
            FastCommitOp::Link { parent, ino, name } => {
                self.directories.entry(*parent).or_default().link(name, *ino);
            }
            FastCommitOp::Unlink { parent, ino, name } => {
                self.directories.entry(*parent).or_default().unlink(name, *ino);
            }
        }
        Ok(())
    }

    /// Whether nothing happened.
    pub(crate) fn is_empty(&self) -> bool {
        self.inodes.is_empty() && self.directories.is_empty()
    }

    /// What happened to an inode, if anything did.
    pub(crate) fn inode(&self, ino: u32) -> Option<&InodeChange> {
        self.inodes.get(&ino)
    }

    /// Whether the inode that has this number in the end is not the one that has it on the disk.
    pub(crate) fn is_new(&self, ino: u32) -> bool {
        self.inodes.get(&ino).is_some_and(InodeChange::is_new)
    }

    /// What happened to a directory's names, if anything did.
    pub(crate) fn directory(&self, ino: u32) -> Option<&DirectoryChange> {
        self.directories.get(&ino)
    }

    /// Every inode to which something happened, by number.
    pub(crate) fn inodes(&self) -> impl Iterator<Item = (u32, &InodeChange)> {
        self.inodes.iter().map(|(&ino, change)| (ino, change))
    }

    /// Every directory in which something happened to names, by number.
    pub(crate) fn directories(&self) -> impl Iterator<Item = (u32, &DirectoryChange)> {
        self.directories.iter().map(|(&ino, change)| (ino, change))
    }

    /// The same of directories whose numbers have gone to other inodes since.
    pub(crate) fn replaced_directories(&self) -> impl Iterator<Item = (u32, &DirectoryChange)> {
        self.replaced.iter().map(|(ino, change)| (*ino, change))
    }

    /// The link count of a directory, whose inode on disk says `on_disk`.
    ///
    /// Fast commits do not log a directory when subdirectories come and go, so they are counted: for each name
    /// that something happened to, whether it leads to a directory now, and whether it did on disk. An operation by
    /// itself does not show that, because it may have happened on disk already, and because a number that belonged to a
    /// directory may have gone to a file.
    ///
    /// `entry_on_disk` says where the directory's own entry on disk leads, `is_directory_on_disk` whether an inode
    /// is one there.
    ///
    /// # Errors
    /// Those of the two.
    pub(crate) fn directory_links(
        &self,
        ino: u32,
        on_disk: u16,
        mut entry_on_disk: impl FnMut(&[u8]) -> Result<Option<u32>>,
        mut is_directory_on_disk: impl FnMut(u32) -> Result<bool>,
    ) -> Result<u16> {
        let Some(change) = self.directories.get(&ino) else { return Ok(on_disk) };
        let created = change.created_in().is_some();
        let mut links = i64::from(if created { 2 } else { on_disk });
        if links == i64::from(UNCOUNTED_LINKS) {
            return Ok(UNCOUNTED_LINKS);
        }
        for name in change.names() {
            let before = if created { None } else { entry_on_disk(name)? };
            let after = change.lookup(name, before);
            if let Some(child) = before {
                links -= i64::from(is_directory_on_disk(child)?);
            }
            if let Some(child) = after {
                let logged = self.inodes.get(&child).and_then(InodeChange::is_directory);
                links += i64::from(match logged {
                    Some(directory) => directory,
                    None => is_directory_on_disk(child)?,
                });
            }
        }
        // Without links it would be no inode in use; a count that cannot be is none.
        Ok(u16::try_from(links).ok().filter(|links| COUNTED_LINKS.contains(links)).unwrap_or(UNCOUNTED_LINKS))
    }
}
