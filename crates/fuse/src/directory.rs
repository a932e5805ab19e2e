//! Directory listings: names alone, or names with everything `stat` wants to know.
//!
//! For the second kind the inodes of a batch of entries are announced to the filesystem before the first is
//! looked at, so that it can fetch their homes with few large reads. The batch is kept by each thread and reused,
//! so listing allocates nothing per entry.
//!
//! An entry whose inode cannot be read, or that leads to a directory which has its one place elsewhere, is listed all
//! the same, without attributes: the name is there, and a look-up of it gets the error.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use undercroft_vfs::{DirOffset, Error, FileType, Ino, Node, Result};

use crate::nodes::NodeId;
use crate::server::{Entry, Server};

/// Entries per batch: about a third of what fits into the reply to a program that lists with the usual 32 KiB.
const BATCH: usize = 64;

/// One name of a listing.
pub(crate) struct Listed<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) ino: Ino,
    pub(crate) kind: FileType,
    /// Where the listing goes on after it.
    pub(crate) next: u64,
}

/// What a listing tells about the inode behind a name.
pub(crate) enum Details {
    /// Nothing: the name is `.` or `..`, or the inode cannot be read.
    NameOnly,
    /// Handed out to the kernel and counted.
    Inode(Entry),
}

/// Entries of a directory, copied out of it.
#[derive(Default)]
struct Batch {
    names: Vec<u8>,
    entries: Vec<BatchEntry>,
    inos: Vec<Ino>,
}

struct BatchEntry {
    name_len: usize,
    ino: Ino,
    kind: Option<FileType>,
    next: DirOffset,
}

thread_local! {
    static BATCH_OF_THREAD: RefCell<Batch> = RefCell::default();
}

impl Server {
    /// Gives `sink` the names from `from` on until it is full.
    pub(crate) fn list(
        &self,
        dir: NodeId,
        from: u64,
        sink: &mut dyn FnMut(&Listed<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut given = false;
        let dir = self.busy_node(dir)?;
        let listed = dir.read_dir(DirOffset(from), &mut |entry| {
            let kind = entry.kind.unwrap_or_else(|| self.kind_of(entry.ino));
            let listed = Listed { name: entry.name, ino: entry.ino, kind, next: entry.next.0 };
            sink(&listed)?;
            given = true;
            ControlFlow::Continue(())
        });
        self.note_access(&dir);
        self.defer_error(listed, given)
    }

    /// Gives `sink` the names from `from` on, with what is known about their inodes, until it is full.
    pub(crate) fn list_with_details(
        &self,
        dir: NodeId,
        from: u64,
        sink: &mut dyn FnMut(&Listed<'_>, &Details) -> ControlFlow<()>,
    ) -> Result<()> {
        let dir = self.busy_node(dir)?;
        self.note_access(&dir);
        BATCH_OF_THREAD.with_borrow_mut(|batch| {
            let mut from = DirOffset(from);
            let mut given = false;
            loop {
                batch.clear();
                let filled = dir.read_dir(from, &mut |entry| batch.push(&entry));
                self.vfs().filesystem().prefetch_inodes(&batch.inos);
                let mut names = &*batch.names;
                for entry in &batch.entries {
                    let (name, rest) = names.split_at(entry.name_len);
                    names = rest;
                    if self.give(&dir, name, entry, sink).is_break() {
                        return Ok(());
                    }
                    given = true;
                    from = entry.next;
                }
                if filled.is_err() || batch.entries.len() < BATCH {
                    return self.defer_error(filled, given);
                }
            }
        })
    }

    /// Hands one entry out, or takes it back if there is no room for it.
    fn give(
        &self,
        dir: &Node,
        name: &[u8],
        entry: &BatchEntry,
        sink: &mut dyn FnMut(&Listed<'_>, &Details) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let node = self.listed_node(dir, name, entry.ino);
        let kind = match &node {
            Some(node) => node.kind(),
            None if name == b"." || name == b".." => FileType::Directory,
            None => entry.kind.unwrap_or(FileType::Regular),
        };
        let listed = Listed { name, ino: entry.ino, kind, next: entry.next.0 };
        // A damaged directory may name what may not be handed out; a look-up will say so.
        let inode = node.as_ref().and_then(|node| Some((self.id_of(node.ino())?, node)));
        let Some((id, node)) = inode else { return sink(&listed, &Details::NameOnly) };
        self.hand_out(id, node);
        let room = sink(&listed, &Details::Inode(Entry { id, attr: node.attr() }));
        if room.is_break() {
            self.nodes().release(id, 1);
        }
        room
    }

    /// The inode whose details go along with its name.
    fn listed_node(&self, dir: &Node, name: &[u8], ino: Ino) -> Option<Arc<Node>> {
        if name == b"." || name == b".." {
            return None;
        }
        // The kernel keeps the attributes now; the inode cache is for what is used again here.
        match self.vfs().listed_node(dir, name, ino) {
            Ok(node) => Some(node),
            // The name has gone since it was read.
            Err(Error::NotFound) => None,
            Err(error) => {
                self.report(&error);
                None
            }
        }
    }

    /// The kind of an inode whose directory does not tell it.
    fn kind_of(&self, ino: Ino) -> FileType {
        match self.vfs().node(ino) {
            Ok(node) => node.kind(),
            Err(error) => {
                self.report(&error);
                FileType::Regular
            }
        }
    }

    /// A listing that fails after some entries gives these; the kernel meets the error when it goes on.
    fn defer_error(&self, listed: Result<()>, given: bool) -> Result<()> {
        match listed {
            Err(error) if given => {
                self.report(&error);
                Ok(())
            }
            listed => listed,
        }
    }
}

impl Batch {
    fn clear(&mut self) {
        self.names.clear();
        self.entries.clear();
        self.inos.clear();
    }

    fn push(&mut self, entry: &undercroft_vfs::DirEntry<'_>) -> ControlFlow<()> {
        self.names.extend_from_slice(entry.name);
        self.entries.push(BatchEntry {
            name_len: entry.name.len(),
            ino: entry.ino,
            kind: entry.kind,
            next: entry.next,
        });
        self.inos.push(entry.ino);
        if self.entries.len() == BATCH { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
