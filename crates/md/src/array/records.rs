//! Superblocks at work: what the members must know after a crash is written here, all of it.
//!
//! Each change goes to all members of the array, spares among them, in one round or in two: the bitmap's own superblock
//! and the member's, then a flush. A round raises the event count by one, and begins when all members are durable at
//! the count of the round before; where a crash has left them at different counts, those that lag are brought up first,
//! with nothing changed. So a crash leaves each member with what it had before a round or what it has after it, which
//! is one event apart: no assembly, neither ours nor that of Linux, takes such a member for stale, and the table of
//! roles of the freshest one says what each is. Of the states between:
//!
//! - *Made active*: some say active. No data was written before all did, so nothing differs, and the resync that follows
//!   finds nothing.
//! - *Made clean*: all data was flushed before the first superblock was written. Some say clean, some active: the
//!   freshest says clean, and that is true.
//! - *A member lost*: two rounds, so that the lost member, which is not written any more, is told apart by any assembly
//!   (which lets one event pass as a difference of the moment). If none of the others was written, the member is still
//!   in; if some were, the freshest one's table says that it is out. No write that it missed has been answered.
//! - *A member joins*: it is given its superblock alone first, still a spare and with nothing on it right
//!   ([`Records::prepare`]), and is written last in the round that gives it its role, and in any round between. Linux takes the role of a device
//!   that lags from the freshest table, and how much of it is right from its own superblock: so it never takes a spare
//!   for a member in sync. And mdadm leaves out a member that does not know the freshest: the newcomer never is the freshest.
//! - *A replacement complete*: first that all of it is right, in a round of its own, then that it has the role.
//! - *A member recovered so far*: its data was flushed before; with the old mark a part is rebuilt twice.
//! - *A list of bad blocks*: it goes before the superblock that says whether it is in use, with a flush between. A block
//!   that was added and is not on the disk yet missed no write that was answered; what is good again was flushed before
//!   it was taken off.
//!
//! A member whose superblock cannot be written has failed, and the others are written once more to say so.
//!
//! Locks: a change holds `changing`; the state in memory is under the class `ARRAY`, never held while a member
//! is called. No thread enters or quiesces the active writes in here.

use std::fmt;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use undercroft_block as block;
use undercroft_sync::atomic::{AtomicUsize, Ordering};
use undercroft_sync::{Mutex, order};

use super::wake::WakeSignal;
use crate::assemble::Plan;
use crate::bad_blocks::{BadBlocks, ListPage};
use crate::fan_out;
use crate::member::{Lineup, Member};
use crate::quiesce::IoMutex;
use crate::recorder::Recorder;
use crate::superblock::{DeviceRole, IN_SYNC, Recovery, Superblock, Timestamp};
use crate::{Error, Geometry, Result};

/// What a device does in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// It fills a role, or is being made to.
    Active(u32),
    /// It stands in beside the member of a role, to take its place.
    Replacement(u32),
    /// It waits for a role.
    Spare,
    /// It failed.
    Faulty,
}

/// A device of the array.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) member: Arc<Member>,
    pub(super) duty: Duty,
    pub(super) superblock: Superblock,
    /// So much of what is right is also durable; the member's own mark is ahead of it.
    pub(super) recovered: u64,
    /// What is not right lies where the bitmap says.
    pub(super) by_bitmap: bool,
    pub(super) bad_blocks: BadBlocks,
    /// Why it failed, if it did.
    pub(super) failure: Option<String>,
    /// It is getting this duty: it is written after all others, and until it has the duty as it was prepared.
    joining: Option<Prepared>,
}

/// What a device that joins is prepared for.
#[derive(Clone, Copy, Debug)]
struct Prepared {
    is_replacement: bool,
    by_bitmap: bool,
}

impl Disk {
    /// A device that has not failed.
    pub(super) fn new(
        member: Arc<Member>,
        duty: Duty,
        superblock: Superblock,
        recovered: u64,
        bad_blocks: BadBlocks,
    ) -> Self {
        let (by_bitmap, failure, joining) = (false, None, None);
        member.corrected_reads().set_total(superblock.corrected_reads);
        Self { member, duty, superblock, recovered, by_bitmap, bad_blocks, failure, joining }
    }

