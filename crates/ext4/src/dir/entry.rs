//! Directory entries: an inode number and a name, in a chain that fills a block.
//!
//! Source: kernel documentation, section "Linear (Classic) Directories". `rec_len` leads from one entry to the next,
//! the last one reaches the end, and an entry without inode is unused space. [`Entries`] checks every length: each
//! entry is validated when the iteration reaches it, so entries before damage stay readable.

use std::borrow::Cow;
use std::fmt;

pub(crate) use undercroft_diskfs::entry_kind::code_of;
use undercroft_diskfs::entry_kind::kind_of;
use undercroft_vfs::FileType;
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::Verdict;
use crate::features::Incompat;
use crate::superblock::Superblock;

/// The longest name, in bytes.
pub(crate) const NAME_MAX_BYTES: usize = 255;

#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    inode: U32,
    rec_len: U16,
    name_len: u8,
    /// With the `filetype` feature the kind of file; before it the upper half of the name's length, which is
    /// zero, as names are at most 255 bytes long.
    file_type: u8,
}

pub(super) const HEADER_BYTES: usize = size_of::<RawEntry>();
const _: () = assert!(HEADER_BYTES == 8);

/// The shortest entry: a header, a name of one byte, and padding.
pub(super) const ENTRY_MIN_BYTES: usize = 12;

/// Block size from which on lengths do not fit 16 bits as they are.
const WIDE_BLOCK_BYTES: usize = 1 << 16;

/// How long the entry of a name is at least.
pub(super) const fn entry_bytes(name_bytes: usize) -> usize {
    (HEADER_BYTES + name_bytes).next_multiple_of(4)
}

/// How entries are written on this filesystem.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryFormat {
    pub(super) block_bytes: usize,
    pub(super) has_file_type: bool,
}

impl EntryFormat {
    pub(super) fn of(superblock: &Superblock) -> Self {
        Self {
            block_bytes: superblock.geometry().block_bytes() as usize,
            has_file_type: superblock.features().incompat.contains(Incompat::FILETYPE),
        }
    }

    fn record_bytes(&self, rec_len: u16) -> usize {
        record_bytes(rec_len, self.block_bytes)
    }

    /// What stands in `rec_len` for a length: the reverse of [`record_bytes`](Self::record_bytes).
    fn rec_len(&self, record_bytes: usize) -> u16 {
        match record_bytes {
            _ if self.block_bytes < WIDE_BLOCK_BYTES => record_bytes as u16,
            WIDE_BLOCK_BYTES => 0xffff,
            _ => (record_bytes & 0xfffc | record_bytes >> 16) as u16,
        }
    }

    /// Writes an entry's header and name at the beginning of `bytes`, which are its record.
    pub(super) fn write(&self, bytes: &mut [u8], number: u32, name: &[u8], kind: FileType) {
        let record_bytes = bytes.len();
        bytes[HEADER_BYTES..HEADER_BYTES + name.len()].copy_from_slice(name);
        self.write_header(bytes, record_bytes, number, name.len() as u8, self.code_of(kind));
    }

    /// Makes of `bytes` one unused entry.
    pub(super) fn write_unused(&self, bytes: &mut [u8]) {
        self.write_header(bytes, bytes.len(), 0, 0, 0);
    }

    /// Writes how long the entry is that begins `bytes`.
    pub(super) fn write_record_bytes(&self, bytes: &mut [u8], record_bytes: usize) {
        if let Ok((raw, _)) = RawEntry::mut_from_prefix(bytes) {
            raw.rec_len.set(self.rec_len(record_bytes));
        }
    }

    /// Writes where the entry leads that begins `bytes`.
    pub(super) fn write_target(&self, bytes: &mut [u8], number: u32, kind: FileType) {
        if let Ok((raw, _)) = RawEntry::mut_from_prefix(bytes) {
            raw.inode.set(number);
            raw.file_type = self.code_of(kind);
        }
    }

    fn write_header(&self, bytes: &mut [u8], record_bytes: usize, number: u32, name_len: u8, file_type: u8) {
        if let Ok((raw, _)) = RawEntry::mut_from_prefix(bytes) {
            let rec_len = self.rec_len(record_bytes).into();
            *raw = RawEntry { inode: number.into(), rec_len, name_len, file_type };
        }
    }

    /// The kind of file as entries have it; nothing without the feature.
    fn code_of(&self, kind: FileType) -> u8 {
        if self.has_file_type { code_of(kind) } else { 0 }
    }

    /// Whether the bytes begin with an unused entry that takes a whole block: the disguise of an index node.
    pub(super) fn is_one_unused_entry(&self, bytes: &[u8]) -> bool {
        RawEntry::ref_from_prefix(bytes).is_ok_and(|(raw, _)| {
            raw.inode.get() == 0 && self.record_bytes(raw.rec_len.get()) == self.block_bytes
        })
    }
}

/// One entry, which may be unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    /// Where it begins among the bytes.
    pub(super) at: usize,
    /// Where the next one begins.
    pub(super) next: usize,
    /// 0 when unused.
    pub(super) ino: u32,
    pub(super) name: &'a [u8],
    pub(super) kind: Option<FileType>,
    /// What lies between the name, padded to a multiple of four, and the next entry.
    pub(super) slack: &'a [u8],
}

/// The entries in a stretch of bytes, up to and including the first failure.
#[derive(Clone, Debug)]
pub(super) struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
    format: EntryFormat,
}

impl<'a> Entries<'a> {
    pub(super) fn new(bytes: &'a [u8], format: EntryFormat) -> Self {
        Self { bytes, at: 0, format }
    }

