//! Hashing of inode numbers for the inode cache and the tree walk.
//!
//! Numbers come from disks, so the hash is keyed: one multiplication to 128 bits, folded, with a random odd
//! factor for each cache. That is a few times faster than the standard hasher, which matters because a walk
//! hashes every inode.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use crate::Ino;

/// Makes hashers for [`Ino`]; copies agree with each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InoHashBuilder {
    add: u64,
    factor: u64,
}

impl InoHashBuilder {
    /// A builder with a key of its own.
    pub(crate) fn random() -> Self {
        let random = RandomState::new();
        Self { add: random.hash_one(0_u8), factor: random.hash_one(1_u8) | 1 }
    }

    /// Which of `parts` (a power of two) serves `ino`; independent of the bits that a table uses.
    pub(crate) fn spread(&self, ino: Ino, parts: usize) -> usize {
        debug_assert!(parts.is_power_of_two());
        // A table takes its bucket from the low bits and a tag from the top seven.
        (self.hash_one(ino) >> 40) as usize & (parts - 1)
    }
}

impl BuildHasher for InoHashBuilder {
    type Hasher = InoHasher;

    fn build_hasher(&self) -> InoHasher {
        InoHasher { key: *self, state: 0 }
    }
}

/// Hashes one number.
pub(crate) struct InoHasher {
    key: InoHashBuilder,
    state: u64,
}

impl Hasher for InoHasher {
    fn write_u64(&mut self, number: u64) {
        let mixed = u128::from(number ^ self.state ^ self.key.add) * u128::from(self.key.factor);
        self.state = (mixed as u64) ^ ((mixed >> 64) as u64);
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn finish(&self) -> u64 {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_numbers_spread_over_all_parts() {
        let builder = InoHashBuilder::random();
        let mut counts = [0_u32; 64];
        for number in 0..64_000 {
            counts[builder.spread(Ino(number), 64)] += 1;
        }
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(*least > 100 && *most < 10_000, "the fullest part has {most}, the emptiest {least} of 64000");
    }

    #[test]
    fn copies_of_a_builder_agree() {
        let builder = InoHashBuilder::random();
        let copy = builder;
        assert_eq!(builder.hash_one(Ino(12)), copy.hash_one(Ino(12)));
        assert_ne!(builder.hash_one(Ino(12)), builder.hash_one(Ino(13)));
    }
}
