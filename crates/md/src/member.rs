//! The members that take part in an array, and how much of each is valid.
//!
//! A [`Lineup`] is a snapshot that never changes: a request loads it once and works with it to its end. A change of the
//! array publishes a new one. What a request may do with an old lineup is safe by these rules: a member that has
//! failed in between answers with errors or takes writes that are not read any more; a member that joins does so while
//! no request is under way (see [`Shared::quiesce`](crate::level::Shared::quiesce)).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use undercroft_block::{Device, Request};

use crate::corrected::CorrectedReads;
use crate::fan_out::Pace;
use crate::ppl::Log;
use crate::timeout::TimedDevice;

/// A place in the array, `0..raid_disks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Role(pub(crate) u32);

/// A device of the array. Offsets are in its data area, which begins `data_offset` bytes into the device.
#[derive(Debug)]
pub(crate) struct Member {
    /// As it was given.
    given: Device,
    /// The same, or what sees to it that its calls end.
    device: Device,
    timed: Option<Arc<TimedDevice>>,
    /// Its entry in the superblock's table of roles; stays when the role changes.
    number: u32,
    data_offset: u64,
    /// So many bytes from the front of the data area are what the role wants; all beyond is not written yet.
    /// `u64::MAX` for a member in sync.
    recovered: AtomicU64,
    failed: AtomicBool,
    /// It has not taken everything that was written to it: a spare is to take its place.
    wants_replacement: AtomicBool,
    /// Reads that failed and were made up for by writing again what the others hold.
    corrected: CorrectedReads,
    /// The partial parity log for the stripes whose parity it holds, if the array has one. Set when it gets its role.
    log: OnceLock<Log>,
    /// How long transfers take, and flushes.
    pub(crate) transfer_pace: Pace,
    pub(crate) flush_pace: Pace,
}

impl Member {
    /// A member whose data area begins at `data_offset`, right in its first `recovered` bytes.
    pub(crate) fn new(device: Device, number: u32, data_offset: u64, recovered: u64) -> Self {
        Self {
            given: Arc::clone(&device),
            device,
            timed: None,
            number,
            data_offset,
            recovered: AtomicU64::new(recovered),
            failed: AtomicBool::new(false),
            wants_replacement: AtomicBool::new(false),
            corrected: CorrectedReads::default(),
            log: OnceLock::new(),
            transfer_pace: Pace::default(),
            flush_pace: Pace::default(),
        }
    }

    /// The same member, whose calls end: see [`TimedDevice`]. `None`: it cannot hang.
    pub(crate) fn with_timeout(mut self, timed: Option<Arc<TimedDevice>>) -> Self {
        if let Some(timed) = &timed {
            self.device = Arc::clone(timed) as Device;
        }
        self.timed = timed;
        self
    }

    /// Whether this device is the member's.
    pub(crate) fn is_on(&self, device: &Device) -> bool {
        Arc::ptr_eq(&self.given, device)
    }

    /// Whether it has not answered a call for unusually long.
    pub(crate) fn is_late(&self) -> bool {
        self.timed.as_ref().is_some_and(|timed| timed.is_late())
    }

    /// Why nothing is asked of it any more, if it has not answered within its limit.
    pub(crate) fn hung(&self) -> Option<&str> {
        self.timed.as_ref().and_then(|timed| timed.hung())
    }

