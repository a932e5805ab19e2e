//! A leaf of attributes: entries in the order of their hashes from the front, names and values from the back.

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::entry::{Attribute, Flags, VALUE_MAX_BYTES, Value, check_name};
use crate::da::{Layout, Links};
use crate::error::Verdict;

/// Magic numbers in versions 4 and 5.
pub(super) const MAGIC: [u16; 2] = [0xfbee, 0x3bee];

/// How many free spaces the header names.
const FREE_COUNT: usize = 3;

#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawFree {
    pub(crate) base: U16,
    pub(crate) size: U16,
}

/// What follows the links. Version 5 has four more bytes.
#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    count: U16,
    usedbytes: U16,
    firstused: U16,
    holes: u8,
    pad1: u8,
    freemap: [RawFree; FREE_COUNT],
}

#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawEntry {
    hashval: U32,
    nameidx: U16,
    flags: u8,
    pad2: u8,
}

#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLocal {
    valuelen: U16,
    namelen: u8,
}

#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRemote {
    valueblk: U32,
    valuelen: U32,
    namelen: u8,
}

/// A validated leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttributeLeaf<'a> {
    bytes: &'a [u8],
    entries: &'a [RawEntry],
    /// Where names and values begin.
    pub(crate) first_used: usize,
}

impl<'a> AttributeLeaf<'a> {
    /// Validates a block whose header has been verified: every entry, name and value in it.
    pub(crate) fn validate(bytes: &'a [u8], layout: &Layout) -> Verdict<Self> {
        let links = Links::of(bytes)?;
        if links.magic != MAGIC[usize::from(layout.self_describing)] {
            return Err(format!("magic number {:#06x} is not that of a leaf", links.magic).into());
        }
        let fixed = Links::bytes(layout);
        let Ok((header, rest)) = RawHeader::ref_from_prefix(bytes.get(fixed..).unwrap_or(&[])) else {
            return Err("too short for its header".into());
        };
        let rest = rest.get(if layout.self_describing { 4 } else { 0 }..).unwrap_or(&[]);
        let count = usize::from(header.count.get());
        let Ok((entries, _)) = <[RawEntry]>::ref_from_prefix_with_elems(rest, count) else {
            return Err(format!("has {count} entries, more than fit").into());
        };
        // In a block of 64 KiB the end does not fit the field.
        let first_used = match usize::from(header.firstused.get()) {
            0 if bytes.len() > usize::from(u16::MAX) => bytes.len(),
            first_used => first_used,
        };
        let entries_end = bytes.len() - rest.len() + size_of_val(entries);
        if !(entries_end..=bytes.len()).contains(&first_used) {
            return Err(format!("names begin at byte {first_used}, entries end at {entries_end}").into());
        }
        let leaf = Self { bytes, entries, first_used };
        let mut total = 0;
        for (number, entry) in entries.iter().enumerate() {
            let (_, len) = leaf.parse(entry).map_err(|detail| format!("entry {number}: {detail}"))?;
            total += len;
        }
        // So no more comes out of a leaf than it holds.
        let room = bytes.len() - first_used;
        if total > room {
            return Err(format!("its names and values take {total} bytes, and {room} are used").into());
        }
        if let Some(at) = entries.windows(2).position(|pair| pair[0].hashval > pair[1].hashval) {
            return Err(format!("hashes decrease after entry {at}").into());
        }
        Ok(leaf)
    }

    /// The attributes whose names have this hash, or all.
    pub(crate) fn with_hash(&self, hash: Option<u32>) -> impl Iterator<Item = Attribute<'a>> + use<'a> {
        let leaf = *self;
        let entries = match hash {
            None => self.entries,
            Some(hash) => {
                let from = self.entries.partition_point(|entry| entry.hashval.get() < hash);
                let rest = &self.entries[from..];
                &rest[..rest.partition_point(|entry| entry.hashval.get() == hash)]
            }
        };
        // All of them have been parsed before.
        entries.iter().filter_map(move |entry| leaf.parse(entry).ok().map(|(attribute, _)| attribute))
    }

