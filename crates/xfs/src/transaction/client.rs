//! The filesystem's own part in commits and checkpoints.

use undercroft_block::Request;
use undercroft_cache::Span;
use undercroft_journal::{Cause, Client, Frozen, WriteBack};
use undercroft_vfs::Result;

use super::{Block, Handle, Seal};
use crate::volume::Volume;
use crate::writer::{Mounted, Transactions};

/// Stands for no position of the log.
const NO_POSITION: u64 = 0;

/// Bytes that are written at once, and one structure more at most.
const REQUEST_BYTES: usize = 4 << 20;

/// A version on its way home.
struct Home<'a> {
    /// The block's number, or the structure's name.
    number: u64,
    bytes: &'a [u8],
    seal: Seal,
    position: u64,
}

impl Client for Mounted {
    type Item = Block;

    /// # Panics
    /// For a read-only filesystem; it has no transactions.
    fn transactions(&self) -> &Transactions {
        match self.writer() {
            Ok(writer) => &writer.transactions,
            Err(_) => unreachable!("only a writable filesystem is a client of the journal"),
        }
    }

    fn flush(&self) -> Result<()> {
        Self::flush(self)
    }

    fn cached(&self, home: u64) -> Option<Block> {
        self.buffers().cached(home)
    }

    fn evict(&self, home: u64) {
        self.buffers().forget(home);
    }

    fn prepare_commit(&self, handle: undercroft_journal::Handle<'_, Self>) -> Result<()> {
        let handle = Handle::new(handle, 0);
        handle.writer().allocator.prepare_commit(&handle)
    }

    fn prepare_timed_commit(&self) -> bool {
        self.writer().and_then(|writer| writer.lazy_times.store_what_fits()).unwrap_or(true)
    }

    fn write_back(&self, batch: &[WriteBack<'_, Block>]) -> Result<()> {
        let versions = batch.iter().map(|write| Home {
            number: write.item.number(),
            bytes: &write.version.buffer,
            seal: write.version.seal,
            position: home_position(write.version.seal, write.position.0),
        });
        write_blocks_back(self, versions)
    }

    /// For unit tests: every XFS filesystem has a log.
    fn write_unlogged(&self, items: &[Frozen<Block>]) -> Result<()> {
        self.flush()?;
        let mut blocks: Vec<_> = items
            .iter()
            .map(|frozen| Home {
                number: frozen.item.number(),
                bytes: &frozen.version.buffer,
                seal: frozen.version.seal,
                position: NO_POSITION,
            })
            .collect();
        blocks.sort_unstable_by_key(|block| block.number);
        write_blocks_back(self, blocks.into_iter())?;
        self.flush()
    }

    /// The superblock's counters are stored before the log says that the filesystem was unmounted, so nothing is left.
    fn mark_clean(&self) -> Result<()> {
        Ok(())
    }

    /// The format has no place for it.
    fn record_abort(&self, _: &Cause) {}
}

/// The position that a block gets at home. Linux's recovery does not replay a block that has a later one than the
/// change it would replay, and finds the position in the block's first sector: a block that the power cut tore behind
/// that one would stay torn. So only headers, of one sector each, get their position there. The log holds all other
/// blocks as a whole, or inodes of them that lie in sectors of their own, and a recovery replays them whatever lies at home.
fn home_position(seal: Seal, position: u64) -> u64 {
    match seal {
        Seal::GroupHeaders | Seal::HeadersAndSuperblock => position,
        _ => NO_POSITION,
    }
}

/// Seals blocks, in the order of their homes, and writes them there; neighbours together. The superblock in a block of
/// group headers is left out, unless it is part of a transaction: its counters are written past them.
fn write_blocks_back<'a>(volume: &Volume, blocks: impl Iterator<Item = Home<'a>>) -> Result<()> {
    let geometry = volume.geometry();
    let block_bytes = u64::from(geometry.block_bytes());
    let mut bytes = Vec::new();
    // Offset and length of what lies together.
    let mut runs: Vec<(u64, usize)> = Vec::new();
    for block in blocks {
        let begin = bytes.len();
        bytes.extend_from_slice(block.bytes);
        let first = Span::named(block.number).first();
        let block_of_group = (first % u64::from(geometry.ag_blocks())) as u32;
        block.seal.apply(geometry, block_of_group, block.position, &mut bytes[begin..]);
        let mut offset = first * block_bytes;
        if block.seal == Seal::GroupHeaders && block_of_group == 0 {
            let superblock = geometry.sector_bytes() as usize;
            bytes.drain(begin..begin + superblock);
            offset += superblock as u64;
        }
        let len = bytes.len() - begin;
        match runs.last_mut() {
            _ if len == 0 => {}
            Some((first, run)) if *first + *run as u64 == offset => *run += len,
            _ => runs.push((offset, len)),
        }
        // Structures of several blocks would make a batch large.
        if bytes.len() >= REQUEST_BYTES {
            write_runs(volume, &bytes, &runs)?;
            bytes.clear();
            runs.clear();
        }
    }
    write_runs(volume, &bytes, &runs)
}

/// Writes bytes to where their parts belong: an offset and a length for each.
fn write_runs(volume: &Volume, bytes: &[u8], runs: &[(u64, usize)]) -> Result<()> {
    let mut requests = Vec::with_capacity(runs.len());
    let mut rest = bytes;
    for &(offset, len) in runs {
        let (data, after) = rest.split_at(len);
        requests.push(Request::Write { offset, data });
        rest = after;
    }
    Ok(volume.device().run_batch(&mut requests)?)
}
