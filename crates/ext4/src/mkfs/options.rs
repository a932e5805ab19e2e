//! What a filesystem is to be like; whatever is left open is decided as mke2fs decides it.

use std::sync::Arc;

use undercroft_vfs::Timestamp;
use uuid::Uuid;

use super::conf::Mke2fsConf;
use crate::superblock::OnError;

/// A member of the family, which stands for a set of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// No journal, no extents.
    Ext2,
    /// ext2 with a journal.
    Ext3,
    /// Extents, checksums, 64-bit block numbers and the rest.
    Ext4,
}

impl Family {
    /// As mke2fs calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext2 => "ext2",
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
        }
    }
}

/// How much, in either unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Blocks of the filesystem.
    Blocks(u64),
    /// Bytes; what is less than a block does not count.
    Bytes(u64),
}

impl Amount {
    pub(super) fn in_blocks(self, block_bytes: u32) -> u64 {
        match self {
            Self::Blocks(blocks) => blocks,
            Self::Bytes(bytes) => bytes / u64::from(block_bytes),
        }
    }
}

/// How to make a filesystem. What is `None` is as `conf` has it for the filesystem's family, usage and size.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Which features it has before `features` changes them.
    pub family: Family,
    /// What it is for, as `mke2fs -T` takes it: names that `conf` defines. By its size where there are none.
    pub usage: Vec<String>,
    /// What is decided where nothing is asked for; as mke2fs has it without a file by default.
    pub conf: Arc<Mke2fsConf>,
    /// Features to add, or to leave out with a `^` before the name, separated by commas, as `mke2fs -O` takes
    /// them; `none` leaves out all that came before it. `conf` has default features for an empty list; for a blank it has
    /// none.
    pub features: String,
    /// Features that other options imply, in the same form; they come after `features`.
    pub implied_features: String,
    /// Size of the filesystem; the whole device by default.
    pub size_bytes: Option<u64>,
    /// Block size; 1 KiB below 512 MiB and 4 KiB from there on, as `conf` is built in.
    pub block_bytes: Option<u32>,
    /// Cluster size with `bigalloc`; 16 blocks by default.
    pub cluster_bytes: Option<u32>,
    /// Inode size; 256 bytes, as `conf` is built in.
    pub inode_bytes: Option<u16>,
    /// One inode for so many bytes of the filesystem; by its size, as `conf` is built in.
    pub bytes_per_inode: Option<u64>,
    /// The number of inodes at least, in place of `bytes_per_inode`.
    pub inodes: Option<u32>,
    /// Blocks (clusters with `bigalloc`) in a group; as many as one block of bitmap can count by default.
    pub per_group: Option<u32>,
    /// Groups whose bitmaps and inode tables lie together, with `flex_bg`; a power of two, 16 as `conf` is built in.
    pub groups_per_flex: Option<u32>,
    /// Part of the blocks that is kept for the superuser, in percent: 0 to 50, 5 as `conf` is built in.
    pub reserved_percent: Option<f64>,
    /// Room among the group descriptors for growth to this size, which `resize_inode` comes with; a thousand times the
    /// size, or what one block of block numbers leads to, by default.
    pub grows_to: Option<Amount>,
    /// What the kernel does when it finds damage.
    pub on_error: Option<OnError>,
    /// Where it was mounted last, as the superblock has it; at most 64 bytes.
    pub last_mounted: Vec<u8>,
    /// The label, at most 16 bytes.
    pub label: Vec<u8>,
    /// The UUID; random by default.
    pub uuid: Option<Uuid>,
    /// The seed of names' hashes; random by default.
    pub hash_seed: Option<Uuid>,
    /// Size of the journal; by the filesystem's size by default.
    pub journal_bytes: Option<u64>,
    /// Size of the journal's area of fast commits, with `fast_commit`, and nothing without; by the filesystem's size by
    /// default.
    pub fast_commit_bytes: Option<u64>,
    /// Size of the orphan file, with `orphan_file`; by the filesystem's size by default.
    pub orphan_file: Option<Amount>,
    /// Seconds between two marks that the filesystem is in use, with `mmp`; 5 by default, and for 0.
    pub mmp_interval_s: Option<u16>,
    /// Whether names that are not UTF-8 are refused, with `casefold`.
    pub strict_encoding: bool,
    /// Whether the kernel may mount it with code that is in development.
    pub for_tests: bool,
    /// Blocks of a RAID chunk; by the device's topology by default.
    pub stride_blocks: Option<u16>,
    /// Blocks of data in a RAID stripe; by the device's topology by default.
    pub stripe_width_blocks: Option<u32>,
    /// User and group that own the root directory.
    pub root_owner: (u32, u32),
    /// Whether the inode tables are left to Linux to zero after it mounts the filesystem, where group descriptors
    /// have checksums, which tell it that they are not.
    pub lazy_inode_tables: Option<bool>,
    /// Whether the device reads as zeroes everywhere, so that nothing need be zeroed.
    pub device_is_zeroed: bool,
    /// Whether to discard the whole device first.
    pub discard: Option<bool>,
    /// Whether to overwrite what is on the device, as [`what_is_on`](crate::what_is_on) finds it.
    pub overwrite: bool,
    /// The time of making; now by default.
    pub time: Option<Timestamp>,
}

impl MkfsOptions {
    /// What mke2fs makes of this family where there is no mke2fs.conf.
    #[must_use]
    pub fn new(family: Family) -> Self {
        Self {
            family,
            usage: Vec::new(),
            conf: Arc::new(Mke2fsConf::built_in()),
            features: String::new(),
            implied_features: String::new(),
            size_bytes: None,
            block_bytes: None,
            cluster_bytes: None,
            inode_bytes: None,
            bytes_per_inode: None,
            inodes: None,
            per_group: None,
            groups_per_flex: None,
            reserved_percent: None,
            grows_to: None,
            on_error: None,
            last_mounted: Vec::new(),
            label: Vec::new(),
            uuid: None,
            hash_seed: None,
            journal_bytes: None,
            fast_commit_bytes: None,
            orphan_file: None,
            mmp_interval_s: None,
            strict_encoding: false,
            for_tests: false,
            stride_blocks: None,
            stripe_width_blocks: None,
            root_owner: (0, 0),
            lazy_inode_tables: None,
            device_is_zeroed: false,
            discard: None,
            overwrite: false,
            time: None,
        }
    }
}
