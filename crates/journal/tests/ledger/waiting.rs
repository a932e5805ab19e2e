//! Threads that wait for a commit while another one is under way, and aborts while they do.

use std::sync::Arc;

use undercroft_block::{Access, BlockDevice, Device, MemoryDevice};
use undercroft_journal::Client;
use undercroft_sync::WaitQueue;
use undercroft_sync::atomic::{AtomicBool, Ordering};

use crate::client::Ledger;
use crate::format::{self, Entry, LOG_START};

/// Stops writes to the log while it is shut.
#[derive(Debug)]
struct Gate {
    base: Device,
    is_shut: AtomicBool,
    /// A write has come while it was shut.
    is_reached: AtomicBool,
    changed: WaitQueue,
}

impl Gate {
    fn new() -> Arc<Self> {
        let base = Arc::new(MemoryDevice::from_bytes(format::make(100), Access::ReadWrite));
        let (is_shut, is_reached) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { base, is_shut, is_reached, changed: WaitQueue::new() })
    }

    fn shut(&self, is_shut: bool) {
        self.is_shut.store(is_shut, Ordering::SeqCst);
        self.changed.wake_all();
    }

    fn wait_for_a_write(&self) {
        self.changed.wait(|| self.is_reached.load(Ordering::SeqCst));
    }
}

impl BlockDevice for Gate {
    fn name(&self) -> String {
        self.base.name()
    }

    fn size_bytes(&self) -> u64 {
        self.base.size_bytes()
    }

    fn access(&self) -> Access {
        self.base.access()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> undercroft_block::Result<()> {
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> undercroft_block::Result<()> {
        if offset >= LOG_START as u64 {
            let is_open = || !self.is_shut.load(Ordering::SeqCst);
            if !is_open() {
                self.is_reached.store(true, Ordering::SeqCst);
                self.changed.wake_all();
                self.changed.wait(is_open);
            }
        }
        self.base.write_at(offset, data)
    }

    fn flush(&self) -> undercroft_block::Result<()> {
        self.base.flush()
    }
}

fn change(ledger: &Ledger) -> undercroft_journal::Tid {
    let handle = ledger.start(Entry::ACCOUNT_BYTES).unwrap();
    ledger.change(&handle, 0, 0, &[7]);
    handle.tid()
}

/// The changes of a transaction that is being written are in no list any more, and not durable.
#[test]
fn commit_everything_waits_for_the_transaction_that_is_being_written() {
    let gate = Gate::new();
    let (ledger, service) = Ledger::open(gate.clone()).unwrap();
    let is_done = AtomicBool::new(false);
    gate.shut(true);
    let tid = change(&ledger);
    std::thread::scope(|scope| {
        scope.spawn(|| ledger.transactions().commit(tid).unwrap());
        gate.wait_for_a_write();
        scope.spawn(|| {
            ledger.transactions().commit_everything(&ledger).unwrap();
            assert!(ledger.transactions().is_durable(tid));
            is_done.store(true, Ordering::SeqCst);
        });
        for _ in 0..1000 {
            std::thread::yield_now();
            assert!(!is_done.load(Ordering::SeqCst), "nothing is durable yet");
        }
        // Handles of the next transaction do not wait for the writing.
        assert_eq!(change(&ledger).0, tid.0 + 1);
        gate.shut(false);
    });
    service.close().unwrap();
}

#[test]
fn an_abort_wakes_every_waiter_with_the_first_cause() {
    let gate = Gate::new();
    let (ledger, service) = Ledger::open(gate.clone()).unwrap();
    gate.shut(true);
    let tid = change(&ledger);
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..3).map(|_| scope.spawn(|| ledger.transactions().commit(tid))).collect();
        gate.wait_for_a_write();
        ledger.transactions().abort("the first cause");
        ledger.transactions().abort("a later one");
        for waiter in waiters {
            let error = waiter.join().unwrap().unwrap_err().to_string();
            assert!(error.contains("the first cause"), "{error}");
        }
        gate.shut(false);
    });
    assert!(ledger.start(1).is_err());
    let error = service.close().unwrap_err().to_string();
    assert!(error.contains("the first cause"), "{error}");
}
