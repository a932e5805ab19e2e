//! The running transaction: who has joined it, and what they have changed.
//!
//! Threads are dealt out to places, and each place counts its own handles and lists its own blocks, so two threads
//! that change different blocks meet nowhere. Who closes the transaction first shuts the door, then waits until all
//! places are empty; who joins first counts itself, then looks at the door. Whichever is second sees the other.
//!
//! Room in the transaction is handed out to places in small pools, and from these to handles, so that joining writes
//! to the place's own lines only.
//!
//! Locks: one of class `transaction` for each place's lists. The queues' conditions read atomics only.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use undercroft_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use undercroft_sync::{Mutex, WaitQueue, order, thread_number};
use undercroft_vfs::{Error, Result};

use super::failure::Ended;
use super::journal::Journal;
use super::{Block, Handle, Stop, Tid};
use crate::fs::WriteStats;
use crate::journal::Sequence;
use crate::numbers::FsBlock;
use crate::volume::Volume;

/// More than threads that a machine runs at once; a power of two.
const PLACES: usize = 32;
/// All pools together, when they are full, hold this part of a transaction's room, or less.
const PART_IN_POOLS: u32 = 8;
/// A pool is filled with no more than this.
const POOL_MAX: u32 = 256;

/// What runs once a transaction is durable.
pub(crate) type AfterCommit = Box<dyn FnOnce(&Volume) + Send>;

/// What is called with the first cause of a failure.
pub(crate) type TellFailure = Box<dyn Fn(&Error) + Send + Sync>;

/// Which place a thread has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(usize);

/// Alone on its cache lines.
#[repr(align(128))]
struct Seat {
    handles: AtomicU32,
    /// Blocks that were taken from the transaction's room and not given to a handle yet.
    pool: AtomicU32,
    /// Handles that were ever started here: the count of what overwrites do not start.
    started: AtomicU64,
    changes: Mutex<Changes>,
}

/// What the handles of one place have done.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) blocks: Vec<Block>,
    /// Blocks that stopped being metadata.
    pub(super) forgotten: Vec<FsBlock>,
    pub(super) after_commit: Vec<AfterCommit>,
}

/// Why nobody joins the running transaction at the moment.
enum Refused {
    /// It is being closed.
    Closed,
    /// It has no room for as much.
    Full(Tid),
}

/// What is written often, apart from what everybody reads.
#[repr(align(128))]
struct Apart<T>(T);

/// All transactions of a filesystem that is open for writing.
pub(crate) struct Transactions {
    seats: Box<[Seat]>,
    /// Where they are written; `None` in a filesystem without a log.
    journal: Option<Journal>,
    /// The door: no handle joins.
    closed: AtomicBool,
    running: AtomicU64,
    /// Blocks that the handles of the running transaction may enter at most, and how many fit.
    reserved: Apart<AtomicU32>,
    room: u32,
    /// How much a pool is filled with.
    pool: u32,
    /// Blocks that are forgotten take room as well: so many of them as much as one that changes.
    forgotten_per_credit: usize,
    /// The first transaction there was.
    first: Tid,
    /// The last transaction that is durable, and the last that somebody wants to be.
    durable: AtomicU64,
    wanted: AtomicU64,
    stopped: AtomicBool,
    /// Waiters for the next transaction, for the places to be empty, for a commit to be wanted, and for one to be done.
    reopened: WaitQueue,
    emptied: WaitQueue,
    pub(super) called: WaitQueue,
    done: WaitQueue,
    /// Whether and why nothing is changed any more.
    stop: Arc<Stop>,
    /// What is told of a failure, once.
    tell_failure: OnceLock<TellFailure>,
    failure_told: AtomicBool,
    /// Whether the disk has been told why.
    pub(super) recorded: AtomicBool,
    /// What was not written because of a failure. It stays in memory, so that it is seen as before.
    abandoned: Mutex<Vec<Block>>,
}

