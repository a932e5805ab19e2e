//! A leaf as it is changed: its attributes in order, rewritten as a whole.
//!
//! A leaf is written without gaps: entries in front, names and values at the end, one free space between them. So the
//! header never says that there are holes, and names the free space as its only one.

use crate::attr::entry::{Attribute, Flags, Space, Value};
use crate::attr::leaf::{AttributeLeaf, MAGIC};
use crate::da::Layout;
use crate::error::Verdict;

/// Where entries begin.
const HEADER_BYTES: usize = 80;
/// Where the fields begin that follow the links.
const FIELDS: usize = 56;
const ENTRY_BYTES: usize = 8;
/// Before the name of an attribute with its value beside it.
const LOCAL_BYTES: usize = 3;
/// Before the name of an attribute with its value elsewhere.
const REMOTE_BYTES: usize = 9;
/// Linux counts two bytes more for such an attribute, which its compilers put behind the nine.
const REMOTE_PADDING: usize = 2;
/// Names begin at multiples of this.
const ALIGN: usize = 4;

/// An attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) hash: u32,
    pub(super) space: Space,
    pub(super) incomplete: bool,
    pub(super) name: Box<[u8]>,
    pub(super) value: ItemValue,
}

/// Where its value lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ItemValue {
    Here(Box<[u8]>),
    /// In blocks of the fork from this one on.
    Remote {
        block: u32,
        bytes: u32,
    },
}

impl Item {
    fn new(hash: u32, attribute: &Attribute<'_>) -> Self {
        let value = match attribute.value {
            Value::Here(value) => ItemValue::Here(value.into()),
            Value::Remote { block, bytes } => ItemValue::Remote { block, bytes },
        };
        Self {
            hash,
            space: attribute.space,
            incomplete: attribute.incomplete,
            name: attribute.name.into(),
            value,
        }
    }

    /// Bytes that it takes in a leaf.
    pub(super) fn bytes(&self) -> usize {
        ENTRY_BYTES + self.name_bytes()
    }

    /// Bytes of its name and value in a leaf.
    fn name_bytes(&self) -> usize {
        let bytes = match &self.value {
            ItemValue::Here(value) => LOCAL_BYTES + self.name.len() + value.len(),
            ItemValue::Remote { .. } => REMOTE_BYTES + REMOTE_PADDING + self.name.len(),
        };
        bytes.next_multiple_of(ALIGN)
    }
}

/// Whether a leaf keeps such a value beside its name: the attribute takes less than three quarters of a block.
pub(super) fn keeps_value(block_bytes: usize, name: &[u8], value: &[u8]) -> bool {
    (LOCAL_BYTES + name.len() + value.len()).next_multiple_of(ALIGN) < block_bytes / 4 * 3
}

/// Bytes that a leaf has for its attributes.
pub(super) const fn room(block_bytes: usize) -> usize {
    block_bytes - HEADER_BYTES
}

/// Bytes that attributes take in a leaf.
pub(super) fn total(items: &[Item]) -> usize {
    items.iter().map(Item::bytes).sum()
}

/// The attributes of a leaf whose header has been verified.
pub(super) fn decode(bytes: &[u8], layout: &Layout) -> Verdict<Vec<Item>> {
    let leaf = AttributeLeaf::validate(bytes, layout)?;
    let items: Vec<Item> = leaf.hashed().map(|(hash, attribute)| Item::new(hash, &attribute)).collect();
    // Written without the overlaps that a damaged leaf may have, they must fit.
    if total(&items) > room(bytes.len()) {
        return Err("its names and values do not fit beside each other".into());
    }
    Ok(items)
}

/// Writes what follows the links of a leaf. The attributes fit.
pub(super) fn encode(items: &[Item], bytes: &mut [u8]) {
    let entries_end = HEADER_BYTES + items.len() * ENTRY_BYTES;
    let mut first_used = bytes.len();
    bytes[8..10].copy_from_slice(&MAGIC[1].to_be_bytes());
    bytes[FIELDS..].fill(0);
    for (number, item) in items.iter().enumerate() {
        first_used -= item.name_bytes();
        let local = matches!(item.value, ItemValue::Here(_));
        let flags = Flags { space: item.space, local, incomplete: item.incomplete };
        let entry = &mut bytes[HEADER_BYTES + number * ENTRY_BYTES..][..ENTRY_BYTES];
        entry[..4].copy_from_slice(&item.hash.to_be_bytes());
        entry[4..6].copy_from_slice(&(first_used as u16).to_be_bytes());
        entry[6] = flags.bits();
        let place = &mut bytes[first_used..];
        let (name_len, name) = (item.name.len(), &item.name);
        match &item.value {
            ItemValue::Here(value) => {
                place[..2].copy_from_slice(&(value.len() as u16).to_be_bytes());
                place[2] = name_len as u8;
                place[LOCAL_BYTES..][..name_len].copy_from_slice(name);
                place[LOCAL_BYTES + name_len..][..value.len()].copy_from_slice(value);
            }
            ItemValue::Remote { block, bytes } => {
                place[..4].copy_from_slice(&block.to_be_bytes());
                place[4..8].copy_from_slice(&bytes.to_be_bytes());
                place[8] = name_len as u8;
                place[REMOTE_BYTES..][..name_len].copy_from_slice(name);
            }
        }
    }
    let used = bytes.len() - first_used;
    // In an empty leaf of 64 KiB the end does not fit the field, which is 0 then.
    for (at, value) in [
        (0, items.len()),
        (2, used),
        (4, first_used),
        // The first of three free spaces, behind a byte for holes and one of padding.
        (8, entries_end),
        (10, first_used - entries_end),
    ] {
        bytes[FIELDS + at..][..2].copy_from_slice(&(value as u16).to_be_bytes());
    }
}

/// Parts attributes that do not fit one leaf: two leaves that are about as full, if there are such; otherwise as many
/// as it takes. Each attribute fits a leaf.
pub(super) fn split(mut items: Vec<Item>, room: usize) -> Vec<Vec<Item>> {
    let all = total(&items);
    let (mut before, mut best) = (0, None);
    for (at, item) in items.iter().enumerate() {
        let larger = before.max(all - before);
        if at > 0 && larger <= room && best.is_none_or(|(least, _)| larger < least) {
            best = Some((larger, at));
        }
        before += item.bytes();
    }
    if let Some((_, at)) = best {
        let rest = items.split_off(at);
        return vec![items, rest];
    }
    let mut leaves: Vec<Vec<Item>> = Vec::new();
    let mut left = 0;
    for item in items {
        let bytes = item.bytes();
        match leaves.last_mut() {
            Some(leaf) if bytes <= left => leaf.push(item),
            _ => {
                leaves.push(vec![item]);
                left = room;
            }
        }
        left -= bytes.min(left);
    }
    leaves
}
