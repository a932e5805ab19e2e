//! Bytes of a block of names, as they are changed.
//!
//! The block is a sequence of entries and unused spaces without gaps; its header names the three largest spaces. A block
//! is scanned before its spaces are joined, so a space is never found by what a neighbour says of itself.

use super::super::data::{BEST_COUNT, DataBlock, Item as DataItem, header_bytes};
use super::super::entry::entry_bytes;
use super::raw::{get16, put16};
use crate::da::Layout;
use crate::error::Verdict;

/// Where the header names the largest spaces.
const BEST_AT: usize = 48;

/// An unused space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Space {
    pub(super) at: usize,
    pub(super) len: usize,
}

/// A name that is entered.
#[derive(Clone, Copy, Debug)]
pub(super) struct New<'a> {
    pub(super) name: &'a [u8],
    pub(super) ino: u64,
    pub(super) kind: u8,
}

/// The unused spaces of a block, in order.
pub(super) fn spaces(data: &DataBlock<'_>) -> Verdict<Vec<Space>> {
    let mut spaces = Vec::new();
    for item in data.items() {
        if let DataItem::Unused { at, bytes } = item? {
            spaces.push(Space { at, len: bytes });
        }
    }
    Ok(spaces)
}

/// Checks that the spaces that the header names are spaces of the block, and not parts of entries.
pub(super) fn check_best(data: &DataBlock<'_>) -> Verdict<()> {
    let spaces = spaces(data)?;
    for (at, len) in data.best_unused().into_iter().filter(|(_, len)| *len > 0) {
        if !spaces.iter().any(|space| (space.at, space.len) == (at, len)) {
            return Err(format!("has another space at byte {at} than its header says").into());
        }
    }
    Ok(())
}

/// All spaces of a block with an entry at `at`, to which an index led.
pub(super) fn spaces_beside(data: &DataBlock<'_>, at: usize) -> Verdict<Vec<Space>> {
    let (mut spaces, mut is_there) = (Vec::new(), false);
    let layout = data.layout();
    for item in data.items() {
        match item? {
            DataItem::Unused { at, bytes } => spaces.push(Space { at, len: bytes }),
            DataItem::Entry(entry) => is_there |= entry.position.split(layout).1 == at,
        }
    }
    if is_there {
        Ok(spaces)
    } else {
        Err(format!("an index leads to byte {at}, where no entry begins").into())
    }
}

/// Makes an empty block of names, all of it unused but for the header.
pub(super) fn make_empty(bytes: &mut [u8], layout: &Layout) {
    let at = header_bytes(layout);
    let all = [Space { at, len: bytes.len() - at }];
    put_space(bytes, all[0]);
    note_best(bytes, &all);
}

/// The length of the largest space, as the header has it.
pub(super) fn best(bytes: &[u8]) -> u16 {
    get16(bytes, BEST_AT + 2)
}

/// Writes what stands for a space; nothing where it is empty.
pub(super) fn put_space(bytes: &mut [u8], space: Space) {
    if space.len == 0 {
        return;
    }
    put16(bytes, space.at, 0xffff);
    put16(bytes, space.at + 2, space.len);
    put16(bytes, space.at + space.len - 2, space.at);
}

/// Names the largest of all spaces in the header.
pub(super) fn note_best(bytes: &mut [u8], spaces: &[Space]) {
    let mut best = [Space { at: 0, len: 0 }; BEST_COUNT];
    for &space in spaces {
        if let Some(slot) = best.iter().position(|best| best.len < space.len) {
            best[slot..].rotate_right(1);
            best[slot] = space;
        }
    }
    for (number, best) in best.iter().enumerate() {
        put16(bytes, BEST_AT + number * 4, best.at);
        put16(bytes, BEST_AT + number * 4 + 2, best.len);
    }
}

/// Writes an entry, with nothing of what was there before in its padding.
pub(super) fn put_entry(bytes: &mut [u8], layout: &Layout, at: usize, new: &New<'_>) {
    let len = entry_bytes(layout, new.name.len());
    let entry = &mut bytes[at..at + len];
    entry.fill(0);
    entry[..8].copy_from_slice(&new.ino.to_be_bytes());
    entry[8] = new.name.len() as u8;
    entry[9..9 + new.name.len()].copy_from_slice(new.name);
    if layout.has_kinds {
        entry[9 + new.name.len()] = new.kind;
    }
    put16(entry, len - 2, at);
}

/// Lets the entry at `at`, whose name has `name_bytes` bytes, lead elsewhere.
pub(super) fn put_target(
    bytes: &mut [u8],
    layout: &Layout,
    at: usize,
    name_bytes: usize,
    ino: u64,
    kind: u8,
) {
    bytes[at..at + 8].copy_from_slice(&ino.to_be_bytes());
    if layout.has_kinds {
        bytes[at + 9 + name_bytes] = kind;
    }
}

/// Enters a name into the largest space of block `number`, which has room for it. Returns where.
pub(super) fn enter(bytes: &mut [u8], layout: &Layout, number: u64, new: &New<'_>) -> Verdict<usize> {
    let len = entry_bytes(layout, new.name.len());
    let (best, is_space) = {
        let data = DataBlock::validate(bytes, layout, number, false)?;
        let best = data.best_unused();
        (best, data.unused_at(best[0].0)? == best[0].1)
    };
    let (at, space) = best[0];
    if !is_space || space < len {
        return Err(format!("has another space at byte {at} than its header says").into());
    }
    let rest = Space { at: at + len, len: space - len };
    put_entry(bytes, layout, at, new);
    put_space(bytes, rest);
    // A space that the header does not name is no longer than the last that it names.
    if rest.len >= best[BEST_COUNT - 1].1 {
        let named = best[1..].iter().map(|&(at, len)| Space { at, len });
        let named: Vec<_> = named.chain([rest]).filter(|space| space.len > 0).collect();
        note_best(bytes, &named);
    } else {
        let found = spaces(&DataBlock::validate(bytes, layout, number, false)?)?;
        note_best(bytes, &found);
    }
    Ok(at)
}

/// Makes unused the bytes of the entry at `at`, joined to the spaces around it. `spaces` are all spaces of the block, and
/// are so again.
pub(super) fn release(bytes: &mut [u8], spaces: &mut Vec<Space>, at: usize, len: usize) {
    let mut freed = Space { at, len };
    let place = spaces.partition_point(|space| space.at < at);
    if let Some(next) = spaces.get(place)
        && next.at == at + len
    {
        freed.len += next.len;
        spaces.remove(place);
    }
    if let Some(before) = place.checked_sub(1).map(|before| spaces[before])
        && before.at + before.len == at
    {
        freed = Space { at: before.at, len: before.len + freed.len };
        spaces[place - 1] = freed;
    } else {
        spaces.insert(place, freed);
    }
    put_space(bytes, freed);
    note_best(bytes, spaces);
}
