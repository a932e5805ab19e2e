//! A member of an array whose superblock, and what lies next to it, are the fuzzer's.

use undercroft_block::{BlockDevice, MemoryDevice};

use crate::mend;

/// The superblock's checksum is made right.
pub(crate) const MEND: u8 = 4;
/// A member is so long.
pub(crate) const MEMBER_BYTES: u64 = 8 << 20;
/// From the superblock on: the bitmap, or the first record of a log, and the list of bad blocks.
pub(crate) const INPUT_BYTES: usize = 16 << 10;

/// Where superblocks lie: versions 1.2, 1.1, 1.0 and 0.90.
pub(crate) const PLACES: [u64; 4] = [4 << 10, 0, MEMBER_BYTES - (8 << 10), MEMBER_BYTES - (64 << 10)];

/// A member. The first byte picks the place, and says whether the checksum is made right.
pub fn member(input: &[u8]) -> impl BlockDevice {
    let (&first, input) = input.split_first().unwrap_or((&0, &[]));
    let place = PLACES[usize::from(first % 4)];
    let room = (MEMBER_BYTES - place) as usize;
    let mut bytes = input[..input.len().min(room)].to_vec();
    if first & MEND != 0 {
        mend::md_superblock(&mut bytes);
    }
    let member = MemoryDevice::new(MEMBER_BYTES);
    member.write_at(place, &bytes).expect("memory takes writes");
    member
}
