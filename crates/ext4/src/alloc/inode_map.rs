//! Which inodes of a group are free, and which part of its table each thread fills.
//!
//! Threads that make files at once write their inodes into different blocks of the table: each fills a block before it
//! goes on to the next that no other thread is filling. Blocks are begun in rising order, so the table is used densely.

use super::bits::FreeMap;

/// Threads that a group distinguishes.
pub(super) const SLOTS: usize = 8;

/// A group's free inodes.
#[derive(Debug)]
pub(super) struct InodeMap {
    free: FreeMap,
    /// Inodes in a block of the table.
    per_block: u32,
    /// The block of the table that a thread fills.
    filled_by: [Option<u32>; SLOTS],
}

impl InodeMap {
    pub(super) fn new(free: FreeMap, per_block: u32) -> Self {
        Self { free, per_block, filled_by: [None; SLOTS] }
    }

    pub(super) fn len(&self) -> u32 {
        self.free.len()
    }

    pub(super) fn per_block(&self) -> u32 {
        self.per_block
    }

    /// Chooses a free inode for a thread. It is not taken yet.
    pub(super) fn choose(&mut self, thread: usize) -> Option<u32> {
        let thread = thread % SLOTS;
        if let Some(block) = self.filled_by[thread]
            && let Some(bit) = self.free.first_free(self.inodes_of(block))
        {
            return Some(bit);
        }
        self.filled_by[thread] = None;
        let mut from = 0;
        while let Some(bit) = self.free.first_free(from..self.free.len()) {
            let block = bit / self.per_block;
            if !self.filled_by.contains(&Some(block)) {
                self.filled_by[thread] = Some(block);
                return Some(bit);
            }
            from = self.inodes_of(block).end;
        }
        self.free.first_free(0..self.free.len())
    }

    pub(super) fn is_free(&self, bit: u32) -> bool {
        self.free.is_free(bit)
    }

    pub(super) fn take(&mut self, bit: u32) {
        self.free.take(bit..bit + 1);
    }

    pub(super) fn give(&mut self, bit: u32) {
        self.free.give(bit..bit + 1);
    }

    fn inodes_of(&self, block: u32) -> std::ops::Range<u32> {
        block * self.per_block..(block + 1) * self.per_block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_fill_different_blocks_in_rising_order_and_share_only_the_rest() {
        let mut map = InodeMap::new(FreeMap::empty(12), 4);
        let mut next = |thread| {
            let bit = map.choose(thread)?;
            map.take(bit);
            Some(bit)
        };
        assert_eq!([0, 1, 0, 1, 0, 0, 0].map(&mut next), [0, 4, 1, 5, 2, 3, 8].map(Some));
        assert_eq!([2, 2, 1, 1, 1].map(&mut next), [6, 7, 9, 10, 11].map(Some));
        assert_eq!(next(3), None);
        map.give(6);
        assert_eq!(map.choose(3), Some(6));
    }
}
