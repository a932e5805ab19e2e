//! Bytes that do not compress.

use undercroft_block::testing::Rng;

/// Fills a buffer with bytes that depend on `seed` and do not compress.
pub fn noise(seed: u64, buf: &mut [u8]) {
    buf.copy_from_slice(&Rng::new(seed).bytes(buf.len()));
}
