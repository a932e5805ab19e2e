//! The tree walk: visits everything below a directory, with several threads or in sorted order.
//!
//! Used by the program to list, search, copy and check trees. The visitor is given each entry with its path
//! before anything below it, and each failure with the path where it happened; the walk goes on after both.
//! No permissions are checked.
//!
//! Directories are read in batches of entries. A batch's inodes are announced to the filesystem, so that it
//! reads their tables in few large pieces, and live in the inode cache only while they are visited (see
//! [`Vfs::node_once`]): a walk leaves the cache as it was. Memory is bounded by the depth of the tree and the
//! size of a batch, not by the number of entries; only the sorted walk holds all names of the directories
//! between the start and where it is.
//!
//! A directory that is reached a second time, which only a corrupt disk offers, is reported and not entered.
//! The walk does not recurse. A path longer than 64 KiB is reported and not entered.

mod batch;
mod crew;
mod descent;
mod sorted;

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::{Attr, Corruption, Error, FileType, Ino, Node, Result, Vfs};

/// Longest path of a directory below the start, in bytes. Linux's own calls take 4095; a tree may be deeper than that, and a
/// hostile one so deep that building its paths would never end.
const WALK_PATH_MAX_BYTES: usize = 64 * 1024;

/// How to walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkOptions {
    /// How many threads work; 0 takes as many as the machine has processors.
    pub threads: usize,
    /// The visitor will ask for most entries' inodes, so they are announced to the filesystem in batches.
    /// Otherwise only directories are.
    pub inodes: bool,
}

impl Default for WalkOptions {
    fn default() -> Self {
        Self { threads: 0, inodes: true }
    }
}

/// What the visitor wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkFlow {
    /// Go on, into this directory if it is one.
    Continue,
    /// Go on, and not into this directory.
    SkipSubtree,
    /// End the walk. Other threads may still deliver what they are at.
    Stop,
}

/// What the visitor is given.
#[derive(Debug)]
pub enum WalkEvent<'a> {
    /// Something in the tree.
    Entry(WalkEntry<'a>),
    /// A directory could not be read, in whole or in part, or an entry's inode could not where the walk needed
    /// it. What the visitor returns matters only if it is [`WalkFlow::Stop`].
    Failure {
        /// Where, as in [`WalkEntry::path`].
        path: &'a [u8],
        /// Why.
        error: Error,
    },
}

/// Something in the tree.
pub struct WalkEntry<'a> {
    vfs: &'a Vfs,
    path: &'a [u8],
    name_start: usize,
    depth: u32,
    ino: Ino,
    kind: FileType,
    node: Option<&'a Arc<Node>>,
}

impl WalkEntry<'_> {
    /// The path below the start, without a slash in front; empty for the start itself.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        self.path
    }

    /// The last part of the path.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.path[self.name_start..]
    }

    /// How far below the start: 0 for the start itself.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// The inode's number.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// What kind of file it is, as the directory says where it does.
    #[must_use]
    pub fn kind(&self) -> FileType {
        self.kind
    }

    /// The inode. This is where it is read, unless somebody else has it; each call looks it up again.
    ///
    /// # Errors
    /// The filesystem's own; [`Corrupt`](Error::Corrupt) when it is another kind of file than the directory
    /// says.
    pub fn node(&self) -> Result<Arc<Node>> {
        if let Some(node) = self.node {
            return Ok(Arc::clone(node));
        }
        node_of_kind(self.vfs, self.ino, self.kind)
    }

    /// The attributes.
    ///
    /// # Errors
    /// As for [`node`](Self::node).
    pub fn attr(&self) -> Result<Attr> {
        Ok(self.node()?.attr())
    }
}

impl std::fmt::Debug for WalkEntry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WalkEntry")
            .field("path", &self.path.escape_ascii().to_string())
            .field("ino", &self.ino.0)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl Vfs {
    /// Visits `start` and everything below it with several threads. Parents come before their children; apart
    /// from that there is no order. The visitor runs on all threads at once.
    ///
    /// # Panics
    /// When the visitor does.
    pub fn walk(
        &self,
        start: &Arc<Node>,
        options: WalkOptions,
        visitor: &(dyn Fn(WalkEvent<'_>) -> WalkFlow + Sync),
    ) {
        crew::walk(self, start, options, visitor);
    }

    /// Visits `start` and everything below it on this thread: a directory's entries in the order of their
    /// names' bytes, each followed by what is below it.
    pub fn walk_sorted(
        &self,
        start: &Arc<Node>,
        options: WalkOptions,
        visitor: &mut dyn FnMut(WalkEvent<'_>) -> WalkFlow,
    ) {
        // A break says that the visitor stopped the walk, which it knows.
        let _: ControlFlow<()> = sorted::walk(self, start, options, visitor);
    }
}

/// Reads an inode that a directory says is of this kind.
fn node_of_kind(vfs: &Vfs, ino: Ino, kind: FileType) -> Result<Arc<Node>> {
    let node = vfs.node_once(ino)?;
    if node.kind() == kind {
        return Ok(node);
    }
    let detail = format!("the directory says {kind:?}, the inode says {:?}", node.kind());
    Err(Corruption { structure: "directory entry", ino: Some(ino), block: None, detail: detail.into() }
        .into())
}
