//! An inode's bytes are the input: its fields, its extent root or inline data, its attributes.
#![no_main]

use undercroft_fuzz::{INODE, damage_one};

libfuzzer_sys::fuzz_target!(|input: &[u8]| damage_one(&INODE, input));
