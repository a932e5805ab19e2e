//! `shell` as typed: the command itself, and the lines that it is given.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueHint};

use super::edit::{EditCommand, OpenImage};
use super::{DangerArgs, GetArgs, ReadCommand};

/// What opens an image for many commands.
#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    /// Disk image or block device; `IMAGE?part=N` for a partition, `md:MEMBER,...` for an array
    #[arg(value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,

    /// A file with commands; standard input unless said
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) script: Option<PathBuf>,

    /// Do these commands, separated by semicolons or line ends
    #[arg(short, long, value_name = "COMMANDS", conflicts_with = "script")]
    pub(crate) command: Option<OsString>,

    /// Open the image for looking only
    #[arg(short, long)]
    pub(crate) read_only: bool,

    #[command(flatten)]
    pub(crate) danger: DangerArgs,
}

/// A line of `shell`.
#[derive(Debug, Parser)]
#[command(
    name = "",
    no_binary_name = true,
    help_template = "{subcommands}",
    subcommand_help_heading = "Commands"
)]
pub(crate) struct ShellLine {
    #[command(subcommand)]
    pub(crate) command: ShellCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ShellCommand {
    #[command(flatten)]
    Read(ReadCommand<OpenImage>),

    /// Copy files and whole trees out of the image
    Get(Box<GetArgs<OpenImage>>),

    #[command(flatten)]
    Edit(EditCommand<OpenImage>),

    /// Change the directory in the image at which paths begin
    Cd {
        /// Path inside the image
        #[arg(default_value = "/")]
        path: OsString,
    },

    /// Show the directory in the image at which paths begin
    Pwd,

    /// Change the directory of this machine at which paths begin
    Lcd {
        /// Directory
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
    },

    /// Make all changes durable
    Sync,

    /// Make all changes durable, and end
    #[command(alias = "quit")]
    Exit,
}
