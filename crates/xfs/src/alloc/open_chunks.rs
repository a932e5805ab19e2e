//! Chunks of inodes whose records are kept in memory: what is known of them. `chunk_records` has what is done with it.
//!
//! Locks: guarded by the group's lock.

use std::ops::Range;

use crate::btree::InodeChunk;
use crate::format::AgIno;
use crate::format::geometry::CHUNK_INODES;
use crate::transaction::Tid;

/// Open chunks of a group at most: more than threads that make files in it at once.
pub(super) const OPEN_MAX: usize = 16;

/// Chunks that were found nearest to something; see [`Nearest`].
const NEAREST_MAX: usize = 4;

/// An empty range.
const NONE_FULL: Range<AgIno> = AgIno(0)..AgIno(0);

/// The open chunks of a group.
#[derive(Debug)]
pub(super) struct OpenChunks {
    pub(super) chunks: Vec<OpenChunk>,
    /// Changes when a chunk gets its first free inode or loses its last, or comes or goes.
    version: u64,
    nearest: [Option<Nearest>; NEAREST_MAX],
    next_nearest: usize,
    /// No chunk that begins in this range has a free inode: a search through all chunks passed them.
    pub(super) full: Range<AgIno>,
    /// Whether the header's count of free inodes is newer than the sector in the cache, which belongs to the transaction.
    pub(super) counts_are_newer: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct OpenChunk {
    pub(super) record: InodeChunk,
    /// The transaction in which the trees' records were written last.
    pub(super) written_in: Tid,
    pub(super) is_newer: bool,
}

/// The chunk with a free inode that is nearest to an inode, while the version is the same.
#[derive(Clone, Copy, Debug)]
struct Nearest {
    to: AgIno,
    start: AgIno,
    version: u64,
}

impl Default for OpenChunks {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            version: 0,
            nearest: [None; NEAREST_MAX],
            next_nearest: 0,
            full: NONE_FULL,
            counts_are_newer: false,
        }
    }
}

impl OpenChunks {
    /// The newest record of the chunk of an inode, if it is open.
    pub(super) fn of(&self, ino: AgIno) -> Option<InodeChunk> {
        let is_in = |open: &&OpenChunk| {
            ino.0.checked_sub(open.record.start.0).is_some_and(|within| within < CHUNK_INODES)
        };
        self.chunks.iter().find(is_in).map(|open| open.record)
    }

    /// The newest record of a chunk that was found in a tree.
    pub(super) fn newest(&self, in_tree: InodeChunk) -> InodeChunk {
        self.position(in_tree.start).map_or(in_tree, |at| self.chunks[at].record)
    }

    /// The chunk that was found nearest to an inode, if it is open and that is still so.
    pub(super) fn nearest(&self, to: AgIno) -> Option<InodeChunk> {
        let is_it = |nearest: &&Nearest| nearest.to == to && nearest.version == self.version;
        let start = self.nearest.iter().flatten().find(is_it)?.start;
        self.position(start).map(|at| self.chunks[at].record).filter(|chunk| chunk.free_count > 0)
    }

    pub(super) fn note_nearest(&mut self, to: AgIno, start: AgIno) {
        let known = self.nearest.iter().position(|nearest| nearest.is_some_and(|nearest| nearest.to == to));
        let at = known.unwrap_or_else(|| {
            self.next_nearest = (self.next_nearest + 1) % NEAREST_MAX;
            self.next_nearest
        });
        self.nearest[at] = Some(Nearest { to, start, version: self.version });
    }

    /// The chunks with free inodes are others now.
    pub(super) fn note_other_chunks(&mut self) {
        self.version += 1;
    }

    /// The chunks that begin in `range` may have got free inodes.
    pub(super) fn note_free_in(&mut self, range: Range<AgIno>) {
        let full = &self.full;
        if range.start < full.end && full.start < range.end {
            let (below, above) = (full.start..range.start, range.end..full.end);
            let len = |part: &Range<AgIno>| part.end.0.saturating_sub(part.start.0);
            self.full = if len(&below) > len(&above) { below } else { above };
        }
    }

    pub(super) fn position(&self, start: AgIno) -> Option<usize> {
        self.chunks.iter().position(|open| open.record.start == start)
    }

    pub(super) fn has_newer(&self) -> bool {
        self.counts_are_newer || self.chunks.iter().any(|open| open.is_newer)
    }
}
