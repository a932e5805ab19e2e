//! What a filesystem is to be like; what is left open is decided as mkfs.xfs 6.1 decides it.

use undercroft_vfs::Timestamp;
use uuid::Uuid;

/// Where the allocation of data and inodes is aligned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stripe {
    /// By the device's topology: a RAID chunk and stripe.
    OfDevice,
    /// No alignment.
    None,
    /// These sizes in bytes.
    Bytes {
        /// The stripe unit: a RAID chunk.
        unit: u64,
        /// The stripe width: the data of a RAID stripe.
        width: u64,
    },
}

/// How the device is divided into allocation groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Groups {
    /// By the size of the filesystem.
    Usual,
    /// So many.
    Count(u64),
    /// Groups of so many bytes.
    Bytes(u64),
}

/// How to make a filesystem of version 5.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Size of the filesystem; the whole device by default.
    pub size_bytes: Option<u64>,
    /// Block size: 1 KiB to 64 KiB, 4 KiB by default.
    pub block_bytes: Option<u32>,
    /// Sector size, of the headers of groups and of the log; by the device's topology by default.
    pub sector_bytes: Option<u32>,
    /// Inode size: 512 bytes to 2 KiB, 512 bytes by default.
    pub inode_bytes: Option<u32>,
    /// Block size of directories, up to 64 KiB; 4 KiB, or a block where that is larger, by default.
    pub dir_block_bytes: Option<u32>,
    /// Allocation groups.
    pub groups: Groups,
    /// Alignment of data and inodes.
    pub stripe: Stripe,
    /// Part of the space that inodes may take in percent; by the filesystem's size for 0.
    pub inode_percent: u8,
    /// Size of the log; by the filesystem's size by default.
    pub log_bytes: Option<u64>,
    /// Log records begin at multiples of so many bytes; as `stripe` has it by default.
    pub log_stripe_bytes: Option<u64>,
    /// The allocation group that has the log; the middle one by default.
    pub log_group: Option<u64>,
    /// A B+tree of the inode chunks that have free inodes.
    pub finobt: bool,
    /// Counters of the blocks of the inodes' B+trees; with `finobt` by default.
    pub inobtcount: Option<bool>,
    /// A B+tree of what each block belongs to.
    pub rmapbt: bool,
    /// Files may share blocks.
    pub reflink: bool,
    /// Times from 1901 to 2486; otherwise to 2038.
    pub bigtime: bool,
    /// Chunks of inodes may have holes.
    pub sparse: bool,
    /// Extents of a file are counted in 64 bits.
    pub nrext64: bool,
    /// The label, at most 12 bytes.
    pub label: Vec<u8>,
    /// The UUID; random by default.
    pub uuid: Option<Uuid>,
    /// Whether what mkfs.xfs does not support is made: less than 300 MiB, a log of less than 64 MiB, a single group.
    pub small: bool,
    /// Whether the device reads as zeroes everywhere, so that nothing need be zeroed.
    pub device_is_zeroed: bool,
    /// Whether to discard the whole device first.
    pub discard: bool,
    /// Whether to overwrite what is on the device, as [`what_is_on`](crate::what_is_on) finds it.
    pub overwrite: bool,
    /// The time of making; now by default.
    pub time: Option<Timestamp>,
}

impl Default for MkfsOptions {
    /// What mkfs.xfs 6.1 makes.
    fn default() -> Self {
        Self {
            size_bytes: None,
            block_bytes: None,
            sector_bytes: None,
            inode_bytes: None,
            dir_block_bytes: None,
            groups: Groups::Usual,
            stripe: Stripe::OfDevice,
            inode_percent: 0,
            log_bytes: None,
            log_stripe_bytes: None,
            log_group: None,
            finobt: true,
            inobtcount: None,
            rmapbt: false,
            reflink: true,
            bigtime: true,
            sparse: true,
            nrext64: false,
            label: Vec::new(),
            uuid: None,
            small: false,
            device_is_zeroed: false,
            discard: true,
            overwrite: false,
            time: None,
        }
    }
}
