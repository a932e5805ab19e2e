//! Recovery that is itself cut short, and the order in which it makes things durable.
//!
//! Fault model: one write fails, and so does everything after it, as when power is lost. What was written
//! before survives. (That unflushed writes may survive in any subset makes no difference: before the log is
//! emptied there is a flush, and until then recovery starts anew.)

use std::sync::atomic::{AtomicUsize, Ordering};

use undercroft_block::{Access, BlockDevice, Error, MemoryDevice, Operation, Result};
use undercroft_sync::{Mutex, order};

use super::super::Log;
use super::builder::{BLOCK, Form, LogBuilder, Part, copies};

/// Home of the journal superblock in the builder's filesystem, in bytes.
const SUPERBLOCK: u64 = 300 * BLOCK as u64;

#[derive(Debug)]
struct Mortal {
    inner: MemoryDevice,
    /// Writes and flushes until power is lost.
    left: AtomicUsize,
    /// Where each write went; `None` for a flush.
    done: Mutex<Vec<Option<u64>>>,
}

impl Mortal {
    fn new(log: &LogBuilder, left: usize) -> Self {
        let inner = MemoryDevice::from_bytes(log.bytes.clone(), Access::ReadWrite);
        Self { inner, left: AtomicUsize::new(left), done: Mutex::new(&order::DEVICE, Vec::new()) }
    }

    fn live(&self, operation: Operation, offset: Option<u64>) -> Result<()> {
        let alive = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if alive.is_err() {
            let source = std::io::Error::other("the power is gone");
            let (offset, device) = (offset.unwrap_or(0), self.name());
            return Err(Error::Io { operation, offset, len: 0, device, source });
        }
        self.done.lock().push(offset);
        Ok(())
    }
}

impl BlockDevice for Mortal {
    fn name(&self) -> String {
        "mortal device".to_owned()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn access(&self) -> Access {
        Access::ReadWrite
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.live(Operation::Write, Some(offset))?;
        self.inner.write_at(offset, data)
    }

    fn flush(&self) -> Result<()> {
        self.live(Operation::Flush, None)
    }
}

fn log() -> LogBuilder {
    let mut log = LogBuilder::new(Form { start: 55, ..Form::default() });
    for byte in 1..=5 {
        let home = 10 + u64::from(byte);
        log.transaction(&[copies(&[(10, byte), (home, byte)]), Part::Revoke(vec![11])]);
    }
    log
}

/// Recovers and empties the log on a device; false when power was lost.
fn recover(log: &LogBuilder, device: &Mortal) -> bool {
    let dirty = match Log::open(device, log.location(), LogBuilder::volume()).unwrap() {
        Log::Dirty(dirty) => dirty,
        Log::Clean(_) => return true,
    };
    match dirty.recover(device).and_then(|replayed| replayed.finish(device)) {
        Ok(_) => true,
        Err(undercroft_vfs::Error::Io(_)) => false,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_recovery_cut_short_anywhere_is_repaired_by_the_next() {
    let log = log();
    let bytes_of = |device: &Mortal| {
        let mut bytes = vec![0; log.bytes.len()];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    };
    let whole = Mortal::new(&log, usize::MAX);
    assert!(recover(&log, &whole));
    let expected = bytes_of(&whole);
    assert_ne!(expected, log.bytes);
    let steps = whole.done.lock().len();
    for cut in 0..steps {
        let device = Mortal::new(&log, cut);
        assert!(!recover(&log, &device), "cut after {cut} of {steps}");
        device.left.store(usize::MAX, Ordering::Relaxed);
        assert!(recover(&log, &device));
        assert!(bytes_of(&device) == expected, "cut after {cut} of {steps}");
    }
}

#[test]
fn the_log_is_emptied_only_after_its_blocks_are_durable() {
    let device = Mortal::new(&log(), usize::MAX);
    assert!(recover(&log(), &device));
    let done = device.done.lock().clone();
    let homes: Vec<_> = [12, 13, 14, 15, 10].map(|home| Some(home * BLOCK as u64)).into();
    let (written, rest) = done.split_at(homes.len());
    assert_eq!(written.iter().collect::<std::collections::BTreeSet<_>>(), homes.iter().collect());
    assert_eq!(rest, [None, Some(SUPERBLOCK), None]);
}
