//! What a filesystem is to be like; whatever is left open is decided as mke2fs decides it.

use undercroft_vfs::Timestamp;
use uuid::Uuid;

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

/// How to make a filesystem.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Which features it has before `features` changes them.
    pub family: Family,
    /// Features to add, or to leave out with a `^` before the name, separated by commas, as `mke2fs -O` takes
    /// them; `none` leaves out all that came before it.
    pub features: String,
    /// Size of the filesystem; the whole device by default.
    pub size_bytes: Option<u64>,
    /// Block size; 1 KiB below 512 MiB and 4 KiB from there on by default.
    pub block_bytes: Option<u32>,
    /// Cluster size with `bigalloc`; 16 blocks by default.
    pub cluster_bytes: Option<u32>,
    /// Inode size; 256 bytes by default.
    pub inode_bytes: Option<u16>,
    /// One inode for so many bytes of the filesystem; by its size by default.
    pub bytes_per_inode: Option<u64>,
    /// The number of inodes at least, in place of `bytes_per_inode`.
    pub inodes: Option<u32>,
    /// Blocks (clusters with `bigalloc`) in a group; as many as one block of bitmap can count by default.
    pub per_group: Option<u32>,
    /// Groups whose bitmaps and inode tables lie together, with `flex_bg`; a power of two.
    pub groups_per_flex: u32,
    /// Part of the blocks that is kept for the superuser, in percent: 0 to 50.
    pub reserved_percent: f64,
    /// The label, at most 16 bytes.
    pub label: Vec<u8>,
    /// The UUID; random by default.
    pub uuid: Option<Uuid>,
    /// The seed of names' hashes; random by default.
    pub hash_seed: Option<Uuid>,
    /// Size of the journal; by the filesystem's size by default.
    pub journal_bytes: Option<u64>,
    /// Blocks of a RAID chunk; by the device's topology by default.
    pub stride_blocks: Option<u16>,
    /// Blocks of data in a RAID stripe; by the device's topology by default.
    pub stripe_width_blocks: Option<u32>,
    /// User and group that own the root directory.
    pub root_owner: (u32, u32),
    /// Whether the inode tables are left to Linux to zero after it mounts the filesystem, where group descriptors
    /// have checksums, which tell it that they are not.
    pub lazy_inode_tables: bool,
    /// Whether the device reads as zeroes everywhere, so that nothing need be zeroed.
    pub device_is_zeroed: bool,
    /// Whether to discard the whole device first.
    pub discard: bool,
    /// Whether to overwrite what is on the device, as [`what_is_on`](crate::what_is_on) finds it.
    pub overwrite: bool,
    /// The time of making; now by default.
    pub time: Option<Timestamp>,
}

impl MkfsOptions {
    /// What mke2fs makes of this family.
    #[must_use]
    pub fn new(family: Family) -> Self {
        Self {
            family,
            features: String::new(),
            size_bytes: None,
            block_bytes: None,
            cluster_bytes: None,
            inode_bytes: None,
            bytes_per_inode: None,
            inodes: None,
            per_group: None,
            groups_per_flex: 16,
            reserved_percent: 5.0,
            label: Vec::new(),
            uuid: None,
            hash_seed: None,
            journal_bytes: None,
            stride_blocks: None,
            stripe_width_blocks: None,
            root_owner: (0, 0),
            lazy_inode_tables: true,
            device_is_zeroed: false,
            discard: true,
            overwrite: false,
            time: None,
        }
    }
}
