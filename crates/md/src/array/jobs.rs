//! Background work: which of it is due, a thread that does it, and what it tells of itself.
//!
//! What is due, in this order: members and replacements that are not recovered, a resync, a check or repair that was
//! asked for. Recovery counts bytes of the members, the rest bytes of the sync space. Each step is a call of the
//! personality, which excludes requests to the same bytes by itself. At a sixteenth of the whole, and when it is
//! interrupted, how far it came is flushed and then written to the superblocks, so that it goes on there after a stop.
//! What failed is not tried again before a member comes or goes.
//!
//! Locks: what is known of the work is under the class `ARRAY`, never held while the personality is called.

use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use undercroft_sync::{Mutex, order};

use super::core::Core;
use super::records::{Duty, Raise};
use super::wake::Seen;
use crate::level::SyncWork;
use crate::member::{Member, Role};
use crate::superblock::IN_SYNC;
use crate::{Error, Result};

/// So much is done before anything else is looked at.
const STEP_BYTES: u64 = 1 << 20;
/// With a limit, a step is a tenth of a second's worth, and not less than this.
const SMALLEST_STEP_BYTES: u64 = 64 << 10;
/// How far it came is written down so many times, and after each of these times.
const CHECKPOINTS: u64 = 16;
const CHECKPOINT_EVERY: Duration = Duration::from_secs(30);
/// How long a thread sleeps at most that waits for its limit, or for a pause to end.
const NAP: Duration = Duration::from_millis(100);

/// Background work that a user may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Making the redundancy right after an unclean stop.
    Resync,
    /// Filling members that joined.
    Recover,
    /// Filling replacements of members that are still there.
    Replace,
    /// Comparing.
    Check,
    /// Comparing, and making right.
    Repair,
}

/// How background work goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What it is.
    pub action: Action,
    /// Bytes that are behind it.
    pub position_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
    /// Over the whole time so far.
    pub bytes_per_second: u64,
    /// It waits to be told to go on.
    pub is_paused: bool,
    /// Bytes that did not agree, counted in units of whole requests as Linux counts them.
    pub mismatched_bytes: u64,
}

/// How background work ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// What it was.
    pub action: Action,
    /// Bytes that did not agree.
    pub mismatched_bytes: u64,
    /// Why it did not come to its end, if so.
    pub interrupted: Option<String>,
}

/// What is known of the background work of an array.
#[derive(Debug)]
pub(super) struct Jobs(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// A check or repair that was asked for.
    requested: Option<SyncWork>,
    is_paused: bool,
    /// Whatever is running is to stop.
    is_stopping: bool,
    bytes_per_second: Option<NonZeroU64>,
    running: Option<Running>,
    finished: Option<Finished>,
    /// Recovery and resync have failed, and wait for a change.
    is_blocked: bool,
}

#[derive(Debug)]
struct Running {
    action: Action,
    position: u64,
    total: u64,
    mismatched: u64,
    /// Done since then, without what was skipped.
    begun: Instant,
    done: u64,
}

/// Work that is due.
struct Job {
    work: SyncWork,
    action: Action,
    /// Of recovery: the members to fill.
    targets: Vec<Arc<Member>>,
    ranges: Vec<Range<u64>>,
    total: u64,
}

/// Whether to go on after a step.
enum Next {
    Step(u64),
    Stop(&'static str),
}

impl Jobs {
    pub(super) fn new(bytes_per_second: Option<NonZeroU64>) -> Self {
        Self(Mutex::new(&order::ARRAY, Table { bytes_per_second, ..Table::default() }))
    }

    pub(super) fn progress(&self) -> Option<Progress> {
        let table = self.0.lock();
        table.running.as_ref().map(|running| Progress {
            action: running.action,
            position_bytes: running.position,
            total_bytes: running.total,
            bytes_per_second: running.speed(),
            is_paused: table.is_paused,
            mismatched_bytes: running.mismatched,
        })
    }

    pub(super) fn finished(&self) -> Option<Finished> {
        self.0.lock().finished.clone()
    }

    pub(super) fn set_limit(&self, bytes_per_second: Option<NonZeroU64>) {
        let mut table = self.0.lock();
        table.bytes_per_second = bytes_per_second;
        if let Some(running) = &mut table.running {
            (running.begun, running.done) = (Instant::now(), 0);
        }
    }

    pub(super) fn set_paused(&self, is_paused: bool) {
        let mut table = self.0.lock();
        table.is_paused = is_paused;
        if let Some(running) = &mut table.running {
            (running.begun, running.done) = (Instant::now(), 0);
        }
    }