    /// It has failed, for this reason or for an earlier one.
    pub(super) fn set_faulty(&mut self, reason: &str) {
        self.duty = Duty::Faulty;
        self.failure.get_or_insert_with(|| reason.to_owned());
    }
}

/// What the superblocks say, next time they are written.
#[derive(Debug)]
pub(super) struct State {
    pub(super) disks: Vec<Disk>,
    pub(super) events: u64,
    /// When they were written last.
    pub(super) updated: Timestamp,
    /// Writes may be under way.
    pub(super) is_active: bool,
    /// So much of the sync space is known to be consistent, but for the writes under way.
    pub(super) resynced: u64,
    /// Entries of the table of roles, as it was read, as far as all devices have room for them.
    table_len: usize,
    /// The superblocks name members that are not there any more.
    is_outdated: bool,
    /// The members may be at different event counts, or have different bits in their bitmaps.
    is_uneven: bool,
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Records {
    geometry: Geometry,
    /// Nothing is written.
    is_read_only: bool,
    /// The bitmap's superblock goes with the members'.
    pub(super) bitmap: Option<Arc<super::intent::Intent>>,
    changing: IoMutex,
    state: Mutex<State>,
    /// Devices with bad blocks: most often 0, so that no thread looks further.
    with_bad_blocks: AtomicUsize,
    wake: Arc<WakeSignal>,
}

/// What the superblocks said before a change.
struct Said {
    events: u64,
    is_active: bool,
    resynced: u64,
    disks: Vec<SaidOfDisk>,
}

/// What the superblocks said of one device.
struct SaidOfDisk {
    member: Arc<Member>,
    duty: Duty,
    recovered: u64,
    by_bitmap: bool,
    failure: Option<String>,
}

/// In how many rounds a change is written, each of which raises the event count by one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Raise {
    /// A change: members that miss it may still take part.
    One,
    /// A change: a member that misses it is out.
    Two,
}

/// What is written to one device.
struct Outgoing {
    member: Arc<Member>,
    /// Its list of bad blocks, if it has changed, and the list's place.
    bad_blocks: Option<(u64, ListPage)>,
    blocks: Vec<(u64, Vec<u8>)>,
    /// It is written when the others are durable.
    is_last: bool,
    result: block::Result<()>,
}

impl State {
    /// `is_outdated`: whether members that it names are gone.
    pub(super) fn new(disks: Vec<Disk>, plan: &Plan, resynced: u64, is_outdated: bool) -> Self {
        let lags = |disk: &Disk| disk.duty != Duty::Spare && disk.superblock.events != plan.events;
        // After a crash a bit may be set on some members only, though the data it stands for is on none.
        let is_uneven = disks.iter().any(lags) || plan.bitmap.is_some() && !plan.is_clean;
        // Entries behind those of the devices say nothing, and not every member may have room for them.
        let room = disks.iter().map(|disk| disk.superblock.room_for_roles()).min();
        let table_len = room.map_or(plan.roles.len(), |room| plan.roles.len().min(room));
        Self {
            is_uneven,
            disks,
            events: plan.events,
            updated: plan.updated,
            is_active: false,
            resynced,
            table_len,
            is_outdated,
        }
    }

    pub(super) fn disk(&mut self, member: &Member) -> Option<&mut Disk> {
        self.disks.iter_mut().find(|disk| ptr::eq(&raw const *disk.member, member))
    }

    fn said(&self) -> Said {
        let disks = self.disks.iter();
        Said {
            events: self.events,
            is_active: self.is_active,
            resynced: self.resynced,
            disks: disks
                .map(|disk| SaidOfDisk {
                    member: Arc::clone(&disk.member),
                    duty: disk.duty,
                    recovered: disk.recovered,
                    by_bitmap: disk.by_bitmap,
                    failure: disk.failure.clone(),
                })
                .collect(),
        }
    }

