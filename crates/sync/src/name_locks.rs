//! Name locks: one name in one directory at a time, different names in parallel.
//!
//! The namespace layer takes them instead of a lock on the directory: create, unlink and rename lock the names
//! they change, a lookup that has to read the directory shares its name. Only names that are locked right now
//! have an entry, in a bucket chosen by hash; a bucket's own lock is held for a few instructions and never while
//! anybody sleeps. Waiters queue at the entry of their name, first come first served, and a release hands the
//! name over: it wakes exactly the one waiter that has it now (or the readers that share it), which need not
//! fight for it again.
//!
//! A name is known by its directory and 64 bits of hash. Two names of one hash share a lock, which costs a wait that
//! was not needed, once in a very long while; in return a locked name takes 40 bytes, which move between processors
//! together with the bucket.
//!
//! Lock order: class [`order::NAME`]; two names only through [`NameLocks::lock_two`], which orders them by
//! directory, then hash. Names are compared as bytes: a directory that folds case locks the folded form.

use std::collections::VecDeque;
use std::fmt;
use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;

use foldhash::fast::FixedState;
use smallvec::SmallVec;

use crate::held::Held;
use crate::order;
use crate::primitives::{Deadline, Mutex};
use crate::stats::probe::{Hold, LastCpu, Wait};
use crate::stats::{self, Mode};
use crate::waiter::Waiter;

/// Buckets per processor: few enough to stay in the cache, many enough that two threads seldom meet.
const BUCKETS_PER_CPU: usize = 32;

/// A table of name locks, usually one per mounted filesystem.
pub struct NameLocks {
    /// A power of two of them.
    buckets: Box<[Bucket]>,
}

/// The locked names of one hash bucket; alone on its cache lines, which processors fetch in pairs.
#[repr(align(128))]
struct Bucket {
    /// Where a name of this bucket was last taken while measured: the bucket is what moves between processors.
    last_cpu: LastCpu,
    names: Mutex<Names>,
}

struct Names {
    next_id: EntryId,
    /// In no order. Seldom more than one: as many as there are threads at work in this bucket.
    entries: SmallVec<[Entry; 1]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct EntryId(u64);

/// A name that is locked.
struct Entry {
    id: EntryId,
    key: Key,
    /// How it is held now.
    mode: Mode,
    /// By how many; never 0, and 1 if exclusive.
    holders: u32,
    /// In the order they came; most names are never waited for.
    queue: Option<Box<VecDeque<Queued>>>,
}

struct Queued {
    mode: Mode,
    waiter: Arc<Waiter>,
}

/// What a name is known by, in the order in which two are locked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    directory: u64,
    hash: u64,
}

/// What became of a name that a holder let go.
enum Released {
    StillShared,
    /// Its entry, to be freed outside the bucket's lock.
    Free(Entry),
    /// It belongs to these now, who must be woken.
    HandedOver(Vec<Arc<Waiter>>),
}

