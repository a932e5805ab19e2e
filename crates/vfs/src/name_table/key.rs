//! Keys: where in the trie a name has its place, and where in the directory's order.
//!
//! | bits of a key | are                                       | so that                                               |
//! | ------------- | ----------------------------------------- | ----------------------------------------------------- |
//! | the highest 6 | of the whole name's hash                  | threads that work on a name each meet in few leaves   |
//! | the next 15   | the hash of the name's [stem](stem_len)   | names numbered one after the other share a few leaves |
//! | the next 35   | more of the whole name's hash             | names of one stem are told apart                      |
//! | the lowest 7  | a number                                  | names of one hash are told apart                      |
//!
//! Without the stem each new file of a large directory would touch another leaf, which the processor's cache has lost
//! long ago. With it the leaves that a program fills, one numbered name after the other, stay where they are needed.
//! Names without a pattern have stems without one, and are spread as any hash would spread them.
//!
//! Both hashes are keyed anew in each process, since names come from anywhere.

use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

use foldhash::quality::RandomState;

use super::leaf::FANOUT_BITS;

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
pub(super) fn hash(name: &[u8]) -> u64 {
    static STATE: OnceLock<RandomState> = OnceLock::new();
    let (stem, rest) = name.split_at(stem_len(name));
    let mut hasher = STATE.get_or_init(RandomState::default).build_hasher();
    hasher.write(stem);
    let of_stem = hasher.finish();
    hasher.write(rest);
    let of_name = hasher.finish();
    // A hash has one bit more than a key.
    ((of_name & !(STEM_MASK << 1) | of_stem & (STEM_MASK << 1)) >> 1) & HASH_MASK
}

/// The length of what a name mostly has in common with those numbered before and after it: all but an extension of up
/// to four bytes, which names shorter than five bytes are taken to have none of, and the two bytes before that.
fn stem_len(name: &[u8]) -> usize {
    let from_end = name.last_chunk::<5>().and_then(|end| end.iter().rev().position(|&byte| byte == b'.'));
    let extension = from_end.map_or(0, |bytes| bytes + 1);
    name.len().saturating_sub(extension + 2)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_stem_lacks_the_extension_and_the_last_digits() {
        for (name, stem) in [
            ("", ""),
            ("7", ""),
            ("ab", ""),
            ("file0042", "file00"),
            ("IMG_0042.jpg", "IMG_00"),
            ("page042.html", "page0"),
            ("part42.c", "part"),
            ("42.c", "42"),
            ("tool.settings", "tool.settin"),
            (".", ""),
        ] {
            assert_eq!(&name[..stem_len(name.as_bytes())], stem, "{name}");
        }
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
