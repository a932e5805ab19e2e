//! The command line as typed: flags, help texts and examples, nothing decided yet.
//!
//! [`crate::plan`] turns this into what is meant; commands see only that. Manual pages and completions are made
//! from the same definitions.

mod md;
mod refuse;

use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use undercroft_bench::Workload;

pub(crate) use refuse::refuse;

pub(crate) use md::{ArrayArgs, MdCommand, MdCreateArgs, NewMemberArgs, WaitArgs};

use crate::exit;

const IMAGE_HELP: &str = "\
IMAGE is a disk image (raw or qcow2) or a block device. `IMAGE?part=N` names partition N of a partitioned \
disk; a disk with exactly one Linux partition needs no hint. Of an image that is damaged or cut short what is there is read: \
`IMAGE?sb=BLOCK` through a copy of an ext superblock, `IMAGE?gpt=backup` by the copy of a destroyed partition table; `info` says \
which are good. `IMAGE?log=PATH` names the device that an XFS has its log on, for reading. An image is written to by `mkfs`, by `grow`, by `mount -o rw`, \
and by the commands of `md` that change an array (all but `examine` and `status`). All other commands open it read-only and \
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

const GET_USAGE: &str = "\
undercroft get [OPTIONS] <IMAGE> <PATH>... <DEST>
       undercroft get [OPTIONS] --glob <PATTERN> <IMAGE> [PATH]... <DEST>
       undercroft get [OPTIONS] --tar <IMAGE> <PATH>...";

const GET_NOTES: &str = "\
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
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) image: ImageArgs,

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

    /// Size of what the workers of `overwrite` and of `raid5-...` share, and of the array that is rebuilt, in MiB
    #[arg(long, value_name = "N", default_value = "256")]
    pub(crate) file_mib: NonZeroU32,

    /// Files of the population of `inode-alloc`
    #[arg(long, value_name = "N", default_value = "1000000")]
    pub(crate) inodes: NonZeroU64,

    /// Give each directory of the --on target one lock, as Linux does: the same as `tmpfs:plain`, `mem:ext4:plain` or `mem:xfs:plain`
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

/// What to make, and on what.
#[derive(Debug, Args)]
#[command(subcommand_negates_reqs = true, disable_help_subcommand = true)]
#[command(
    override_usage = "undercroft mkfs [OPTIONS] <TYPE> <IMAGE> [FS-SIZE]\n       undercroft mkfs xfs [OPTIONS] <IMAGE>"
)]
pub(crate) struct MkfsArgs {
    /// XFS has options of its own.
    #[command(subcommand)]
    pub(crate) other: Option<MkfsOther>,

    /// What to make; `xfs` has options of its own, which `mkfs xfs --help` lists
    #[arg(value_name = "TYPE", required = true)]
    pub(crate) family: Option<MkfsFamily>,

    /// Disk image or block device; `IMAGE?part=N` for a partition, `md:MEMBER,...` for an array. A file that is not
    /// there is made
    #[arg(value_name = "IMAGE", value_hint = ValueHint::FilePath, required = true)]
    pub(crate) image: Option<OsString>,

    /// Size of the filesystem as mke2fs has it here: 10G, 512M, or a number of blocks (of 1 KiB without -b)
    #[arg(value_name = "FS-SIZE")]
    pub(crate) fs_size: Option<String>,

    /// Size of the filesystem: 10G, 512M, or a number of bytes; all of an image that is there unless said. A raw image that
    /// is smaller is made larger
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<String>,

    /// Format of an image file that is made; qcow2 if its name ends in .qcow2, otherwise raw
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<NewImageFormat>,

    /// With a journal, as for mke2fs: `ext2 -j` is ext3 without its other defaults
    #[arg(short = 'j')]
    pub(crate) with_journal: bool,

    /// Print nothing but failures
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,

    /// May stand before TYPE, as for mkfs(8)
    #[arg(short = 't', hide = true)]
    pub(crate) typed_as_mkfs: bool,

    /// Overwrite what is on the image; not what is in use
    #[arg(short = 'F', long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) danger: DangerArgs,

