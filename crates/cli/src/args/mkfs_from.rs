//! What a new filesystem is filled with, as typed: options of `mkfs` of every type.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use super::SourceArgs;

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

    #[command(flatten)]
    pub(crate) sources: SourceArgs,

    /// Make identifiers of this text that are random otherwise: with SOURCE_DATE_EPOCH the same sources give the same image
    #[arg(long, value_name = "TEXT")]
    pub(crate) seed: Option<String>,

    /// Threads; one reads and writes in turns. The image is the same
    #[arg(long, value_name = "COUNT", requires = "sources", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: Option<u16>,
}
