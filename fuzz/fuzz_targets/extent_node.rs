//! An extent tree node's bytes are the input.
#![no_main]

use undercroft_fuzz::{EXTENT_NODE, damage_one};

libfuzzer_sys::fuzz_target!(|input: &[u8]| damage_one(&EXTENT_NODE, input));
