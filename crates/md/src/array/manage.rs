//! Devices come and go while the array is in use: what `mdadm --manage` does.

use std::sync::Arc;

use undercroft_block::Device;

use super::core::Core;
use super::maintenance::Joining;
use super::records::{Disk, Duty, Raise};
use crate::assemble::{Candidate, histories};
use crate::bad_blocks::BadBlocks;
use crate::create::new_member;
use crate::level::SyncWork;
use crate::member::{Member, Role};
use crate::superblock::{DeviceRole, IN_SYNC, Superblock};
use crate::timeout::TimedDevice;
use crate::{Error, Result};

/// Why a member has failed that did nothing wrong.
const DECLARED: &str = "it was declared failed";

impl Core {
    /// A device that joins, nothing of which is right yet.
    fn new_member(&self, device: &Device, number: u32, data_offset: u64) -> Member {
        let timed = TimedDevice::new(device, self.member_timeout, &self.wake);
        Member::new(Arc::clone(device), number, data_offset, 0).with_timeout(timed)
    }

    fn check_managed(&self) -> Result<()> {
        if let Some(reason) = &self.read_only {
            return Err(Error::Invalid(format!("{} is read-only: {reason}", self.title)));
        }
        self.shared.check_writable()
    }

    /// A new spare, which takes a role at once if one is empty. Answers its number.
    pub(super) fn add(&self, device: &Device) -> Result<u32> {
        self.check_managed()?;
        let number = {
            let _managing = self.managing.lock();
            // A member of this array is not overwritten with what it alone holds. What another one held is lost.
            let own_number = match Candidate::read(Arc::clone(device)) {
                Ok(former) if former.superblock.array_uuid == self.identity.uuid => {
                    self.check_history(&former.superblock, device)?;
                    Some(former.superblock.number)
                }
                Err(error @ Error::Device(_)) => return Err(error),
                _ => None,
            };
            let (number, template) = self.records.with_state(|state| -> Result<_> {
                self.check_new(device, state.disks.iter())?;
                let number = state.number_for_new(own_number, self.geometry().members);
                for disk in &mut state.disks {
                    let name = disk.member.device().name();
                    disk.superblock.set_role(number, DeviceRole::Spare, &name)?;
                }
                let alive = state.disks.iter().find(|disk| disk.duty != Duty::Faulty);
                let template = alive.map(|disk| disk.superblock.clone());
                Ok((number, template.ok_or_else(|| Error::TooFewMembers("none is left".to_owned()))?))
            })?;
            let superblock = new_member(&template, number, device.size_bytes(), &device.name())?;
            let member = Arc::new(self.new_member(device, number, superblock.data.offset));
            let bad_blocks = BadBlocks::empty(&superblock);
            let disk = Disk::new(Arc::clone(&member), Duty::Spare, superblock, 0, bad_blocks);
            self.records.with_state(|state| state.disks.push(disk));
            let written = self.furnish(&member).and_then(|()| self.record(Raise::One, |_| ()));
            if written.is_err() || member.has_failed() {
                self.forget(&member);
                written?;
                return Err(Error::Invalid(format!("the superblock of {} cannot be written", device.name())));
            }
            number
        };
        self.fill_places()?;
        self.changed();
        Ok(number)
    }