    /// Features to add, or with a ^ to leave out, separated by commas
    #[arg(short = 'O', value_name = "FEATURES", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) features: Vec<String>,

    /// Block size in bytes: 1024 to 65536
    #[arg(short = 'b', value_name = "BYTES")]
    pub(crate) block_bytes: Option<u32>,

    /// Cluster size in bytes, with the feature bigalloc
    #[arg(short = 'C', value_name = "BYTES")]
    pub(crate) cluster_bytes: Option<u32>,

    /// Inode size in bytes
    #[arg(short = 'I', value_name = "BYTES")]
    pub(crate) inode_bytes: Option<u16>,

    /// One inode for so many bytes
    #[arg(short = 'i', value_name = "BYTES", conflicts_with = "inodes")]
    pub(crate) bytes_per_inode: Option<u64>,

    /// So many inodes
    #[arg(short = 'N', value_name = "COUNT")]
    pub(crate) inodes: Option<u32>,

    /// Blocks in a group
    #[arg(short = 'g', value_name = "COUNT")]
    pub(crate) per_group: Option<u32>,

    /// Groups whose bitmaps and inode tables lie together
    #[arg(short = 'G', value_name = "COUNT")]
    pub(crate) groups_per_flex: Option<u32>,

    /// Percentage of the blocks that only the superuser may use
    #[arg(short = 'm', value_name = "PERCENT")]
    pub(crate) reserved_percent: Option<f64>,

    /// Label, at most 16 bytes
    #[arg(short = 'L', value_name = "LABEL")]
    pub(crate) label: Option<OsString>,

    /// UUID; `random` unless said, `clear` is all zeroes
    #[arg(short = 'U', value_name = "UUID")]
    pub(crate) uuid: Option<String>,

    /// Journal options: size=MEGABYTES
    #[arg(short = 'J', value_name = "OPTIONS", value_delimiter = ',')]
    pub(crate) journal: Vec<String>,

    /// Other options: stride=N, stripe_width=N, root_owner=UID:GID, lazy_itable_init=0|1, hash_seed=UUID, nodiscard
    #[arg(short = 'E', value_name = "OPTIONS", value_delimiter = ',')]
    pub(crate) extended: Vec<String>,

    #[command(flatten)]
    pub(crate) json: JsonArg,
}

/// What `mkfs` makes beside the family of ext4.
#[derive(Debug, Subcommand)]
pub(crate) enum MkfsOther {
    /// Make an XFS filesystem
    #[command(
        after_help = "Options are those of mkfs.xfs 6.1, and what is not said is as mkfs.xfs has it: the same options and UUID make \
the same bytes. Several options behind a letter are separated by commas; sizes are in bytes, or with a unit of k, m, g, t, b \
(blocks) or s (sectors). Not made: version 4 (-m crc=0), real-time sections (-r), external logs (-l logdev=), names in which case \
does not count (-n version=ci), prototype files (-p). An image that is not all zeroes is overwritten with --force only. The \
superblock is written last.

Examples:
  undercroft mkfs xfs disk.img --size 10G
  undercroft mkfs xfs disk.qcow2 --size 10G -L data -m rmapbt=1
  undercroft mkfs xfs /dev/sdb1 --force -d su=64k,sw=4 -l size=256m
  undercroft mkfs xfs disk.img --size 1T -N    # what would be made
  undercroft mkfs xfs small.img --size 64M --small"
    )]
    Xfs(MkfsXfsArgs),
}

/// An XFS to be made, with the options of mkfs.xfs.
#[derive(Debug, Args)]
pub(crate) struct MkfsXfsArgs {
    /// Disk image or block device; `IMAGE?part=N` for a partition, `md:MEMBER,...` for an array. A file that is not
    /// there is made
    #[arg(value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,

    /// Size of the filesystem: 10G, 512M, or a number of bytes; all of an image that is there unless said. A raw image that
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

/// What `mkfs` makes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum NewImageFormat {
    /// The bytes of the disk, one after the other
    Raw,
    /// The format of QEMU
    Qcow2,
}

