//! Attribute entries: a name, and where its value lies.
//!
//! Source: kernel documentation, section "Extended Attributes". Entries grow upwards and end in four zero bytes, values
//! grow downwards from the end. [`Attributes::validate`] is the only way to a list, and validates every name and every
//! value in it.

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::Verdict;

#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct RawEntry {
    pub(super) e_name_len: u8,
    pub(super) e_name_index: u8,
    pub(super) e_value_offs: U16,
    pub(super) e_value_inum: U32,
    pub(super) e_value_size: U32,
    pub(super) e_hash: U32,
}

const HEADER_BYTES: usize = size_of::<RawEntry>();
const _: () = assert!(HEADER_BYTES == 16);

/// What ends the list.
const END_BYTES: usize = 4;

/// The longest value that Linux writes or gives out, in bytes.
pub(super) const VALUE_MAX_BYTES: u32 = 1 << 16;

/// One attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// Stands for the name's beginning.
    pub(crate) index: u8,
    /// The rest of the name.
    pub(crate) name: &'a [u8],
    pub(crate) value: Value<'a>,
    pub(crate) hash: u32,
}

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// Beside the entry.
    Here(&'a [u8]),
    /// It is the content of this inode, and this many bytes long, at most [`VALUE_MAX_BYTES`].
    Inode { number: u32, size_bytes: u32 },
}

/// A list of attributes that has been validated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'a> {
    bytes: &'a [u8],
    first: usize,
}

impl<'a> Attributes<'a> {
    /// Validates the list that begins at byte `first`. Values lie after it, at offsets into `bytes`.
    pub(crate) fn validate(bytes: &'a [u8], first: usize) -> Verdict<Self> {
        // Values must not reach into the list, so its end comes first.
        let mut end = first;
        while let Some((raw, after)) = raw_entry(bytes, end)? {
            if bytes[end + HEADER_BYTES..after].iter().take(usize::from(raw.e_name_len)).any(|&b| b == 0) {
                return Err(format!("attribute name at byte {end} contains NUL").into());
            }
            end = after;
        }
        let attributes = Self { bytes, first };
        let values_from = end + END_BYTES;
        let mut at = first;
        while let Some((raw, after)) = raw_entry(bytes, at)? {
            attributes.check_value(raw, at, values_from)?;
            at = after;
        }
        Ok(attributes)
    }

    fn check_value(&self, raw: &RawEntry, at: usize, values_from: usize) -> Verdict<()> {
        let size = raw.e_value_size.get();
        if size > VALUE_MAX_BYTES {
            return Err(
                format!("value at byte {at} is {size} bytes long; {VALUE_MAX_BYTES} is the most").into()
            );
        }
        if raw.e_value_inum.get() != 0 || size == 0 {
            return Ok(());
        }
        let start = usize::from(raw.e_value_offs.get());
        if start < values_from || start + size as usize > self.bytes.len() {
            let room = self.bytes.len();
            return Err(format!(
                "value of the entry at byte {at} lies at {start} and is {size} bytes long, outside {values_from} to {room}"
            )
            .into());
        }
        Ok(())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry<'a>> + Clone + use<'a> {
        let Self { bytes, first } = *self;
        let mut at = first;
        std::iter::from_fn(move || {
            let (raw, after) = raw_entry(bytes, at).ok().flatten()?;
            let name_at = at + HEADER_BYTES;
            let size_bytes = raw.e_value_size.get();
            let value = match raw.e_value_inum.get() {
                0 => {
                    let start = if size_bytes == 0 { 0 } else { usize::from(raw.e_value_offs.get()) };
                    Value::Here(bytes.get(start..start + size_bytes as usize)?)
                }
                number => Value::Inode { number, size_bytes },
            };
            at = after;
            Some(Entry {
                index: raw.e_name_index,
                name: bytes.get(name_at..name_at + usize::from(raw.e_name_len))?,
                value,
                hash: raw.e_hash.get(),
            })
        })
    }

    pub(crate) fn find(&self, index: u8, name: &[u8]) -> Option<Entry<'a>> {
        self.iter().find(|entry| entry.index == index && entry.name == name)
    }
}

