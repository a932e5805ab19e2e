//! What the requests to an array and its threads share.
//!
//! A write enters the active writes, sees to it that the superblocks say *active*, has its bits of the write-intent bitmap set,
//! and then goes to the personality. When nothing was written for a while, the array is marked clean again by the
//! maintenance thread: with no write under way and everything flushed, so that what the superblocks then say is true.
//!
//! The contract of block devices knows no write that is durable by itself: data is durable after a flush, which flushes
//! every member. What this crate must have durable for its own sake (superblocks, bitmap, partial parity log) it
//! writes and flushes at once.
//!
//! Order of what is taken: `managing`, then the active writes, then the mutexes of [`Shared`] and [`Records`].

use std::sync::Arc;
use std::time::Duration;

use undercroft_block::{self as block, Access, Operation, Request};
use undercroft_sync::atomic::{AtomicBool, Ordering};
use uuid::Uuid;

use super::intent::{Intended, Intent};
use super::jobs::Jobs;
use super::records::{Raise, Records, State};
use super::wake::WakeSignal;
use crate::level::{Personality, Shared};
use crate::member::Role;
use crate::quiesce::IoMutex;
use crate::superblock::{IN_SYNC, Timestamp, Version};
use crate::{Error, Geometry, Result};

#[derive(Debug)]
pub(super) struct Core {
    /// Of the device, for messages.
    pub(super) title: String,
    pub(super) identity: Identity,
    pub(super) size_bytes: u64,
    /// Why nothing is written, if so from the beginning.
    pub(super) read_only: Option<String>,
    pub(super) shared: Arc<Shared>,
    pub(super) personality: Box<dyn Personality>,
    pub(super) records: Arc<Records>,
    pub(super) intent: Option<Arc<Intent>>,
    pub(super) jobs: Jobs,
    pub(super) wake: Arc<WakeSignal>,
    /// How long a member is waited for.
    pub(super) member_timeout: Option<Duration>,
    /// Taken by threads that let members join or leave.
    pub(super) managing: IoMutex,
    /// The array is closed: the monitor looks once more.
    is_over: AtomicBool,
    /// The superblocks say that writes may be under way. Changed by an active write, or while the array is quiesced.
    is_active: AtomicBool,
}

/// What stays the same while the array lives.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) uuid: Uuid,
    /// `host:name`, or just the name.
    pub(super) name: String,
    pub(super) version: Version,
    pub(super) created: Timestamp,
    pub(super) has_ppl: bool,
    pub(super) warnings: Vec<String>,
}

/// What [`Core::new`] puts together.
pub(super) struct Parts {
    pub(super) identity: Identity,
    pub(super) read_only: Option<String>,
    pub(super) shared: Arc<Shared>,
    pub(super) personality: Box<dyn Personality>,
    pub(super) records: Arc<Records>,
    pub(super) intent: Option<Arc<Intent>>,
    pub(super) jobs: Jobs,
    pub(super) wake: Arc<WakeSignal>,
    pub(super) member_timeout: Option<Duration>,
}

