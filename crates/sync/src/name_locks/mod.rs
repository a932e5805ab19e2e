//! Name locks: one name in one directory at a time, different names in parallel.
//!
//! The namespace layer takes them instead of a lock on the directory: create, unlink and rename lock the names they
//! change, a lookup that has to read the directory shares its name. Only names that are locked right now take any
//! memory, in a bucket chosen by hash. While a bucket has a single holder, the name is in the bucket's word, taken and
//! released by one atomic operation each. When a second thread comes, they go by a list under the bucket's mutex,
//! which is held for a few instructions and never while a thread sleeps. Waiters queue at their name, first come first
//! served, and a release hands the name over: it wakes exactly the one waiter that has it now (or the readers that
//! share it), which need not compete for it again.
//!
//! - `key`: what a name is known by.
//! - `bucket`: the word, its states and their memory ordering.
//! - `names`: the list and its queues.
//!
//! Lock order: class [`order::NAME`]; two names only through [`NameLocks::lock_two`], which orders them by key, and
//! [`NameLocks::try_lock_too`], which does not wait.

mod bucket;
mod key;
mod names;

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;

use self::bucket::Bucket;
use self::key::{DirectoryTag, Key};
use self::names::{EntryId, Released};
use crate::held::Held;
use crate::order;
use crate::prefetch_for_write;
use crate::primitives::Deadline;
use crate::stats::probe::{Hold, Wait};
use crate::stats::{self, Mode};
use crate::waiter::Waiter;

/// Buckets per processor: few enough to stay in the cache, many enough that two threads seldom meet.
const BUCKETS_PER_CPU: usize = 256;

/// A table of name locks, usually one per mounted filesystem.
pub struct NameLocks {
    /// A power of two of them.
    buckets: Box<[Bucket]>,
}

/// A locked name, until dropped. Stays on its thread.
#[must_use = "the name is unlocked when the guard is dropped"]
pub struct NameGuard<'a> {
    bucket: &'a Bucket,
    key: Key,
    mode: Mode,
    // In this order: unlocked by `drop`, then counted and taken off the thread's stack.
    hold: Option<Hold>,
    _held: Held,
    /// The order check and the statistics are per thread, so the guard must not be sent.
    _not_send: PhantomData<*const ()>,
}

/// Two locked names, or one if they are the same, until dropped.
#[must_use = "the names are unlocked when the guard is dropped"]
pub struct NamePairGuard<'a> {
    _first: NameGuard<'a>,
    _second: Option<NameGuard<'a>>,
}

impl NameLocks {
    /// An empty table, sized for this machine.
    #[must_use]
    pub fn new() -> Self {
        let cpus = available_parallelism().map_or(1, NonZeroUsize::get);
        Self::with_buckets(cpus.saturating_mul(BUCKETS_PER_CPU))
    }

    /// An empty table with that many buckets, rounded up to a power of two of at least 1 and at most 65536.
    #[must_use]
    pub fn with_buckets(count: usize) -> Self {
        let count = count.clamp(1, 1 << 16).next_power_of_two();
        Self { buckets: (0..count).map(|_| Bucket::new()).collect() }
    }

    /// Prefetches what locking this name changes, for a caller that has other work to do before that.
    #[inline]
    pub fn prefetch(&self, directory: u64, hash: u64) {
        prefetch_for_write(self.bucket(Key::new(directory, hash)));
    }

