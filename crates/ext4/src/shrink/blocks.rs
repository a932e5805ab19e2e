//! Moving blocks of files before the new end.
//!
//! Data is copied to blocks that nothing leads to, and then the map is changed in one transaction, whose commit makes the
//! copy durable first: a crash leaves the old blocks or the new ones. Blocks of directories move in the same way. Their
//! checksums do not depend on their place, and what the journal has of them has been written back before.

use undercroft_vfs::{Error, FileType, Result};

use super::Mover;
use crate::alloc::{ALLOCATE_CREDITS, Purpose, Reservation};
use crate::inode::{self, Inode, Location};
use crate::map::{self, Progress, Removed, RunState};
use crate::numbers::{FileBlock, FsBlock};
use crate::transaction::{Handle, Seal};

/// Why all changes end if some of these have been made.
pub(super) const HALF_MOVED: &str = "moving what lies past the filesystem's new end failed half way";
/// Bytes that are copied at once.
const COPIED_AT_ONCE: u64 = 1 << 20;

/// Consecutive blocks of a file that move.
struct Piece {
    at: u64,
    first: FsBlock,
    count: u64,
    written: bool,
}

impl Mover<'_> {
    /// Moves all blocks of a file that lie at or past the end.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace): everything is good, and some blocks may have moved. Corruption; I/O failure.
    pub(super) fn move_file(&mut self, number: u32) -> Result<()> {
        let location = inode::locate(self.volume, number)?;
        let mut inode = Inode::read_linked_or_not(self.volume, number, location)?;
        self.move_nodes(&mut inode, location)?;
        self.move_content(&mut inode, location)
    }

    pub(super) fn move_nodes(&self, inode: &mut Inode, location: Location) -> Result<()> {
        let mut is_past = false;
        map::for_each_node(self.volume, inode, &mut |node| is_past |= node >= self.end)?;
        let limit = map::limit(self.volume, inode);
        let mut at = 0;
        while is_past && at < limit {
            self.ensure_free(map::nodes_most(self.volume, inode, 0))?;
            let handle = self.volume.start(map::relocate_credits(inode) + 1)?;
            let moved = map::relocate_nodes(&handle, inode, at, self.end).and_then(|next| {
                inode.store(&handle, location)?;
                Ok(next)
            });
            at = handle.or_abort(HALF_MOVED, moved)?;
        }
        Ok(())
    }

    fn move_content(&mut self, inode: &mut Inode, location: Location) -> Result<()> {
        let limit = map::limit(self.volume, inode);
        let most = u64::from(self.volume.superblock().geometry().blocks_per_group());
        let mut at = 0;
        while at < limit {
            let run = map::lookup(self.volume, inode, FileBlock(at as u32))?;
            let (first, written) = match run.state {
                RunState::Mapped(first) => (first, true),
                RunState::Unwritten(first) => (first, false),
                RunState::Hole => {
                    at += run.len;
                    continue;
                }
            };
            let stay = self.end.0.saturating_sub(first.0).min(run.len);
            at += stay;
            let count = (run.len - stay).min(most).min(map::max_run(written));
            if count > 0 {
                let piece = Piece { at, first: FsBlock(first.0 + stay), count, written };
                at += self.move_piece(inode, location, &piece)?;
            }
        }
        Ok(())
    }

    /// Moves a piece, or its beginning; returns how many blocks.
    fn move_piece(&mut self, inode: &mut Inode, location: Location, piece: &Piece) -> Result<u64> {
        let nodes = map::nodes_most(self.volume, inode, piece.count);
        self.ensure_free(nodes + 1)?;
        // The checksums of its blocks depend on their place.
        let is_orphan_file = self.volume.superblock().orphan_file_inode() == Some(inode.number);
        // So many that maps have room afterwards.
        let room = self.writer.allocator.free_now().saturating_sub(nodes).max(1);
        let mut place = self.reserve(if is_orphan_file { 1 } else { piece.count.min(room) })?;
        let count = place.len();
        if piece.written && !is_orphan_file {
            self.copy(piece.first, place.first(), count, inode.kind)?;
        }
        let content = is_orphan_file.then(|| self.volume.read_block(piece.first)).transpose()?;
        let mut credits = 2 * map::remove_credits(inode) + 2 * map::credits(inode) + ALLOCATE_CREDITS + 2;
        loop {
            let handle = self.volume.start(credits)?;
            let mut change = || {
                let removed = if is_orphan_file { Removed::Metadata } else { Removed::of(inode.kind) };
                let progress = map::remove(&handle, inode, piece.at, piece.at + count, removed)?;
                if progress == Progress::Done {
                    let first = handle.writer().allocator.take(&handle, &mut place, count)?;
                    if let Some(content) = &content {
                        let seal = Seal::Orphans(inode.checksum_seed(self.volume));
                        handle.make(first, seal, |bytes| bytes.copy_from_slice(content))?;
                    }
                    map::insert(&handle, inode, FileBlock(piece.at as u32), first, count, piece.written)?;
                }
                inode.store(&handle, location)?;
                Ok(progress)
            };
            let changed = change();
            match handle.or_abort(HALF_MOVED, changed)? {
                Progress::Done => break,
                // Only room was made in the map.
                Progress::From(_) => credits *= 2,
            }
        }
        self.note(count);
        Ok(count)
    }

    /// A place for 1 to `count` blocks before the end. What earlier steps have freed is committed when nothing else is
    /// left.
    pub(super) fn reserve(&self, count: u64) -> Result<Reservation> {
        let allocator = &self.writer.allocator;
        match allocator.reserve(self.volume, FsBlock(0), count, 1) {
            Err(Error::NoSpace) => {
                self.writer.transactions.commit_everything(self.volume)?;
                allocator.reserve(self.volume, FsBlock(0), count, 1)
            }
            reserved => reserved,
        }
    }

    /// Refuses to go on without room for so many blocks. What earlier steps have freed is committed first where it is needed.
    pub(super) fn ensure_free(&self, blocks: u64) -> Result<()> {
        let allocator = &self.writer.allocator;
        if allocator.free_now() < blocks {
            self.writer.transactions.commit_everything(self.volume)?;
        }
        if allocator.free_now() < blocks { Err(Error::NoSpace) } else { Ok(()) }
    }

    fn copy(&mut self, from: FsBlock, to: FsBlock, count: u64, kind: FileType) -> Result<()> {
        let block_bytes = u64::from(self.volume.block_bytes());
        if kind != FileType::Regular {
            // What was read there before is not what will be there.
            (to.0..to.0 + count).for_each(|block| self.volume.buffers().forget(block));
        }
        let device = self.volume.device();
        let mut done = 0;
        while done < count * block_bytes {
            let bytes = (count * block_bytes - done).min(COPIED_AT_ONCE);
            self.buffer.resize(bytes as usize, 0);
            device.read_at(from.0 * block_bytes + done, &mut self.buffer)?;
            device.write_at(to.0 * block_bytes + done, &self.buffer)?;
            done += bytes;
        }
        Ok(())
    }

    /// Another block for what lies in one, before the end.
    pub(super) fn allocate(&self, handle: &Handle<'_>) -> Result<FsBlock> {
        let allocator = &self.writer.allocator;
        allocator.allocate(handle, FsBlock(0), 1, Purpose::Metadata).map(|(block, _)| block)
    }
}
