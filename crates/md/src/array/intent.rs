//! The write-intent bitmap in use.
//!
//! Before a write the bits of its chunks are set and durable on every member that has a role; they are cleared by the
//! maintenance thread when they are not needed any more, and only while no member is missing or being filled, so that the bits name
//! all that such a member lacks. What a sync has to look at are the bits that were set when the array stopped
//! uncleanly, and those of writes that were not on all members.
//!
//! The bits themselves, and what may be durable in which order, are the business of [`Bitmap`]; here is which the members
//! are, and that those that fail are left out.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use undercroft_block as block;

use super::core::Core;
use super::records::{Disk, Duty, State};
use super::status::BitmapStatus;
use crate::assemble::Plan;
use crate::bitmap::{self, Bitmap, BitmapStore, Failures};
use crate::member::{Member, Role};
use crate::superblock::Area;
use crate::{Error, Result, fan_out};

/// A bit stays this long at least, if the bitmap does not say how long.
const DEFAULT_DELAY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Intent(Bitmap);

/// What a request writes to. Dropped when the request has ended, with whatever outcome.
#[derive(Debug)]
pub(super) struct Intended<'a> {
    core: &'a Core,
    ranges: Vec<Range<u64>>,
    is_complete: bool,
}

impl<'a> Intended<'a> {
    /// Has the bits of ranges of the sync space set, before they are written to.
    ///
    /// # Errors
    /// When so many members fail that the array cannot do without them.
    pub(super) fn begin(core: &'a Core, ranges: impl Iterator<Item = Range<u64>>) -> Result<Self> {
        let mut intended = Self { core, ranges: Vec::new(), is_complete: false };
        let Some(Intent(bitmap)) = core.intent.as_deref() else { return Ok(intended) };
        for range in ranges {
            intended.ranges.push(range.clone());
            if bitmap.start_write(range.clone()) {
                core.leave_out(bitmap.make_durable(range, core))?;
            }
        }
        Ok(intended)
    }

    /// The members have it all.
    pub(super) fn done(mut self) {
        // Without a bitmap this is not called.
        self.is_complete = !self.ranges.is_empty() && self.core.has_all_members();
    }
}

impl Drop for Intended<'_> {
    fn drop(&mut self) {
        if let Some(Intent(bitmap)) = self.core.intent.as_deref() {
            for range in self.ranges.drain(..) {
                bitmap.end_write(range, self.is_complete);
            }
        }
    }
}

impl Intent {
    /// The bitmap of an array that is being opened, if it has one. `consistent`: so much of the sync space is known to
    /// be right on all members.
    pub(super) fn open(plan: &Plan, disks: &[Disk], consistent: u64) -> Result<Option<Self>> {
        let Some(header) = plan.bitmap else { return Ok(None) };
        let freshest = disks
            .iter()
            .filter(|disk| matches!(disk.duty, Duty::Active(_)) && disk.superblock.bitmap.is_some())
            .max_by_key(|disk| disk.superblock.events);
        let Some((disk, area)) = freshest.and_then(|disk| Some((disk, disk.superblock.bitmap?))) else {
            return Ok(None);
        };
        let sync_bytes = plan.geometry.sync_bytes();
        if header.sync_bytes != sync_bytes {
            return Err(Error::Corrupt {
                structure: "write-intent bitmap",
                member: disk.member.device().name(),
                offset: area.offset,
                detail: format!("it covers {} bytes, and the array has {sync_bytes}", header.sync_bytes),
            });
        }
        let bits = bitmap::read_bits(&**disk.member.device(), area, &header)?;
        Ok(Some(Self(Bitmap::new(header, &bits, plan.events, consistent))))
    }

    /// Gives a member that joins the whole bitmap.
    pub(super) fn copy_to(&self, member: &Member, area: Area, events: u64) -> block::Result<()> {
        let device = member.device();
        for (offset, bytes) in self.0.contents() {
            device.write_at(area.offset + offset, &bytes)?;
        }
        device.write_at(area.offset, &self.0.header_bytes(events))?;
        device.flush()
    }

    /// Clears bits that were not needed since this was called last; with `now`, all that are not needed.
    ///
    /// # Errors
    /// When so many members fail that the array cannot do without them.
    pub(super) fn clear_idle(&self, core: &Core, now: bool) -> Result<()> {
        if !core.is_complete() || !core.takes_writes() {
            return Ok(());
        }
        let events = core.records.with_state(|state| state.events);
        core.leave_out(self.0.clear_idle(events, now, core))
    }