    /// Waits until this thread holds the name with this hash in `directory` exclusively.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a name or a lock of the same or a higher rank than names have.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self, directory: u64, hash: u64) -> NameGuard<'_> {
        self.acquire(Key::new(directory, hash), Mode::Exclusive, 0)
    }

    /// Waits until this thread holds the name with this hash in `directory` shared.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock_shared(&self, directory: u64, hash: u64) -> NameGuard<'_> {
        self.acquire(Key::new(directory, hash), Mode::Shared, 0)
    }

    /// Waits until this thread holds both names exclusively, each by its directory and its hash. They are taken in the
    /// one order that all threads keep; if they are the same, once.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock_two(&self, one: (u64, u64), other: (u64, u64)) -> NamePairGuard<'_> {
        let (one, other) = (Key::new(one.0, one.1), Key::new(other.0, other.1));
        let first = self.acquire(one.min(other), Mode::Exclusive, 0);
        let second = (one != other).then(|| self.acquire(one.max(other), Mode::Exclusive, 1));
        NamePairGuard { _first: first, _second: second }
    }

    /// Takes another name as well, without waiting for it; if that is not possible, the first one is released, and the
    /// caller goes on with [`lock_two`](Self::lock_two). For a caller that works with the first name before it needs
    /// the other.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_lock_too<'a>(
        &'a self,
        first: NameGuard<'a>,
        directory: u64,
        hash: u64,
    ) -> Option<NamePairGuard<'a>> {
        let key = Key::new(directory, hash);
        if key == first.key {
            return Some(NamePairGuard { _first: first, _second: None });
        }
        let bucket = self.bucket(key);
        if !bucket.try_take_single(key, Mode::Exclusive) {
            return None;
        }
        let held = Held::after_try(&order::NAME);
        let second = NameGuard::taken(bucket, key, Mode::Exclusive, held, None);
        Some(NamePairGuard { _first: first, _second: Some(second) })
    }

    /// Waits until every name of `directory` that is locked at this moment has been released, once for each. Names
    /// that are locked later are not waited for; a thread that locks them sees what the caller did before, even by a
    /// relaxed load. One in a million of other directories is taken for this one, so no thread may hold a name of any
    /// directory while waiting for the caller.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn drain(&self, directory: u64) {
        let _held = Held::before_wait(&order::NAME, 0);
        let directory = DirectoryTag::of(directory);
        for bucket in &self.buckets {
            // The entries still to be waited for: numbers rise, and a name that is handed on keeps its number.
            let (mut next, mut end) = (EntryId::FIRST, None);
            while !bucket.pass_if_free() {
                let mut names = bucket.inflate();
                let end = *end.get_or_insert(names.next_id());
                let locked = names.entries_mut().filter(|entry| entry.key.directory() == directory);
                let waited_for = locked.filter(|entry| (next..end).contains(&entry.id));
                let Some(entry) = waited_for.min_by_key(|entry| entry.id) else { break };
                // Joins the holders that share the name, and releases it at once.
                let (waiter, key) = (Waiter::for_this_thread(), entry.key);
                entry.enqueue(Mode::Shared, Arc::clone(&waiter));
                next = entry.id.next();
                drop(names);
                waiter.sleep(Deadline::NEVER, true);
                release_among_others(bucket, key);
            }
        }
    }

    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn acquire(&self, key: Key, mode: Mode, subclass: u32) -> NameGuard<'_> {
        let held = Held::before_wait(&order::NAME, subclass);
        let bucket = self.bucket(key);
        let wait =
            if bucket.try_take_single(key, mode) { None } else { take_among_others(bucket, key, mode) };
        NameGuard::taken(bucket, key, mode, held, wait.as_ref())
    }

    fn bucket(&self, key: Key) -> &Bucket {
        &self.buckets[key.bucket(self.buckets.len())]
    }
}

impl<'a> NameGuard<'a> {
    #[inline]
    fn taken(bucket: &'a Bucket, key: Key, mode: Mode, held: Held, wait: Option<&Wait>) -> Self {
        let hold = stats::is_enabled().then(|| Hold::begin(&order::NAME, mode, &bucket.last_cpu, wait));
        Self { bucket, key, mode, hold, _held: held, _not_send: PhantomData }
    }
}

/// Takes a name in a bucket where another thread has one, perhaps the same. Returns the wait if it is measured.
#[cold]
fn take_among_others(bucket: &Bucket, key: Key, mode: Mode) -> Option<Wait> {
    let mut names = bucket.inflate();
    let busy = names.try_take(key, mode).err()?;
    let wait = stats::is_enabled().then(|| Wait::begin(&bucket.last_cpu));
    let waiter = Waiter::for_this_thread();
    busy.enqueue(mode, Arc::clone(&waiter));
    drop(names);
    waiter.sleep(Deadline::NEVER, true);
    wait
}

/// Lets a name go that is in its bucket's list.
#[cold]
fn release_among_others(bucket: &Bucket, key: Key) {
    let released = bucket.inflate().release(key);
    // Without the bucket's mutex: a woken thread may want it at once.
    match released {
        Released::StillShared => {}
        Released::Free(entry) => drop(entry),
        Released::HandedOver(waiters) => waiters.iter().for_each(|waiter| waiter.wake()),
    }
}

impl Default for NameLocks {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for NameLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameLocks").field("buckets", &self.buckets.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for NameGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameGuard").finish_non_exhaustive()
    }
}

impl fmt::Debug for NamePairGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamePairGuard").field("same", &self._second.is_none()).finish_non_exhaustive()
    }
}

