//! Lists of attributes made anew.
//!
//! A list that changes is written again as a whole: its few entries in order from the front, their values from the
//! back, zeroes between. That is how Linux leaves a list too, but for the order of the values, which means nothing.

use super::entry::{Entry, RawEntry, Value};
use zerocopy::IntoBytes;

/// What ends the entries.
const END_BYTES: usize = 4;

/// Entries and values are aligned so.
fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(4)
}

/// The bytes that a list of these entries takes.
pub(super) fn needed_bytes<'a>(entries: &[Entry<'a>]) -> usize {
    let entry_bytes = |entry: &Entry<'a>| size_of::<RawEntry>() + padded(entry.name.len());
    entries.iter().map(entry_bytes).sum::<usize>() + END_BYTES + value_bytes(entries)
}

/// The bytes that their values take of it.
pub(super) fn value_bytes(entries: &[Entry<'_>]) -> usize {
    let of_one = |entry: &Entry<'_>| match entry.value {
        Value::Here(value) => padded(value.len()),
        Value::Inode { .. } => 0,
    };
    entries.iter().map(of_one).sum()
}

/// Writes the entries into `bytes` from byte `first` on; values are given by where they lie in `bytes`. All of `bytes`
/// from there on is zero, and they are as many as are needed.
pub(super) fn write(entries: &[Entry<'_>], bytes: &mut [u8], first: usize) {
    let (mut at, mut values_from) = (first, bytes.len());
    for entry in entries {
        let mut raw = RawEntry {
            e_name_len: entry.name.len() as u8,
            e_name_index: entry.index,
            e_value_offs: 0.into(),
            e_value_inum: 0.into(),
            e_value_size: 0.into(),
            e_hash: entry.hash.into(),
        };
        match entry.value {
            Value::Here(value) => {
                raw.e_value_size.set(value.len() as u32);
                if !value.is_empty() {
                    values_from -= padded(value.len());
                    raw.e_value_offs.set(values_from as u16);
                    bytes[values_from..values_from + value.len()].copy_from_slice(value);
                }
            }
            Value::Inode { number, size_bytes } => {
                raw.e_value_inum.set(number);
                raw.e_value_size.set(size_bytes);
            }
        }
        let name_at = at + size_of::<RawEntry>();
        bytes[at..name_at].copy_from_slice(raw.as_bytes());
        bytes[name_at..name_at + entry.name.len()].copy_from_slice(entry.name);
        at = name_at + padded(entry.name.len());
    }
}

/// How entries are ordered in a block.
pub(super) fn block_order<'a>(entry: &Entry<'a>) -> (u8, usize, &'a [u8]) {
    (entry.index, entry.name.len(), entry.name)
}

/// `entries` without the one of this name.
pub(super) fn without<'a>(
    entries: impl Iterator<Item = Entry<'a>>,
    index: u8,
    name: &[u8],
) -> Vec<Entry<'a>> {
    entries.filter(|entry| !(entry.index == index && entry.name == name)).collect()
}

/// `entries` with `new` in the place of the one of the same name, or at the end.
pub(super) fn with_replaced<'a>(entries: impl Iterator<Item = Entry<'a>>, new: Entry<'a>) -> Vec<Entry<'a>> {
    let mut entries: Vec<_> = entries.collect();
    match entries.iter_mut().find(|entry| entry.index == new.index && entry.name == new.name) {
        Some(entry) => *entry = new,
        None => entries.push(new),
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::super::entry::Attributes;
    use super::*;

    #[test]
    fn what_is_written_is_validated_and_found() {
        let here = |index, name, value| Entry { index, name, value: Value::Here(value), hash: 0 };
        let entries = [
            here(1, &b"note"[..], &b"12345"[..]),
            here(6, b"x", b""),
            Entry { index: 4, name: b"y", value: Value::Inode { number: 77, size_bytes: 9 }, hash: 5 },
            here(2, b"", b"four"),
        ];
        let needed = needed_bytes(&entries);
        assert_eq!(needed, (16 + 4 + 8) + (16 + 4) + (16 + 4) + (16 + 4) + 4);
        for first in [0, 32] {
            let mut bytes = vec![0; first + needed];
            write(&entries, &mut bytes, first);
            let read = Attributes::validate(&bytes, first).unwrap();
            assert_eq!(read.iter().collect::<Vec<_>>(), entries);
            // One byte less is no list, since the values then reach into the entries.
            assert!(Attributes::validate(&bytes[..bytes.len() - 4], first).is_err());
        }
        let left = without(entries.into_iter(), 6, b"x");
        assert_eq!(left.len(), 3);
        let replaced = with_replaced(left.into_iter(), here(1, b"note", b""));
        assert_eq!((replaced.len(), replaced[0].value), (3, Value::Here(b"")));
    }
}
