//! `tune`, as typed: tune2fs's options.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use super::{DangerArgs, JsonArg};

pub(super) const NOTES: &str = "\
Options are tune2fs's; of XFS -L and -U are taken, as xfs_admin has them. The filesystem must not be mounted. What cannot be done is \
refused by name, and nothing has changed then.

Features that -O switches on: dir_index, large_file, huge_file, dir_nlink, extra_isize, extent, large_dir, metadata_csum, metadata_csum_seed, \
has_journal (-J says how large), orphan_file. Off: has_journal, orphan_file, metadata_csum. With metadata_csum all checksums are made, after \
a check; uninit_bg goes with it, and comes when it goes. After a crash meanwhile let e2fsck, or any command here that writes, look at \
the filesystem before Linux mounts it.

Examples:
  undercroft tune disk.img -m 1 -e remount-ro
  undercroft tune disk.img -c 0 -i 0               # never check because of age
  undercroft tune disk.img -O has_journal -J size=64
  undercroft tune disk.img -O metadata_csum
  undercroft tune disk.img -O ^has_journal,^orphan_file
  undercroft tune disk.img -o acl,^user_xattr -E stride=16,stripe_width=64
  undercroft tune disk.img -L data -U random
  undercroft tune -l disk.img";

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    /// Disk image or block device; `IMAGE?part=N` for a partition, `md:MEMBER,...` for an array
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    /// Print what `info` prints, and change nothing
    #[arg(short, long)]
    pub(crate) list: bool,
    /// The label that it gets; empty for none
    #[arg(short = 'L', long, value_name = "LABEL")]
    pub(crate) label: Option<OsString>,
    /// The UUID that it gets: one, or time, random, clear, restore
    #[arg(short = 'U', long, value_name = "UUID")]
    pub(crate) uuid: Option<String>,
    /// Features, those with ^ in front switched off
    #[arg(short = 'O', long, value_name = "FEATURES", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) features: Vec<String>,
    /// Journal that -O has_journal adds: size=MEGABYTES
    #[arg(short = 'J', long, value_name = "size=MB")]
    pub(crate) journal: Option<String>,
    /// Percent of the blocks that are kept for the superuser
    #[arg(short = 'm', long, value_name = "PERCENT", conflicts_with = "reserved_blocks")]
    pub(crate) reserved_percent: Option<f64>,
    /// Blocks that are kept for the superuser
    #[arg(short = 'r', long, value_name = "BLOCKS")]
    pub(crate) reserved_blocks: Option<u64>,
    /// User ID that reserved blocks are for
    #[arg(short = 'u', long, value_name = "UID", value_parser = id)]
    pub(crate) reserved_user: Option<u16>,
    /// Group ID that reserved blocks are for
    #[arg(short = 'g', long, value_name = "GID", value_parser = id)]
    pub(crate) reserved_group: Option<u16>,
    /// What the kernel does when it finds damage: continue, remount-ro, panic
    #[arg(short = 'e', long, value_name = "BEHAVIOUR")]
    pub(crate) errors: Option<String>,
    /// Mounts after which it is to be checked; 0 or -1 for never
    #[arg(short = 'c', long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) max_mount_count: Option<i32>,
    /// Mounts since the last check
    #[arg(short = 'C', long, value_name = "COUNT")]
    pub(crate) mount_count: Option<u16>,
    /// Time after which it is to be checked: days, or with d, w, m or s; 0 for never
    #[arg(short = 'i', long, value_name = "INTERVAL")]
    pub(crate) interval: Option<String>,
    /// Mount options that it has by itself, those with ^ in front taken away
    #[arg(short = 'o', long, value_name = "OPTIONS", value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) mount_defaults: Vec<String>,
    /// stride=BLOCKS, stripe_width=BLOCKS, hash_alg=legacy|half_md4|tea, mount_opts=TEXT
    #[arg(short = 'E', long, value_name = "SETTINGS", value_delimiter = ',')]
    pub(crate) extended: Vec<String>,
    #[command(flatten)]
    pub(crate) danger: DangerArgs,
    #[command(flatten)]
    pub(crate) json: JsonArg,
}

/// The number of a user or group in the superblock, which has 16 bits for it; `root` is 0 everywhere.
fn id(typed: &str) -> Result<u16, &'static str> {
    let number = if typed == "root" { Ok(0) } else { typed.parse() };
    number.map_err(|_| {
        "give a number up to 65535: what names stand for is decided by the system that mounts the filesystem"
    })
}