    fn say(&mut self, said: &Said) {
        (self.events, self.is_active, self.resynced) = (said.events, said.is_active, said.resynced);
        for one in &said.disks {
            if let Some(disk) = self.disk(&one.member) {
                (disk.duty, disk.recovered, disk.by_bitmap) = (one.duty, one.recovered, one.by_bitmap);
                disk.failure.clone_from(&one.failure);
            }
        }
    }

    /// The number of a device that is added to an array of so many `members`: the one it had, if it may have it.
    ///
    /// The numbers of the members that the array was created with are left to them: one that comes back has its own. A
    /// spare keeps its own, too: spares that are not open have the others. A new device may get the number of such a
    /// spare, since the tables of roles do not tell those from free ones: assembly then gives the spare another one.
    /// Numbers behind the tables would be free, but a table that grows out of its sectors may be torn by a crash: a number
    /// that makes it grow is given only where all others are taken.
    pub(super) fn number_for_new(&self, own: Option<u32>, members: u32) -> u32 {
        let is_free = |number: &u32| !self.disks.iter().any(|disk| disk.member.number() == *number);
        let room = self.disks.iter().map(|disk| disk.superblock.room_for_roles()).min();
        let room = room.map_or(members, |room| room as u32);
        let active =
            self.disks.iter().filter(|disk| matches!(disk.duty, Duty::Active(_) | Duty::Replacement(_)));
        let within = active.map(|disk| disk.superblock.roles_within_sectors()).min();
        let within = within.map_or(room, |within| room.min(within as u32));
        let own = own.filter(|number| (members..within).contains(number));
        // Without a free one the caller finds that the tables cannot grow.
        own.into_iter().chain(members..room).find(is_free).unwrap_or(room)
    }

    /// By device number.
    fn roles(&self) -> Vec<DeviceRole> {
        let highest = self.disks.iter().map(|disk| disk.member.number() as usize + 1).max();
        let mut roles = vec![DeviceRole::Spare; self.table_len.max(highest.unwrap_or(0))];
        for disk in &self.disks {
            roles[disk.member.number() as usize] = match disk.duty {
                Duty::Active(role) | Duty::Replacement(role) => DeviceRole::Active(role),
                Duty::Spare => DeviceRole::Spare,
                Duty::Faulty => DeviceRole::Faulty,
            };
        }
        roles
    }

    /// The superblocks as they are to be.
    fn encode(&mut self) -> Result<Vec<Outgoing>> {
        self.updated = Timestamp::now();
        let (roles, now) = (self.roles(), self.updated);
        let resynced = if self.is_active { 0 } else { self.resynced };
        let mut outgoing = Vec::new();
        for disk in self.disks.iter_mut().filter(|disk| disk.duty != Duty::Faulty) {
            let superblock = &mut disk.superblock;
            superblock.events = self.events;
            superblock.updated = now;
            superblock.resynced = resynced;
            superblock.corrected_reads = disk.member.corrected_reads().total();
            superblock.roles.clone_from(&roles);
            // Another change may come between the preparation of a device and the round that gives it its role.
            let prepared = disk.joining.filter(|_| disk.duty == Duty::Spare);
            superblock.is_replacement = match prepared {
                Some(prepared) => prepared.is_replacement,
                None => matches!(disk.duty, Duty::Replacement(_)),
            };
            superblock.recovery = match disk.duty {
                Duty::Spare => prepared.map(|prepared| Recovery { done: 0, by_bitmap: prepared.by_bitmap }),
                Duty::Active(_) | Duty::Replacement(_) if disk.recovered != IN_SYNC => {
                    Some(Recovery { done: disk.recovered, by_bitmap: disk.by_bitmap })
                }
                _ => None,
            };
            let bad_blocks = superblock.bad_blocks.as_mut().and_then(|log| {
                log.in_use = !disk.bad_blocks.is_empty();
                Some((log.area.offset, disk.bad_blocks.unwritten_page(log)?))
            });
            let offset = superblock.offset;
            let blocks = vec![(offset, superblock.encode(&disk.member.device().name())?.to_vec())];
            let (member, is_last) = (Arc::clone(&disk.member), disk.joining.is_some());
            outgoing.push(Outgoing { member, bad_blocks, blocks, is_last, result: Ok(()) });
        }
        Ok(outgoing)
    }

