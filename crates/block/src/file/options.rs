//! How a file is to be opened.

use crate::Access;

/// Whether other programs are kept from the file while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// An advisory `flock`: exclusive for writing, shared for reading. Keeps out other users of this library,
    /// `udev` and whoever else takes such locks.
    Advisory,
    /// No lock, to look at a file that is in use. Its content may change at any time.
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
}

impl FileOptions {
    /// To be read: through the page cache, with a lock that other readers share.
    #[must_use]
    pub const fn read_only() -> Self {
        Self { access: Access::ReadOnly, direct: false, locking: Locking::Advisory, io_uring: true }
    }

    /// To be read and written: through the page cache, with a lock that keeps everyone else out.
    #[must_use]
    pub const fn read_write() -> Self {
        Self { access: Access::ReadWrite, ..Self::read_only() }
    }
}