/// What `mkfs` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum MkfsFamily {
    /// No journal, no extents
    Ext2,
    /// With a journal
    Ext3,
    /// Extents, checksums, 64-bit block numbers
    Ext4,
}

const TARGETS: &str = "\
TARGET is one of
  tmpfs:       the filesystem in memory, in this process; workers are threads
  tmpfs:plain  the same with one lock for each directory
  mem:ext4     ext4 on a device in memory, in this process; after a colon, separated by commas:
                 plain                one lock for each directory
                 orphan=list          orphans in the list, even though there is an orphan file
                 orphan=locked        the same, with the list's lock for every question
                 overwrite=journaled  each overwrite starts a handle
                 no-journal           no journal, and so no orphan file
  mem:xfs      XFS on a device in memory of this process; after a colon, separated by commas:
                 plain                one lock for each directory
                 finobt=0             without the B+tree of free inodes
                 finobt=off           the same tree kept and not searched
                 overwrite=journaled  overwriting starts a handle
                 agcount=N            so many allocation groups; inode-alloc has one unless said
  mem:raw      a device in memory without a filesystem, for overwrite, write and raid5-...: the limit
  mem:md5      RAID5 of four devices in memory, chunks of 64 KiB, with an ext4 on it where files are needed;
               after a colon, separated by commas:
                 stripe_wake=all      a thread that waits for a stripe is woken with all others, as in Linux once
                 stripe_wake=all-spinning  the same, and spins a little before it sleeps
                 stripes=N            so many stripes in the cache: of 4 KiB if there are fewer than 64
                 member_us=N          each request to a member sleeps so many microseconds
                 polled               with member_us: it does not sleep but looks for the end of that time, and
                                      lets other threads run between two looks
                 files                members are files in memory
  mem:xor      copying, exclusive or, reading and writing without an array, for raid5-sequential and
               raid5-rebuild: the limit; mem:xor:files on files in memory
  dir:PATH     whatever is mounted at PATH, by system calls; workers are processes,
               in a directory undercroft-bench-PID that is removed afterwards";

const BENCH_EXAMPLES: &str = "\
The time runs from the first worker's start to the last one's end, after a warm-up. Processor time and context \
switches are the workers'. A rename's operations a second are renames a second. Orphan with --threads 10 is the \
program that Linux's orphan list was measured with when it became the orphan file.

Examples:
  undercroft bench create-unlink --on tmpfs:
  undercroft bench create-unlink --on tmpfs: --compare dir:/dev/shm
  undercroft bench rename --on tmpfs: --compare tmpfs:plain --rounds 9
  undercroft bench create-unlink --on tmpfs: --plain --locks
  undercroft bench create-many --on dir:/mnt --ops 200000 --json
  undercroft bench orphan --on mem:ext4 --compare mem:ext4:orphan=locked --threads 10
  undercroft bench overwrite --on mem:ext4 --compare mem:raw --threads 8
  undercroft bench inode-alloc --on mem:xfs --compare mem:xfs:finobt=0 --inodes 10000000 --threads 1
  undercroft bench raid5-write --on mem:md5:stripes=16 --compare mem:md5:stripes=16,stripe_wake=all --threads 64
  undercroft bench raid5-sequential --on mem:md5 --compare mem:xor --threads 1
  undercroft bench rename --on tmpfs: --threads 16 --plot rename.svg";

fn bench_notes() -> String {
    let workloads = Workload::ALL.map(|workload| {
        let operation = workload.operation().trim_start_matches("one operation ");
        format!("  {:<16}  {operation}", workload.name())
    });
    let workloads = workloads.join("\n");
    format!(
        "{TARGETS}\n\nWorkloads, all workers in one directory; one operation of each\n{workloads}\n\n{BENCH_EXAMPLES}"
    )
}

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
        image: ImageArgs,
        /// Paths inside the image
        #[arg(value_name = "PATH", default_value = "/")]
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
        image: ImageArgs,
        /// Paths inside the image
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<OsString>,
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
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<OsString>,
    },

    /// Copy files and whole trees out of an image
    #[command(alias = "cp", alias = "extract", override_usage = GET_USAGE, after_help = GET_NOTES)]
    Get(Box<GetArgs>),

    /// Mount an image, or a filesystem in memory, through FUSE
    #[command(
        after_help = "Returns once the files can be read, and serves them in the background until `undercroft unmount DIR`.

