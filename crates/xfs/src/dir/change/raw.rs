//! Bytes of the hash index and of its nodes, as they are changed.
//!
//! Leaves and nodes of version 5 are laid out alike: the header, at byte 56 a count of entries, at byte 58 the count of
//! stale entries of a leaf or the level of a node, and from byte 64 on entries of a hash and a number.

use std::cmp::Ordering;

/// Where the entries begin.
pub(super) const ENTRIES_AT: usize = 64;

/// Length of an entry.
pub(super) const ENTRY_BYTES: usize = 8;

/// Magic numbers of the first bytes of a block of names or of the free index.
pub(super) const MAGIC_BLOCK: &[u8; 4] = b"XDB3";
pub(super) const MAGIC_DATA: &[u8; 4] = b"XDD3";
pub(super) const MAGIC_FREE: &[u8; 4] = b"XDF3";

/// Magic numbers behind the links of a block of the hash tree.
pub(super) const MAGIC_LEAF_ONE: u16 = 0x3df1;
pub(super) const MAGIC_LEAF: u16 = 0x3dff;
pub(super) const MAGIC_NODE: u16 = 0x3ebe;

/// A hash, and what it leads to: the position of a name, or 0 for a stale entry, or a block of the tree.
pub(super) type Item = (u32, u32);

pub(super) fn get16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

pub(super) fn get32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

pub(super) fn put16(bytes: &mut [u8], at: usize, value: usize) {
    bytes[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
}

pub(super) fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// How many entries a leaf or node has.
pub(super) fn count(bytes: &[u8]) -> usize {
    usize::from(get16(bytes, 56))
}

/// How many entries of a leaf are stale.
pub(super) fn stale(bytes: &[u8]) -> usize {
    usize::from(get16(bytes, 58))
}

pub(super) fn item(bytes: &[u8], number: usize) -> Item {
    let at = ENTRIES_AT + number * ENTRY_BYTES;
    (get32(bytes, at), get32(bytes, at + 4))
}

pub(super) fn put_item(bytes: &mut [u8], number: usize, item: Item) {
    let at = ENTRIES_AT + number * ENTRY_BYTES;
    put32(bytes, at, item.0);
    put32(bytes, at + 4, item.1);
}

/// All entries of a leaf or node whose count has been validated.
pub(super) fn items(bytes: &[u8]) -> Vec<Item> {
    (0..count(bytes)).map(|number| item(bytes, number)).collect()
}

/// The entries of a leaf that lead to a name.
pub(super) fn live_items(bytes: &[u8]) -> Vec<Item> {
    (0..count(bytes)).map(|number| item(bytes, number)).filter(|item| item.1 != 0).collect()
}

/// Replaces the entries of a node.
pub(super) fn set_node_items(bytes: &mut [u8], items: &[Item]) {
    put16(bytes, 56, items.len());
    for (number, &item) in items.iter().enumerate() {
        put_item(bytes, number, item);
    }
}

/// Replaces the entries of a leaf by others of which none is stale.
pub(super) fn set_leaf_items(bytes: &mut [u8], items: &[Item]) {
    set_node_items(bytes, items);
    put16(bytes, 58, 0);
}

/// The hash that a leaf or node ends with.
pub(super) fn last_hash(bytes: &[u8]) -> u32 {
    count(bytes).checked_sub(1).map_or(0, |last| item(bytes, last).0)
}

/// The number of the first entry whose hash is not less.
pub(super) fn place_of(bytes: &[u8], hash: u32) -> usize {
    let (mut from, mut to) = (0, count(bytes));
    while from < to {
        let middle = usize::midpoint(from, to);
        if item(bytes, middle).0 < hash {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    from
}

/// Enters an entry into a leaf with room for `most`: a stale entry is used again, the nearest one. `false` when the leaf
/// is full.
pub(super) fn insert(bytes: &mut [u8], new: Item, most: usize) -> bool {
    let (count, place) = (count(bytes), place_of(bytes, new.0));
    let offset = |number: usize| ENTRIES_AT + number * ENTRY_BYTES;
    if stale(bytes) == 0 {
        if count >= most {
            return false;
        }
        bytes.copy_within(offset(place)..offset(count), offset(place + 1));
        put_item(bytes, place, new);
        put16(bytes, 56, count + 1);
        return true;
    }
    // The count of stale entries has been validated.
    let Some(used) = nearest_stale(bytes, place) else { return false };
    if used < place {
        bytes.copy_within(offset(used + 1)..offset(place), offset(used));
        put_item(bytes, place - 1, new);
    } else {
        bytes.copy_within(offset(place)..offset(used), offset(place + 1));
        put_item(bytes, place, new);
    }
    put16(bytes, 58, stale(bytes) - 1);
    true
}

/// The stale entry of a leaf that is nearest to a place.
pub(super) fn nearest_stale(bytes: &[u8], place: usize) -> Option<usize> {
    let is_stale = |number: &usize| item(bytes, *number).1 == 0;
    let below = (0..place).rev().find(is_stale);
    let above = (place..count(bytes)).find(is_stale);
    match (below, above) {
        (Some(below), Some(above)) => match (place - below).cmp(&(above - place)) {
            Ordering::Greater => Some(above),
            _ => Some(below),
        },
        (one, other) => one.or(other),
    }
}

/// Marks an entry of a leaf as stale.
pub(super) fn make_stale(bytes: &mut [u8], number: usize) {
    put32(bytes, ENTRIES_AT + number * ENTRY_BYTES + 4, 0);
    put16(bytes, 58, stale(bytes) + 1);
}

/// The links of a block of the tree: the next one, and the one before.
pub(super) fn links(bytes: &[u8]) -> (u32, u32) {
    (get32(bytes, 0), get32(bytes, 4))
}

pub(super) fn set_forward(bytes: &mut [u8], to: u32) {
    put32(bytes, 0, to);
}

pub(super) fn set_back(bytes: &mut [u8], to: u32) {
    put32(bytes, 4, to);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(items: &[Item]) -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        set_node_items(&mut bytes, items);
        put16(&mut bytes, 58, items.iter().filter(|item| item.1 == 0).count());
        bytes
    }

    #[test]
    fn entries_stay_in_order_and_stale_ones_are_used_again() {
        for (before, new, after) in [
            (vec![(1, 1), (3, 3)], (2, 2), vec![(1, 1), (2, 2), (3, 3)]),
            (vec![(1, 0), (3, 3), (5, 5)], (4, 4), vec![(3, 3), (4, 4), (5, 5)]),
            (vec![(1, 1), (3, 3), (5, 0)], (2, 2), vec![(1, 1), (2, 2), (3, 3)]),
            (vec![(1, 0), (3, 3), (5, 0)], (9, 9), vec![(1, 0), (3, 3), (9, 9)]),
            (vec![(3, 0)], (1, 1), vec![(1, 1)]),
        ] {
            let mut bytes = leaf(&before);
            assert!(insert(&mut bytes, new, 120));
            assert_eq!(items(&bytes), after);
            assert_eq!(stale(&bytes), after.iter().filter(|item| item.1 == 0).count());
        }
        assert!(!insert(&mut leaf(&[(1, 1), (2, 2)]), (3, 3), 2));
        assert!(insert(&mut leaf(&[(1, 1), (2, 0)]), (3, 3), 2));
    }
}
