//! Entries of the hash index: from the hash of a name to where the name is.
//!
//! They lie in a directory's single block, in the one leaf of a directory that has outgrown it, or in the leaves of a
//! tree. The one leaf also has the largest unused space of each data block; with a tree, blocks of the free index have
//! it.

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::entry::Position;
use crate::da::{Layout, Links};
use crate::error::Verdict;

/// Magic numbers of the one leaf and of a leaf of a tree, in versions 4 and 5.
const MAGIC_ONE: [u16; 2] = [0xd2f1, 0x3df1];
const MAGIC_OF_TREE: [u16; 2] = [0xd2ff, 0x3dff];

/// Ends the one leaf: for how many data blocks it has the largest unused space.
const TAIL_BYTES: usize = 4;

/// Where the name of one entry is.
#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawLeafEntry {
    hashval: U32,
    address: U32,
}

impl RawLeafEntry {
    pub(crate) fn hash(&self) -> u32 {
        self.hashval.get()
    }

    /// Where the entry begins; `None` for one that is stale, whose hash still keeps the order.
    pub(crate) fn position(&self) -> Option<Position> {
        match self.address.get() {
            0 => None,
            address => Some(Position(u64::from(address))),
        }
    }
}

/// A validated leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf<'a> {
    /// In the order of their hashes.
    pub(crate) entries: &'a [RawLeafEntry],
    /// For each data block its largest unused space, in the one leaf of a directory.
    pub(crate) best: Option<&'a [U16]>,
}

impl<'a> Leaf<'a> {
    /// Whether a block with these links is a directory's one leaf.
    pub(crate) fn is_one(links: &Links, layout: &Layout) -> bool {
        links.magic == MAGIC_ONE[usize::from(layout.self_describing)]
    }

    /// Validates a block whose header has been verified.
    pub(crate) fn validate(bytes: &'a [u8], layout: &Layout) -> Verdict<Self> {
        let links = Links::of(bytes)?;
        let one = Self::is_one(&links, layout);
        if !one && links.magic != MAGIC_OF_TREE[usize::from(layout.self_describing)] {
            return Err(format!("magic number {:#06x} is not that of a leaf", links.magic).into());
        }
        let fixed = Links::bytes(layout);
        let entries_at = fixed + if layout.self_describing { 8 } else { 4 };
        let Some((header, rest)) = bytes.split_at_checked(entries_at) else {
            return Err("too short for its header".into());
        };
        let word = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
        let (count, stale) = (word(fixed), word(fixed + 2));
        let (rest, best) = if one {
            let (rest, best) = best_of_blocks(rest)?;
            (rest, Some(best))
        } else {
            (rest, None)
        };
        Ok(Self { entries: leaf_entries(rest, count, stale)?, best })
    }
}

/// Validates `count` entries at the start of `bytes`.
pub(super) fn leaf_entries(bytes: &[u8], count: usize, stale: usize) -> Verdict<&[RawLeafEntry]> {
    let Ok((entries, _)) = <[RawLeafEntry]>::ref_from_prefix_with_elems(bytes, count) else {
        let room = bytes.len() / size_of::<RawLeafEntry>();
        return Err(format!("its index has {count} entries, with room for {room}").into());
    };
    if let Some(at) = entries.windows(2).position(|pair| pair[0].hash() > pair[1].hash()) {
        return Err(format!("hashes decrease after entry {at} of its index").into());
    }
    let found = entries.iter().filter(|entry| entry.position().is_none()).count();
    if found != stale {
        return Err(format!("says that {stale} entries of its index are stale; {found} are").into());
    }
    Ok(entries)
}

/// Splits off the end, which has the largest unused space of each data block.
fn best_of_blocks(bytes: &[u8]) -> Verdict<(&[u8], &[U16])> {
    let Some((rest, count)) = bytes.split_last_chunk::<TAIL_BYTES>() else {
        return Err("too short for its end".into());
    };
    let count = u32::from_be_bytes(*count) as usize;
    <[U16]>::ref_from_suffix_with_elems(rest, count).map_err(|_| {
        let room = rest.len() / 2;
        format!("has the unused space of {count} data blocks, with room for {room}").into()
    })
}

/// The entries with this hash.
pub(crate) fn with_hash(entries: &[RawLeafEntry], hash: u32) -> &[RawLeafEntry] {
    let from = entries.partition_point(|entry| entry.hash() < hash);
    let rest = &entries[from..];
    &rest[..rest.partition_point(|entry| entry.hash() == hash)]
}

#[cfg(test)]
mod tests {
    use super::super::testing::LAYOUT;
    use super::*;

    fn leaf(magic: u16, count: u16, stale: u16, entries: &[(u32, u32)], best: &[u16]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[8..10].copy_from_slice(&magic.to_be_bytes());
        bytes[56..58].copy_from_slice(&count.to_be_bytes());
        bytes[58..60].copy_from_slice(&stale.to_be_bytes());
        for (hash, address) in entries {
            bytes.extend(hash.to_be_bytes());
            bytes.extend(address.to_be_bytes());
        }
        bytes.resize(4096, 0);
        if !best.is_empty() {
            let tail: Vec<u8> = best.iter().flat_map(|best| best.to_be_bytes()).collect();
            bytes[4092 - tail.len()..4092].copy_from_slice(&tail);
            bytes[4092..].copy_from_slice(&(best.len() as u32).to_be_bytes());
        }
        bytes
    }

    #[test]
    fn entries_of_one_hash_lie_together() {
        let bytes = leaf(0x3dff, 5, 1, &[(1, 8), (5, 10), (5, 0), (5, 30), (9, 40)], &[]);
        let leaf = Leaf::validate(&bytes, &LAYOUT).unwrap();
        assert!(leaf.best.is_none());
        let found = |hash| -> Vec<_> {
            with_hash(leaf.entries, hash).iter().map(|entry| entry.position().map(|p| p.0)).collect()
        };
        assert_eq!(found(5), [Some(10), None, Some(30)]);
        assert_eq!(
            (found(1), found(9), found(4), found(10)),
            (vec![Some(8)], vec![Some(40)], vec![], vec![])
        );
    }

    #[test]
    fn the_one_leaf_tells_the_unused_space() {
        let bytes = leaf(0x3df1, 1, 0, &[(1, 8)], &[16, 0xffff]);
        let leaf = Leaf::validate(&bytes, &LAYOUT).unwrap();
        let best: Vec<u16> = leaf.best.unwrap().iter().map(|best| best.get()).collect();
        assert_eq!(best, [16, 0xffff]);
    }

    #[test]
    fn damage_is_named() {
        let failure = |bytes: &[u8]| Leaf::validate(bytes, &LAYOUT).unwrap_err().into_owned();
        assert!(failure(&leaf(0xd2ff, 0, 0, &[], &[])).contains("magic"));
        assert!(failure(&leaf(0x3dff, 505, 0, &[], &[])).contains("room for 504"));
        assert!(failure(&leaf(0x3dff, 2, 0, &[(2, 8), (1, 8)], &[])).contains("decrease"));
        assert!(
            failure(&leaf(0x3dff, 2, 1, &[(2, 8), (3, 8)], &[]))
                .contains("1 entries of its index are stale; 0")
        );
        let mut bytes = leaf(0x3df1, 1, 0, &[(1, 8)], &[]);
        bytes[4092..].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(failure(&bytes).contains("room for 2014"));
        assert!(failure(&bytes[..60]).contains("too short"));
        // The entries may not reach into the end.
        assert!(failure(&leaf(0x3df1, 504, 504, &[], &[1])).contains("room for 503"));
    }
}
