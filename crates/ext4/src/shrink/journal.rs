//! Moving the journal before the new end.
//!
//! The journal is in use while parts of it move. First everything is written back, so that the log holds nothing. One
//! transaction in the old log then changes the map of the journal's inode; the new places have been zeroed before, and the
//! log's superblock, if it moves, says there that the log is empty. When the transaction is written back, the block with that inode
//! is written after all others: until then a recovery finds the transaction in the old log, and from then on it has nothing
//! to do, whether or not it finds the transaction in those parts that stayed. The filesystem is closed afterwards, and opened
//! again with the new log.

use std::collections::BTreeSet;

use undercroft_vfs::{Error, Result};

use super::Mover;
use super::blocks::HALF_MOVED;
use crate::alloc::{ALLOCATE_CREDITS, Reservation};
use crate::inode::{self, Inode, Location, NamedBy};
use crate::jbd2::{self, LogBlock, LogLocation, LogRun};
use crate::map::{self, Progress, Removed};
use crate::numbers::{FileBlock, FsBlock};
use crate::open::locate_log;
use crate::superblock;
use crate::transaction::Handle;

/// Free blocks without which the journal's map is not changed.
const LEAST_FREE: u64 = 16;
/// Pieces that move to other places.
const PIECES_MAX: usize = 512;
/// Room that a change of the map wants to see before each step, and the inode, the superblock and nodes above.
const MARGIN: u32 = 64;

/// Consecutive blocks of the journal.
#[derive(Clone, Copy)]
struct Piece {
    at: u64,
    first: FsBlock,
    count: u64,
}

/// Blocks of the journal that move, in its order, and where they go.
struct Moving {
    from: Vec<Piece>,
    to: Vec<(u64, Reservation)>,
}

