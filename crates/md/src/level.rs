//! What a level is to its array: requests come in, members are read and written, failures are reported.
//!
//! The array checks ranges and access, keeps the array marked dirty and the write-intent bitmap ahead of the writes,
//! and drives background work; a [`Personality`] turns each request into requests to members. What both share is in
//! [`Shared`].
//!
//! Locks: the array enters the active writes for every write, the rest is the personality's own. A change of the lineup holds an
//! `IoMutex` (see [`quiesce`](crate::quiesce)), in which superblocks are written: no lock is held when a member is reported.

pub(crate) mod batch;
pub(crate) mod mirrored;
pub(crate) mod striped;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod write_errors;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use undercroft_block as block;

use crate::member::{Lineup, Member, Role};
use crate::quiesce::{ActiveWrite, ActiveWrites, IoMutex, Quiesced};
use crate::recorder::Recorder;
use crate::{Error, Geometry, Result, fan_out};

/// What an array and its personality share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) geometry: Geometry,
    pub(crate) recorder: Box<dyn Recorder>,
    lineup: ArcSwap<Lineup>,
    writes: ActiveWrites,
    /// Taken by a thread that changes the lineup.
    changing: IoMutex,
    /// Why nothing is written any more.
    stopped: OnceLock<String>,
    /// So many bytes from the front of the sync space have their redundancy right; `u64::MAX` for all.
    resynced: AtomicU64,
    /// Whether members are not to be written to, though perhaps they could be.
    is_read_only: AtomicBool,
}

/// Background work on a range of the sync space: the data areas of the members side by side (RAID1, 4, 5, 6), or the
/// array itself (RAID10). Recovery goes through the data areas in RAID10 as well
/// ([`recover_bytes`](Geometry::recover_bytes)), as each member has a mark up to which it is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncWork {
    /// Make the redundancy right from the data (after an unclean stop).
    Resync,
    /// Write members, and replacements, that are not recovered so far.
    Recover,
    /// Compare only, and count what differs.
    Check,
    /// Compare, count, and make right.
    Repair,
}

/// What a step of background work did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SyncStep {
    /// Bytes that are done, from the step's beginning; not zero.
    pub(crate) done: u64,
    /// Bytes that did not agree, counted as Linux counts `mismatch_cnt` (in units of its own requests).
    pub(crate) mismatched: u64,
}

/// What RAID4, 5 and 6 have counted since the array was started; all 0 for other levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Stripes of the cache that came free.
    pub released_stripes: u64,
    /// Threads woken because stripes had come free.
    pub wake_ups: u64,
    /// Of those, such as found nothing and slept again.
    pub vain_wake_ups: u64,
    /// Stripes written whole, without reading.
    pub whole_stripe_writes: u64,
    /// Stripes written in part, with old data and parity read.
    pub read_modify_writes: u64,
    /// Stripes written in part, with the rest of the data read.
    pub reconstruct_writes: u64,
}

/// A level at work. All methods are called by any number of threads at once.
pub(crate) trait Personality: Send + Sync + fmt::Debug {
    /// Fills `buf` from `offset` of the array; the range lies within it.
    ///
    /// # Errors
    /// When no redundancy helps any more.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Stores `data` at `offset` of the array; the range lies within it. On return it is on all members that take
    /// part, or on so many that it can be read.
    ///
    /// # Errors
    /// When so many members are lost that it could not be read again.
    fn write(&self, offset: u64, data: &[u8]) -> Result<()>;

    /// Carries out requests that do not overlap, many at once.
    ///
    /// # Errors
    /// The first failure.
    fn run_batch(&self, batch: &mut [block::Request<'_>]) -> Result<()> {
        for request in batch {
            match request {
                block::Request::Read { offset, buf } => self.read(*offset, buf)?,
                block::Request::Write { offset, data } => self.write(*offset, data)?,
            }
        }
        Ok(())
    }

    /// One step of background work from `position` of the space that the work goes through, `len` bytes at most;
    /// excludes by itself requests to the same bytes, and lets all others go on.
    ///
    /// # Errors
    /// When the work cannot go on.
    fn sync(&self, position: u64, len: u64, work: SyncWork) -> Result<SyncStep>;

    /// Bytes of memory that the level holds for its work at this moment.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// What it has counted so far.
    fn counters(&self) -> Counters {
        Counters::default()
    }
}

impl Shared {
    pub(crate) fn new(geometry: Geometry, lineup: Lineup, recorder: Box<dyn Recorder>) -> Self {
        Self {
            geometry,
            recorder,
            lineup: ArcSwap::from_pointee(lineup),
            writes: ActiveWrites::new(),
            changing: IoMutex::new(),
            stopped: OnceLock::new(),
            resynced: AtomicU64::new(u64::MAX),
            is_read_only: AtomicBool::new(false),
        }
    }

