//! The filesystems of ours that can be measured, and one that is open for a measurement.

use std::sync::Arc;

use undercroft_ext4::Ext4;
use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::FileSystem;

use crate::outcome::JournalUse;
use crate::{BenchError, Ext4Form};

/// A filesystem of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InProcess {
    /// The filesystem in memory.
    Tmpfs,
    /// ext4 on a device in memory.
    Ext4(Ext4Form),
}

/// One that is open. Its journal's counters can be read, if it has one, and it says when it is closed whether all went
/// well.
pub(crate) struct Opened {
    pub(crate) fs: Arc<dyn FileSystem>,
    ext4: Option<Arc<Ext4>>,
}

impl InProcess {
    /// A new, empty one.
    pub(crate) fn open(self) -> Result<Opened, BenchError> {
        match self {
            Self::Tmpfs => match Tmpfs::new(&TmpfsOptions::default()) {
                Ok(tmpfs) => Ok(Opened { fs: tmpfs, ext4: None }),
                Err(source) => Err(BenchError::Vfs { what: "open", source }),
            },
            Self::Ext4(form) => Ok(Opened::ext4(form.open()?)),
        }
    }
}

impl Opened {
    /// Our ext4, made and opened by the caller.
    pub(crate) fn ext4(ext4: Arc<Ext4>) -> Self {
        Self { fs: Arc::clone(&ext4) as Arc<dyn FileSystem>, ext4: Some(ext4) }
    }

    /// What its journal has done so far.
    pub(crate) fn journal_use(&self) -> Option<JournalUse> {
        self.ext4.as_ref().map(|ext4| ext4.write_stats().into())
    }

    /// Ends its use.
    pub(crate) fn close(self) -> Result<(), BenchError> {
        let closed = self.ext4.map_or(Ok(()), |ext4| ext4.close());
        closed.map_err(|source| BenchError::Vfs { what: "make everything durable", source })
    }
}
