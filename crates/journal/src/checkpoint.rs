//! Log space, and the checkpoint list: transactions that are durable in the log and not yet written back.
//!
//! The oldest transaction on the list holds the log's space from its own on. Checkpoints write transactions back, oldest
//! first, when log space runs low; the checkpoint thread does it, and the thread that closes the filesystem.
//!
//! What always holds:
//!
//! - only versions that are durable in the log are written back, and of each item the newest. An item that a younger
//!   transaction has logged too is written back with that one;
//! - log space is used again only after its items are written back: the homes are flushed, then the tail moves, durably,
//!   then the space is free;
//! - an item whose home stopped being metadata is not written back once its space may be used:
//!   [`cancel_write_back`](Log::cancel_write_back) takes its version away under the lock that each batch is written
//!   under;
//! - a [pinned](Item::is_pinned) item keeps its transaction, and those after it, on the list.
//!
//! Locks: `head`, held by the thread that commits; `tail`, held by the thread that checkpoints, and inside it `batch`,
//! for one batch, all of class `journal`; `list`, of class `transaction`.

use std::collections::VecDeque;

use undercroft_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use undercroft_sync::{Mutex, WaitQueue, order};
use undercroft_vfs::{Corruption, Error, Result};

use crate::client::HomeOf;
use crate::item::Committed;
use crate::{Client, Item, ItemGuard, LogHead, LogTail, Position, Tid, Transaction};

/// `batch` is locked inside `tail`.
const INSIDE: u32 = 1;

/// Sizes of a log, in the units of the client: of log space, and of reservations.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Log space that transactions may use.
    pub space: u64,
    /// Log space in use at which checkpoints begin, whose items stay in memory; half of `space` at most.
    pub checkpoint_at: u64,
    /// Units that the handles of one transaction may reserve. A transaction that uses all of them takes a quarter of
    /// `space` at most, so that commits and checkpoints overlap.
    pub room: u32,
    /// Cancelled homes that take as much of the log as one reserved unit.
    pub cancelled_per_unit: usize,
    /// Items that one batch of a checkpoint writes back.
    pub batch_items: usize,
}

/// A version on its way home.
#[derive(Debug)]
pub struct WriteBack<'a, I: Item> {
    /// The item, which may have changed since.
    pub item: &'a I,
    /// Its newest durable version.
    pub version: I::Version,
    /// Where the log has it.
    pub position: Position,
}

/// Log space that a transaction took, and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged {
    space: u64,
    position: Position,
}

/// A log that is being written.
pub(crate) struct Log<C: Client> {
    head: Mutex<Box<dyn LogHead<C>>>,
    tail: Mutex<Box<dyn LogTail<C>>>,
    batch: Mutex<()>,
    list: Mutex<VecDeque<Listed<C::Item>>>,
    /// Log space that transactions may use, and how much of it is free.
    space: u64,
    free: AtomicU64,
    /// Free space below which checkpoints begin, and with which they end.
    low: u64,
    high: u64,
    /// Free space that a commit waits for.
    wanted: AtomicU64,
    batch_items: usize,
    stopped: AtomicBool,
    /// The oldest transaction has a pinned item: the next commit may change that.
    is_blocked: AtomicBool,
    /// The commit thread, waiting for free space.
    freed: WaitQueue,
    /// The checkpoint thread, waiting for work.
    work: WaitQueue,
    checkpoints: AtomicU64,
    items_logged: AtomicU64,
}

/// A transaction on the checkpoint list.
struct Listed<I> {
    tid: Tid,
    logged: Logged,
    items: Vec<I>,
}

/// An item on the checkpoint list, with its transaction.
struct Candidate<'a, I> {
    tid: Tid,
    item: &'a I,
}

/// How far a checkpoint came.
enum Progress {
    AllWritten,
    /// The changes have ended: some items may be written back.
    Stopped,
}

impl<C: Client> Log<C> {
    pub(crate) fn new(head: Box<dyn LogHead<C>>, tail: Box<dyn LogTail<C>>, limits: &Limits) -> Self {
        let Limits { space, checkpoint_at, batch_items, .. } = *limits;
        Self {
            head: Mutex::new(&order::JOURNAL, head),
            tail: Mutex::new(&order::JOURNAL, tail),
            batch: Mutex::new(&order::JOURNAL, ()),
            list: Mutex::new(&order::TRANSACTION, VecDeque::new()),
            space,
            free: AtomicU64::new(space),
            low: space - checkpoint_at,
            high: space - checkpoint_at / 2,
            wanted: AtomicU64::new(0),
            batch_items: batch_items.max(1),
            stopped: AtomicBool::new(false),
            is_blocked: AtomicBool::new(false),
            freed: WaitQueue::new(),
            work: WaitQueue::new(),
            checkpoints: AtomicU64::new(0),
            items_logged: AtomicU64::new(0),
        }
    }