    /// The array was opened for reading: nothing is healed. To be called before it is used.
    pub(crate) fn set_read_only(&self) {
        self.is_read_only.store(true, Ordering::Relaxed);
    }

    /// Whether a member may be written to without a request for it.
    pub(crate) fn may_heal(&self, member: &Member) -> bool {
        // Relaxed: set before the array is used.
        !self.is_read_only.load(Ordering::Relaxed)
            && self.stopped.get().is_none()
            && member.device().access() == block::Access::ReadWrite
            && !member.has_failed()
            && !member.is_late()
    }

    /// Whether the redundancy of a range of the sync space is right. Where it is not, all copies of a byte are read
    /// from the same member, and parity is recomputed and not from what was there.
    pub(crate) fn is_resynced(&self, offset: u64, len: u64) -> bool {
        // Acquire: the thread that moved the mark has written what lies before it.
        offset.saturating_add(len) <= self.resynced.load(Ordering::Acquire)
    }

    /// Background work has come so far; before the array is used, where the last stop was unclean.
    pub(crate) fn set_resynced(&self, bytes: u64) {
        self.resynced.store(bytes, Ordering::Release);
    }

    /// The members that take part at this moment.
    pub(crate) fn lineup(&self) -> arc_swap::Guard<Arc<Lineup>> {
        self.lineup.load()
    }

