//! How sources of files are read and what is changed of them, as typed: options of `mkfs` of every type and of `disk`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

/// Which files of sources are taken, and with what owners, permissions and times.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options for filling it")]
pub(crate) struct SourceArgs {
    /// Leave out what matches this pattern, as tar does: the last names of a path, or all of it. No path begins with a slash
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<OsString>,

    /// Do not enter directories on other filesystems, as tar and cp -x; they stay, empty
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,

    /// Owner of everything, as a number, or OWNER:GROUP
    #[arg(long, value_name = "USER[:GROUP]")]
    pub(crate) owner: Option<String>,

    /// Group of everything, as a number
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,

    /// Owners by a file with lines `OLD NEW[:NEWGROUP]`, all of them numbers
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) owner_map: Option<OsString>,

    /// Groups by a file with lines `OLD NEW`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) group_map: Option<OsString>,

    /// Change permissions: an octal number, or changes as chmod takes them
    #[arg(long, value_name = "CHANGES")]
    pub(crate) mode: Option<String>,

    /// Time of all files: 2026-11-28, 2026-11-28T10:00:00Z or @SECONDS
    #[arg(long, value_name = "DATE")]
    pub(crate) mtime: Option<String>,

    /// Change only times that are later than --mtime, or than SOURCE_DATE_EPOCH
    #[arg(long)]
    pub(crate) clamp_mtime: bool,

    /// Refuse sources from whose compressed form more comes
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_size: Option<String>,

    /// Which of an image's platforms: linux/arm64, linux/arm/v7. That of this machine unless said, if there are several
    #[arg(long, value_name = "OS/ARCH")]
    pub(crate) platform: Option<String>,
}
