//! What a new filesystem is filled with, as typed: options of `mkfs` of every type.

use std::ffi::OsString;

use clap::{Args, ValueHint};

/// Sources, and what is changed of them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options for filling it")]
pub(crate) struct FromArgs {
    /// Fill it with a directory, a tar archive (a file, also compressed with gzip, xz, zstd or bzip2, or `-` for
    /// standard input) or an image of containers (an OCI layout, an archive of one or of `docker save`, with `:TAG` behind). Several are put one over the other. A new image appears when it is whole, as large as needed unless
    /// --size says
    #[arg(long, value_name = "SOURCE", value_hint = ValueHint::AnyPath, group = "sources")]
    pub(crate) from: Vec<OsString>,

    /// With `--size auto`: so much more space than the sources need, as 10% or 2G
    #[arg(long, value_name = "SPACE", requires = "sources")]
    pub(crate) free: Option<String>,

    /// Leave out what matches this pattern, as tar does: the last names of a path, or all of it. No path begins with a slash
    #[arg(long, value_name = "PATTERN", requires = "sources")]
    pub(crate) exclude: Vec<OsString>,

    /// Do not enter directories on other filesystems, as tar and cp -x; they stay, empty
    #[arg(short = 'x', long, requires = "sources")]
    pub(crate) one_file_system: bool,

    /// Owner of everything, as a number, or OWNER:GROUP
    #[arg(long, value_name = "USER[:GROUP]", requires = "sources")]
    pub(crate) owner: Option<String>,

    /// Group of everything, as a number
    #[arg(long, value_name = "GROUP", requires = "sources")]
    pub(crate) group: Option<String>,

    /// Owners by a file with lines `OLD NEW[:NEWGROUP]`, all of them numbers
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "sources")]
    pub(crate) owner_map: Option<OsString>,

    /// Groups by a file with lines `OLD NEW`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "sources")]
    pub(crate) group_map: Option<OsString>,

    /// Change permissions: an octal number, or changes as chmod takes them
    #[arg(long, value_name = "CHANGES", requires = "sources")]
    pub(crate) mode: Option<String>,

    /// Time of all files: 2026-11-28, 2026-11-28T10:00:00Z or @SECONDS
    #[arg(long, value_name = "DATE", requires = "sources")]
    pub(crate) mtime: Option<String>,

    /// Change only times that are later than --mtime, or than SOURCE_DATE_EPOCH
    #[arg(long, requires = "sources")]
    pub(crate) clamp_mtime: bool,

    /// Make identifiers of this text that are random otherwise: with SOURCE_DATE_EPOCH the same sources give the same image
    #[arg(long, value_name = "TEXT")]
    pub(crate) seed: Option<String>,

    /// Refuse sources from whose compressed form more comes
    #[arg(long, value_name = "SIZE", requires = "sources")]
    pub(crate) max_size: Option<String>,

    /// Which of an image's platforms: linux/arm64, linux/arm/v7. That of this machine unless said, if there are several
    #[arg(long, value_name = "OS/ARCH", requires = "sources")]
    pub(crate) platform: Option<String>,

    /// Threads; one reads and writes in turns. The image is the same
    #[arg(long, value_name = "COUNT", requires = "sources", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
}
