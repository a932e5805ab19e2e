//! The statistics count what the locks do, per class and mode, and only while they are switched on.

#![cfg(not(any(loom, shuttle)))]

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use undercroft_sync::stats::{self, ClassStats, Mode};
use undercroft_sync::{LockClass, Mutex, MutexGuard, NameLocks, Rank, RwLock};

/// Hashes of names.
const A: u64 = 97;
const B: u64 = 98;

/// The switch and the counters are the whole program's: one test at a time.
static ALONE: Mutex<()> = Mutex::new(&SERIAL, ());
static SERIAL: LockClass = LockClass::new("one_test_at_a_time", Rank(0));

const PAUSE: Duration = Duration::from_millis(5);

/// Has the statistics to itself, switched on and empty; switched off at the end.
struct Counting {
    _alone: MutexGuard<'static, ()>,
}

impl Counting {
    fn start() -> Self {
        let alone = ALONE.lock();
        stats::reset();
        stats::enable();
        Self { _alone: alone }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        stats::disable();
    }
}

fn row(class: &str, mode: Mode) -> ClassStats {
    stats::report().row(class, mode).unwrap_or_else(|| panic!("no row for {class} {mode:?}")).clone()
}

/// Has one thread take a lock and hold it for [`PAUSE`] while another one takes it.
fn overlap<G>(take: impl Fn() -> G, other: impl Fn() + Sync) {
    let begin = Barrier::new(2);
    thread::scope(|scope| {
        let guard = take();
        scope.spawn(|| {
            begin.wait();
            other();
        });
        begin.wait();
        thread::sleep(PAUSE);
        drop(guard);
    });
}

/// The same from zero until it comes to a contention of `class`: on a busy machine the other thread may come late.
fn contend<G>(class: &str, take: impl Fn() -> G, other: impl Fn() + Sync) {
    for _ in 0..100 {
        stats::reset();
        overlap(&take, &other);
        if row(class, Mode::Exclusive).contentions > 0 {
            return;
        }
    }
    panic!("no contention of {class} in 100 attempts");
}

#[test]
fn acquisitions_and_holds_are_counted_over_all_threads() {
    static CLASS: LockClass = LockClass::new("counted", Rank(1));
    let _counting = Counting::start();
    let locks = [Mutex::new(&CLASS, 0), Mutex::new(&CLASS, 0)];
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for at in 0..1000 {
                    *locks[at % 2].lock() += 1;
                }
            });
        }
    });
    let row = row("counted", Mode::Exclusive);
    assert_eq!(row.acquisitions, 3000);
    assert!(row.hold_min_ns <= row.hold_avg_ns() && row.hold_avg_ns() <= row.hold_max_ns, "{row:?}");
    assert!(row.hold_total_ns >= row.hold_max_ns && row.hold_max_ns > 0, "{row:?}");
    assert!(row.contentions <= row.acquisitions && row.con_bounces <= row.contentions, "{row:?}");
}

#[test]
fn a_long_hold_shows_as_hold_time_and_as_the_other_threads_wait() {
    static CLASS: LockClass = LockClass::new("long_hold", Rank(1));
    let _counting = Counting::start();
    let lock = Mutex::new(&CLASS, ());
    contend("long_hold", || lock.lock(), || drop(lock.lock()));
    let row = row("long_hold", Mode::Exclusive);
    assert_eq!((row.acquisitions, row.contentions), (2, 1));
    let pause_ns = PAUSE.as_nanos() as u64;
    assert!(row.hold_max_ns >= pause_ns, "{row:?}");
    // The other thread began to wait somewhere before or within the pause.
    assert!(row.wait_max_ns > 0 && row.wait_max_ns == row.wait_min_ns, "{row:?}");
    assert_eq!(row.wait_total_ns, row.wait_avg_ns());
}

#[test]
fn readers_and_writers_have_rows_of_their_own() {
    static CLASS: LockClass = LockClass::new("both_modes", Rank(1));
    let _counting = Counting::start();
    let lock = RwLock::new(&CLASS, ());
    contend("both_modes", || lock.read(), || drop(lock.write()));
    drop(lock.write());
    for _ in 0..4 {
        drop(lock.read());
    }
    let (writers, readers) = (row("both_modes", Mode::Exclusive), row("both_modes", Mode::Shared));
    assert_eq!((writers.acquisitions, writers.contentions), (2, 1));
    assert_eq!((readers.acquisitions, readers.contentions), (5, 0));
    let text = stats::report().to_string();
    assert!(text.contains("both_modes-W:") && text.contains("both_modes-R:"), "{text}");
}

#[test]
fn try_lock_counts_only_when_it_succeeds_and_never_as_contention() {
    static CLASS: LockClass = LockClass::new("tried", Rank(1));
    let _counting = Counting::start();
    let (mutex, lock) = (Mutex::new(&CLASS, ()), RwLock::new(&CLASS, ()));
    {
        let _guard = mutex.try_lock().expect("free");
        assert!(mutex.try_lock().is_none());
    }
    drop(lock.try_write());
    drop(lock.try_read());
    let (exclusive, shared) = (row("tried", Mode::Exclusive), row("tried", Mode::Shared));
    assert_eq!((exclusive.acquisitions, exclusive.contentions, shared.acquisitions), (2, 0, 1));
}

#[test]
fn a_name_counts_in_the_class_of_names_and_waits_only_for_itself() {
    let _counting = Counting::start();
    let names = NameLocks::with_buckets(1);
    overlap(|| names.lock(1, A), || drop(names.lock(1, B)));
    let free = row("name", Mode::Exclusive);
    assert_eq!((free.acquisitions, free.contentions), (2, 0), "another name does not wait");

    contend("name", || names.lock(1, A), || drop(names.lock(1, A)));
    let same = row("name", Mode::Exclusive);
    assert_eq!((same.acquisitions, same.contentions), (2, 1));
    assert!(same.hold_max_ns >= PAUSE.as_nanos() as u64, "{same:?}");
}

#[test]
fn nothing_is_counted_while_off_and_a_reset_forgets() {
    static CLASS: LockClass = LockClass::new("switched", Rank(1));
    let lock = Mutex::new(&CLASS, ());
    let counting = Counting::start();
    assert!(stats::is_enabled());
    drop(lock.lock());
    stats::disable();
    drop(lock.lock());
    assert_eq!(row("switched", Mode::Exclusive).acquisitions, 1);

    let taken_while_off = lock.lock();
    stats::enable();
    drop(taken_while_off);
    assert_eq!(row("switched", Mode::Exclusive).acquisitions, 1);

    stats::reset();
    assert!(stats::report().row("switched", Mode::Exclusive).is_none(), "unused classes have no row");
    drop(lock.lock());
    assert_eq!(row("switched", Mode::Exclusive).acquisitions, 1);
    drop(counting);
}

#[test]
fn the_most_contended_class_comes_first() {
    static BUSY: LockClass = LockClass::new("busy", Rank(1));
    static CALM: LockClass = LockClass::new("calm", Rank(1));
    let _counting = Counting::start();
    let (busy, calm) = (Mutex::new(&BUSY, ()), Mutex::new(&CALM, ()));
    contend("busy", || busy.lock(), || drop(busy.lock()));
    for _ in 0..10 {
        drop(calm.lock());
    }
    let classes: Vec<&str> = stats::report().rows.iter().map(|row| row.class).collect();
    assert_eq!(classes, ["busy", "calm"]);
}