    /// All attributes in order, each with the hash that it is found by.
    pub(crate) fn hashed(&self) -> impl Iterator<Item = (u32, Attribute<'a>)> + use<'a> {
        let leaf = *self;
        let parsed = move |entry| leaf.parse(entry).ok().map(|(attribute, _)| attribute);
        self.entries.iter().filter_map(move |entry| Some((entry.hashval.get(), parsed(entry)?)))
    }

    /// The largest hash.
    pub(crate) fn last_hash(&self) -> Option<u32> {
        self.entries.last().map(|entry| entry.hashval.get())
    }

    /// What an entry describes, and how many bytes its name and value take.
    fn parse(&self, entry: &RawEntry) -> Verdict<(Attribute<'a>, usize)> {
        let flags = Flags::of(entry.flags)?;
        let at = usize::from(entry.nameidx.get());
        if at < self.first_used {
            return Err(format!("its name lies at byte {at}, before all names").into());
        }
        let rest = self.bytes.get(at..).unwrap_or(&[]);
        let outside = || format!("its name at byte {at} reaches past the block's end");
        let (name, value, len) = if flags.local {
            let (raw, rest) = RawLocal::ref_from_prefix(rest).map_err(|_| outside())?;
            let (name, rest) = rest.split_at_checked(usize::from(raw.namelen)).ok_or_else(outside)?;
            let value = rest.get(..usize::from(raw.valuelen.get())).ok_or_else(outside)?;
            (name, Value::Here(value), size_of::<RawLocal>() + name.len() + value.len())
        } else {
            let (raw, rest) = RawRemote::ref_from_prefix(rest).map_err(|_| outside())?;
            let name = rest.get(..usize::from(raw.namelen)).ok_or_else(outside)?;
            let (block, bytes) = (raw.valueblk.get(), raw.valuelen.get());
            if !flags.incomplete && (block == 0 || bytes > VALUE_MAX_BYTES) {
                return Err(format!("its value of {bytes} bytes lies in block {block}").into());
            }
            (name, Value::Remote { block, bytes }, size_of::<RawRemote>() + name.len())
        };
        check_name(name)?;
        Ok((Attribute { space: flags.space, name, value, incomplete: flags.incomplete }, len))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) const LAYOUT: Layout = Layout {
        self_describing: true,
        has_kinds: true,
        folds_case: false,
        block_bytes: 1 << 16,
        dir_block_bytes: 1 << 16,
    };

    /// A leaf of version 5 with names that have no values. Each has its hash, and `overlap` has all lie at one place.
    pub(in super::super) fn leaf(links: [u32; 2], names: &[(u32, &[u8])], overlap: bool) -> Vec<u8> {
        let mut bytes = vec![0; LAYOUT.block_bytes];
        let mut first_used = bytes.len();
        for (number, (hash, name)) in names.iter().enumerate() {
            if number == 0 || !overlap {
                first_used -= size_of::<RawLocal>() + name.len();
                bytes[first_used + 2] = name.len() as u8;
                bytes[first_used + 3..][..name.len()].copy_from_slice(name);
            }
            let entry = &mut bytes[80 + number * 8..][..8];
            entry[..4].copy_from_slice(&hash.to_be_bytes());
            entry[4..6].copy_from_slice(&(first_used as u16).to_be_bytes());
            entry[6] = 1;
        }
        bytes[..4].copy_from_slice(&links[0].to_be_bytes());
        bytes[4..8].copy_from_slice(&links[1].to_be_bytes());
        bytes[8..10].copy_from_slice(&MAGIC[1].to_be_bytes());
        bytes[56..58].copy_from_slice(&(names.len() as u16).to_be_bytes());
        bytes[60..62].copy_from_slice(&(first_used as u16).to_be_bytes());
        bytes
    }

    fn failure(bytes: &[u8]) -> String {
        AttributeLeaf::validate(bytes, &LAYOUT).unwrap_err().into_owned()
    }

    #[test]
    fn names_lie_beside_each_other() {
        let names: [(u32, &[u8]); 3] = [(1, b"one"), (2, b"two"), (3, b"three")];
        let bytes = leaf([0, 0], &names, false);
        let good = AttributeLeaf::validate(&bytes, &LAYOUT).unwrap();
        let found: Vec<&[u8]> = good.with_hash(None).map(|attribute| attribute.name).collect();
        assert_eq!(found, [&b"one"[..], b"two", b"three"]);
        assert!(failure(&leaf([0, 0], &names, true)).contains("take 18 bytes, and 6 are used"));
    }

    #[test]
    fn a_name_with_nul_is_refused() {
        assert!(failure(&leaf([0, 0], &[(1, b"a\0b")], false)).contains("contains NUL"));
        assert!(failure(&leaf([0, 0], &[(1, b"")], false)).contains("no name"));
    }
}
