//! Why a mount or an unmount did not succeed: one sentence each, with the place.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::OptionError;

/// Why a filesystem could not be mounted or served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The options contradict each other or ask for what cannot be had.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// The mount point cannot be used.
    #[error("cannot mount on {}: {cause}", dir.display())]
    Point {
        /// The mount point.
        dir: PathBuf,
        /// What stands against it.
        cause: io::Error,
    },
    /// The helper that mounts for ordinary users refused.
    #[error("cannot mount on {}: {message}", dir.display())]
    Helper {
        /// The mount point.
        dir: PathBuf,
        /// The helper's own words.
        message: String,
    },
    /// The filesystem has no usable root directory.
    #[error("cannot read the root directory: {0}")]
    Root(#[source] undercroft_vfs::Error),
    /// A part of the server could not be started.
    #[error("cannot {what}: {cause}")]
    Start {
        /// What was to be done.
        what: &'static str,
        /// What stands against it.
        cause: io::Error,
    },
    /// The connection to the kernel failed.
    #[error("serving {} failed: {cause}", dir.display())]
    Serve {
        /// The mount point.
        dir: PathBuf,
        /// What the kernel answered.
        cause: io::Error,
    },
    /// The mount is gone, and not everything that was written to it is durable.
    #[error("{} is unmounted, but not everything that was written is on the disk: {cause}", dir.display())]
    Sync {
        /// The mount point.
        dir: PathBuf,
        /// What failed.
        cause: undercroft_vfs::Error,
    },
    /// The mount is gone and its filesystem is closed, and what lies below it could not be closed.
    #[error("{} is unmounted, but what it lies on was not closed well: {cause}", dir.display())]
    Below {
        /// The mount point.
        dir: PathBuf,
        /// What failed.
        cause: Box<dyn Error + Send + Sync>,
    },
    /// The mount is gone, and the server had a defect: an operation panicked, and was refused with an I/O error.
    #[error("{} is unmounted, and the program has a defect, please report it: {what}", dir.display())]
    Defect {
        /// The mount point.
        dir: PathBuf,
        /// The first panic.
        what: String,
    },
}

/// Why not everything that was written through a mount is known to be durable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The directory is in no mount of ours.
    #[error("{} is not in a mount of undercroft's", .0.display())]
    NotOurs(PathBuf),
    /// Something failed, or the filesystem takes no changes any more.
    #[error("not everything in {} could be made durable: {cause}", dir.display())]
    Failed {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        cause: io::Error,
    },
    /// Everything is durable but, perhaps, what processes have written to files that they have still open.
    #[error(
        "everything in {} is durable, except perhaps for files that are open and that this user may not look at: \
         try again as root",
        dir.display()
    )]
    Unseen {
        /// The directory.
        dir: PathBuf,
    },
}

/// Why a filesystem could not be unmounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnmountError {
    /// Nothing is mounted there.
    #[error("nothing is mounted on {}", .0.display())]
    NotMounted(PathBuf),
    /// Something else is mounted there.
    #[error("{} is a mount of type {fs_type}, not one of undercroft's", dir.display())]
    Foreign {
        /// The mount point.
        dir: PathBuf,
        /// What is mounted there.
        fs_type: String,
    },
    /// Files are open, or a process has its working directory inside.
    #[error("{} is in use: close its files and leave its directories, then try again", .0.display())]
    Busy(PathBuf),
    /// The kernel or the helper refused.
    #[error("cannot unmount {}: {cause}", dir.display())]
    Refused {
        /// The mount point.
        dir: PathBuf,
        /// The reason.
        cause: io::Error,
    },
    /// The mount is gone, and its server still holds on to the image.
    #[error("{} is unmounted, but its server has not ended", .0.display())]
    ServerLingers(PathBuf),
    /// The mount is gone from this mount namespace, and its server goes on for another one that has it too.
    #[error(
        "{} is unmounted here, and still mounted in the mount namespace of process {process}, so that its image stays open",
        dir.display()
    )]
    MountedElsewhere {
        /// The mount point.
        dir: PathBuf,
        /// A process in that namespace.
        process: u32,
    },
    /// The mount is gone, and its server has ended with an error.
    #[error("{0}")]
    ServerFailed(String),
    /// The mount is gone, and its server has died before it could say that everything is durable.
    #[error("{} is unmounted, but its server was killed: check what was written last", .0.display())]
    ServerDied(PathBuf),
    /// The mount is gone, and its server cannot be seen from here: it runs in another container, or for another user.
    #[error(
        "{} is unmounted, but its server cannot be seen from here: what was written last may not be on the disk yet",
        .0.display()
    )]
    ServerUnseen(PathBuf),
    /// The mount is still there: its server takes no requests.
    #[error("cannot unmount {}: its server does not answer; `umount -l` takes the mount away", .0.display())]
    Silent(PathBuf),
    /// The mount is gone, and another user's server with it, which took no requests.
    #[error("{} is unmounted; its server did not answer, so its connection was aborted", .0.display())]
    CutOff(PathBuf),
}

impl UnmountError {
    /// Why a mount could not be taken away.
    pub(crate) fn of(dir: PathBuf, cause: io::Error) -> Self {
        match Errno::from_io_error(&cause) {
            Some(Errno::BUSY) => Self::Busy(dir),
            Some(Errno::INVAL) => Self::NotMounted(dir),
            _ => Self::Refused { dir, cause },
        }
    }
}
