//! Keys: where in the trie a name has its place, and where in the directory's order.
//!
//! | bits of a key | are                                       | so that                                               |
//! | ------------- | ----------------------------------------- | ----------------------------------------------------- |
//! | the highest 6 | of the whole name's hash                  | threads that work on a name each meet in few leaves   |
//! | the next 15   | the hash of the name's stem             | names numbered one after the other share a few leaves |
//! | the next 35   | more of the whole name's hash             | names of one stem are told apart                      |
//! | the lowest 7  | a number                                  | names of one hash are told apart                      |
//!
//! Without the stem each new file of a large directory would touch another leaf, which the processor's cache has lost
//! long ago. With it the leaves that a program fills, one numbered name after the other, stay where they are needed.
//! Names without a pattern have stems without one, and are spread as any hash would spread them.

use super::leaf::FANOUT_BITS;
use crate::HashedName;

/// The bits of a key.
pub(super) const KEY_BITS: u32 = 63;

/// The largest key.
pub(super) const KEY_MAX: u64 = (1 << KEY_BITS) - 1;

/// The bits of a key that are not a hash's.
pub(super) const NUMBER_BITS: u32 = 7;

/// The bits of a key that are a hash's.
pub(super) const HASH_MASK: u64 = KEY_MAX & !((1 << NUMBER_BITS) - 1);

/// The branches that spread writers: those whose leaves are kept when they become empty.
pub(super) const SPREADING_DEPTH: u32 = 2;

/// The branches that keep neighbours together. They tell some 30,000 stems apart below each of the topmost ones, and
/// names of one stem that are too many for a leaf lie below all of them, so they should not be more.
const GATHERING_DEPTH: u32 = 5;

const STEM_SHIFT: u32 = KEY_BITS - (SPREADING_DEPTH + GATHERING_DEPTH) * FANOUT_BITS;
const STEM_MASK: u64 = ((1 << (GATHERING_DEPTH * FANOUT_BITS)) - 1) << STEM_SHIFT;

/// The least key that a name can have.
pub(super) fn least_key(name: &HashedName<'_>) -> u64 {
    // A hash has one bit more than a key.
    ((name.hash() & !(STEM_MASK << 1) | name.stem_hash() & (STEM_MASK << 1)) >> 1) & HASH_MASK
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn hash(name: &[u8]) -> u64 {
        least_key(&HashedName::new(name))
    }

    #[test]
    fn neighbours_lie_together_below_each_of_the_topmost_branches() {
        for extension in ["", ".txt"] {
            let keys: HashSet<u64> =
                (0..100).map(|number| hash(format!("file{number:06}{extension}").as_bytes())).collect();
            assert_eq!(keys.len(), 100);
            let stems: HashSet<u64> = keys.iter().map(|key| key & STEM_MASK).collect();
            assert_eq!(stems.len(), 1);
            let top: HashSet<u64> =
                keys.iter().map(|key| key >> (KEY_BITS - SPREADING_DEPTH * FANOUT_BITS)).collect();
            assert!(top.len() > 32, "below {} of 64", top.len());
        }
    }

    #[test]
    fn names_with_other_stems_are_spread() {
        let stems = (0..1000).map(|number| hash(format!("{number:06}00").as_bytes()) & STEM_MASK);
        let stems: HashSet<u64> = stems.collect();
        assert!(stems.len() > 900, "{} of 1000", stems.len());
    }
}
