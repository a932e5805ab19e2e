//! Exit codes: the one place that says which number stands for what, and which failure gets which number.
//!
//! Scripts branch on these numbers, so they never change their meaning. The table in `--help` and in the manual
//! pages is [`TABLE`], and a test holds it against [`Kind::code`].

use std::process::ExitCode;

use undercroft_bench::BenchError;
use undercroft_ext4::MkfsError;
use undercroft_md as md;
use undercroft_vfs as vfs;

/// Why the program stops short of complete success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The reader of our output has closed it: that is its choice and no failure.
    ClosedPipe,
    /// Some of the work failed, some succeeded.
    Partial,
    /// The command line makes no sense.
    Usage,
    /// The image cannot be opened: not there, not permitted, in use, an unknown partition.
    CannotOpen,
    /// What is in the image is not known, or it uses something this program does not do.
    Unsupported,
    /// The image contradicts itself.
    Corrupt,
    /// The device under the image failed.
    Io,
    /// The path does not lead to a fitting object inside the image.
    Path,
    /// This machine refused: the destination, the mount point, FUSE, standard output.
    Host,
    /// Two trees differ.
    Different,
    /// Two trees could not be compared.
    Trouble,
    /// What a check came to.
    Check(Verdict),
}

/// What a check came to, unless nothing is wrong. The codes are those of e2fsck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Something is wrong.
    Damaged,
    /// It could not be checked.
    NotChecked,
    /// The command line makes no sense.
    Usage,
}

/// The codes as the help shows them.
pub(crate) const TABLE: &str = "\
Exit codes:
  0  done
  1  some of the work failed; each failure is named on standard error
  2  the command line makes no sense
  3  the image cannot be opened: not found, not permitted, in use, no such partition
  4  not a filesystem this program knows, or it uses an unsupported feature
  5  the filesystem is corrupt
  6  the device or image file failed, or the server of a mount ended with an error
  7  no such path inside the image, or not of the kind the command needs
  8  this machine refused: destination, mount point, FUSE or standard output
`undercroft check` has those of e2fsck and `undercroft diff` those of diff, which their own help lists.";

impl Kind {
    /// The number the shell sees.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::ClosedPipe => 0,
            Self::Partial | Self::Different => 1,
            Self::Usage | Self::Trouble => 2,
            Self::CannotOpen => 3,
            Self::Unsupported => 4,
            Self::Corrupt => 5,
            Self::Io => 6,
            Self::Path => 7,
            Self::Host => 8,
            Self::Check(Verdict::Damaged) => 4,
            Self::Check(Verdict::NotChecked) => 8,
            Self::Check(Verdict::Usage) => 16,
        }
    }

    /// The kind behind an exit code of this program.
    pub(crate) fn of_code(code: i32) -> Self {
        let kinds = [
            Self::Partial,
            Self::Usage,
            Self::CannotOpen,
            Self::Unsupported,
            Self::Corrupt,
            Self::Io,
            Self::Path,
        ];
        kinds.into_iter().find(|kind| i32::from(kind.code()) == code).unwrap_or(Self::Host)
    }

    /// The kind of what keeps a measurement from being made.
    pub(crate) const fn of_bench(error: &BenchError) -> Self {
        match error {
            BenchError::UnknownTarget(_)
            | BenchError::OnlyInProcess { .. }
            | BenchError::NoFiles { .. }
            | BenchError::Unfit { .. }
            | BenchError::TooFewInodes { .. } => Self::Usage,
            BenchError::NotYet(_) => Self::Unsupported,
            BenchError::LostNames { .. } => Self::Corrupt,
            BenchError::Directory { .. }
            | BenchError::Vfs { .. }
            | BenchError::Device(_)
            | BenchError::Array { .. }
            | BenchError::NotRebuilt(_)
            | BenchError::MemoryFile(_)
            | BenchError::Mkfs(_)
            | BenchError::Worker { .. }
            | BenchError::WorkerRefused(_)
            | BenchError::WorkerFailed { .. }
            | BenchError::WorkerWords { .. }
            | BenchError::Plot(_) => Self::Host,
        }
    }

    /// The kind of what keeps a filesystem from being made.
    pub(crate) const fn of_mkfs(error: &MkfsError) -> Self {
        match error {
            MkfsError::Present { .. } => Self::Host,
            MkfsError::Refused(_) => Self::Usage,
            MkfsError::Device(_) => Self::Io,
        }
    }

    /// The kind of an array's refusal.
    pub(crate) const fn of_md(error: &md::Error) -> Self {
        match error {
            md::Error::Corrupt { .. } => Self::Corrupt,
            md::Error::Unsupported { .. } | md::Error::NoSuperblock { .. } => Self::Unsupported,
            md::Error::Assembly(_) | md::Error::TooFewMembers(_) => Self::CannotOpen,
            md::Error::Invalid(_) => Self::Usage,
            md::Error::Stopped(_) | md::Error::Device(_) => Self::Io,
        }
    }

    /// The kind of a filesystem's refusal of a change of itself, whose arguments are those of the command line.
    pub(crate) const fn of_change(error: &vfs::Error) -> Self {
        match error {
            vfs::Error::InvalidArgument(_) => Self::Usage,
            error => Self::of(error),
        }
    }

    /// The kind of a filesystem's refusal.
    pub(crate) const fn of(error: &vfs::Error) -> Self {
        match error {
            vfs::Error::NotFound
            | vfs::Error::NotDirectory
            | vfs::Error::IsDirectory
            | vfs::Error::PermissionDenied
            | vfs::Error::NotPermitted
            | vfs::Error::NameTooLong
            | vfs::Error::TooManySymlinks
            | vfs::Error::InvalidArgument(_)
            | vfs::Error::NoAttribute
            | vfs::Error::Exists
            | vfs::Error::NotEmpty
            | vfs::Error::NoSpace
            | vfs::Error::TooManyLinks
            | vfs::Error::FileTooLarge
            | vfs::Error::CrossDevice
            | vfs::Error::Busy
            | vfs::Error::ValueTooLarge
            | vfs::Error::NoSuchOffset
            | vfs::Error::ReadOnly => Self::Path,
            vfs::Error::InUse(_) => Self::CannotOpen,
            vfs::Error::NoKey | vfs::Error::Unsupported(_) => Self::Unsupported,
            // A name in a directory that leads to no live inode is the directory's fault.
            vfs::Error::Corrupt(_) | vfs::Error::Stale => Self::Corrupt,
            vfs::Error::Io(_) | vfs::Error::ShutDown | vfs::Error::TurnedReadOnly(_) => Self::Io,
        }
    }
}

impl From<Kind> for ExitCode {
    fn from(kind: Kind) -> Self {
        Self::from(kind.code())
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, TABLE};

    #[test]
    fn the_table_lists_every_code_once() {
        let kinds = [
            Kind::ClosedPipe,
            Kind::Partial,
            Kind::Usage,
            Kind::CannotOpen,
            Kind::Unsupported,
            Kind::Corrupt,
            Kind::Io,
            Kind::Path,
            Kind::Host,
        ];
        let listed: Vec<u8> =
            TABLE.lines().filter_map(|line| line.trim_start().split("  ").next()?.parse().ok()).collect();
        assert_eq!(listed, kinds.map(Kind::code));
    }
}
