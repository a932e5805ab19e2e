//! Small arrays in memory, devices that fail when told to, and content that can be checked.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use undercroft_block::testing::Recorder;
use undercroft_block::{Access, BlockDevice, Device, Error, MemoryDevice, Operation, Result};
use undercroft_md::{Array, ArrayOptions, CreateOptions, Level};
use undercroft_sync::{Mutex, order};

/// Longer than any background work of these tests takes.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Data begins here on the members of the arrays made here, so that members can be small.
pub(crate) const DATA_OFFSET: u64 = 128 << 10;

/// A number from the environment.
pub(crate) fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Blank devices.
pub(crate) fn blank(count: usize, data_bytes: u64) -> Vec<Device> {
    let bytes = DATA_OFFSET + data_bytes;
    (0..count).map(|_| Arc::new(MemoryDevice::new(bytes)) as Device).collect()
}

/// Small chunks, and no time spent on making blank members consistent.
pub(crate) fn small(level: Level) -> CreateOptions {
    let chunk_bytes = (!matches!(level, Level::Linear | Level::Raid1)).then_some(8192);
    CreateOptions {
        chunk_bytes,
        data_offset: Some(DATA_OFFSET),
        name: "test".to_owned(),
        assume_clean: level.is_redundant(),
        ..CreateOptions::new(level)
    }
}

/// With a stripe cache that takes no time to make.
pub(crate) fn modest() -> ArrayOptions {
    ArrayOptions { stripe_cache_bytes: 1 << 20, ..ArrayOptions::default() }
}

pub(crate) fn create(devices: &[Device], new: &CreateOptions) -> Array {
    Array::create(devices.to_vec(), new, modest()).expect("the array is made")
}

pub(crate) fn open(devices: &[Device]) -> Array {
    Array::open(devices.to_vec(), modest()).expect("the array starts")
}

pub(crate) fn open_degraded(devices: &[Device]) -> Array {
    let options = ArrayOptions { start_degraded: true, ..modest() };
    Array::open(devices.to_vec(), options).expect("the array starts")
}

/// Bytes that differ from place to place and from seed to seed.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    undercroft_block::conformance::pattern(seed, len)
}

pub(crate) fn fill(device: &dyn BlockDevice, seed: u64) -> Vec<u8> {
    let content = pattern(seed, device.size_bytes() as usize);
    device.write_at(0, &content).expect("the array takes writes");
    content
}

pub(crate) fn read_all(device: &dyn BlockDevice) -> Vec<u8> {
    let mut content = vec![0xee; device.size_bytes() as usize];
    device.read_at(0, &mut content).expect("the array can be read");
    content
}

#[track_caller]
pub(crate) fn assert_same(found: &[u8], expected: &[u8]) {
    assert_eq!(found.len(), expected.len(), "length");
    if let Some(at) = (0..found.len()).find(|&at| found[at] != expected[at]) {
        panic!("byte {at} is {:#04x}, expected {:#04x}", found[at], expected[at]);
    }
}

/// Compares the redundancy with the data; the bytes that do not agree.
#[track_caller]
pub(crate) fn check(array: &Array) -> u64 {
    assert!(array.wait_for_sync(LONG), "background work ends");
    array.check().expect("a check can be asked for");
    assert!(array.wait_for_sync(LONG), "the check ends");
    let finished = array.status().finished.expect("a check has ended");
    assert_eq!(finished.interrupted, None);
    finished.mismatched_bytes
}

/// A device that fails while it is told to.
#[derive(Debug)]
pub(crate) struct Switch {
    base: Device,
    pub(crate) fails_reads: AtomicBool,
    pub(crate) fails_writes: AtomicBool,
    pub(crate) fails_flushes: AtomicBool,
    /// Where it takes no writes: a range of bytes, and every how many of these blocks of 4 KiB.
    bad: Mutex<Option<(Range<u64>, u64)>>,
}

impl Switch {
    pub(crate) fn new(base: Device) -> Arc<Self> {
        Arc::new(Self {
            base,
            fails_reads: AtomicBool::new(false),
            fails_writes: AtomicBool::new(false),
            fails_flushes: AtomicBool::new(false),
            bad: Mutex::new(&order::DEVICE, None),
        })
    }

    /// Every `nth` block of 4 KiB of a range of the data area takes no writes any more.
    pub(crate) fn spoil(&self, range: Range<u64>, nth: u64) {
        *self.bad.lock() = Some((DATA_OFFSET + range.start..DATA_OFFSET + range.end, nth));
    }

