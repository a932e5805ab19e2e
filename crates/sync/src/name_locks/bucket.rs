//! One bucket of name locks: a word while a single thread has a name in it, a list under a mutex for the rest.
//!
//! Nearly always a bucket has a single holder, whose name is taken and released by one compare-and-swap each. A thread
//! that finds another holder in the bucket *inflates* it: the single holder moves into the list, with the same name in
//! the same mode, and all threads go by the list until it has run empty.
//!
//! | word       | bits 63..2 | bits 1..0 | means                                | list, while the mutex is free |
//! |------------|------------|-----------|--------------------------------------|-------------------------------|
//! | `FREE`     | 0          | 00        | no name of this bucket is locked     | empty                         |
//! | `INFLATED` | 0          | 01        | the locked names are in the list     | not empty                     |
//! | single     | key        | 10        | this name is held exclusively        | empty                         |
//! | single     | key        | 11        | this name is shared, so far by one thread | empty                    |
//!
//! | change               | by which thread   | ordering | why                                                  |
//! |----------------------|-------------------|----------|------------------------------------------------------|
//! | `FREE` -> single     | one that locks    | acquire  | sees what earlier holders did, and which thread drained |
//! | single -> `FREE`     | its holder        | release  | publishes what the holder did                        |
//! | `FREE` -> `INFLATED` | under the mutex   | acquire  | may take a name next: as for `FREE` -> single        |
//! | single -> `INFLATED` | under the mutex   | acquire  | the same; the holder's own release now fails         |
//! | `INFLATED` -> `FREE` | under the mutex, the list being empty | release | publishes what was done under it  |
//! | `FREE` -> `FREE`     | one that drains   | both     | see below                                            |
//!
//! A compare-and-swap that fails orders nothing: the thread takes the mutex then, and `INFLATED` comes and goes only
//! under the mutex, so that a relaxed load is exact there.
//!
//! **Draining a free bucket** is more than a load: the draining thread has raised a removal barrier before, and a
//! thread that locks a name from now on must see the barrier by a relaxed load. So the draining thread exchanges
//! `FREE` for itself. A thread that locked before that has also released before, and the acquire half sees what it
//! did. A thread that locks after that finds in the word what the exchange wrote or what came of it, and acquires the
//! raised barrier. Nothing in between breaks this chain: exchanges continue a release sequence, and the one plain
//! store, `INFLATED` -> `FREE`, comes from a thread that is itself behind the exchange to `INFLATED`, by having made
//! it or by the mutex.

use std::ops::{Deref, DerefMut};

use super::key::Key;
use super::names::Names;
use crate::primitives::atomic::{AtomicU64, Ordering};
use crate::primitives::{Mutex, MutexGuard};
use crate::stats::Mode;
use crate::stats::probe::LastCpu;

const FREE: u64 = 0;
const INFLATED: u64 = 0b01;
const ALONE: u64 = 0b10;
const SHARED: u64 = 0b01;
const KEY_SHIFT: u32 = u64::BITS - Key::BITS;

/// Padded to its own cache lines, which processors fetch in pairs.
#[repr(align(128))]
pub(super) struct Bucket {
    word: AtomicU64,
    /// Where a name of this bucket was last taken while measured: the bucket is what moves between processors.
    pub(super) last_cpu: LastCpu,
    names: Mutex<Names>,
}

/// The list of a bucket that is inflated for as long as this lives, and then as long as the list has entries.
pub(super) struct Inflated<'a> {
    word: &'a AtomicU64,
    names: MutexGuard<'a, Names>,
}

impl Bucket {
    pub(super) fn new() -> Self {
        Self { word: AtomicU64::new(FREE), last_cpu: LastCpu::unknown(), names: Mutex::new(Names::new()) }
    }