An image is mounted read-only, and not a byte of it changes, unless `-o rw` says otherwise. With `--snapshot` changes \
can be made and are gone after unmounting: they lie in a temporary file (in TMPDIR), and the image stays as it is.

An image has one writer. With `-o rw` it is refused while the kernel has it mounted, or attached to a loop device, while \
QEMU has it open, or another program has locked it.

Options of an image: rw, ro, norecovery (read-only, without what its journal holds), commit=SECONDS (changes \
reach the disk after so long at the latest; 5), commit_pause=MILLISECONDS (and once there has been no change for about so \
long; 30, 0 for never), sync (each change is on the disk when the call returns), discard (the image is told of space that \
is free again; `fstrim DIR` does it once; not on XFS), pdirops=off (a lock for each directory), orphan=list|locked (ext4), \
finobt=off (XFS) and overwrite=journaled (older ways, to measure against).

With `tmpfs:` in the image's place, an empty filesystem in memory is mounted, which goes when it is unmounted. It takes \
the options of Linux's tmpfs (size, nr_blocks, nr_inodes, mode, uid, gid) and pdirops=off, which gives each directory \
one lock.

Options of every mount: ro, rw, allow_other, dev, suid, noexec, noatime (the default: reading \
changes nothing) or relatime (a read sets the time of access if the file has changed since, or after a day; a read that the \
kernel's cache answers does not reach the server and sets nothing), fakeroot \
(see below; no_default_permissions is the same), no_writeback_cache (each write is a request of its own), direct_io (past the kernel's cache), no_io_uring (requests come over /dev/fuse, \
also where the kernel has been told to offer io_uring: echo 1 > /sys/module/fuse/parameters/enable_uring), threads=N, readdirplus=always|auto|never, \
poll_idle (as root: while requests come quickly, all idle processors of this machine poll instead of halting, which in a \
virtual machine answers up to three times as fast and costs the whole machine processor time), \
attr_timeout=SECONDS, entry_timeout=SECONDS, fsname=NAME.

Owners, modes and access control lists are checked by the kernel as on a disk. With `-o fakeroot` they are not: in an image \
of your own, which you may write to anyhow, you may do what root may: for building images without root, in a \
container for example. What you make belongs to you, as with fuse2fs, until `chown` gives it to whom you like. Only you get in, for `allow_other` is \
refused beside it. What the kernel keeps for root stays so: making device nodes, attributes beginning with \"trusted.\" or \
\"security.\", flags (chattr) and access control lists of files that are not yours.

A program that reads a damaged file is told no more than \"Structure needs cleaning\". What exactly is wrong stands in \
the log: FILE, or else /var/log/undercroft.log for root and $XDG_STATE_HOME/undercroft/mount.log (usually \
~/.local/state/undercroft/mount.log) for other users. In the foreground it is said on standard error.

