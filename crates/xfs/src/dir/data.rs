//! A block of entries: the single block of a small directory, which holds its hash index too, and the data blocks of
//! larger ones.
//!
//! The block is a sequence of entries and unused spaces without gaps. Each of both ends with its own place, and an
//! unused space begins with a mark that no inode number has.

use super::entry::{ALIGN, Entry, Position, entry_bytes};
use super::leaf::{RawLeafEntry, leaf_entries};
use crate::da::Layout;
use crate::error::Verdict;

/// Magic numbers in versions 4 and 5.
const MAGIC_DATA: [&[u8; 4]; 2] = [b"XD2D", b"XDD3"];
const MAGIC_SINGLE: [&[u8; 4]; 2] = [b"XD2B", b"XDB3"];

/// Begins an unused space.
const UNUSED: [u8; 2] = [0xff, 0xff];

/// How many of the largest unused spaces the header names.
pub(crate) const BEST_COUNT: usize = 3;

/// Bytes before the first entry.
pub(crate) fn header_bytes(layout: &Layout) -> usize {
    if layout.self_describing { 64 } else { 16 }
}

/// A block whose header, and index if it has one, have been validated. Its entries have not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataBlock<'a> {
    bytes: &'a [u8],
    layout: Layout,
    /// Which block of entries it is.
    number: u64,
    /// Where the entries end.
    end: usize,
    /// The index of a directory's single block.
    pub(crate) index: Option<&'a [RawLeafEntry]>,
}

/// What a block consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    Entry(Entry<'a>),
    /// Space for entries.
    Unused {
        at: usize,
        bytes: usize,
    },
}

impl<'a> DataBlock<'a> {
    /// Validates block `number`, whose header has been verified; `single` is whether it is to be the only one.
    pub(crate) fn validate(bytes: &'a [u8], layout: &Layout, number: u64, single: bool) -> Verdict<Self> {
        let magics = if single { MAGIC_SINGLE } else { MAGIC_DATA };
        let magic = magics[usize::from(layout.self_describing)];
        if !bytes.starts_with(magic) || bytes.len() != layout.dir_block_bytes {
            let found = bytes.get(..4).unwrap_or(bytes).escape_ascii();
            return Err(format!("begins with \"{found}\", not \"{}\"", magic.escape_ascii()).into());
        }
        let (end, index) = if single {
            let entries = single_index(bytes, header_bytes(layout))?;
            (bytes.len() - TAIL_BYTES - size_of_val(entries), Some(entries))
        } else {
            (bytes.len(), None)
        };
        Ok(Self { bytes, layout: *layout, number, end, index })
    }

    /// Entries and unused spaces in order, up to and including the first failure.
    pub(crate) fn items(&self) -> impl Iterator<Item = Verdict<Item<'a>>> + use<'a> {
        let block = *self;
        let mut at = header_bytes(&block.layout);
        std::iter::from_fn(move || {
            if at >= block.end {
                return None;
            }
            let item = block.item(at);
            at = match &item {
                Ok(Item::Entry(entry)) => at + entry_bytes(&block.layout, entry.name.len()),
                Ok(Item::Unused { bytes, .. }) => at + bytes,
                // It is unknown where the next one begins.
                Err(_) => block.end,
            };
            Some(item)
        })
    }

    /// The entry that begins at byte `at`, to which an index led.
    pub(crate) fn entry(&self, at: usize) -> Verdict<Entry<'a>> {
        if at < header_bytes(&self.layout) || !at.is_multiple_of(ALIGN) {
            return Err(format!("an index leads to byte {at}, where no entry can be").into());
        }
        match self.item(at)? {
            Item::Entry(entry) => Ok(entry),
            Item::Unused { .. } => Err(format!("an index leads to byte {at}, which is unused").into()),
        }
    }

    /// The largest unused spaces as the header has them: where each begins and how long it is.
    pub(crate) fn best_unused(&self) -> [(usize, usize); BEST_COUNT] {
        let at = if self.layout.self_describing { 48 } else { 4 };
        std::array::from_fn(|number| {
            let at = at + 4 * number;
            (usize::from(be16(self.bytes, at)), usize::from(be16(self.bytes, at + 2)))
        })
    }

    /// The length of the unused space that begins at byte `at`; 0 where an entry does.
    pub(super) fn unused_at(&self, at: usize) -> Verdict<usize> {
        if at < header_bytes(&self.layout) || !at.is_multiple_of(ALIGN) {
            return Err(format!("its header leads to byte {at}, where no unused space can be").into());
        }
        match self.item(at)? {
            Item::Unused { bytes, .. } => Ok(bytes),
            Item::Entry(_) => Ok(0),
        }
    }

    /// The layout of its volume.
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where the entries end.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    fn item(&self, at: usize) -> Verdict<Item<'a>> {
        let rest = self.bytes.get(at..self.end).unwrap_or(&[]);
        let Some((head, after_head)) = rest.split_first_chunk::<8>() else {
            return Err(format!("{} bytes left at byte {at}, too few for an entry", rest.len()).into());
        };
        if head.starts_with(&UNUSED) {
            let len = usize::from(be16(head, 2));
            if len < ALIGN || !len.is_multiple_of(ALIGN) || len > rest.len() {
                let left = rest.len();
                return Err(format!("unused space at byte {at} is {len} bytes long, with {left} left").into());
            }
            self.check_tag(at, len)?;
            return Ok(Item::Unused { at, bytes: len });
        }
        let name_bytes = usize::from(after_head.first().copied().unwrap_or(0));
        let len = entry_bytes(&self.layout, name_bytes);
        if name_bytes == 0 || len > rest.len() {
            let left = rest.len();
            return Err(
                format!("entry at byte {at} has a name of {name_bytes} bytes, with {left} left").into()
            );
        }
        self.check_tag(at, len)?;
        Ok(Item::Entry(Entry {
            name: &after_head[1..1 + name_bytes],
            ino: u64::from_be_bytes(*head),
            kind: if self.layout.has_kinds { after_head[1 + name_bytes] } else { 0 },
            position: Position::of(&self.layout, self.number, at),
            next: Position::of(&self.layout, self.number, at + len),
        }))
    }

    fn check_tag(&self, at: usize, len: usize) -> Verdict<()> {
        let tag = usize::from(be16(self.bytes, at + len - 2));
        if tag != at {
            return Err(format!("what begins at byte {at} says that it begins at {tag}").into());
        }
        Ok(())
    }
}

