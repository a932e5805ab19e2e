//! An attribute block of XFS is the input, or a value or a link's target outside the inode.
#![no_main]

use undercroft_fuzz::xfs::{ATTRIBUTE_BLOCK, damage_one};

libfuzzer_sys::fuzz_target!(|input: &[u8]| damage_one(&ATTRIBUTE_BLOCK, input));
