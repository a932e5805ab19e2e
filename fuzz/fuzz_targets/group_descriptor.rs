//! A group descriptor's bytes are the input.
#![no_main]

use undercroft_fuzz::{GROUP_DESCRIPTOR, damage_one};

libfuzzer_sys::fuzz_target!(|input: &[u8]| damage_one(&GROUP_DESCRIPTOR, input));
