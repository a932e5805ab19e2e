//! An attribute block's bytes are the input.
#![no_main]

use undercroft_fuzz::{XATTR_BLOCK, damage_one};

libfuzzer_sys::fuzz_target!(|input: &[u8]| damage_one(&XATTR_BLOCK, input));
