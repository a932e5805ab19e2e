//! A small disk whose start is the fuzzer's.

use undercroft_block::{BlockDevice, MemoryDevice};

use crate::mend;

/// The checksum of a partition table's entries is made right.
pub(crate) const MEND_ENTRIES: u8 = 1;
/// The checksum of a partition table's header is made right.
pub(crate) const MEND_HEADER: u8 = 2;

/// How long the disk is at least, in bytes.
pub(crate) const DISK_BYTES: usize = 1 << 20;

/// Of a GUID partition table; its header lies in the second sector.
const SECTOR_BYTES: [usize; 2] = [512, 4096];
const HEADERS_BYTES: usize = 4096 + 512;

/// A disk of the input's own bytes. Bits of the first byte say which checksums are made right.
pub fn disk(input: &[u8]) -> impl BlockDevice {
    let (&mended, input) = input.split_first().unwrap_or((&0, &[]));
    let mut bytes = vec![0; input.len().max(DISK_BYTES)];
    bytes[..input.len()].copy_from_slice(input);
    for sector_bytes in SECTOR_BYTES {
        if mended & MEND_ENTRIES != 0 {
            mend::gpt_entries(&mut bytes, sector_bytes, sector_bytes);
        }
        if mended & MEND_HEADER != 0 {
            mend::gpt_header(&mut bytes, sector_bytes);
        }
    }
    let disk = MemoryDevice::new(bytes.len() as u64);
    let changed = input.len().max(HEADERS_BYTES);
    disk.write_at(0, &bytes[..changed]).expect("memory takes writes");
    disk
}
