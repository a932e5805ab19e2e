//! An inode of XFS is the input: its fields, its forks.
#![no_main]

use undercroft_fuzz::xfs::{INODE, damage_one};

libfuzzer_sys::fuzz_target!(|input: &[u8]| damage_one(&INODE, input));
