//! Exhaustive models of the primitives: every interleaving of two or three threads, and every value that a relaxed
//! load may see.
//!
//!     RUSTFLAGS="--cfg loom" cargo test -p undercroft-sync --release --test loom
//!
//! Loom reports a thread that no other thread will ever wake as a deadlock, so a model that returns has lost no
//! wakeup. With three threads the number of preemptions is bounded, as loom's authors advise; two threads are explored
//! in full. Under loom a timed wait may time out whenever it would sleep.

#![cfg(loom)]

use std::sync::Arc;
use std::time::Duration;

use undercroft_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use undercroft_sync::{
    LockClass, Mutex, NameLocks, NamePairGuard, Rank, RwLock, StripedRwLock, WaitQueue, thread,
};

/// Hashes of names.
const A: u64 = 97;
const B: u64 = 98;

static CLASS: LockClass = LockClass::new("model", Rank(1));

const ANY_TIME: Duration = Duration::from_secs(1);

/// Preemptions per execution of a model with three threads.
const PREEMPTIONS: usize = 3;

fn three_threads(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

/// Slots to be taken by exclusive waiters. All accesses are relaxed: the queue has to order them.
struct Slots {
    free: AtomicUsize,
    queue: WaitQueue,
}

impl Slots {
    fn new(free: usize) -> Arc<Self> {
        Arc::new(Self { free: AtomicUsize::new(free), queue: WaitQueue::new() })
    }

    fn take(&self) -> bool {
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1)).is_ok()
    }

    fn put(&self) {
        self.free.fetch_add(1, Ordering::Relaxed);
        self.queue.wake_one();
    }
}

#[test]
fn a_wake_is_not_lost_between_the_look_and_the_sleep() {
    loom::model(|| {
        let shared = Arc::new((AtomicBool::new(false), WaitQueue::new()));
        let waker = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                shared.0.store(true, Ordering::Relaxed);
                shared.1.wake_one();
            }
        });
        shared.1.wait(|| shared.0.load(Ordering::Relaxed));
        waker.join().unwrap();
        assert_eq!(shared.1.waiting(), 0);
    });
}

#[test]
fn a_woken_thread_sees_what_was_written_before_the_wake() {
    loom::model(|| {
        let shared = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0), WaitQueue::new()));
        let waker = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                shared.0.store(7, Ordering::Relaxed);
                shared.1.store(1, Ordering::Release);
                shared.2.wake_all();
            }
        });
        shared.2.wait_exclusive(|| shared.1.load(Ordering::Acquire) == 1);
        assert_eq!(shared.0.load(Ordering::Relaxed), 7);
        waker.join().unwrap();
    });
}

#[test]
fn two_exclusive_waiters_get_the_two_slots_that_are_put_back() {
    three_threads(|| {
        let slots = Slots::new(0);
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let slots = Arc::clone(&slots);
                thread::spawn(move || slots.queue.wait_exclusive(|| slots.take()))
            })
            .collect();
        slots.put();
        slots.put();
        for taker in takers {
            taker.join().unwrap();
        }
        assert_eq!((slots.free.load(Ordering::Relaxed), slots.queue.waiting()), (0, 0));
    });
}

#[test]
fn one_slot_goes_round() {
    three_threads(|| {
        let slots = Slots::new(1);
        let others: Vec<_> = (0..2)
            .map(|_| {
                let slots = Arc::clone(&slots);
                thread::spawn(move || {
                    slots.queue.wait_exclusive(|| slots.take());
                    slots.put();
                })
            })
            .collect();
        for other in others {
            other.join().unwrap();
        }
        assert_eq!((slots.free.load(Ordering::Relaxed), slots.queue.waiting()), (1, 0));
    });
}

