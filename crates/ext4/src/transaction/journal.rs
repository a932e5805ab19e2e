//! The log below the transactions, and what of it has yet to come home.
//!
//! A transaction that is durable in the log is *unfinished* until all of its blocks are at home. The oldest unfinished
//! one holds the ring's blocks from its own on. Checkpoints finish transactions, oldest first, when the ring fills
//! up: a thread of their own does it, and whoever closes the filesystem.
//!
//! What always holds:
//!
//! - only versions that are durable in the log come home ([`Logged::committed`]), the newest of each block. A block
//!   that a younger transaction has changed too is that one's to bring home;
//! - a block comes home before its place in the ring is used again: the homes are flushed, then the journal superblock
//!   names the next transaction, durably, then there is room;
//! - a block that stopped being metadata does not come home once its space may be used: [`Journal::disown`] takes
//!   its version away under the lock that each batch of a checkpoint is written under.
//!
//! Locks: `writer`, for who commits; `tail`, for who checkpoints, and inside it `homes`, for one batch, both of class
//! `journal`; `unfinished`, of class `transaction`.
//!
//! [`Logged::committed`]: super::Logged::committed

use std::collections::VecDeque;

use undercroft_block::Request;
use undercroft_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use undercroft_sync::{Mutex, WaitQueue, order};
use undercroft_vfs::Result;

use super::commit::Closed;
use super::{Block, Committed, Tid};
use crate::error::corrupt;
use crate::journal::{LogTail, LogWriter};
use crate::numbers::FsBlock;
use crate::volume::Volume;

/// Bytes that one batch of a checkpoint brings home.
const BATCH_BYTES: usize = 1 << 20;
/// The log holds at most this much before it is brought home: it stays in memory until then.
const PINNED_BYTES: u64 = 64 << 20;
/// `homes` is taken inside `tail`.
const INSIDE: u32 = 1;

/// A log that is being written.
pub(crate) struct Journal {
    writer: Mutex<LogWriter>,
    tail: Mutex<LogTail>,
    homes: Mutex<()>,
    unfinished: Mutex<VecDeque<Unfinished>>,
    /// Blocks that transactions may use, and how many of them nobody uses.
    usable: u32,
    free: AtomicU32,
    /// Free blocks below which checkpoints begin, and with which they end.
    low: u32,
    high: u32,
    /// Free blocks that a commit waits for.
    wanted: AtomicU32,
    stopped: AtomicBool,
    /// Waiters for room in the ring, and for work.
    room: WaitQueue,
    work: WaitQueue,
    checkpoints: AtomicU64,
    blocks_logged: AtomicU64,
    records_per_block: u32,
}

/// A transaction in the log whose blocks may not be at home.
struct Unfinished {
    tid: Tid,
    /// Blocks of the ring.
    ring_blocks: u32,
    blocks: Vec<Block>,
}

/// How far transactions have come home.
enum Progress {
    AllHome,
    /// The changes have ended: some of it may be at home.
    Ended,
}

/// A version on its way home.
struct Homeward<'a> {
    home: FsBlock,
    tid: Tid,
    block: &'a Block,
}

impl Journal {
    pub(crate) fn new(writer: LogWriter, tail: LogTail, block_bytes: u32) -> Self {
        // One block stays free, so that a full ring is not taken for an empty one.
        let usable = writer.ring_blocks() - 1;
        let pinned = u32::try_from(PINNED_BYTES / u64::from(block_bytes)).unwrap_or(u32::MAX);
        let in_use = (usable / 2).min(pinned);
        Self {
            records_per_block: writer.records_per_block() as u32,
            writer: Mutex::new(&order::JOURNAL, writer),
            tail: Mutex::new(&order::JOURNAL, tail),
            homes: Mutex::new(&order::JOURNAL, ()),
            unfinished: Mutex::new(&order::TRANSACTION, VecDeque::new()),
            usable,
            free: AtomicU32::new(usable),
            low: usable - in_use,
            high: usable - in_use / 2,
            wanted: AtomicU32::new(0),
            stopped: AtomicBool::new(false),
            room: WaitQueue::new(),
            work: WaitQueue::new(),
            checkpoints: AtomicU64::new(0),
            blocks_logged: AtomicU64::new(0),
        }
    }

    /// Blocks that one transaction may change, so that commits and checkpoints can overlap.
    pub(crate) fn room(&self) -> u32 {
        self.usable / 4
    }

    /// Revocations that take as much of the ring as a block that is changed.
    pub(crate) fn records_per_block(&self) -> u32 {
        self.records_per_block
    }

