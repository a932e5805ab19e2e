//! Random schedules of more threads than loom can explore.
//!
//!     RUSTFLAGS="--cfg shuttle" cargo test -p undercroft-sync --test shuttle
//!
//! Each property runs under the random scheduler and under PCT, which is better at bugs that need a few switches at
//! just the right places. A failure prints its seed and its schedule; `SHUTTLE_RANDOM_SEED` or
//! `shuttle::replay` runs it again. In debug builds the order check watches as well.

#![cfg(shuttle)]

use std::sync::Arc;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use undercroft_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use undercroft_sync::{LockClass, Mutex, NameLocks, Rank, RwLock, StripedRwLock, WaitQueue, thread};

/// Hashes of names.
const A: u64 = 97;
const B: u64 = 98;
const C: u64 = 99;

static OUTER: LockClass = LockClass::new("outer", Rank(1));
static INNER: LockClass = LockClass::new("inner", Rank(2));

const SCHEDULES: usize = 10_000;
/// Switches of priority that PCT places in a schedule.
const PCT_DEPTH: usize = 3;

fn explore(property: fn()) {
    shuttle::check_random(property, SCHEDULES);
    shuttle::check_pct(property, SCHEDULES, PCT_DEPTH);
}

/// Runs one thread for each number below `count` and waits for all.
fn in_threads(count: usize, work: impl Fn(usize) + Send + Sync + 'static) {
    let work = Arc::new(work);
    let threads: Vec<_> = (0..count)
        .map(|number| {
            let work = Arc::clone(&work);
            thread::spawn(move || work(number))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// A pool of slots with an exclusive waiter for each that is missing, and idle-watchers that are not exclusive.
struct Pool {
    free: AtomicUsize,
    size: usize,
    queue: WaitQueue,
}

impl Pool {
    fn new(size: usize) -> Self {
        Self { free: AtomicUsize::new(size), size, queue: WaitQueue::new() }
    }

    fn take(&self) -> bool {
        self.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |free| free.checked_sub(1)).is_ok()
    }

    fn put(&self) {
        let before = self.free.fetch_add(1, Ordering::SeqCst);
        assert!(before < self.size, "more slots than there are");
        self.queue.wake_one();
    }
}

#[test]
fn a_pool_serves_patient_and_impatient_waiters_and_watchers() {
    explore(|| {
        let pool = Arc::new(Pool::new(2));
        let seen = Arc::clone(&pool);
        in_threads(6, move |number| {
            for _ in 0..2 {
                match number {
                    0..3 => {
                        pool.queue.wait_exclusive(|| pool.take());
                        thread::yield_now();
                        pool.put();
                    }
                    3..5 => {
                        if pool.queue.wait_exclusive_timeout(Duration::from_secs(1), || pool.take()) {
                            thread::yield_now();
                            pool.put();
                        }
                    }
                    // Reads without taking: true again and again, but maybe not when first looked at.
                    _ => pool.queue.wait(|| pool.free.load(Ordering::SeqCst) > 0),
                }
            }
        });
        assert_eq!((seen.free.load(Ordering::SeqCst), seen.queue.waiting()), (2, 0));
    });
}

#[test]
fn every_slot_put_back_reaches_a_waiter_though_others_barge_in() {
    explore(|| {
        const WAITERS: usize = 3;
        let pool = Arc::new(Pool { free: AtomicUsize::new(0), size: WAITERS, queue: WaitQueue::new() });
        let seen = Arc::clone(&pool);
        in_threads(WAITERS + 2, move |number| match number {
            0..WAITERS => pool.queue.wait_exclusive(|| pool.take()),
            WAITERS => (0..WAITERS).for_each(|_| pool.put()),
            // Takes what was meant for a woken waiter, and gives it back.
            _ => {
                if pool.take() {
                    pool.put();
                }
            }
        });
        assert_eq!((seen.free.load(Ordering::SeqCst), seen.queue.waiting()), (0, 0));
    });
}

#[test]
fn wake_all_wakes_every_waiter() {
    explore(|| {
        let gate = Arc::new((AtomicBool::new(false), WaitQueue::new()));
        in_threads(5, move |number| match number {
            0 => {
                gate.0.store(true, Ordering::SeqCst);
                gate.1.wake_all();
            }
            1..3 => gate.1.wait(|| gate.0.load(Ordering::SeqCst)),
            _ => gate.1.wait_exclusive(|| gate.0.load(Ordering::SeqCst)),
        });
    });
}

/// What threads at work on names have to agree on: a writer of a name excludes all others, readers only writers.
struct Watch {
    /// Readers of each name, or [`Self::WRITER`].
    users: [AtomicUsize; 4],
}

impl Watch {
    const WRITER: usize = 1000;
    const NAMES: [(u64, u64); 4] = [(1, A), (1, B), (2, A), (2, C)];

    fn write(&self, name: usize) {
        assert_eq!(self.users[name].swap(Self::WRITER, Ordering::SeqCst), 0, "not alone");
        thread::yield_now();
        self.users[name].store(0, Ordering::SeqCst);
    }

    fn read(&self, name: usize) {
        assert!(self.users[name].fetch_add(1, Ordering::SeqCst) < Self::WRITER, "met a writer");
        thread::yield_now();
        self.users[name].fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn creators_readers_and_renamers_of_a_few_names_keep_out_of_each_others_way() {
    explore(|| {
        let names = NameLocks::with_buckets(2);
        let watch = Watch { users: [const { AtomicUsize::new(0) }; 4] };
        in_threads(5, move |number| {
            for _ in 0..2 {
                let (one, other) = (thread_rng().gen_range(0..4), thread_rng().gen_range(0..4));
                let (directory, name) = Watch::NAMES[one];
                match number {
                    0..2 => {
                        let _guard = names.lock(directory, name);
                        watch.write(one);
                    }
                    2 => {
                        let _guard = names.lock_shared(directory, name);
                        watch.read(one);
                    }
                    _ => {
                        let second = Watch::NAMES[other];
                        let first = (number == 4).then(|| names.lock(directory, name));
                        let _guard = first
                            .and_then(|first| names.try_lock_too(first, second.0, second.1))
                            .unwrap_or_else(|| names.lock_two((directory, name), second));
                        watch.write(one);
                        watch.write(other);
                    }
                }
            }
        });
    });
}

#[test]
fn one_contended_name_is_handed_to_every_waiter() {
    explore(|| {
        let names = NameLocks::with_buckets(1);
        let watch = Watch { users: [const { AtomicUsize::new(0) }; 4] };
        in_threads(6, move |number| {
            let (directory, name) = Watch::NAMES[0];
            if number < 3 {
                let _guard = names.lock(directory, name);
                watch.write(0);
            } else {
                let _guard = names.lock_shared(directory, name);
                watch.read(0);
            }
        });
    });
}

#[test]
fn nothing_is_added_to_a_closed_directory_among_names_that_come_and_go() {
    explore(|| {
        let names = NameLocks::with_buckets(1);
        let (closing, added) = (AtomicBool::new(false), AtomicUsize::new(0));
        let shared = Arc::new((names, closing, added));
        let (seen, found) = (Arc::clone(&shared), Arc::new(AtomicUsize::new(0)));
        let finding = Arc::clone(&found);
        in_threads(6, move |number| {
            let (names, closing, added) = &*shared;
            match number {
                0 => {
                    closing.store(true, Ordering::SeqCst);
                    names.drain(1);
                    finding.store(added.load(Ordering::SeqCst), Ordering::SeqCst);
                }
                1..4 => {
                    for name in [A, B] {
                        let _guard = names.lock(1, name);
                        if !closing.load(Ordering::SeqCst) {
                            thread::yield_now();
                            added.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                }
                4 => drop(names.lock_two((2, A), (1, A))),
                _ => (0..2).for_each(|_| drop(names.lock_shared(2, B))),
            }
        });
        assert_eq!(seen.2.load(Ordering::SeqCst), found.load(Ordering::SeqCst));
        // No thread has left anything behind.
        seen.0.drain(1);
        drop(seen.0.lock_two((1, A), (2, B)));
    });
}

#[test]
fn nested_locks_keep_their_promises_over_the_model() {
    explore(|| {
        let shared = Arc::new((Mutex::new(&OUTER, 0), RwLock::new(&INNER, (0, 0))));
        let seen = Arc::clone(&shared);
        in_threads(4, move |number| {
            let mut count = shared.0.lock();
            if number % 2 == 0 {
                let mut pair = shared.1.write();
                pair.0 += 1;
                thread::yield_now();
                pair.1 += 1;
            } else {
                drop(count);
                let pair = shared.1.read();
                assert_eq!(pair.0, pair.1);
                drop(pair);
                count = shared.0.lock();
            }
            *count += 1;
        });
        assert_eq!((*seen.0.lock(), *seen.1.read()), (4, (2, 2)));
    });
}

#[test]
fn readers_in_stripes_and_writers_are_never_inside_together() {
    explore(|| {
        let shared = Arc::new((StripedRwLock::new(&OUTER, ()), AtomicUsize::new(0), AtomicUsize::new(0)));
        let seen = Arc::clone(&shared);
        in_threads(4, move |number| {
            for _ in 0..2 {
                if number == 0 {
                    let _alone = shared.0.write();
                    shared.1.fetch_add(1, Ordering::Relaxed);
                    thread::yield_now();
                    shared.2.fetch_add(1, Ordering::Relaxed);
                } else {
                    let _shared = shared.0.read();
                    assert_eq!(shared.1.load(Ordering::Relaxed), shared.2.load(Ordering::Relaxed));
                }
            }
        });
        assert_eq!(seen.2.load(Ordering::Relaxed), 2);
    });
}
