//! The command line of `diff` as typed.

use std::ffi::OsString;

use clap::{Args, ValueEnum, ValueHint};

use super::{ImageArgs, JsonArg};

pub(super) const NOTES: &str = "\
OTHER is an image, a directory of this machine, or a tar archive (as it is or compressed; `-` is standard input). Of an image of \
containers (an OCI layout, an archive of one, or what `docker save` writes) the files are compared, as `mkfs --from` takes them; `dir:` or \
`tar:` in front of its name compares the layout itself. Each line names a path and what differs: `only in` one of the two, kind, content, size, mode, owner, group, mtime, xattrs, target, device or links. Of \
directories that an archive does not name nothing is compared, and a time without a fraction only to the second. An empty lost+found \
is no difference. `--json` has what either side has under `values`, by the words in `differs`.

Ends as diff does: 0 nothing differs, 1 something does, 2 it could not be compared.

Examples:
  undercroft diff disk.img ./tree
  undercroft diff old.img 'new.img?part=2'
  undercroft diff --ignore mtime,owner,group disk.img root.tar.gz";

/// What to compare, and what not.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    pub(crate) image: ImageArgs,

    /// Image, directory or tar archive
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) other: OsString,

    /// Compare everything but these
    #[arg(long, value_enum, value_name = "WHAT,...", value_delimiter = ',')]
    pub(crate) ignore: Vec<Aspect>,

    /// Leave out what this pattern matches, and all below it; may be given several times
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<OsString>,

    /// Do not enter directories on other filesystems, as tar and cp -x; they count as empty
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,

    #[command(flatten)]
    pub(crate) json: JsonArg,
}

/// What of a file is compared, beside its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Aspect {
    /// The bytes of regular files
    Content,
    /// Permission bits
    Mode,
    /// Users
    Owner,
    /// Groups
    Group,
    /// Times of modification
    Mtime,
    /// Extended attributes, with access control lists
    Xattrs,
    /// Which names are hard links of one file
    Links,
}
