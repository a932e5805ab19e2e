//! A journal block's bytes are the input: descriptors, revocations, commits, fast commits.
#![no_main]

use undercroft_fuzz::{JOURNAL_BLOCK, damage_one};

libfuzzer_sys::fuzz_target!(|input: &[u8]| damage_one(&JOURNAL_BLOCK, input));
