//! A name added to a directory of one block, or removed from it.
//!
//! A stale entry of the index is used again, the nearest one; without any the index grows downwards, into the last unused
//! space.

use undercroft_vfs::{Error, FileType, Ino, Result};

use super::super::super::data::DataBlock;
use super::super::super::short::ShortDirectory;
use super::super::data::{New, Space, note_best, put_entry, put_space, spaces};
use super::super::raw;
use super::super::raw::{ENTRY_BYTES, put32};
use super::{Found, GiveNumber, Quick, Release, Touch};
use crate::dir::code_of;
use crate::error::Verdict;
use crate::format::block_header::HeaderKind;
use crate::inode::Fork;
use crate::transaction::Seal;

/// Ends the block: how many entries the index has, and how many are stale.
const TAIL_BYTES: usize = 8;

/// Where a name and its entry of the index go.
struct Entering {
    name_at: usize,
    /// What is left of the space that the name goes into, and the last space, which the index may have shortened.
    changed: [Space; 2],
    /// All spaces afterwards.
    free: Vec<Space>,
    /// The first entry of the index with the hash or a higher one.
    place: usize,
    /// The stale entry that is used again.
    stale: Option<usize>,
}

impl Quick<'_> {
    pub(super) fn add_single(
        &self,
        fork: &Fork,
        kind: FileType,
        number: GiveNumber<'_>,
        touch: Touch<'_>,
    ) -> Result<bool> {
        let (home, block) = self.block(fork, 0, HeaderKind::DirBlock)?;
        let hash = self.layout.hash(self.name);
        let planned = {
            let guard = block.lock();
            self.plan_entering(guard.buffer(), hash)
        };
        let entering = match self.validated(home, planned)? {
            Ok(Some(entering)) => entering,
            Ok(None) => return Ok(false),
            Err(exists) => return Err(exists),
        };
        let new = New { name: self.name, ino: number()?.0, kind: code_of(kind) };
        let layout = &self.layout;
        self.handle.change_block(&block, Seal::DirBlock, |bytes| {
            put_entry(bytes, layout, entering.name_at, &new);
            for space in entering.changed {
                put_space(bytes, space);
            }
            note_best(bytes, &entering.free);
            let address = (entering.name_at / 8) as u32;
            enter(bytes, (hash, address), entering.place, entering.stale);
        });
        self.finish(touch)?;
        Ok(true)
    }

    /// Where the name goes; `Exists` if it is there.
    fn plan_entering(&self, bytes: &[u8], hash: u32) -> Verdict<Result<Option<Entering>>> {
        let data = DataBlock::validate(bytes, &self.layout, 0, true)?;
        if self.find_single(&data, hash)?.is_some() {
            return Ok(Err(Error::Exists));
        }
        let index = data.index.unwrap_or(&[]);
        let place = index.partition_point(|item| item.hash() < hash);
        let is_stale = |number: &usize| index[*number].position().is_none();
        let below = (0..place).rev().find(is_stale);
        let above = (place..index.len()).find(is_stale);
        let stale = match (below, above) {
            (Some(below), Some(above)) if place - below > above - place => Some(above),
            (Some(below), _) => Some(below),
            (None, above) => above,
        };
        let mut free = spaces(&data)?;
        let mut changed = [Space { at: 0, len: 0 }; 2];
        if stale.is_none() {
            let last = free.last_mut().filter(|last| last.at + last.len == data.end());
            let Some(last) = last.filter(|last| last.len >= ENTRY_BYTES) else { return Ok(Ok(None)) };
            last.len -= ENTRY_BYTES;
            changed[0] = *last;
        }
        // The first of the largest.
        let chosen = (0..free.len()).rev().max_by_key(|&number| free[number].len);
        let len = self.entry_bytes();
        let Some(chosen) = chosen.filter(|&chosen| free[chosen].len >= len) else { return Ok(Ok(None)) };
        let Space { at: name_at, len: space } = free[chosen];
        free[chosen] = Space { at: name_at + len, len: space - len };
        if changed[0].at == name_at {
            changed[0].len = 0;
        }
        changed[1] = free[chosen];
        free.retain(|space| space.len > 0);
        Ok(Ok(Some(Entering { name_at, changed, free, place, stale })))
    }

    pub(super) fn remove_single(&self, fork: &Fork, ino: Ino, touch: Touch<'_>) -> Result<bool> {
        let (home, block) = self.block(fork, 0, HeaderKind::DirBlock)?;
        let room = self.dir.fields.read().core.data_fork.len();
        let hash = self.layout.hash(self.name);
        let planned = {
            let guard = block.lock();
            let plan = || -> Verdict<_> {
                let data = DataBlock::validate(guard.buffer(), &self.layout, 0, true)?;
                let hit = self.find_single(&data, hash)?.filter(|(_, found)| found.ino == ino.0);
                let Some((item, found)) = hit else { return Ok(None) };
                let index_bytes = size_of_val(data.index.unwrap_or(&[]));
                Ok(Some((item, index_bytes, Release::plan(&data, found.at)?)))
            };
            plan()
        };
        let Some((item, index_bytes, release)) = self.validated(home, planned)? else {
            return Err(Error::NotFound);
        };
        // It may fit the inode then, where `.` and `..` take nothing.
        let (names, names_bytes) =
            (release.names.saturating_sub(2), release.names_bytes.saturating_sub(b"...".len()));
        let least = ShortDirectory::least_bytes(&self.layout, names, names_bytes);
        if least <= room {
            return Ok(false);
        }
        self.handle.change_block(&block, Seal::DirBlock, |bytes| {
            let tail = bytes.len() - TAIL_BYTES;
            put32(bytes, tail - index_bytes + item * ENTRY_BYTES + 4, 0);
            let stale = raw::get32(bytes, tail + 4);
            put32(bytes, tail + 4, stale + 1);
            release.apply(bytes);
        });
        self.finish(touch)?;
        Ok(true)
    }

    /// The name, and the number of its entry in the index.
    fn find_single(&self, data: &DataBlock<'_>, hash: u32) -> Verdict<Option<(usize, Found)>> {
        let index = data.index.unwrap_or(&[]);
        let first = index.partition_point(|item| item.hash() < hash);
        let mut folded = None;
        for (number, item) in index.iter().enumerate().skip(first).take_while(|(_, item)| item.hash() == hash)
        {
            let Some(position) = item.position() else { continue };
            let (block, at) = position.split(&self.layout);
            if block != 0 {
                return Err(format!("its index leads to block {block}").into());
            }
            match self.compare(data, at)? {
                Some(found) if found.is_equal => return Ok(Some((number, found))),
                Some(found) if folded.is_none() => folded = Some((number, found)),
                _ => {}
            }
        }
        Ok(folded)
    }
}

/// Enters an entry into the index at the end of a block: a stale one is used again, or the index grows downwards.
fn enter(bytes: &mut [u8], item: raw::Item, place: usize, stale: Option<usize>) {
    let tail = bytes.len() - TAIL_BYTES;
    let (count, stale_count) = (raw::get32(bytes, tail), raw::get32(bytes, tail + 4));
    let mut start = tail - count as usize * ENTRY_BYTES;
    let at = |start: usize, number: usize| start + number * ENTRY_BYTES;
    let used = match stale {
        None => {
            // One entry more, and those below the place move down.
            start -= ENTRY_BYTES;
            bytes.copy_within(at(start, 1)..at(start, place + 1), start);
            put32(bytes, tail, count + 1);
            place
        }
        Some(stale) => {
            put32(bytes, tail + 4, stale_count - 1);
            if stale < place {
                bytes.copy_within(at(start, stale + 1)..at(start, place), at(start, stale));
                place - 1
            } else {
                bytes.copy_within(at(start, place)..at(start, stale), at(start, place + 1));
                place
            }
        }
    };
    put32(bytes, at(start, used), item.0);
    put32(bytes, at(start, used) + 4, item.1);
}
