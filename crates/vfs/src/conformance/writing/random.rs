//! Numbers from a seed.

use super::super::tree::mix;

/// A sequence of numbers that its seed determines.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// A number below `bound`, which is not zero.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = mix(self.0);
        (self.0 >> 8) % bound
    }

    /// An index of something that has `len` items.
    pub(super) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
}
