//! The command line as typed: flags, help texts and examples, nothing decided yet.
//!
//! [`crate::plan`] turns this into what is meant; commands see only that. Manual pages and completions are made
//! from the same definitions.

use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use undercroft_bench::Workload;

use crate::exit;

const IMAGE_HELP: &str = "\
IMAGE is a disk image (raw or qcow2) or a block device. `IMAGE?part=N` names partition N of a partitioned \
disk; a disk with exactly one Linux partition needs no hint. Images are opened read-only and never written: a \
journal that needs recovery is replayed in memory.";

const JSON_HELP: &str = "\
Names are bytes. With --json, a name that is not UTF-8 is shown with U+FFFD where bytes do not fit, and its \
exact bytes stand in hexadecimal beside it: `name_bytes` beside `name`, `path_bytes` beside `path`, and so on. \
On a terminal, control characters and such bytes are escaped (`\\n`, `\\x1b`, `\\xe9`).";

fn notes() -> String {
    format!("{IMAGE_HELP}\n\n{JSON_HELP}\n\n{}", exit::TABLE)
}

/// Open Linux filesystems without the kernel: look inside, copy out, mount
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

/// What every command that opens an image takes.
#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    /// Disk image or block device; `IMAGE?part=N` for a partition
    #[arg(value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,

    /// Read past the page cache of this machine (O_DIRECT)
    #[arg(long)]
    pub(crate) direct: bool,

    /// Open an image that another program holds locked
    #[arg(long)]
    pub(crate) no_lock: bool,

    /// Open the backing files that a qcow2 image names; only for images you trust
    #[arg(long)]
    pub(crate) allow_backing: bool,
}

/// For commands that print values.
#[derive(Debug, Args)]
pub(crate) struct JsonArg {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What and how to measure.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What the workers do
    #[arg(value_parser = PossibleValuesParser::new(Workload::ALL.map(Workload::name))
        .try_map(|typed| typed.parse::<Workload>()))]
    pub(crate) workload: Workload,

    /// What to measure
    #[arg(long, value_name = "TARGET")]
    pub(crate) on: OsString,

    /// Workers; as many as there are processors unless said
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroU32>,

    /// Operations of each worker; about a second's worth unless said
    #[arg(long, value_name = "N")]
    pub(crate) ops: Option<NonZeroU64>,

    /// Give each directory of the --on target one lock, as Linux does: the same as `tmpfs:plain`
    #[arg(long)]
    pub(crate) plain: bool,

    /// Count what happens at locks, and report it; costs time, and only in process
    #[arg(long)]
    pub(crate) locks: bool,

    #[command(flatten)]
    pub(crate) json: JsonArg,

    /// Measure this too, in turn, and compare
    #[arg(long, value_name = "TARGET")]
    pub(crate) compare: Option<OsString>,

    /// Measure so often, and show medians; 5 with --compare unless said, 3 with --plot
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<NonZeroU32>,

    /// Measure with 1 worker, 2, and so on, and draw throughput into this SVG file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) plot: Option<PathBuf>,

    /// Set by the parent of a worker process: which of the workers this is
    #[arg(long, hide = true, value_name = "INDEX")]
    pub(crate) worker: Option<u32>,
}

const TARGETS: &str = "\
TARGET is one of
  tmpfs:       the filesystem in memory, in this process; workers are threads
  tmpfs:plain  the same with one lock for each directory
  dir:PATH     whatever is mounted at PATH, by system calls; workers are processes,
               in a directory undercroft-bench-PID that is removed afterwards";

const BENCH_EXAMPLES: &str = "\
The time runs from the first worker's start to the last one's end, after a warm-up. Processor time and context \
switches are the workers'. A rename's operations a second are renames a second.

Examples:
  undercroft bench create-unlink --on tmpfs:
  undercroft bench create-unlink --on tmpfs: --compare dir:/dev/shm
  undercroft bench rename --on tmpfs: --compare tmpfs:plain --rounds 9
  undercroft bench create-unlink --on tmpfs: --plain --locks
  undercroft bench create-many --on dir:/mnt --ops 200000 --json
  undercroft bench rename --on tmpfs: --threads 16 --plot rename.svg";

fn bench_notes() -> String {
    let workloads = Workload::ALL.map(|workload| {
        let operation = workload.operation().trim_start_matches("one operation ");
        format!("  {:<13}  {operation}", workload.name())
    });
    let workloads = workloads.join("\n");
    format!(
        "{TARGETS}\n\nWorkloads, all workers in one directory; each operation of\n{workloads}\n\n{BENCH_EXAMPLES}"
    )
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what is in an image: geometry, state, free space, features
    #[command(after_help = "Examples:
  undercroft info disk.img
  undercroft info '/dev/sdb?part=2'
  undercroft info --json disk.qcow2")]
    Info {
        #[command(flatten)]
        image: ImageArgs,
        #[command(flatten)]
        json: JsonArg,
    },

    /// List a directory
    #[command(
        after_help = "Owners are numbers, since the names belong to the image's own /etc/passwd. Times are UTC.

Examples:
  undercroft ls disk.img
  undercroft ls -la disk.img /etc
  undercroft ls -R --json disk.img /home"
    )]
    Ls {
        #[command(flatten)]
        image: ImageArgs,
        /// Path inside the image
        #[arg(default_value = "/")]
        path: OsString,
        /// Show mode, links, owner, group, size and time of modification
        #[arg(short, long)]
        long: bool,
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
    },

    /// Draw a directory and everything below it
    #[command(after_help = "Examples:
  undercroft tree disk.img
  undercroft tree -L 2 disk.img /usr")]
    Tree {
        #[command(flatten)]
        image: ImageArgs,
        /// Path inside the image
        #[arg(default_value = "/")]
        path: OsString,
        /// Go down this many levels only
        #[arg(short = 'L', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        level: Option<u32>,
        /// Show names that begin with a dot
        #[arg(short, long)]
        all: bool,
        #[command(flatten)]
        json: JsonArg,
    },

    /// Show everything about one file
    #[command(
        after_help = "Shows times to the nanosecond, flags as lsattr does, extended attributes, and which parts hold data.