    /// No block of a range of the device, counted from its beginning, takes writes any more.
    pub(crate) fn spoil_device(&self, range: Range<u64>) {
        *self.bad.lock() = Some((range, 1));
    }

    /// All of it takes writes again.
    pub(crate) fn mend(&self) {
        *self.bad.lock() = None;
    }

    fn takes(&self, offset: u64, len: u64) -> bool {
        let bad = self.bad.lock();
        let Some((range, nth)) = &*bad else { return true };
        let mut blocks = range.clone().step_by(4096 * *nth as usize);
        !blocks.any(|block| block < offset + len && offset < block + 4096)
    }

    /// It answers nothing any more, or everything again.
    pub(crate) fn set_dead(&self, is_dead: bool) {
        for switch in [&self.fails_reads, &self.fails_writes, &self.fails_flushes] {
            switch.store(is_dead, Ordering::SeqCst);
        }
    }

    fn check(&self, fails: &AtomicBool, operation: Operation, offset: u64, len: u64) -> Result<()> {
        if !fails.load(Ordering::SeqCst) {
            return Ok(());
        }
        let source = io::Error::other("switched off");
        Err(Error::Io { operation, offset, len, device: self.name(), source })
    }
}

impl BlockDevice for Switch {
    fn name(&self) -> String {
        "switched device".to_owned()
    }

    fn size_bytes(&self) -> u64 {
        self.base.size_bytes()
    }

    fn access(&self) -> Access {
        self.base.access()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(&self.fails_reads, Operation::Read, offset, buf.len() as u64)?;
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check(&self.fails_writes, Operation::Write, offset, data.len() as u64)?;
        if !self.takes(offset, data.len() as u64) {
            return self.check(&AtomicBool::new(true), Operation::Write, offset, data.len() as u64);
        }
        self.base.write_at(offset, data)
    }

    fn flush(&self) -> Result<()> {
        self.check(&self.fails_flushes, Operation::Flush, 0, self.size_bytes())?;
        self.base.flush()
    }
}

/// Blank devices, and the switches in front of them.
pub(crate) fn switched(count: usize, data_bytes: u64) -> (Vec<Arc<Switch>>, Vec<Device>) {
    let switches: Vec<_> = blank(count, data_bytes).into_iter().map(Switch::new).collect();
    let devices = switches.iter().map(|switch| Arc::clone(switch) as Device).collect();
    (switches, devices)
}

/// The order of events over all members: the member of each.
pub(crate) type Order = Arc<Mutex<Vec<usize>>>;

/// A member whose events are also put into the common order.
#[derive(Debug)]
pub(crate) struct Tap {
    pub(crate) member: usize,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) order: Order,
    /// Takes no writes, while that is so.
    pub(crate) bad: Range<u64>,
    pub(crate) is_bad: Arc<AtomicBool>,
}

impl Tap {
    /// A member that takes every write.
    pub(crate) fn new(member: usize, recorder: Arc<Recorder>, order: Order) -> Self {
        Self { member, recorder, order, bad: 0..0, is_bad: Arc::default() }
    }

    fn change(&self, change: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut order = self.order.lock();
        change()?;
        order.push(self.member);
        Ok(())
    }
}

impl BlockDevice for Tap {
    fn name(&self) -> String {
        format!("member {}", self.member)
    }

    fn size_bytes(&self) -> u64 {
        self.recorder.size_bytes()
    }

    fn access(&self) -> Access {
        Access::ReadWrite
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.recorder.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset + data.len() as u64;
        if self.is_bad.load(Ordering::SeqCst) && offset < self.bad.end && self.bad.start < end {
            // As much as lies before the bad blocks may have been written.
            let before = self.bad.start.saturating_sub(offset) as usize;
            self.change(|| self.recorder.write_at(offset, &data[..before]))?;
            let source = std::io::Error::other("a bad block");
            let (device, len) = (self.name(), data.len() as u64);
            return Err(Error::Io { operation: Operation::Write, offset, len, device, source });
        }
        self.change(|| self.recorder.write_at(offset, data))
    }

    fn flush(&self) -> Result<()> {
        self.change(|| self.recorder.flush())
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> Result<()> {
        self.change(|| self.recorder.write_zeroes(offset, len))
    }
}