    /// Ranges of the sync space whose bits are set: all that a member may lack that was away.
    pub(super) fn dirty_ranges(&self) -> Vec<Range<u64>> {
        self.0.dirty_ranges()
    }

    /// Ranges of the sync space in which members may differ.
    pub(super) fn needed_ranges(&self) -> Vec<Range<u64>> {
        self.0.needed_ranges()
    }

    /// Ranges begin to be made right on all members.
    pub(super) fn begin_sync(&self, ranges: &[Range<u64>]) {
        ranges.iter().for_each(|range| self.0.begin_sync(range.clone()));
    }

    /// `is_done`: they are, durably. If not, they still have to be.
    pub(super) fn end_sync(&self, ranges: &[Range<u64>], is_done: bool) {
        ranges.iter().for_each(|range| self.0.end_sync(range.clone(), is_done));
    }

    /// Whether [`clear_idle`](Self::clear_idle) has, or will have, anything to do if nothing is written.
    pub(super) fn has_bits_to_clear(&self, core: &Core) -> bool {
        core.is_complete() && core.takes_writes() && self.0.has_bits_to_clear()
    }

    /// How long a bit stays at least.
    pub(super) fn delay(&self) -> Duration {
        match self.0.delay_seconds() {
            0 => DEFAULT_DELAY,
            seconds => Duration::from_secs(seconds.into()),
        }
    }

    pub(super) fn events_cleared(&self) -> u64 {
        self.0.events_cleared()
    }

    pub(super) fn status(&self) -> BitmapStatus {
        let (set, total) = self.0.counts();
        BitmapStatus { set, total, chunk_bytes: self.0.chunk_bytes() }
    }

    /// All bits, as pieces with their places from the bitmap's beginning. Not to be called with the state locked.
    pub(super) fn contents(&self) -> Vec<(u64, Vec<u8>)> {
        self.0.contents()
    }

    /// The bitmap's header for each member that has a role, with the place where it belongs.
    pub(super) fn headers(&self, state: &State) -> Vec<(Arc<Member>, u64, Vec<u8>)> {
        let header = self.0.header_bytes(state.events);
        let disks =
            state.disks.iter().filter(|disk| matches!(disk.duty, Duty::Active(_) | Duty::Replacement(_)));
        let places =
            disks.filter_map(|disk| Some((Arc::clone(&disk.member), disk.superblock.bitmap?.offset)));
        places.map(|(member, offset)| (member, offset, header.clone())).collect()
    }
}

/// Bytes on their way to one member's bitmap.
struct Write {
    member: Arc<Member>,
    offset: u64,
    result: block::Result<()>,
}

impl BitmapStore for Core {
    fn write(&self, offset: u64, bytes: &[u8]) -> Failures {
        let lineup = self.shared.lineup();
        let mut writes: Vec<Write> = self.records.with_state(|state| {
            let mut place = |member: &Arc<Member>| {
                let area = state.disk(member)?.superblock.bitmap?;
                Some(Write { member: Arc::clone(member), offset: area.offset + offset, result: Ok(()) })
            };
            lineup.all().filter_map(|(_, member)| place(member)).collect()
        });
        fan_out::at_once(
            &mut writes,
            |write| (&write.member.flush_pace, 0),
            |write| {
                let device = write.member.device();
                write.result = device.write_at(write.offset, bytes).and_then(|()| device.flush());
            },
        );
        let failed = writes.into_iter().filter_map(|write| Some((write.member, write.result.err()?)));
        failed.collect()
    }

    fn flush(&self) -> Failures {
        self.shared.try_flush(|_| true).into_iter().map(|(_, member, error)| (member, error)).collect()
    }
}

impl Core {
    /// Leaves out members that failed.
    ///
    /// # Errors
    /// When the array cannot do without them.
    fn leave_out(&self, failures: Failures) -> Result<()> {
        for (member, cause) in failures {
            let role = self
                .shared
                .lineup()
                .all()
                .find(|(_, other)| Arc::ptr_eq(other, &member))
                .map(|(role, _)| role);
            // Without a role it has been left out in between.
            if let Some(role) = role {
                self.shared.fail(role, &member, &cause)?;
            }
        }
        Ok(())
    }

    /// Whether every role has a member that is written to.
    fn has_all_members(&self) -> bool {
        let lineup = self.shared.lineup();
        (0..self.geometry().members).all(|role| lineup.member(Role(role)).is_some())
    }
}
