//! The filesystems of ours that can be measured, and one that is open for a measurement.

use std::num::NonZeroU32;
use std::sync::Arc;

use undercroft_block::{Device, MemoryDevice};
use undercroft_ext4::Ext4;
use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::FileSystem;
use undercroft_xfs::Xfs;

use crate::outcome::JournalUse;
use crate::{BenchError, Ext4Form, Workload, XfsForm};

/// Room for every measurement; memory is taken for what is written only.
const DEVICE_BYTES: u64 = 64 << 30;

/// A filesystem of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InProcess {
    /// The filesystem in memory.
    Tmpfs,
    /// ext4 on a device in memory.
    Ext4(Ext4Form),
    /// XFS on a device in memory.
    Xfs(XfsForm),
}

/// One that is open. Its journal's counters can be read, if it has one, and it says when it is closed whether all went
/// well.
pub(crate) struct Opened {
    pub(crate) fs: Arc<dyn FileSystem>,
    kind: Kind,
}

enum Kind {
    Tmpfs,
    Ext4(Arc<Ext4>),
    Xfs(Arc<Xfs>),
}

impl InProcess {
    /// In the form that a workload is about: [`InodeAlloc`](Workload::InodeAlloc) about one allocation group, unless more
    /// were asked for.
    pub(crate) fn for_workload(self, workload: Workload) -> Self {
        match self {
            Self::Xfs(form) if workload == Workload::InodeAlloc => {
                Self::Xfs(XfsForm { groups: form.groups.or(Some(NonZeroU32::MIN)), ..form })
            }
            other => other,
        }
    }

    /// The device that it is made on: it is all zero, and nothing else is on it.
    pub(crate) fn device(self) -> Device {
        Arc::new(MemoryDevice::new(DEVICE_BYTES))
    }

    /// Makes a new, empty one.
    pub(crate) fn make_on(self, device: &Device) -> Result<(), BenchError> {
        match self {
            Self::Tmpfs => Ok(()),
            Self::Ext4(form) => form.make_on(device),
            Self::Xfs(form) => form.make_on(device),
        }
    }

    /// Opens what is on the device; the one in memory is a new, empty one.
    pub(crate) fn open_on(self, device: &Device) -> Result<Opened, BenchError> {
        let device = Arc::clone(device);
        match self {
            Self::Tmpfs => match Tmpfs::new(&TmpfsOptions::default()) {
                Ok(tmpfs) => Ok(Opened { fs: tmpfs, kind: Kind::Tmpfs }),
                Err(source) => Err(BenchError::Vfs { what: "open", source }),
            },
            Self::Ext4(form) => Ok(Opened::ext4(form.open_on(device)?)),
            Self::Xfs(form) => {
                let xfs = form.open_on(device)?;
                Ok(Opened { fs: Arc::clone(&xfs) as Arc<dyn FileSystem>, kind: Kind::Xfs(xfs) })
            }
        }
    }

    /// Whether it is still there when it is closed.
    pub(crate) const fn is_on_device(self) -> bool {
        !matches!(self, Self::Tmpfs)
    }
}

impl Opened {
    /// Our ext4, made and opened by the caller.
    pub(crate) fn ext4(ext4: Arc<Ext4>) -> Self {
        Self { fs: Arc::clone(&ext4) as Arc<dyn FileSystem>, kind: Kind::Ext4(ext4) }
    }

    /// What its journal has done so far.
    pub(crate) fn journal_use(&self) -> Option<JournalUse> {
        match &self.kind {
            Kind::Tmpfs => None,
            Kind::Ext4(ext4) => Some(ext4.write_stats().into()),
            Kind::Xfs(xfs) => Some(xfs.write_stats().into()),
        }
    }

    /// Ends its use.
    pub(crate) fn close(self) -> Result<(), BenchError> {
        self.fs.close().map_err(|source| BenchError::Vfs { what: "make everything durable", source })
    }
}
