//! A directory of several blocks of names with one leaf, which has the hash index and, at its end, the largest unused
//! space of each block of names.

use undercroft_vfs::{Error, Result};

use super::super::data::{DataBlock, header_bytes};
use super::data::{self, New, enter, make_empty, release, spaces, spaces_beside};
use super::edit::Hit;
use super::plan::Change;
use super::raw::{self, ENTRIES_AT, ENTRY_BYTES, Item, MAGIC_LEAF, MAGIC_LEAF_ONE, put16, put32};
use crate::format::block_header::HeaderKind;
use crate::transaction::Seal;

/// Stands for a block of names that is not there.
pub(super) const NO_BLOCK: u16 = 0xffff;

/// Ends the leaf: how many blocks of names it knows.
const TAIL_BYTES: usize = 4;

/// What the leaf has at its end.
fn bests(bytes: &[u8]) -> Vec<u16> {
    best_bytes(bytes).chunks_exact(2).map(|best| u16::from_be_bytes([best[0], best[1]])).collect()
}

/// The same as it lies there.
pub(super) fn best_bytes(bytes: &[u8]) -> &[u8] {
    let tail = bytes.len() - TAIL_BYTES;
    let count = raw::get32(bytes, tail) as usize;
    &bytes[tail.saturating_sub(count.saturating_mul(2))..tail]
}

/// The largest unused space of a block of names; [`NO_BLOCK`] for one that the leaf does not know.
pub(super) fn best(bytes: &[u8], block: u32) -> u16 {
    let at = block as usize * 2;
    best_bytes(bytes).get(at..at + 2).map_or(NO_BLOCK, |best| u16::from_be_bytes([best[0], best[1]]))
}

/// Changes it, for a block that the leaf knows.
pub(super) fn set_best(bytes: &mut [u8], block: u32, best: u16) {
    let tail = bytes.len() - TAIL_BYTES;
    let start = tail - best_bytes(bytes).len();
    put16(bytes, start + block as usize * 2, usize::from(best));
}

fn put_bests(bytes: &mut [u8], bests: &[u16]) {
    let tail = bytes.len() - TAIL_BYTES;
    put32(bytes, tail, bests.len() as u32);
    let start = tail - bests.len() * 2;
    for (number, &best) in bests.iter().enumerate() {
        put16(bytes, start + number * 2, usize::from(best));
    }
}

/// How many entries a leaf has room for beside so many blocks of names.
pub(super) fn room(block_bytes: usize, bests: usize) -> usize {
    block_bytes.saturating_sub(ENTRIES_AT + TAIL_BYTES + bests * 2) / ENTRY_BYTES
}

