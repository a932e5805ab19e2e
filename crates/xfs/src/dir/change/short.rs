//! A directory in its inode, as it is changed: read into a list of entries, and written again.

use super::super::entry::entry_bytes;
use super::super::short::{ShortDirectory, dots_end};
use super::data::New;
use super::edit::is_same_folded;
use super::raw::ENTRY_BYTES;
use crate::da::Layout;
use crate::error::Verdict;

/// Numbers above this one take eight bytes.
const SHORT_INO_MAX: u64 = u32::MAX as u64;

/// What a block needs at its end, beside an index entry for each name and for `.` and `..`.
const TAIL_BYTES: usize = 8;

/// The entries of a directory in its inode.
#[derive(Clone, Debug)]
pub(super) struct Short {
    pub(super) parent: u64,
    /// In the order of their places.
    pub(super) entries: Vec<ShortEntry>,
}

#[derive(Clone, Debug)]
pub(super) struct ShortEntry {
    pub(super) name: Vec<u8>,
    pub(super) ino: u64,
    pub(super) kind: u8,
    /// Where it lies in the block that the directory may become.
    pub(super) at: usize,
}

impl Short {
    pub(super) fn read(bytes: &[u8], layout: &Layout) -> Verdict<Self> {
        let short = ShortDirectory::validate(bytes, layout)?;
        let entries = short.entries().map(|entry| ShortEntry {
            name: entry.name.to_vec(),
            ino: entry.ino,
            kind: entry.kind,
            at: entry.position.split(layout).1,
        });
        let entries: Vec<ShortEntry> = entries.collect();
        // Where they come to lie when the directory leaves its inode.
        if let Some(entry) = entries.iter().find(|entry| !entry.at.is_multiple_of(8)) {
            return Err(format!("has a name whose place is byte {}, within another's", entry.at).into());
        }
        Ok(Self { parent: short.parent, entries })
    }

    /// The number of the entry with this name: one that is equal in every byte, or the first that is but for capital letters,
    /// where these are not distinguished.
    pub(super) fn find(&self, name: &[u8], folds_case: bool) -> Option<usize> {
        let equal = self.entries.iter().position(|entry| entry.name == name);
        equal.or_else(|| {
            let folded = || self.entries.iter().position(|entry| is_same_folded(&entry.name, name));
            if folds_case { folded() } else { None }
        })
    }

    /// How many bytes it takes in the inode.
    pub(super) fn len(&self, layout: &Layout) -> usize {
        let ino_bytes = if self.wide() > 0 { 8 } else { 4 };
        let fixed = 3 + usize::from(layout.has_kinds) + ino_bytes;
        2 + ino_bytes + self.entries.iter().map(|entry| fixed + entry.name.len()).sum::<usize>()
    }

    /// How many numbers take eight bytes.
    fn wide(&self) -> usize {
        let inos = self.entries.iter().map(|entry| entry.ino).chain([self.parent]);
        inos.filter(|&ino| ino > SHORT_INO_MAX).count()
    }

    /// Whether all of it can be in an inode with `room` bytes for it.
    pub(super) fn fits(&self, layout: &Layout, room: usize) -> bool {
        self.entries.len() <= usize::from(u8::MAX)
            && self.wide() <= usize::from(u8::MAX)
            && self.len(layout) <= room
    }

    pub(super) fn write(&self, layout: &Layout) -> Vec<u8> {
        let wide = self.wide();
        let mut bytes = Vec::with_capacity(self.len(layout));
        let put_ino = |bytes: &mut Vec<u8>, ino: u64| {
            bytes.extend_from_slice(&ino.to_be_bytes()[if wide > 0 { 0 } else { 4 }..]);
        };
        bytes.extend_from_slice(&[self.entries.len() as u8, wide as u8]);
        put_ino(&mut bytes, self.parent);
        for entry in &self.entries {
            bytes.push(entry.name.len() as u8);
            bytes.extend_from_slice(&(entry.at as u16).to_be_bytes());
            bytes.extend_from_slice(&entry.name);
            if layout.has_kinds {
                bytes.push(entry.kind);
            }
            put_ino(&mut bytes, entry.ino);
        }
        bytes
    }

    /// Enters a name where it will have its place in a block. `false`, with nothing changed, when such a block would have
    /// no place for it.
    pub(super) fn enter(&mut self, layout: &Layout, new: &New<'_>) -> bool {
        let len = entry_bytes(layout, new.name.len());
        let end_of = |entry: &ShortEntry| entry.at + entry_bytes(layout, entry.name.len());
        let end = self.entries.last().map_or(dots_end(layout), end_of);
        let index = (self.entries.len() + 3) * ENTRY_BYTES + TAIL_BYTES;
        let mut place = (end + len + index <= layout.dir_block_bytes).then_some((self.entries.len(), end));
        if place.is_none() && end + index <= layout.dir_block_bytes {
            let mut from = dots_end(layout);
            for (number, entry) in self.entries.iter().enumerate() {
                if from + len <= entry.at {
                    place = Some((number, from));
                    break;
                }
                from = end_of(entry);
            }
        }
        let Some((number, at)) = place else { return false };
        let entry = ShortEntry { name: new.name.to_vec(), ino: new.ino, kind: new.kind, at };
        self.entries.insert(number, entry);
        true
    }
}
