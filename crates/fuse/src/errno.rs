//! What the kernel is told of an error.

use rustix::io::Errno;
use undercroft_vfs::Error;

/// What a system call fails with when the filesystem answers `error`.
pub(crate) fn errno(error: &Error) -> Errno {
    Errno::from_raw_os_error(error.raw_os_error())
}

/// Whether the error says that something is wrong with the disk, rather than with the request.
pub(crate) fn is_fault(error: &Error) -> bool {
    matches!(error, Error::Corrupt(_) | Error::Io(_))
}
