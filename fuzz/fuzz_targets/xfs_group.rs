//! A header of an allocation group is the input, or its free list.
#![no_main]

use undercroft_fuzz::xfs::{GROUP, damage_one};

libfuzzer_sys::fuzz_target!(|input: &[u8]| damage_one(&GROUP, input));
