//! The commands about whole disks and image files, as typed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::{DangerArgs, ImageArgs, JsonArg, NewImageFormat, SourceArgs};

const PARTS: &str = "\
A PART is NAME=FORMAT:SIZE[:SOURCE] or NAME=raw:FILE. NAME is the partition's name in the table, and decides its type where it is one \
of them: root, usr, home, srv, var, tmp, esp, xbootldr, swap, linux-generic, ... FORMAT is ext4, ext3, ext2, xfs, vfat, swap, or `none` for a partition \
that stays empty. SIZE is 10G, `min` for as small as its content allows (ext4, xfs, vfat), or `rest` for what is left of --size. SOURCE is a \
directory or an archive, whose files are put into it. A TOML file says more: `undercroft disk create --help` shows one.";

#[derive(Debug, Subcommand)]
pub(crate) enum DiskFamily {
    /// Make, list and change partitioned disks
    #[command(after_help = "Examples:
  undercroft disk create disk.img esp=vfat:100M:boot/ root=ext4:2G:rootfs.tar
  undercroft disk list disk.img
  undercroft disk add disk.img home=ext4:1G
  undercroft disk resize disk.img 20G --grow
  undercroft disk extract 'disk.img?part=root' root.img")]
    Disk {
        #[command(subcommand)]
        command: DiskCommand,
    },

    /// Copy image files, whatever is in them
    #[command(after_help = "Examples:
  undercroft image copy disk.qcow2 disk.img
  undercroft image copy 'disk.img?part=root' /dev/sdb1")]
    Image {
        #[command(subcommand)]
        command: ImageCommand,
    },

    /// Give the free space of an image back to the filesystem that its file is on
    #[command(
        after_help = "What the filesystems in it (ext2, ext3, ext4, XFS) have free becomes holes of a raw image. A qcow2 image is written anew \
beside itself without that space, and takes its own place when it is whole and smaller. What lies outside of filesystems stays as it is: boot loaders, swap \
space, what is between partitions, and what is not known. An image is refused if its table is damaged, if partitions overlap, if it has both partitions and a \
filesystem on the whole of it, or if something in it is a member of an array.

Examples:
  undercroft compact disk.img
  undercroft compact --json disk.qcow2"
    )]
    Compact {
        /// Disk image
        #[arg(value_hint = ValueHint::FilePath)]
        image: OsString,
        #[command(flatten)]
        json: JsonArg,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum DiskCommand {
    /// Make a disk with partitions, filesystems and files
    #[command(after_help = create_help())]
    Create(Box<CreateArgs>),

    /// List partitions: where they lie, what holds what, and what is free
    #[command(after_help = "Examples:
  undercroft disk list disk.img
  undercroft disk list --json /dev/sda")]
    List {
        #[command(flatten)]
        image: ImageArgs,
        #[command(flatten)]
        json: JsonArg,
    },

    /// Add a partition where there is room
    #[command(after_help = add_help())]
    Add(Box<AddArgs>),

    /// Copy a partition into an image file of its own
    #[command(after_help = "Holes stay holes. `undercroft image copy` does the same, and copies whole disks.

Examples:
  undercroft disk extract 'disk.img?part=2' root.img
  undercroft disk extract 'disk.qcow2?part=esp' esp.qcow2")]
    Extract {
        #[command(flatten)]
        image: ImageArgs,
        /// The image file that is made (qcow2 if its name ends in .qcow2, otherwise raw), or `-` for standard output
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Replace the file if it is there
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        json: JsonArg,
    },

    /// Change the size of a disk image, and of its last partition
    #[command(
        after_help = "The backup of a GPT moves to the new end. A raw image becomes larger or smaller, a qcow2 image larger. A disk does not become smaller \
than its partitions. With --grow the last partition, and an ext2, ext3, ext4 or XFS in it, takes what is left. Of a block device the size is what it is: leave SIZE off \
after it has grown.

Examples:
  undercroft disk resize disk.img 20G --grow
  undercroft disk resize disk.qcow2 20G
  undercroft disk resize disk.img 5G"
    )]
    Resize {
        /// Disk image or block device
        #[arg(value_hint = ValueHint::FilePath)]
        image: OsString,
        /// Size of the disk afterwards: 20G, 512M, or a number of bytes; as large as the image is unless said
        size: Option<String>,
        /// Grow the last partition and its filesystem too
        #[arg(long)]
        grow: bool,
        #[command(flatten)]
        danger: DangerArgs,
        #[command(flatten)]
        json: JsonArg,
    },
}