Examples:
  undercroft mount disk.img /mnt
  undercroft mount --log faults.log disk.img /mnt
  undercroft mount 'disk.img?part=2' ~/disk
  undercroft mount -o rw disk.img /mnt
  undercroft mount --snapshot disk.img /mnt
  undercroft mount -o allow_other disk.img /mnt
  undercroft mount -o rw,fakeroot disk.img ~/disk
  undercroft mount -o size=1G,mode=755 tmpfs: /mnt"
    )]
    Mount {
        /// As for mount(8): what is in an image is recognised, so this is only compared with what can be mounted
        #[arg(short = 't', hide = true, value_parser = ["auto", "ext2", "ext3", "ext4", "xfs", "tmpfs"])]
        kind: Option<String>,
        #[command(flatten)]
        image: ImageArgs,
        /// Directory to mount on
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
        /// Mount options, separated by commas
        #[arg(short, value_name = "OPTS", value_delimiter = ',')]
        options: Vec<String>,
        /// Take changes, and forget them when it is unmounted: the image stays as it is
        #[arg(long)]
        snapshot: bool,
        /// Add to this file what turns out to be wrong with the image
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        log: Option<PathBuf>,
        /// Run this program on each event of the array, with the event (Fail, SpareActive and so on, as mdadm's PROGRAM),
        /// the array and the member as arguments; UNDERCROFT_EVENT holds the event as a sentence
        #[arg(long, value_name = "CMD", value_hint = ValueHint::CommandName)]
        monitor: Option<PathBuf>,
        #[command(flatten)]
        danger: DangerArgs,
        /// Stay in the foreground until unmounted
        #[arg(short, long)]
        foreground: bool,
        /// Set by the parent of the background process: say on standard output when ready
        #[arg(long, hide = true, requires = "foreground")]
        announce: bool,
    },

    /// Unmount what `mount` mounted
    #[command(
        visible_alias = "umount",
        after_help = "Examples:
  undercroft unmount /mnt"
    )]
    Unmount {
        /// Directory it is mounted on
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
    },

    /// Let `mount -t undercroft` and /etc/fstab find this program
    #[command(
        after_help = "Makes the links mount.undercroft, mount.fuse.undercroft and umount.fuse.undercroft to this program, in \
/sbin, where mount(8) and umount(8) look for them. Then work `mount -t undercroft IMAGE DIR`, lines of /etc/fstab and mount units of \
systemd, and `umount DIR` returns when the image is closed.

Examples:
  undercroft install-helper
  mount -t undercroft disk.img /mnt"
    )]
    InstallHelper {
        /// Directory that has the `sbin` for the links
        #[arg(long, value_name = "DIR", default_value = "/", value_hint = ValueHint::DirPath)]
        prefix: PathBuf,
    },

    /// Hold back what is written to a mounted image, so that it can be copied
    #[command(
        after_help = "What was written before is on the disk when this returns, and the image stays as it is until `undercroft \
thaw`: a copy of it is what a power cut at that moment would leave, with a journal to replay. Programs that write \
wait meanwhile, and once they occupy all event loops of the mount (threads=), those that read, too. Unmounting thaws.

Examples:
  undercroft freeze /mnt && cp --reflink=auto disk.img copy.img; undercroft thaw /mnt"
    )]
    Freeze {
        /// Directory it is mounted on, or any inside; or an image that is mounted for writing
        #[arg(value_name = "DIR|IMAGE", value_hint = ValueHint::AnyPath)]
        image: OsString,
    },

    /// Let go on what `freeze` holds back
    #[command(after_help = "Examples:
  undercroft thaw /mnt")]
    Thaw {
        /// Directory it is mounted on, or any inside; or an image that is mounted for writing
        #[arg(value_name = "DIR|IMAGE", value_hint = ValueHint::AnyPath)]
        image: OsString,
    },

    /// Make everything durable that was written through a mount
    #[command(
        after_help = "This includes what programs have written to files that are still open. sync(2) and syncfs(2) do not reach a \
FUSE mount. Without this command, names, attributes and the content of closed files are on the disk once there has been no \
change for a moment (commit_pause= of `undercroft mount`), or after commit= seconds at the latest.

Examples:
  undercroft sync /mnt
  undercroft sync disk.img"
    )]
    Sync {
        /// Directory it is mounted on, or any inside; or an image that is mounted for writing
        #[arg(value_name = "DIR|IMAGE", value_hint = ValueHint::AnyPath)]
        image: OsString,
    },

    /// List what is mounted with `mount`, and how it is doing
    #[command(
        after_help = "Lists the mounts of this user; as root those of all users, as far as their runtime directories are in the usual \
places. A mount is read-only (ro), for writing (rw) or on trial (snapshot). Beside that stands what is to be known: an array \
that is degraded or being filled, a filesystem that takes no more changes after a failure, and why.