#[test]
fn a_waiter_that_times_out_passes_its_wake_on() {
    three_threads(|| {
        let slots = Slots::new(0);
        let impatient = thread::spawn({
            let slots = Arc::clone(&slots);
            move || {
                if slots.queue.wait_exclusive_timeout(ANY_TIME, || slots.take()) {
                    slots.put();
                }
            }
        });
        let patient = thread::spawn({
            let slots = Arc::clone(&slots);
            move || slots.queue.wait_exclusive(|| slots.take())
        });
        // One wake for two waiters: whichever gets it, the patient one must not sleep for ever.
        slots.put();
        impatient.join().unwrap();
        patient.join().unwrap();
        assert_eq!((slots.free.load(Ordering::Relaxed), slots.queue.waiting()), (0, 0));
    });
}

#[test]
fn one_wake_reaches_the_exclusive_and_the_non_exclusive_waiter() {
    three_threads(|| {
        let shared = Arc::new((AtomicBool::new(false), WaitQueue::new()));
        let exclusive = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.1.wait_exclusive(|| shared.0.load(Ordering::Relaxed))
        });
        let other = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.1.wait(|| shared.0.load(Ordering::Relaxed))
        });
        shared.0.store(true, Ordering::Relaxed);
        shared.1.wake_one();
        exclusive.join().unwrap();
        other.join().unwrap();
    });
}

/// Adds one in two steps, so that an overlap or a stale read loses an addition.
fn add_one_slowly(counter: &AtomicUsize) {
    let seen = counter.load(Ordering::Relaxed);
    counter.store(seen + 1, Ordering::Relaxed);
}

#[test]
fn the_same_name_is_held_by_one_at_a_time() {
    three_threads(|| {
        let shared = Arc::new((NameLocks::with_buckets(1), AtomicUsize::new(0)));
        let others: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let _guard = shared.0.lock(1, A);
                    add_one_slowly(&shared.1);
                })
            })
            .collect();
        {
            let _guard = shared.0.lock(1, A);
            add_one_slowly(&shared.1);
        }
        for other in others {
            other.join().unwrap();
        }
        let _guard = shared.0.lock(1, A);
        assert_eq!(shared.1.load(Ordering::Relaxed), 3);
    });
}

/// In full: single holder, inflated by the other, by the list, and single again.
#[test]
fn a_name_passes_between_two_threads_and_the_bucket_is_free_again() {
    loom::model(|| {
        let shared = Arc::new((NameLocks::with_buckets(1), AtomicUsize::new(0)));
        let other = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for _ in 0..2 {
                    let _guard = shared.0.lock(1, A);
                    add_one_slowly(&shared.1);
                }
            }
        });
        {
            let _guard = shared.0.lock(1, A);
            add_one_slowly(&shared.1);
        }
        other.join().unwrap();
        let _guard = shared.0.lock(1, A);
        assert_eq!(shared.1.load(Ordering::Relaxed), 3);
    });
}