    /// The member of the role if the range of its data area may be read, and it answers, or nothing can be read
    /// without it.
    pub(crate) fn readable<'l>(
        &self,
        lineup: &'l Lineup,
        role: Role,
        offset: u64,
        len: u64,
    ) -> Option<&'l Arc<Member>> {
        let member = lineup.readable(role, offset, len)?;
        let is_waited_for = !self.is_resynced(offset, len) || !self.can_do_without_late(lineup);
        (!member.is_late() || is_waited_for).then_some(member)
    }

    /// Whether what the members in sync hold is enough without those that are late.
    fn can_do_without_late(&self, lineup: &Lineup) -> bool {
        self.geometry.is_enough(|role| {
            lineup.member(Role(role)).is_some_and(|member| member.is_in_sync() && !member.is_late())
        })
    }

    /// Whether a member has not answered for unusually long.
    pub(crate) fn is_any_late(&self) -> bool {
        self.lineup.load().all().any(|(_, member)| member.is_late())
    }

    /// Leaves out the members that have not answered within their limit.
    pub(crate) fn fail_hung(&self) {
        let lineup = Arc::clone(&self.lineup.load());
        for (role, member) in lineup.all() {
            if let Some(cause) = member.hung() {
                // An array that cannot do without it has stopped, and says so to its writers.
                let _ = self.fail(role, member, &cause);
            }
        }
    }

    /// Changes the members that take part; changes come one after the other. When a member joins, the caller sees to it that the
    /// array is quiet.
    pub(crate) fn change_lineup<R>(&self, change: impl FnOnce(&mut Lineup) -> R) -> R {
        let _changing = self.changing.lock();
        self.publish(change)
    }

    fn publish<R>(&self, change: impl FnOnce(&mut Lineup) -> R) -> R {
        let mut lineup = Lineup::clone(&self.lineup.load());
        let result = change(&mut lineup);
        lineup.drop_failed();
        self.lineup.store(Arc::new(lineup));
        result
    }

    /// A write enters.
    ///
    /// # Errors
    /// When nothing is written any more.
    pub(crate) fn enter(&self) -> Result<ActiveWrite<'_>> {
        let active = self.writes.enter();
        self.check_writable()?;
        Ok(active)
    }

    /// Nothing is written until the answer is dropped. Not to be called by a writer.
    pub(crate) fn quiesce(&self) -> Quiesced<'_> {
        self.writes.quiesce()
    }

    /// See [`ActiveWrites::entered`].
    pub(crate) fn entered(&self) -> u64 {
        self.writes.entered()
    }

    /// A member answered a write with an error, or a flush, and cannot record what it lacks: it is left out from now
    /// on. Returns when that is durable, so that what it missed may be answered; until then, a writer still
    /// writes to it, gets its errors, and comes here to wait.
    ///
    /// # Errors
    /// When the array can neither do without it nor record that it is gone: nothing is written any more. A member that
    /// the array cannot do without stays, so that what it can still read is read.
    pub(crate) fn fail(&self, role: Role, member: &Arc<Member>, cause: &dyn fmt::Display) -> Result<()> {
        let _changing = self.changing.lock();
        if member.has_failed() {
            return self.check_writable();
        }
        let lineup = self.lineup.load();
        let is_member = lineup.member(role).is_some_and(|present| Arc::ptr_eq(present, member));
        let is_replacement = lineup.replacement(role).is_some_and(|present| Arc::ptr_eq(present, member));
        if !is_member && !is_replacement {
            // It was removed in between.
            return Ok(());
        }
        if is_member && member.is_in_sync() && !self.can_do_without(&lineup, role) {
            return Err(self.stop(format!("{} cannot be done without: {cause}", member.device().name())));
        }
        let mut without = Lineup::clone(&lineup);
        without.remove(member);
        if let Err(error) = self.recorder.member_failed(member, &without, cause) {
            let name = member.device().name();
            return Err(self
                .stop(format!("that {name} failed ({cause}) could not be recorded on the others: {error}")));
        }
        member.set_failed();
        self.publish(|lineup| lineup.remove(member));
        Ok(())
    }

    /// A member could not read something and has taken it again. One that does this too often has failed, unless the
    /// array cannot do without it.
    ///
    /// # Errors
    /// When it cannot be recorded that it failed.
    pub(crate) fn note_corrected(&self, role: Role, member: &Arc<Member>, offset: u64) -> Result<()> {
        let Some(recent) = member.corrected_reads().count() else { return Ok(()) };
        let is_member = self.lineup.load().member(role).is_some_and(|present| Arc::ptr_eq(present, member));
        if member.has_failed() || !is_member || !self.can_do_without(&self.lineup.load(), role) {
            return Ok(());
        }
        let cause = format!(
            "it could not read {recent} times of late, the last time at byte {offset}, though it took what was written \
             again; {} are allowed",
            crate::corrected::MAX_RECENT
        );
        self.fail(role, member, &cause)
    }

    /// Makes durable what the members of all roles that `wanted` chooses were given.
    ///
    /// # Errors
    /// When a member fails that the array cannot do without, and ever after: such a member stays, and its next flush may
    /// well succeed, without what the failed one lost.
    pub(crate) fn flush(&self, wanted: impl Fn(Role) -> bool) -> Result<()> {
        self.check_writable()?;
        for (role, member, error) in self.try_flush(wanted) {
            self.fail(role, &member, &error)?;
        }
        // Another flush at the same time may have been the one that was told.
        self.check_writable()
    }

    /// The same, but leaves out no member, and says which could not.
    pub(crate) fn try_flush(&self, wanted: impl Fn(Role) -> bool) -> Vec<(Role, Arc<Member>, block::Error)> {
        struct Flush<'a> {
            role: Role,
            member: &'a Arc<Member>,
            result: block::Result<()>,
        }
        let lineup = self.lineup();
        let mut flushes: Vec<_> = lineup
            .all()
            .filter(|(role, _)| wanted(*role))
            .map(|(role, member)| Flush { role, member, result: Ok(()) })
            .collect();
        fan_out::at_once(
            &mut flushes,
            |flush| (&flush.member.flush_pace, 0),
            |flush| flush.result = flush.member.flush(),
        );
        let failed = flushes
            .into_iter()
            .filter_map(|flush| Some((flush.role, Arc::clone(flush.member), flush.result.err()?)));
        failed.collect()
    }

    /// Whether the members in sync are enough without the one of this role.
    fn can_do_without(&self, lineup: &Lineup, without: Role) -> bool {
        self.geometry.is_enough(|role| {
            role != without.0 && lineup.member(Role(role)).is_some_and(|member| member.is_in_sync())
        })
    }

    /// Writes nothing any more, for this reason, or for the one that came before.
    pub(crate) fn stop(&self, cause: String) -> Error {
        let first = self.stopped.get_or_init(|| cause);
        self.recorder.stopped();
        Error::Stopped(first.clone())
    }

    /// Why nothing is written any more.
    pub(crate) fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }

    /// # Errors
    /// [`Error::Stopped`].
    pub(crate) fn check_writable(&self) -> Result<()> {
        match self.stopped.get() {
            None => Ok(()),
            Some(cause) => Err(Error::Stopped(cause.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use undercroft_block::{BlockDevice as _, MemoryDevice};

    use super::*;
    use crate::member::Place;
    use crate::{Layout, Level, ParityLayout};

    /// Counts what it is told, and cannot record it when told so.
    #[derive(Clone, Debug, Default)]
    struct Told(Arc<(AtomicUsize, AtomicBool)>);

    impl Recorder for Told {
        fn member_failed(&self, failed: &Member, lineup: &Lineup, _: &dyn fmt::Display) -> Result<()> {
            assert!(!failed.has_failed(), "writers skip it only when that is durable");
            assert!(lineup.places.iter().flat_map(Place::both).all(|one| one.number() != failed.number()));
            if self.0.1.load(Ordering::SeqCst) {
                return Err(Error::Invalid("no".to_owned()));
            }
            self.0.0.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }

        fn keeps_bad_blocks(&self, _: &Member) -> bool {
            false
        }

        fn bad_blocks_found(&self, _: &Member, _: &[Range<u64>]) -> Result<bool> {
            Ok(false)
        }

        fn bad_blocks_written(&self, _: &Member, _: Range<u64>) {}

        fn has_bad_blocks(&self, _: &Member, _: Range<u64>) -> bool {
            false
        }
    }

    fn raid5() -> (Shared, Told, block::Error) {
        let told = Told::default();
        let places = (0..3)
            .map(|number| Place {
                member: Some(Arc::new(Member::new(
                    Arc::new(MemoryDevice::new(1 << 20)),
                    number,
                    0,
                    u64::MAX,
                ))),
                replacement: None,
            })
            .collect();
        let geometry = Geometry {
            level: Level::Raid5,
            layout: Layout::Parity(ParityLayout::LeftSymmetric),
            members: 3,
            chunk_bytes: 65536,
            member_bytes: vec![1 << 20; 3],
        };
        let cause = MemoryDevice::new(0).read_at(0, &mut [0]).unwrap_err();
        (Shared::new(geometry, Lineup { places }, Box::new(told.clone())), told, cause)
    }

    fn member(shared: &Shared, role: u32) -> Arc<Member> {
        Arc::clone(shared.lineup().member(Role(role)).unwrap())
    }

    #[test]
    fn a_lost_member_is_recorded_once_and_left_out() {
        let (shared, told, cause) = raid5();
        let lost = member(&shared, 1);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| shared.fail(Role(1), &lost, &cause).unwrap());
            }
        });
        assert_eq!(told.0.0.load(Ordering::SeqCst), 1);
        assert!(shared.lineup().places[1].member.is_none());
        assert!(shared.enter().is_ok());
    }

    #[test]
    fn a_member_that_cannot_be_done_without_stays_and_ends_the_writing() {
        let (shared, told, cause) = raid5();
        shared.fail(Role(1), &member(&shared, 1), &cause).unwrap();
        let second = member(&shared, 2);
        assert!(matches!(shared.fail(Role(2), &second, &cause), Err(Error::Stopped(_))));
        assert!(shared.lineup().member(Role(2)).is_some(), "what it can still read is read");
        assert!(matches!(shared.enter(), Err(Error::Stopped(cause)) if cause.contains("memory device")));
        assert_eq!(told.0.0.load(Ordering::SeqCst), 1, "the superblocks keep it");
    }

    #[test]
    fn a_member_that_is_being_rebuilt_can_be_done_without() {
        let (shared, _, cause) = raid5();
        member(&shared, 0).set_recovered(4096);
        shared.fail(Role(0), &member(&shared, 0), &cause).unwrap();
        assert!(shared.fail(Role(1), &member(&shared, 1), &cause).is_err());
    }

    #[test]
    fn a_loss_that_cannot_be_recorded_ends_the_writing() {
        let (shared, told, cause) = raid5();
        told.0.1.store(true, Ordering::SeqCst);
        assert!(shared.fail(Role(0), &member(&shared, 0), &cause).is_err());
        told.0.1.store(false, Ordering::SeqCst);
        assert!(matches!(shared.enter(), Err(Error::Stopped(_))), "nothing finds its way back by itself");
        assert!(shared.lineup().member(Role(0)).is_some());
    }

    #[test]
    fn a_failed_replacement_costs_nothing() {
        let (shared, told, cause) = raid5();
        let new = Arc::new(Member::new(Arc::new(MemoryDevice::new(1 << 20)), 3, 0, 0));
        shared.change_lineup(|lineup| lineup.places[0].replacement = Some(Arc::clone(&new)));
        shared.fail(Role(1), &member(&shared, 1), &cause).unwrap();
        shared.fail(Role(0), &new, &cause).unwrap();
        assert_eq!(told.0.0.load(Ordering::SeqCst), 2);
        assert!(shared.lineup().places[0].replacement.is_none() && shared.lineup().member(Role(0)).is_some());
    }
}
