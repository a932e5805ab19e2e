//! The commands about a filesystem as a whole, as typed: those that change or check it.

use std::ffi::OsString;

use clap::{Subcommand, ValueHint};

use super::{DangerArgs, ImageArgs, JsonArg};

#[derive(Debug, Subcommand)]
pub(crate) enum WholeCommand {
    /// Make a filesystem larger
    #[command(
        after_help = "Grows ext2, ext3, ext4 and XFS to SIZE, or to all of the disk or partition. A raw image file is made larger \
first; of a partition, its own end is the limit. The layout stays as resize2fs and xfs_growfs would have it: in ext4 descriptors go into the \
blocks that are reserved for them, then into groups of their own (feature meta_bg); in XFS groups stay as long as they are. A crash leaves the \
old size or the new one; without a journal it may leave \
what `e2fsck -y` mends, with every file as it was. What is mounted for writing is grown by the process that has it mounted, while it is used. \
`undercroft resize` makes ext4 smaller too; XFS cannot be made smaller.

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
        /// Size of the filesystem afterwards: 20G, 512M, or a number of bytes; all of the device by default
        size: Option<String>,
        #[command(flatten)]
        danger: DangerArgs,
        #[command(flatten)]
        json: JsonArg,
    },

    /// Make a filesystem larger or smaller
    #[command(
        alias = "resize2fs",
        after_help = "Larger, as `undercroft grow` does it: ext2, ext3, ext4 and XFS, mounted or not. Smaller: ext2, ext3 and ext4, while they are not \
mounted. The filesystem is checked first; then what lies past the new end is moved, file by file, and at last the end. Inodes of groups that go get \
other numbers. A crash leaves the old size or the new one, with every file as it was; without a journal it may leave what `e2fsck -y` mends. \
A raw image file is cut to the new size; a partition, a qcow2 image or a device stays as large as it was, which is said.

Examples:
  undercroft resize disk.img 2G
  undercroft resize disk.img --minimum      # as small as what is in it allows
  undercroft resize -P disk.img             # how small that is
  undercroft resize '/dev/sdb?part=2'       # as large as the partition
  undercroft resize disk.img --minimum --json"
    )]
    Resize {
        /// Disk image or block device; `IMAGE?part=N` for a partition, `md:MEMBER,...` for an array
        #[arg(value_hint = ValueHint::FilePath)]
        image: OsString,
        /// Size of the filesystem afterwards: 20G, 512M, or a number of bytes; all of the device unless said
        size: Option<String>,
        /// As small as it can be
        #[arg(short = 'M', long)]
        minimum: bool,
        /// Print how small it can be, by an estimate, and change nothing
        #[arg(short = 'P', long)]
        print_minimum: bool,
        #[command(flatten)]
        danger: DangerArgs,
        #[command(flatten)]
        json: JsonArg,
    },

    /// Change how a filesystem is used, and its features
    #[command(alias = "tune2fs", alias = "xfs_admin", after_help = super::tune::NOTES)]
    Tune(Box<super::TuneArgs>),

    /// Show or change the label of a filesystem
    #[command(
        after_help = "A label has at most 16 bytes in ext2, ext3 and ext4, and 12 in XFS; an empty one is none. What is mounted for writing \
gets it by the process that has it mounted, while it is used.

Examples:
  undercroft label disk.img
  undercroft label disk.img data
  undercroft label '/dev/sdb?part=2' ''      # none"
    )]
    Label {
        /// Disk image or block device; `IMAGE?part=N` for a partition, `md:MEMBER,...` for an array
        #[arg(value_hint = ValueHint::FilePath)]
        image: OsString,
        /// The label that it gets
        name: Option<OsString>,
        #[command(flatten)]
        danger: DangerArgs,
        #[command(flatten)]
        json: JsonArg,
    },

    /// Show or change the UUID of a filesystem
    #[command(
        after_help = "The filesystem must not be mounted, and the log of an XFS must be clean. In XFS, metadata blocks keep the UUID that they were made \
with, which is stored as sb_meta_uuid (feature META_UUID) until `restore`. ext4 with metadata checksums gets the feature metadata_csum_seed, which keeps \
the checksums valid: Linux knows it since version 4.4, and GRUB up to 2.06 does not read such a filesystem. `clear` sets the UUID to \
zero: Linux mounts such an XFS only with `-o nouuid`.

Examples:
  undercroft uuid disk.img
  undercroft uuid disk.img random
  undercroft uuid disk.img c1b9d5a2-f162-11cf-9ece-0020afc76f16
  undercroft uuid disk.img restore      # of XFS: the one that it was made with"
    )]
    Uuid {
        /// Disk image or block device; `IMAGE?part=N` for a partition, `md:MEMBER,...` for an array
        #[arg(value_hint = ValueHint::FilePath)]
        image: OsString,
        /// The UUID that it gets: one, or time, random, clear, restore
        uuid: Option<String>,
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
}
