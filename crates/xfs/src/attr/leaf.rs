//! A leaf of attributes: entries in the order of their hashes from the front, names and values from the back.

use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::entry::{Attribute, Flags, VALUE_MAX_BYTES, Value};
use crate::da::{Layout, Links};
use crate::error::Verdict;

/// Magic numbers in versions 4 and 5.
const MAGIC: [u16; 2] = [0xfbee, 0x3bee];

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
    header: &'a RawHeader,
    /// Where names and values begin.
    pub(crate) first_used: usize,
    /// Where the entries end.
    pub(crate) entries_end: usize,
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
        let leaf = Self { bytes, entries, header, first_used, entries_end };
        for (number, entry) in entries.iter().enumerate() {
            leaf.parse(entry).map_err(|detail| format!("entry {number}: {detail}"))?;
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
        if name.is_empty() {
            return Err("it has no name".into());
        }
        Ok((Attribute { space: flags.space, name, value, incomplete: flags.incomplete }, len))
    }
}