/// The single holder of the bucket is moved into its list by a thread that wants another name.
#[test]
fn a_name_stays_locked_though_a_stranger_inflates_its_bucket() {
    three_threads(|| {
        let shared = Arc::new((NameLocks::with_buckets(1), AtomicUsize::new(0)));
        let stranger = thread::spawn({
            let shared = Arc::clone(&shared);
            move || drop(shared.0.lock(2, B))
        });
        let other = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let _guard = shared.0.lock(1, A);
                add_one_slowly(&shared.1);
            }
        });
        {
            let _guard = shared.0.lock(1, A);
            add_one_slowly(&shared.1);
        }
        stranger.join().unwrap();
        other.join().unwrap();
        assert_eq!(shared.1.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_second_reader_joins_the_single_holder() {
    loom::model(|| {
        let names = Arc::new(NameLocks::with_buckets(1));
        let held = names.lock_shared(1, A);
        let other = thread::spawn({
            let names = Arc::clone(&names);
            move || drop(names.lock_shared(1, A))
        });
        // Joined while the name is shared: a deadlock if the second reader waited.
        other.join().unwrap();
        drop(held);
    });
}

#[test]
fn another_name_in_the_same_bucket_does_not_wait() {
    loom::model(|| {
        let names = Arc::new(NameLocks::with_buckets(1));
        let held = names.lock(1, A);
        let other = thread::spawn({
            let names = Arc::clone(&names);
            move || drop(names.lock(1, B))
        });
        // Joined while the first name is held: a deadlock if the second one waited for it.
        other.join().unwrap();
        drop(held);
    });
}

#[test]
fn two_names_in_opposite_order_cannot_deadlock() {
    loom::model(|| {
        let shared = Arc::new((NameLocks::with_buckets(1), AtomicUsize::new(0)));
        let other = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let _pair = shared.0.lock_two((1, A), (2, B));
                add_one_slowly(&shared.1);
            }
        });
        {
            let _pair = shared.0.lock_two((2, B), (1, A));
            add_one_slowly(&shared.1);
        }
        other.join().unwrap();
        assert_eq!(shared.1.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_second_name_that_is_not_waited_for_excludes_others_and_cannot_deadlock() {
    /// The first name, then the other one as well.
    fn take_both(names: &NameLocks, first: (u64, u64), other: (u64, u64)) -> NamePairGuard<'_> {
        let held = names.lock(first.0, first.1);
        names.try_lock_too(held, other.0, other.1).unwrap_or_else(|| names.lock_two(first, other))
    }
    loom::model(|| {
        let shared = Arc::new((NameLocks::with_buckets(2), AtomicUsize::new(0)));
        let other = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let _pair = take_both(&shared.0, (1, A), (1, B));
                add_one_slowly(&shared.1);
            }
        });
        {
            let _pair = take_both(&shared.0, (1, B), (1, A));
            add_one_slowly(&shared.1);
        }
        other.join().unwrap();
        assert_eq!(shared.1.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn readers_of_a_name_and_its_writer_never_meet() {
    three_threads(|| {
        let shared = Arc::new((NameLocks::with_buckets(1), AtomicUsize::new(0)));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let _guard = shared.0.lock_shared(1, A);
                    let seen = shared.1.load(Ordering::Relaxed);
                    assert!(seen != 1, "saw the middle of a write");
                })
            })
            .collect();
        {
            let _guard = shared.0.lock(1, A);
            add_one_slowly(&shared.1);
            add_one_slowly(&shared.1);
        }
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

/// Removing a directory against adding to it: the barrier is a relaxed flag, and draining orders it against the names.
struct Directory {
    names: NameLocks,
    closing: AtomicUsize,
    added: AtomicUsize,
}

impl Directory {
    const INO: u64 = 1;

    fn new() -> Arc<Self> {
        Arc::new(Self {
            names: NameLocks::with_buckets(1),
            closing: AtomicUsize::new(0),
            added: AtomicUsize::new(0),
        })
    }

    fn add(&self, name: u64) {
        let _name = self.names.lock(Self::INO, name);
        if self.closing.load(Ordering::Relaxed) == 0 {
            // Not one step: that would continue a release sequence, and be seen where a store would not.
            add_one_slowly(&self.added);
        }
    }

    /// How many names the removing thread finds in it.
    fn close(&self) -> usize {
        self.closing.store(1, Ordering::Relaxed);
        self.names.drain(Self::INO);
        self.added.load(Ordering::Relaxed)
    }

    fn assert_still(&self, found: usize) {
        let now = self.added.load(Ordering::Relaxed);
        assert_eq!(now, found, "a name was added after the directory was found empty");
    }
}

#[test]
fn an_added_name_sees_the_barrier_or_is_waited_for() {
    three_threads(|| {
        let directory = Directory::new();
        let adders: Vec<_> = (0..2)
            .map(|_| {
                let directory = Arc::clone(&directory);
                thread::spawn(move || directory.add(A))
            })
            .collect();
        let found = directory.close();
        for adder in adders {
            adder.join().unwrap();
        }
        directory.assert_still(found);
    });
}

/// As before with different names, each counted apart, which meet in nothing but their bucket.
#[test]
fn another_name_in_the_bucket_sees_the_barrier_or_is_waited_for() {
    three_threads(|| {
        let directory = Directory::new();
        let other_added = Arc::new(AtomicUsize::new(0));
        let adder = thread::spawn({
            let directory = Arc::clone(&directory);
            move || directory.add(A)
        });
        let other = thread::spawn({
            let (directory, added) = (Arc::clone(&directory), Arc::clone(&other_added));
            move || {
                let _name = directory.names.lock(Directory::INO, B);
                if directory.closing.load(Ordering::Relaxed) == 0 {
                    added.store(1, Ordering::Relaxed);
                }
            }
        });
        let found = directory.close();
        let other_found = other_added.load(Ordering::Relaxed);
        adder.join().unwrap();
        other.join().unwrap();
        directory.assert_still(found);
        assert_eq!(other_added.load(Ordering::Relaxed), other_found);
    });
}

/// In full: the single holder, which comes back, against the draining thread.
#[test]
fn draining_waits_for_the_single_holder() {
    loom::model(|| {
        let directory = Directory::new();
        let adder = thread::spawn({
            let directory = Arc::clone(&directory);
            move || (0..2).for_each(|_| directory.add(A))
        });
        let found = directory.close();
        adder.join().unwrap();
        directory.assert_still(found);
    });
}

/// The bucket is inflated and free again around the drain by a thread that works on another directory.
#[test]
fn draining_orders_the_barrier_though_another_thread_inflates_the_bucket() {
    three_threads(|| {
        let directory = Directory::new();
        let stranger = thread::spawn({
            let directory = Arc::clone(&directory);
            move || drop(directory.names.lock(2, B))
        });
        let adder = thread::spawn({
            let directory = Arc::clone(&directory);
            move || directory.add(A)
        });
        let found = directory.close();
        stranger.join().unwrap();
        adder.join().unwrap();
        directory.assert_still(found);
    });
}

#[test]
fn the_locks_over_the_model_exclude_and_publish() {
    loom::model(|| {
        let shared = Arc::new((Mutex::new(&CLASS, 0), RwLock::new(&CLASS, (0, 0))));
        let other = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                *shared.0.lock() += 1;
                let pair = shared.1.read();
                assert_eq!(pair.0, pair.1);
            }
        });
        if let Some(mut value) = shared.0.try_lock() {
            *value += 1;
        } else {
            *shared.0.lock() += 1;
        }
        {
            let mut pair = shared.1.write();
            pair.0 += 1;
            pair.1 += 1;
        }
        other.join().unwrap();
        assert_eq!((*shared.0.lock(), *shared.1.read()), (2, (1, 1)));
    });
}

