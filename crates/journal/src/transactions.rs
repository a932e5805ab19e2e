//! The running transaction: joining it, leaving it, and waiting for commits.
//!
//! Joining is one atomic addition on the slot's cache line and a look at the barrier. An item is listed in the
//! transaction once, by the thread that changes it first. Threads share nothing else.
//!
//! Locks: `unwritten`, of class `transaction`. The conditions of wait queues read atomics only.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use undercroft_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use undercroft_sync::{Mutex, WaitQueue, order};
use undercroft_vfs::{Error, Result};

use crate::checkpoint::{Limits, Log};
use crate::client::HomeOf;
use crate::room::Room;
use crate::slots::{AfterCommit, SlotId, Slots};
use crate::{Client, Handle, Item, ItemGuard, LogHead, LogTail, Stop, Stopped, Tid};

/// What is called with the first cause of an abort.
pub(crate) type AbortListener = Box<dyn Fn(&Error) + Send + Sync>;

/// What transactions have done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Handles that were started.
    pub handles_started: u64,
    /// Transactions that are durable.
    pub commits: u64,
    /// Items that were written to the log.
    pub items_logged: u64,
    /// Checkpoints that made room in the log.
    pub checkpoints: u64,
}

/// Why a handle cannot join the running transaction.
enum Refused {
    /// The transaction is locked for commit.
    Locked,
    /// It has no room for the reservation.
    Full(Tid),
}

/// All transactions of a filesystem that is open for writing.
pub struct Transactions<C: Client> {
    slots: Slots<C>,
    room: Room,
    /// Where they are written; `None` in a filesystem without a log.
    log: Option<Log<C>>,
    running: AtomicU64,
    /// Cancelled homes that take as much of the log as one reserved unit.
    cancelled_per_unit: usize,
    /// The first transaction there was.
    first: Tid,
    /// The last transaction that is durable.
    durable: AtomicU64,
    /// The last transaction that a thread waits for.
    wanted: AtomicU64,
    closing: AtomicBool,
    /// Waiters for the next transaction.
    reopened: WaitQueue,
    /// The commit thread, waiting for work.
    pub(crate) work: WaitQueue,
    /// Waiters for a commit.
    committed: WaitQueue,
    stop: Arc<Stop>,
    abort_listener: OnceLock<AbortListener>,
    abort_reported: AtomicBool,
    /// Whether the disk has a record of the abort.
    pub(crate) recorded: AtomicBool,
    /// Items that were not written because of an abort. They stay in memory, so that readers see them as before.
    unwritten: Mutex<Vec<C::Item>>,
}

impl<C: Client> Transactions<C> {
    /// Transactions of a filesystem without a log, beginning with `first`; each has room for `room` units. The changes
    /// end with `stop`.
    #[must_use]
    pub fn unlogged(first: Tid, room: u32, stop: Arc<Stop>) -> Self {
        Self::new(first, room, usize::MAX, None, stop)
    }

    /// Transactions that are written to a log, beginning with `first`. The changes end with `stop`.
    #[must_use]
    pub fn logged(
        first: Tid,
        head: impl LogHead<C> + 'static,
        tail: impl LogTail<C> + 'static,
        limits: &Limits,
        stop: Arc<Stop>,
    ) -> Self {
        let log = Log::new(Box::new(head), Box::new(tail), limits);
        Self::new(first, limits.room, limits.cancelled_per_unit, Some(log), stop)
    }

    fn new(first: Tid, room: u32, cancelled_per_unit: usize, log: Option<Log<C>>, stop: Arc<Stop>) -> Self {
        Self {
            slots: Slots::new(),
            room: Room::new(room),
            log,
            running: AtomicU64::new(first.0),
            cancelled_per_unit,
            first,
            durable: AtomicU64::new(first.0 - 1),
            wanted: AtomicU64::new(first.0 - 1),
            closing: AtomicBool::new(false),
            reopened: WaitQueue::new(),
            work: WaitQueue::new(),
            committed: WaitQueue::new(),
            stop,
            abort_listener: OnceLock::new(),
            abort_reported: AtomicBool::new(false),
            recorded: AtomicBool::new(false),
            unwritten: Mutex::new(&order::TRANSACTION, Vec::new()),
        }
    }

    pub(crate) fn log(&self) -> Option<&Log<C>> {
        self.log.as_ref()
    }

    /// Joins the running transaction with a reservation of `units`. Waits while a transaction is locked for commit, and
    /// for the next one when this one has no room.
    ///
    /// # Errors
    /// Why the filesystem takes no changes any more.
    pub fn start<'a>(&'a self, client: &'a C, units: u32) -> Result<Handle<'a, C>> {
        let mut waits_for_all = None;
        loop {
            match self.try_start(client, units)? {
                Ok(handle) => return Ok(handle),
                Err(Refused::Locked) => {
                    self.reopened.wait(|| !self.slots.is_locked() || self.has_stopped());
                }
                Err(Refused::Full(tid)) => {
                    // A reservation that is larger than the room gets it in an empty transaction.
                    waits_for_all = waits_for_all.or_else(|| self.room.wait_for_all(units));
                    self.request_commit(tid);
                    self.reopened.wait(|| self.running.load(Ordering::SeqCst) > tid.0 || self.has_stopped());
                }
            }
        }
    }