fn create_help() -> String {
    format!(
        "{PARTS}

Partitions begin at whole MiB. The disk is as large as they need unless --size says otherwise. The image appears under its name when it is whole. The same \
arguments, files and --seed make the same bytes, where SOURCE_DATE_EPOCH says the time; ext2 and ext3 with files excepted.

A TOML file (--config) has what cannot be said in a PART; paths in it are relative to it:
  table = \"gpt\"
  size = \"4G\"
  [[partition]]
  name = \"esp\"
  format = \"vfat\"
  size = \"100M\"
  source = \"boot/\"
  [[partition]]
  name = \"root\"
  type = \"root-arm64\"                        # of a GPT: a name or a UUID
  format = \"ext4\"
  label = \"rootfs\"                           # of the filesystem; `fs-uuid` and `uuid` too
  min-size = \"1G\"                            # `max-size` and `weight` too, in place of `size`
  source = [\"base.tar.gz\", \"overlay/\"]
  exclude = [\"*.o\", \".git\"]                # what is left out; `owner`, `mode` and `one-file-system` too
  attributes = [\"grow-file-system\"]          # read-only, no-auto, required, legacy-boot
  [[partition]]
  name = \"firmware\"
  blocks = \"firmware.img\"

Examples:
  undercroft disk create disk.img esp=vfat:100M:boot/ root=ext4:2G:rootfs.tar
  undercroft disk create disk.qcow2 --size 20G root=xfs:rest:rootfs.tar swap=swap:1G
  undercroft disk create disk.img --table mbr boot=raw:boot.img root=ext4:500M:tree/
  undercroft disk create disk.img --config disk.toml --seed release-7
  undercroft disk create disk.img --definitions repart.d/ --root tree/ --size 8G
  undercroft disk create disk.img root=ext4:2G:tree/ --owner 0:0 --exclude .git
  undercroft disk create - --compress zstd root=ext4:1G:tree/ > disk.img.zst"
    )
}

fn add_help() -> String {
    format!(
        "{PARTS}

It is filled first and stands in the table last. `rest` takes the largest piece that is free.

Examples:
  undercroft disk add disk.img home=ext4:rest
  undercroft disk add disk.img data=xfs:1G:files.tar"
    )
}

/// What a disk is to be.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The image that is made, a block device, or `-` for standard output
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,

    /// Partitions, in the order in which they lie
    #[arg(value_name = "PART", conflicts_with_all = ["config", "definitions"])]
    pub(crate) parts: Vec<OsString>,

    /// Kind of partition table
    #[arg(long, value_name = "TABLE")]
    pub(crate) table: Option<TableKind>,

    /// Size of the disk: 10G, 512M, or a number of bytes
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<String>,

    /// TOML file that says what the disk is to be
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,

    /// Directory of definitions of systemd-repart (repart.d)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "config")]
    pub(crate) definitions: Option<PathBuf>,

    /// Directory that paths in definitions are below
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "definitions")]
    pub(crate) root: Option<PathBuf>,

    /// Architecture of the types root and usr, as in root-arm64; this machine's unless said
    #[arg(long, value_name = "ARCH")]
    pub(crate) architecture: Option<String>,

    /// Format of the image file; qcow2 if its name ends in .qcow2, otherwise raw
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<NewImageFormat>,

    /// Compress what goes to standard output
    #[arg(long, value_name = "HOW")]
    pub(crate) compress: Option<Compress>,

    /// What all UUIDs are made from that are not given; they are random unless said
    #[arg(long, value_name = "TEXT")]
    pub(crate) seed: Option<String>,

    /// UUID of a GPT, or signature of an MBR in hexadecimal
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,

    #[command(flatten)]
    pub(crate) sources: SourceArgs,

    /// Bytes of a sector: 512 or 4096; those of a block device are its own, those of a file 512 unless said
    #[arg(long, value_name = "BYTES")]
    pub(crate) sector_size: Option<u32>,

    /// Replace an image that is there, or overwrite what is on a device
    #[arg(long)]
    pub(crate) force: bool,

    /// Print nothing but failures
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) json: JsonArg,
}

/// A partition that is added.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// Disk image or block device
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,

    /// The partition
    #[arg(value_name = "PART")]
    pub(crate) part: OsString,

    /// Number that it gets; the first that is free unless said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) number: Option<u32>,

    /// Type, where its name does not say it: a name, a UUID, or of an MBR two hexadecimal digits
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,

    /// Architecture of the types root and usr, as in root-arm64; this machine's unless said
    #[arg(long, value_name = "ARCH")]
    pub(crate) architecture: Option<String>,

    /// What UUIDs are made from; they are random unless said
    #[arg(long, value_name = "TEXT")]
    pub(crate) seed: Option<String>,

    #[command(flatten)]
    pub(crate) sources: SourceArgs,

    #[command(flatten)]
    pub(crate) danger: DangerArgs,

    #[command(flatten)]
    pub(crate) json: JsonArg,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Copy an image: only what it holds, from and to raw, qcow2 and block devices
    #[command(
        after_help = "SRC may be anything that commands open: `IMAGE?part=N` for a partition, `md:MEMBER,...` for an array. Holes stay holes, and runs of zeroes \
become such. The copy appears under its name when it is whole; on a block device or a partition what lies behind it stays. Standard output \
gets a raw image, with zeroes for holes.

Examples:
  undercroft image copy disk.qcow2 disk.img
  undercroft image copy /dev/sdb disk.qcow2
  undercroft image copy 'disk.img?part=root' root.img
  undercroft image copy root.img 'disk.img?part=root' --force
  undercroft image copy disk.qcow2 - | zstd > disk.img.zst
  undercroft image copy disk.img /dev/sdc --force"
    )]
    Copy {
        #[command(flatten)]
        image: ImageArgs,
        /// Where it goes: a file that is made (qcow2 if its name ends in .qcow2, otherwise raw), a block device, a partition
        /// `IMAGE?part=N`, or `-` for standard output
        #[arg(value_name = "DST", value_hint = ValueHint::FilePath)]
        target: PathBuf,
        /// Format of a file that is made
        #[arg(long, value_name = "FORMAT")]
        format: Option<NewImageFormat>,
        /// Replace a file that is there, or overwrite what is on a device
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        json: JsonArg,
    },
}

/// Kinds of partition tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TableKind {
    /// GUID partition table
    Gpt,
    /// Master boot record, of four partitions at most
    #[value(alias = "dos", alias = "msdos")]
    Mbr,
}

/// Ways to compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Compress {
    /// As gzip
    Gzip,
    /// As zstd
    Zstd,
    /// As xz
    Xz,
}
