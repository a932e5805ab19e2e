//! The input is what lies around the superblock of an array's member: the superblock, then a bitmap and what follows.
//! The first byte says which version is looked for, and whether the superblock's checksum is mended.
#![no_main]

use undercroft_md::examine;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(examined) = examine(&undercroft_fuzz::member(input)) {
        let _ = examined.to_string();
    }
});
