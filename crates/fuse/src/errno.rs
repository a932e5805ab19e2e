//! The one place where an error becomes an errno.
//!
//! No wildcard arm: a new error asks here, at compile time, what its number is.

use rustix::io::Errno;
use undercroft_vfs::Error;

/// What a system call fails with when the filesystem answers `error`.
pub(crate) fn errno(error: &Error) -> Errno {
    match error {
        Error::NotFound => Errno::NOENT,
        Error::NotDirectory => Errno::NOTDIR,
        Error::IsDirectory => Errno::ISDIR,
        Error::PermissionDenied => Errno::ACCESS,
        Error::NotPermitted => Errno::PERM,
        Error::NameTooLong => Errno::NAMETOOLONG,
        Error::TooManySymlinks => Errno::LOOP,
        Error::InvalidArgument(_) => Errno::INVAL,
        Error::NoAttribute => Errno::NODATA,
        Error::Exists => Errno::EXIST,
        Error::NotEmpty => Errno::NOTEMPTY,
        Error::NoSpace => Errno::NOSPC,
        Error::TooManyLinks => Errno::MLINK,
        Error::FileTooLarge => Errno::FBIG,
        Error::CrossDevice => Errno::XDEV,
        Error::Busy => Errno::BUSY,
        Error::ValueTooLarge => Errno::TOOBIG,
        Error::ShutDown => Errno::IO,
        Error::NoSuchOffset => Errno::NXIO,
        Error::Stale => Errno::STALE,
        Error::InUse(_) => Errno::BUSY,
        Error::ReadOnly | Error::TurnedReadOnly(_) => Errno::ROFS,
        Error::NoKey => Errno::NOKEY,
        Error::Unsupported(_) => Errno::OPNOTSUPP,
        Error::Corrupt(_) => Errno::UCLEAN,
        Error::Io(_) => Errno::IO,
    }
}

/// Whether the error says that something is wrong with the disk, rather than with the request.
pub(crate) fn is_fault(error: &Error) -> bool {
    matches!(error, Error::Corrupt(_) | Error::Io(_))
}
