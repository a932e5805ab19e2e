//! What a workload needs of the directory it works in.

use crate::BenchError;

/// One directory, used by all workers at once.
pub(crate) trait Directory: Sync {
    /// Makes an empty file, which must not be there.
    fn create(&self, name: &[u8]) -> Result<(), BenchError>;

    /// Removes a name.
    fn unlink(&self, name: &[u8]) -> Result<(), BenchError>;

    /// Moves a name within the directory.
    fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), BenchError>;

    /// Looks a name up and reads its attributes.
    fn stat(&self, name: &[u8]) -> Result<(), BenchError>;

    /// Reads all entries, `.` and `..` included, and says how many there were.
    fn list(&self) -> Result<u64, BenchError>;
}
