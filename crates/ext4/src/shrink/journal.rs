//! Moving the journal before the new end.
//!
//! The journal is in use while it moves. The new place is written first, as a log without transactions. One transaction, in
//! the old log, then changes the map of the journal's inode. When it is written back, the block with that inode is written
//! after all others: until then a recovery finds the old log, and from then on there is nothing to recover. The filesystem is
//! closed afterwards, and opened again with the new log.

use std::collections::BTreeSet;

use undercroft_vfs::{Error, Result};

use super::Mover;
use super::blocks::or_abort;
use crate::alloc::{ALLOCATE_CREDITS, Reservation};
use crate::inode::{self, Inode, Location, NamedBy};
use crate::jbd2::{self, LogBlock, LogLocation, LogRun};
use crate::map::{self, Progress, Removed};
use crate::numbers::{FileBlock, FsBlock};
use crate::open::locate_log;
use crate::superblock;
use crate::transaction::Handle;

/// Room that a change of the map wants to see before each step, and the inode, the superblock and nodes above.
const MARGIN: u32 = 64;
/// Pieces that the journal may be in at its new place.
const PIECES_MAX: usize = 512;

impl Mover<'_> {
    /// Moves the whole journal. The filesystem takes no other changes afterwards before it is opened again.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace), [`Unsupported`](Error::Unsupported): nothing has changed. Corruption; I/O failure.
    pub(super) fn move_journal(&mut self, number: u32) -> Result<()> {
        let (volume, transactions) = (self.volume, &self.writer.transactions);
        let inode = Inode::read_own(volume, number, NamedBy::SuperblockAsJournal)?;
        let location = inode::locate(volume, number)?;
        let blocks = inode.size_bytes >> volume.superblock().geometry().block_bits();
        let places = self.places_for(blocks)?;
        let old = map::collect_whole(volume, &inode, blocks)?;
        transactions.write_everything_back(volume)?;
        self.write_empty_log(&places)?;
        volume.flush()?;
        let credits = self.journal_credits(&inode, &old, &places)?;
        if credits > (transactions.room() * 2).min(volume.items_written_back_at_once()) {
            let what = format!("moving a journal that is in {} pieces; use resize2fs", old.len());
            return Err(Error::Unsupported(what.into()));
        }
        self.writer
            .written_back_last
            .set(location.block)
            .map_err(|_| Error::Unsupported("moving the journal twice".into()))?;
        {
            let handle = volume.start(credits)?;
            or_abort(&handle, change_map(&handle, inode, location, &old, places))?;
        }
        self.note(blocks);
        transactions.commit_everything(volume)
    }

    /// Blocks that changing the map changes at most: bitmaps and descriptors, blocks of the old map and of the new one.
    fn journal_credits(
        &self,
        inode: &Inode,
        old: &[(FileBlock, FsBlock, u64)],
        places: &[Reservation],
    ) -> Result<u32> {
        let geometry = self.volume.superblock().geometry();
        let per_group = u64::from(geometry.blocks_per_group());
        let group_of = |block: u64| (block - u64::from(geometry.first_data_block())) / per_group;
        let pieces = old.iter().map(|&(_, first, count)| (first, count));
        let new = places.iter().map(|place| (place.first(), place.len()));
        let groups: BTreeSet<u64> = pieces
            .chain(new)
            .flat_map(|(first, count)| group_of(first.0)..=group_of(first.0 + count - 1))
            .collect();
        let mut nodes = 0;
        map::for_each_node(self.volume, inode, &mut |_| nodes += 1)?;
        let blocks = places.iter().map(Reservation::len).sum::<u64>();
        let in_node = u64::from(geometry.block_bytes() / if map::has_extents(inode) { 24 } else { 4 });
        let entries = if map::has_extents(inode) { places.len() as u64 } else { blocks };
        Ok(groups.len() as u32 * ALLOCATE_CREDITS + 3 * (nodes + (entries / in_node) as u32) + MARGIN)
    }

    fn places_for(&self, blocks: u64) -> Result<Vec<Reservation>> {
        let mut places = Vec::new();
        let mut left = blocks;
        while left > 0 {
            if places.len() == PIECES_MAX {
                return Err(Error::NoSpace);
            }
            let place = self.reserve(left)?;
            left -= place.len();
            places.push(place);
        }
        self.ensure_free()?;
        Ok(places)
    }

    fn write_empty_log(&self, places: &[Reservation]) -> Result<()> {
        let volume = self.volume;
        let block_bytes = u64::from(volume.block_bytes());
        let mut log = 0;
        let mut runs = Vec::with_capacity(places.len());
        for place in places {
            volume.device().write_zeroes(place.first().0 * block_bytes, place.len() * block_bytes)?;
            runs.push(LogRun { log: LogBlock(log), home: place.first(), count: place.len() as u32 });
            log += place.len() as u32;
        }
        let (from, params) = locate_log(volume)?;
        jbd2::copy_as_empty(&**volume.device(), &from, &LogLocation::new(runs, &params)?, &params)
    }
}

fn change_map(
    handle: &Handle<'_>,
    mut inode: Inode,
    location: Location,
    old: &[(FileBlock, FsBlock, u64)],
    places: Vec<Reservation>,
) -> Result<()> {
    let allocator = &handle.writer().allocator;
    let blocks = places.iter().map(Reservation::len).sum();
    if map::remove(handle, &mut inode, 0, blocks, Removed::Kept)? != Progress::Done {
        return Err(Error::Unsupported("moving a journal that is in many pieces; use resize2fs".into()));
    }
    for &(_, first, count) in old {
        allocator.free_own(handle, first, count)?;
    }
    let mut at = 0;
    for mut place in places {
        let count = place.len();
        let first = allocator.take(handle, &mut place, count)?;
        map::insert(handle, &mut inode, FileBlock(at as u32), first, count, true)?;
        at += count;
    }
    inode.store(handle, location)?;
    // The superblock keeps a copy of the map.
    superblock::change(handle, |raw| {
        for (word, bytes) in raw.s_jnl_blocks.iter_mut().zip(inode.i_block.chunks_exact(4)) {
            word.set(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte)));
        }
    })
}
