//! The maintenance thread: a thread that does what is due from time to time.
//!
//! It marks the array clean when nothing was written for a while, clears bits of the write-intent bitmap, lets spares
//! take the places of failed members, has replacements whose old member failed take its place, and begins to replace
//! members that did not take what was written to them. A member that does not answer is looked at every second, and left
//! out when its limit is over. It sleeps until there is something to do; the wake wakes it when
//! that changes. Bits that must not be cleared, because a member is missing, are nothing to do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::core::Core;
use super::open::log_of;
use super::records::{Duty, Raise};
use super::wake::Seen;
use crate::member::Member;
use crate::timeout::LATE;
use crate::{Result, ppl};

/// Nothing was written for this time: the array is marked clean. What Linux waits.
const QUIET_FOR: Duration = Duration::from_millis(200);

/// How a device took up a duty.
pub(super) enum Joining {
    Joined,
    /// It could not be written, for this reason, and has no duty.
    Broken(String),
}

impl Core {
    /// What the maintenance thread does until the array is closed.
    pub(super) fn keep(&self) {
        let mut seen = Seen::default();
        let mut cleared = Instant::now();
        while !self.wake.is_closing() {
            let entered = self.shared.entered();
            self.wake.wait(&mut seen, self.nap(cleared));
            if self.wake.is_closing() || !self.takes_writes() {
                continue;
            }
            self.shared.fail_hung();
            // An error in here has stopped the array, or marked a member failed, which is seen from there.
            let _ = self.fill_places();
            if entered == self.shared.entered() {
                let _ = self.make_clean(Some(entered));
            }
            if let Some(intent) = &self.intent
                && cleared.elapsed() >= intent.delay()
            {
                cleared = Instant::now();
                let _ = intent.clear_idle(self, false);
            }
        }
    }

    /// How long there is nothing to do, if the wake is not count. `cleared`: when bits were cleared last.
    fn nap(&self, cleared: Instant) -> Option<Duration> {
        let quiet = (self.is_active() && self.takes_writes()).then_some(QUIET_FOR);
        let intent = self.intent.as_ref().filter(|intent| intent.has_bits_to_clear(self));
        let bits = intent.map(|intent| intent.delay().saturating_sub(cleared.elapsed()));
        let late = (self.takes_writes() && self.shared.is_any_late()).then_some(LATE);
        quiet.into_iter().chain(bits).chain(late).min()
    }

    /// Replacements take the places of members that have failed, and spares those that are empty then. What spares are
    /// left begin to replace members that did not take all that was written to them, as in Linux.
    ///
    /// # Errors
    /// When the superblocks cannot be written.
    pub(super) fn fill_places(&self) -> Result<()> {
        // Members that failed while the superblocks were written are taken out.
        if self.shared.lineup().places.iter().flat_map(crate::member::Place::both).any(|one| one.has_failed())
        {
            self.shared.change_lineup(|_| ());
        }
        if !self.geometry().level.is_redundant() {
            return Ok(());
        }
        let _managing = self.managing.lock();
        for role in 0..self.geometry().members {
            loop {
                let place = self.shared.lineup().places[role as usize].clone();
                if place.member.is_some() {
                    break;
                }
                if let Some(replacement) = place.replacement {
                    self.promote(role, &replacement)?;
                } else if self.enlist(Duty::Active(role))?.is_err() {
                    break;
                }
            }
        }
        for (place, role) in self.shared.lineup().places.iter().zip(0..) {
            if place.member.as_ref().is_some_and(|member| member.wants_replacement() && member.is_in_sync())
                && place.replacement.is_none()
            {
                let _ = self.enlist(Duty::Replacement(role))?;
            }
        }
        Ok(())
    }

    /// Has the first spare that can take up a duty do so. The spares that cannot have failed, and are told. Answers the
    /// spare, or why there is none. The caller holds `managing`.
    ///
    /// # Errors
    /// When the superblocks cannot be written.
    pub(super) fn enlist(&self, duty: Duty) -> Result<std::result::Result<Arc<Member>, String>> {
        let mut reasons = String::new();
        while let Some(spare) = self.spare() {
            let Joining::Broken(reason) = self.join(&spare, duty, false)? else { return Ok(Ok(spare)) };
            reasons += &format!("; {}: {reason}", spare.device().name());
            self.fail_spare(&spare, &reason)?;
        }
        Ok(Err(reasons))
    }

    /// A spare, or a device that could not take up a duty, has failed.
    pub(super) fn fail_spare(&self, spare: &Arc<Member>, reason: &str) -> Result<()> {
        self.record(Raise::Two, |state| {
            if let Some(disk) = state.disk(spare) {
                disk.set_faulty(reason);
            }
        })?;
        spare.set_failed();
        self.changed();
        Ok(())
    }

    pub(super) fn spare(&self) -> Option<Arc<Member>> {
        let needed = self.geometry().common_member_bytes();
        self.records.with_state(|state| {
            let mut spares = state.disks.iter().filter(|disk| disk.duty == Duty::Spare);
            spares.find(|disk| disk.superblock.data.bytes >= needed).map(|disk| Arc::clone(&disk.member))
        })
    }

    /// A replacement goes on as the member of its role.
    fn promote(&self, role: u32, replacement: &Arc<Member>) -> Result<()> {
        self.record(Raise::One, |state| {
            if let Some(disk) = state.disk(replacement) {
                disk.duty = Duty::Active(role);
            }
        })?;
        // No need for quiet: a writer writes to it, as what it was or as what it is.
        self.shared.change_lineup(|lineup| {
            let place = &mut lineup.places[role as usize];
            if place.member.is_none() {
                place.member = place.replacement.take();
            }
        });
        self.changed();
        Ok(())
    }

