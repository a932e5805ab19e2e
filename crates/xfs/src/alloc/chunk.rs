//! Inode chunks: made and freed.
//!
//! A chunk has 64 inodes in blocks that lie together, the first at a multiple of `sb_inoalignmt`. Where a block holds
//! more than 64, one block is made at a time, which is several chunks and stays for good. Where no such run is free, and
//! the filesystem has sparse chunks, a part of a chunk of `sb_spino_align` blocks is made: the record says which inodes
//! exist, and further parts join it.
//!
//! The blocks are initialised, and nothing of them is free for other use before the transaction is durable; so a crash
//! leaves whole chunks or none.

use std::hash::{BuildHasher, RandomState};

use zerocopy::FromBytes;

use super::changing::ChangingGroup;
use super::*;
use crate::btree::{Finobt, Inobt, InodeChunk};
use crate::error::corrupt;
use crate::format::dinode::RawDinode;
use crate::format::geometry::CHUNK_INODES;
use crate::format::{AgBlock, AgIno};
use crate::inode::{seal_new, write_identity};
use crate::transaction::{Parts, Seal};

/// Inodes that one bit of a record's holes stands for.
const INODES_PER_HOLE: u32 = 4;

impl ChangingGroup<'_> {
    /// Makes a chunk, or a part of one, behind the chunk that was made last or near `near`. The handle has space for a
    /// whole chunk. Returns a chunk with a free inode; `None` if there is no run of free blocks for it.
    ///
    /// # Errors
    /// Corruption; I/O failure. Nothing has changed then, or the changes are aborted.
    pub(super) fn make_chunk(&mut self, near: Option<AgIno>) -> Result<Option<InodeChunk>> {
        let handle = self.handle;
        if let Some(first) = self.take_whole_run(near)? {
            let filled = self.fill_whole_chunks(first);
            return handle.or_abort(filled).map(Some);
        }
        let Some((first, count)) = self.take_sparse_run()? else { return Ok(None) };
        let filled = self.fill_part(first, count);
        handle.or_abort(filled).map(Some)
    }

    /// Whether the trees of inodes can grow, wherever the new records come, when `count` blocks have been taken.
    fn leaves_room_for_records(&mut self, count: u32) -> Result<bool> {
        let finobt = if self.has_finobt() { self.agi().agi_free_level.get().saturating_add(1) } else { 0 };
        let growth = self.agi().agi_level.get().saturating_add(1).saturating_add(finobt);
        let space = &self.loaded()?.blocks().space;
        Ok(space.has_for_trees(u64::from(count) + u64::from(growth)))
    }

    /// Takes blocks for a whole chunk.
    fn take_whole_run(&mut self, near: Option<AgIno>) -> Result<Option<AgBlock>> {
        let geometry = self.geometry();
        let (count, log) = (geometry.chunk_blocks(), geometry.inodes_per_block_log());
        let Some(last) = geometry.ag_len(self.number()).checked_sub(count) else { return Ok(None) };
        if !self.leaves_room_for_records(count)? {
            return Ok(None);
        }
        let newest = AgIno(self.agi().agi_newino.get());
        let goal = if newest != AgIno::NULL {
            (newest.0 >> log).saturating_add(count)
        } else {
            near.map_or(0, |near| near.0 >> log)
        };
        self.take_aligned(AgBlock(goal.min(last)), count, geometry.inode_alignment(), 0..last + 1)
    }

    /// Takes blocks for a part of a chunk, on a filesystem with sparse chunks. A whole chunk around them lies within the
    /// group, without its first blocks.
    fn take_sparse_run(&mut self) -> Result<Option<(AgBlock, u32)>> {
        let geometry = self.geometry();
        let (align, count) = (geometry.sparse_alignment(), geometry.chunk_blocks());
        if align == 0 || align >= count || geometry.inode_alignment() != count {
            return Ok(None);
        }
        // Parts of another size do not fit the bits of a chunk's record, which stand for four inodes each.
        if !align.is_power_of_two() || !(align << geometry.inodes_per_block_log()).is_multiple_of(4) {
            return Ok(None);
        }
        let len = geometry.ag_len(self.number());
        let Some(last) = (len - len % count).checked_sub(count) else { return Ok(None) };
        if !self.leaves_room_for_records(align)? {
            return Ok(None);
        }
        let taken = self.take_aligned(AgBlock(0), align, align, count..last + 1)?;
        Ok(taken.map(|first| (first, align)))
    }

    /// Makes chunks of a run that was taken for them. Returns the first.
    fn fill_whole_chunks(&mut self, first: AgBlock) -> Result<InodeChunk> {
        let geometry = self.geometry();
        let (count, log) = (geometry.chunk_blocks(), geometry.inodes_per_block_log());
        self.fill_blocks(first, count)?;
        let start = first.0 << log;
        let chunk_at = |start| InodeChunk {
            start: AgIno(start),
            holes: 0,
            count: CHUNK_INODES as u8,
            free_count: CHUNK_INODES,
            free: u64::MAX,
        };
        for start in (start..start + (count << log)).step_by(CHUNK_INODES as usize) {
            let chunk = chunk_at(start);
            self.insert::<Inobt>(&chunk)?;
            if self.has_finobt() {
                self.insert::<Finobt>(&chunk)?;
            }
        }
        self.count_made(AgIno(start), count << log);
        Ok(chunk_at(start))
    }

    /// Makes a part of a chunk of a run that was taken for it; joins it with the parts that are there already.
    fn fill_part(&mut self, first: AgBlock, count: u32) -> Result<InodeChunk> {
        let geometry = self.geometry();
        let log = geometry.inodes_per_block_log();
        self.fill_blocks(first, count)?;
        let start = AgIno((first.0 - first.0 % geometry.chunk_blocks()) << log);
        let (at, inodes) = ((first.0 << log) - start.0, count << log);
        let bits = (1_u32 << (inodes / INODES_PER_HOLE)) - 1;
        let part = (bits << (at / INODES_PER_HOLE)) as u16;
        self.close_chunk(start)?;
        let before = self.tree::<Inobt>()?.cursor().lookup_eq(&start)?;
        let chunk = match before {
            None => {
                InodeChunk { start, holes: !part, count: inodes as u8, free_count: inodes, free: u64::MAX }
            }
            Some(before) if before.holes & part == part => InodeChunk {
                holes: before.holes & !part,
                count: before.count + inodes as u8,
                free_count: before.free_count + inodes,
                free: before.free | !before.existing(),
                ..before
            },
            Some(before) => {
                let ag = self.number();
                let detail =
                    format!("the blocks at {first} of group {ag} are free, and in the chunk {before:?}");
                return Err(corrupt("inode chunks", detail));
            }
        };
        match before {
            None => self.insert::<Inobt>(&chunk)?,
            Some(_) => self.update::<Inobt>(&start, &chunk)?,
        }
        if self.has_finobt() {
            match before.filter(|before| before.free_count > 0) {
                None => self.insert::<Finobt>(&chunk)?,
                Some(_) => self.update::<Finobt>(&start, &chunk)?,
            }
        }
        self.count_made(start, inodes);
        Ok(chunk)
    }

    /// Makes blocks of free inodes, and notes their owner.
    fn fill_blocks(&mut self, first: AgBlock, count: u32) -> Result<()> {
        self.note_owner(first, count, Owner::Inodes)?;
        let volume = self.volume();
        let geometry = volume.geometry();
        let random = RandomState::new();
        let options = self.handle.writer().options;
        let generation =
            |ino: Ino| options.generation(ino.0).unwrap_or_else(|| random.hash_one(ino.0) as u32);
        for within in first.0..first.0 + count {
            let start = within << geometry.inodes_per_block_log();
            self.handle.make(self.block(AgBlock(within))?, Seal::Inodes(Parts::ALL), |bytes| {
                let len = geometry.inode_bytes() as usize;
                let slots = (0..).step_by(len).zip(bytes.chunks_exact_mut(len));
                for (ino, (byte, slot)) in (start..).zip(slots) {
                    let Some(ino) = geometry.join_ino(self.number(), AgIno(ino)) else { continue };
                    write_identity(slot, volume, ino);
                    if let Ok((raw, _)) = RawDinode::mut_from_prefix(slot) {
                        raw.di_gen.set(generation(ino));
                    }
                    seal_new(volume, byte, slot);
                }
            })?;
        }
        Ok(())
    }

    fn count_made(&mut self, start: AgIno, inodes: u32) {
        let open = &mut self.state().open;
        open.note_other_chunks();
        open.note_free_in(start..AgIno(start.0.saturating_add(inodes)));
        let agi = self.agi_mut();
        agi.agi_count.set(agi.agi_count.get().saturating_add(inodes));
        agi.agi_freecount.set(agi.agi_freecount.get().saturating_add(inodes));
        agi.agi_newino.set(start.0);
    }

    /// Frees a chunk of which one inode is in use still in the trees, and no more afterwards.
    ///
    /// # Errors
    /// Corruption; I/O failure. Nothing has changed then, or the changes are aborted.
    pub(super) fn free_chunk(&mut self, chunk: &InodeChunk) -> Result<()> {
        self.delete::<Inobt>(&chunk.start)?;
        let freed = self.free_blocks_of(chunk);
        self.handle.or_abort(freed)
    }

    fn free_blocks_of(&mut self, chunk: &InodeChunk) -> Result<()> {
        self.forget_chunk(chunk.start);
        if self.has_finobt() && chunk.free_count > 0 {
            self.delete::<Finobt>(&chunk.start)?;
        }
        let agi = self.agi_mut();
        agi.agi_count.set(agi.agi_count.get().saturating_sub(u32::from(chunk.count)));
        agi.agi_freecount.set(agi.agi_freecount.get().saturating_sub(chunk.free_count));
        for (first, count) in self.runs_of(chunk) {
            for within in first.0..first.0 + count {
                self.handle.forget(self.block(AgBlock(within))?);
            }
            self.note_no_owner(first, count, Owner::Inodes)?;
            self.free(first, count, Was::Inodes)?;
        }
        Ok(())
    }

    /// The runs of blocks of the inodes of a chunk that exist.
    pub(super) fn runs_of(&self, chunk: &InodeChunk) -> Vec<(AgBlock, u32)> {
        let geometry = self.geometry();
        let (per_block, log) = (geometry.inodes_per_block(), geometry.inodes_per_block_log());
        let existing = chunk.existing();
        let mut runs: Vec<(AgBlock, u32)> = Vec::new();
        for n in 0..geometry.chunk_blocks() {
            if existing >> (n * per_block) & 1 == 0 {
                continue;
            }
            let block = (chunk.start.0 >> log) + n;
            match runs.last_mut() {
                Some((first, count)) if first.0 + *count == block => *count += 1,
                _ => runs.push((AgBlock(block), 1)),
            }
        }
        runs
    }
}
