//! What a slot of the stripe cache holds: the pages of all columns of one stripe, and what is known of them.
//!
//! The memory is taken once and reused for ever. Pages begin at addresses that direct I/O likes.

use std::mem;
use std::ops::Range;

use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes, KnownLayout};

use super::pages::{PAGE_BYTES, Pages};
use super::slots::Content;
use super::write::HandedWrite;
use super::{WriteCounts, store};
use crate::member::Role;
use crate::{Error, Result};

/// Aligned for direct I/O.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

/// See the module's description.
pub(super) struct StripeBuffer {
    pub(super) columns: Box<[Column]>,
    /// Not yet in the counts of the set.
    pub(super) counts: WriteCounts,
}

/// What a stripe has of one member: see `shape.rs`.
pub(super) struct Column {
    pages: Box<[Page]>,
    /// Whose it is, in the stripe that is worked on.
    pub(super) role: Role,
    /// The pages whose bytes are those of the array. Outlives the work: it is what the cache remembers.
    pub(super) valid: Pages,
    /// The pages that the work at hand needs.
    pub(super) wanted: Pages,
    /// The pages that a member can be asked for.
    pub(super) readable: Pages,
    /// The pages that reads are made for.
    pub(super) to_read: Pages,
    /// The pages that the member could not read.
    pub(super) unread: Pages,
    /// The pages that are written to the members when the work is done.
    pub(super) dirty: Pages,
    /// Those of them that are written from end to end.
    pub(super) covered: Pages,
}

impl StripeBuffer {
    pub(super) fn new(columns: usize, piece_bytes: usize) -> Result<Self> {
        let column = |_| Column::new(piece_bytes / PAGE_BYTES);
        Ok(Self { columns: (0..columns).map(column).collect::<Result<_>>()?, counts: WriteCounts::default() })
    }

    /// Takes the bytes of a column out, to be written to while the others are read; [`put_back`](Self::put_back)
    /// follows.
    pub(super) fn lift(&mut self, column: usize) -> Lifted {
        Lifted { column, pages: mem::take(&mut self.columns[column].pages) }
    }

    pub(super) fn put_back(&mut self, lifted: Lifted) {
        self.columns[lifted.column].pages = lifted.pages;
    }
}

/// The bytes of a column, outside of the buffer.
pub(super) struct Lifted {
    column: usize,
    pages: Box<[Page]>,
}

impl Lifted {
    pub(super) fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        &mut self.pages.as_mut_bytes()[range]
    }
}

impl Column {
    fn new(pages: usize) -> Result<Self> {
        let pages = <[Page]>::new_box_zeroed_with_elems(pages)
            .map_err(|_| Error::Invalid("there is no memory for the stripe cache".to_owned()))?;
        Ok(Self {
            pages,
            role: Role(0),
            valid: Pages::NONE,
            wanted: Pages::NONE,
            readable: Pages::NONE,
            to_read: Pages::NONE,
            unread: Pages::NONE,
            dirty: Pages::NONE,
            covered: Pages::NONE,
        })
    }

    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.pages.as_bytes()[range]
    }

    pub(super) fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        &mut self.pages.as_mut_bytes()[range]
    }

    /// The pages that are there without any arithmetic.
    pub(super) fn at_hand(&self) -> Pages {
        self.valid | self.readable
    }

    pub(super) fn begin(&mut self, role: Role, readable: Pages) {
        self.role = role;
        self.readable = readable;
        self.wanted = Pages::NONE;
        self.to_read = Pages::NONE;
        self.unread = Pages::NONE;
        self.dirty = Pages::NONE;
        self.covered = Pages::NONE;
    }
}

impl Content for StripeBuffer {
    type Work = HandedWrite;
    type Answer = Result<()>;
    type Tally = WriteCounts;

    fn forget(&mut self) {
        for column in &mut self.columns {
            column.valid = Pages::NONE;
        }
    }

    fn abandoned() -> Result<()> {
        Err(store::abandoned())
    }

    fn take_tally(&mut self) -> WriteCounts {
        mem::take(&mut self.counts)
    }
}