impl Transactions {
    /// Begins with transaction `first`; a transaction has room for `room` blocks.
    pub(crate) fn new(first: Tid, room: u32) -> Self {
        let seat = || Seat {
            handles: AtomicU32::new(0),
            pool: AtomicU32::new(0),
            started: AtomicU64::new(0),
            changes: Mutex::new(&order::TRANSACTION, Changes::default()),
        };
        Self {
            seats: (0..PLACES).map(|_| seat()).collect(),
            journal: None,
            closed: AtomicBool::new(false),
            running: AtomicU64::new(first.0),
            reserved: Apart(AtomicU32::new(0)),
            room,
            pool: (room / PART_IN_POOLS / PLACES as u32).min(POOL_MAX),
            forgotten_per_credit: usize::MAX,
            first,
            durable: AtomicU64::new(first.0 - 1),
            wanted: AtomicU64::new(first.0 - 1),
            stopped: AtomicBool::new(false),
            reopened: WaitQueue::new(),
            emptied: WaitQueue::new(),
            called: WaitQueue::new(),
            done: WaitQueue::new(),
            stop: Arc::default(),
            tell_failure: OnceLock::new(),
            failure_told: AtomicBool::new(false),
            recorded: AtomicBool::new(false),
            abandoned: Mutex::new(&order::TRANSACTION, Vec::new()),
        }
    }

    /// Transactions that are written to a log, beginning with the number that it expects.
    pub(crate) fn logged(first: Sequence, journal: Journal) -> Self {
        // Above all that is in nobody's memory: a block that was never changed has the number 0 beside it.
        let first = Tid(1 << 32 | u64::from(first.0));
        let transactions = Self::new(first, journal.room());
        let forgotten_per_credit = journal.records_per_block() as usize;
        Self { journal: Some(journal), forgotten_per_credit, ..transactions }
    }

    /// The same, whose end is the end of what is written through a [device](super::StoppedWith).
    pub(crate) fn stopping(self, stop: Arc<Stop>) -> Self {
        Self { stop, ..self }
    }

    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Joins the running transaction to change at most `credits` blocks. Waits while a transaction is being closed,
    /// and for the next one when this one has no room.
    ///
    /// # Errors
    /// Why the filesystem takes no changes any more.
    pub(crate) fn start<'a>(&'a self, volume: &'a Volume, credits: u32) -> Result<Handle<'a>> {
        loop {
            match self.try_start(volume, credits)? {
                Ok(handle) => return Ok(handle),
                Err(Refused::Closed) => {
                    self.reopened.wait(|| !self.closed.load(Ordering::SeqCst) || self.has_ended());
                }
                Err(Refused::Full(tid)) => {
                    // A handle that alone asks for more than there is gets it in an empty transaction.
                    self.ask_for(tid);
                    self.reopened.wait(|| self.running.load(Ordering::SeqCst) > tid.0 || self.has_ended());
                }
            }
        }
    }

