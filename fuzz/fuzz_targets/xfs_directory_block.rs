//! A directory block of XFS is the input: entries, hash index, free index, or a node of the hash tree.
#![no_main]

use undercroft_fuzz::xfs::{DIRECTORY_BLOCK, damage_one};

libfuzzer_sys::fuzz_target!(|input: &[u8]| damage_one(&DIRECTORY_BLOCK, input));
