//! A directory of one block, with its hash index at the end.
//!
//! When a name is entered, stale entries of the index go, and the space that they took is unused again: an index of a
//! block is small, and is rewritten each time.

use std::sync::Arc;

use undercroft_vfs::{Error, Result};

use super::super::data::{DataBlock, Item as DataItem, header_bytes};
use super::super::entry::entry_bytes;
use super::super::short::dots;
use super::data::{New, Space, note_best, put_entry, put_space, release, spaces, spaces_beside};
use super::edit::Hit;
use super::plan::Change;
use super::raw::{self, ENTRY_BYTES, Item, put32};
use super::short::{Short, ShortEntry};
use crate::error::Verdict;
use crate::format::block_header::HeaderKind;
use crate::format::dinode::ForkFormat;
use crate::inode::Fork;
use crate::transaction::Seal;

/// Ends the block: how many entries the index has, and how many are stale.
const TAIL_BYTES: usize = 8;

/// The code of a directory.
const DIRECTORY: u8 = 2;

/// Writes the index at the end of a block; returns where it begins.
fn put_index(bytes: &mut [u8], items: &[Item]) -> usize {
    let tail = bytes.len() - TAIL_BYTES;
    let start = tail - items.len() * ENTRY_BYTES;
    for (number, item) in items.iter().enumerate() {
        put32(bytes, start + number * ENTRY_BYTES, item.0);
        put32(bytes, start + number * ENTRY_BYTES + 4, item.1);
    }
    put32(bytes, tail, items.len() as u32);
    put32(bytes, tail + 4, items.iter().filter(|item| item.1 == 0).count() as u32);
    start
}

/// Moves the end of the unused spaces from `end` to `to`: the last space grows, or shrinks. `false` where what is before `end` is
/// used.
fn move_end(spaces: &mut Vec<Space>, end: usize, to: usize) -> bool {
    let last = spaces.last_mut().filter(|last| last.at + last.len == end);
    if to >= end {
        match last {
            Some(last) => last.len += to - end,
            None if to > end => spaces.push(Space { at: end, len: to - end }),
            None => {}
        }
        return true;
    }
    let Some(last) = last.filter(|last| last.len >= end - to) else { return false };
    last.len -= end - to;
    if last.len == 0 {
        spaces.pop();
    }
    true
}

/// Makes room at the end of a block of names for an index of so many entries. `false` where there is none.
pub(super) fn put_index_into(block_bytes: usize, spaces: &mut Vec<Space>, items: usize) -> bool {
    let index = TAIL_BYTES + items * ENTRY_BYTES;
    index < block_bytes && move_end(spaces, block_bytes, block_bytes - index)
}

/// Writes the spaces and the index of a block.
pub(super) fn finish(bytes: &mut [u8], spaces: &[Space], items: &[Item]) {
    for &space in spaces {
        put_space(bytes, space);
    }
    note_best(bytes, spaces);
    put_index(bytes, items);
}

