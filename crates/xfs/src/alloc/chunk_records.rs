//! Records of inode chunks, changed in memory and written to the trees.
//!
//! A chunk is *open* from the first change of its record on. The first change in a transaction goes to the trees at once,
//! so that their leaves and the group's header belong to the transaction. Later changes in the same transaction only
//! replace the record here, if the trees neither gain nor lose a record by them, and one of the last steps before the
//! transaction is committed writes the record once more ([`Allocator::prepare_commit`]): its leaf belongs to the transaction
//! already, wherever the tree has moved the record, so this takes no credits and no space. A thread that makes files and
//! removes them in a loop changes the trees once for each transaction.
//!
//! What always holds: a chunk is in the tree of free ones exactly if its newest record has a free inode. Whether it is
//! never waits for a commit, so searches find by the trees' keys what they find by the newest records.
//!
//! Locks: guarded by the group's lock. Readers of the trees without it see the last commit's records, or newer ones.

use undercroft_sync::atomic::Ordering;

use super::changing::ChangingGroup;
use super::inodes::InTrees;
use super::open_chunks::{OPEN_MAX, OpenChunk};
use super::*;
use crate::btree::InodeChunk;
use crate::format::AgIno;

impl ChangingGroup<'_> {
    /// Replaces a chunk's record, of which free inodes have become used or the other way round, and counts them: in memory
    /// where that is enough.
    ///
    /// # Errors
    /// Corruption; I/O failure. Nothing has changed then, or the changes are aborted.
    pub(super) fn change_chunk(&mut self, before: &InodeChunk, after: &InodeChunk) -> Result<()> {
        let tid = self.tid();
        let stays = before.free_count > 0 && after.free_count > 0;
        let open = &mut self.state().open;
        let at = open.position(before.start);
        if let Some(at) = at
            && stays
            && open.chunks[at].written_in == tid
        {
            (open.chunks[at].record, open.chunks[at].is_newer) = (*after, true);
            open.counts_are_newer = true;
            self.count_free(before, after);
            if !self.group.has_newer.load(Ordering::Relaxed) {
                self.group.has_newer.store(true, Ordering::Relaxed);
                self.allocator.groups_with_newer.fetch_add(1, Ordering::Relaxed);
            }
            return Ok(());
        }
        // The trees have the record of a chunk that is open as it was written last.
        let in_trees = if at.is_none() { InTrees::Same } else { InTrees::Older };
        self.replace_chunk(before, after, in_trees)?;
        // The count goes into the header's sector with this change.
        self.agi_mut();
        self.count_free(before, after);
        let open = &mut self.state().open;
        if !stays {
            open.note_other_chunks();
        }
        if before.free_count == 0 {
            open.note_free_in(before.start..AgIno(before.start.0.saturating_add(1)));
        }
        let written = OpenChunk { record: *after, written_in: tid, is_newer: false };
        match at {
            Some(at) => open.chunks[at] = written,
            None => {
                if open.chunks.len() >= OPEN_MAX {
                    let closed = self.close_oldest();
                    self.handle.or_abort(closed)?;
                }
                self.state().open.chunks.push(written);
            }
        }
        Ok(())
    }

    fn count_free(&mut self, before: &InodeChunk, after: &InodeChunk) {
        let (more, less) = (after.free_count, before.free_count);
        let free = &mut self.state().agi.agi_freecount;
        free.set(free.get().saturating_add(more).saturating_sub(less));
    }

    /// Closes the chunk whose record was written longest ago.
    fn close_oldest(&mut self) -> Result<()> {
        let chunks = &self.state().open.chunks;
        let oldest = chunks.iter().min_by_key(|open| (open.is_newer, open.written_in));
        match oldest.map(|open| open.record.start) {
            Some(start) => self.close_chunk(start),
            None => Ok(()),
        }
    }

    /// Forgets an open chunk, which goes.
    pub(super) fn forget_chunk(&mut self, start: AgIno) {
        let open = &mut self.state().open;
        if let Some(at) = open.position(start) {
            open.chunks.swap_remove(at);
        }
        open.note_other_chunks();
    }

    /// Writes the record of an open chunk to the trees if it is newer, and closes the chunk: its record is about to change
    /// in another way.
    pub(super) fn close_chunk(&mut self, start: AgIno) -> Result<()> {
        let Some(at) = self.state().open.position(start) else { return Ok(()) };
        let open = self.state().open.chunks.swap_remove(at);
        self.write_newer(&open)
    }

    fn write_newer(&mut self, open: &OpenChunk) -> Result<()> {
        if open.is_newer { self.replace_chunk(&open.record, &open.record, InTrees::Older) } else { Ok(()) }
    }

    /// Writes everything that is newer.
    fn write_all_newer(&mut self) -> Result<()> {
        for at in 0..self.state().open.chunks.len() {
            let open = self.state().open.chunks[at];
            self.write_newer(&open)?;
            self.state().open.chunks[at].is_newer = false;
        }
        if std::mem::take(&mut self.state().open.counts_are_newer) {
            self.agi_mut();
        }
        Ok(())
    }
}

impl Allocator {
    /// Before a transaction is written: the records of chunks that are newer in memory, and the counts of free inodes. All
    /// blocks that change belong to the transaction already.
    ///
    /// # Errors
    /// Corruption of the trees of inode chunks; I/O failure.
    pub(crate) fn prepare_commit(&self, handle: &Handle<'_>) -> Result<()> {
        if self.groups_with_newer.swap(0, Ordering::Relaxed) == 0 {
            return Ok(());
        }
        for group in self.groups.iter() {
            if group.has_newer.swap(false, Ordering::Relaxed) {
                let mut changing = self.change_group(handle, group.number)?;
                changing.write_all_newer()?;
                debug_assert!(!changing.state().open.has_newer());
            }
        }
        Ok(())
    }
}
