//! Numbers without a pattern that come again in every run.

/// SplitMix64, which gives every number once before it repeats.
pub(crate) struct Random(u64);

impl Random {
    /// A worker's own, so that a run does the same as the run before.
    pub(crate) const fn of_worker(index: u32) -> Self {
        Self((index as u64) << 32)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