    /// Calls a member faulty, unless the array cannot do without it. Tells which.
    fn leave_out(&mut self, member: &Member, geometry: &Geometry, reason: &str) -> bool {
        let Some(disk) = self.disk(member) else { return true };
        let duty = std::mem::replace(&mut disk.duty, Duty::Faulty);
        let is_lost = !matches!(duty, Duty::Active(_)) || !member.is_in_sync() || self.is_whole(geometry);
        if let Some(disk) = self.disk(member) {
            disk.duty = duty;
            if is_lost {
                disk.set_faulty(reason);
            }
        }
        is_lost
    }

    /// Whether the members in sync are enough.
    fn is_whole(&self, geometry: &Geometry) -> bool {
        geometry.is_enough(|role| {
            let mut all = self.disks.iter();
            all.any(|disk| disk.duty == Duty::Active(role) && disk.member.is_in_sync())
        })
    }
}

impl Records {
    pub(super) fn new(
        geometry: Geometry,
        state: State,
        bitmap: Option<Arc<super::intent::Intent>>,
        is_read_only: bool,
        wake: Arc<WakeSignal>,
    ) -> Self {
        let records = Self {
            geometry,
            is_read_only,
            bitmap,
            changing: IoMutex::new(),
            state: Mutex::new(&order::ARRAY, state),
            with_bad_blocks: AtomicUsize::new(0),
            wake,
        };
        records.count_bad_blocks(&records.state.lock());
        records
    }

