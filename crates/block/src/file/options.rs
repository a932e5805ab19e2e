//! How a file is to be opened.

use super::exclusion::InUse;
use crate::Access;

/// Whether other programs are kept from the file while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// A writer keeps others out and is refused where there are any: other users of this library, QEMU, programs that
    /// lock the file, and the kernel with its mounts, loop devices and devices made of devices. Readers share it.
    Advisory,
    /// No lock, and no refusal because of others, except for a second writer in this process. A reader then finds
    /// content that may change at any time; a writer and the other one destroy what is on the device.
    None,
}

/// What [`FileDevice::open`](crate::FileDevice::open) is to do.
#[derive(Clone, Copy, Debug)]
pub struct FileOptions {
    /// Whether writes are taken.
    pub access: Access,
    /// Whether the page cache is left out (`O_DIRECT`).
    pub direct: bool,
    /// Whether other programs are kept out.
    pub locking: Locking,
    /// Whether batches may use io_uring, where the kernel allows it. Switched off for comparisons.
    pub io_uring: bool,
    /// Called with what else uses a file that is opened all the same: what writes while it is to be read, and
    /// everything if it is to be written without locks.
    pub on_use: fn(&InUse<'_>),
}

impl FileOptions {
    /// To be read: through the page cache, with a lock that other readers share.
    #[must_use]
    pub const fn read_only() -> Self {
        Self {
            access: Access::ReadOnly,
            direct: false,
            locking: Locking::Advisory,
            io_uring: true,
            on_use: |_| {},
        }
    }

    /// To be read and written: through the page cache, with a lock that excludes all other users.
    #[must_use]
    pub const fn read_write() -> Self {
        Self { access: Access::ReadWrite, ..Self::read_only() }
    }
}
