//! Words anywhere in an image are changed; the first byte picks the image.
#![no_main]

use undercroft_fuzz::{Victim, damage_anywhere};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Some((pick, changes)) = input.split_first() {
        damage_anywhere(if pick % 2 == 0 { Victim::Clean } else { Victim::Dirty }, changes);
    }
});
