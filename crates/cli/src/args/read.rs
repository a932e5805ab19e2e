//! The commands that look into an image, as typed. In `shell` the image is open, and not named.

use std::ffi::OsString;

use clap::{ArgAction, Args, Subcommand};

use super::{ImageArgs, JsonArg};

#[derive(Debug, Subcommand)]
pub(crate) enum ReadCommand<I: Args = ImageArgs> {
    /// List directories
    #[command(
        disable_help_flag = true,
        after_help = "Owners are numbers, since the names belong to the image's own /etc/passwd. Times are UTC.

Examples:
  undercroft ls disk.img
  undercroft ls -lah disk.img /etc
  undercroft ls -R --json disk.img /home"
    )]
    Ls {
        #[command(flatten)]
        image: I,
        /// Paths inside the image; the root unless said
        #[arg(value_name = "PATH")]
        paths: Vec<OsString>,
        /// Show mode, links, owner, group, size and time of modification
        #[arg(short, long)]
        long: bool,
        /// With -l, show sizes as 1.5M
        #[arg(short = 'h', long)]
        human_readable: bool,
        /// List directories themselves, not what is in them
        #[arg(short, long)]
        directory: bool,
        /// One name a line (the default where the output is no terminal)
        #[arg(short = '1')]
        one: bool,
        /// Show names that begin with a dot
        #[arg(short, long)]
        all: bool,
        /// Show inode numbers
        #[arg(short, long)]
        inode: bool,
        /// List subdirectories too
        #[arg(short = 'R', long)]
        recursive: bool,
        #[command(flatten)]
        json: JsonArg,
        /// Print help
        #[arg(long, action = ArgAction::Help)]
        help: Option<bool>,
    },

    /// Draw a directory and everything below it
    #[command(after_help = "Examples:
  undercroft tree disk.img
  undercroft tree -L 2 disk.img /usr")]
    Tree {
        #[command(flatten)]
        image: I,
        /// Path inside the image; the root unless said
        path: Option<OsString>,
        /// Go down this many levels only
        #[arg(short = 'L', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        level: Option<u32>,
        /// Show names that begin with a dot
        #[arg(short, long)]
        all: bool,
        #[command(flatten)]
        json: JsonArg,
    },

    /// Show everything about files
    #[command(
        after_help = "Shows times to the nanosecond, flags as lsattr does, extended attributes, and which parts hold data; in XFS also \
allocation group, chunk, flags of its own, and the form and extents of both forks. JSON is one object for one path, and an array for several.

Examples:
  undercroft stat disk.img /etc/passwd
  undercroft stat -L --json disk.img /bin/sh"
    )]
    Stat {
        #[command(flatten)]
        image: I,
        /// Paths inside the image
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<OsString>,
        /// Follow a symbolic link
        #[arg(short = 'L', long)]
        dereference: bool,
        #[command(flatten)]
        json: JsonArg,
    },

    /// Find files by name, kind, size, time, owner and more
    #[command(
        after_help = "The words behind IMAGE are find's: first paths, then an expression of -name, -iname, -path, -type, -size, -empty, \
-newer, -newermt, -mtime, -mmin, -user, -group, -uid, -gid, -perm, -links, -inum, -xattr PATTERN, -maxdepth, -mindepth, -prune, -print and \
-print0, joined by -a, -o, ! and parentheses. Names of users and groups are looked up in the image. Options of this program stand before \
IMAGE.

Examples:
  undercroft find disk.img /etc -name '*.conf' -newermt 2024-01-01
  undercroft find disk.img -type f -perm /6000
  undercroft find --json disk.img /home -user anna -size +100M
  undercroft find disk.img / -xattr security.capability -print0 | xargs -0 undercroft stat disk.img"
    )]
    Find {
        #[command(flatten)]
        image: I,
        #[command(flatten)]
        json: JsonArg,
        /// Paths inside the image, and an expression
        #[arg(value_name = "PATH|EXPRESSION", trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },

    /// Write files to standard output
    #[command(after_help = "Examples:
  undercroft cat disk.img /etc/os-release
  undercroft cat backup.img /var/log/syslog.1 /var/log/syslog | grep error")]
    Cat {
        #[command(flatten)]
        image: I,
        /// Paths inside the image
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<OsString>,
    },
}
