//! What a workload needs of the directory and of the files it works in.

use crate::BenchError;

/// One directory, used by all workers at once.
pub(crate) trait Directory: Sync + Sized {
    /// A file that is open for writing.
    type File: Resizable;

    /// Makes an empty file, which must not be there.
    fn create(&self, name: &[u8]) -> Result<(), BenchError>;

    /// A directory in it, which is made if it is not there.
    fn inside(&self, name: &[u8]) -> Result<Self, BenchError>;

    /// Removes a name.
    fn unlink(&self, name: &[u8]) -> Result<(), BenchError>;

    /// Moves a name within the directory.
    fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), BenchError>;

    /// Looks a name up and reads its attributes.
    fn stat(&self, name: &[u8]) -> Result<(), BenchError>;

    /// Reads all entries, `.` and `..` included, and says how many there were.
    fn list(&self) -> Result<u64, BenchError>;

    /// Opens a file for writing, which is made if it is not there.
    fn open(&self, name: &[u8], caching: Caching) -> Result<Self::File, BenchError>;
}

/// Whether writes may stay in memory for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caching {
    /// As the filesystem likes.
    Any,
    /// They go to the device (`O_DIRECT`), where addresses and lengths are multiples of a page.
    None,
}

/// Bytes that can be written to: those of an open file, or of a device.
pub(crate) trait Content {
    /// Writes all of these.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), BenchError>;

    /// Makes what was written durable.
    fn sync(&self) -> Result<(), BenchError>;
}

/// Bytes that can become fewer and more, as those of a file can.
pub(crate) trait Resizable: Content {
    /// Cuts off what is past this size, or adds zeroes up to it.
    fn set_size(&self, size: u64) -> Result<(), BenchError>;
}
