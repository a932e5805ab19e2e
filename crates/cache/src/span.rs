//! Spans: blocks that lie together and are cached as one buffer, because they are one structure with one header and one
//! checksum.
//!
//! A span has a *name*, a number that stands for it wherever a block's number stands for a block: the number of its first
//! block, with the logarithm of its length in the upper bits. A block is a span of one, and its number is its name.
//!
//! The cache does not compare spans with each other: its owner must see to it that a block that is part of a structure in
//! use is asked for by no other name than that of the structure.

/// Bits of a name that have the first block's number. Larger numbers lie past the end of every device.
const NUMBER_BITS: u32 = 56;

/// The largest logarithm of a span's length.
const BLOCKS_LOG_MAX: u8 = 7;

/// Blocks that are cached as one buffer: a power of two, at most 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    first: u64,
    blocks_log: u8,
}

impl Span {
    /// One block.
    pub(crate) const fn block(number: u64) -> Self {
        Self { first: number, blocks_log: 0 }
    }

    /// `count` blocks from `first` on. `None` where the count is no power of two, or larger than a span can be, or no
    /// device has such blocks.
    #[must_use]
    pub const fn new(first: u64, count: u32) -> Option<Self> {
        if !count.is_power_of_two() || count.ilog2() > BLOCKS_LOG_MAX as u32 || first >> NUMBER_BITS != 0 {
            return None;
        }
        Some(Self { first, blocks_log: count.ilog2() as u8 })
    }

    /// The span with this name.
    #[must_use]
    pub const fn named(name: u64) -> Self {
        let blocks_log = (name >> NUMBER_BITS) as u8;
        // What is no name is the number of a block that no device has.
        if blocks_log > BLOCKS_LOG_MAX {
            return Self::block(name);
        }
        Self { first: name & ((1 << NUMBER_BITS) - 1), blocks_log }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> u64 {
        if self.blocks_log == 0 { self.first } else { self.first | (self.blocks_log as u64) << NUMBER_BITS }
    }

    /// The number of its first block.
    #[must_use]
    pub const fn first(self) -> u64 {
        self.first
    }

    /// How many blocks it has.
    #[must_use]
    pub const fn blocks(self) -> u32 {
        1 << self.blocks_log
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_what_its_name_says() {
        for (first, count) in [(0, 1), (7, 1), (7, 2), (7, 64), ((1 << NUMBER_BITS) - 1, 128)] {
            let span = Span::new(first, count).unwrap();
            assert_eq!((span.first(), span.blocks(), Span::named(span.name())), (first, count, span));
        }
        assert_eq!(Span::block(7).name(), 7);
        assert_ne!(Span::new(7, 2).unwrap().name(), Span::new(7, 4).unwrap().name());
        for (first, count) in [(7, 0), (7, 3), (7, 256), (1 << NUMBER_BITS, 1)] {
            assert_eq!(Span::new(first, count), None);
        }
        assert_eq!(Span::named(u64::MAX), Span::block(u64::MAX));
    }
}
