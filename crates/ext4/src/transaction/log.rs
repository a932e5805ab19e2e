//! jbd2's log below the transactions. Log space and reservations are counted in blocks.

use std::sync::Arc;

use undercroft_journal::{Limits, LogHead, LogTail as Tail, Position, Stop, Tid, Transaction};
use undercroft_vfs::Result;

use super::Block;
use crate::jbd2::{LogTail, LogWriter, Sequence};
use crate::numbers::FsBlock;
use crate::writer::{Mounted, Transactions};

/// Bytes that one batch of a checkpoint writes back.
const BATCH_BYTES: u32 = 1 << 20;
/// The log holds at most this much before checkpoints begin: its items stay in memory until then.
const PINNED_BYTES: u64 = 64 << 20;

/// Transactions that are written to a log, beginning with the number that it expects.
pub(crate) fn logged(
    first: Sequence,
    head: LogWriter,
    tail: LogTail,
    block_bytes: u32,
    stop: Arc<Stop>,
) -> Transactions {
    // One block stays free, so that a full ring is not taken for an empty one.
    let usable = head.ring_blocks() - 1;
    let limits = Limits {
        space: usable.into(),
        checkpoint_at: (u64::from(usable) / 2).min(PINNED_BYTES / u64::from(block_bytes)),
        room: usable / 4,
        cancelled_per_unit: head.records_per_block(),
        batch_items: (BATCH_BYTES / block_bytes) as usize,
    };
    // Above the number 0, which is beside a block that was never changed.
    let first = Tid(1 << 32 | u64::from(first.0));
    Transactions::logged(first, head, tail, &limits, stop)
}

impl Mounted {
    /// Items that one batch of a checkpoint writes back at most.
    pub(crate) fn items_written_back_at_once(&self) -> u32 {
        BATCH_BYTES / self.block_bytes()
    }
}

/// The lower half of a transaction's number is its number in the log.
fn sequence(tid: Tid) -> Sequence {
    Sequence(tid.0 as u32)
}

impl LogHead<Mounted> for LogWriter {
    fn space(&self, transaction: &Transaction<Block>) -> u64 {
        self.blocks_for(transaction.items.len(), transaction.cancelled.len()) as u64
    }

    fn append(&mut self, volume: &Mounted, transaction: &Transaction<Block>) -> Result<Position> {
        let fill = |index: usize, bytes: &mut [u8]| {
            let frozen = &transaction.items[index];
            let home = FsBlock(frozen.item.number());
            bytes.copy_from_slice(&frozen.version.buffer);
            frozen.version.seal.apply(volume, home, bytes);
            home
        };
        let revoked: Vec<_> = transaction.cancelled.iter().copied().map(FsBlock).collect();
        let sequence = sequence(transaction.tid);
        Self::append(self, &**volume.device(), sequence, transaction.items.len(), fill, &revoked)?;
        Ok(Position(transaction.tid.0))
    }
}

impl Tail<Mounted> for LogTail {
    fn advance(&mut self, volume: &Mounted, space: u64, next: Tid) -> Result<()> {
        // Space was counted in blocks of the ring, whose number has 32 bits.
        Self::advance(self, &**volume.device(), space as u32, sequence(next))
    }

    fn make_empty(&mut self, volume: &Mounted, next: Tid) -> Result<()> {
        Self::make_empty(self, &**volume.device(), sequence(next))
    }

    fn record_abort(&mut self, volume: &Mounted) -> Result<()> {
        self.record_failure(&**volume.device_below())
    }
}
