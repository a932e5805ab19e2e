//! Words anywhere in an image are changed; the first byte picks the image.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| undercroft_fuzz::damage_anywhere(input));
