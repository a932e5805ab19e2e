//! Pass 2: which copies must not be replayed.
//!
//! A block that held metadata and was freed may hold file data by now, which no journal protects. The
//! transaction that freed it revokes it: copies from that transaction and from earlier ones stay out. Later
//! copies count again.
//!
//! A hostile log could revoke billions of blocks. Only revocations of blocks that some transaction copied
//! matter, and those are fewer than the log has blocks, so nothing else is remembered.

use std::collections::HashMap;

use undercroft_block::BlockDevice;
use undercroft_vfs::Result;
use zerocopy::FromBytes;

use super::descriptor::{LoggedBlock, bytes_before_tail};
use super::features::Incompat;
use super::format::RawRevokeHeader;
use super::location::{LogBlock, LogLocation};
use super::scan::{RevokeBlock, Scan};
use super::sequence::Sequence;
use super::superblock::Superblock;
use crate::error::corrupt;
use crate::numbers::FsBlock;

/// What the log says of one filesystem block.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// The latest transaction that revoked it.
    revoked: Option<Sequence>,
}

/// Every block that the log has copies of.
#[derive(Debug)]
pub(super) struct Revokes {
    verdicts: HashMap<FsBlock, Verdict>,
    /// Revocations in the log, whether they matter or not.
    pub(super) records: u64,
}

impl Revokes {
    /// Reads the revoke blocks that the scan found.
    ///
    /// # Errors
    /// `Corrupt` when one holds an impossible count; `Io`.
    pub(super) fn collect(
        device: &dyn BlockDevice,
        location: &LogLocation,
        superblock: &Superblock,
        scan: &Scan,
    ) -> Result<Self> {
        let verdicts = scan.blocks.iter().map(|block| (block.tag.home, Verdict::default())).collect();
        let mut revokes = Self { verdicts, records: 0 };
        let mut block = vec![0; superblock.block_bytes as usize];
        for at in &scan.revokes {
            location.read_block(device, at.log, &mut block)?;
            revokes.add(superblock, *at, &block)?;
        }
        Ok(revokes)
    }

    fn add(&mut self, superblock: &Superblock, at: RevokeBlock, block: &[u8]) -> Result<()> {
        let (header, _) = RawRevokeHeader::read_from_prefix(block).expect("a block holds a header");
        let used = header.r_count.get() as usize;
        let start = size_of::<RawRevokeHeader>();
        let Some(records) = block[..bytes_before_tail(superblock)].get(start..used) else {
            return Err(corrupt_revoke(at.log, used));
        };
        let wide = superblock.has(Incompat::SIXTY_FOUR_BIT);
        for record in records.chunks_exact(if wide { 8 } else { 4 }) {
            self.records += 1;
            let number = record.iter().fold(0, |number: u64, &byte| number << 8 | u64::from(byte));
            if let Some(verdict) = self.verdicts.get_mut(&FsBlock(number)) {
                // Revoke blocks come in the order of their transactions.
                verdict.revoked = Some(at.sequence);
            }
        }
        Ok(())
    }

    /// Whether a copy must stay out of the filesystem.
    pub(super) fn holds(&self, block: &LoggedBlock) -> bool {
        let verdict = self.verdicts.get(&block.tag.home);
        verdict
            .and_then(|verdict| verdict.revoked)
            .is_some_and(|revoked| revoked.is_at_or_after(block.sequence))
    }
}

fn corrupt_revoke(log: LogBlock, used: usize) -> undercroft_vfs::Error {
    corrupt("journal revoke block", format!("log block {log} claims {used} bytes in use"))
}
