//! Checksums made right again, where the fuzzer would otherwise get no further than the checksum.
//!
//! The images have no metadata checksums, but fast commits and GUID partition tables always carry theirs.

/// Makes the checksum in each tail right, if the block holds fast commits that begin and end in it.
pub(crate) fn fast_commits(block: &mut [u8]) {
    const TAIL: u16 = 8;
    const HEAD: u16 = 9;
    /// Tag and length, then in a tail a transaction number and the checksum.
    const ELEMENT_BYTES: usize = 4;
    const CHECKSUM_AT: usize = 8;
    let u16_at = |block: &[u8], at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
    if block.len() < ELEMENT_BYTES || u16_at(block, 0) != HEAD {
        return;
    }
    let (mut commit, mut at) = (0, 0);
    while at + ELEMENT_BYTES <= block.len() {
        let end = at + ELEMENT_BYTES + usize::from(u16_at(block, at + 2));
        if end > block.len() {
            return;
        }
        if u16_at(block, at) == TAIL {
            if end < at + CHECKSUM_AT + 4 {
                return;
            }
            // From zero, and without the usual inversion at either end.
            let sum = !crc32c::crc32c_append(!0, &block[commit..at + CHECKSUM_AT]);
            block[at + CHECKSUM_AT..at + CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
            commit = end;
        }
        at = end;
    }
}

/// Makes the checksum of a GUID partition table's entries right, for the header at `header`.
pub(crate) fn gpt_entries(disk: &mut [u8], header: usize, sector_bytes: usize) {
    const LBA_AT: usize = 72;
    const COUNT_AT: usize = 80;
    const SIZE_AT: usize = 84;
    const CHECKSUM_AT: usize = 88;
    let start = u64_at(disk, header + LBA_AT).saturating_mul(sector_bytes as u64);
    let len = u64::from(u32_at(disk, header + COUNT_AT)) * u64::from(u32_at(disk, header + SIZE_AT));
    let end = start.saturating_add(len);
    if end <= disk.len() as u64 {
        let sum = crc32fast::hash(&disk[start as usize..end as usize]);
        disk[header + CHECKSUM_AT..][..4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Makes the checksum of the GUID partition table's header at `header` right.
pub(crate) fn gpt_header(disk: &mut [u8], header: usize) {
    const SIZE_AT: usize = 12;
    const CHECKSUM_AT: usize = 16;
    let size = u32_at(disk, header + SIZE_AT) as usize;
    if (CHECKSUM_AT + 4..=512).contains(&size) {
        disk[header + CHECKSUM_AT..][..4].fill(0);
        let sum = crc32fast::hash(&disk[header..header + size]);
        disk[header + CHECKSUM_AT..][..4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Makes the checksum of an array member's superblock, of version 1, right.
pub(crate) fn md_superblock(block: &mut [u8]) {
    const CHECKSUM_AT: usize = 216;
    const ENTRIES_AT: usize = 220;
    const FIXED_BYTES: usize = 256;
    if block.len() < FIXED_BYTES {
        return;
    }
    let len = FIXED_BYTES + 2 * u32_at(block, ENTRIES_AT) as usize;
    if len > block.len() {
        return;
    }
    block[CHECKSUM_AT..][..4].fill(0);
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    let sum: u64 = block[..len].chunks(4).map(word).sum();
    let sum = (sum as u32).wrapping_add((sum >> 32) as u32);
    block[CHECKSUM_AT..][..4].copy_from_slice(&sum.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
