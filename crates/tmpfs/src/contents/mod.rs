//! The bytes of one regular file: pages in memory where something was prepared, holes everywhere else.
//!
//! Pages lie in chunks of a fixed number of neighbours, and a table finds the chunk of an offset. An empty file is one
//! word and a flag; the table comes with the first page, a chunk with its first page, a page when it is prepared for
//! writing. The size of the file is not known here: what lies past it reads as zeroes, because
//! [`truncate`](Contents::truncate) clears the rest of the last page.
//!
//! Called by the inode. Space is counted in pages against the filesystem's [`Budget`], which callers pass along:
//! a word in every file would be a word too many. So a file must be [cleared](Contents::clear) before it is dropped.
//!
//! Invariants: a chunk in the table has at least one page; the pages of all chunks are as many as were taken from the
//! budget.
//!
//! Locks: the table (class `contents`), held shared to work within chunks and exclusively to add, remove or move them;
//! below it one chunk at a time (class `pages`), shared by readers. So threads that work on different chunks meet only
//! in the table's count of its readers, and no bytes are copied under the exclusive lock.
//!
//! Any offset is allowed. Bytes past `u64::MAX` do not exist: reads of them are zeroes, the rest stops before them.

mod chunk;
mod shift;
mod span;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use undercroft_sync::{RwLock, order};
use undercroft_vfs::{Error, Extent, Mapping, Result};

use self::chunk::{Chunk, Pages};
use self::span::{CHUNK_PAGES, chunks_of, pages_in, parts, slots_in};
use crate::budget::Budget;

pub(crate) use self::span::PAGE_BYTES;

/// The bytes of one file.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    body: OnceLock<Box<Body>>,
}

const _: () = assert!(size_of::<Contents>() <= 32);

/// What a file has that is not empty.
#[derive(Debug)]
struct Body {
    chunks: RwLock<Table>,
    /// Pages in all chunks.
    pages: AtomicU64,
}

/// Chunks by their number.
type Table = BTreeMap<u64, Box<Chunk>>;

impl Contents {
    /// Nothing but a hole.
    pub(crate) const fn new() -> Self {
        Self { body: OnceLock::new() }
    }

    /// How many pages there are.
    pub(crate) fn pages(&self) -> u64 {
        self.body.get().map_or(0, |body| body.pages.load(Ordering::Relaxed))
    }

