//! Taking a range out of a file, or putting a hole in: pages move, bytes do not.

use std::sync::atomic::Ordering;

use undercroft_vfs::{Error, Result};

use super::chunk::{Chunk, Page, Pages};
use super::span::{CHUNK_PAGES, PAGE_BYTES, pages_in};
use super::{Contents, Table, remove};
use crate::budget::Budget;

impl Contents {
    /// Takes a range out and moves what follows up.
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for a range that does not begin and end at a page.
    pub(crate) fn collapse(&self, offset: u64, len: u64, budget: &Budget) -> Result<()> {
        check_aligned(offset, len)?;
        let Some(body) = self.body.get() else {
            return Ok(());
        };
        let gone = pages_in(&(offset..offset.saturating_add(len)));
        let mut chunks = body.chunks.write();
        let freed = remove(&mut chunks, gone.clone());
        move_pages(&mut chunks, gone.end, |page| page - (gone.end - gone.start));
        drop(chunks);
        body.pages.fetch_sub(freed, Ordering::Relaxed);
        budget.give(freed);
        Ok(())
    }

    /// Puts a hole in before what lies at `offset`, which moves down with all that follows.
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for a range that does not begin and end at a page;
    /// [`FileTooLarge`](Error::FileTooLarge) when the last page has nowhere to go. Nothing has changed then.
    pub(crate) fn insert(&self, offset: u64, len: u64) -> Result<()> {
        check_aligned(offset, len)?;
        let Some(body) = self.body.get() else {
            return Ok(());
        };
        let (first, by) = (offset / PAGE_BYTES, len / PAGE_BYTES);
        let mut chunks = body.chunks.write();
        // Up to the end of its chunk: a file that far out may be told that it is too large a little early.
        let end = chunks.last_key_value().map_or(0, |(&index, _)| (index + 1) * CHUNK_PAGES);
        if end > first && end + by > u64::MAX / PAGE_BYTES {
            return Err(Error::FileTooLarge);
        }
        move_pages(&mut chunks, first, |page| page + by);
        Ok(())
    }
}

fn check_aligned(offset: u64, len: u64) -> Result<()> {
    if offset.is_multiple_of(PAGE_BYTES) && len.is_multiple_of(PAGE_BYTES) {
        Ok(())
    } else {
        Err(Error::InvalidArgument("the range must begin and end at a multiple of 4096 bytes"))
    }
}

/// Moves the pages from `first` on, keeping their order.
fn move_pages(chunks: &mut Table, first: u64, to: impl Fn(u64) -> u64) {
    for (index, chunk) in chunks.split_off(&(first / CHUNK_PAGES)) {
        for (slot, page) in chunk.pages.into_inner().into_pages() {
            let number = index * CHUNK_PAGES + slot as u64;
            put(chunks, if number < first { number } else { to(number) }, page);
        }
    }
}

fn put(chunks: &mut Table, number: u64, page: Page) {
    let chunk = chunks.entry(number / CHUNK_PAGES).or_insert_with(|| Chunk::new(Pages::default()));
    chunk.pages.get_mut().put((number % CHUNK_PAGES) as usize, page);
}
