//! The input is a qcow2 image. It may name no other file, which is the default.
#![no_main]

use std::io::Write;

use undercroft_block::{ImageOptions, open_image};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(input).expect("room for it");
    if let Ok(device) = open_image(file.path(), ImageOptions::read_only()) {
        let mut buf = [0; 4096];
        for offset in [0, device.size_bytes() / 2, device.size_bytes().saturating_sub(4096)] {
            let _ = device.read_at(offset, &mut buf);
        }
    }
});
