//! Why a filesystem takes no changes any more.

use std::sync::Arc;

use undercroft_vfs::Error;

use crate::superblock::ErrorRecord;

/// The end of all changes. The first cause is kept.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The filesystem was closed, and everything was durable.
    Closed,
    /// The filesystem was shut down; what was not durable is lost.
    ShutDown,
    /// Something went wrong; nothing that is in memory reaches the disk any more.
    Failed {
        /// For people.
        cause: Arc<str>,
        /// For the superblock.
        record: ErrorRecord,
    },
}

impl Ended {
    /// Without an error that caused it.
    pub(super) fn failed(cause: &str) -> Self {
        Self::Failed { cause: cause.into(), record: ErrorRecord::default() }
    }

    pub(super) fn because_of(cause: &str, error: &Error) -> Self {
        Self::Failed { cause: cause.into(), record: ErrorRecord::of(error) }
    }

    /// What whoever wants to change something is told.
    pub(super) fn refusal(&self) -> Error {
        match self {
            Self::Closed | Self::ShutDown => Error::ShutDown,
            Self::Failed { cause, .. } => Error::TurnedReadOnly(Arc::clone(cause)),
        }
    }
}
