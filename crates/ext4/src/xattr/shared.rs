//! A table of attribute blocks that another inode with equal attributes may share.
//!
//! A bounded table of hints: the hash of a block's attributes leads to the block that had it last. A caller that wants
//! to share reads the block itself, under its lock. That is safe because a block leaves the table before it is freed,
//! and its space is not reused before the transaction ends in which a caller can still find it here. Only a user of a
//! block enters it.

use undercroft_sync::atomic::{AtomicU64, Ordering};

use crate::numbers::FsBlock;

/// As many blocks as are remembered; a power of two.
const SLOTS: usize = 4096;

/// The table.
pub(crate) struct SharedBlocks {
    /// The block's number, or 0.
    slots: Box<[AtomicU64]>,
}

impl Default for SharedBlocks {
    fn default() -> Self {
        Self { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl SharedBlocks {
    fn slot(&self, hash: u32) -> &AtomicU64 {
        // Values of one repeated word change both halves of a hash alike, so the halves are not just folded.
        &self.slots[(hash.wrapping_mul(0x9E37_79B1) >> 20) as usize % SLOTS]
    }

    /// A block whose attributes may have this hash.
    pub(super) fn find(&self, hash: u32) -> Option<FsBlock> {
        let block = self.slot(hash).load(Ordering::Acquire);
        (hash != 0 && block != 0).then_some(FsBlock(block))
    }

    /// Remembers a block, which the caller's inode uses.
    pub(super) fn enter(&self, hash: u32, block: FsBlock) {
        if hash != 0 && self.slot(hash).load(Ordering::Relaxed) != block.0 {
            self.slot(hash).store(block.0, Ordering::Release);
        }
    }

    /// Forgets a block that had this hash: it is going to have another, or none.
    pub(super) fn leave(&self, hash: u32, block: FsBlock) {
        let _ = self.slot(hash).compare_exchange(block.0, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}