    /// Checkpoints that were made, and items that were logged.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.checkpoints.load(Ordering::Relaxed), self.items_logged.load(Ordering::Relaxed))
    }

    /// Writes a transaction to the log and makes it durable. Waits until the log has room; `check` refuses once the
    /// changes have ended, which ends the wait.
    ///
    /// # Errors
    /// The device's; why the changes have ended; corruption where the log is too small for the transaction.
    pub(crate) fn append(
        &self,
        client: &C,
        transaction: &Transaction<C::Item>,
        check: impl Fn() -> Result<()>,
    ) -> Result<Logged> {
        let mut head = self.head.lock();
        let space = head.space(transaction);
        if space > self.space {
            return Err(corrupt(format!("a transaction needs {space} units of a log of {}", self.space)));
        }
        if self.free.load(Ordering::SeqCst) < space {
            self.wanted.store(space, Ordering::SeqCst);
            self.work.wake_all();
            self.freed.wait(|| self.free.load(Ordering::SeqCst) >= space || check().is_err());
            self.wanted.store(0, Ordering::SeqCst);
            check()?;
        }
        let position = head.append(client, transaction)?;
        self.items_logged.fetch_add(transaction.items.len() as u64, Ordering::Relaxed);
        Ok(Logged { space, position })
    }

    /// Puts a transaction that has become durable on the checkpoint list.
    pub(crate) fn add_to_checkpoint_list(&self, transaction: &mut Transaction<C::Item>, logged: Logged) {
        let tid = transaction.tid;
        let items = std::mem::take(&mut transaction.items);
        let items = items
            .into_iter()
            .map(|frozen| {
                let committed = Committed { tid, position: logged.position, version: frozen.version };
                frozen.item.lock().state_mut().committed = Some(committed);
                frozen.item
            })
            .collect();
        self.list.lock().push_back(Listed { tid, logged, items });
        // After it is listed: a thread that finds little space finds what can be written back.
        self.free.fetch_sub(logged.space, Ordering::SeqCst);
        self.unblock();
        if self.free.load(Ordering::SeqCst) < self.low {
            self.work.wake_all();
        }
    }

    /// On return no version of these homes is being written back or ever will be, so their space may be used.
    pub(crate) fn cancel_write_back(&self, client: &C, cancelled: &[HomeOf<C>]) {
        if cancelled.is_empty() {
            return;
        }
        {
            let _batch = self.batch.lock_nested(INSIDE);
            for home in cancelled {
                if let Some(item) = client.cached(*home) {
                    item.lock().state_mut().committed = None;
                }
            }
        }
        self.unblock();
    }

    /// Runs checkpoints whenever log space is low, until it is stopped; for the checkpoint thread.
    ///
    /// # Errors
    /// The device's. Nothing is written back after that.
    pub(crate) fn checkpoint_when_needed(&self, client: &C, has_stopped: impl Fn() -> bool) -> Result<()> {
        let is_needed = || self.target().is_some() && !self.is_blocked.load(Ordering::SeqCst);
        loop {
            self.work.wait(|| is_needed() || self.stopped.load(Ordering::SeqCst) || has_stopped());
            if self.stopped.load(Ordering::SeqCst) || has_stopped() {
                return Ok(());
            }
            let Some(target) = self.target() else { continue };
            self.checkpoint(client, target, &has_stopped)?;
        }
    }

    /// Writes back what is durable by now.
    ///
    /// # Errors
    /// The device's. Nothing is written back after that.
    pub(crate) fn checkpoint_everything(&self, client: &C, has_stopped: &impl Fn() -> bool) -> Result<()> {
        self.checkpoint(client, self.space, has_stopped)
    }

    /// Ends the checkpoint thread.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.work.wake_all();
    }

    pub(crate) fn wake_all(&self) {
        self.work.wake_all();
        self.freed.wake_all();
    }

    /// Writes everything back and empties the log. No thread commits any more.
    ///
    /// # Errors
    /// The device's; corruption where an item is pinned for good.
    pub(crate) fn empty(&self, client: &C, next: Tid) -> Result<()> {
        self.checkpoint(client, self.space, &|| false)?;
        if let Some(listed) = self.list.lock().front() {
            return Err(corrupt(format!("transaction {} has an intent that was never done", listed.tid.0)));
        }
        self.tail.lock().make_empty(client, next)
    }

    /// Records in the log that its writer has aborted. Nothing is being written back when this returns.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn record_abort(&self, client: &C) -> Result<()> {
        self.tail.lock().record_abort(client)
    }

    /// Something has changed for a pinned item. A checkpoint that finds the list blocked after this looks again.
    fn unblock(&self) {
        if C::Item::CAN_PIN && self.is_blocked.swap(false, Ordering::SeqCst) {
            self.work.wake_all();
        }
    }

    /// How much space should be free, if less is.
    fn target(&self) -> Option<u64> {
        let free = self.free.load(Ordering::SeqCst);
        let wanted = self.wanted.load(Ordering::SeqCst);
        (free < self.low.max(wanted)).then_some(self.high.max(wanted))
    }

    /// Writes the oldest transactions back until `target` space is free or none is left that can be.
    fn checkpoint(&self, client: &C, target: u64, has_stopped: &impl Fn() -> bool) -> Result<()> {
        let mut tail = self.tail.lock();
        let oldest = self.take_oldest(target);
        let Some(last) = oldest.last() else { return Ok(()) };
        let next = last.tid.next();
        let freed = oldest.iter().map(|listed| listed.logged.space).sum();
        let done = self.write_all_back(client, &oldest, has_stopped).and_then(|progress| match progress {
            Progress::AllWritten => tail.advance(client, freed, next),
            // The log's tail stays before them.
            Progress::Stopped => Ok(()),
        });
        if done.is_err() || has_stopped() {
            // Not written back, so they stay in memory.
            let mut list = self.list.lock();
            oldest.into_iter().rev().for_each(|listed| list.push_front(listed));
            return done;
        }
        self.free.fetch_add(freed, Ordering::SeqCst);
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.freed.wake_all();
        Ok(())
    }

    /// Takes the transactions off the list whose space, with what is free, makes `target`. Stops before one that has a
    /// pinned item.
    fn take_oldest(&self, target: u64) -> Vec<Listed<C::Item>> {
        // Before the items are looked at: a commit that unpins one afterwards clears it again.
        if C::Item::CAN_PIN {
            self.is_blocked.store(true, Ordering::SeqCst);
        }
        let mut free = self.free.load(Ordering::SeqCst);
        let mut oldest = Vec::new();
        while free < target {
            let Some(listed) = self.list.lock().pop_front() else { break };
            // Items are looked at without the list's lock. Only the thread that holds `tail` takes from the front.
            if listed.is_pinned() {
                self.list.lock().push_front(listed);
                break;
            }
            free += listed.logged.space;
            oldest.push(listed);
        }
        if !oldest.is_empty() || self.list.lock().is_empty() {
            self.is_blocked.store(false, Ordering::SeqCst);
        }
        oldest
    }

    /// Writes back, durably, the newest versions that these transactions have of their items, unless the changes end
    /// before that is done.
    fn write_all_back(
        &self,
        client: &C,
        transactions: &[Listed<C::Item>],
        has_stopped: &impl Fn() -> bool,
    ) -> Result<Progress> {
        let of = |listed| {
            let Listed { tid, items, .. }: &Listed<C::Item> = listed;
            items.iter().map(|item| Candidate { tid: *tid, item })
        };
        let mut newest: Vec<_> = transactions.iter().flat_map(of).filter(Candidate::is_newest).collect();
        newest.sort_unstable_by_key(|candidate| candidate.item.home());
        for batch in newest.chunks(self.batch_items) {
            if has_stopped() {
                return Ok(Progress::Stopped);
            }
            let _batch = self.batch.lock_nested(INSIDE);
            let versions: Vec<_> = batch.iter().filter_map(Candidate::write_back).collect();
            client.write_back(&versions)?;
        }
        client.flush()?;
        newest.iter().for_each(Candidate::is_written_back);
        Ok(Progress::AllWritten)
    }
}

impl<I: Item> Listed<I> {
    fn is_pinned(&self) -> bool {
        let is_pinned = |item: &I| item.is_pinned() && item.lock().state().committed_in(self.tid).is_some();
        I::CAN_PIN && self.items.iter().any(is_pinned)
    }
}

impl<'a, I: Item> Candidate<'a, I> {
    /// The version, while no younger transaction has logged one and its home is metadata.
    fn write_back(&self) -> Option<WriteBack<'a, I>> {
        let committed = self.item.lock().state().committed_in(self.tid).cloned()?;
        let Committed { version, position, .. } = committed;
        Some(WriteBack { item: self.item, version, position })
    }

    fn is_newest(&self) -> bool {
        self.item.lock().state().committed_in(self.tid).is_some()
    }

    /// The log's version is needed no more.
    fn is_written_back(&self) {
        let mut guard = self.item.lock();
        let state = guard.state_mut();
        if state.committed_in(self.tid).is_some() {
            state.committed = None;
        }
    }
}

fn corrupt(detail: String) -> Error {
    Corruption { structure: "journal", ino: None, block: None, detail: detail.into() }.into()
}
