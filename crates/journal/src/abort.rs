//! The end of all changes: closed, shut down, or aborted with a cause. The first end is kept, and later callers get it.

use std::sync::{Arc, OnceLock};

use undercroft_block::Error as DeviceError;
use undercroft_vfs::{Error, Result};

/// Why no changes are taken any more.
#[derive(Debug)]
pub enum Stopped {
    /// The filesystem was closed, and everything was durable.
    Closed,
    /// The filesystem was shut down; what was not durable is lost.
    ShutDown,
    /// Something failed; nothing that is in memory reaches the disk any more.
    Aborted {
        /// For people.
        text: Arc<str>,
        /// For the superblock.
        cause: Cause,
    },
}

/// What an abort was caused by, as far as a superblock can record it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No error: a panic, or a contradiction that was found in memory.
    Inconsistency,
    /// The device failed.
    Io,
    /// The disk contradicts itself.
    Corruption {
        /// The inode, where it is known.
        ino: Option<u64>,
        /// The block, where it is known.
        block: Option<u64>,
    },
    /// Another error.
    Other,
}

/// Whether and why no changes are taken any more. Set once, read by every operation.
#[derive(Debug, Default)]
pub struct Stop(OnceLock<Stopped>);

impl Stop {
    /// Ends the changes, unless they have ended: the first end is kept.
    pub(crate) fn set(&self, why: Stopped) {
        let _ = self.0.set(why);
    }

    pub(crate) fn get(&self) -> Option<&Stopped> {
        self.0.get()
    }

    /// Refuses once the changes have ended.
    ///
    /// # Errors
    /// The first cause.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        self.0.get().map_or(Ok(()), |stopped| Err(stopped.refusal()))
    }
}

impl Stopped {
    /// Without an error that caused it.
    pub(crate) fn inconsistency(text: &str) -> Self {
        Self::Aborted { text: text.into(), cause: Cause::Inconsistency }
    }

    pub(crate) fn because_of(text: &str, error: &Error) -> Self {
        Self::Aborted { text: text.into(), cause: Cause::of(error) }
    }

    /// The error that later callers get.
    pub(crate) fn refusal(&self) -> Error {
        match self {
            Self::Closed | Self::ShutDown => Error::ShutDown,
            Self::Aborted { text, .. } => Error::TurnedReadOnly(Arc::clone(text)),
        }
    }
}

impl Cause {
    fn of(error: &Error) -> Self {
        match error {
            Error::Io(
                DeviceError::Io { .. } | DeviceError::OutOfRange { .. } | DeviceError::ReadOnly { .. },
            ) => Self::Io,
            Error::Corrupt(corruption) => {
                Self::Corruption { ino: corruption.ino.map(|ino| ino.0), block: corruption.block }
            }
            _ => Self::Other,
        }
    }
}
