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
//! Applied by Linux 6.18 itself, directories from fast commits end up with one link; here they have theirs.

use std::collections::BTreeMap;

use undercroft_vfs::Result;

use super::directory::DirectoryChange;
use super::inode::InodeChange;
use super::operation::FastCommitOp;
use super::ranges::Overridden;

/// Links of a directory that has so many subdirectories that nobody counts them.
const UNCOUNTED_LINKS: u16 = 1;

/// The most links that are counted.
const MOST_LINKS: u16 = 65_000;

/// All changes, by inode.
#[derive(Clone, Debug, Default)]
pub(crate) struct FastCommitView {
    inodes: BTreeMap<u32, InodeChange>,
    directories: BTreeMap<u32, DirectoryChange>,
}

impl FastCommitView {
    /// Folds a list of operations, in their order.
    pub(crate) fn fold(operations: &[FastCommitOp]) -> Self {
        let births = births(operations);
        let mut births = births.iter().copied().peekable();
        let mut view = Self::default();
        for (index, operation) in operations.iter().enumerate() {
            let birth = births.next_if_eq(&index).is_some();
            view.add(operation, birth);
        }
        view
    }

    fn add(&mut self, operation: &FastCommitOp, birth: bool) {
        match operation {
            FastCommitOp::AddRange { ino, lblk, len, pblk, unwritten } => {
                let what = Overridden::Mapped { pblk: *pblk, unwritten: *unwritten };
                self.inodes.entry(*ino).or_default().set_range(*lblk, *len, what);
            }
            FastCommitOp::DelRange { ino, lblk, len } => {
                self.inodes.entry(*ino).or_default().set_range(*lblk, *len, Overridden::Hole);
            }
            FastCommitOp::Inode { ino, raw } => {
                self.inodes.entry(*ino).or_default().set_fields(raw, birth);
                if birth {
                    // Names in a directory that had this number before.
                    self.directories.remove(ino);
                }
            }
            FastCommitOp::Create { parent, ino, name } => {
                if self.inodes.get(ino).and_then(InodeChange::is_directory) == Some(true) {
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
    }

    /// What happened to an inode, if anything did.
    pub(crate) fn inode(&self, ino: u32) -> Option<&InodeChange> {
        self.inodes.get(&ino)
    }

    /// What happened to a directory's names, if anything did.
    pub(crate) fn directory(&self, ino: u32) -> Option<&DirectoryChange> {
        self.directories.get(&ino)
    }

    /// The link count of a directory, whose inode on disk says `on_disk`.
    ///
    /// Fast commits do not log a directory when subdirectories come and go, so they are counted.
    /// `is_directory` tells whether an inode is one on disk; it is asked only of inodes that names on disk led
    /// to or that have a new name.
    ///
    /// # Errors
    /// Those of `is_directory`.
    pub(crate) fn directory_links(
        &self,
        ino: u32,
        on_disk: u16,
        mut is_directory: impl FnMut(u32) -> Result<bool>,
    ) -> Result<u16> {
        let Some(change) = self.directories.get(&ino) else { return Ok(on_disk) };
        let created = change.created_in().is_some();
        let base = if created { 2 } else { on_disk };
        if base == UNCOUNTED_LINKS {
            return Ok(base);
        }
        let mut links = i64::from(base);
        for (_, child) in change.added() {
            let logged = self.inodes.get(&child).and_then(InodeChange::is_directory);
            links += i64::from(match logged {
                Some(directory) => directory,
                None => is_directory(child)?,
            });
        }
        if !created {
            for child in change.removed() {
                links -= i64::from(is_directory(child)?);
            }
        }
        Ok(u16::try_from(links).ok().filter(|&links| links <= MOST_LINKS).unwrap_or(UNCOUNTED_LINKS))
    }
}

/// Positions of those `Inode` operations that begin a new inode, ascending: for each `Create`, the last one of
/// the same inode before it. Everything logged of that number earlier was about an inode that is gone.
fn births(operations: &[FastCommitOp]) -> std::collections::BTreeSet<usize> {
    let mut last_fields = BTreeMap::new();
    let mut births = std::collections::BTreeSet::new();
    for (index, operation) in operations.iter().enumerate() {
        match operation {
            FastCommitOp::Inode { ino, .. } => {
                last_fields.insert(*ino, index);
            }
            FastCommitOp::Create { ino, .. } => births.extend(last_fields.get(ino).copied()),
            _ => {}
        }
    }
    births
}