    /// Asks for a check or a repair.
    pub(super) fn request(&self, work: SyncWork) -> Result<()> {
        let mut table = self.0.lock();
        if let Some(running) = &table.running {
            return Err(Error::Invalid(format!(
                "background work is under way already: {:?}",
                running.action
            )));
        }
        if table.requested.is_some() {
            return Err(Error::Invalid("a check or repair was asked for already".to_owned()));
        }
        table.requested = Some(work);
        table.finished = None;
        Ok(())
    }

    /// Ends a check or repair, also one that has not begun.
    pub(super) fn cancel(&self) {
        let mut table = self.0.lock();
        table.requested = None;
        let is_check = |running: &Running| matches!(running.action, Action::Check | Action::Repair);
        table.is_stopping = table.running.as_ref().is_some_and(is_check);
    }

    /// What failed may be tried again.
    pub(super) fn unblock(&self) {
        self.0.lock().is_blocked = false;
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.0.lock().is_blocked
    }

    /// Whether nothing is running or asked for.
    pub(super) fn is_idle(&self) -> bool {
        let table = self.0.lock();
        table.running.is_none() && table.requested.is_none()
    }

    fn begin(&self, job: &Job) {
        let mut table = self.0.lock();
        table.requested = None;
        table.is_stopping = false;
        table.running = Some(Running {
            action: job.action,
            position: job.ranges.first().map_or(job.total, |range| range.start),
            total: job.total,
            mismatched: 0,
            begun: Instant::now(),
            done: 0,
        });
    }

    fn advance(&self, position: u64, done: u64, mismatched: u64) {
        if let Some(running) = &mut self.0.lock().running {
            running.position = position;
            running.done += done;
            running.mismatched += mismatched;
        }
    }

    pub(super) fn end(&self, outcome: Result<Option<&'static str>>) {
        let mut table = self.0.lock();
        let Some(running) = table.running.take() else { return };
        let interrupted = match outcome {
            Ok(reason) => reason.map(str::to_owned),
            Err(error) => {
                table.is_blocked |= !matches!(running.action, Action::Check | Action::Repair);
                Some(error.to_string())
            }
        };
        table.is_stopping = false;
        table.finished =
            Some(Finished { action: running.action, mismatched_bytes: running.mismatched, interrupted });
    }
}

impl Running {
    fn speed(&self) -> u64 {
        let seconds = self.begun.elapsed().as_secs_f64();
        if seconds > 0.0 { (self.done as f64 / seconds) as u64 } else { 0 }
    }
}

impl Core {
    /// What the thread for background work does until the array is closed.
    pub(super) fn work(&self) {
        let mut seen = Seen::default();
        while !self.wake.is_closing() {
            let Some(job) = self.next_job() else {
                self.wake.wait(&mut seen, None);
                continue;
            };
            self.jobs.begin(&job);
            let synced = self.synced_by(&job);
            if let Some(intent) = &self.intent {
                intent.begin_sync(&synced);
            }
            let outcome = self.run(&job);
            if let Some(intent) = &self.intent {
                intent.end_sync(&synced, matches!(outcome, Ok(None)) && self.is_complete());
            }
            self.jobs.end(outcome);
            self.wake.notify();
        }
    }

    /// The work that is due now.
    fn next_job(&self) -> Option<Job> {
        if !self.takes_writes() || !self.geometry().level.is_redundant() {
            return None;
        }
        if !self.jobs.is_blocked() {
            let due = self.recovery_due().or_else(|| self.resync_due());
            if due.is_some() {
                return due;
            }
        }
        let work = self.jobs.0.lock().requested?;
        let action = if work == SyncWork::Check { Action::Check } else { Action::Repair };
        let total = self.geometry().sync_bytes();
        Some(Job { work, action, targets: Vec::new(), ranges: only(0..total), total })
    }

    /// Ranges of the sync space in which members do not differ any more when the work is done.
    fn synced_by(&self, job: &Job) -> Vec<Range<u64>> {
        match job.work {
            SyncWork::Resync => job.ranges.clone(),
            // Members that are filled agree with the others; whether the others agree among themselves is another matter.
            SyncWork::Recover if self.is_consistent() => only(0..self.geometry().sync_bytes()),
            SyncWork::Recover | SyncWork::Check | SyncWork::Repair => Vec::new(),
        }
    }