    fn check_new<'a>(&self, device: &Device, mut disks: impl Iterator<Item = &'a Disk>) -> Result<()> {
        if !self.geometry().level.is_redundant() {
            let level = self.geometry().level;
            return Err(Error::Invalid(format!("an array of {level:?} takes no further devices")));
        }
        if disks.any(|disk| disk.member.is_on(device)) {
            return Err(Error::Invalid(format!("{} is in the array already", device.name())));
        }
        Ok(())
    }

    /// A member that was out comes back to its role, and is given what the write-intent bitmap says it missed.
    pub(super) fn re_add(&self, device: &Device) -> Result<u32> {
        self.check_managed()?;
        let _managing = self.managing.lock();
        let candidate = Candidate::read(Arc::clone(device))?;
        let superblock = candidate.superblock;
        let refuse = |reason: &str| -> Result<u32> {
            Err(Error::Invalid(format!(
                "{} cannot be added again: {reason}; add it as a new one",
                device.name()
            )))
        };
        if superblock.array_uuid != self.identity.uuid {
            return refuse("it belongs to another array");
        }
        self.check_history(&superblock, device)?;
        let DeviceRole::Active(role) = superblock.role() else {
            return refuse("it had no role when it left");
        };
        let Some(intent) = &self.intent else {
            return refuse("the array has no write-intent bitmap, so what it missed is unknown");
        };
        if superblock.events < intent.events_cleared() {
            return refuse("bits of the write-intent bitmap were cleared since it left");
        }
        if superblock.recovery.is_some_and(|recovery| !recovery.by_bitmap) || superblock.is_replacement {
            return refuse("it was not in sync when it left");
        }
        if role >= self.geometry().members || self.shared.lineup().places[role as usize].member.is_some() {
            return refuse("its role is taken");
        }
        if superblock.data.bytes < self.geometry().common_member_bytes() {
            return refuse("it is too small");
        }
        let number = superblock.number;
        let member = Arc::new(self.new_member(device, number, superblock.data.offset));
        let bad_blocks = BadBlocks::read(&**device, &superblock)?;
        let former = self.records.with_state(|state| -> Result<Vec<Disk>> {
            let is_former = |disk: &Disk| {
                disk.duty == Duty::Faulty
                    && (disk.member.is_on(device) || disk.superblock.device_uuid == superblock.device_uuid)
            };
            let others = || state.disks.iter().filter(|disk| !is_former(disk));
            if others().any(|disk| disk.member.number() == number) {
                return refuse("its number was given to another device").map(|_| Vec::new());
            }
            self.check_new(device, others())?;
            let former = state.disks.extract_if(.., |disk| is_former(disk)).collect();
            state.disks.push(Disk::new(Arc::clone(&member), Duty::Spare, superblock, 0, bad_blocks));
            Ok(former)
        })?;
        match self.join(&member, Duty::Active(role), true) {
            Ok(Joining::Joined) => Ok(number),
            outcome => {
                // All is as it was before.
                self.forget(&member);
                self.records.with_state(|state| state.disks.extend(former));
                match outcome? {
                    Joining::Joined => Ok(number),
                    Joining::Broken(reason) => refuse(&reason),
                }
            }
        }
    }

    /// A device that could not join is no part of the array.
    fn forget(&self, member: &Arc<Member>) {
        self.records.with_state(|state| state.disks.retain(|disk| !Arc::ptr_eq(&disk.member, member)));
    }

    /// Refuses a device of this array that has more events than the array, or was written to without it.
    fn check_history(&self, superblock: &Superblock, device: &Device) -> Result<()> {
        let (present, events, freshest) = self.records.with_state(|state| {
            let roles = |disk: &Disk| match disk.duty {
                Duty::Active(role) | Duty::Replacement(role) => Some((disk.member.number(), role)),
                Duty::Spare | Duty::Faulty => None,
            };
            let present: Vec<_> = state.disks.iter().filter_map(roles).collect();
            let freshest = state.disks.iter().find(|disk| roles(disk).is_some());
            (present, state.events, freshest.map(|disk| histories::tell(&disk.superblock)))
        });
        let is_newer = superblock.events > events;
        if !is_newer && !histories::is_apart(superblock, self.geometry().members, present.into_iter()) {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "{} was written to without the other members of {}: it has {}; the array has {}: if the array is the one \
             to keep, its superblock must be erased first (`undercroft md add --force`), and what only it holds is lost",
            device.name(),
            self.title,
            histories::tell(superblock),
            freshest.unwrap_or_default()
        )))
    }

    fn find(&self, number: u32) -> Result<(Arc<Member>, Duty)> {
        let found = self.records.with_state(|state| {
            let mut disks = state.disks.iter();
            disks
                .find(|disk| disk.member.number() == number)
                .map(|disk| (Arc::clone(&disk.member), disk.duty))
        });
        found.ok_or_else(|| Error::Invalid(format!("{} has no device number {number}", self.title)))
    }

    /// Declares a device failed.
    pub(super) fn fail(&self, number: u32) -> Result<()> {
        self.check_managed()?;
        let (member, duty) = self.find(number)?;
        let role = match duty {
            Duty::Faulty => return Ok(()),
            Duty::Spare => return self.fail_spare(&member, DECLARED),
            Duty::Active(role) | Duty::Replacement(role) => Role(role),
        };
        if matches!(duty, Duty::Active(_)) && member.is_in_sync() && !self.can_do_without(role) {
            return Err(Error::Invalid(format!(
                "{} cannot be declared failed: the array cannot do without it",
                member.device().name()
            )));
        }
        self.shared.fail(role, &member, &DECLARED)?;
        self.changed();
        Ok(())
    }

    fn can_do_without(&self, without: Role) -> bool {
        let lineup = self.shared.lineup();
        self.geometry().is_enough(|role| {
            role != without.0 && lineup.member(Role(role)).is_some_and(|member| member.is_in_sync())
        })
    }

    /// Lets go of a spare, or of a device that has failed.
    pub(super) fn remove(&self, number: u32) -> Result<()> {
        self.check_managed()?;
        let _managing = self.managing.lock();
        let (member, duty) = self.find(number)?;
        if !matches!(duty, Duty::Spare | Duty::Faulty) {
            return Err(Error::Invalid(format!(
                "{} is in use: declare it failed, or replace it, first",
                member.device().name()
            )));
        }
        self.record(Raise::One, |state| state.disks.retain(|disk| !Arc::ptr_eq(&disk.member, &member)))
    }

    /// Copies the member of a role to a spare, which then takes its place: to the one of this number, or else to any.
    pub(super) fn replace(&self, role: u32, with: Option<u32>) -> Result<u32> {
        self.check_managed()?;
        let _managing = self.managing.lock();
        let lineup = self.shared.lineup();
        let Some(place) = lineup.places.get(role as usize) else {
            return Err(Error::Invalid(format!("{} has no role {role}", self.title)));
        };
        if place.member.is_none() {
            return Err(Error::Invalid(format!(
                "role {role} has no member that could be replaced: add a device"
            )));
        }
        if let Some(replacement) = &place.replacement {
            // A device that was just added may have begun by itself.
            if with == Some(replacement.number()) {
                return Ok(replacement.number());
            }
            return Err(Error::Invalid(format!("the member of role {role} is being replaced already")));
        }
        drop(lineup);
        if let Some(number) = with {
            return self.enlist_this(number, Duty::Replacement(role)).map(|()| number);
        }
        match self.enlist(Duty::Replacement(role))? {
            Ok(spare) => Ok(spare.number()),
            Err(reasons) => {
                Err(Error::Invalid(format!("there is no spare to replace it with: add one first{reasons}")))
            }
        }
    }

    /// Has this spare take up a duty. One that cannot has failed. The caller holds `managing`.
    fn enlist_this(&self, number: u32, duty: Duty) -> Result<()> {
        let (spare, had) = self.find(number)?;
        let device = spare.device().name();
        if had == Duty::Faulty {
            return Err(Error::Invalid(format!(
                "{device} has failed, and cannot take the place of a member: remove it and add it anew, or take another"
            )));
        }
        if had != Duty::Spare {
            return Err(Error::Invalid(format!(
                "{device} is no spare, and cannot take the place of a member"
            )));
        }
        if !self.is_large_enough(&spare) {
            return Err(Error::Invalid(format!("{device} is too small to take the place of a member")));
        }
        match self.join(&spare, duty, false)? {
            Joining::Joined => Ok(()),
            Joining::Broken(reason) => {
                self.fail_spare(&spare, &reason)?;
                Err(Error::Invalid(format!("{device} cannot take the place of a member: {reason}")))
            }
        }
    }

    fn is_large_enough(&self, spare: &Arc<Member>) -> bool {
        let needed = self.geometry().common_member_bytes();
        self.records
            .with_state(|state| state.disk(spare).is_some_and(|disk| disk.superblock.data.bytes >= needed))
    }

    /// Asks for a check or a repair of the redundancy.
    pub(super) fn request(&self, work: SyncWork) -> Result<()> {
        self.check_managed()?;
        if !self.geometry().level.is_redundant() {
            return Err(Error::Invalid(format!("{:?} has no redundancy to check", self.geometry().level)));
        }
        self.jobs.request(work)?;
        self.wake.notify();
        Ok(())
    }

    /// Whether background work is under way or due.
    pub(super) fn is_busy(&self) -> bool {
        if !self.jobs.is_idle() {
            return true;
        }
        let lineup = self.shared.lineup();
        let has_spare = self.spare().is_some();
        let has_place_to_fill = lineup
            .places
            .iter()
            .any(|place| place.member.is_none() && (has_spare || place.replacement.is_some()));
        let is_due = has_place_to_fill
            || self.records.with_state(|state| state.resynced) != IN_SYNC
            || lineup.places.iter().any(|place| place.replacement.is_some())
            || lineup.all().any(|(_, member)| !member.is_in_sync());
        is_due && !self.jobs.is_blocked() && self.takes_writes() && self.geometry().level.is_redundant()
    }
}
