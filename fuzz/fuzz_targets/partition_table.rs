//! The input is the start of a disk: MBR, extended partitions, GPT. The first byte says which checksums are recomputed.
#![no_main]

use undercroft_block::partition;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let disk = undercroft_fuzz::disk(input);
    let _ = partition::partitions(&disk);
    let _ = partition::parse(&disk, &[4096]);
});