    /// Takes a name if no name of this bucket is locked.
    #[inline]
    pub(super) fn try_take_single(&self, key: Key, mode: Mode) -> bool {
        self.word.compare_exchange(FREE, single(key, mode), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Releases a name whose holder is still the single one in this bucket; `false` if it is held by the list.
    #[inline]
    pub(super) fn release_single(&self, key: Key, mode: Mode) -> bool {
        self.word.compare_exchange(single(key, mode), FREE, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Whether no name of this bucket is locked. If so, a thread that locks one from now on sees what the caller did,
    /// and the caller sees what earlier holders did.
    pub(super) fn pass_if_free(&self) -> bool {
        self.word.compare_exchange(FREE, FREE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Everything that is locked in this bucket, as a list.
    pub(super) fn inflate(&self) -> Inflated<'_> {
        let mut names = self.names.lock();
        let mut word = self.word.load(Ordering::Relaxed);
        while word != INFLATED {
            let inflated =
                self.word.compare_exchange_weak(word, INFLATED, Ordering::Acquire, Ordering::Relaxed);
            match inflated {
                Ok(FREE) => break,
                Ok(holder) => {
                    let (key, mode) = holder_of(holder);
                    names.push(key, mode);
                    break;
                }
                Err(found) => word = found,
            }
        }
        Inflated { word: &self.word, names }
    }
}

impl Drop for Inflated<'_> {
    fn drop(&mut self) {
        if self.names.is_empty() {
            self.word.store(FREE, Ordering::Release);
        }
    }
}

impl Deref for Inflated<'_> {
    type Target = Names;
    fn deref(&self) -> &Names {
        &self.names
    }
}

impl DerefMut for Inflated<'_> {
    fn deref_mut(&mut self) -> &mut Names {
        &mut self.names
    }
}

/// The word of a bucket in which only this is locked.
fn single(key: Key, mode: Mode) -> u64 {
    let shared = match mode {
        Mode::Exclusive => 0,
        Mode::Shared => SHARED,
    };
    key.to_bits() << KEY_SHIFT | ALONE | shared
}

/// What is locked in a bucket with such a word.
fn holder_of(single: u64) -> (Key, Mode) {
    let mode = if single & SHARED == 0 { Mode::Exclusive } else { Mode::Shared };
    (Key::from_bits(single >> KEY_SHIFT), mode)
}

#[cfg(all(test, not(any(loom, shuttle))))]
impl Bucket {
    /// Whether nothing is locked here.
    pub(super) fn is_free(&self) -> bool {
        self.names.lock().is_empty() && self.word.load(Ordering::Relaxed) == FREE
    }

    /// How many threads queue for a name.
    pub(super) fn queued(&self, key: Key) -> usize {
        self.names.lock().queued(key)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::names::Released;
    use super::*;

    const BOTH: [Mode; 2] = [Mode::Exclusive, Mode::Shared];

    #[test]
    fn a_single_holder_is_known_by_the_word_whatever_its_key() {
        for bits in [0, 1, (1 << Key::BITS) - 1] {
            for mode in BOTH {
                let word = single(Key::from_bits(bits), mode);
                assert_ne!(word, FREE);
                assert_ne!(word, INFLATED);
                assert_eq!(holder_of(word), (Key::from_bits(bits), mode));
            }
        }
    }

    #[test]
    fn a_single_holder_takes_and_releases_without_the_list() {
        let (bucket, key) = (Bucket::new(), Key::from_bits(5));
        for mode in BOTH {
            assert!(bucket.try_take_single(key, mode));
            assert!(!bucket.try_take_single(Key::from_bits(6), mode));
            assert!(!bucket.pass_if_free());
            assert!(bucket.names.lock().is_empty());
            assert!(bucket.release_single(key, mode));
            assert!(bucket.pass_if_free());
        }
    }

    #[test]
    fn a_single_holder_keeps_its_name_and_mode_in_the_list() {
        for (mode, may_share) in BOTH.into_iter().zip([false, true]) {
            let (bucket, key) = (Bucket::new(), Key::from_bits(5));
            assert!(bucket.try_take_single(key, mode));
            assert_eq!(bucket.inflate().try_take(key, Mode::Shared).is_ok(), may_share);
            assert!(!bucket.release_single(key, mode));
            if may_share {
                assert!(matches!(bucket.inflate().release(key), Released::StillShared));
            }
            assert!(matches!(bucket.inflate().release(key), Released::Free(_)));
            assert!(bucket.is_free());
        }
    }

    #[test]
    fn the_word_is_free_again_when_the_list_has_run_empty() {
        let (bucket, a, b) = (Bucket::new(), Key::from_bits(1), Key::from_bits(2));
        assert!(bucket.try_take_single(a, Mode::Exclusive));
        assert!(bucket.inflate().try_take(b, Mode::Exclusive).is_ok());
        assert!(matches!(bucket.inflate().release(a), Released::Free(_)));
        assert!(!bucket.try_take_single(a, Mode::Exclusive));
        assert!(matches!(bucket.inflate().release(b), Released::Free(_)));
        assert!(bucket.try_take_single(a, Mode::Exclusive));
    }
}