/// A locked name, until dropped. Stays on its thread.
#[must_use = "the name is unlocked when the guard is dropped"]
pub struct NameGuard<'a> {
    bucket: &'a Bucket,
    id: EntryId,
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

    /// Waits until `name` in `directory` is this thread's alone.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a name or a lock of the same or a higher rank than names have.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self, directory: u64, name: &[u8]) -> NameGuard<'_> {
        self.acquire(Key::new(directory, name), Mode::Exclusive, 0)
    }

    /// Waits until `name` in `directory` is held by nobody but others who share it.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock_shared(&self, directory: u64, name: &[u8]) -> NameGuard<'_> {
        self.acquire(Key::new(directory, name), Mode::Shared, 0)
    }

    /// Waits until both names, each with its directory, are this thread's alone. They are taken in the one order
    /// that everybody keeps; if they are the same, once.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock_two(&self, one: (u64, &[u8]), other: (u64, &[u8])) -> NamePairGuard<'_> {
        let (one, other) = (Key::new(one.0, one.1), Key::new(other.0, other.1));
        let first = self.acquire(one.min(other), Mode::Exclusive, 0);
        let second = (one != other).then(|| self.acquire(one.max(other), Mode::Exclusive, 1));
        NamePairGuard { _first: first, _second: second }
    }

    /// Waits until every name of `directory` that is locked at this moment has been let go, once for each. Names
    /// that are locked later are not waited for.
    ///
    /// # Panics
    /// As [`lock`](Self::lock).
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn drain(&self, directory: u64) {
        for bucket in &self.buckets {
            // The entries still to be waited for: numbers rise, and a name that is handed on keeps its number.
            let (mut next, mut end) = (0, None);
            loop {
                let held = Held::before_wait(&order::NAME, 0);
                let mut names = bucket.names.lock();
                let end = *end.get_or_insert(names.next_id.0);
                let locked = names.entries.iter_mut().filter(|entry| entry.key.directory == directory);
                let waited_for = locked.filter(|entry| (next..end).contains(&entry.id.0));
                let Some(entry) = waited_for.min_by_key(|entry| entry.id.0) else { break };
                // As one more who shares the name, and lets it go at once.
                let waiter = Waiter::for_this_thread();
                entry.enqueue(Queued { mode: Mode::Shared, waiter: Arc::clone(&waiter) });
                let id = entry.id;
                next = id.0 + 1;
                drop(names);
                waiter.sleep(Deadline::NEVER);
                drop(NameGuard { bucket, id, hold: None, _held: held, _not_send: PhantomData });
            }
        }
    }

    #[cfg_attr(debug_assertions, track_caller)]
    fn acquire(&self, key: Key, mode: Mode, subclass: u32) -> NameGuard<'_> {
        let held = Held::before_wait(&order::NAME, subclass);
        // The number of buckets is a power of two.
        let bucket = &self.buckets[key.hash as usize & (self.buckets.len() - 1)];
        let mut names = bucket.names.lock();
        let (id, wait) = match names.try_take(key, mode) {
            Ok(id) => {
                drop(names);
                (id, None)
            }
            Err(busy) => {
                let wait = stats::is_enabled().then(|| Wait::begin(&bucket.last_cpu));
                let waiter = Waiter::for_this_thread();
                busy.enqueue(Queued { mode, waiter: Arc::clone(&waiter) });
                let id = busy.id;
                drop(names);
                waiter.sleep(Deadline::NEVER);
                (id, wait)
            }
        };
        let hold =
            stats::is_enabled().then(|| Hold::begin(&order::NAME, mode, &bucket.last_cpu, wait.as_ref()));
        NameGuard { bucket, id, hold, _held: held, _not_send: PhantomData }
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
    fn drop(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.end();
        }
        let released = self.bucket.names.lock().release(self.id);
        // Without the bucket's lock: a woken thread may want it at once.
        match released {
            Released::StillShared => {}
            Released::Free(entry) => drop(entry),
            Released::HandedOver(waiters) => waiters.iter().for_each(|waiter| waiter.wake()),
        }
    }
}

impl Key {
    fn new(directory: u64, name: &[u8]) -> Self {
        // Unkeyed: a bucket holds only names locked at this moment, so nobody can fill it from outside.
        let hash = FixedState::default().hash_one((directory, name));
        Self { directory, hash }
    }
}

impl Bucket {
    fn new() -> Self {
        Self {
            last_cpu: LastCpu::unknown(),
            names: Mutex::new(Names { next_id: EntryId(0), entries: SmallVec::new() }),
        }
    }
}

impl Names {
    /// Takes a name that is free, or shared and to be shared. Otherwise its entry, to queue at.
    fn try_take(&mut self, key: Key, mode: Mode) -> Result<EntryId, &mut Entry> {
        let Some(at) = self.entries.iter().position(|entry| entry.key == key) else {
            let id = self.next_id;
            self.next_id = EntryId(id.0 + 1);
            self.entries.push(Entry::new(id, key, mode));
            return Ok(id);
        };
        let entry = &mut self.entries[at];
        // Readers do not overtake those who queue.
        if mode == Mode::Shared && entry.mode == Mode::Shared && entry.queue.is_none() {
            entry.holders += 1;
            return Ok(entry.id);
        }
        Err(entry)
    }

    /// Lets one holder of the name go.
    fn release(&mut self, id: EntryId) -> Released {
        let at = self.entries.iter().position(|entry| entry.id == id).expect("a held name has an entry");
        let entry = &mut self.entries[at];
        entry.holders -= 1;
        if entry.holders > 0 {
            return Released::StillShared;
        }
        let heirs = entry.hand_over();
        if heirs.is_empty() {
            return Released::Free(self.entries.swap_remove(at));
        }
        Released::HandedOver(heirs)
    }
}

impl Entry {
    fn new(id: EntryId, key: Key, mode: Mode) -> Self {
        Self { id, key, mode, holders: 1, queue: None }
    }

    fn enqueue(&mut self, queued: Queued) {
        self.queue.get_or_insert_default().push_back(queued);
    }

