//! The one place where an error becomes an errno, and a [`std::io::Error`].
//!
//! No wildcard arm: a new error does not compile until it has a number here.

use std::io;

use rustix::io::Errno;

use crate::Error;

impl Error {
    /// The errno that a system call fails with when the filesystem answers this.
    #[must_use]
    pub const fn raw_os_error(&self) -> i32 {
        self.errno().raw_os_error()
    }

    const fn errno(&self) -> Errno {
        match self {
            Self::NotFound => Errno::NOENT,
            Self::NotDirectory => Errno::NOTDIR,
            Self::IsDirectory => Errno::ISDIR,
            Self::PermissionDenied => Errno::ACCESS,
            Self::NotPermitted => Errno::PERM,
            Self::NameTooLong => Errno::NAMETOOLONG,
            Self::TooManySymlinks => Errno::LOOP,
            Self::InvalidArgument(_) => Errno::INVAL,
            Self::NoAttribute => Errno::NODATA,
            Self::Exists => Errno::EXIST,
            Self::NotEmpty => Errno::NOTEMPTY,
            Self::NoSpace => Errno::NOSPC,
            Self::TooManyLinks => Errno::MLINK,
            Self::FileTooLarge => Errno::FBIG,
            Self::CrossDevice => Errno::XDEV,
            Self::Busy => Errno::BUSY,
            Self::ValueTooLarge => Errno::TOOBIG,
            Self::ShutDown => Errno::IO,
            Self::NoSuchOffset => Errno::NXIO,
            Self::Stale => Errno::STALE,
            Self::InUse(_) => Errno::BUSY,
            Self::ReadOnly | Self::TurnedReadOnly(_) => Errno::ROFS,
            Self::NoKey => Errno::NOKEY,
            Self::Unsupported(_) => Errno::OPNOTSUPP,
            Self::Corrupt(_) => Errno::UCLEAN,
            Self::Io(_) => Errno::IO,
        }
    }

    /// Whether the errno says all that this error does.
    const fn is_plain(&self) -> bool {
        match self {
            Self::NotFound
            | Self::NotDirectory
            | Self::IsDirectory
            | Self::PermissionDenied
            | Self::NotPermitted
            | Self::NameTooLong
            | Self::TooManySymlinks
            | Self::NoAttribute
            | Self::Exists
            | Self::NotEmpty
            | Self::NoSpace
            | Self::TooManyLinks
            | Self::FileTooLarge
            | Self::CrossDevice
            | Self::Busy
            | Self::ValueTooLarge
            | Self::NoSuchOffset
            | Self::Stale
            | Self::ReadOnly
            | Self::NoKey => true,
            Self::InvalidArgument(_)
            | Self::ShutDown
            | Self::InUse(_)
            | Self::TurnedReadOnly(_)
            | Self::Unsupported(_)
            | Self::Corrupt(_)
            | Self::Io(_) => false,
        }
    }
}

/// An ordinary refusal becomes its errno, as from a system call. What says more than its errno (corruption, a failed
/// device, what is unsupported) keeps its sentence: it has the errno's [kind](io::Error::kind) and holds the [`Error`],
/// whose number is [`Error::raw_os_error`].
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let plain = Self::from(error.errno());
        if error.is_plain() { plain } else { Self::new(plain.kind(), error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Corruption;

    #[test]
    fn an_io_error_has_the_errno_or_the_sentence() {
        let plain = io::Error::from(Error::NotEmpty);
        assert_eq!(plain.raw_os_error(), Some(Errno::NOTEMPTY.raw_os_error()));
        assert_eq!(plain.kind(), io::ErrorKind::DirectoryNotEmpty);

        let corruption = Corruption { structure: "inode", ino: None, block: Some(7), detail: "no".into() };
        let told = io::Error::from(Error::from(corruption));
        assert_eq!(told.to_string(), "corrupt inode in block 7: no");
        let inner = told.into_inner().unwrap().downcast::<Error>().unwrap();
        assert_eq!(inner.raw_os_error(), Errno::UCLEAN.raw_os_error());
        assert_eq!(
            io::Error::from(Error::TurnedReadOnly("no".into())).kind(),
            io::ErrorKind::ReadOnlyFilesystem
        );
    }
}
