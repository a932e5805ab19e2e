//! The array: a block device made of members, with everything that keeps it whole.
//!
//! [`Array::open`] assembles it from members that have superblocks, [`Array::create`] makes a new one. Requests come in
//! through [`BlockDevice`] (`core`); two threads stand by it, the maintenance thread (`maintenance`) for what is due from time to time
//! and one for background work (`jobs`). What must survive a crash is written by `records` (superblocks) and `intent`
//! (the write-intent bitmap). `manage` lets devices come and go, `status` tells.
//!
//! Crashes: whatever was flushed is there after the next start, which does what the members ask for: replay of a
//! partial parity log, before anything else; a resync of what the bitmap names, or of all, beside normal use.

mod core;
mod intent;
mod jobs;
mod maintenance;
mod manage;
mod monitor;
mod open;
mod options;
mod records;
mod replayed;
mod status;
mod wake;

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use undercroft_block::{
    self as block, Access, BlockDevice, Device, Operation, Request, Topology, check_range, check_write,
};
use undercroft_sync::{Mutex, order};

pub use self::jobs::{Action, Finished, Progress};
pub use self::monitor::Event;
pub use self::options::ArrayOptions;
pub use self::records::Duty;
pub use self::status::{BitmapStatus, ConsistencyPolicy, MemberStatus, Status};
pub(crate) use self::wake::WakeSignal;

use self::core::Core;
use crate::create::{self, CreateOptions};
use crate::level::SyncWork;
use crate::{Error, Layout, Level, Result};

/// Zeroes are written in pieces of this length.
const ZEROES_BYTES: u64 = 1 << 20;

/// An array in use; see the module's description. The caller that has opened it closes it; otherwise that is tried when it is
/// dropped, and the outcome is lost.
pub struct Array {
    core: Arc<Core>,
    /// The maintenance thread and the thread for background work, until they are joined.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The thread that tells what happens, until it is joined: after the array is closed.
    monitors: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let geometry = self.core.geometry();
        f.debug_struct("Array")
            .field("uuid", &self.core.identity.uuid)
            .field("level", &geometry.level)
            .field("members", &geometry.members)
            .field("size_bytes", &self.core.size_bytes)
            .field("access", &self.core.access())
            .finish_non_exhaustive()
    }
}

impl Array {
    /// Assembles an array from its members, given in any order, spares among them, and starts it.
    ///
    /// # Errors
    /// When the devices are not members of one array, too few, or would have to be believed against caution; the
    /// sentence says what to do.
    pub fn open(members: Vec<Device>, options: ArrayOptions) -> Result<Self> {
        Self::start(open::open(members, options)?)
    }

    /// Makes a new array of the devices, and starts it. What they held is lost.
    ///
    /// # Errors
    /// When what is asked for makes no sense or a device fails.
    pub fn create(devices: Vec<Device>, new: &CreateOptions, options: ArrayOptions) -> Result<Self> {
        if options.read_only {
            return Err(Error::Invalid("a new array is written to, so it cannot be read-only".to_owned()));
        }
        create::plan(new, &devices)?.write(&devices)?;
        Self::open(devices, options)
    }

    fn start(core: Core) -> Result<Self> {
        let core = Arc::new(core);
        let array = Self {
            core: Arc::clone(&core),
            threads: Mutex::new(&order::ARRAY, Vec::new()),
            monitors: Mutex::new(&order::ARRAY, Vec::new()),
        };
        if core.read_only.is_none() && core.geometry().level.is_redundant() {
            let (maintenance, worker) = (Arc::clone(&core), Arc::clone(&core));
            array.spawn("md-maintenance", move || maintenance.unless_it_panics(Core::keep))?;
            array.spawn("md-worker", move || worker.unless_it_panics(Core::work))?;
        }
        Ok(array)
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = Self::thread(name, run)?;
        self.threads.lock().push(thread);
        Ok(())
    }

    fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        thread.map_err(|error| Error::Invalid(format!("no thread could be started for the array: {error}")))
    }

    /// Ends background work, makes everything durable and marks the array clean. Later writes are refused. A second call
    /// does nothing and answers as the first.
    ///
    /// # Errors
    /// When something could not be written, now or since the array was opened: at the next start it is made consistent
    /// as after a crash.
    pub fn close(&self) -> Result<()> {
        self.core.wake.close();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A panic of it has been reported where it happened; what it leaves is as after a crash.
            if thread.join().is_err() {
                let _ = self.core.shared.stop("a thread of the array panicked".to_owned());
            }
        }
        let finished = self.core.finish(CLOSED);
        self.core.set_over();
        let monitors = std::mem::take(&mut *self.monitors.lock());
        for monitor in monitors {
            // A panic of the listener has been reported where it happened.
            let _ = monitor.join();
        }
        finished
    }

    /// Has `tell` called, by a thread of its own, with what is wrong with the array now and with what happens to it from
    /// now on, until it is closed: [`close`](Self::close) waits for the last call.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn watch(&self, tell: impl FnMut(&Event) + Send + 'static) -> Result<()> {
        let (core, first) = (Arc::clone(&self.core), self.core.status());
        let monitor = Self::thread("md-monitor", move || core.monitor(first, tell))?;
        self.monitors.lock().push(monitor);
        Ok(())
    }

    /// What the array is and how it is doing.
    #[must_use]
    pub fn status(&self) -> Status {
        self.core.status()
    }

    /// Adds a device: as a spare, which takes an empty role at once. Answers its number. What it held is lost.
    ///
    /// # Errors
    /// When it is too small, in the array already, or the superblocks cannot be written.
    #[expect(clippy::needless_pass_by_value, reason = "the array keeps the device")]
    pub fn add(&self, device: Device) -> Result<u32> {
        self.core.add(&device)
    }

    /// Lets a former member come back to its role; it is given what the write-intent bitmap says it missed. Answers
    /// its number.
    ///
    /// # Errors
    /// When it is not known what it missed, or its role is taken.
    #[expect(clippy::needless_pass_by_value, reason = "the array keeps the device")]
    pub fn re_add(&self, device: Device) -> Result<u32> {
        self.core.re_add(&device)
    }

    /// Declares the device of this number failed.
    ///
    /// # Errors
    /// When the array cannot do without it.
    pub fn fail(&self, number: u32) -> Result<()> {
        self.core.fail(number)
    }

    /// Lets go of a spare or of a failed device.
    ///
    /// # Errors
    /// When it is in use.
    pub fn remove(&self, number: u32) -> Result<()> {
        self.core.remove(number)
    }

    /// Begins to copy the member of a role to a spare, which then takes its place, while the old one stays. Answers
    /// the spare's number.
    ///
    /// # Errors
    /// When there is no such member or no spare.
    pub fn replace(&self, role: u32) -> Result<u32> {
        self.core.replace(role, None)
    }

    /// The same with the spare of this number, and no other.
    ///
    /// # Errors
    /// When there is no such member or spare.
    pub fn replace_with(&self, role: u32, spare: u32) -> Result<()> {
        self.core.replace(role, Some(spare)).map(drop)
    }

    /// Begins to compare the redundancy with the data; [`Status::finished`] has the outcome.
    ///
    /// # Errors
    /// When there is no redundancy, or other background work is under way.
    pub fn check(&self) -> Result<()> {
        self.core.request(SyncWork::Check)
    }

    /// Begins to compare the redundancy with the data, and makes it right.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub fn repair(&self) -> Result<()> {
        self.core.request(SyncWork::Repair)
    }

    /// Ends a check or repair before its time.
    pub fn cancel_check(&self) {
        self.core.jobs.cancel();
        self.core.wake.notify();
    }

    /// Has background work wait, or go on.
    pub fn pause_sync(&self, is_paused: bool) {
        self.core.jobs.set_paused(is_paused);
        self.core.wake.notify();
    }

    /// Limits background work; `None`: no limit.
    pub fn limit_sync(&self, bytes_per_second: Option<NonZeroU64>) {
        self.core.jobs.set_limit(bytes_per_second);
        self.core.wake.notify();
    }

    /// Waits until no background work is under way or due, or the time is over. Tells which.
    pub fn wait_for_sync(&self, timeout: Duration) -> bool {
        // A spare may be about to take a place.
        let _ = self.core.fill_places();
        self.core.wake.wait_until(timeout, || !self.core.is_busy())
    }

    #[cfg(test)]
    fn core(&self) -> &Core {
        &self.core
    }

    fn stripe_bytes(&self) -> u32 {
        let geometry = self.core.geometry();
        let data = match (geometry.level, geometry.layout) {
            (Level::Linear | Level::Raid1, _) => 0,
            (Level::Raid10, Layout::Copies(copies)) => geometry.members / u32::from(copies.near.max(1)),
            (level, _) => geometry.members.saturating_sub(level.parities()),
        };
        geometry.chunk_bytes.saturating_mul(data)
    }
}

