//! What one uncontended acquisition and release costs: our locks against parking_lot's, statistics off and on; what two
//! readers at the same time cost each other; and what it costs to hand a turn to another thread.
//!
//!     cargo run -p undercroft-sync --release --example lock_cost
//!
//! Prints nanoseconds per operation, the best of several rounds.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use undercroft_sync::{Mutex, NameLocks, RwLock, StripedRwLock, WaitQueue, order, stats};

const ROUNDS: u32 = 15;
const OPERATIONS: u32 = 1_000_000;
const TURNS: u32 = 20_000;

/// Nanoseconds per operation in the best round.
fn measure(mut operation: impl FnMut()) -> f64 {
    let round = || {
        let start = Instant::now();
        for _ in 0..OPERATIONS {
            operation();
        }
        start.elapsed().as_nanos() as f64 / f64::from(OPERATIONS)
    };
    std::iter::repeat_with(round).take(ROUNDS as usize).fold(f64::INFINITY, f64::min)
}

/// Nanoseconds for one of two threads to pass the turn to the other, which waits for it in a queue.
fn measure_turns() -> f64 {
    let (turn, queue) = (AtomicU32::new(0), WaitQueue::new());
    let start = Instant::now();
    thread::scope(|scope| {
        for player in 0..2 {
            let (turn, queue) = (&turn, &queue);
            scope.spawn(move || {
                for number in (player..TURNS).step_by(2) {
                    queue.wait_exclusive(|| turn.load(Ordering::Acquire) == number);
                    turn.store(number + 1, Ordering::Release);
                    queue.wake_one();
                }
            });
        }
    });
    start.elapsed().as_nanos() as f64 / f64::from(TURNS)
}

/// Nanoseconds per operation when two threads do it all the time.
fn measure_two(operation: impl Fn() + Sync) -> f64 {
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..10 * OPERATIONS).for_each(|_| operation()));
        }
    });
    start.elapsed().as_nanos() as f64 / f64::from(10 * OPERATIONS)
}

#[expect(clippy::disallowed_types, reason = "the yardstick")]
fn measure_parking_lot() -> [f64; 3] {
    let (mutex, lock) = (parking_lot::Mutex::new(0_u64), parking_lot::RwLock::new(0_u64));
    [
        measure(|| *black_box(&mutex).lock() += 1),
        measure(|| {
            black_box(*black_box(&lock).read());
        }),
        measure(|| *black_box(&lock).write() += 1),
    ]
}

fn measure_ours() -> [f64; 4] {
    let (mutex, lock) = (Mutex::new(&order::DEVICE, 0_u64), RwLock::new(&order::DEVICE, 0_u64));
    let names = NameLocks::new();
    [
        measure(|| *black_box(&mutex).lock() += 1),
        measure(|| {
            black_box(*black_box(&lock).read());
        }),
        measure(|| *black_box(&lock).write() += 1),
        measure(|| drop(names.lock(2, black_box(0x1234_5678_9abc_def0)))),
    ]
}

fn main() {
    let raw = measure_parking_lot();
    let off = measure_ours();
    stats::enable();
    let on = measure_ours();
    stats::disable();
    println!("{:<16} {:>12} {:>12} {:>12}", "ns per pair", "parking_lot", "stats off", "stats on");
    for (at, what) in ["mutex", "rwlock read", "rwlock write"].iter().enumerate() {
        println!("{what:<16} {:>12.1} {:>12.1} {:>12.1}", raw[at], off[at], on[at]);
    }
    println!("{:<16} {:>12} {:>12.1} {:>12.1}", "name", "", off[3], on[3]);
    let (lock, striped) = (RwLock::new(&order::DEVICE, ()), StripedRwLock::new(&order::DEVICE, ()));
    println!("{:<16} {:>12} {:>12.1}", "two readers", "", measure_two(|| drop(black_box(lock.read()))));
    println!("{:<16} {:>12} {:>12.1}", "  in stripes", "", measure_two(|| drop(black_box(striped.read()))));
    println!("{:<16} {:>12} {:>12.1}", "turn of a queue", "", measure_turns());
    println!("\n{}", stats::report());
}
