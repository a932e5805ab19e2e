//! A name in a directory with its hashes: made once for an operation, and used by the name's lock, the name cache and
//! a directory in memory, each of which would otherwise go over the bytes again, and some of them several times.
//!
//! There are two hashes: one of the whole name, and one of its *stem*, which names numbered in a row have in common.
//! Both are keyed anew in each process, since names come from anywhere.

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::ops::Deref;
use std::sync::OnceLock;

use foldhash::quality::RandomState;

/// A name in a directory, with its hashes.
#[derive(Clone, Copy)]
pub struct HashedName<'a> {
    bytes: &'a [u8],
    hash: u64,
    stem_hash: u64,
}

impl<'a> HashedName<'a> {
    /// A name, which is hashed.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        static STATE: OnceLock<RandomState> = OnceLock::new();
        let (stem, rest) = bytes.split_at(stem_len(bytes));
        let mut hasher = STATE.get_or_init(RandomState::default).build_hasher();
        hasher.write(stem);
        let stem_hash = hasher.finish();
        hasher.write(rest);
        Self { bytes, hash: hasher.finish(), stem_hash }
    }

    /// The name.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// A hash of the whole name.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// A hash of the name's stem: the same for names that are numbered one after the other.
    pub(crate) fn stem_hash(&self) -> u64 {
        self.stem_hash
    }
}

impl Deref for HashedName<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl fmt::Debug for HashedName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.bytes.escape_ascii())
    }
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
    fn equal_names_have_equal_hashes_and_neighbours_equal_stems() {
        let hashes = |name: &str| {
            let name = HashedName::new(name.as_bytes());
            (name.hash(), name.stem_hash())
        };
        assert_eq!(hashes("file0041"), hashes("file0041"));
        assert_ne!(hashes("file0041").0, hashes("file0042").0);
        assert_eq!(hashes("file0041").1, hashes("file0042").1);
        assert_ne!(hashes("file0041").1, hashes("file0141").1);
    }
}