    fn recovery_due(&self) -> Option<Job> {
        let lineup = self.shared.lineup();
        // Replacements on which all is right wait for their role only: the crash came before they got it.
        let waits = |member: &Arc<Member>| {
            let mut replacements = lineup.places.iter().flat_map(|place| &place.replacement);
            replacements.any(|replacement| Arc::ptr_eq(replacement, member))
        };
        let targets: Vec<_> = lineup
            .all()
            .filter(|(_, member)| !member.is_in_sync() || waits(member))
            .map(|(_, member)| Arc::clone(member))
            .collect();
        if targets.is_empty() {
            return None;
        }
        let fills_role =
            lineup.places.iter().flat_map(|place| &place.member).any(|member| !member.is_in_sync());
        let total = self.geometry().recover_bytes();
        let from = targets.iter().map(|member| member.recovered()).min().unwrap_or(0).min(total);
        let by_bitmap = self.records.with_state(|state| {
            let mut to_fill = targets.iter().filter(|member| !member.is_in_sync());
            to_fill.all(|member| state.disk(member).is_some_and(|disk| disk.by_bitmap))
        });
        let ranges = match &self.intent {
            Some(intent) if by_bitmap => {
                let mapped =
                    intent.dirty_ranges().into_iter().flat_map(|dirty| self.geometry().recover_ranges(dirty));
                merge(mapped.collect(), from..total)
            }
            _ => only(from..total),
        };
        let action = if fills_role { Action::Recover } else { Action::Replace };
        Some(Job { work: SyncWork::Recover, action, targets, ranges, total })
    }

    fn resync_due(&self) -> Option<Job> {
        let from = self.records.with_state(|state| state.resynced);
        if from == IN_SYNC {
            return None;
        }
        let total = self.geometry().sync_bytes();
        let ranges = match &self.intent {
            Some(intent) => merge(intent.needed_ranges(), from.min(total)..total),
            None => only(from.min(total)..total),
        };
        Some(Job { work: SyncWork::Resync, action: Action::Resync, targets: Vec::new(), ranges, total })
    }

    /// Does the work. Answers why it was interrupted, if it was.
    fn run(&self, job: &Job) -> Result<Option<&'static str>> {
        let mut checkpoint = (job.ranges.first().map_or(job.total, |range| range.start), Instant::now());
        for range in &job.ranges {
            // What lies between two ranges needs nothing.
            let mut position = range.start;
            self.mark(job, position);
            while position < range.end {
                let step = match self.next_step(job) {
                    Next::Step(bytes) => bytes.min(range.end - position),
                    Next::Stop(reason) => {
                        self.checkpoint(job, position)?;
                        return Ok(Some(reason));
                    }
                };
                let step = self.personality.sync(position, step, job.work)?;
                if step.done == 0 {
                    return Err(Error::Invalid(format!(
                        "background work makes no progress at byte {position}"
                    )));
                }
                position += step.done;
                self.mark(job, position);
                self.jobs.advance(position, step.done, step.mismatched);
                let is_due = position - checkpoint.0 >= (job.total / CHECKPOINTS).max(STEP_BYTES)
                    || checkpoint.1.elapsed() >= CHECKPOINT_EVERY;
                if is_due && position < job.total {
                    self.checkpoint(job, position)?;
                    checkpoint = (position, Instant::now());
                }
            }
        }
        self.complete(job)?;
        Ok(None)
    }

    /// What the members hold up to here is right from now on.
    fn mark(&self, job: &Job, position: u64) {
        for member in &job.targets {
            if position > member.recovered() {
                member.set_recovered(position);
            }
        }
        if job.work == SyncWork::Resync {
            self.shared.set_resynced(position);
        }
    }

    /// Waits as long as it must, and says how much to do next.
    fn next_step(&self, job: &Job) -> Next {
        loop {
            if self.wake.is_closing() {
                return Next::Stop("the array is being closed");
            }
            if self.shared.stopped().is_some() {
                return Next::Stop("the array takes no writes any more");
            }
            if !job.targets.is_empty() && job.targets.iter().all(|member| member.has_failed()) {
                return Next::Stop("the members to fill have failed");
            }
            let (wait, step) = {
                let table = self.jobs.0.lock();
                if table.is_stopping {
                    return Next::Stop("it was told to stop");
                }
                match (&table.running, table.bytes_per_second) {
                    _ if table.is_paused => (NAP, 0),
                    (Some(running), Some(limit)) => {
                        let due = Duration::from_secs_f64(running.done as f64 / limit.get() as f64);
                        let step = (limit.get() / 10).clamp(SMALLEST_STEP_BYTES, STEP_BYTES);
                        (due.saturating_sub(running.begun.elapsed()).min(NAP), step)
                    }
                    _ => (Duration::ZERO, STEP_BYTES),
                }
            };
            if wait.is_zero() {
                return Next::Step(step);
            }
            self.wake.wait_until(wait, || self.wake.is_closing());
        }
    }

