//! Superblocks at work: what the members must know after a crash is written here, all of it.
//!
//! Each change goes to all members of the array in one go, spares among them: the bitmap's own superblock and the
//! member's, then a flush. So a crash leaves each member with what it had before or what it has after the change; the
//! one with more events is believed. Of the states between:
//!
//! - *Made active*: some say active. No data was written before all did, so nothing differs, and the resync that follows
//!   finds nothing.
//! - *Made clean*: all data was flushed before the first superblock was written. Some say clean, some active: the
//!   freshest says clean, and that is true.
//! - *A member lost*: the event count goes up by two, so that the lost member, which is not written any more, is told
//!   apart by any assembly (which lets one event pass as a difference of the moment). If none of the others was written,
//!   the member is still in, and no write that it missed has been answered.
//! - *A member recovered so far*: its data was flushed before; with the old mark a part is rebuilt twice.
//! - *A list of bad blocks*: it goes before the superblock that says whether it is in use, with a flush between. A block
//!   that was added and is not on the disk yet missed no write that was answered; what is good again was flushed before
//!   it was taken off.
//!
//! A member whose superblock cannot be written has failed, and the others are written once more to say so.
//!
//! Locks: one change at a time takes a turn; the state in memory is under the class `ARRAY`, never held while a member
//! is called. Nothing waits for the gate in here.

use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use undercroft_block as block;
use undercroft_sync::atomic::{AtomicUsize, Ordering};
use undercroft_sync::{Mutex, order};

use super::bell::Bell;
use crate::assemble::Plan;
use crate::bad_blocks::{BadBlocks, ListPage};
use crate::fan_out;
use crate::gate::Turn;
use crate::member::{Lineup, Member};
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
    /// Of the table of roles, as it was read.
    table_len: usize,
    /// The superblocks name members that are not there any more.
    is_outdated: bool,
}

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Records {
    geometry: Geometry,
    /// Nothing is written.
    is_read_only: bool,
    /// The bitmap's superblock goes with the members'.
    pub(super) bitmap: Option<Arc<super::intent::Intent>>,
    turn: Turn,
    state: Mutex<State>,
    /// Devices with bad blocks: most often 0, so that nobody looks further.
    with_bad_blocks: AtomicUsize,
    bell: Arc<Bell>,
}

/// What the superblocks said before a change.
struct Said {
    events: u64,
    is_active: bool,
    resynced: u64,
    /// Of each device: what it did, how much of it was right, and whether by the bitmap.
    disks: Vec<(Arc<Member>, Duty, u64, bool)>,
}

/// How far the event count goes up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Raise {
    /// A change of which those who miss it may still take part.
    One,
    /// Who misses this one is out.
    Two,
}

/// What is written to one device.
struct Outgoing {
    member: Arc<Member>,
    /// Its list of bad blocks, if it has changed, and the list's place.
    bad_blocks: Option<(u64, ListPage)>,
    blocks: Vec<(u64, Vec<u8>)>,
    result: block::Result<()>,
}

impl State {
    /// `is_outdated`: whether members that it names are gone.
    pub(super) fn new(disks: Vec<Disk>, plan: &Plan, resynced: u64, is_outdated: bool) -> Self {
        Self {
            disks,
            events: plan.events,
            updated: plan.updated,
            is_active: false,
            resynced,
            table_len: plan.roles.len(),
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
                .map(|disk| (Arc::clone(&disk.member), disk.duty, disk.recovered, disk.by_bitmap))
                .collect(),
        }
    }

    fn say(&mut self, said: &Said) {
        (self.events, self.is_active, self.resynced) = (said.events, said.is_active, said.resynced);
        for (member, duty, recovered, by_bitmap) in &said.disks {
            if let Some(disk) = self.disk(member) {
                (disk.duty, disk.recovered, disk.by_bitmap) = (*duty, *recovered, *by_bitmap);
            }
        }
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
            superblock.roles.clone_from(&roles);
            superblock.is_replacement = matches!(disk.duty, Duty::Replacement(_));
            superblock.recovery = match disk.duty {
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
            outgoing.push(Outgoing { member: Arc::clone(&disk.member), bad_blocks, blocks, result: Ok(()) });
        }
        Ok(outgoing)
    }

    /// Calls a member faulty, unless the array cannot do without it. Tells which.
    fn leave_out(&mut self, member: &Member, geometry: &Geometry) -> bool {
        let Some(disk) = self.disk(member) else { return true };
        let duty = std::mem::replace(&mut disk.duty, Duty::Faulty);
        let is_lost = !matches!(duty, Duty::Active(_)) || !member.is_in_sync() || self.is_whole(geometry);
        if let Some(disk) = self.disk(member)
            && !is_lost
        {
            disk.duty = duty;
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
        bell: Arc<Bell>,
    ) -> Self {
        let records = Self {
            geometry,
            is_read_only,
            bitmap,
            turn: Turn::new(),
            state: Mutex::new(&order::ARRAY, state),
            with_bad_blocks: AtomicUsize::new(0),
            bell,
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
        let _turn = self.turn.take();
        let (mut raise, before) = {
            let mut state = self.state.lock();
            let before = state.said();
            if !change(&mut state) {
                return Ok(());
            }
            self.count_bad_blocks(&state);
            (if state.is_outdated { Raise::Two } else { raise }, before)
        };
        if self.is_read_only {
            return Ok(());
        }
        let mut lost: Vec<Arc<Member>> = Vec::new();
        loop {
            let mut outgoing = {
                let mut state = self.state.lock();
                state.events += if raise == Raise::One { 1 } else { 2 };
                let mut outgoing = state.encode()?;
                if let Some(bitmap) = &self.bitmap {
                    for (member, offset, bytes) in bitmap.headers(&state) {
                        let one = outgoing.iter_mut().find(|one| Arc::ptr_eq(&one.member, &member));
                        one.into_iter().for_each(|one| one.blocks.insert(0, (offset, bytes.clone())));
                    }
                }
                outgoing
            };
            fan_out::at_once(&mut outgoing, |one| (&one.member.flush_pace, 0), Outgoing::run);
            self.note_lists(&outgoing);
            let failed: Vec<Outgoing> = outgoing.into_iter().filter(|one| one.result.is_err()).collect();
            if failed.is_empty() {
                break;
            }
            if let Err(error) = self.leave_out(failed, &mut lost) {
                self.take_back(&before);
                return Err(error);
            }
            raise = Raise::Two;
        }
        self.state.lock().is_outdated = false;
        // Only now: a writer that finds a member failed does not wait for anything.
        for member in &lost {
            member.set_failed();
        }
        if !lost.is_empty() {
            self.bell.ring();
        }
        Ok(())
    }

    /// What was begun cannot be carried out: those who were written get what they had before, so that all who are left
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
            if !state.leave_out(&one.member, &self.geometry) {
                let cause = one.result.err().map_or_else(String::new, |error| error.to_string());
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
    fn member_failed(&self, failed: &Member, _: &Lineup) -> Result<()> {
        let mut is_needed = false;
        let result = self.write_if(Raise::Two, |state| {
            is_needed = !state.leave_out(failed, &self.geometry);
            !is_needed
        });
        self.bell.ring();
        if is_needed {
            // Another one was lost while the superblocks were written.
            return Err(Error::TooFewMembers(format!("{} is needed", failed.device().name())));
        }
        result
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
        self.bell.ring();
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
        // Acquire: whoever counted has put the blocks on the list.
        if self.with_bad_blocks.load(Ordering::Acquire) == 0 {
            return false;
        }
        self.state.lock().disk(member).is_some_and(|disk| disk.bad_blocks.overlaps(range))
    }
}
