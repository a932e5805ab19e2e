//! The command line of `mkfs xfs` as typed.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use super::mkfs::NewImageFormat;
use super::{DangerArgs, JsonArg};

/// An XFS to be made, with the options of mkfs.xfs.
#[derive(Debug, Args)]
pub(crate) struct MkfsXfsArgs {
    /// Disk image or block device; `IMAGE?part=N` for a partition, `md:MEMBER,...` for an array. A file that is not
    /// there is made
    #[arg(value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,

    /// Size of the filesystem: 10G, 512M, or a number of bytes; by default all of an existing image. A raw image that
    /// is smaller is made larger
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<String>,

    /// Format of an image file that is made; qcow2 if its name ends in .qcow2, otherwise raw
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<NewImageFormat>,

    /// Blocks: size=BYTES, 1024 to 65536
    #[arg(short = 'b', value_name = "OPTIONS")]
    pub(crate) block: Vec<String>,

    /// Data and groups: agcount=N, agsize=SIZE, size=SIZE, su=SIZE,sw=N, sunit=N,swidth=N (in units of 512 bytes), noalign,
    /// sectsize=BYTES
    #[arg(short = 'd', value_name = "OPTIONS")]
    pub(crate) data: Vec<String>,

    /// Inodes: size=BYTES, perblock=N, maxpct=PERCENT, sparse=0|1, nrext64=0|1
    #[arg(short = 'i', value_name = "OPTIONS")]
    pub(crate) inodes: Vec<String>,

    /// Log: size=SIZE, agnum=N, su=SIZE, sunit=N (in units of 512 bytes)
    #[arg(short = 'l', value_name = "OPTIONS")]
    pub(crate) log: Vec<String>,

    /// Metadata: finobt=0|1, inobtcount=0|1, rmapbt=0|1, reflink=0|1, bigtime=0|1, uuid=UUID
    #[arg(short = 'm', value_name = "OPTIONS")]
    pub(crate) metadata: Vec<String>,

    /// Directories: size=BYTES
    #[arg(short = 'n', value_name = "OPTIONS")]
    pub(crate) names: Vec<String>,

    /// Sectors: size=BYTES, 512 to 32768
    #[arg(short = 's', value_name = "OPTIONS")]
    pub(crate) sector: Vec<String>,

    /// Label, at most 12 bytes
    #[arg(short = 'L', value_name = "LABEL")]
    pub(crate) label: Option<OsString>,

    /// Refused by name.
    #[arg(short = 'r', hide = true)]
    pub(crate) realtime: Vec<String>,

    /// Refused by name.
    #[arg(short = 'p', hide = true)]
    pub(crate) prototype: Option<String>,

    /// Refused by name.
    #[arg(short = 'c', hide = true)]
    pub(crate) configuration: Option<String>,

    /// Make what is not supported too: less than 300 MiB, a log of less than 64 MiB, a single group
    #[arg(long, alias = "unsupported")]
    pub(crate) small: bool,

    /// Overwrite what is on the image; not what is in use
    #[arg(short = 'f', long)]
    pub(crate) force: bool,

    /// Do not discard what is on the image before
    #[arg(short = 'K')]
    pub(crate) keep: bool,

    /// Make nothing, and print what would be made
    #[arg(short = 'N', conflicts_with = "quiet")]
    pub(crate) dry_run: bool,

    /// Print nothing but failures
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) danger: DangerArgs,

    #[command(flatten)]
    pub(crate) json: JsonArg,
}