    /// As [`start`](Self::start), and waits for nothing: for the thread that commits, for which nobody would make room.
    /// `None` where there is none.
    ///
    /// # Errors
    /// Why the filesystem takes no changes any more.
    pub(crate) fn start_if_room<'a>(
        &'a self,
        volume: &'a Volume,
        credits: u32,
    ) -> Result<Option<Handle<'a>>> {
        Ok(self.try_start(volume, credits)?.ok())
    }

    fn try_start<'a>(
        &'a self,
        volume: &'a Volume,
        credits: u32,
    ) -> Result<std::result::Result<Handle<'a>, Refused>> {
        let declared = order::JOURNAL.declare();
        let place = Place::here();
        let seat = &self.seats[place.0];
        self.check()?;
        seat.handles.fetch_add(1, Ordering::SeqCst);
        if self.closed.load(Ordering::SeqCst) {
            self.stand_up(seat);
            return Ok(Err(Refused::Closed));
        }
        let tid = Tid(self.running.load(Ordering::Relaxed));
        if !self.reserve(seat, credits) {
            self.stand_up(seat);
            return Ok(Err(Refused::Full(tid)));
        }
        seat.started.fetch_add(1, Ordering::Relaxed);
        let credits = std::cell::Cell::new(credits);
        let began_unwinding = std::thread::panicking();
        let _declared = Some(declared);
        Ok(Ok(Handle { volume, transactions: self, tid, place, credits, began_unwinding, _declared }))
    }

    /// How many handles have been started since the beginning.
    pub(crate) fn handles_started(&self) -> u64 {
        self.seats.iter().map(|seat| seat.started.load(Ordering::Relaxed)).sum()
    }

    /// How it has gone so far.
    pub(crate) fn stats(&self) -> WriteStats {
        let (checkpoints, blocks_logged) = self.journal.as_ref().map_or((0, 0), Journal::counts);
        WriteStats {
            handles_started: self.handles_started(),
            commits: self.durable.load(Ordering::Relaxed) + 1 - self.first.0,
            blocks_logged,
            checkpoints,
        }
    }

    /// The running transaction.
    pub(crate) fn running(&self) -> Tid {
        Tid(self.running.load(Ordering::SeqCst))
    }

    /// Whether a transaction is durable.
    pub(crate) fn is_durable(&self, tid: Tid) -> bool {
        self.durable.load(Ordering::Acquire) >= tid.0
    }

    /// Makes a transaction, and all before it, durable. Nothing that a handle could wait for may be held.
    ///
    /// # Errors
    /// Why the filesystem takes no changes any more.
    pub(crate) fn commit(&self, tid: Tid) -> Result<()> {
        if !self.is_durable(tid) {
            // Waits for other threads' handles, so debug builds stop who has one.
            let _declared = order::JOURNAL.declare();
            self.ask_for(tid);
            self.done.wait(|| self.is_durable(tid) || self.has_ended());
        }
        if self.is_durable(tid) { Ok(()) } else { self.check() }
    }

    /// Makes everything durable that was done before.
    ///
    /// # Errors
    /// Why the filesystem takes no changes any more; the device's.
    pub(crate) fn commit_everything(&self, volume: &Volume) -> Result<()> {
        let running = self.running();
        if self.has_changes() {
            return self.commit(running);
        }
        // Nothing has been changed since this transaction opened; or it is being closed, and what it changed has been
        // taken; or that is done, and the next one is open. In this order, for the door opens last.
        let is_closing = self.closed.load(Ordering::SeqCst);
        let is_empty = !is_closing && self.running() == running;
        self.commit(if is_empty { Tid(running.0 - 1) } else { running })?;
        match self.ended() {
            None => volume.flush(),
            Some(Ended::Closed) => Ok(()),
            Some(ended) => Err(ended.refusal()),
        }
    }

    /// Ends the changes for good: what is in memory does not reach the disk any more. The first cause is kept.
    pub(crate) fn fail(&self, cause: &str) {
        self.end(Ended::failed(cause));
    }

    /// As [`fail`](Self::fail), for an error that says more than its text.
    pub(crate) fn fail_because(&self, error: &Error) {
        self.end(Ended::because_of(&error.to_string(), error));
    }

    /// As [`fail`](Self::fail), where `error` is the reason and `cause` says of what.
    pub(crate) fn fail_with(&self, cause: &str, error: &Error) {
        self.end(Ended::because_of(cause, error));
    }

    /// Ends the changes when everything is durable.
    pub(super) fn closed(&self) {
        self.end(Ended::Closed);
    }

    /// Ends the changes, and nothing is wrong.
    pub(crate) fn shut_down(&self) {
        self.end(Ended::ShutDown);
    }

    fn end(&self, why: Ended) {
        self.stop.end(why);
        for waiters in [&self.done, &self.reopened, &self.called] {
            waiters.wake_all();
        }
        if let Some(journal) = &self.journal {
            journal.wake_all();
        }
        self.tell_failure();
    }

    /// Has `tell` called once, with the first cause, when the changes have ended because of a failure.
    pub(crate) fn when_failed(&self, tell: TellFailure) {
        let _ = self.tell_failure.set(tell);
        self.tell_failure();
    }

    fn tell_failure(&self) {
        if let (Some(tell), Err(error)) = (self.tell_failure.get(), self.failure())
            && !self.failure_told.swap(true, Ordering::SeqCst)
        {
            // The failing thread goes on. It may be unwinding, where a second panic would end the process, or be the
            // one that records the failure.
            let _ = catch_unwind(AssertUnwindSafe(|| tell(&error)));
        }
    }

    /// Refuses once the changes have ended.
    ///
    /// # Errors
    /// The first cause.
    pub(crate) fn check(&self) -> Result<()> {
        self.stop.check()
    }

    /// What went wrong first.
    ///
    /// # Errors
    /// That.
    pub(super) fn failure(&self) -> Result<()> {
        match self.ended() {
            Some(failed @ Ended::Failed { .. }) => Err(failed.refusal()),
            Some(Ended::Closed | Ended::ShutDown) | None => Ok(()),
        }
    }

    pub(super) fn ended(&self) -> Option<&Ended> {
        self.stop.ended()
    }

    /// Whether nothing is changed any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended().is_some()
    }

    pub(super) fn enter(&self, place: Place, block: Block) {
        self.seats[place.0].changes.lock().blocks.push(block);
    }

    pub(super) fn after_commit(&self, place: Place, then: AfterCommit) {
        self.seats[place.0].changes.lock().after_commit.push(then);
    }

    pub(super) fn forget(&self, volume: &Volume, place: Place, tid: Tid, home: FsBlock) {
        // Not in the cache: it may be in the log all the same, so it is revoked.
        if let Some(block) = volume.buffers().cached(home.0) {
            block.lock().beside_mut().forgotten_in = Some(tid);
        }
        let mut changes = self.seats[place.0].changes.lock();
        changes.forgotten.push(home);
        if changes.forgotten.len().is_multiple_of(self.forgotten_per_credit) {
            self.reserved.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn extend(&self, place: Place, blocks: u32) -> bool {
        self.reserve(&self.seats[place.0], blocks)
    }

    pub(super) fn leave(&self, place: Place, credits: u32) {
        let seat = &self.seats[place.0];
        if credits > 0 {
            if seat.pool.load(Ordering::Relaxed).saturating_add(credits) <= 2 * self.pool {
                seat.pool.fetch_add(credits, Ordering::Relaxed);
            } else {
                self.reserved.0.fetch_sub(credits, Ordering::Relaxed);
            }
        }
        self.stand_up(seat);
    }

    fn reserve(&self, seat: &Seat, credits: u32) -> bool {
        let from_pool = |pool: u32| pool.checked_sub(credits);
        if seat.pool.fetch_update(Ordering::Relaxed, Ordering::Relaxed, from_pool).is_ok() {
            return true;
        }
        if self.pool > 0 && self.take_room(credits.saturating_add(self.pool)) {
            seat.pool.fetch_add(self.pool, Ordering::Relaxed);
            return true;
        }
        self.take_room(credits)
    }

    fn take_room(&self, blocks: u32) -> bool {
        let before = self.reserved.0.fetch_add(blocks, Ordering::Relaxed);
        let fits = before == 0 || before.saturating_add(blocks) <= self.room;
        if !fits {
            self.reserved.0.fetch_sub(blocks, Ordering::Relaxed);
        }
        fits
    }

    fn stand_up(&self, seat: &Seat) {
        seat.handles.fetch_sub(1, Ordering::SeqCst);
        if self.closed.load(Ordering::SeqCst) {
            self.emptied.wake_all();
        }
    }

    /// Wants a transaction committed.
    fn ask_for(&self, tid: Tid) {
        if self.wanted.fetch_max(tid.0, Ordering::SeqCst) < tid.0 {
            self.called.wake_all();
        }
    }

    // For the committing thread.

    /// Whether somebody waits for the running transaction.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) >= self.running.load(Ordering::SeqCst)
    }

    /// Shuts the door and waits until nobody is inside. The handle it answers with is the only one.
    pub(super) fn close<'a>(&'a self, volume: &'a Volume) -> Handle<'a> {
        self.closed.store(true, Ordering::SeqCst);
        self.emptied.wait(|| self.seats.iter().all(|seat| seat.handles.load(Ordering::SeqCst) == 0));
        let place = Place::here();
        self.seats[place.0].handles.fetch_add(1, Ordering::SeqCst);
        let tid = self.running();
        let credits = std::cell::Cell::new(0);
        let began_unwinding = std::thread::panicking();
        Handle { volume, transactions: self, tid, place, credits, began_unwinding, _declared: None }
    }

    /// Everything that the running transaction has changed.
    pub(super) fn take_changes(&self) -> Changes {
        let mut all = Changes::default();
        for seat in &self.seats {
            let mut changes = seat.changes.lock();
            all.blocks.append(&mut changes.blocks);
            all.forgotten.append(&mut changes.forgotten);
            all.after_commit.append(&mut changes.after_commit);
        }
        all
    }

    /// Whether the running transaction has anything to write.
    pub(super) fn has_changes(&self) -> bool {
        self.seats.iter().any(|seat| !seat.changes.lock().is_empty())
    }

    /// Keeps blocks in memory that will not be written.
    pub(super) fn abandon(&self, blocks: impl Iterator<Item = Block>) {
        self.abandoned.lock().extend(blocks);
    }

    /// Begins the next transaction and opens the door.
    pub(super) fn open_next(&self) {
        for seat in &self.seats {
            seat.pool.store(0, Ordering::Relaxed);
        }
        self.reserved.0.store(0, Ordering::Relaxed);
        self.running.fetch_add(1, Ordering::SeqCst);
        self.closed.store(false, Ordering::SeqCst);
        self.reopened.wake_all();
    }

    pub(super) fn set_durable(&self, tid: Tid) {
        self.durable.store(tid.0, Ordering::Release);
        self.done.wake_all();
    }

    /// Asks the committing thread to end after what is wanted is done.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.called.wake_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.forgotten.is_empty() && self.after_commit.is_empty()
    }
}

impl Place {
    /// The calling thread's.
    fn here() -> Self {
        Self(thread_number() % PLACES)
    }
}