    /// Gives the name, which nobody holds now, to the first in the queue, or to all the readers at its head.
    fn hand_over(&mut self) -> Vec<Arc<Waiter>> {
        let Some(queue) = &mut self.queue else {
            return Vec::new();
        };
        // A queue is there only while somebody is in it.
        let mut heirs = Vec::new();
        if let Some(first) = queue.pop_front() {
            self.mode = first.mode;
            heirs.push(first.waiter);
        }
        if self.mode == Mode::Shared {
            while let Some(next) = queue.pop_front_if(|next| next.mode == Mode::Shared) {
                heirs.push(next.waiter);
            }
        }
        self.holders = heirs.len() as u32;
        if queue.is_empty() {
            self.queue = None;
        }
        heirs
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// How many threads queue for a name.
    fn queued(locks: &NameLocks, directory: u64, name: &[u8]) -> usize {
        let key = Key::new(directory, name);
        let bucket = &locks.buckets[key.hash as usize & (locks.buckets.len() - 1)];
        let names = bucket.names.lock();
        names
            .entries
            .iter()
            .find(|entry| entry.key == key)
            .and_then(|entry| entry.queue.as_ref())
            .map_or(0, |queue| queue.len())
    }

    fn until_queued(locks: &NameLocks, name: &[u8], count: usize) {
        while queued(locks, 1, name) != count {
            thread::yield_now();
        }
    }

    fn is_empty(locks: &NameLocks) -> bool {
        locks.buckets.iter().all(|bucket| bucket.names.lock().entries.is_empty())
    }

    #[test]
    fn other_names_and_other_directories_are_free_even_in_one_bucket() {
        let locks = NameLocks::with_buckets(1);
        let held = locks.lock(1, b"a");
        thread::scope(|scope| {
            let others = scope.spawn(|| {
                drop(locks.lock(1, b"b"));
                drop(locks.lock(2, b"a"));
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
                        let _guard = locks.lock(7, b"name");
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
            let held = locks.lock(1, b"a");
            let queue = [Mode::Exclusive, Mode::Shared, Mode::Shared, Mode::Exclusive, Mode::Shared];
            for (at, mode) in queue.into_iter().enumerate() {
                let (locks, together, log) = (&locks, &together, log.clone());
                scope.spawn(move || {
                    let _guard = match mode {
                        Mode::Exclusive => locks.lock(1, b"a"),
                        Mode::Shared => locks.lock_shared(1, b"a"),
                    };
                    if at == 1 || at == 2 {
                        // Passes only if both readers hold the name at the same time.
                        together.wait();
                    }
                    log.send(at).unwrap();
                });
                until_queued(locks, b"a", at + 1);
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
            let reader = locks.lock_shared(1, b"a");
            thread::scope(|scope| scope.spawn(|| drop(locks.lock_shared(1, b"a"))).join().unwrap());
            scope.spawn(|| {
                let _guard = locks.lock(1, b"a");
                writes.send("write").unwrap();
            });
            until_queued(&locks, b"a", 1);
            scope.spawn(|| {
                let _guard = locks.lock_shared(1, b"a");
                log.send("read").unwrap();
            });
            until_queued(&locks, b"a", 2);
            drop(reader);
        });
        assert_eq!(entries.recv(), Ok("write"));
        assert_eq!(entries.recv(), Ok("read"));
    }

    #[test]
    fn draining_waits_for_the_directory_s_names_of_that_moment_and_no_others() {
        let locks = NameLocks::with_buckets(2);
        let elsewhere = locks.lock(2, b"a");
        thread::scope(|scope| scope.spawn(|| locks.drain(1)).join().unwrap());
        drop(elsewhere);
        let (log, entries) = mpsc::channel();
        let drained = log.clone();
        thread::scope(|scope| {
            let held = locks.lock_shared(1, b"a");
            scope.spawn(|| {
                locks.drain(1);
                drained.send("drained").unwrap();
            });
            until_queued(&locks, b"a", 1);
            log.send("let go").unwrap();
            drop(held);
        });
        drop((log, drained));
        assert_eq!(entries.iter().collect::<Vec<_>>(), ["let go", "drained"]);
        assert!(is_empty(&locks));
    }

    #[test]
    fn two_names_are_taken_in_one_order_by_everybody() {
        let locks = NameLocks::with_buckets(2);
        let (a, b) = ((1, b"a".as_slice()), (2, b"b".as_slice()));
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
    fn the_same_name_twice_is_locked_once() {
        let locks = NameLocks::new();
        let pair = locks.lock_two((1, b"a"), (1, b"a"));
        assert!(pair._second.is_none());
        drop(pair);
        assert!(is_empty(&locks));
    }

    #[test]
    fn keys_order_by_directory_then_hash() {
        let key = |directory, hash| Key { directory, hash };
        assert!(key(1, 9) < key(2, 0));
        assert!(key(1, 1) < key(1, 2));
    }

    #[test]
    fn names_of_one_hash_share_a_lock_and_directories_do_not() {
        let mut names = Names { next_id: EntryId(0), entries: SmallVec::new() };
        let key = |directory| Key { directory, hash: 5 };
        assert!(names.try_take(key(1), Mode::Exclusive).is_ok());
        assert!(names.try_take(key(1), Mode::Exclusive).is_err());
        assert!(names.try_take(key(2), Mode::Exclusive).is_ok());
    }

    #[test]
    fn the_number_of_buckets_is_a_power_of_two_within_bounds() {
        for (asked, given) in [(0, 1), (1, 1), (3, 4), (usize::MAX, 65536)] {
            assert_eq!(NameLocks::with_buckets(asked).buckets.len(), given);
        }
    }
}
