//! A directory's entries, one by one.
//!
//! They are read in batches; between two batches nothing is held but the directory's node, so an entry that is added or
//! removed meanwhile may be listed or not, and each that stays is listed once. `.` and `..` are left out.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::vec;

use crate::walk::{node_listed, node_of_kind};
use crate::{Access, Credentials, DirOffset, Error, FileType, Follow, Ino, Node, Result, Vfs, check_access};

/// Entries that are read at a time.
const BATCH: usize = 128;

/// The entries of a directory. See [`Vfs::read_dir`].
#[derive(Debug)]
pub struct ReadDir<'a> {
    vfs: &'a Vfs,
    dir: Arc<Node>,
    batch: vec::IntoIter<Listed>,
    /// Where the directory goes on; `None` at its end and after an error.
    next: Option<DirOffset>,
    /// What comes after the batch.
    failure: Option<Error>,
}

/// An entry of a directory. See [`Vfs::read_dir`].
#[derive(Debug)]
pub struct ReadDirEntry<'a> {
    vfs: &'a Vfs,
    listed: Listed,
}

/// What a directory says of one name.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) name: Vec<u8>,
    pub(super) ino: Ino,
    pub(super) kind: Option<FileType>,
    /// Where the directory goes on after this entry.
    pub(super) next: DirOffset,
}

impl Vfs {
    /// The entries of the directory that a path stands for, in the directory's order.
    ///
    /// # Errors
    /// [`NotDirectory`](Error::NotDirectory), [`PermissionDenied`](Error::PermissionDenied); otherwise as for
    /// [`resolve`](Self::resolve). An entry may be an error instead, and is the last one then.
    pub fn read_dir(&self, caller: &Credentials, path: impl AsRef<[u8]>) -> Result<ReadDir<'_>> {
        let dir = self.resolve(caller, path, Follow::Last)?;
        if dir.kind() != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        check_access(caller, &dir, Access::READ)?;
        let next = Some(DirOffset::default());
        Ok(ReadDir { vfs: self, dir, batch: Vec::new().into_iter(), next, failure: None })
    }
}

impl<'a> Iterator for ReadDir<'a> {
    type Item = Result<ReadDirEntry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(listed) = self.batch.next() {
                return Some(Ok(ReadDirEntry { vfs: self.vfs, listed }));
            }
            if let Some(error) = self.failure.take() {
                return Some(Err(error));
            }
            let (batch, read) = list(&self.dir, self.next.take()?);
            match read {
                Ok(()) => self.next = batch.last().map(|listed| listed.next),
                Err(error) => self.failure = Some(error),
            }
            self.batch = batch.into_iter();
        }
    }
}

impl ReadDirEntry<'_> {
    /// The name's bytes, not necessarily UTF-8.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.listed.name
    }

    /// The inode's number.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.listed.ino
    }

    /// What kind of file it is: as the directory says, or where it does not say, the inode.
    ///
    /// # Errors
    /// As for [`node`](Self::node).
    pub fn kind(&self) -> Result<FileType> {
        match self.listed.kind {
            Some(kind) => Ok(kind),
            None => Ok(self.node()?.kind()),
        }
    }

    /// The inode; of a symbolic link the link's.
    ///
    /// # Errors
    /// [`Stale`](Error::Stale) when it has been removed since; [`Corrupt`](Error::Corrupt) when it is another kind of
    /// file than the directory says; the filesystem's own.
    pub fn node(&self) -> Result<Arc<Node>> {
        match self.listed.kind {
            Some(kind) => node_of_kind(self.vfs, self.listed.ino, kind),
            None => node_listed(self.vfs, self.listed.ino),
        }
    }
}

/// Some entries from a position on, none at the end of the directory; and what went wrong after them.
pub(super) fn list(dir: &Node, from: DirOffset) -> (Vec<Listed>, Result<()>) {
    let mut batch = Vec::new();
    let read = dir.read_dir(from, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            batch.push(Listed {
                name: entry.name.into(),
                ino: entry.ino,
                kind: entry.kind,
                next: entry.next,
            });
        }
        if batch.len() < BATCH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    (batch, read)
}
