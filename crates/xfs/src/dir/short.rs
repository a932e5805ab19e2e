//! Directories in their inode.
//!
//! `.` is not stored, and of `..` only the number. Each entry has the place that it will have when the directory moves
//! out to a block, so that positions stay valid then.

use super::entry::{Entry, Position, entry_bytes};
use crate::da::Layout;
use crate::error::Verdict;

/// Numbers above this one take eight bytes.
const SHORT_INO_MAX: u64 = u32::MAX as u64;

/// A validated directory in its inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortDirectory<'a> {
    layout: Layout,
    /// The entries alone.
    entries: &'a [u8],
    count: u8,
    ino_bytes: usize,
    /// The number of `..`.
    pub(crate) parent: u64,
}

impl<'a> ShortDirectory<'a> {
    /// Validates the bytes of the inode's data fork, as many as the inode says that the directory is long.
    pub(crate) fn validate(bytes: &'a [u8], layout: &Layout) -> Verdict<Self> {
        let [count, wide_count, ..] = *bytes else { return Err("too short for its header".into()) };
        let ino_bytes = if wide_count == 0 { 4 } else { 8 };
        let Some((header, entries)) = bytes.split_at_checked(2 + ino_bytes) else {
            return Err("too short for its header".into());
        };
        let parent = be(&header[2..]);
        let directory = Self { layout: *layout, entries, count, ino_bytes, parent };
        let mut wide = u32::from(parent > SHORT_INO_MAX);
        let mut free_from = dots_end(layout);
        let mut rest = entries;
        for number in 0..count {
            let Some((entry, after)) = directory.split_first(rest) else {
                return Err(format!("has {count} entries, and ends within entry {number}").into());
            };
            if entry.name.is_empty() {
                return Err(format!("entry {number} has no name").into());
            }
            if entry.at < free_from {
                return Err(format!("entry {number} has the place {}, before {free_from}", entry.at).into());
            }
            free_from = entry.at + entry_bytes(layout, entry.name.len());
            wide += u32::from(entry.ino > SHORT_INO_MAX);
            rest = after;
        }
        if !rest.is_empty() {
            return Err(format!("{} bytes follow its {count} entries", rest.len()).into());
        }
        if wide != u32::from(wide_count) {
            return Err(format!("says that {wide_count} inode numbers need eight bytes, not {wide}").into());
        }
        Ok(directory)
    }

    /// The bytes that so many names take in an inode at least, with `names_bytes` in all.
    pub(super) fn least_bytes(layout: &Layout, names: usize, names_bytes: usize) -> usize {
        let fixed = 3 + usize::from(layout.has_kinds) + 4;
        2 + 4 + names * fixed + names_bytes
    }

    /// The entries in order, without `.` and `..`.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let (directory, mut rest) = (*self, self.entries);
        (0..self.count).map_while(move |_| {
            let (raw, after) = directory.split_first(rest)?;
            rest = after;
            let len = entry_bytes(&directory.layout, raw.name.len());
            Some(Entry {
                name: raw.name,
                ino: raw.ino,
                kind: raw.kind,
                position: Position::of(&directory.layout, 0, raw.at),
                next: Position::of(&directory.layout, 0, raw.at + len),
            })
        })
    }

    fn split_first(&self, bytes: &'a [u8]) -> Option<(RawEntry<'a>, &'a [u8])> {
        let (&[name_bytes, high, low], rest) = bytes.split_first_chunk()?;
        let (name, rest) = rest.split_at_checked(usize::from(name_bytes))?;
        let (kind, rest) = if self.layout.has_kinds {
            let (&kind, rest) = rest.split_first()?;
            (kind, rest)
        } else {
            (0, rest)
        };
        let (ino, rest) = rest.split_at_checked(self.ino_bytes)?;
        let at = usize::from(u16::from_be_bytes([high, low]));
        Some((RawEntry { name, ino: be(ino), kind, at }, rest))
    }
}

