//! Arguments that many commands share.

use std::ffi::OsString;

use clap::{Args, ValueHint};

/// What every command that opens an image takes.
#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    /// Disk image or block device; `IMAGE?part=N` for a partition, `md:MEMBER,...` for an array
    #[arg(value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,

    /// Read past the page cache of this machine (O_DIRECT)
    #[arg(long)]
    pub(crate) direct: bool,

    /// Read an image that another program has locked, and take no lock; what is read may change meanwhile
    #[arg(long)]
    pub(crate) no_lock: bool,

    /// Open the backing files that a qcow2 image names; only for images you trust
    #[arg(long)]
    pub(crate) allow_backing: bool,
}

/// For commands that write.
#[derive(Debug, Args)]
pub(crate) struct DangerArgs {
    /// Write although another program or the kernel is using it, which may destroy everything on it
    #[arg(long)]
    pub(crate) write_while_in_use: bool,
}

/// For commands that print values.
#[derive(Debug, Args)]
pub(crate) struct JsonArg {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
