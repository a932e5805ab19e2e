//! What the writer of a log may have used: the feature words of the journal superblock.

use bitflags::bitflags;
use undercroft_vfs::{Error, Result};

bitflags! {
    /// Features that a reader may ignore.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct Compat: u32 {
        /// Commit blocks carry a CRC-32 of their transaction (checksum version 1).
        const CHECKSUM = 0x1;
        const _ = !0;
    }

    /// Features that a reader must know.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct Incompat: u32 {
        /// There may be revoke blocks.
        const REVOKE = 0x1;
        /// Block numbers have 64 bits.
        const SIXTY_FOUR_BIT = 0x2;
        /// A commit block may reach the disk before the blocks it commits.
        const ASYNC_COMMIT = 0x4;
        /// Checksum version 2.
        const CSUM_V2 = 0x8;
        /// Checksum version 3.
        const CSUM_V3 = 0x10;
        /// The end of the log is a fast-commit area.
        const FAST_COMMIT = 0x20;
        const _ = !0;
    }
}

impl Incompat {
    /// Refuses, by name, what this program does not know.
    pub(super) fn refuse_unknown(self) -> Result<()> {
        let known = Self::REVOKE
            | Self::SIXTY_FOUR_BIT
            | Self::ASYNC_COMMIT
            | Self::CSUM_V2
            | Self::CSUM_V3
            | Self::FAST_COMMIT;
        let unknown = self.difference(known).bits();
        if unknown == 0 {
            return Ok(());
        }
        // jbd2 has not given a name to any other bit, so its number is its name.
        Err(Error::Unsupported(
            format!("journal feature bits {unknown:#x}; recover the log with a program that knows them")
                .into(),
        ))
    }
}

/// Which checksums a log carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checksums {
    /// None.
    None,
    /// One CRC-32 over each transaction, in its commit block.
    V1,
    /// CRC-32C in every block; 16 bits of it in tags.
    V2,
    /// CRC-32C in every block and tag.
    V3,
}

impl Checksums {
    /// Whether blocks carry their own checksum.
    pub(super) fn per_block(self) -> bool {
        matches!(self, Self::V2 | Self::V3)
    }
}