    /// Looks at the state, or changes what no superblock says.
    pub(super) fn with_state<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        look(&mut self.state.lock())
    }

    /// Makes a change durable on all members.
    ///
    /// # Errors
    /// When so few members could be written that the array cannot do without the others.
    pub(super) fn write(&self, raise: Raise, change: impl FnOnce(&mut State)) -> Result<()> {
        self.write_if(raise, |state| {
            change(state);
            true
        })
    }

    /// The same, unless `change` answers that there is nothing to write.
    pub(super) fn write_if(&self, raise: Raise, change: impl FnOnce(&mut State) -> bool) -> Result<()> {
        let _changing = self.changing.lock();
        let mut lost: Vec<Arc<Member>> = Vec::new();
        if !self.is_read_only && self.state.lock().is_uneven {
            self.level(&mut lost)?;
        }
        let (raise, before) = {
            let mut state = self.state.lock();
            let before = state.said();
            if !change(&mut state) && lost.is_empty() {
                return Ok(());
            }
            self.count_bad_blocks(&state);
            // Members that are lost must not be taken for members that lag.
            let is_lossy = state.is_outdated || !lost.is_empty();
            (if is_lossy { Raise::Two } else { raise }, before)
        };
        if self.is_read_only {
            return Ok(());
        }
        let written = self.write_rounds(raise, before, &mut lost);
        {
            let mut state = self.state.lock();
            // One that is a spare still has been prepared, and the round that gives it its role is to come.
            let have_joined = state.disks.iter_mut().filter(|disk| disk.duty != Duty::Spare);
            have_joined.for_each(|disk| disk.joining = None);
            if written.is_ok() {
                state.is_outdated = false;
            }
        }
        written?;
        // Only now: a writer that finds a member failed does not wait for anything.
        for member in &lost {
            member.set_failed();
        }
        if !lost.is_empty() {
            self.wake.notify();
        }
        Ok(())
    }

    /// Brings all members to the event count of the freshest, and to its bitmap, with nothing changed.
    fn level(&self, lost: &mut Vec<Arc<Member>>) -> Result<()> {
        let mut outgoing = self.outgoing()?;
        // One that joins has been prepared, and its superblock says more than the state does by now.
        outgoing.retain(|one| !one.is_last);
        if let Some(bitmap) = &self.bitmap {
            // No bit is set before the superblocks say that the array is active, so none is overwritten here.
            let pieces = bitmap.contents();
            let mut state = self.state.lock();
            for one in &mut outgoing {
                let disk = state.disk(&one.member).filter(|disk| disk.duty != Duty::Spare);
                let area = disk.and_then(|disk| disk.superblock.bitmap);
                if let Some(area) = area {
                    let places = pieces.iter().map(|(offset, bytes)| (area.offset + offset, bytes.clone()));
                    one.blocks.splice(0..0, places);
                }
            }
        }
        let failed = self.send(outgoing);
        self.leave_out(failed, lost)?;
        self.state.lock().is_uneven = false;
        Ok(())
    }

    /// Writes the superblocks as the state has them, in as many rounds as it takes.
    fn write_rounds(&self, raise: Raise, mut before: Said, lost: &mut Vec<Arc<Member>>) -> Result<()> {
        let mut rounds = if raise == Raise::One { 1 } else { 2 };
        while rounds > 0 {
            {
                let mut state = self.state.lock();
                state.events = state.events.checked_add(1).ok_or_else(|| {
                    Error::Invalid(
                        "the event count of the superblocks is at its end: they are damaged".to_owned(),
                    )
                })?;
            }
            let failed = self.send(self.outgoing()?);
            if failed.is_empty() {
                rounds -= 1;
                before = self.state.lock().said();
            } else if let Err(error) = self.leave_out(failed, lost) {
                self.take_back(&before);
                return Err(error);
            } else {
                // That it is lost, and once more so that it lags by two.
                rounds = 2;
            }
        }
        Ok(())
    }

    /// What is to be written, the bitmap's superblock before the member's.
    fn outgoing(&self) -> Result<Vec<Outgoing>> {
        let mut state = self.state.lock();
        let mut outgoing = state.encode()?;
        if let Some(bitmap) = &self.bitmap {
            for (member, offset, bytes) in bitmap.headers(&state) {
                let one = outgoing.iter_mut().find(|one| Arc::ptr_eq(&one.member, &member));
                one.into_iter().for_each(|one| one.blocks.insert(0, (offset, bytes.clone())));
            }
        }
        Ok(outgoing)
    }

    /// Writes to all, those that join after the others. Answers which could not be written.
    fn send(&self, outgoing: Vec<Outgoing>) -> Vec<Outgoing> {
        let (joining, others): (Vec<_>, Vec<_>) = outgoing.into_iter().partition(|one| one.is_last);
        for mut group in [others, joining] {
            fan_out::at_once(&mut group, |one| (&one.member.flush_pace, 0), Outgoing::run);
            self.note_lists(&group);
            let failed: Vec<Outgoing> = group.into_iter().filter(|one| one.result.is_err()).collect();
            if !failed.is_empty() {
                return failed;
            }
        }
        Vec::new()
    }

    /// Gives a device that is to have this duty its superblock, as a spare on which nothing is right yet. The change
    /// that gives it the duty follows.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn prepare(&self, member: &Member, duty: Duty, by_bitmap: bool) -> Result<()> {
        let _changing = self.changing.lock();
        let block = {
            let mut state = self.state.lock();
            let (roles, events, resynced) = (state.roles(), state.events, state.resynced);
            let resynced = if state.is_active { 0 } else { resynced };
            let Some(disk) = state.disk(member) else { return Ok(()) };
            let is_replacement = matches!(duty, Duty::Replacement(_));
            disk.joining = Some(Prepared { is_replacement, by_bitmap });
            let superblock = &mut disk.superblock;
            superblock.events = events;
            superblock.updated = Timestamp::now();
            superblock.resynced = resynced;
            superblock.roles = roles;
            superblock.is_replacement = is_replacement;
            superblock.recovery = Some(Recovery { done: 0, by_bitmap });
            (superblock.offset, superblock.encode(&member.device().name())?.to_vec())
        };
        if !self.is_read_only {
            member.device().write_at(block.0, &block.1)?;
            member.flush()?;
        }
        Ok(())
    }

    /// What was begun cannot be carried out: members that were written get what they had before, so that all that are left
    /// still agree, and the array can be started again without force once the others answer. As far as that goes.
    fn take_back(&self, before: &Said) {
        let outgoing = {
            let mut state = self.state.lock();
            state.say(before);
            state.encode()
        };
        let Ok(mut outgoing) = outgoing else { return };
        fan_out::at_once(&mut outgoing, |one| (&one.member.flush_pace, 0), Outgoing::run);
    }

    /// The superblocks of these could not be written.
    fn leave_out(&self, failed: Vec<Outgoing>, lost: &mut Vec<Arc<Member>>) -> Result<()> {
        let mut state = self.state.lock();
        for one in failed {
            let cause = one.result.err().map_or_else(String::new, |error| error.to_string());
            let reason = format!("its superblock cannot be written: {cause}");
            if !state.leave_out(&one.member, &self.geometry, &reason) {
                return Err(Error::TooFewMembers(format!(
                    "the superblock of {} cannot be written: {cause}",
                    one.member.device().name()
                )));
            }
            lost.push(one.member);
        }
        Ok(())
    }

    /// These lists of bad blocks are on the members, where those took them.
    fn note_lists(&self, outgoing: &[Outgoing]) {
        let mut state = self.state.lock();
        for one in outgoing.iter().filter(|one| one.result.is_ok()) {
            if let Some((_, page)) = &one.bad_blocks
                && let Some(disk) = state.disk(&one.member)
            {
                disk.bad_blocks.set_written(page);
            }
        }
    }

    fn count_bad_blocks(&self, state: &State) {
        let count = state.disks.iter().filter(|disk| !disk.bad_blocks.is_empty()).count();
        self.with_bad_blocks.store(count, Ordering::Release);
    }
}