    /// The whole device, superblock and all.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn data_offset(&self) -> u64 {
        self.data_offset
    }

    /// Whether the range may be read: it lies before what still has to be rebuilt.
    pub(crate) fn is_right(&self, offset: u64, len: u64) -> bool {
        // Acquire: the thread that moved the mark has written what lies before it.
        offset + len <= self.recovered.load(Ordering::Acquire)
    }

    /// Bytes from the front that are right; `u64::MAX` for a member in sync.
    pub(crate) fn recovered(&self) -> u64 {
        self.recovered.load(Ordering::Acquire)
    }

    /// Whether all of it is right.
    pub(crate) fn is_in_sync(&self) -> bool {
        self.recovered() == u64::MAX
    }

    pub(crate) fn set_recovered(&self, bytes: u64) {
        self.recovered.store(bytes, Ordering::Release);
    }

    /// Where what is written to parts of stripes is logged first, if this member holds their parity.
    pub(crate) fn log(&self) -> Option<&Log> {
        self.log.get()
    }

    /// It keeps the one that it had first: a member has one role in its life.
    pub(crate) fn set_log(&self, log: Log) {
        let _ = self.log.set(log);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Returns whether it had not failed before.
    pub(crate) fn set_failed(&self) -> bool {
        !self.failed.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn wants_replacement(&self) -> bool {
        self.wants_replacement.load(Ordering::Acquire)
    }

    pub(crate) fn want_replacement(&self) {
        self.wants_replacement.store(true, Ordering::Release);
    }

    pub(crate) fn corrected_reads(&self) -> &CorrectedReads {
        &self.corrected
    }

    pub(crate) fn read_at(&self, offset: u64, buf: &mut [u8]) -> undercroft_block::Result<()> {
        self.device.read_at(self.data_offset + offset, buf)
    }

    /// The same, but fails once the member is late: for a reader that can read elsewhere.
    pub(crate) fn read_soon(&self, offset: u64, buf: &mut [u8]) -> undercroft_block::Result<()> {
        match &self.timed {
            Some(timed) => timed.read_soon(self.data_offset + offset, buf),
            None => self.read_at(offset, buf),
        }
    }

    pub(crate) fn write_at(&self, offset: u64, data: &[u8]) -> undercroft_block::Result<()> {
        self.device.write_at(self.data_offset + offset, data)
    }

    pub(crate) fn flush(&self) -> undercroft_block::Result<()> {
        self.device.flush()
    }

    /// Carries out requests whose offsets are on the data area.
    pub(crate) fn run_batch(&self, batch: &mut [Request<'_>]) -> undercroft_block::Result<()> {
        self.shift(batch);
        self.device.run_batch(batch)
    }

    /// The same for reads, but fails once the member is late.
    pub(crate) fn run_batch_soon(&self, batch: &mut [Request<'_>]) -> undercroft_block::Result<()> {
        self.shift(batch);
        match &self.timed {
            Some(timed) => timed.run_batch_soon(batch),
            None => self.device.run_batch(batch),
        }
    }

    fn shift(&self, batch: &mut [Request<'_>]) {
        for request in batch {
            let (Request::Read { offset, .. } | Request::Write { offset, .. }) = request;
            *offset += self.data_offset;
        }
    }
}

/// The members that fill a role.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// Read and written. `None`: the role is empty, its member missing or failed.
    pub(crate) member: Option<Arc<Member>>,
    /// Written beside the member and never read before it takes the member's place; right up to its own mark.
    pub(crate) replacement: Option<Arc<Member>>,
}

impl Place {
    /// All that are there, failed or not.
    pub(crate) fn both(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.member.iter().chain(&self.replacement)
    }
}

/// The members, by role.
#[derive(Clone, Debug)]
pub(crate) struct Lineup {
    pub(crate) places: Vec<Place>,
}

impl Lineup {
    pub(crate) fn member(&self, role: Role) -> Option<&Arc<Member>> {
        self.places[role.0 as usize].member.as_ref().filter(|member| !member.has_failed())
    }

    /// The member of the role if the range of its data area may be read.
    pub(crate) fn readable(&self, role: Role, offset: u64, len: u64) -> Option<&Arc<Member>> {
        self.member(role).filter(|member| member.is_right(offset, len))
    }

    pub(crate) fn replacement(&self, role: Role) -> Option<&Arc<Member>> {
        self.places[role.0 as usize].replacement.as_ref().filter(|member| !member.has_failed())
    }

    /// All that have not failed, with the role.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Role, &Arc<Member>)> {
        let places = self.places.iter().enumerate();
        places
            .flat_map(|(role, place)| place.both().map(move |member| (Role(role as u32), member)))
            .filter(|(_, member)| !member.has_failed())
    }

    /// Takes a member out, wherever it is.
    pub(crate) fn remove(&mut self, member: &Arc<Member>) {
        self.retain(|other| !Arc::ptr_eq(other, member));
    }

    /// Takes out the members that have failed.
    pub(crate) fn drop_failed(&mut self) {
        self.retain(|member| !member.has_failed());
    }

    fn retain(&mut self, keep: impl Fn(&Arc<Member>) -> bool) {
        for place in &mut self.places {
            place.member = place.member.take().filter(&keep);
            place.replacement = place.replacement.take().filter(&keep);
        }
    }
}