/// Why a closed array takes no writes.
const CLOSED: &str = "the array was closed";

impl Drop for Array {
    fn drop(&mut self) {
        // What cannot be written now is found at the next start; `close` tells its caller.
        let _ = self.close();
    }
}

impl BlockDevice for Array {
    fn name(&self) -> String {
        self.core.title.clone()
    }

    fn size_bytes(&self) -> u64 {
        self.core.size_bytes
    }

    fn access(&self) -> Access {
        self.core.access()
    }

    fn topology(&self) -> Topology {
        let lineup = self.core.shared.lineup();
        let members = || lineup.all().map(|(_, member)| member.device().topology());
        let default = Topology::default();
        Topology {
            logical_block_bytes: members()
                .map(|one| one.logical_block_bytes)
                .fold(default.logical_block_bytes, u32::max),
            physical_block_bytes: members()
                .map(|one| one.physical_block_bytes)
                .fold(default.physical_block_bytes, u32::max),
            minimum_io_bytes: self.core.geometry().chunk_bytes,
            optimal_io_bytes: self.stripe_bytes(),
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> block::Result<()> {
        let len = buf.len() as u64;
        check_range(self, Operation::Read, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let read = self.core.personality.read(offset, buf);
        read.map_err(|error| self.core.block_error(error, Operation::Read, offset, len))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> block::Result<()> {
        let len = data.len() as u64;
        check_write(self, Operation::Write, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let written = self.core.write(offset, data);
        written.map_err(|error| self.core.block_error(error, Operation::Write, offset, len))
    }

    /// Every member is flushed; one that cannot do it has failed.
    fn flush(&self) -> block::Result<()> {
        if self.core.read_only.is_some() {
            return Ok(());
        }
        let flushed = self.core.flush_members();
        flushed.map_err(|error| self.core.block_error(error, Operation::Flush, 0, self.size_bytes()))
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> block::Result<()> {
        check_write(self, Operation::WriteZeroes, offset, len)?;
        let zeroes = vec![0; len.min(ZEROES_BYTES) as usize];
        let mut at = offset;
        while at < offset + len {
            // Up to the next multiple, so that whole stripes are written whole.
            let step = (ZEROES_BYTES - at % ZEROES_BYTES).min(offset + len - at);
            let written = self.core.write(at, &zeroes[..step as usize]);
            written.map_err(|error| self.core.block_error(error, Operation::WriteZeroes, offset, len))?;
            at += step;
        }
        Ok(())
    }

    fn run_batch(&self, batch: &mut [Request<'_>]) -> block::Result<()> {
        batch.iter().try_for_each(|request| request.check(self))?;
        let Some(first) = batch.iter().find(|request| request.len() > 0) else { return Ok(()) };
        let (offset, len) = (first.offset(), batch.iter().map(Request::len).sum());
        let operation = match first {
            Request::Read { .. } => Operation::Read,
            Request::Write { .. } => Operation::Write,
        };
        let done = self.core.run_batch(batch);
        done.map_err(|error| self.core.block_error(error, operation, offset, len))
    }
}
