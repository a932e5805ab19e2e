//! A directory block's bytes are the input: entries, or a node of the hash tree.
#![no_main]

use undercroft_fuzz::{DIRECTORY_BLOCK, damage_one};

libfuzzer_sys::fuzz_target!(|input: &[u8]| damage_one(&DIRECTORY_BLOCK, input));