    /// Makes durable how far the work has come.
    fn checkpoint(&self, job: &Job, position: u64) -> Result<()> {
        if !matches!(job.work, SyncWork::Recover | SyncWork::Resync) || !self.takes_writes() {
            return Ok(());
        }
        self.flush_members()?;
        self.record(Raise::One, |state| {
            if job.work == SyncWork::Resync {
                state.resynced = position;
            }
            for member in &job.targets {
                if let Some(disk) = state.disk(member)
                    && disk.recovered != IN_SYNC
                {
                    disk.recovered = disk.recovered.max(position);
                }
            }
        })
    }

    /// All of it is done.
    fn complete(&self, job: &Job) -> Result<()> {
        self.flush_members()?;
        match job.work {
            SyncWork::Check | SyncWork::Repair => Ok(()),
            SyncWork::Resync => {
                self.shared.set_resynced(IN_SYNC);
                self.record(Raise::One, |state| state.resynced = IN_SYNC)
            }
            SyncWork::Recover => self.complete_recovery(job),
        }
    }

    fn complete_recovery(&self, job: &Job) -> Result<()> {
        let _managing = self.managing.lock();
        // Old members leave: a thread that still writes to one would not write to the other.
        let quiet = self.shared.quiesce();
        let lineup = self.shared.lineup();
        let places = || lineup.places.iter().zip(0..);
        let is_target = |member: &Arc<Member>| job.targets.iter().any(|target| Arc::ptr_eq(target, member));
        let swaps: Vec<(u32, Arc<Member>)> = places()
            .filter_map(|(place, role)| Some((role, Arc::clone(place.replacement.as_ref()?))))
            .filter(|(_, new)| is_target(new) && !new.has_failed())
            .collect();
        // That all of it is right is durable before an old member is called out: a crash between the superblocks of
        // one round would otherwise leave the new one half right and the old one gone.
        self.record(Raise::One, |state| {
            for member in job.targets.iter().filter(|member| !member.has_failed()) {
                if let Some(disk) = state.disk(member).filter(|disk| disk.duty != Duty::Faulty) {
                    (disk.recovered, disk.by_bitmap) = (IN_SYNC, false);
                }
            }
        })?;
        for member in job.targets.iter().filter(|member| !member.has_failed()) {
            member.set_recovered(IN_SYNC);
        }
        let swaps: Vec<_> = swaps.into_iter().filter(|(_, new)| !new.has_failed()).collect();
        if swaps.is_empty() {
            return Ok(());
        }
        self.record(Raise::Two, |state| {
            for (role, new) in &swaps {
                for disk in &mut state.disks {
                    if disk.duty == Duty::Active(*role) {
                        disk.set_faulty("it was replaced");
                    }
                }
                if let Some(disk) = state.disk(new) {
                    disk.duty = Duty::Active(*role);
                }
            }
        })?;
        for (Role(role), new) in swaps.into_iter().map(|(role, new)| (Role(role), new)) {
            self.shared.change_lineup(|lineup| {
                let place = &mut lineup.places[role as usize];
                place.member = Some(new);
                place.replacement = None;
            });
        }
        drop(quiet);
        Ok(())
    }
}

/// One range, as a list.
fn only(range: Range<u64>) -> Vec<Range<u64>> {
    std::iter::once(range).collect()
}

/// The ranges within `bounds`, in order, those that touch as one.
fn merge(mut ranges: Vec<Range<u64>>, bounds: Range<u64>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        let range = range.start.max(bounds.start)..range.end.min(bounds.end);
        if range.is_empty() {
            continue;
        }
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_merged_within_their_bounds() {
        assert_eq!(merge(vec![50..60, 0..10, 8..20, 20..25, 90..200], 5..100), [5..25, 50..60, 90..100]);
        assert!(merge(only(0..5), 5..10).is_empty());
    }

    #[test]
    fn one_check_at_a_time_may_be_asked_for_and_taken_back() {
        let jobs = Jobs::new(None);
        jobs.request(SyncWork::Check).unwrap();
        assert!(jobs.request(SyncWork::Repair).is_err());
        jobs.cancel();
        assert!(jobs.is_idle());
        jobs.request(SyncWork::Repair).unwrap();
    }
}