    /// Batches of transactions that have been brought home, and blocks that have been logged.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.checkpoints.load(Ordering::Relaxed), self.blocks_logged.load(Ordering::Relaxed))
    }

    /// Writes a closed transaction to the log and makes it durable. Waits until there is room; `has_ended` ends
    /// the wait. Answers with the blocks of the ring that it took.
    pub(super) fn log(&self, volume: &Volume, closed: &Closed, has_ended: impl Fn() -> bool) -> Result<u32> {
        let mut writer = self.writer.lock();
        let needed = writer.blocks_for(closed.blocks.len(), closed.forgotten.len());
        let needed = match u32::try_from(needed) {
            Ok(needed) if needed <= self.usable => needed,
            _ => {
                return Err(corrupt(
                    "journal",
                    format!("a transaction needs {needed} blocks of a log of {}", self.usable),
                ));
            }
        };
        if self.free.load(Ordering::SeqCst) < needed {
            self.wanted.store(needed, Ordering::SeqCst);
            self.work.wake_all();
            self.room.wait(|| self.free.load(Ordering::SeqCst) >= needed || has_ended());
            self.wanted.store(0, Ordering::SeqCst);
            if has_ended() {
                // Who waits for this commit is told the cause; there is nothing to add to it.
                return Ok(0);
            }
        }
        let fill = |index: usize, bytes: &mut [u8]| {
            let frozen = &closed.blocks[index];
            let home = FsBlock(frozen.block.number());
            bytes.copy_from_slice(&frozen.buffer);
            frozen.seal.apply(volume, home, bytes);
            home
        };
        let device = &**volume.device();
        writer.append(device, closed.tid.sequence(), closed.blocks.len(), fill, &closed.forgotten)?;
        self.blocks_logged.fetch_add(closed.blocks.len() as u64, Ordering::Relaxed);
        Ok(needed)
    }

    /// Keeps what became durable with a transaction until it is at home.
    pub(super) fn keep(&self, closed: &mut Closed, ring_blocks: u32) {
        for frozen in &closed.blocks {
            let committed = Committed { tid: closed.tid, buffer: frozen.buffer.clone(), seal: frozen.seal };
            frozen.block.lock().beside_mut().committed = Some(committed);
        }
        let blocks = closed.blocks.drain(..).map(|frozen| frozen.block).collect();
        self.unfinished.lock().push_back(Unfinished { tid: closed.tid, ring_blocks, blocks });
        // After it is listed: who finds that there is little room finds what can be brought home.
        self.free.fetch_sub(ring_blocks, Ordering::SeqCst);
        if self.free.load(Ordering::SeqCst) < self.low {
            self.work.wake_all();
        }
    }

    /// From now on nothing of these blocks comes home, and nothing is on its way: their space may be used.
    pub(super) fn disown(&self, volume: &Volume, forgotten: &[FsBlock]) {
        if forgotten.is_empty() {
            return;
        }
        let _homes = self.homes.lock_nested(INSIDE);
        for home in forgotten {
            if let Some(block) = volume.buffers().cached(home.0) {
                block.lock().beside_mut().committed = None;
            }
        }
    }

    /// Brings transactions home whenever the ring fills up, until it is told to stop; for the thread that does so.
    ///
    /// # Errors
    /// The device's. Nothing is brought home after that.
    pub(super) fn checkpoint_when_needed(&self, volume: &Volume, has_ended: impl Fn() -> bool) -> Result<()> {
        loop {
            self.work.wait(|| self.target().is_some() || self.stopped.load(Ordering::SeqCst) || has_ended());
            if self.stopped.load(Ordering::SeqCst) || has_ended() {
                return Ok(());
            }
            let Some(target) = self.target() else { continue };
            self.checkpoint(volume, target, &has_ended)?;
        }
    }

    /// Ends the checkpointing thread.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.work.wake_all();
    }

    pub(super) fn wake_all(&self) {
        self.work.wake_all();
        self.room.wake_all();
    }

    /// Brings everything home and says that the log is empty. Nobody commits any more.
    pub(super) fn empty(&self, volume: &Volume, next: Tid) -> Result<()> {
        self.checkpoint(volume, self.usable, &|| false)?;
        self.tail.lock().make_empty(&**volume.device(), next.sequence())
    }

    /// Says in the journal superblock that the writer gave up. Nothing is on its way home when this returns.
    pub(super) fn record_failure(&self, volume: &Volume) -> Result<()> {
        self.tail.lock().record_failure(&**volume.device_below())
    }

    /// How many free blocks there should be, if there are fewer than that.
    fn target(&self) -> Option<u32> {
        let free = self.free.load(Ordering::SeqCst);
        let wanted = self.wanted.load(Ordering::SeqCst);
        (free < self.low.max(wanted)).then_some(self.high.max(wanted))
    }

    /// Brings the oldest transactions home until `target` blocks are free or none is left.
    fn checkpoint(&self, volume: &Volume, target: u32, has_ended: &impl Fn() -> bool) -> Result<()> {
        let mut tail = self.tail.lock();
        let oldest = self.take_oldest(target);
        let Some(last) = oldest.last() else { return Ok(()) };
        let next = Tid(last.tid.0 + 1);
        let freed = oldest.iter().map(|transaction| transaction.ring_blocks).sum();
        let done = self.bring_all_home(volume, &oldest, has_ended).and_then(|all| match all {
            Progress::AllHome => tail.advance(&**volume.device(), freed, next.sequence()),
            // The log goes on saying that it has them.
            Progress::Ended => Ok(()),
        });
        if done.is_err() || has_ended() {
            // Not at home, so they stay in memory.
            let mut unfinished = self.unfinished.lock();
            oldest.into_iter().rev().for_each(|transaction| unfinished.push_front(transaction));
            return done;
        }
        self.free.fetch_add(freed, Ordering::SeqCst);
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.room.wake_all();
        Ok(())
    }

    /// Brings the newest versions home, durably, that these transactions have of their blocks, unless the changes end
    /// before that is done.
    fn bring_all_home(
        &self,
        volume: &Volume,
        transactions: &[Unfinished],
        has_ended: &impl Fn() -> bool,
    ) -> Result<Progress> {
        let mut homeward: Vec<_> = transactions
            .iter()
            .flat_map(|transaction| {
                let tid = transaction.tid;
                transaction.blocks.iter().map(move |block| Homeward {
                    home: FsBlock(block.number()),
                    tid,
                    block,
                })
            })
            .filter(Homeward::is_newest)
            .collect();
        homeward.sort_unstable_by_key(|version| version.home);
        let at_once = (BATCH_BYTES / volume.block_bytes() as usize).max(1);
        let mut bytes = Vec::new();
        for batch in homeward.chunks(at_once) {
            if has_ended() {
                return Ok(Progress::Ended);
            }
            self.bring_home(volume, batch, &mut bytes)?;
        }
        volume.flush()?;
        homeward.iter().for_each(Homeward::is_at_home);
        Ok(Progress::AllHome)
    }

    /// Transactions whose room, with what is free, makes `target` blocks.
    fn take_oldest(&self, target: u32) -> Vec<Unfinished> {
        let mut unfinished = self.unfinished.lock();
        let mut free = self.free.load(Ordering::SeqCst);
        let mut oldest = Vec::new();
        while free < target {
            let Some(transaction) = unfinished.pop_front() else { break };
            free += transaction.ring_blocks;
            oldest.push(transaction);
        }
        oldest
    }

    /// Writes a batch of versions, in the order of their homes, to where they belong; neighbours together.
    fn bring_home(&self, volume: &Volume, batch: &[Homeward<'_>], bytes: &mut Vec<u8>) -> Result<()> {
        let block_bytes = volume.block_bytes() as usize;
        let _homes = self.homes.lock_nested(INSIDE);
        bytes.clear();
        // First and number of blocks that lie behind one another.
        let mut runs: Vec<(FsBlock, usize)> = Vec::new();
        for version in batch {
            let Some(Committed { buffer, seal, .. }) = version.committed() else { continue };
            let begin = bytes.len();
            bytes.extend_from_slice(&buffer);
            seal.apply(volume, version.home, &mut bytes[begin..]);
            match runs.last_mut() {
                Some((first, count)) if first.0 + *count as u64 == version.home.0 => *count += 1,
                _ => runs.push((version.home, 1)),
            }
        }
        let mut requests = Vec::with_capacity(runs.len());
        let mut rest = &bytes[..];
        for (first, count) in runs {
            let (data, after) = rest.split_at(count * block_bytes);
            requests.push(Request::Write { offset: first.0 * block_bytes as u64, data });
            rest = after;
        }
        Ok(volume.device().run_batch(&mut requests)?)
    }
}

impl Homeward<'_> {
    /// The version, while no younger transaction has one and the block is metadata.
    fn committed(&self) -> Option<Committed> {
        self.block.lock().beside().committed.as_ref().filter(|committed| committed.tid == self.tid).cloned()
    }

    fn is_newest(&self) -> bool {
        self.block.lock().beside().committed.as_ref().is_some_and(|committed| committed.tid == self.tid)
    }

    /// The log's version is needed no more.
    fn is_at_home(&self) {
        let mut guard = self.block.lock();
        let committed = &mut guard.beside_mut().committed;
        if committed.as_ref().is_some_and(|committed| committed.tid == self.tid) {
            *committed = None;
        }
    }
}
