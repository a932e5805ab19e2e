//! An inner block of the tree: for each block below it the largest hash there.
//!
//! Every block of the tree begins with its siblings' numbers and its magic number ([`Links`]).

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::Layout;
use crate::error::Verdict;

/// Magic numbers of an inner block, in versions 4 and 5.
pub(crate) const MAGIC: [u16; 2] = [0xfebe, 0x3ebe];

/// Inner blocks lie at levels from 1 to this one; leaves are level 0.
pub(crate) const LEVEL_MAX: u16 = 4;

#[derive(Clone, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLinks {
    forw: U32,
    back: U32,
    magic: U16,
    pad: U16,
}

/// What every block of the tree begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Links {
    /// The next block of the same level; 0 for none.
    pub(crate) forward: u32,
    /// The one before.
    pub(crate) back: u32,
    /// What kind of block it is.
    pub(crate) magic: u16,
}

impl Links {
    /// Length of these three, and of what version 5 puts after them.
    pub(crate) fn bytes(layout: &Layout) -> usize {
        if layout.self_describing { 56 } else { size_of::<RawLinks>() }
    }

    /// Reads them from the start of a block.
    pub(crate) fn of(bytes: &[u8]) -> Verdict<Self> {
        let Ok((raw, _)) = RawLinks::ref_from_prefix(bytes) else {
            return Err("too short for its header".into());
        };
        Ok(Self { forward: raw.forw.get(), back: raw.back.get(), magic: raw.magic.get() })
    }

    /// Whether it is an inner block.
    pub(crate) fn is_node(&self, layout: &Layout) -> bool {
        self.magic == MAGIC[usize::from(layout.self_describing)]
    }
}

/// An entry of an inner block.
#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawNodeEntry {
    hashval: U32,
    before: U32,
}

impl RawNodeEntry {
    /// The largest hash in the block below.
    pub(crate) fn hash(&self) -> u32 {
        self.hashval.get()
    }

    /// The number of the block below.
    pub(crate) fn child(&self) -> u32 {
        self.before.get()
    }
}

/// A validated inner block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'a> {
    /// 1 where the blocks below are leaves.
    pub(crate) level: u16,
    /// At least one; the hashes never decrease.
    pub(crate) entries: &'a [RawNodeEntry],
}

impl<'a> Node<'a> {
    /// Validates a block whose header has been verified.
    pub(crate) fn validate(bytes: &'a [u8], layout: &Layout) -> Verdict<Self> {
        let links = Links::of(bytes)?;
        if !links.is_node(layout) {
            return Err(format!("magic number {:#06x} is not that of an inner block", links.magic).into());
        }
        let fixed = Links::bytes(layout);
        let entries_at = fixed + if layout.self_describing { 8 } else { 4 };
        let Some((header, rest)) = bytes.split_at_checked(entries_at) else {
            return Err("too short for its header".into());
        };
        let (count, level) = (be16(header, fixed), be16(header, fixed + 2));
        if !(1..=LEVEL_MAX).contains(&level) {
            return Err(format!("level is {level}; inner blocks have levels from 1 to {LEVEL_MAX}").into());
        }
        let room = rest.len() / size_of::<RawNodeEntry>();
        if count == 0 || usize::from(count) > room {
            return Err(format!("has {count} entries, with room for {room}").into());
        }
        let Ok((entries, _)) = <[RawNodeEntry]>::ref_from_prefix_with_elems(rest, usize::from(count)) else {
            return Err("entries do not fit".into());
        };
        if let Some(at) = entries.windows(2).position(|pair| pair[0].hash() > pair[1].hash()) {
            return Err(format!("hashes decrease after entry {at}").into());
        }
        Ok(Self { level, entries })
    }

    /// The block below in which a hash comes first, if it is anywhere.
    pub(crate) fn child_of(&self, hash: u32) -> u32 {
        let at = self.entries.partition_point(|entry| entry.hash() < hash);
        self.entries[at.min(self.entries.len() - 1)].child()
    }
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: Layout = Layout {
        self_describing: false,
        has_kinds: false,
        folds_case: false,
        block_bytes: 512,
        dir_block_bytes: 512,
    };

    fn node(level: u16, count: u16, entries: &[(u32, u32)]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 0, 9, 0, 0, 0, 0, 0xfe, 0xbe, 0, 0];
        bytes.extend(count.to_be_bytes());
        bytes.extend(level.to_be_bytes());
        for (hash, child) in entries {
            bytes.extend(hash.to_be_bytes());
            bytes.extend(child.to_be_bytes());
        }
        bytes.resize(512, 0);
        bytes
    }

    #[test]
    fn the_first_block_that_may_hold_a_hash_is_chosen() {
        let bytes = node(1, 4, &[(10, 1), (20, 2), (20, 3), (30, 4)]);
        assert_eq!(Links::of(&bytes).unwrap(), Links { forward: 9, back: 0, magic: 0xfebe });
        let node = Node::validate(&bytes, &V4).unwrap();
        let children = [0, 10, 11, 20, 21, 30, 31].map(|hash| node.child_of(hash));
        assert_eq!(children, [1, 1, 2, 2, 4, 4, 4]);
    }

    #[test]
    fn impossible_headers_are_refused() {
        let failure = |bytes: &[u8]| Node::validate(bytes, &V4).unwrap_err().into_owned();
        assert!(failure(&node(0, 1, &[(1, 1)])).contains("level is 0"));
        assert!(failure(&node(5, 1, &[(1, 1)])).contains("level is 5"));
        assert!(failure(&node(1, 0, &[])).contains("0 entries"));
        assert!(failure(&node(1, 63, &[])).contains("room for 62"));
        assert!(failure(&node(1, 2, &[(2, 1), (1, 1)])).contains("decrease after entry 0"));
        assert!(failure(&node(1, 1, &[])[..10]).contains("too short"));
        assert!(failure(&[0; 512]).contains("magic"));
        assert!(Node::validate(&node(1, 62, &[]), &V4).is_ok());
    }
}