impl Drop for NameGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.end();
        }
        if !self.bucket.release_single(self.key, self.mode) {
            release_among_others(self.bucket, self.key);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Hashes of two names.
    const A: u64 = 97;
    const B: u64 = 98;

    fn until_queued(locks: &NameLocks, name: u64, count: usize) {
        let key = Key::new(1, name);
        while locks.bucket(key).queued(key) != count {
            thread::yield_now();
        }
    }

    fn is_empty(locks: &NameLocks) -> bool {
        locks.buckets.iter().all(Bucket::is_free)
    }

    #[test]
    fn other_names_and_other_directories_are_free_even_in_one_bucket() {
        let locks = NameLocks::with_buckets(1);
        let held = locks.lock(1, A);
        thread::scope(|scope| {
            let others = scope.spawn(|| {
                drop(locks.lock(1, B));
                drop(locks.lock(2, A));
            });
            others.join().unwrap();
        });
        drop(held);
        assert!(is_empty(&locks));
    }

    #[test]
    fn the_same_name_is_held_by_one_at_a_time() {
        let (locks, inside, updates) = (NameLocks::new(), AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let _guard = locks.lock(7, A);
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        updates.store(updates.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        inside.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(updates.into_inner(), 4000);
        assert!(is_empty(&locks));
    }

    #[test]
    fn a_release_serves_the_queue_in_order_and_readers_together() {
        let locks = NameLocks::with_buckets(1);
        let (log, entries) = mpsc::channel();
        let together = std::sync::Barrier::new(2);
        thread::scope(|scope| {
            let held = locks.lock(1, A);
            let queue = [Mode::Exclusive, Mode::Shared, Mode::Shared, Mode::Exclusive, Mode::Shared];
            for (at, mode) in queue.into_iter().enumerate() {
                let (locks, together, log) = (&locks, &together, log.clone());
                scope.spawn(move || {
                    let _guard = match mode {
                        Mode::Exclusive => locks.lock(1, A),
                        Mode::Shared => locks.lock_shared(1, A),
                    };
                    if at == 1 || at == 2 {
                        // Passes only if both readers hold the name at the same time.
                        together.wait();
                    }
                    log.send(at).unwrap();
                });
                until_queued(locks, A, at + 1);
            }
            drop(held);
        });
        let mut order: Vec<usize> = entries.try_iter().collect();
        order[1..3].sort_unstable();
        assert_eq!(order, [0, 1, 2, 3, 4]);
        assert!(is_empty(&locks));
    }

    #[test]
    fn readers_share_a_name_but_not_past_a_waiting_writer() {
        let locks = NameLocks::with_buckets(4);
        let (log, entries) = mpsc::channel();
        let writes = log.clone();
        thread::scope(|scope| {
            let reader = locks.lock_shared(1, A);
            thread::scope(|scope| scope.spawn(|| drop(locks.lock_shared(1, A))).join().unwrap());
            scope.spawn(|| {
                let _guard = locks.lock(1, A);
                writes.send("write").unwrap();
            });
            until_queued(&locks, A, 1);
            scope.spawn(|| {
                let _guard = locks.lock_shared(1, A);
                log.send("read").unwrap();
            });
            until_queued(&locks, A, 2);
            drop(reader);
        });
        assert_eq!(entries.recv(), Ok("write"));
        assert_eq!(entries.recv(), Ok("read"));
    }

    #[test]
    fn draining_waits_for_the_directory_s_names_of_that_moment_and_no_others() {
        let locks = NameLocks::with_buckets(2);
        let elsewhere = locks.lock(2, A);
        thread::scope(|scope| scope.spawn(|| locks.drain(1)).join().unwrap());
        drop(elsewhere);
        let (log, entries) = mpsc::channel();
        let drained = log.clone();
        thread::scope(|scope| {
            let held = locks.lock_shared(1, A);
            scope.spawn(|| {
                locks.drain(1);
                drained.send("drained").unwrap();
            });
            until_queued(&locks, A, 1);
            log.send("let go").unwrap();
            drop(held);
        });
        drop((log, drained));
        assert_eq!(entries.iter().collect::<Vec<_>>(), ["let go", "drained"]);
        assert!(is_empty(&locks));
    }

    #[test]
    fn two_names_are_taken_in_one_order_by_all_threads() {
        let locks = NameLocks::with_buckets(2);
        let (a, b) = ((1, A), (2, B));
        thread::scope(|scope| {
            for turned in [false, true] {
                let locks = &locks;
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let _pair = if turned { locks.lock_two(b, a) } else { locks.lock_two(a, b) };
                    }
                });
            }
        });
        assert!(is_empty(&locks));
    }

    #[test]
    fn another_name_is_taken_as_well_only_if_it_is_free() {
        let locks = NameLocks::with_buckets(64);
        let others = locks.lock(2, B);
        thread::scope(|scope| {
            let refused = scope.spawn(|| locks.try_lock_too(locks.lock(1, A), 2, B).is_none());
            assert!(refused.join().unwrap());
            // Nor is the first name kept.
            scope.spawn(|| drop(locks.lock(1, A))).join().unwrap();
        });
        drop(others);
        let pair = locks.try_lock_too(locks.lock(1, A), 2, B).unwrap();
        thread::scope(|scope| {
            for (directory, name) in [(1, A), (2, B)] {
                let locks = &locks;
                let taken = move || locks.try_lock_too(locks.lock(3, A), directory, name).is_some();
                assert!(!scope.spawn(taken).join().unwrap());
            }
        });
        drop(pair);
        let same = locks.try_lock_too(locks.lock(1, A), 1, A).unwrap();
        assert!(same._second.is_none());
        drop(same);
        assert!(is_empty(&locks));
    }

    #[test]
    fn the_same_name_twice_is_locked_once() {
        let locks = NameLocks::new();
        let pair = locks.lock_two((1, A), (1, A));
        assert!(pair._second.is_none());
        drop(pair);
        assert!(is_empty(&locks));
    }

    #[test]
    fn the_number_of_buckets_is_a_power_of_two_within_bounds() {
        for (asked, given) in [(0, 1), (1, 1), (3, 4), (usize::MAX, 65536)] {
            assert_eq!(NameLocks::with_buckets(asked).buckets.len(), given);
        }
    }
}