impl Core {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { identity, read_only, shared, personality, records, intent, jobs, wake, member_timeout } =
            parts;
        Self {
            title: match identity.name.as_str() {
                "" => format!("md array {}", identity.uuid),
                name => format!("md array {name}"),
            },
            size_bytes: shared.geometry.array_bytes(),
            identity,
            read_only,
            shared,
            personality,
            records,
            intent,
            jobs,
            wake,
            member_timeout,
            managing: IoMutex::new(),
            is_over: AtomicBool::new(false),
            is_active: AtomicBool::new(false),
        }
    }

    pub(super) fn geometry(&self) -> &Geometry {
        &self.shared.geometry
    }

    pub(super) fn access(&self) -> Access {
        if self.read_only.is_some() { Access::ReadOnly } else { Access::ReadWrite }
    }

    /// Whether the array is closed, and nothing more will happen to it.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Nothing more will happen to it.
    pub(super) fn set_over(&self) {
        self.is_over.store(true, Ordering::Release);
        self.wake.notify();
    }

    /// Whether anything may still be written.
    pub(super) fn takes_writes(&self) -> bool {
        self.read_only.is_none() && self.shared.stopped().is_none()
    }

    pub(super) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    /// Stores bytes; the range is within the array.
    pub(super) fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let _pass = self.shared.enter()?;
        self.make_active()?;
        let intended = self.intend([(offset, data.len() as u64)].into_iter())?;
        self.personality.write(offset, data)?;
        intended.done();
        Ok(())
    }

    /// Carries out a batch whose ranges are within the array.
    pub(super) fn run_batch(&self, batch: &mut [Request<'_>]) -> Result<()> {
        let writes = || batch.iter().filter(|request| matches!(request, Request::Write { .. }));
        if writes().next().is_none() {
            return self.personality.run_batch(batch);
        }
        let _pass = self.shared.enter()?;
        self.make_active()?;
        let intended = self.intend(writes().map(|request| (request.offset(), request.len())))?;
        self.personality.run_batch(batch)?;
        intended.done();
        Ok(())
    }

    /// Has the bits of ranges of the array set before they are written to.
    fn intend(&self, ranges: impl Iterator<Item = (u64, u64)>) -> Result<Intended<'_>> {
        Intended::begin(self, ranges.map(|(offset, len)| self.geometry().sync_range(offset..offset + len)))
    }

    /// Has the superblocks say that writes may be under way. The caller is an active write.
    fn make_active(&self) -> Result<()> {
        if self.is_active() || !self.geometry().level.is_redundant() {
            return Ok(());
        }
        self.record_if(Raise::One, |state| {
            let was_clean = !state.is_active;
            state.is_active = true;
            was_clean
        })?;
        self.is_active.store(true, Ordering::Release);
        self.wake.notify();
        Ok(())
    }

    /// Makes a change durable on all members.
    ///
    /// # Errors
    /// When a member that the array cannot do without does not take its superblock: nothing is written any more.
    pub(super) fn record(&self, raise: Raise, change: impl FnOnce(&mut State)) -> Result<()> {
        self.record_if(raise, |state| {
            change(state);
            true
        })
    }

    /// The same, unless `change` answers that there is nothing to write.
    fn record_if(&self, raise: Raise, change: impl FnOnce(&mut State) -> bool) -> Result<()> {
        let written = self.records.write_if(raise, change);
        written.map_err(|error| self.shared.stop(format!("the superblocks could not be written: {error}")))
    }

    /// Has the superblocks say that all is consistent, unless something was written since `entered` was asked for.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(super) fn make_clean(&self, entered: Option<u64>) -> Result<()> {
        if !self.is_active() || !self.takes_writes() {
            return Ok(());
        }
        let _quiet = self.shared.quiesce();
        if entered.is_some_and(|entered| entered != self.shared.entered()) {
            return Ok(());
        }
        self.flush_members()?;
        self.write_clean()
    }

    /// The caller sees to it that nothing is written, and that everything is flushed.
    fn write_clean(&self) -> Result<()> {
        self.record(Raise::One, |state| state.is_active = false)?;
        self.is_active.store(false, Ordering::Release);
        Ok(())
    }

    /// Everything flushed, no bit set that is not needed, the superblocks clean; nothing is written after that, for this
    /// reason. Called when the threads are gone.
    ///
    /// # Errors
    /// When something could not be written, now or before; the array is then active on the members, and what follows at
    /// the next start sees to it.
    pub(super) fn finish(&self, reason: &str) -> Result<()> {
        if self.read_only.is_some() || self.shared.stopped() == Some(reason) {
            return Ok(());
        }
        self.shared.check_writable()?;
        let _quiet = self.shared.quiesce();
        let finished = self.flush_members().and_then(|()| {
            self.intent.as_ref().map_or(Ok(()), |intent| intent.clear_idle(self, true))?;
            if self.is_active() { self.write_clean() } else { Ok(()) }
        });
        let _ = self.shared.stop(finished.as_ref().map_or_else(ToString::to_string, |()| reason.to_owned()));
        finished
    }

    /// Makes durable what the members were given. A member that cannot do that has failed.
    ///
    /// # Errors
    /// When the array cannot do without those.
    pub(super) fn flush_members(&self) -> Result<()> {
        self.shared.flush(|_| true)
    }

    /// Runs what a thread of the array does. If it panics nothing is written any more, and what waits for it is told.
    pub(super) fn unless_it_panics(&self, work: impl FnOnce(&Self)) {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(self)));
        if let Err(panic) = done {
            let error = self.shared.stop("a thread of the array panicked".to_owned());
            self.jobs.end(Err(error));
            self.wake.notify();
            std::panic::resume_unwind(panic);
        }
    }

    /// Whether every role has a member that is in sync.
    pub(super) fn is_complete(&self) -> bool {
        let lineup = self.shared.lineup();
        (0..self.geometry().members)
            .all(|role| lineup.member(Role(role)).is_some_and(|member| member.is_in_sync()))
    }

    /// Whether the redundancy is right, as far as it is there.
    pub(super) fn is_consistent(&self) -> bool {
        self.records.with_state(|state| state.resynced) == IN_SYNC
    }

    /// An error as a block device gives it.
    pub(super) fn block_error(
        &self,
        error: Error,
        operation: Operation,
        offset: u64,
        len: u64,
    ) -> block::Error {
        let device = self.title.clone();
        block::Error::Io { operation, offset, len, device, source: std::io::Error::other(error) }
    }
}
