//! The command line as typed: flags, help texts and examples, nothing decided yet.
//!
//! [`crate::plan`] turns this into what is meant; commands see only that. Manual pages and completions are made
//! from the same definitions.

mod bench;
mod common;
pub(crate) mod diff;
mod disk;
pub(crate) mod edit;
mod get;
mod md;
mod mkfs;
mod mkfs_from;
mod mkfs_xfs;
mod mount;
mod program;
mod read;
mod refuse;
pub(crate) mod shell;
mod sources;
mod suite;
mod tune;
mod whole;

use clap::{Parser, Subcommand};

pub(crate) use bench::{BenchArgs, BenchSuite};
pub(crate) use common::{DangerArgs, ImageArgs, JsonArg};
pub(crate) use disk::{AddArgs, Compress, CreateArgs, DiskCommand, DiskFamily, ImageCommand, TableKind};
pub(crate) use get::GetArgs;
pub(crate) use md::{ArrayArgs, MdCommand, MdCreateArgs, NewMemberArgs, WaitArgs};
pub(crate) use mkfs::{MkfsArgs, MkfsFamily, MkfsOther, NewImageFormat, OfMke2fs};
pub(crate) use mkfs_from::FromArgs;
pub(crate) use mkfs_xfs::MkfsXfsArgs;
pub(crate) use mount::MountCommand;
pub(crate) use program::ProgramCommand;
pub(crate) use read::ReadCommand;
pub(crate) use refuse::refuse;
pub(crate) use sources::SourceArgs;
pub(crate) use suite::{SuiteAgainst, SuiteArgs};
pub(crate) use tune::TuneArgs;
pub(crate) use whole::WholeCommand;

use crate::exit;

const IMAGE_HELP: &str = "\
IMAGE is a disk image (raw or qcow2) or a block device. `IMAGE?part=N` names partition N of a partitioned \
disk, and `IMAGE?part=NAME` the one of this name; a disk with exactly one Linux partition needs no hint. A damaged or truncated image is read as far as it is intact. `IMAGE?sb=BLOCK` \
reads it through the copy of an ext superblock at BLOCK, `IMAGE?gpt=backup` through the backup partition table; `info` lists the copies \
that are good. `IMAGE?log=PATH` names the external log of an XFS; a command that writes to the image writes to the log, too. An image is written to by `mkfs`, by `grow`, `resize`, `tune`, `label` and `uuid`, by `disk add`, `disk resize` and `compact`, \
by the edits (`put` to `mknod`), by `shell`, by `mount -o rw`, and by the commands of `md` that change an array (all but `examine` and `status`). All other commands open it read-only and \
change no byte of it: a journal that needs recovery is replayed in memory.";

const JSON_HELP: &str = "\
Names are bytes. With --json, a name that is not UTF-8 is shown with U+FFFD where bytes do not fit, and its \
exact bytes stand in hexadecimal beside it: `name_bytes` beside `name`, `path_bytes` beside `path`, and so on. \
On a terminal, control characters and such bytes are escaped (`\\n`, `\\x1b`, `\\xe9`).";

fn notes() -> String {
    format!("{IMAGE_HELP}\n\n{}\n\n{JSON_HELP}\n\n{}", md::ARRAY_HELP, exit::TABLE)
}

/// Linux filesystems and arrays without the kernel: look inside, copy out, mount, make, change, check
#[derive(Debug, Parser)]
#[command(name = "undercroft", version, propagate_version = true, after_long_help = notes())]
#[command(
    after_help = "Start with `undercroft tour`; `undercroft --help` tells about images, JSON and exit codes."
)]
pub(crate) struct Typed {
    /// When to colour the output
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: When,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum When {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

// The groups stand in the order in which the help lists their commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what is in an image: geometry, state, free space, features
    #[command(
        after_help = "Of a disk with several partitions it lists them, with what each holds and what is free; the filesystem follows \
if only one can be meant.

Examples:
  undercroft info disk.img
  undercroft info '/dev/sdb?part=2'
  undercroft info --json disk.qcow2
  undercroft info /mnt          # a mount: the state now, as for an image that is mounted for writing"
    )]
    Info {
        #[command(flatten)]
        image: ImageArgs,
        #[command(flatten)]
        json: JsonArg,
    },

    #[command(flatten)]
    Read(ReadCommand),

    /// Copy files and whole trees out of an image
    #[command(alias = "extract", override_usage = get::USAGE, after_help = get::NOTES)]
    Get(Box<GetArgs>),

    /// Tell what differs between an image and another image, a directory or a tar archive
    #[command(after_help = diff::NOTES)]
    Diff(diff::DiffArgs),

    #[command(flatten)]
    Edit(edit::EditCommand<edit::EditImageArgs>),

    /// Look into an image and change it with many commands in turn
    #[command(
        after_help = "At a terminal lines are edited, kept for the next time, and completed by Tab. A script is read from a file, \
from -c or from standard input; its first failure ends it, is told with its line, and decides the exit code, and what was done before it stays. \
Words are quoted as in sh. The commands are those that look into an image and change it, with the same options and without IMAGE, and \
cd, pwd, lcd, sync, help and exit. All changes are durable when it has ended without a failure.

Examples:
  undercroft shell disk.img
  undercroft shell disk.img -c 'mkdir -p /srv/www; chown 33:33 /srv/www'
  undercroft shell disk.img < setup.txt"
    )]
    Shell(shell::ShellArgs),

    #[command(flatten)]
    Mount(MountCommand),

    /// Make a filesystem
    #[command(
        after_help = "Options are those of mke2fs, and what is not said is as mke2fs has it; `undercroft mkfs xfs --help` tells \
about XFS. An image that is not all zeroes is overwritten with --force only; of a disk the first and the last MiB are looked at. An image that is \
mounted or otherwise in use is refused, also with --force. The superblock is written last.

Examples:
  undercroft mkfs ext4 disk.img --size 10G
  undercroft mkfs ext4 disk.qcow2 --size 10G
  undercroft mkfs ext4 disk.img --size 1T -L data -O ^has_journal,inline_data -m 0
  undercroft mkfs ext2 'disk.img?part=2' --force -b 1024 -N 5000
  undercroft mkfs xfs disk.img --size 10G
  undercroft mkfs ext4 root.img --from rootfs.tar          # as large as needed
  undercroft mkfs ext4 root.img --from rootfs.tar.zst --from overlay/ --free 20%
  docker export box | undercroft mkfs ext4 box.qcow2 --from -
  SOURCE_DATE_EPOCH=1700000000 undercroft mkfs ext4 root.img -d tree --owner 0:0 --seed one    # the same bytes every time"
    )]
    Mkfs(Box<MkfsArgs>),

    #[command(flatten)]
    Disk(DiskFamily),

    #[command(flatten)]
    Whole(WholeCommand),

    /// Make, look at, mend and check arrays of Linux software RAID (md)
    #[command(after_help = md::notes())]
    Md {
        /// Print JSON; it may stand before the subcommand or behind it
        #[arg(long, hide = true)]
        json: bool,

        #[command(subcommand)]
        command: MdCommand,
    },

    /// Measure a filesystem: one of ours in memory, or whatever is mounted somewhere
    #[command(after_help = bench::notes())]
    Bench(BenchArgs),

    #[command(flatten)]
    Program(ProgramCommand),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definitions_agree_with_each_other() {
        super::Typed::command().debug_assert();
    }
}