/// Two numbers that only a writer makes differ, for a while.
struct Pair {
    lock: StripedRwLock,
    one: AtomicUsize,
    other: AtomicUsize,
}

impl Pair {
    fn new() -> Arc<Self> {
        let lock = StripedRwLock::new(&CLASS, ());
        Arc::new(Self { lock, one: AtomicUsize::new(0), other: AtomicUsize::new(0) })
    }

    /// Relaxed: the lock has to order them.
    fn change(&self) {
        let _alone = self.lock.write();
        self.one.store(self.one.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.other.store(self.other.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn check(&self) {
        let _shared = self.lock.read();
        let one = self.one.load(Ordering::Relaxed);
        // Loom does not come upon a writer in between by itself.
        thread::yield_now();
        assert_eq!(one, self.other.load(Ordering::Relaxed));
    }
}

#[test]
fn a_writer_closes_the_stripes_and_is_exclusive() {
    // Under a model every reader of the ordinary lock opens the stripes, so that the second check is in one.
    loom::model(|| {
        let pair = Pair::new();
        let reader = thread::spawn({
            let pair = Arc::clone(&pair);
            move || {
                pair.check();
                pair.check();
            }
        });
        pair.change();
        reader.join().unwrap();
        assert_eq!(pair.other.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn writers_and_readers_of_stripes_take_turns() {
    three_threads(|| {
        let pair = Pair::new();
        pair.check();
        let others = [0, 1].map(|number| {
            let pair = Arc::clone(&pair);
            thread::spawn(move || {
                if number == 0 {
                    pair.check();
                } else {
                    pair.change();
                }
            })
        });
        pair.change();
        for other in others {
            other.join().unwrap();
        }
        pair.check();
        assert_eq!(pair.one.load(Ordering::Relaxed), 2);
    });
}
