//! A file's content as one number, the same however it is divided into data and holes.
//!
//! Blocks that are not all zeroes are hashed, each with its place.

use sha2::{Digest, Sha256};

const BLOCK_BYTES: usize = 4096;

/// Takes content in order.
pub(super) struct ContentDigest {
    hash: Sha256,
    /// The number of the block that is being filled.
    number: u64,
    block: Box<[u8; BLOCK_BYTES]>,
    /// Whether the block has anything but zeroes.
    is_used: bool,
}

impl Default for ContentDigest {
    fn default() -> Self {
        Self { hash: Sha256::new(), number: 0, block: Box::new([0; BLOCK_BYTES]), is_used: false }
    }
}

impl ContentDigest {
    /// Adds bytes behind those that were added.
    pub(super) fn add(&mut self, mut offset: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (number, within) = (offset / BLOCK_BYTES as u64, offset as usize % BLOCK_BYTES);
            if number != self.number {
                self.end_block();
                self.number = number;
            }
            let (now, rest) = bytes.split_at(bytes.len().min(BLOCK_BYTES - within));
            if now.iter().any(|byte| *byte != 0) {
                self.block[within..within + now.len()].copy_from_slice(now);
                self.is_used = true;
            }
            offset += now.len() as u64;
            bytes = rest;
        }
    }

    fn end_block(&mut self) {
        if self.is_used {
            self.hash.update(self.number.to_le_bytes());
            self.hash.update(&self.block[..]);
            self.block.fill(0);
            self.is_used = false;
        }
    }

    pub(super) fn finish(mut self) -> [u8; 32] {
        self.end_block();
        self.hash.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::ContentDigest;

    fn of(parts: &[(u64, &[u8])]) -> [u8; 32] {
        let mut digest = ContentDigest::default();
        for (offset, bytes) in parts {
            digest.add(*offset, bytes);
        }
        digest.finish()
    }

    #[test]
    fn holes_and_pieces_make_no_difference() {
        let mut bytes = vec![0_u8; 20_000];
        bytes[10_000..10_010].fill(7);
        let whole = of(&[(0, &bytes)]);
        assert_eq!(whole, of(&[(10_000, &[7; 10])]));
        assert_eq!(
            whole,
            of(&[(0, &bytes[..9000]), (9000, &bytes[9000..10_005]), (10_005, &bytes[10_005..])])
        );
        assert_ne!(whole, of(&[(10_001, &[7; 10])]));
        assert_ne!(whole, of(&[(14_096, &[7; 10])]));
        assert_eq!(of(&[]), of(&[(0, &[0; 5000])]));
    }
}
