//! Calls of a member that may never be answered.
//!
//! A member on a server (FUSE, NFS, NBD) can hang: a call returns when the server answers, or never. Such a member is
//! called by helper threads, with buffers of their own, and the caller waits for the answer no longer than it must:
//!
//! - A call that has waited for [`LATE`] makes the member *late*, until it is answered. A reader that can read elsewhere
//!   does so at once ([`TimedDevice::read_soon`]), and a late member is not asked again by such readers.
//! - A call that has waited for the limit (`member_timeout`) makes the member *hung*, for good: all calls fail, and the
//!   array leaves the member out, with the reason. An answer that comes later meets a buffer that is not read.
//!
//! Devices that cannot hang ([`BlockDevice::may_hang`]) are called by the calling thread itself: a helper costs some
//! 10 us a call.
//!
//! Locks: the table of calls and the slot of an answer, class `HELPERS`, never held together nor over a call.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use undercroft_block::forward_block_device;
use undercroft_block::{self as block, BlockDevice, Device, Error, Operation, Request};
use undercroft_sync::{Mutex, WaitQueue, order};

use crate::array::WakeSignal;
use crate::helpers::Pool;

/// A member that has not answered for so long is not waited for where that can be helped.
pub(crate) const LATE: Duration = Duration::from_secs(1);

/// Shared by all members; each call under way holds a helper.
static HELPERS: Pool = Pool::new(1024);

/// A device whose calls end.
#[derive(Debug)]
pub(crate) struct TimedDevice {
    device: Device,
    limit: Duration,
    calls: Arc<Calls>,
    /// Rung when the member becomes late, so that the maintenance thread looks after it.
    wake: Arc<WakeSignal>,
}

#[derive(Debug)]
struct Calls {
    under_way: Mutex<UnderWay>,
    /// A call was answered, or the member hangs.
    answered: WaitQueue,
    /// Why nothing is asked of it any more.
    hung: OnceLock<String>,
}

/// When the calls that have not been answered began, by number.
#[derive(Debug, Default)]
struct UnderWay {
    next: u64,
    begun: BTreeMap<u64, Instant>,
}

/// A request of a batch with a buffer of its own.
enum Owned {
    Read(u64, Vec<u8>),
    Write(u64, Vec<u8>),
}

/// What is asked of a device, for messages.
#[derive(Clone, Copy)]
struct What {
    operation: Operation,
    offset: u64,
    len: u64,
}

impl TimedDevice {
    /// Gives a device whose calls take no longer than `limit`. `None`: it cannot hang.
    pub(crate) fn new(device: &Device, limit: Option<Duration>, wake: &Arc<WakeSignal>) -> Option<Arc<Self>> {
        let limit = limit.filter(|_| device.may_hang())?;
        let calls = Calls {
            under_way: Mutex::new(&order::HELPERS, UnderWay::default()),
            answered: WaitQueue::new(),
            hung: OnceLock::new(),
        };
        let (device, wake) = (Arc::clone(device), Arc::clone(wake));
        Some(Arc::new(Self { device, limit, calls: Arc::new(calls), wake }))
    }

    /// Whether a call has not been answered for unusually long.
    pub(crate) fn is_late(&self) -> bool {
        self.calls.hung.get().is_some() || self.calls.waiting_for().is_some_and(|time| time >= LATE)
    }

    /// Why it is to be left out, if it has not answered within the limit.
    pub(crate) fn hung(&self) -> Option<&str> {
        if self.calls.waiting_for().is_some_and(|time| time >= self.limit) {
            self.give_up();
        }
        self.calls.hung.get().map(String::as_str)
    }

    /// Fills `buf`, or fails once the member is late.
    pub(crate) fn read_soon(&self, offset: u64, buf: &mut [u8]) -> block::Result<()> {
        self.read(offset, buf, true)
    }

