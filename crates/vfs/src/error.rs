//! Why an operation on a filesystem did not succeed.
//!
//! Corrupt, unsupported and I/O failure are three answers. Everything else is an ordinary refusal that POSIX
//! has an errno for; the errno itself appears once, in `errno.rs`.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::Ino;

/// Result of a filesystem operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Where a structure on disk is not what it must be, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The structure, in the format's terms: "extent tree node", "directory block".
    pub structure: &'static str,
    /// The inode it belongs to.
    pub ino: Option<Ino>,
    /// The filesystem block it was read from.
    pub block: Option<u64>,
    /// What was found and what was expected.
    pub detail: Cow<'static, str>,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "corrupt {}", self.structure)?;
        if let Some(ino) = self.ino {
            write!(f, " of inode {ino}")?;
        }
        if let Some(block) = self.block {
            write!(f, " in block {block}")?;
        }
        write!(f, ": {}", self.detail)
    }
}

/// A refusal or failure.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such name.
    #[error("no such file or directory")]
    NotFound,
    /// A component of the path, or the object itself, is not a directory.
    #[error("not a directory")]
    NotDirectory,
    /// The object is a directory.
    #[error("is a directory")]
    IsDirectory,
    /// The caller may not.
    #[error("permission denied")]
    PermissionDenied,
    /// The caller may not, whatever the permission bits say: the sticky bit, an immutable file (`EPERM`, where
    /// [`PermissionDenied`](Self::PermissionDenied) is `EACCES`).
    #[error("operation not permitted")]
    NotPermitted,
    /// A name longer than the filesystem's limit, or a path longer than 4095 bytes.
    #[error("name too long")]
    NameTooLong,
    /// More than 40 symbolic links in one path.
    #[error("too many levels of symbolic links")]
    TooManySymlinks,
    /// The call makes no sense for this object or these numbers.
    #[error("invalid argument: {0}")]
    InvalidArgument(&'static str),
    /// No such extended attribute.
    #[error("no such extended attribute")]
    NoAttribute,
    /// The name or attribute is there already.
    #[error("it exists already")]
    Exists,
    /// A directory that has names cannot be removed or replaced.
    #[error("the directory is not empty")]
    NotEmpty,
    /// No free block, no free inode, or no room for an attribute.
    #[error("no space left in the filesystem")]
    NoSpace,
    /// A file with as many names, or a directory with as many directories, as the filesystem can count.
    #[error("too many links")]
    TooManyLinks,
    /// The file would become larger than the filesystem can hold.
    #[error("file too large for the filesystem")]
    FileTooLarge,
    /// The two objects are in different filesystems.
    #[error("the two names are in different filesystems")]
    CrossDevice,
    /// The object cannot be removed or replaced while it is what it is: the root.
    #[error("the object is in use")]
    Busy,
    /// The value of an attribute, or the list of all of a file's, is larger than Linux has them.
    #[error("the attribute's value, or the list of all attributes, is too large")]
    ValueTooLarge,
    /// The filesystem was shut down, and takes nothing until it is mounted again.
    #[error("the filesystem was shut down; unmount it and mount it again")]
    ShutDown,
    /// Seeking for data or holes past the end.
    #[error("no data or hole at or after this offset")]
    NoSuchOffset,
    /// The inode number does not name a live inode.
    #[error("stale file handle")]
    Stale,
    /// The filesystem is in use elsewhere: by which user, and how.
    #[error("the filesystem is in use: {0}; try again when it has been unmounted there")]
    InUse(String),
    /// The filesystem takes no writes.
    #[error("read-only filesystem")]
    ReadOnly,
    /// The filesystem has stopped taking writes after a failure: the first one.
    #[error("the filesystem has become read-only: {0}; unmount it and check it")]
    TurnedReadOnly(Arc<str>),
    /// The content needs a key we do not have.
    #[error("the content is encrypted and no key is loaded")]
    NoKey,
    /// Something the format allows and this program does not do, by name.
    #[error("unsupported: {0}")]
    Unsupported(Cow<'static, str>),
    /// A structure on the disk is corrupt.
    #[error("{0}")]
    Corrupt(Box<Corruption>),
    /// The device failed.
    #[error(transparent)]
    Io(#[from] undercroft_block::Error),
}

impl From<Corruption> for Error {
    fn from(corruption: Corruption) -> Self {
        Self::Corrupt(Box::new(corruption))
    }
}
