//! Random numbers that a seed replays, for tests and test devices here and in the crates above.
//!
//! SplitMix64, which needs no crate. Its numbers never change, so that recorded seeds can be replayed.

/// A generator; the same seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that starts at `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not zero. The bias is far below what a test notices.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }

    /// An index into something of `len` items, which is not zero.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// So many bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.bits().to_le_bytes());
        words.take(len.div_ceil(8)).flatten().take(len).collect()
    }
}
