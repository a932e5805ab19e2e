//! What can go wrong with an array: which member, where, and what to do.

use undercroft_block as block;

/// Result of an operation on an array.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an array cannot be opened, changed or used. Corrupt, unsupported and an I/O error are three answers.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A structure on a member says what cannot be.
    #[error("{structure} at byte {offset} of {member} is corrupt: {detail}")]
    Corrupt {
        /// Which structure: `md superblock`, `write-intent bitmap`.
        structure: &'static str,
        /// The member's device.
        member: String,
        /// First byte of the structure on that device.
        offset: u64,
        /// What was found and what was expected.
        detail: String,
    },
    /// What Linux can do and we cannot.
    #[error("{what} is not supported ({member})")]
    Unsupported {
        /// What it is.
        what: String,
        /// Where it was met.
        member: String,
    },
    /// A device that is no member of an array.
    #[error("{member} has no md superblock: it is no member of an array, or its superblock was erased")]
    NoSuperblock {
        /// The device.
        member: String,
    },
    /// Members that do not make an array.
    #[error("{0}")]
    Assembly(String),
    /// What was asked for makes no sense for this array.
    #[error("{0}")]
    Invalid(String),
    /// So many members are lost that the data cannot be had.
    #[error("too few members are left: {0}")]
    TooFewMembers(String),
    /// Nothing is written any more; the first cause.
    #[error("writes are refused since {0}")]
    Stopped(String),
    /// A device failed.
    #[error(transparent)]
    Device(#[from] block::Error),
}
