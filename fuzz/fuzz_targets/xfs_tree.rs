//! A block of one of a group's trees is the input, or of a file's extent tree.
#![no_main]

use undercroft_fuzz::xfs::{TREE, damage_one};

libfuzzer_sys::fuzz_target!(|input: &[u8]| damage_one(&TREE, input));
