//! A directory block's bytes are the input: entries, or a node of the hash tree.
#![no_main]

use undercroft_fuzz::{Victim, damage_one};

libfuzzer_sys::fuzz_target!(|input: &[u8]| damage_one(Victim::Clean, "directory block", input));