Examples:
  undercroft stat disk.img /etc/passwd
  undercroft stat -L --json disk.img /bin/sh"
    )]
    Stat {
        #[command(flatten)]
        image: ImageArgs,
        /// Path inside the image
        path: OsString,
        /// Follow a symbolic link
        #[arg(short = 'L', long)]
        dereference: bool,
        #[command(flatten)]
        json: JsonArg,
    },

    /// Write files to standard output
    #[command(after_help = "Examples:
  undercroft cat disk.img /etc/os-release
  undercroft cat backup.img /var/log/syslog.1 /var/log/syslog | grep error")]
    Cat {
        #[command(flatten)]
        image: ImageArgs,
        /// Paths inside the image
        #[arg(required = true)]
        paths: Vec<OsString>,
    },

    /// Copy files and whole trees out of an image
    #[command(
        after_help = "Keeps modes, times to the nanosecond, extended attributes, ACLs, hard links, symbolic links, fifos, \
sockets and holes; owners and device nodes too when run as root. Nothing that exists is ever written over, and no \
name or link in the image can lead outside DEST. If DEST is a directory, PATH is put into it under its own name; the \
root of an image is put into DEST itself, which must then be empty.

Examples:
  undercroft get disk.img /home/anna ./anna
  undercroft get disk.img / ./everything
  undercroft get --tar disk.img / | zstd > everything.tar.zst"
    )]
    Get {
        #[command(flatten)]
        image: ImageArgs,
        /// Path inside the image
        path: OsString,
        /// Where to put it
        #[arg(required_unless_present = "tar", conflicts_with = "tar", value_hint = ValueHint::AnyPath)]
        dest: Option<PathBuf>,
        /// Write a tar archive to standard output instead
        #[arg(long)]
        tar: bool,
        /// Print a JSON summary of what was copied
        #[arg(long, conflicts_with = "tar")]
        json: bool,
    },

    /// Mount an image read-only, or a filesystem in memory for writing, through FUSE
    #[command(
        after_help = "Returns once the files can be read, and serves them in the background until `undercroft unmount DIR`.

With `tmpfs:` in the image's place, an empty filesystem in memory is mounted, which goes when it is unmounted. It takes \
the options of Linux's tmpfs (size, nr_blocks, nr_inodes, mode, uid, gid) and pdirops=off, which gives each directory \
one lock.

Options of every mount: ro, rw, allow_other, dev, suid, noexec, noatime, no_default_permissions, no_writeback_cache \
(each write is a request of its own), direct_io (past the kernel's cache), threads=N, readdirplus=always|auto|never, \
attr_timeout=SECONDS, entry_timeout=SECONDS, fsname=NAME.

A program that reads a damaged file is told no more than \"Structure needs cleaning\". What exactly is wrong stands in \
the log: FILE, or else /var/log/undercroft.log for root and $XDG_STATE_HOME/undercroft/mount.log (usually \
~/.local/state/undercroft/mount.log) for anybody else. In the foreground it is said on standard error.

Examples:
  undercroft mount disk.img /mnt
  undercroft mount --log faults.log disk.img /mnt
  undercroft mount 'disk.img?part=2' ~/disk
  undercroft mount -o allow_other disk.img /mnt
  undercroft mount -o size=1G,mode=755 tmpfs: /mnt"
    )]
    Mount {
        #[command(flatten)]
        image: ImageArgs,
        /// Directory to mount on
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
        /// Mount options, separated by commas
        #[arg(short, value_name = "OPTS", value_delimiter = ',')]
        options: Vec<String>,
        /// Add to this file what turns out to be wrong with the image
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        log: Option<PathBuf>,
        /// Stay in the foreground until unmounted
        #[arg(short, long)]
        foreground: bool,
        /// Set by the parent of the background process: say on standard output when ready
        #[arg(long, hide = true, requires = "foreground")]
        announce: bool,
    },

    /// Unmount what `mount` mounted
    #[command(after_help = "Examples:
  undercroft unmount /mnt")]
    Unmount {
        /// Directory it is mounted on
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
    },

    /// Measure a filesystem: one of ours in memory, or whatever is mounted somewhere
    #[command(after_help = bench_notes())]
    Bench(BenchArgs),

    /// See it work: a guided look at a small ext4 image that this program carries
    #[command(
        after_help = "Needs no root, no FUSE and no disk. Every byte shown comes out of a real ext4 image that Linux made."
    )]
    Tour {
        #[command(flatten)]
        json: JsonArg,
    },

    /// Write a completion script for a shell to standard output
    #[command(after_help = "Examples:
  undercroft completions bash > /etc/bash_completion.d/undercroft
  undercroft completions zsh > ~/.zfunc/_undercroft
  undercroft completions fish > ~/.config/fish/completions/undercroft.fish")]
    Completions {
        /// Shell
        shell: Shell,
    },

    /// Write the manual pages into a directory, or the main page to standard output
    #[command(after_help = "Examples:
  undercroft man | man -l -
  undercroft man /usr/local/share/man/man1")]
    Man {
        /// Directory for one page per command
        #[arg(value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definitions_agree_with_each_other() {
        super::Typed::command().debug_assert();
    }
}
