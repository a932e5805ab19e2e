//! What a name is known by: 62 bits of its directory and its hash, so that a bucket's word has room for it.
//!
//! Two names of one key share a lock, which costs a wait that was not needed, once in a very long while; in return
//! a locked name is one number.

/// How many bits tell the directory.
const DIRECTORY_BITS: u32 = 20;
/// How many bits tell the name in it.
const HASH_BITS: u32 = Key::BITS - DIRECTORY_BITS;

/// The identity of a lock, in the order in which two are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u64);

/// What a key knows of its directory: enough to tell nearly all of them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirectoryTag(u64);

impl Key {
    pub(super) const BITS: u32 = 62;

    pub(super) fn new(directory: u64, hash: u64) -> Self {
        // One name in many directories must not fill one bucket.
        let hash = hash ^ spread(directory) >> (u64::BITS - HASH_BITS);
        Self(DirectoryTag::of(directory).0 << HASH_BITS | hash & ((1 << HASH_BITS) - 1))
    }

    pub(super) fn directory(self) -> DirectoryTag {
        DirectoryTag(self.0 >> HASH_BITS)
    }

    /// The bucket of this name in a table with a power of two of them.
    pub(super) fn bucket(self, buckets: usize) -> usize {
        self.0 as usize & (buckets - 1)
    }

    /// The number that this key is.
    pub(super) fn to_bits(self) -> u64 {
        self.0
    }

    /// The key that had this number.
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

impl DirectoryTag {
    pub(super) fn of(directory: u64) -> Self {
        Self(spread(directory) >> (u64::BITS - DIRECTORY_BITS))
    }
}

/// The golden ratio's multiples lie far apart: directories numbered in a row, or in steps, differ in the highest bits.
fn spread(directory: u64) -> u64 {
    directory.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::collections::HashSet;
    use std::hash::{DefaultHasher, Hasher};

    use super::*;

    /// As good a hash as names have.
    fn hash_of(number: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(number);
        hasher.finish()
    }

    #[test]
    fn one_name_in_many_directories_is_spread_over_the_buckets() {
        let buckets: HashSet<usize> = (0..1000).map(|ino| Key::new(ino, hash_of(7)).bucket(256)).collect();
        assert!(buckets.len() > 200, "{} of 256", buckets.len());
    }

    #[test]
    fn a_key_knows_its_directory_and_fits_its_bits() {
        for directory in [0, 1, 2, 1 << 40, u64::MAX] {
            let key = Key::new(directory, 0x1234_5678_9abc_def0);
            assert_eq!(key.directory(), DirectoryTag::of(directory));
            assert!(key.to_bits() < 1 << Key::BITS);
            assert_eq!(Key::from_bits(key.to_bits()), key);
        }
    }

    #[test]
    fn directories_numbered_in_a_row_or_in_steps_have_different_tags() {
        for step in [1_u64, 32, 1 << 20, 1 << 32] {
            let tags: HashSet<u64> = (0..1000).map(|number| DirectoryTag::of(number * step).0).collect();
            assert!(tags.len() > 990, "steps of {step}: {} of 1000", tags.len());
        }
    }

    #[test]
    fn names_differ_by_name_and_by_directory_and_spread_over_the_buckets() {
        let keys: HashSet<u64> = (0..100_u64)
            .flat_map(|directory| (0..100_u64).map(move |name| Key::new(directory, hash_of(name)).0))
            .collect();
        assert_eq!(keys.len(), 10_000);
        let mut buckets = [0; 64];
        for &key in &keys {
            buckets[Key(key).bucket(64)] += 1;
        }
        assert!(buckets.iter().all(|count| (78..312).contains(count)), "{buckets:?}");
    }
}
