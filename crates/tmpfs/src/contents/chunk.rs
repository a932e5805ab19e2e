//! Neighbouring pages behind one lock.

use std::ops::Range;

use undercroft_sync::{RwLock, order};
use undercroft_vfs::{Error, Result};

use super::span::{CHUNK_PAGES, PAGE_BYTES};
use crate::budget::Budget;

const PAGE: usize = PAGE_BYTES as usize;

/// One page of bytes.
pub(super) type Page = Box<[u8; PAGE]>;

/// A page of zeroes.
pub(super) fn zeroed_page() -> Page {
    Box::new([0; PAGE])
}

/// A chunk: its lock, of class `pages`, and its pages.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) pages: RwLock<Pages>,
}

impl Chunk {
    pub(super) fn new(pages: Pages) -> Box<Self> {
        Box::new(Self { pages: RwLock::new(&order::PAGES, pages) })
    }
}

/// Pages by their place in the chunk. As long as the last page that was ever there needs it to be, so that a small
/// file does not pay for places it does not use.
#[derive(Debug, Default)]
pub(super) struct Pages(Vec<Option<Page>>);

impl Pages {
    /// Whether there is a page at a place.
    pub(super) fn has(&self, slot: usize) -> bool {
        self.get(slot).is_some()
    }

    /// Whether there is none at all.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// How many there are in `slots`.
    pub(super) fn count(&self, slots: Range<usize>) -> u64 {
        slots.filter(|&slot| self.has(slot)).count() as u64
    }

    /// The first place from `slot` on that has a page, or that has none.
    pub(super) fn next(&self, slot: usize, wanted: bool) -> Option<usize> {
        (slot..CHUNK_PAGES as usize).find(|&slot| self.has(slot) == wanted)
    }

    /// Puts a page where there is none.
    pub(super) fn put(&mut self, slot: usize, page: Page) {
        if slot >= self.0.len() {
            self.0.resize_with(slot + 1, || None);
        }
        let old = self.0[slot].replace(page);
        debug_assert!(old.is_none(), "a page upon a page at place {slot}");
    }

    /// Makes pages where there are none in `slots`, in order, as long as the budget has any. Tells how many places
    /// from the first on have one now, and how many pages were made.
    pub(super) fn fill(&mut self, slots: Range<usize>, budget: &Budget) -> (usize, u64) {
        let missing = slots.len() as u64 - self.count(slots.clone());
        let taken = budget.take(missing);
        let mut added = 0;
        for slot in slots.clone() {
            if self.has(slot) {
                continue;
            }
            if !taken && !budget.take(1) {
                return (slot - slots.start, added);
            }
            self.put(slot, zeroed_page());
            added += 1;
        }
        (slots.len(), added)
    }

    /// Takes pages out and tells how many.
    pub(super) fn remove(&mut self, slots: Range<usize>) -> u64 {
        let end = slots.end.min(self.0.len());
        let slots = self.0.get_mut(slots.start..end).unwrap_or_default();
        slots.iter_mut().filter_map(Option::take).count() as u64
    }

    /// The pages with their places.
    pub(super) fn into_pages(self) -> impl Iterator<Item = (usize, Page)> {
        self.0.into_iter().enumerate().filter_map(|(slot, page)| Some((slot, page?)))
    }

    /// Fills `buf` from a byte of the chunk on.
    pub(super) fn read(&self, start: usize, buf: &mut [u8]) {
        let mut rest = buf;
        for (slot, bytes) in pieces(start..start + rest.len()) {
            let (piece, after) = rest.split_at_mut(bytes.len());
            match self.get(slot) {
                Some(page) => piece.copy_from_slice(&page[bytes]),
                None => piece.fill(0),
            }
            rest = after;
        }
    }

    /// Stores `data` from a byte of the chunk on, up to where there is no page.
    pub(super) fn write(&mut self, start: usize, data: &[u8]) -> Result<()> {
        let mut rest = data;
        for (slot, bytes) in pieces(start..start + data.len()) {
            let (piece, after) = rest.split_at(bytes.len());
            let page = self.get_mut(slot).ok_or(Error::NoSpace)?;
            page[bytes].copy_from_slice(piece);
            rest = after;
        }
        Ok(())
    }

    /// Clears what there is of a range of the chunk's bytes.
    pub(super) fn zero(&mut self, bytes: Range<usize>) {
        for (slot, bytes) in pieces(bytes) {
            if let Some(page) = self.get_mut(slot) {
                page[bytes].fill(0);
            }
        }
    }

    fn get(&self, slot: usize) -> Option<&Page> {
        self.0.get(slot)?.as_ref()
    }

    fn get_mut(&mut self, slot: usize) -> Option<&mut Page> {
        self.0.get_mut(slot)?.as_mut()
    }
}

/// Cuts a range of a chunk's bytes at its pages: places, and the bytes within each.
fn pieces(bytes: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
    (bytes.start / PAGE..bytes.end.div_ceil(PAGE)).map(move |slot| {
        let base = slot * PAGE;
        (slot, bytes.start.saturating_sub(base)..(bytes.end - base).min(PAGE))
    })
}
