//! The command line of `get` as typed.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use super::ImageArgs;

pub(super) const USAGE: &str = "\
undercroft get [OPTIONS] <IMAGE> <PATH>... <DEST>
       undercroft get [OPTIONS] --glob <PATTERN> <IMAGE> [PATH]... <DEST>
       undercroft get [OPTIONS] --tar <IMAGE> <PATH>...";

pub(super) const NOTES: &str = "\
Keeps modes, times to the nanosecond, extended attributes, ACLs, hard links, symbolic links, fifos, sockets and holes; \
owners too when run as root. Nothing that exists is ever written over unless `--overwrite` or `--update` is given, and no \
name or link in the image can lead outside DEST.

As with cp, one PATH becomes DEST, or is put into DEST under its own name if that is a directory; several, and what \
`--glob` finds, are put into DEST, which must be a directory. The root of an image is put into DEST itself, which must \
then be empty. DEST may be `-`, for standard output, if PATH is a file.

With `--overwrite` and `--update` directories that are there are filled up and get the metadata of the original. Any other \
name is replaced in one step by the complete copy; a directory is never replaced by what is none, nor the other way round.

Patterns have `*`, `?` and `[...]`. Those of `--glob` are paths from the root on, as the shell expands them, with `**` for \
any number of directories. Those of `--exclude` are as tar's: `*.o` or `cache/tmp` anywhere, `/var/*` from the root on, \
and `*` matches `/` too.

What lends rights is left out of a copy and counted: set-user-ID and set-group-ID modes, device nodes, and attributes \
named security.* and trusted.*. An image that you trust, copied as root to be a system's tree, keeps them with \
`--special`. An archive holds them unless `--no-special` is given.

A file gets its name when it is complete. A copy that was interrupted goes on with the same command and `--resume`: \
what is there already keeps its content and gets the metadata that this run keeps. DEST is then the copy of the directory \
itself, or holds it under the directory's name.

Examples:
  undercroft get disk.img /home/anna ./anna
  undercroft get disk.img / ./everything
  undercroft get disk.img /etc/passwd /etc/group ./some
  undercroft get --glob 'var/log/**/*.log' disk.img ./logs
  undercroft get --exclude '*.o' --update disk.img /src ./copy
  undercroft get disk.img /etc/os-release -
  undercroft get --resume disk.img / ./everything
  undercroft get --special disk.img / /srv/container/root
  undercroft get --tar disk.img / | zstd > everything.tar.zst";

/// What to copy, and where to.
#[derive(Debug, Args)]
pub(crate) struct GetArgs<I: Args = ImageArgs> {
    #[command(flatten)]
    pub(crate) image: I,

    /// Paths inside the image, and behind them where to put them on this machine
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<OsString>,

    /// Copy what this pattern matches; may be given several times
    #[arg(long = "glob", value_name = "PATTERN")]
    pub(crate) globs: Vec<OsString>,

    /// Leave out what this pattern matches, and all below it; may be given several times
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<OsString>,

    /// Write a tar archive to standard output instead
    #[arg(long)]
    pub(crate) tar: bool,

    /// Replace files that exist
    #[arg(long, conflicts_with_all = ["tar", "update", "resume"])]
    pub(crate) overwrite: bool,

    /// Replace files that are older than those in the image, and leave all others as they are
    #[arg(short, long, conflicts_with_all = ["tar", "resume"])]
    pub(crate) update: bool,

    /// Show each name when its copy begins: on standard error if standard output has something else
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Keep set-user-ID and set-group-ID modes, device nodes, and security.* and trusted.* attributes
    #[arg(long, overrides_with = "no_special")]
    pub(crate) special: bool,

    /// Leave these out (the default, except for an archive)
    #[arg(long, overrides_with = "special")]
    pub(crate) no_special: bool,

    /// Go on with a copy that was interrupted
    #[arg(long, conflicts_with = "tar")]
    pub(crate) resume: bool,

    /// Print a JSON summary of what was copied
    #[arg(long, conflicts_with = "tar")]
    pub(crate) json: bool,

    /// As for cp, and without effect: a copy is of whole trees and keeps what can be kept
    #[arg(short, long, visible_short_aliases = ['r', 'R', 'p'])]
    pub(crate) archive: bool,
}
