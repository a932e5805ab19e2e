//! Commit blocks: the end of a transaction, its time and its checksum.

use zerocopy::FromBytes;

use super::features::Checksums;
use super::format::{COMMIT_CHECKSUM_OFFSET, COMMIT_HEADER_BYTES, ChecksumType, RawCommit};
use super::superblock::Superblock;
use crate::checksum::crc32c_around;

/// What a commit block says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Commit {
    /// Seconds and nanoseconds since 1970.
    pub(super) time: (u64, u32),
    /// Whether its checksum is right; true where there is none.
    pub(super) checksum_is_right: bool,
}

impl Commit {
    /// Reads a commit block; `crc32` is the checksum of version 1 over its transaction.
    pub(super) fn validate(superblock: &Superblock, block: &[u8], crc32: u32) -> Self {
        let (raw, _) = RawCommit::read_from_prefix(block).expect("a block holds a commit header");
        let found = raw.h_chksum[0].get();
        let checksum_is_right = match superblock.checksums {
            Checksums::None => true,
            Checksums::V1 => {
                let kind = ChecksumType(raw.h_chksum_type);
                let unused = kind == ChecksumType::NONE && raw.h_chksum_size == 0 && found == 0;
                unused || (kind == ChecksumType::CRC32 && raw.h_chksum_size == 4 && found == crc32)
            }
            Checksums::V2 | Checksums::V3 => {
                let seed = superblock.checksum_seed;
                let field = COMMIT_CHECKSUM_OFFSET..COMMIT_CHECKSUM_OFFSET + 4;
                // A disk that wrote only the block's first sector has written everything that counts: the
                // rest was zeroes when the checksum was made.
                found == crc32c_around(seed, block, field.clone()) || {
                    let mut header_alone = vec![0; block.len()];
                    header_alone[..COMMIT_HEADER_BYTES].copy_from_slice(&block[..COMMIT_HEADER_BYTES]);
                    found == crc32c_around(seed, &header_alone, field)
                }
            }
        };
        Self { time: (raw.h_commit_sec.get(), raw.h_commit_nsec.get()), checksum_is_right }
    }
}
