//! XFS's log below the transactions. Log space and reservations are counted in basic blocks of 512 bytes.
//!
//! A transaction becomes one checkpoint. Its position, which its blocks carry, is that of its first record. The tail is
//! not stored anywhere: each record names it. So moving it writes nothing, and space that it sets free is used only
//! behind a durable record that names it, for which [`LogWriter`] cares.
//!
//! Locks: `writer`, held while a checkpoint is written, and inside it `logged`; both of class `transaction`.

use std::collections::VecDeque;
use std::sync::Arc;

use undercroft_cache::Span;
use undercroft_journal::{Limits, LogHead, LogTail, Position, Stop, Tid, Transaction};
use undercroft_sync::{Mutex, order};
use undercroft_vfs::Result;

use super::seal::headers_in;
use super::{Block, Seal};
use crate::format::Geometry;
use crate::log::{LogWriter, Lsn, size_of_buffer, size_of_cancelled, size_of_runs, store_counters};
use crate::volume::Volume;
use crate::writer::{Mounted, Transactions};

/// Bytes that one batch of a checkpoint writes back.
const BATCH_BYTES: u32 = 1 << 20;
/// The log holds at most this much before checkpoints begin: its items stay in memory until then.
const PINNED_BYTES: u64 = 64 << 20;
/// Freed buffers whose descriptions take as much of the log as one reserved unit.
const CANCELLED_IN_UNIT: usize = 10;

/// `logged` is locked inside `writer`.
const INSIDE: u32 = 1;

/// The log, for both of its ends.
struct Log {
    writer: Mutex<LogWriter>,
    /// Where each transaction begins that is not written back, the one that is being written included.
    logged: Mutex<VecDeque<(Tid, Lsn)>>,
}

impl Log {
    /// Where the log's changes begin, if it has any.
    fn tail(&self) -> Option<Lsn> {
        self.logged.lock_nested(INSIDE).front().map(|(_, lsn)| *lsn)
    }
}

/// Transactions that are written to a log.
pub(crate) fn logged(writer: LogWriter, geometry: &Geometry, stop: Arc<Stop>) -> Transactions {
    let space = writer.usable_blocks();
    let limits = Limits {
        space,
        checkpoint_at: (space / 2).min(PINNED_BYTES / 512),
        room: (space / 4) as u32,
        cancelled_per_unit: CANCELLED_IN_UNIT,
        batch_items: (BATCH_BYTES / geometry.block_bytes()).max(1) as usize,
    };
    let log = Arc::new(Log {
        writer: Mutex::new(&order::TRANSACTION, writer),
        logged: Mutex::new(&order::TRANSACTION, VecDeque::new()),
    });
    // Number 0 is beside a block that was never changed.
    Transactions::logged(Tid(1), Head(Arc::clone(&log), *geometry), Tail(log), &limits, stop)
}

/// Appends transactions; beside the log, the sizes of blocks and inodes.
struct Head(Arc<Log>, Geometry);

struct Tail(Arc<Log>);

impl LogHead<Mounted> for Head {
    fn space(&self, transaction: &Transaction<Block>) -> u64 {
        let mut regions = 0;
        let mut bytes = 0;
        let mut add = |count: usize, (of_each, bytes_of_each): (u64, u64)| {
            regions += count as u64 * of_each;
            bytes += count as u64 * bytes_of_each;
        };
        add(transaction.cancelled.len(), size_of_cancelled());
        for frozen in &transaction.items {
            match frozen.version.seal {
                // Headers of at most a block together.
                Seal::GroupHeaders => add(3, size_of_buffer(self.1.block_bytes() as usize / 3 + 512)),
                Seal::HeadersAndSuperblock => add(4, size_of_buffer(self.1.block_bytes() as usize / 4 + 512)),
                Seal::Inodes(parts) => {
                    add(1, size_of_runs(self.1.block_bytes() as usize, &parts.runs(&self.1)));
                }
                _ => add(1, size_of_buffer(frozen.version.buffer.len())),
            }
        }
        self.0.writer.lock().blocks_for(regions, bytes)
    }

