//! The superblock's bytes are the input.
#![no_main]

use undercroft_fuzz::{SUPERBLOCK, damage_one};

libfuzzer_sys::fuzz_target!(|input: &[u8]| damage_one(&SUPERBLOCK, input));