impl Change<'_> {
    /// Adds the one leaf, with entries of which none is stale.
    pub(super) fn make_leaf(&mut self, items: &[Item], bests: &[u16]) -> Result<()> {
        let bytes = self.add_block(self.layout.index_start(), Seal::DirLeaf1)?;
        put16(bytes, 8, usize::from(MAGIC_LEAF_ONE));
        raw::set_leaf_items(bytes, items);
        put_bests(bytes, bests);
        Ok(())
    }

    /// Adds a name. `false`, with nothing changed, when the leaf has no room.
    pub(super) fn leaf_add(&mut self, new: &New<'_>, hash: u32) -> Result<bool> {
        let (root, len, block_bytes) =
            (self.layout.index_start(), self.entry_bytes(new.name.len()), self.dir_block_bytes());
        let mut bests = bests(self.bytes(root));
        let place = bests.iter().position(|&best| best != NO_BLOCK && usize::from(best) >= len);
        let hole = || bests.iter().position(|&best| best == NO_BLOCK).unwrap_or(bests.len());
        let (number, is_new) = place.map_or_else(|| (hole(), true), |place| (place, false));
        if number == bests.len() {
            bests.push(NO_BLOCK);
        }
        let bytes = self.bytes(root);
        let (count, stale) = (raw::count(bytes), raw::stale(bytes));
        let room = room(block_bytes, bests.len());
        let compacts = count + usize::from(stale == 0) > room;
        if compacts && count - stale + 1 > room {
            return Ok(false);
        }
        let block = number as u32;
        if is_new {
            self.add_data_block(block)?;
        }
        let at = self.enter(block, new)?;
        bests[number] = data::best(self.bytes(self.layout.names_at(block)));
        let address = self.address(block, at);
        let bytes = self.edit(root, Seal::DirLeaf1);
        if compacts {
            let items = raw::live_items(bytes);
            raw::set_leaf_items(bytes, &items);
        }
        let entered = raw::insert(bytes, (hash, address), room);
        put_bests(bytes, &bests);
        if entered { Ok(true) } else { Err(self.corrupt(self.home(root), "counts its stale entries wrong")) }
    }

    /// Adds a block of names; the directory ends behind it if it did not before.
    pub(super) fn add_data_block(&mut self, block: u32) -> Result<()> {
        if block >= self.layout.names_end() {
            return Err(Error::NoSpace);
        }
        let layout = self.layout;
        let bytes = self.add_block(self.layout.names_at(block), Seal::DirData)?;
        bytes[..4].copy_from_slice(raw::MAGIC_DATA);
        make_empty(bytes, &layout);
        if block >= self.data_blocks() {
            self.set_data_blocks(block + 1);
        }
        Ok(())
    }

    /// Enters a name into a block of names that has room for it; returns where.
    pub(super) fn enter(&mut self, block: u32, new: &New<'_>) -> Result<usize> {
        let from = self.layout.names_at(block);
        self.load(from, HeaderKind::DirBlock)?;
        let (layout, home) = (self.layout, self.home(from));
        let entered = enter(self.edit(from, Seal::DirData), &layout, u64::from(block), new);
        self.validated(home, entered)
    }

    /// Makes unused the bytes of a name in a block of names, which is removed if it was the last one. Returns the largest
    /// unused space that the block has now.
    pub(super) fn release(&mut self, hit: &Hit) -> Result<u16> {
        let (block, layout) = (hit.block, self.layout);
        let from = self.layout.names_at(block);
        self.load(from, HeaderKind::DirBlock)?;
        let found = DataBlock::validate(self.bytes(from), &layout, u64::from(block), false);
        let mut found = self.checked(from, found.and_then(|data| spaces_beside(&data, hit.at)))?;
        let len = self.entry_bytes(hit.name_bytes);
        let bytes = self.edit(from, Seal::DirData);
        release(bytes, &mut found, hit.at, len);
        let best = data::best(bytes);
        if block == 0
            || self.keeps_blocks
            || usize::from(best) != self.dir_block_bytes() - header_bytes(&layout)
        {
            return Ok(best);
        }
        self.remove_block(from);
        if block + 1 >= self.data_blocks() {
            let end = self.end_before(block)?;
            self.set_data_blocks(end);
        }
        Ok(NO_BLOCK)
    }

    /// Removes a name.
    pub(super) fn leaf_remove(&mut self, hit: &Hit) -> Result<()> {
        let root = self.layout.index_start();
        let best = self.release(hit)?;
        let mut bests = bests(self.bytes(root));
        let Some(slot) = bests.get_mut(hit.block as usize) else {
            return Err(self.corrupt(self.home(root), format!("does not know of block {}", hit.block)));
        };
        *slot = best;
        while bests.last() == Some(&NO_BLOCK) {
            bests.pop();
        }
        let bytes = self.edit(root, Seal::DirLeaf1);
        raw::make_stale(bytes, hit.item);
        put_bests(bytes, &bests);
        self.leaf_to_block()
    }

    /// Moves the index to the end of the first block of names, if that is the only one and has room for it.
    pub(super) fn leaf_to_block(&mut self) -> Result<()> {
        if self.keeps_blocks || self.data_blocks() != 1 {
            return Ok(());
        }
        let (root, layout) = (self.layout.index_start(), self.layout);
        let items = raw::live_items(self.bytes(root));
        self.load(0, HeaderKind::DirBlock)?;
        let free = DataBlock::validate(self.bytes(0), &layout, 0, false).and_then(|data| spaces(&data));
        let mut free = self.checked(0, free)?;
        if !super::block::put_index_into(self.dir_block_bytes(), &mut free, items.len()) {
            return Ok(());
        }
        self.remove_block(root);
        let bytes = self.edit(0, Seal::DirBlock);
        bytes[..4].copy_from_slice(raw::MAGIC_BLOCK);
        super::block::finish(bytes, &free, &items);
        self.block_to_short()
    }

    /// Makes the leaf one of a tree, and moves what it has at its end to the free index.
    pub(super) fn leaf_to_tree(&mut self) -> Result<()> {
        let (root, block_bytes) = (self.layout.index_start(), self.dir_block_bytes());
        let bests = bests(self.bytes(root));
        let bytes = self.edit(root, Seal::DirLeafN);
        put16(bytes, 8, usize::from(MAGIC_LEAF));
        bytes[block_bytes - TAIL_BYTES - bests.len() * 2..].fill(0);
        self.make_free_index(&bests)
    }

    /// Makes the only leaf of a tree the one leaf again, if it has room for the free index, which is one block.
    pub(super) fn tree_to_leaf(&mut self, bests: &[u16], free_block: u32) -> Result<()> {
        let (root, block_bytes) = (self.layout.index_start(), self.dir_block_bytes());
        let items = raw::live_items(self.bytes(root));
        if items.len() > room(block_bytes, bests.len()) {
            return Ok(());
        }
        self.remove_block(free_block);
        let bytes = self.edit(root, Seal::DirLeaf1);
        put16(bytes, 8, usize::from(MAGIC_LEAF_ONE));
        raw::set_leaf_items(bytes, &items);
        put_bests(bytes, bests);
        self.leaf_to_block()
    }
}
