//! A record of the log is the input.
#![no_main]

use undercroft_fuzz::xfs::damage_log;

libfuzzer_sys::fuzz_target!(|input: &[u8]| damage_log(input));