impl Outgoing {
    fn run(&mut self) {
        self.result = self.write();
    }

    fn write(&self) -> block::Result<()> {
        let device = self.member.device();
        if let Some((offset, page)) = &self.bad_blocks {
            device.flush()?;
            device.write_at(*offset, &page.bytes)?;
            device.flush()?;
        }
        for (offset, bytes) in &self.blocks {
            device.write_at(*offset, bytes)?;
        }
        device.flush()
    }
}

impl Recorder for Arc<Records> {
    fn member_failed(&self, failed: &Member, _: &Lineup, cause: &dyn fmt::Display) -> Result<()> {
        let mut is_needed = false;
        let result = self.write_if(Raise::Two, |state| {
            is_needed = !state.leave_out(failed, &self.geometry, &cause.to_string());
            !is_needed
        });
        self.wake.notify();
        if is_needed {
            // Another one was lost while the superblocks were written.
            return Err(Error::TooFewMembers(format!("{} is needed", failed.device().name())));
        }
        result
    }

    fn stopped(&self) {
        self.wake.notify();
    }

    fn keeps_bad_blocks(&self, member: &Member) -> bool {
        self.state.lock().disk(member).is_some_and(|disk| disk.superblock.bad_blocks.is_some())
    }

    fn bad_blocks_found(&self, member: &Member, ranges: &[Range<u64>]) -> Result<bool> {
        let mut is_recorded = false;
        self.write_if(Raise::One, |state| {
            let Some(disk) = state.disk(member) else { return false };
            // That it failed is recorded, which says more.
            let has_failed = disk.duty == Duty::Faulty;
            is_recorded = has_failed || disk.bad_blocks.add(ranges);
            // What was on the list already may be so in memory only, if it could not be written before.
            is_recorded && !has_failed && !disk.bad_blocks.is_written()
        })?;
        self.wake.notify();
        Ok(is_recorded)
    }

    fn bad_blocks_written(&self, member: &Member, range: Range<u64>) {
        if !self.has_bad_blocks(member, range.clone()) {
            return;
        }
        let mut state = self.state.lock();
        if let Some(disk) = state.disk(member) {
            // Durable with the next change of the superblocks: until then a good block is called bad, which costs a
            // reconstruction and nothing else. The members are flushed before.
            disk.bad_blocks.remove(range);
        }
        self.count_bad_blocks(&state);
    }

    fn has_bad_blocks(&self, member: &Member, range: Range<u64>) -> bool {
        // Acquire: the thread that counted has put the blocks on the list.
        if self.with_bad_blocks.load(Ordering::Acquire) == 0 {
            return false;
        }
        self.state.lock().disk(member).is_some_and(|disk| disk.bad_blocks.overlaps(range))
    }
}