/// Ends a single block: how many entries its index has, and how many of them are stale.
const TAIL_BYTES: usize = 8;

fn single_index(bytes: &[u8], first: usize) -> Verdict<&[RawLeafEntry]> {
    let Some((rest, tail)) = bytes.split_last_chunk::<TAIL_BYTES>() else {
        return Err("too short for its end".into());
    };
    let word = |at: usize| u32::from_be_bytes([tail[at], tail[at + 1], tail[at + 2], tail[at + 3]]);
    let (count, stale) = (word(0), word(4));
    let room = rest.len().saturating_sub(first) / size_of::<RawLeafEntry>();
    if count as usize > room {
        return Err(format!("its index has {count} entries, with room for {room}").into());
    }
    let from = rest.len() - count as usize * size_of::<RawLeafEntry>();
    leaf_entries(&rest[from..], count as usize, stale as usize)
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::super::testing::{LAYOUT, single_block};
    use super::*;

    #[test]
    fn entries_and_unused_spaces_follow_each_other() {
        let bytes = single_block(128, 128, &[(b"a", 131, 1), (b"second", 132, 7)]);
        let block = DataBlock::validate(&bytes, &LAYOUT, 0, true).unwrap();
        let items: Vec<_> = block.items().map(Result::unwrap).collect();
        let [
            Item::Entry(dot),
            Item::Entry(_),
            Item::Entry(a),
            Item::Entry(second),
            Item::Unused { at, bytes: len },
        ] = items[..]
        else {
            panic!("{items:?}");
        };
        assert_eq!((dot.name, dot.ino, dot.kind), (&b"."[..], 128, 2));
        assert_eq!((a.name, a.ino, a.kind, a.position), (&b"a"[..], 131, 1, Position(12)));
        assert_eq!((second.name, second.ino, second.position), (&b"second"[..], 132, Position(14)));
        assert_eq!((at, at + len), (136, bytes.len() - 8 - 4 * 8));
        assert_eq!(block.entry(96), Ok(a));
        assert_eq!(block.best_unused()[0], (at, len));
        assert_eq!(block.index.unwrap().len(), 4);
    }

    #[test]
    fn what_an_index_may_not_lead_to() {
        let bytes = single_block(128, 128, &[(b"a", 131, 1)]);
        let block = DataBlock::validate(&bytes, &LAYOUT, 0, true).unwrap();
        for (at, text) in [
            (0, "no entry can be"),
            (100, "no entry can be"),
            (112, "unused"),
            (LAYOUT.dir_block_bytes - 8, "too few"),
        ] {
            let failure = block.entry(at).unwrap_err();
            assert!(failure.contains(text), "{at}: {failure}");
        }
    }

    #[test]
    fn damage_is_named() {
        let good = single_block(128, 128, &[(b"a", 131, 1)]);
        let failure = |change: &dyn Fn(&mut [u8])| {
            let mut bytes = good.clone();
            change(&mut bytes);
            let block = match DataBlock::validate(&bytes, &LAYOUT, 0, true) {
                Ok(block) => block,
                Err(detail) => return detail.into_owned(),
            };
            block.items().find_map(Result::err).expect("a failure").into_owned()
        };
        let len = good.len();
        assert!(failure(&|bytes| bytes[0] = b'Y').contains("begins with \"YDB3\""));
        assert!(failure(&|bytes| bytes[len - 6] = 9).contains("room for"));
        assert!(failure(&|bytes| bytes[len - 1] = 1).contains("stale"));
        assert!(failure(&|bytes| bytes[111] = 8).contains("begins at 8"));
        assert!(failure(&|bytes| bytes[104] = 0).contains("name of 0 bytes"));
        assert!(failure(&|bytes| bytes[115] = 1).contains("bytes long"));
        assert!(failure(&|bytes| bytes[114] = 0xff).contains("left"));
    }
}
