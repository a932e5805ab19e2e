//! What can go wrong on a device: which request, on which device, and why.

use std::{fmt, io};

/// Result of a device operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What a request asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Bytes from the device.
    Read,
    /// Bytes to the device.
    Write,
    /// Durability of everything completed before.
    Flush,
    /// Permission to forget a range.
    Discard,
    /// Zeroes to a range.
    WriteZeroes,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::WriteZeroes => "write of zeroes",
        })
    }
}

/// A request that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The range does not lie within the device; the caller's mistake or a hostile block number.
    #[error("{operation} of {len} bytes at byte {offset} reaches past the end of {device} ({size} bytes)")]
    OutOfRange {
        /// What was asked.
        operation: Operation,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// The device's size in bytes.
        size: u64,
        /// The device's name.
        device: String,
    },
    /// A write to a device that was opened for reading.
    #[error("{operation} refused: {device} is open read-only")]
    ReadOnly {
        /// What was asked.
        operation: Operation,
        /// The device's name.
        device: String,
    },
    /// The device tried and failed.
    #[error("{operation} of {len} bytes at byte {offset} of {device} failed: {source}")]
    Io {
        /// What was asked.
        operation: Operation,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// The device's name.
        device: String,
        /// What the system said.
        source: io::Error,
    },
}
