//! The journal superblock's bytes are the input.
#![no_main]

use undercroft_fuzz::{Victim, damage_one};

libfuzzer_sys::fuzz_target!(|input: &[u8]| damage_one(Victim::Dirty, "journal superblock", input));