    /// A device of the array takes up a duty, with nothing right on it yet, or with what the bitmap does not name. The
    /// caller holds `managing`, and does away with a device that cannot.
    ///
    /// # Errors
    /// When the superblocks cannot be written.
    pub(super) fn join(&self, member: &Arc<Member>, duty: Duty, by_bitmap: bool) -> Result<Joining> {
        member.set_recovered(0);
        let quiet = self.shared.quiesce();
        let furnished = self.furnish(member).and_then(|()| self.records.prepare(member, duty, by_bitmap));
        if let Err(error) = furnished {
            return Ok(Joining::Broken(error.to_string()));
        }
        self.record(Raise::One, |state| {
            if let Some(disk) = state.disk(member) {
                if let Duty::Active(role) | Duty::Replacement(role) = duty
                    && let Some(log) = log_of(disk, role, self.geometry())
                {
                    disk.member.set_log(log);
                }
                disk.duty = duty;
                (disk.recovered, disk.by_bitmap) = (0, by_bitmap);
            }
        })?;
        if member.has_failed() {
            let failure = self.records.with_state(|state| state.disk(member)?.failure.clone());
            return Ok(Joining::Broken(failure.unwrap_or_else(|| "it failed".to_owned())));
        }
        let lineup_change = |lineup: &mut crate::member::Lineup| match duty {
            Duty::Active(role) => lineup.places[role as usize].member = Some(Arc::clone(member)),
            Duty::Replacement(role) => lineup.places[role as usize].replacement = Some(Arc::clone(member)),
            Duty::Spare | Duty::Faulty => {}
        };
        self.shared.change_lineup(lineup_change);
        drop(quiet);
        self.changed();
        Ok(Joining::Joined)
    }

    /// Gives a device the whole bitmap, or an empty log, if the array has one.
    pub(super) fn furnish(&self, member: &Member) -> Result<()> {
        let (bitmap, log, events) = self.records.with_state(|state| {
            let events = state.events;
            let superblock = state.disk(member).map(|disk| &disk.superblock);
            (superblock.and_then(|one| one.bitmap), superblock.and_then(|one| one.ppl), events)
        });
        if let (Some(intent), Some(area)) = (&self.intent, bitmap) {
            intent.copy_to(member, area, events)?;
        }
        if let Some(log) = log {
            ppl::format(&**member.device(), log.area, self.identity.uuid)?;
            member.flush()?;
        }
        Ok(())
    }

    /// Members have come or gone.
    pub(super) fn changed(&self) {
        self.jobs.unblock();
        self.wake.notify();
    }
}

#[cfg(test)]
mod tests {
    use undercroft_block::{BlockDevice as _, Device, MemoryDevice};

    use super::*;
    use crate::{Array, ArrayOptions, CreateOptions, Level};

    #[test]
    fn there_is_nothing_to_do_for_bits_that_a_missing_member_needs() {
        let devices: Vec<Device> = (0..2).map(|_| Arc::new(MemoryDevice::new(4 << 20)) as Device).collect();
        let new = CreateOptions { bitmap: true, assume_clean: true, ..CreateOptions::new(Level::Raid1) };
        let array = Array::create(devices, &new, ArrayOptions::default()).unwrap();
        let core = array.core();
        let now = Instant::now;
        assert_eq!(core.nap(now()), None, "nothing was written");
        array.write_at(0, &[1; 4096]).unwrap();
        assert_eq!(core.nap(now()), Some(QUIET_FOR));
        let until_clean = || {
            while core.is_active() {
                std::thread::yield_now();
            }
        };
        until_clean();
        assert!(core.nap(now()).is_some_and(|nap| nap > QUIET_FOR), "a bit is to be cleared, later");
        array.fail(1).unwrap();
        array.write_at(1 << 20, &[1; 4096]).unwrap();
        until_clean();
        assert!(array.status().bitmap.unwrap().set > 0);
        assert_eq!(core.nap(now()), None);
    }

    /// Linux takes how much of a device is right from the device's own superblock: were it written as a mere spare
    /// before it gets its role, a crash in the round that follows would make it a member in sync.
    #[test]
    fn a_device_that_joins_stays_prepared_when_another_change_comes_between() {
        let devices: Vec<Device> = (0..3).map(|_| Arc::new(MemoryDevice::new(4 << 20)) as Device).collect();
        let new = CreateOptions { assume_clean: true, ..CreateOptions::new(Level::Raid1) };
        let array = Array::create(devices[..2].to_vec(), &new, ArrayOptions::default()).unwrap();
        assert_eq!(array.name(), format!("md array {}", array.status().uuid), "it has no name");
        array.add(Arc::clone(&devices[2])).unwrap();
        let core = array.core();
        let spare = core.spare().unwrap();
        for (duty, by_bitmap) in [(Duty::Replacement(0), false), (Duty::Active(1), true)] {
            core.records.prepare(&spare, duty, by_bitmap).unwrap();
            let own = || crate::superblock::read(&*devices[2]).unwrap();
            let prepared = own();
            let first = core.records.with_state(|state| Arc::clone(&state.disks[0].member));
            let block = if by_bitmap { 8 } else { 16 };
            let found = block * 512..(block + 8) * 512;
            assert!(
                crate::recorder::Recorder::bad_blocks_found(
                    &core.records,
                    &first,
                    std::slice::from_ref(&found)
                )
                .unwrap()
            );
            let now = own();
            assert!(now.events > prepared.events, "the change was written to the spare as well");
            assert!(now.recovery.is_some(), "{duty:?}");
            assert_eq!((now.recovery, now.is_replacement), (prepared.recovery, prepared.is_replacement));
        }
    }
}