impl Change<'_> {
    /// The entries of the only block's index.
    pub(super) fn block_items(&mut self) -> Result<Vec<Item>> {
        Ok(self.block_parts()?.0)
    }

    /// The only block's index, its unused spaces, and where its names end.
    fn block_parts(&mut self) -> Result<(Vec<Item>, Vec<Space>, usize)> {
        self.load(0, HeaderKind::DirBlock)?;
        let parts = || -> Verdict<_> {
            let data = DataBlock::validate(self.bytes(0), &self.layout, 0, true)?;
            let index = data.index.unwrap_or(&[]).iter();
            let items =
                index.map(|item| (item.hash(), item.position().map_or(0, |position| position.0 as u32)));
            Ok((items.collect(), spaces(&data)?, data.end()))
        };
        let parts = parts();
        self.checked(0, parts)
    }

    /// Makes a block of a directory in its inode.
    pub(super) fn short_to_block(&mut self, short: &Short) -> Result<()> {
        self.inode.data = Fork::Extents(Arc::from([]));
        self.inode.core.data_format = ForkFormat::Extents;
        self.inode.core.data_extents = 0;
        self.inode_changes = true;
        self.set_data_blocks(1);
        let (layout, ino) = (self.layout, self.inode.ino.0);
        let mut items: Vec<Item> = Vec::with_capacity(short.entries.len() + 2);
        let block_bytes = self.dir_block_bytes();
        let end = block_bytes - TAIL_BYTES - (short.entries.len() + 2) * ENTRY_BYTES;
        let [dot, dot_dot] = dots(&layout).map(|position| position.split(&layout).1);
        let own = [
            (dot, New { name: b".", ino, kind: DIRECTORY }),
            (dot_dot, New { name: b"..", ino: short.parent, kind: DIRECTORY }),
        ];
        let entries = short
            .entries
            .iter()
            .map(|entry| (entry.at, New { name: &entry.name, ino: entry.ino, kind: entry.kind }));
        let entries: Vec<_> = own.into_iter().chain(entries).collect();
        for (at, new) in &entries {
            items.push((self.layout.hash(new.name), self.address(0, *at)));
        }
        items.sort_unstable();
        let mut from = header_bytes(&layout);
        let mut free = Vec::new();
        let last = entries.last().map_or(from, |(at, new)| at + entry_bytes(&layout, new.name.len()));
        if last > end {
            return Err(self.corrupt(None, "has a name at a place past the end of a block"));
        }
        let bytes = self.add_block(0, Seal::DirBlock)?;
        bytes[..4].copy_from_slice(raw::MAGIC_BLOCK);
        for (at, new) in &entries {
            if *at > from {
                free.push(Space { at: from, len: at - from });
            }
            put_entry(bytes, &layout, *at, new);
            from = at + entry_bytes(&layout, new.name.len());
        }
        if end > from {
            free.push(Space { at: from, len: end - from });
        }
        finish(bytes, &free, &items);
        Ok(())
    }

    /// Adds a name to the only block. `false`, with nothing changed, when it has no room.
    pub(super) fn block_add(&mut self, new: &New<'_>, hash: u32) -> Result<bool> {
        let (mut items, mut free, end) = self.block_parts()?;
        items.retain(|item| item.1 != 0);
        let tail = self.dir_block_bytes() - TAIL_BYTES;
        if tail < (items.len() + 1) * ENTRY_BYTES {
            return Ok(false);
        }
        if !move_end(&mut free, end, tail - (items.len() + 1) * ENTRY_BYTES) {
            return Ok(false);
        }
        let len = self.entry_bytes(new.name.len());
        // The first of the largest.
        let Some(place) = (0..free.len()).rev().max_by_key(|&place| free[place].len) else {
            return Ok(false);
        };
        let Space { at, len: space } = free[place];
        if space < len {
            return Ok(false);
        }
        free[place] = Space { at: at + len, len: space - len };
        free.retain(|space| space.len > 0);
        let item = (hash, self.address(0, at));
        items.insert(items.partition_point(|before| before.0 < hash), item);
        let layout = self.layout;
        let bytes = self.edit(0, Seal::DirBlock);
        put_entry(bytes, &layout, at, new);
        finish(bytes, &free, &items);
        Ok(true)
    }

    /// Removes a name from the only block. The directory returns to its inode if it fits.
    pub(super) fn block_remove(&mut self, hit: &Hit) -> Result<()> {
        let (mut items, ..) = self.block_parts()?;
        let free = DataBlock::validate(self.bytes(0), &self.layout, 0, true);
        let mut free = self.checked(0, free.and_then(|data| spaces_beside(&data, hit.at)))?;
        let len = self.entry_bytes(hit.name_bytes);
        let Some(item) = items.get_mut(hit.item) else { return Err(Error::NotFound) };
        item.1 = 0;
        let bytes = self.edit(0, Seal::DirBlock);
        release(bytes, &mut free, hit.at, len);
        put_index(bytes, &items);
        self.block_to_short()
    }

    /// Moves the names of the only block into the inode, if they fit.
    pub(super) fn block_to_short(&mut self) -> Result<()> {
        if self.keeps_blocks {
            return Ok(());
        }
        self.load(0, HeaderKind::DirBlock)?;
        let room = self.inode.core.data_fork.len();
        let layout = self.layout;
        let read = || -> Verdict<Option<Short>> {
            let data = DataBlock::validate(self.bytes(0), &layout, 0, true)?;
            let mut short = Short { parent: 0, entries: Vec::new() };
            let mut bytes = 0;
            for item in data.items() {
                let DataItem::Entry(entry) = item? else { continue };
                match entry.name {
                    b"." => {}
                    b".." => short.parent = entry.ino,
                    name => {
                        bytes += name.len();
                        // More than any inode has room for.
                        if bytes > room {
                            return Ok(None);
                        }
                        let at = entry.position.split(&layout).1;
                        let entry = ShortEntry { name: name.to_vec(), ino: entry.ino, kind: entry.kind, at };
                        short.entries.push(entry);
                    }
                }
            }
            Ok(Some(short))
        };
        let short = read();
        if let Some(short) = self.checked(0, short)?
            && self.fits_inode(&short)
        {
            self.remove_block(0);
            self.set_short(&short);
            self.inode.core.data_format = ForkFormat::Local;
        }
        Ok(())
    }

    /// Gives the index of the only block a leaf of its own.
    pub(super) fn block_to_leaf(&mut self) -> Result<()> {
        let (items, mut free, end) = self.block_parts()?;
        let items: Vec<Item> = items.into_iter().filter(|item| item.1 != 0).collect();
        move_end(&mut free, end, self.dir_block_bytes());
        let bytes = self.edit(0, Seal::DirData);
        bytes[..4].copy_from_slice(raw::MAGIC_DATA);
        for &space in &free {
            put_space(bytes, space);
        }
        note_best(bytes, &free);
        let best = super::data::best(bytes);
        self.make_leaf(&items, &[best])
    }
}
