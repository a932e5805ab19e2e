//! A journal block's bytes are the input: descriptors, revocations, commits, fast commits.
#![no_main]

use undercroft_fuzz::{Victim, damage_one};

libfuzzer_sys::fuzz_target!(|input: &[u8]| damage_one(Victim::Dirty, "journal block", input));