    /// Part of each loop over entries, which then makes no more of one than it looks at.
    #[inline(always)]
    fn validate(&self) -> Verdict<Entry<'a>> {
        let at = self.at;
        let rest = &self.bytes[at..];
        let Ok((raw, after_header)) = RawEntry::ref_from_prefix(rest) else {
            return Err(wrong(format_args!("{} bytes left at byte {at}, too few for an entry", rest.len())));
        };
        let record_bytes = self.format.record_bytes(raw.rec_len.get());
        let name_bytes = usize::from(raw.name_len);
        if record_bytes < ENTRY_MIN_BYTES || !record_bytes.is_multiple_of(4) || record_bytes > rest.len() {
            let left = rest.len();
            return Err(wrong(format_args!(
                "entry at byte {at} is {record_bytes} bytes long, with {left} left"
            )));
        }
        let room = record_bytes - HEADER_BYTES;
        if name_bytes > room {
            return Err(wrong(format_args!(
                "name at byte {at} has {name_bytes} bytes in an entry with room for {room}"
            )));
        }
        let padded = name_bytes.next_multiple_of(4).min(room);
        Ok(Entry {
            at,
            next: at + record_bytes,
            ino: raw.inode.get(),
            name: &after_header[..name_bytes],
            kind: if self.format.has_file_type { kind_of(raw.file_type) } else { None },
            slack: &after_header[padded..room],
        })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Verdict<Entry<'a>>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let entry = self.validate();
        // After a wrong length it is unknown where the next entry begins.
        self.at = entry.as_ref().map_or(self.bytes.len(), |entry| entry.next);
        Some(entry)
    }
}

/// Kept out of the loops.
#[cold]
#[inline(never)]
fn wrong(detail: fmt::Arguments<'_>) -> Cow<'static, str> {
    detail.to_string().into()
}

/// The length that the 16 bits of `rec_len` stand for. Lengths are multiples of 4; in blocks of 64 KiB the two low bits
/// hold bits 16 and 17, and two values stand for the whole block.
pub(crate) fn record_bytes(rec_len: u16, block_bytes: usize) -> usize {
    let len = usize::from(rec_len);
    match len {
        _ if block_bytes < WIDE_BLOCK_BYTES => len,
        0 | 0xffff => block_bytes,
        _ => len & !3 | (len & 3) << 16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: EntryFormat = EntryFormat { block_bytes: 1024, has_file_type: true };
    const WIDE: EntryFormat = EntryFormat { block_bytes: 65536, has_file_type: true };

    fn entry(ino: u32, rec_len: u16, name: &[u8], file_type: u8) -> Vec<u8> {
        let mut bytes = ino.to_le_bytes().to_vec();
        bytes.extend(rec_len.to_le_bytes());
        bytes.extend([name.len() as u8, file_type]);
        bytes.extend(name);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn failure(bytes: &[u8]) -> String {
        let last = Entries::new(bytes, SMALL).last().expect("an entry");
        last.expect_err("a bad entry").into_owned()
    }

    #[test]
    fn a_chain_is_followed_to_its_end() {
        let mut bytes =
            [entry(12, 12, b"a", 1), entry(0, 12, b"gone", 0), entry(13, 20, b"name", 9)].concat();
        bytes.resize(44, 7);
        let entries: Vec<_> = Entries::new(&bytes, SMALL).map(Result::unwrap).collect();
        assert_eq!(entries.iter().map(|e| (e.at, e.next)).collect::<Vec<_>>(), [(0, 12), (12, 24), (24, 44)]);
        assert_eq!(entries[0].name, b"a");
        assert_eq!(entries[0].kind, Some(FileType::Regular));
        assert_eq!(entries[1].ino, 0);
        assert_eq!((entries[2].name, entries[2].kind, entries[2].slack), (&b"name"[..], None, &[7; 8][..]));
    }

    #[test]
    fn without_the_feature_there_is_no_kind() {
        let format = EntryFormat { has_file_type: false, ..SMALL };
        let bytes = entry(12, 12, b"a", 2);
        assert_eq!(Entries::new(&bytes, format).next().unwrap().unwrap().kind, None);
    }

    #[test]
    fn lengths_that_lead_astray_are_refused() {
        assert!(failure(&entry(12, 0, b"a", 1)).contains("0 bytes long"));
        assert!(failure(&entry(12, 8, b"", 1)).contains("8 bytes long"));
        assert!(failure(&entry(12, 14, b"abcdefgh", 1)).contains("14 bytes long"));
        assert!(failure(&entry(12, 16, b"a", 1)).contains("with 12 left"));
        assert!(failure(&[entry(12, 12, b"a", 1), vec![0; 4]].concat()).contains("4 bytes left"));
        let mut long_name = entry(12, 12, b"a", 1);
        long_name[6] = 5;
        assert!(failure(&long_name).contains("room for 4"));
    }

    #[test]
    fn lengths_in_blocks_of_64_kib() {
        assert_eq!(WIDE.record_bytes(0), 65536);
        assert_eq!(WIDE.record_bytes(0xffff), 65536);
        assert_eq!(WIDE.record_bytes(0xfffc), 65532);
        assert_eq!(WIDE.record_bytes(12), 12);
        assert_eq!(SMALL.record_bytes(0), 0);
        for record_bytes in (12..=65536).step_by(4) {
            assert_eq!(WIDE.record_bytes(WIDE.rec_len(record_bytes)), record_bytes);
        }
        assert_eq!((WIDE.rec_len(65536), SMALL.rec_len(1024)), (0xffff, 1024));
    }

    #[test]
    fn kinds_are_written_as_they_are_read() {
        for code in 1..=7 {
            assert_eq!(code_of(kind_of(code).unwrap()), code);
        }
    }
}
