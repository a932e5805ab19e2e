//! One block of a tree, or the root within an inode, as bytes that change: entries are taken out, put in and moved.
//!
//! An entry is a record of a leaf, or a key with its pointer. All bytes come from a block that has been validated.

use std::ops::{Deref, DerefMut, Range};

use super::super::node;
use super::ChangeKind;
use crate::format::Geometry;
use crate::format::dinode::ROOT_HEADER_BYTES;

/// The longest key of a pointer.
pub(super) const KEY_MAX_BYTES: usize = 40;

/// Where the entries lie in a block's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Where the number of entries lies; the level lies two bytes before.
    count_at: usize,
    first: usize,
    /// Size of a record or of a key.
    key_bytes: usize,
    pointers: usize,
    /// Size of a pointer; none in a leaf.
    pointer_bytes: usize,
    /// How many entries there is room for.
    pub(super) room: usize,
}

impl Layout {
    /// That of a block.
    pub(super) fn of_block<K: ChangeKind>(geometry: &Geometry, level: u8) -> Self {
        let (records, keys) = node::capacities::<K>(geometry);
        let first = node::header_bytes::<K>(geometry.has_crc());
        let (key_bytes, pointer_bytes, room) = if level == 0 {
            (K::RECORD_BYTES, 0, records)
        } else {
            (K::KEY_BYTES, node::pointer_bytes::<K>(), keys)
        };
        Self { count_at: 6, first, key_bytes, pointers: first + keys * K::KEY_BYTES, pointer_bytes, room }
    }

    /// That of a root in a fork of `len` bytes.
    pub(super) fn of_fork<K: ChangeKind>(len: usize) -> Self {
        let pointer_bytes = node::pointer_bytes::<K>();
        let room = len.saturating_sub(ROOT_HEADER_BYTES) / (K::KEY_BYTES + pointer_bytes);
        let pointers = ROOT_HEADER_BYTES + room * K::KEY_BYTES;
        Self { count_at: 2, first: ROOT_HEADER_BYTES, key_bytes: K::KEY_BYTES, pointers, pointer_bytes, room }
    }
}

/// Entries outside of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    /// The records, or the keys.
    pub(super) keys: Vec<u8>,
    pub(super) pointers: Vec<u8>,
    pub(super) count: usize,
}

impl Entries {
    /// One entry.
    pub(super) fn one(key: &[u8], pointer: &[u8]) -> Self {
        Self { keys: key.to_vec(), pointers: pointer.to_vec(), count: 1 }
    }

    /// Puts others in before entry `at`.
    pub(super) fn insert(&mut self, at: usize, others: &Self) {
        if others.count == 0 {
            return;
        }
        let (key, pointer) = (others.keys.len() / others.count, others.pointers.len() / others.count);
        self.keys.splice(at * key..at * key, others.keys.iter().copied());
        self.pointers.splice(at * pointer..at * pointer, others.pointers.iter().copied());
        self.count += others.count;
    }

    /// Appends others.
    pub(super) fn append(&mut self, others: &Self) {
        self.insert(self.count, others);
    }

    /// Splits off the entries from `at` on.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        if self.count == 0 {
            return Self::default();
        }
        let (key, pointer) = (self.keys.len() / self.count, self.pointers.len() / self.count);
        let keys = self.keys.split_off(at * key);
        let pointers = self.pointers.split_off(at * pointer);
        let count = self.count - at;
        self.count = at;
        Self { keys, pointers, count }
    }
}

/// The bytes of a block or of a root in a fork, with where its entries lie.
pub(super) struct View<B> {
    pub(super) bytes: B,
    layout: Layout,
}

impl<B: Deref<Target = [u8]>> View<B> {
    pub(super) fn new(bytes: B, layout: Layout) -> Self {
        Self { bytes, layout }
    }

