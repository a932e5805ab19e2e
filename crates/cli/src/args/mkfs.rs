//! The command line of `mkfs` as typed, for the family of ext4.

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueHint};

use super::mkfs_from::FromArgs;
use super::mkfs_xfs::MkfsXfsArgs;
use super::{DangerArgs, JsonArg};

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

    /// Size of the filesystem: 10G, 512M, or a number of bytes; by default all of an existing image. A raw image that
    /// is smaller is made larger. `auto` is as large as the sources need
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

    /// Print what would be made, and make nothing
    #[arg(short = 'n', long = "dry-run", conflicts_with = "sources")]
    pub(crate) dry_run: bool,

    /// What it is for: names that mke2fs.conf defines, separated by commas; by its size where there are none
    #[arg(short = 'T', value_name = "USAGE", value_delimiter = ',')]
    pub(crate) usage: Vec<String>,

    /// Do not read /etc/mke2fs.conf, or what MKE2FS_CONFIG names
    #[arg(long)]
    pub(crate) no_conf: bool,

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

    /// What the kernel does when it finds damage: continue, remount-ro or panic
    #[arg(short = 'e', value_name = "BEHAVIOUR")]
    pub(crate) on_error: Option<String>,

    /// Where it was mounted last, as the superblock has it; at most 64 bytes
    #[arg(short = 'M', value_name = "DIRECTORY")]
    pub(crate) last_mounted: Option<OsString>,

    /// UUID; `random` by default, `clear` is all zeroes, `time` has the time in it
    #[arg(short = 'U', value_name = "UUID")]
    pub(crate) uuid: Option<String>,

    /// Journal options: size=MEGABYTES, fast_commit_size=KILOBYTES
    #[arg(short = 'J', value_name = "OPTIONS", value_delimiter = ',')]
    pub(crate) journal: Vec<String>,

    /// Other options: stride=N, stripe_width=N, resize=BLOCKS, root_owner=UID:GID, lazy_itable_init=0|1, hash_seed=UUID,
    /// orphan_file_size=SIZE, mmp_update_interval=SECONDS, encoding=utf8, encoding_flags=strict,
    /// assume_storage_prezeroed=0|1, test_fs, nodiscard
    #[arg(short = 'E', value_name = "OPTIONS", value_delimiter = ',')]
    pub(crate) extended: Vec<String>,

    /// As --from, in mke2fs's word
    #[arg(short = 'd', value_name = "SOURCE", value_hint = ValueHint::AnyPath, group = "sources")]
    pub(crate) directory: Option<OsString>,

    #[command(flatten)]
    pub(crate) json: JsonArg,

    #[command(flatten)]
    pub(crate) from: FromArgs,

    #[command(flatten)]
    pub(crate) of_mke2fs: OfMke2fs,
}

/// Options of mke2fs that change nothing here, or ask for what is not made.
#[derive(Debug, Args)]
pub(crate) struct OfMke2fs {
    /// Direct I/O
    #[arg(short = 'D', hide = true)]
    pub(crate) direct: bool,

    /// More words
    #[arg(short = 'v', hide = true)]
    pub(crate) verbose: bool,

    /// `-E nodiscard` of older ones
    #[arg(short = 'K', hide = true)]
    pub(crate) keep: bool,

    /// A search for bad blocks
    #[arg(short = 'c', hide = true, action = clap::ArgAction::Count)]
    pub(crate) bad_blocks: u8,

    /// A list of bad blocks
    #[arg(short = 'l', hide = true)]
    pub(crate) bad_blocks_list: Option<OsString>,

    /// The operating system
    #[arg(short = 'o', hide = true)]
    pub(crate) creator: Option<OsString>,

    /// The revision
    #[arg(short = 'r', hide = true)]
    pub(crate) revision: Option<OsString>,

    /// Superblock and descriptors only
    #[arg(short = 'S', hide = true)]
    pub(crate) superblock_only: bool,

    /// A file that undoes it
    #[arg(short = 'z', hide = true)]
    pub(crate) undo: Option<OsString>,
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
  undercroft mkfs xfs small.img --size 64M --small
  undercroft mkfs xfs data.img --from ./data --free 10%"
    )]
    Xfs(MkfsXfsArgs),
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