/// The entry at byte `at` and where the next one begins; `None` at the end of the list.
fn raw_entry(bytes: &[u8], at: usize) -> Verdict<Option<(&RawEntry, usize)>> {
    let rest = bytes.get(at..).unwrap_or(&[]);
    match rest.first_chunk::<END_BYTES>() {
        None => return Err("list of attributes has no end".into()),
        Some([0, 0, 0, 0]) => return Ok(None),
        Some(_) => {}
    }
    let Ok((raw, after_header)) = RawEntry::ref_from_prefix(rest) else {
        return Err(format!("no room for the entry at byte {at}").into());
    };
    let padded = usize::from(raw.e_name_len).next_multiple_of(4);
    if padded > after_header.len() {
        return Err(format!("no room for the name at byte {at}, {} bytes long", raw.e_name_len).into());
    }
    Ok(Some((raw, at + HEADER_BYTES + padded)))
}

/// The hash of an entry: of its name, and of the words of its value. Machines with signed `char` used to hash
/// names that are not ASCII another way, so there may be two right answers.
pub(crate) fn entry_hashes(name: &[u8], words: &[u32]) -> [u32; 2] {
    let hash = |widen: fn(u8) -> u32| {
        let hash = name.iter().fold(0_u32, |hash, &byte| hash.rotate_left(5) ^ widen(byte));
        words.iter().fold(hash, |hash, word| hash.rotate_left(16) ^ word)
    };
    [hash(u32::from), hash(|byte| byte.cast_signed() as u32)]
}

/// The hash of an entry of a block, as Linux writes it: words of a value are little-endian, the last one filled up with
/// zeroes.
pub(super) fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    let words = value.chunks(4).map(|chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        u32::from_le_bytes(word)
    });
    words.fold(entry_hashes(name, &[])[0], |hash, word| hash.rotate_left(16) ^ word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry for a value that lies at `offset`.
    fn entry(index: u8, name: &[u8], offset: u16, inode: u32, size: u32) -> Vec<u8> {
        let mut bytes = vec![name.len() as u8, index];
        bytes.extend(offset.to_le_bytes());
        bytes.extend(inode.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(name);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn list(entries: &[Vec<u8>], len: usize) -> Vec<u8> {
        let mut bytes = entries.concat();
        bytes.resize(len, 0);
        bytes
    }

    #[test]
    fn names_and_values_are_found() {
        // Three entries of 20 bytes: the list ends at byte 60, values may begin at 64.
        let entries =
            |value_at| [entry(1, b"note", value_at, 0, 4), entry(6, b"x", 0, 0, 0), entry(4, b"y", 0, 77, 9)];
        assert!(Attributes::validate(&list(&entries(60), 72), 0).is_err());
        let mut bytes = list(&entries(64), 72);
        bytes[64..68].copy_from_slice(b"text");
        let attributes = Attributes::validate(&bytes, 0).unwrap();
        assert_eq!(attributes.find(1, b"note").unwrap().value, Value::Here(b"text"));
        assert_eq!(attributes.find(6, b"x").unwrap().value, Value::Here(b""));
        assert_eq!(attributes.find(4, b"y").unwrap().value, Value::Inode { number: 77, size_bytes: 9 });
        assert_eq!(attributes.find(1, b"not"), None);
        assert_eq!(attributes.iter().count(), 3);
    }

    #[test]
    fn what_lies_outside_is_refused() {
        let failure = |bytes: &[u8]| Attributes::validate(bytes, 0).unwrap_err().into_owned();
        assert!(failure(&[0; 3]).contains("no end"));
        assert!(failure(&entry(1, b"name", 0, 0, 0)).contains("no end"));
        assert!(failure(&[9; 12]).contains("no room for the entry"));
        assert!(failure(&[255; 40]).contains("no room for the name"));
        assert!(failure(&list(&[entry(1, b"a", 39, 0, 2)], 40)).contains("outside 24 to 40"));
        assert!(failure(&list(&[entry(1, b"a", 20, 0, 2)], 40)).contains("outside 24 to 40"));
        assert!(failure(&list(&[entry(1, b"a", 30, 0, u32::MAX)], 40)).contains("the most"));
        assert!(failure(&list(&[entry(1, b"a", 30, 5, 65537)], 40)).contains("the most"));
        assert!(failure(&list(&[entry(1, b"a\0b", 0, 0, 0)], 40)).contains("NUL"));
    }
}