    /// As [`start`](Self::start), and does not wait: for the commit thread, which would wait for itself. `None` where
    /// there is no room.
    ///
    /// # Errors
    /// Why the filesystem takes no changes any more.
    pub fn start_if_room<'a>(&'a self, client: &'a C, units: u32) -> Result<Option<Handle<'a, C>>> {
        Ok(self.try_start(client, units)?.ok())
    }

    fn try_start<'a>(
        &'a self,
        client: &'a C,
        units: u32,
    ) -> Result<std::result::Result<Handle<'a, C>, Refused>> {
        let declared = order::JOURNAL.declare();
        let slot = SlotId::here();
        self.check()?;
        if !self.slots.join(slot) {
            return Ok(Err(Refused::Locked));
        }
        let tid = Tid(self.running.load(Ordering::Relaxed));
        if !self.extend(slot, units) {
            self.slots.leave(slot);
            return Ok(Err(Refused::Full(tid)));
        }
        self.slots.count_started(slot);
        Ok(Ok(self.handle(client, tid, slot, units, Some(declared))))
    }

    fn handle<'a>(
        &'a self,
        client: &'a C,
        tid: Tid,
        slot: SlotId,
        units: u32,
        declared: Option<undercroft_sync::Declared>,
    ) -> Handle<'a, C> {
        Handle {
            client,
            transactions: self,
            tid,
            slot,
            reserved: std::cell::Cell::new(units),
            began_unwinding: std::thread::panicking(),
            _declared: declared,
        }
    }

    /// Units that one transaction has room for. A handle that reserves more gets an empty one.
    #[must_use]
    pub fn room(&self) -> u32 {
        self.room.size()
    }

    /// How many handles have been started since the beginning.
    #[must_use]
    pub fn handles_started(&self) -> u64 {
        self.slots.started()
    }

    /// What has been done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (checkpoints, items_logged) = self.log.as_ref().map_or((0, 0), Log::counts);
        Stats {
            handles_started: self.handles_started(),
            commits: self.durable.load(Ordering::Relaxed) + 1 - self.first.0,
            items_logged,
            checkpoints,
        }
    }

    /// The running transaction.
    #[must_use]
    pub fn running(&self) -> Tid {
        Tid(self.running.load(Ordering::SeqCst))
    }

    /// Whether a transaction is durable.
    #[must_use]
    pub fn is_durable(&self, tid: Tid) -> bool {
        self.durable.load(Ordering::Acquire) >= tid.0
    }

    /// Makes a transaction, and all before it, durable. The caller holds nothing that a handle could wait for.
    ///
    /// # Errors
    /// Why the filesystem takes no changes any more.
    pub fn commit(&self, tid: Tid) -> Result<()> {
        if !self.is_durable(tid) {
            // Waits for other threads' handles, so debug builds stop a caller that has one.
            let _declared = order::JOURNAL.declare();
            self.request_commit(tid);
            self.committed.wait(|| self.is_durable(tid) || self.has_stopped());
        }
        if self.is_durable(tid) { Ok(()) } else { self.check() }
    }

    /// Makes everything durable that was done before.
    ///
    /// # Errors
    /// Why the filesystem takes no changes any more; the device's.
    pub fn commit_everything(&self, client: &C) -> Result<()> {
        let running = self.running();
        if self.has_changes() {
            return self.commit(running);
        }
        // The running transaction has no changes for one of three reasons: nothing has changed since it opened; it is
        // locked for commit and its changes have been taken; or that commit is done and the next transaction is open.
        // The lock is read before the number, because the commit opens the next transaction before it lifts the
        // barrier.
        let is_locked = self.slots.is_locked();
        let is_empty = !is_locked && self.running() == running;
        self.commit(if is_empty { Tid(running.0 - 1) } else { running })?;
        match self.stop.get() {
            None => client.flush(),
            Some(Stopped::Closed) => Ok(()),
            Some(stopped) => Err(stopped.refusal()),
        }
    }

    /// Makes everything durable that was done before, and writes it back: no recovery makes those changes again once the
    /// next transaction is durable. Returns the last transaction of which that is true. The caller has no handle.
    ///
    /// # Errors
    /// Why the filesystem takes no changes any more; the device's.
    pub fn write_everything_back(&self, client: &C) -> Result<Tid> {
        self.commit_everything(client)?;
        // A transaction is on the checkpoint list before it counts as durable.
        let last = Tid(self.durable.load(Ordering::Acquire));
        if let Some(log) = self.log()
            && let Err(error) = log.checkpoint_everything(client, &|| self.has_stopped())
        {
            self.abort_because(&error);
            return Err(error);
        }
        self.check()?;
        Ok(last)
    }

    /// Aborts the changes for good: what is in memory does not reach the disk any more. The first cause is kept.
    pub fn abort(&self, text: &str) {
        self.stop(Stopped::inconsistency(text));
    }

    /// As [`abort`](Self::abort), for an error that says more than its text.
    pub fn abort_because(&self, error: &Error) {
        self.stop(Stopped::because_of(&error.to_string(), error));
    }

    /// As [`abort`](Self::abort): `text` says what failed, and `error` why.
    pub fn abort_with(&self, text: &str, error: &Error) {
        self.stop(Stopped::because_of(text, error));
    }

    /// Ends the changes without a failure.
    pub fn shut_down(&self) {
        self.stop(Stopped::ShutDown);
    }

    pub(crate) fn stop(&self, why: Stopped) {
        self.stop.set(why);
        for waiters in [&self.committed, &self.reopened, &self.work] {
            waiters.wake_all();
        }
        if let Some(log) = &self.log {
            log.wake_all();
        }
        self.report_abort();
    }

    /// Calls `listener` once, with the first cause, when the changes have been aborted.
    pub fn when_aborted(&self, listener: Box<dyn Fn(&Error) + Send + Sync>) {
        let _ = self.abort_listener.set(listener);
        self.report_abort();
    }

    fn report_abort(&self) {
        if let (Some(listener), Err(error)) = (self.abort_listener.get(), self.first_failure())
            && !self.abort_reported.swap(true, Ordering::SeqCst)
        {
            // The failing thread goes on. It may be unwinding, where a second panic would end the process, or be the
            // one that records the abort.
            let _ = catch_unwind(AssertUnwindSafe(|| listener(&error)));
        }
    }

    /// Refuses once the changes have ended.
    ///
    /// # Errors
    /// The first cause.
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.stop.check()
    }

    /// What was aborted, and why.
    ///
    /// # Errors
    /// The first cause of the abort.
    pub fn first_failure(&self) -> Result<()> {
        match self.stop.get() {
            Some(aborted @ Stopped::Aborted { .. }) => Err(aborted.refusal()),
            Some(Stopped::Closed | Stopped::ShutDown) | None => Ok(()),
        }
    }

    pub(crate) fn stopped(&self) -> Option<&Stopped> {
        self.stop.get()
    }

    /// Whether no changes are taken any more.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.stop.get().is_some()
    }

    pub(crate) fn add_item(&self, slot: SlotId, item: C::Item) {
        self.slots.add_item(slot, item);
    }

    pub(crate) fn after_commit(&self, slot: SlotId, then: AfterCommit<C>) {
        self.slots.add_after_commit(slot, then);
    }

    pub(crate) fn cancel(&self, client: &C, slot: SlotId, tid: Tid, home: HomeOf<C>) {
        // An item that is not in memory may be in the log all the same, so its home is listed in any case.
        if let Some(item) = client.cached(home) {
            item.lock().state_mut().cancel(tid);
        }
        if self.slots.add_cancelled(slot, home).is_multiple_of(self.cancelled_per_unit) {
            self.room.use_one();
        }
    }

    pub(crate) fn extend(&self, slot: SlotId, units: u32) -> bool {
        self.room.reserve(&self.slots.get(slot).pool, units)
    }

    pub(crate) fn leave(&self, slot: SlotId, unused: u32) {
        self.room.release(&self.slots.get(slot).pool, unused);
        self.slots.leave(slot);
    }

    fn request_commit(&self, tid: Tid) {
        if self.wanted.fetch_max(tid.0, Ordering::SeqCst) < tid.0 {
            self.work.wake_all();
        }
    }

    // For the commit thread.

    /// Whether a thread waits for the running transaction.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) >= self.running.load(Ordering::SeqCst)
    }

    /// Locks the running transaction for commit and waits for the open handles to finish. The handle that is returned is
    /// the only one.
    pub(crate) fn lock<'a>(&'a self, client: &'a C) -> Handle<'a, C> {
        let slot = SlotId::here();
        self.slots.lock(slot);
        self.handle(client, self.running(), slot, 0, None)
    }

    pub(crate) fn slots(&self) -> &Slots<C> {
        &self.slots
    }

    /// Whether the running transaction has anything to write.
    pub(crate) fn has_changes(&self) -> bool {
        self.slots.has_changes()
    }

    /// Keeps items in memory that will not be written.
    pub(crate) fn keep_unwritten(&self, items: impl Iterator<Item = C::Item>) {
        self.unwritten.lock().extend(items);
    }

    /// Opens the next transaction.
    pub(crate) fn open_next(&self) {
        self.slots.empty_pools();
        self.room.reset();
        self.running.fetch_add(1, Ordering::SeqCst);
        self.slots.unlock();
        self.reopened.wake_all();
    }

    pub(crate) fn set_durable(&self, tid: Tid) {
        self.durable.store(tid.0, Ordering::Release);
        self.committed.wake_all();
    }

    /// Asks the commit thread to end once the requested commits are done.
    pub(crate) fn begin_closing(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.work.wake_all();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }
}

impl<C: Client> std::fmt::Debug for Transactions<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transactions")
            .field("stats", &self.stats())
            .field("stop", &self.stop)
            .finish_non_exhaustive()
    }
}