Examples:
  undercroft mounts
  undercroft mounts --json"
    )]
    Mounts {
        #[command(flatten)]
        json: JsonArg,
    },

    /// Show how much space filesystems have and use, as df does
    #[command(
        disable_help_flag = true,
        after_help = "An image that is mounted for writing is asked for its state now; another one is opened read-only. Without an \
argument, what this user has mounted is shown. Sizes are in blocks of 1 KiB, rounded up.

Examples:
  undercroft df
  undercroft df -h disk.img md:a.img,b.img,c.img
  undercroft df -i /mnt
  undercroft df --json disk.img"
    )]
    Df {
        /// Disk images, block devices or arrays; or directories of mounts
        #[arg(value_name = "IMAGE|DIR", value_hint = ValueHint::AnyPath)]
        images: Vec<OsString>,
        /// Show sizes in units that fit
        #[arg(short = 'h', long)]
        human_readable: bool,
        /// Print help
        #[arg(long, action = ArgAction::Help)]
        help: Option<bool>,
        /// Show inodes in place of blocks
        #[arg(short, long)]
        inodes: bool,
        #[command(flatten)]
        json: JsonArg,
    },

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
  undercroft mkfs xfs disk.img --size 10G"
    )]
    Mkfs(Box<MkfsArgs>),

    /// Make a filesystem larger
    #[command(
        after_help = "Grows ext2, ext3 and ext4 to SIZE, or to all of the disk or partition. A raw image file is made larger \
first; of a partition, its own end is the limit. The layout stays as resize2fs would have it: descriptors go into the blocks that are \
reserved for them, then into groups of their own (feature meta_bg). A crash leaves the old size or the new one; without a journal it may leave \
what `e2fsck -y` mends, with every file as it was. What is mounted for writing is grown by the process that has it mounted, while it is used. \
Making a filesystem smaller is left to resize2fs.

Examples:
  undercroft grow disk.img 20G
  undercroft grow '/dev/sdb?part=2'
  undercroft grow --json md:a,b,c,d
  undercroft grow /mnt 20G      # a mount"
    )]
    Grow {
        /// Disk image or block device; `IMAGE?part=N` for a partition, `md:MEMBER,...` for an array
        #[arg(value_hint = ValueHint::FilePath)]
        image: OsString,
        /// Size of the filesystem afterwards: 20G, 512M, or a number of bytes; all of the device unless said
        size: Option<String>,
        #[command(flatten)]
        danger: DangerArgs,
        #[command(flatten)]
        json: JsonArg,
    },

    /// Look for damage in a filesystem, and change nothing
    #[command(
        alias = "fsck",
        after_help = "Compares every structure with every other: superblock, groups, bitmaps or trees of free space and of inodes, \
inodes, maps, directories, links, attributes, and in XFS reverse mappings and reference counts. A journal or log that holds changes is \
replayed in memory first, fast commits too. Each finding ends in a word that stays the same \
from version to version; --json has it as `code`.

Ends as e2fsck does: 0 nothing is wrong, 4 something is, 8 it could not be checked, 16 the command line makes no sense.

Examples:
  undercroft check disk.img
  undercroft check --json '/dev/sdb?part=2'
  undercroft check 'xfs.img?log=/dev/sdc1'      # an XFS whose log is on another device"
    )]
    Check {
        #[command(flatten)]
        image: ImageArgs,
        /// As for e2fsck, and without effect: all is checked
        #[arg(short, hide = true)]
        force: bool,
        /// As for e2fsck, and without effect: nothing is changed
        #[arg(short, hide = true)]
        no: bool,
        #[command(flatten)]
        json: JsonArg,
    },

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
    #[command(after_help = bench_notes())]
    Bench(BenchArgs),

    /// See it work: a guided look at small images, ext4 and XFS, that this program carries
    #[command(
        after_help = "Needs no root, no FUSE and no disk. Every byte shown comes out of a real ext4 and a real XFS that Linux made. \
For a second it makes a small array of temporary files, too (in TMPDIR, or else in memory), and lets it lose members."
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
        /// Directory for one page per command; it is made if it is not there
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