    /// Carries out reads, or fails once the member is late.
    pub(crate) fn run_batch_soon(&self, batch: &mut [Request<'_>]) -> block::Result<()> {
        self.run(batch, true)
    }

    fn read(&self, offset: u64, buf: &mut [u8], soon: bool) -> block::Result<()> {
        let len = buf.len();
        let what = What { operation: Operation::Read, offset, len: len as u64 };
        let bytes = self.call(what, soon, move |device| {
            let mut bytes = vec![0; len];
            device.read_at(offset, &mut bytes).map(|()| bytes)
        })?;
        buf.copy_from_slice(&bytes);
        Ok(())
    }

    fn run(&self, batch: &mut [Request<'_>], soon: bool) -> block::Result<()> {
        let Some(first) = batch.first() else { return Ok(()) };
        let operation = match first {
            Request::Read { .. } => Operation::Read,
            Request::Write { .. } => Operation::Write,
        };
        let what = What { operation, offset: first.offset(), len: batch.iter().map(Request::len).sum() };
        let mut owned: Vec<Owned> = batch
            .iter()
            .map(|request| match request {
                Request::Read { offset, buf } => Owned::Read(*offset, vec![0; buf.len()]),
                Request::Write { offset, data } => Owned::Write(*offset, data.to_vec()),
            })
            .collect();
        let owned = self.call(what, soon, move |device| {
            let mut requests: Vec<Request<'_>> = owned
                .iter_mut()
                .map(|one| match one {
                    Owned::Read(offset, buf) => Request::Read { offset: *offset, buf },
                    Owned::Write(offset, data) => Request::Write { offset: *offset, data },
                })
                .collect();
            device.run_batch(&mut requests)?;
            drop(requests);
            Ok(owned)
        })?;
        for (request, one) in batch.iter_mut().zip(owned) {
            if let (Request::Read { buf, .. }, Owned::Read(_, bytes)) = (request, one) {
                buf.copy_from_slice(&bytes);
            }
        }
        Ok(())
    }

    /// Has a helper make a call, and waits for its end: with `soon` until the member is late, else until it is hung.
    fn call<T: Send + 'static>(
        &self,
        what: What,
        soon: bool,
        call: impl FnOnce(&dyn BlockDevice) -> block::Result<T> + Send + 'static,
    ) -> block::Result<T> {
        if let Some(cause) = self.calls.hung.get() {
            return Err(self.error(what, cause));
        }
        if soon && self.is_late() {
            return Err(self.late(what));
        }
        let patience = if soon { LATE.min(self.limit) } else { self.limit };
        let begun = Instant::now();
        let Some(helper) = HELPERS.find_within(patience) else {
            return Err(self.error(what, "too many calls of members wait for their answers"));
        };
        let answer = Arc::new(Mutex::new(&order::HELPERS, None));
        let number = self.calls.begin();
        {
            let (device, calls, answer) =
                (Arc::clone(&self.device), Arc::clone(&self.calls), Arc::clone(&answer));
            helper.give(Box::new(move || {
                let result = catch_unwind(AssertUnwindSafe(|| call(&*device)));
                // Not in the lock: the call's buffers go with it.
                let late = answer.lock().replace(result);
                drop(late);
                calls.end(number);
            }));
        }
        let mut result = None;
        self.calls.answered.wait_timeout(patience.saturating_sub(begun.elapsed()), || {
            result = answer.lock().take();
            result.is_some() || self.calls.hung.get().is_some()
        });
        match result {
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None if soon => {
                self.wake.notify();
                Err(self.late(what))
            }
            None => Err(self.error(what, self.give_up())),
        }
    }

    /// Nothing is asked of it any more. Answers why.
    fn give_up(&self) -> &str {
        let cause =
            self.calls.hung.get_or_init(|| format!("no answer for {} (member_timeout)", seconds(self.limit)));
        self.calls.answered.wake_all();
        self.wake.notify();
        cause
    }

    fn late(&self, what: What) -> Error {
        self.error(what, "it has not answered yet")
    }

    fn error(&self, what: What, cause: &str) -> Error {
        let What { operation, offset, len } = what;
        let source = io::Error::new(io::ErrorKind::TimedOut, cause.to_owned());
        Error::Io { operation, offset, len, device: self.device.name(), source }
    }
}

impl Calls {
    fn begin(&self) -> u64 {
        let mut under_way = self.under_way.lock();
        let number = under_way.next;
        under_way.next += 1;
        under_way.begun.insert(number, Instant::now());
        number
    }

    fn end(&self, number: u64) {
        self.under_way.lock().begun.remove(&number);
        self.answered.wake_all();
    }

    /// How long the oldest call has been waiting.
    fn waiting_for(&self) -> Option<Duration> {
        self.under_way.lock().begun.first_key_value().map(|(_, begun)| begun.elapsed())
    }
}

fn seconds(time: Duration) -> String {
    if time.subsec_millis() == 0 {
        format!("{} s", time.as_secs())
    } else {
        format!("{} ms", time.as_millis())
    }
}

impl BlockDevice for TimedDevice {
    forward_block_device!(self.device: name, size_bytes, access, topology);

    fn may_hang(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> block::Result<()> {
        self.read(offset, buf, false)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> block::Result<()> {
        let what = What { operation: Operation::Write, offset, len: data.len() as u64 };
        let data = data.to_vec();
        self.call(what, false, move |device| device.write_at(offset, &data))
    }

    fn flush(&self) -> block::Result<()> {
        let what = What { operation: Operation::Flush, offset: 0, len: self.size_bytes() };
        self.call(what, false, |device| device.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> block::Result<()> {
        let what = What { operation: Operation::Discard, offset, len };
        self.call(what, false, move |device| device.discard(offset, len))
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> block::Result<()> {
        let what = What { operation: Operation::WriteZeroes, offset, len };
        self.call(what, false, move |device| device.write_zeroes(offset, len))
    }

    fn run_batch(&self, batch: &mut [Request<'_>]) -> block::Result<()> {
        self.run(batch, false)
    }
}