impl Mover<'_> {
    /// Moves those blocks of the journal that lie past the end. The filesystem takes no other changes afterwards before it is
    /// opened again.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace), [`Unsupported`](Error::Unsupported): nothing has changed. Corruption; I/O failure.
    pub(super) fn move_journal(&mut self, number: u32) -> Result<()> {
        let (volume, transactions) = (self.volume, &self.writer.transactions);
        let location = inode::locate(volume, number)?;
        let mut inode = Inode::read_own(volume, number, NamedBy::SuperblockAsJournal)?;
        if self.writer.written_back_last.set(location.block).is_err() {
            return Err(Error::Unsupported("moving the journal twice".into()));
        }
        self.move_nodes(&mut inode, location)?;
        let blocks = inode.size_bytes >> volume.superblock().geometry().block_bits();
        let pieces: Vec<Piece> = map::collect_whole(volume, &inode, blocks)?
            .into_iter()
            .map(|(at, first, count)| Piece { at: u64::from(at.0), first, count })
            .collect();
        let moving = self.places_for(&pieces)?;
        if moving.from.is_empty() {
            return transactions.commit_everything(volume);
        }
        transactions.write_everything_back(volume)?;
        self.write_places(&pieces, &moving)?;
        volume.flush()?;
        let credits = self.journal_credits(&inode, &moving)?;
        if credits > (transactions.room() * 2).min(volume.items_written_back_at_once()) {
            let what =
                format!("moving a journal in {} pieces; use resize2fs", moving.from.len() + moving.to.len());
            return Err(Error::Unsupported(what.into()));
        }
        let moved = moving.from.iter().map(|piece| piece.count).sum();
        {
            let handle = volume.start(credits)?;
            handle.or_abort(HALF_MOVED, change_map(&handle, inode, location, moving))?;
        }
        self.note(moved);
        transactions.commit_everything(volume)
    }

    /// What of the journal lies past the end, and as many blocks before it.
    fn places_for(&self, pieces: &[Piece]) -> Result<Moving> {
        let mut moving = Moving { from: Vec::new(), to: Vec::new() };
        for piece in pieces {
            let stay = self.end.0.saturating_sub(piece.first.0).min(piece.count);
            if stay == piece.count {
                continue;
            }
            let (at, count) = (piece.at + stay, piece.count - stay);
            moving.from.push(Piece { at, first: FsBlock(piece.first.0 + stay), count });
            let mut done = 0;
            while done < count {
                if moving.to.len() == PIECES_MAX {
                    return Err(Error::NoSpace);
                }
                let place = self.reserve(count - done)?;
                let len = place.len();
                moving.to.push((at + done, place));
                done += len;
            }
        }
        self.ensure_free(LEAST_FREE)?;
        Ok(moving)
    }

    /// Zeroes the new places, and writes the log's superblock there if it moves.
    fn write_places(&self, pieces: &[Piece], moving: &Moving) -> Result<()> {
        let volume = self.volume;
        let block_bytes = u64::from(volume.block_bytes());
        for (_, place) in &moving.to {
            volume.device().write_zeroes(place.first().0 * block_bytes, place.len() * block_bytes)?;
        }
        if moving.from[0].at > 0 {
            return Ok(());
        }
        let run = |at: u64, home, count: u64| LogRun { log: LogBlock(at as u32), home, count: count as u32 };
        let stay = |piece: &Piece| self.end.0.saturating_sub(piece.first.0).min(piece.count);
        let kept = pieces.iter().map(|piece| run(piece.at, piece.first, stay(piece)));
        let new = moving.to.iter().map(|(at, place)| run(*at, place.first(), place.len()));
        let runs = kept.chain(new).collect();
        let (from, params) = locate_log(volume)?;
        jbd2::copy_as_empty(&**volume.device(), &from, &LogLocation::new(runs, &params)?, &params)
    }

    /// Blocks that changing the map changes at most: bitmaps and descriptors, blocks of the old map and of the new one.
    fn journal_credits(&self, inode: &Inode, moving: &Moving) -> Result<u32> {
        let geometry = self.volume.superblock().geometry();
        let per_group = u64::from(geometry.blocks_per_group());
        let group_of = |block: u64| (block - u64::from(geometry.first_data_block())) / per_group;
        let old = moving.from.iter().map(|piece| (piece.first, piece.count));
        let new = moving.to.iter().map(|(_, place)| (place.first(), place.len()));
        let groups: BTreeSet<u64> = old
            .chain(new)
            .flat_map(|(first, count)| group_of(first.0)..=group_of(first.0 + count - 1))
            .collect();
        let mut nodes = 0;
        map::for_each_node(self.volume, inode, &mut |_| nodes += 1)?;
        let has_extents = map::has_extents(inode);
        let in_node = geometry.block_bytes() / if has_extents { 24 } else { 4 };
        let blocks = moving.from.iter().map(|piece| piece.count).sum::<u64>();
        let entries = if has_extents { moving.to.len() as u32 } else { blocks as u32 };
        Ok(groups.len() as u32 * ALLOCATE_CREDITS + 3 * (nodes + entries / in_node) + MARGIN)
    }
}

fn change_map(handle: &Handle<'_>, mut inode: Inode, location: Location, moving: Moving) -> Result<()> {
    let allocator = &handle.writer().allocator;
    for piece in &moving.from {
        let done = map::remove(handle, &mut inode, piece.at, piece.at + piece.count, Removed::Kept)?;
        if done != Progress::Done {
            return Err(Error::Unsupported("moving a journal in many pieces; use resize2fs".into()));
        }
        allocator.free_own(handle, piece.first, piece.count)?;
    }
    for (at, mut place) in moving.to {
        let count = place.len();
        let first = allocator.take(handle, &mut place, count)?;
        map::insert(handle, &mut inode, FileBlock(at as u32), first, count, true)?;
    }
    inode.store(handle, location)?;
    // The superblock keeps a copy of the map.
    superblock::change(handle, |raw| {
        for (word, bytes) in raw.s_jnl_blocks.iter_mut().zip(inode.i_block.chunks_exact(4)) {
            word.set(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte)));
        }
    })
}
