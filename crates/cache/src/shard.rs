//! A part of the cache: a table of buffers and the clock that picks whom to drop.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::Buffer;

/// Buffers whose numbers hash to one lock.
#[derive(Debug)]
pub(crate) struct Shard {
    by_block: HashMap<u64, usize, BuildHasherDefault<BlockHasher>>,
    /// The clock's face. `by_block` holds indices into it.
    slots: Vec<Buffer>,
    hand: usize,
    capacity: usize,
}

impl Shard {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { by_block: HashMap::default(), slots: Vec::new(), hand: 0, capacity }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn contains(&self, block: u64) -> bool {
        self.by_block.contains_key(&block)
    }

    pub(crate) fn get(&self, block: u64) -> Option<Buffer> {
        let buffer = &self.slots[*self.by_block.get(&block)?];
        buffer.touch();
        Some(buffer.clone())
    }

    /// Keeps `buffer` unless its block is here already; answers with the copy that is kept.
    pub(crate) fn insert(&mut self, buffer: Buffer) -> Buffer {
        if let Some(present) = self.get(buffer.block()) {
            return present;
        }
        self.shrink_below_capacity();
        self.by_block.insert(buffer.block(), self.slots.len());
        self.slots.push(buffer.clone());
        buffer
    }

    /// Drops until there is room for one more, or until two turns of the clock found only held buffers.
    fn shrink_below_capacity(&mut self) {
        let mut looks_left = 2 * self.slots.len();
        while self.slots.len() >= self.capacity && looks_left > 0 {
            looks_left -= 1;
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            if self.slots[self.hand].may_be_dropped() {
                let dropped = self.slots.swap_remove(self.hand);
                self.by_block.remove(&dropped.block());
                if let Some(moved) = self.slots.get(self.hand) {
                    self.by_block.insert(moved.block(), self.hand);
                }
            } else {
                self.hand += 1;
            }
        }
    }
}

/// Block numbers are spread by one multiplication: nobody outside chooses which buffers meet in a bucket of
/// more than this shard's bounded size, so a keyed hash would guard nothing.
#[derive(Debug, Default)]
pub(crate) struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 ^ u64::from(byte));
        }
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = n.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(26);
    }
}