    fn append(&mut self, volume: &Mounted, transaction: &Transaction<Block>) -> Result<Position> {
        let blocks = self.space(transaction);
        let Self(log, _) = self;
        let mut writer = log.writer.lock();
        writer.make_room(blocks, log.tail())?;
        let position = writer.head();
        log.logged.lock_nested(INSIDE).push_back((transaction.tid, position));
        write(volume, &mut writer, log.tail(), position, transaction)?;
        Ok(Position(position.0))
    }
}

/// Writes the checkpoint of a transaction.
fn write(
    volume: &Volume,
    writer: &mut LogWriter,
    tail: Option<Lsn>,
    position: Lsn,
    transaction: &Transaction<Block>,
) -> Result<()> {
    let geometry = volume.geometry();
    let (block_bytes, ag_blocks) = (geometry.block_bytes(), u64::from(geometry.ag_blocks()));
    let block_of_group = |home: u64| (Span::named(home).first() % ag_blocks) as u32;
    let daddr = |home: u64| Span::named(home).first() * u64::from(block_bytes / 512);
    let is_headers = |seal: Seal| matches!(seal, Seal::GroupHeaders | Seal::HeadersAndSuperblock);
    let buffers = transaction.items.iter().map(|frozen| match frozen.version.seal {
        seal if is_headers(seal) => headers_in(geometry, seal, block_of_group(frozen.item.number())).count(),
        _ => 1,
    });
    let items = buffers.sum::<usize>() + transaction.cancelled.len();
    writer.checkpoint(tail, items as u32, |checkpoint| {
        let mut bytes = Vec::with_capacity(block_bytes as usize);
        for frozen in &transaction.items {
            let (home, seal) = (frozen.item.number(), frozen.version.seal);
            bytes.clear();
            bytes.extend_from_slice(&frozen.version.buffer);
            seal.apply(geometry, block_of_group(home), position.0, &mut bytes);
            if let Seal::Inodes(parts) = seal {
                checkpoint.runs(daddr(home), seal.log_kind(), &bytes, &parts.runs(geometry))?;
                continue;
            }
            if !is_headers(seal) {
                checkpoint.buffer(daddr(home), seal.log_kind(), &bytes)?;
                continue;
            }
            for (header, range) in headers_in(geometry, seal, block_of_group(home)) {
                let at = daddr(home) + range.start as u64 / 512;
                checkpoint.buffer(at, header.kind, &bytes[range])?;
            }
        }
        for home in &transaction.cancelled {
            checkpoint.cancelled(daddr(*home), Span::named(*home).blocks() * block_bytes)?;
        }
        Ok(())
    })
}

impl LogTail<Mounted> for Tail {
    /// Nothing is written: see the module's description.
    fn advance(&mut self, _volume: &Mounted, _space: u64, next: Tid) -> Result<()> {
        let mut logged = self.0.logged.lock();
        while logged.front().is_some_and(|(tid, _)| *tid < next) {
            logged.pop_front();
        }
        Ok(())
    }

    /// The superblock's counters first: from the unmount record on they are taken as they are. Linux looks for unlinked
    /// inodes only in a recovery, so where some are left, in use still or for want of space, the log does not say that.
    fn make_empty(&mut self, volume: &Mounted, _next: Tid) -> Result<()> {
        store_counters(volume.device(), volume.superblock())?;
        let leaves_unlinked = volume.writer()?.allocator.leaves_unlinked();
        let mut log = self.0.writer.lock();
        if leaves_unlinked { log.cover(None) } else { log.unmount() }
    }

    /// The format has no place for it.
    fn record_abort(&mut self, _volume: &Mounted) -> Result<()> {
        Ok(())
    }
}
