//! The journal superblock's bytes are the input.
#![no_main]

use undercroft_fuzz::{JOURNAL_SUPERBLOCK, damage_one};

libfuzzer_sys::fuzz_target!(|input: &[u8]| damage_one(&JOURNAL_SUPERBLOCK, input));