struct RawEntry<'a> {
    name: &'a [u8],
    ino: u64,
    kind: u8,
    at: usize,
}

/// Where `.` and `..` of every directory begin, in its first block.
pub(crate) fn dots(layout: &Layout) -> [Position; 2] {
    let first = super::data::header_bytes(layout);
    [first, first + entry_bytes(layout, 1)].map(|at| Position::of(layout, 0, at))
}

/// The first place in a block after `.` and `..`.
pub(crate) fn dots_end(layout: &Layout) -> usize {
    super::data::header_bytes(layout) + entry_bytes(layout, 1) + entry_bytes(layout, 2)
}

fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::super::testing::LAYOUT;
    use super::*;

    fn entry(name: &[u8], at: u16, kind: u8, ino: &[u8]) -> Vec<u8> {
        let mut bytes = vec![name.len() as u8];
        bytes.extend(at.to_be_bytes());
        bytes.extend(name);
        bytes.push(kind);
        bytes.extend(ino);
        bytes
    }

    fn failure(bytes: &[u8]) -> String {
        ShortDirectory::validate(bytes, &LAYOUT).unwrap_err().into_owned()
    }

    #[test]
    fn numbers_of_both_sizes() {
        let narrow = [
            vec![2, 0, 0, 0, 0, 128],
            entry(b"a", 96, 1, &[0, 0, 0, 131]),
            entry(b"other", 112, 2, &[0xff; 4]),
        ]
        .concat();
        let directory = ShortDirectory::validate(&narrow, &LAYOUT).unwrap();
        assert_eq!(directory.parent, 128);
        let entries: Vec<_> = directory.entries().collect();
        assert_eq!((entries[0].name, entries[0].ino, entries[0].kind), (&b"a"[..], 131, 1));
        assert_eq!((entries[0].position, entries[0].next), (Position(12), Position(14)));
        assert_eq!((entries[1].name, entries[1].ino, entries[1].kind), (&b"other"[..], 0xffff_ffff, 2));
        assert_eq!((entries[1].position, entries[1].next), (Position(14), Position(17)));

        let wide =
            [vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 128], entry(b"a", 96, 1, &[0, 0, 0, 1, 0, 0, 0, 9])].concat();
        let directory = ShortDirectory::validate(&wide, &LAYOUT).unwrap();
        assert_eq!(directory.entries().map(|entry| entry.ino).collect::<Vec<_>>(), [0x1_0000_0009]);

        let mut layout = LAYOUT;
        layout.has_kinds = false;
        let plain = [&[1, 0, 0, 0, 0, 128, 1, 0, 96][..], b"a", &[0, 0, 0, 131]].concat();
        let directory = ShortDirectory::validate(&plain, &layout).unwrap();
        assert_eq!(directory.entries().map(|entry| (entry.ino, entry.kind)).collect::<Vec<_>>(), [(131, 0)]);
    }

    #[test]
    fn bytes_that_contradict_each_other_are_refused() {
        let header = [1, 0, 0, 0, 0, 128];
        let with = |entry: Vec<u8>| [&header[..], &entry].concat();
        assert!(failure(&[]).contains("too short"));
        assert!(failure(&[0, 0, 0]).contains("too short"));
        assert!(failure(&[0, 1, 0, 0, 0, 0]).contains("too short"));
        assert!(failure(&header).contains("ends within entry 0"));
        assert!(failure(&with(entry(b"", 96, 1, &[0; 4]))).contains("no name"));
        assert!(failure(&with(entry(b"a", 88, 1, &[0; 4]))).contains("before 96"));
        assert!(failure(&with(entry(b"a", 96, 1, &[0; 3]))).contains("ends within"));
        assert!(failure(&with(entry(b"a", 96, 1, &[0; 5]))).contains("1 bytes follow"));
        let wide = [vec![0, 1, 0, 0, 0, 0, 0, 0, 0, 128]].concat();
        assert!(failure(&wide).contains("1 inode numbers need eight bytes, not 0"));
    }
}