    /// Fills `buf` from `offset`; holes are zeroes.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) {
        let Some(body) = self.body.get() else {
            return buf.fill(0);
        };
        let mut rest = buf;
        for part in parts(offset, rest.len() as u64) {
            let (piece, after) = rest.split_at_mut(part.len);
            match body.chunks.read().get(&part.chunk) {
                Some(chunk) => chunk.pages.read().read(part.start, piece),
                None => piece.fill(0),
            }
            rest = after;
        }
        rest.fill(0);
    }

    /// Makes pages for writing `len` bytes from `offset` on and tells for how many of them there are pages now: at
    /// least one, at most up to the end of a chunk.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace) when there is none for the first byte.
    pub(crate) fn prepare(&self, offset: u64, len: u64, budget: &Budget) -> Result<u64> {
        let Some(part) = parts(offset, len).next() else {
            return Ok(0);
        };
        let body = self.body.get_or_init(Body::new);
        let slots = part.slots();
        loop {
            if let Some(chunk) = body.chunks.read().get(&part.chunk) {
                let (ready, added) = chunk.pages.write().fill(slots.clone(), budget);
                body.pages.fetch_add(added, Ordering::Relaxed);
                if ready == 0 {
                    return Err(Error::NoSpace);
                }
                let ready_bytes = ready as u64 * PAGE_BYTES - offset % PAGE_BYTES;
                return Ok(ready_bytes.min(part.len as u64));
            }
            body.add_chunk(part.chunk, slots.start, budget)?;
        }
    }

    /// Makes pages under the whole range, or none.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace).
    pub(crate) fn allocate(&self, offset: u64, len: u64, budget: &Budget) -> Result<()> {
        let missing = self.count_missing(offset, len);
        if !budget.take(missing) {
            return Err(Error::NoSpace);
        }
        // Taken all at once, so that nothing is made in vain, and handed out from here.
        let taken = Budget::new(missing);
        let end = offset.saturating_add(len);
        let mut at = offset;
        let mut outcome = Ok(());
        while at < end {
            match self.prepare(at, end - at, &taken) {
                Ok(prepared) => at += prepared,
                // Pages went away since they were counted.
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        budget.give(taken.left());
        outcome
    }

    /// Stores `data` at `offset`, where pages were prepared.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace) where there is no page; what comes before it is stored.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut rest = data;
        for part in parts(offset, data.len() as u64) {
            let (piece, after) = rest.split_at(part.len);
            let body = self.body.get().ok_or(Error::NoSpace)?;
            let chunks = body.chunks.read();
            let chunk = chunks.get(&part.chunk).ok_or(Error::NoSpace)?;
            chunk.pages.write().write(part.start, piece)?;
            rest = after;
        }
        if rest.is_empty() { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// What lies under `offset`: [kept](Mapping::Kept) bytes or a hole. A hole after the last page has no end.
    pub(crate) fn map(&self, offset: u64) -> Extent {
        let page = offset / PAGE_BYTES;
        let (kept, end) = self.body.get().map_or((false, None), |body| run(&body.chunks.read(), page));
        let end = end.map_or(u64::MAX, |end| end.saturating_mul(PAGE_BYTES));
        let start = page * PAGE_BYTES;
        let mapping = if kept { Mapping::Kept } else { Mapping::Hole };
        Extent { start, len: end - start, mapping }
    }

    /// Gives back what lies past `size`. Whatever comes to lie there later is a hole again, from `size` on.
    pub(crate) fn truncate(&self, size: u64, budget: &Budget) {
        let first = size.div_ceil(PAGE_BYTES);
        self.zero_bytes(size..first.saturating_mul(PAGE_BYTES));
        self.free(first..u64::MAX, budget);
    }

    /// Makes a range read as zeroes and gives back the pages that lie wholly in it.
    pub(crate) fn punch(&self, offset: u64, len: u64, budget: &Budget) {
        let end = offset.saturating_add(len);
        let whole = offset.div_ceil(PAGE_BYTES)..end / PAGE_BYTES;
        if whole.is_empty() {
            return self.zero_bytes(offset..end);
        }
        self.zero_bytes(offset..whole.start * PAGE_BYTES);
        self.zero_bytes(whole.end * PAGE_BYTES..end);
        self.free(whole, budget);
    }

    /// Makes a range read as zeroes, with pages under all of it.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace); nothing has changed then.
    pub(crate) fn zero(&self, offset: u64, len: u64, budget: &Budget) -> Result<()> {
        self.allocate(offset, len, budget)?;
        self.zero_bytes(offset..offset.saturating_add(len));
        Ok(())
    }

    /// Gives everything back; the file is to be dropped.
    pub(crate) fn clear(&self, budget: &Budget) {
        self.truncate(0, budget);
    }

    /// Clears what there is of a range.
    fn zero_bytes(&self, bytes: Range<u64>) {
        let Some(body) = self.body.get().filter(|_| !bytes.is_empty()) else { return };
        let chunks = body.chunks.read();
        for (&index, chunk) in chunks.range(chunks_of(pages_in(&bytes))) {
            chunk.pages.write().zero(span::bytes_in(index, &bytes));
        }
    }

    /// Takes pages out and gives them back.
    fn free(&self, pages: Range<u64>, budget: &Budget) {
        if let Some(body) = self.body.get() {
            let freed = remove(&mut body.chunks.write(), pages);
            body.pages.fetch_sub(freed, Ordering::Relaxed);
            budget.give(freed);
        }
    }

    /// How many pages a range is short of.
    fn count_missing(&self, offset: u64, len: u64) -> u64 {
        let pages = pages_in(&(offset..offset.saturating_add(len)));
        let mut missing = pages.end - pages.start;
        if let Some(body) = self.body.get().filter(|_| missing > 0) {
            for (&index, chunk) in body.chunks.read().range(chunks_of(pages.clone())) {
                missing -= chunk.pages.read().count(slots_in(index, &pages));
            }
        }
        missing
    }
}

impl Body {
    fn new() -> Box<Self> {
        Box::new(Self { chunks: RwLock::new(&order::CONTENTS, Table::new()), pages: AtomicU64::new(0) })
    }

    /// Adds a chunk, unless it is there by now, with its first page.
    fn add_chunk(&self, index: u64, slot: usize, budget: &Budget) -> Result<()> {
        if !budget.take(1) {
            return Err(Error::NoSpace);
        }
        let mut pages = Pages::default();
        pages.put(slot, chunk::zeroed_page());
        match self.chunks.write().entry(index) {
            Entry::Vacant(place) => {
                self.pages.fetch_add(1, Ordering::Relaxed);
                place.insert(Chunk::new(pages));
            }
            Entry::Occupied(_) => budget.give(1),
        }
        Ok(())
    }
}

/// Whether there is a page of this number, and the number of the first page after it for which the other holds;
/// `None` for a hole without an end. A run of pages ends with its chunk: to look further costs every short read and
/// write more than it saves the long ones.
fn run(chunks: &Table, page: u64) -> (bool, Option<u64>) {
    let (index, slot) = (page / CHUNK_PAGES, (page % CHUNK_PAGES) as usize);
    // Both questions under one hold of the chunk: pages are added all the time.
    let (kept, end) = chunks.get(&index).map_or((false, None), |chunk| {
        let pages = chunk.pages.read();
        let kept = pages.has(slot);
        (kept, pages.next(slot, !kept))
    });
    let end = match end {
        Some(end) => Some(index * CHUNK_PAGES + end as u64),
        None if kept => Some((index + 1) * CHUNK_PAGES),
        // A chunk has at least one page, so the first one that follows decides.
        None => chunks
            .range(index + 1..)
            .next()
            .and_then(|(&index, chunk)| Some(index * CHUNK_PAGES + chunk.pages.read().next(0, true)? as u64)),
    };
    (kept, end)
}

/// Takes pages out of the table, and chunks that are left without any; tells how many pages.
fn remove(chunks: &mut Table, pages: Range<u64>) -> u64 {
    if pages.is_empty() {
        return 0;
    }
    let mut removed = 0;
    let emptied = chunks.extract_if(chunks_of(pages.clone()), |&index, chunk| {
        let left = chunk.pages.get_mut();
        removed += left.remove(slots_in(index, &pages));
        left.is_empty()
    });
    emptied.for_each(drop);
    removed
}
