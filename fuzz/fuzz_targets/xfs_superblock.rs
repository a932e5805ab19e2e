//! A superblock of XFS is the input.
#![no_main]

use undercroft_fuzz::xfs::{SUPERBLOCK, damage_one};

libfuzzer_sys::fuzz_target!(|input: &[u8]| damage_one(&SUPERBLOCK, input));