    pub(super) fn count(&self) -> usize {
        let at = self.layout.count_at;
        usize::from(u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]]))
    }

    fn keys(&self, range: Range<usize>) -> Range<usize> {
        let Layout { first, key_bytes, .. } = self.layout;
        first + range.start * key_bytes..first + range.end * key_bytes
    }

    fn pointers(&self, range: Range<usize>) -> Range<usize> {
        let Layout { pointers, pointer_bytes, .. } = self.layout;
        pointers + range.start * pointer_bytes..pointers + range.end * pointer_bytes
    }

    /// A record or a key.
    pub(super) fn key(&self, n: usize) -> &[u8] {
        &self.bytes[self.keys(n..n + 1)]
    }

    /// All entries.
    pub(super) fn entries(&self) -> Entries {
        let count = self.count();
        Entries {
            keys: self.bytes[self.keys(0..count)].to_vec(),
            pointers: self.bytes[self.pointers(0..count)].to_vec(),
            count,
        }
    }

    /// The key that a pointer to this block, of `level`, has: the lowest below, and for a kind that
    /// [overlaps](ChangeKind::OVERLAPS) the highest. The block has an entry.
    pub(super) fn pointer_key<K: ChangeKind>(&self, level: u8, geometry: &Geometry) -> [u8; KEY_MAX_BYTES] {
        let mut key = [0; KEY_MAX_BYTES];
        let read = |n: usize, key: &mut [u8; KEY_MAX_BYTES]| {
            if level == 0 {
                K::pack_key(&K::unpack(self.key(n), geometry), &mut key[..K::KEY_BYTES]);
            } else {
                key[..K::KEY_BYTES].copy_from_slice(self.key(n));
            }
        };
        read(0, &mut key);
        if K::OVERLAPS {
            let high = K::KEY_BYTES / 2..K::KEY_BYTES;
            let mut other = [0; KEY_MAX_BYTES];
            for n in 1..self.count() {
                read(n, &mut other);
                if K::unpack_key(&other[high.clone()]) > K::unpack_key(&key[high.clone()]) {
                    key[high.clone()].copy_from_slice(&other[high.clone()]);
                }
            }
        }
        key
    }
}

impl<B: DerefMut<Target = [u8]>> View<B> {
    fn set_count(&mut self, count: usize) {
        let at = self.layout.count_at;
        self.bytes[at..at + 2].copy_from_slice(&(count as u16).to_be_bytes());
    }

    /// Replaces a record or a key.
    pub(super) fn set_key(&mut self, n: usize, key: &[u8]) {
        let range = self.keys(n..n + 1);
        self.bytes[range].copy_from_slice(key);
    }

    /// Has these entries and no others from now on. They fit.
    pub(super) fn set_entries(&mut self, entries: &Entries) {
        let old = self.count();
        let (keys, pointers) = (self.keys(0..entries.count), self.pointers(0..entries.count));
        self.bytes[keys].copy_from_slice(&entries.keys);
        self.bytes[pointers].copy_from_slice(&entries.pointers);
        if old > entries.count {
            // What is not in use any more is zeroes.
            let (keys, pointers) = (self.keys(entries.count..old), self.pointers(entries.count..old));
            self.bytes[keys].fill(0);
            self.bytes[pointers].fill(0);
        }
        self.set_count(entries.count);
    }

    /// Puts one entry in before entry `n`. There is room.
    pub(super) fn insert(&mut self, n: usize, entry: &Entries) {
        let count = self.count();
        let (keys, pointers) = (self.keys(n..count), self.pointers(n..count));
        self.bytes.copy_within(keys.clone(), keys.start + self.layout.key_bytes);
        self.bytes.copy_within(pointers.clone(), pointers.start + self.layout.pointer_bytes);
        self.bytes[keys.start..keys.start + entry.keys.len()].copy_from_slice(&entry.keys);
        self.bytes[pointers.start..pointers.start + entry.pointers.len()].copy_from_slice(&entry.pointers);
        self.set_count(count + 1);
    }

    /// Takes entry `n` out.
    pub(super) fn remove(&mut self, n: usize) {
        let count = self.count();
        let (keys, pointers) = (self.keys(n + 1..count), self.pointers(n + 1..count));
        self.bytes.copy_within(keys.clone(), keys.start - self.layout.key_bytes);
        self.bytes.copy_within(pointers.clone(), pointers.start - self.layout.pointer_bytes);
        let (keys, pointers) = (self.keys(count - 1..count), self.pointers(count - 1..count));
        self.bytes[keys].fill(0);
        self.bytes[pointers].fill(0);
        self.set_count(count - 1);
    }

    /// Sets the level.
    pub(super) fn set_level(&mut self, level: u8) {
        let at = self.layout.count_at - 2;
        self.bytes[at..at + 2].copy_from_slice(&u16::from(level).to_be_bytes());
    }
}
