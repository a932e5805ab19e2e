//! The ioctls that ask about one inode: what `lsattr` and the quota tools want to know.
//!
//! Numbers and layouts are Linux's (`linux/fs.h`). The kernel itself turns its newer calls for file attributes
//! into these. Everything else is refused as not applying to the file.

use undercroft_vfs::{Attr, InodeFlags, Result};

use crate::nodes::NodeId;
use crate::server::Server;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC32_GETFLAGS: u32 = 0x8004_6601;
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const FS_IOC32_GETVERSION: u32 = 0x8004_7601;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;

/// Size of `struct fsxattr`.
const FSXATTR_BYTES: usize = 28;

/// Pairs of a flag and what `struct fsxattr` has for it.
const EXTENDED_FLAGS: [(InodeFlags, u32); 8] = [
    (InodeFlags::IMMUTABLE, 0x0000_0008),
    (InodeFlags::APPEND, 0x0000_0010),
    (InodeFlags::SYNC, 0x0000_0020),
    (InodeFlags::NOATIME, 0x0000_0040),
    (InodeFlags::NODUMP, 0x0000_0080),
    (InodeFlags::PROJECT_INHERIT, 0x0000_0200),
    (InodeFlags::DAX, 0x0000_8000),
    (InodeFlags::VERITY, 0x0002_0000),
];

impl Server {
    /// The bytes that answer an ioctl; `None` if it is none of ours.
    pub(crate) fn ioctl(&self, id: NodeId, command: u32) -> Result<Option<Vec<u8>>> {
        // Four bytes also where the number says eight: that is how long the values are, and what callers
        // have room for.
        Ok(match command {
            FS_IOC_GETFLAGS | FS_IOC32_GETFLAGS => Some(self.attr(id)?.flags.bits().to_ne_bytes().to_vec()),
            FS_IOC_GETVERSION | FS_IOC32_GETVERSION => Some(self.attr(id)?.generation.to_ne_bytes().to_vec()),
            FS_IOC_FSGETXATTR => Some(fsxattr(&self.attr(id)?).to_vec()),
            _ => None,
        })
    }
}

/// `struct fsxattr`: flags, extent size hint, number of extents, project, copy-on-write hint, padding.
fn fsxattr(attr: &Attr) -> [u8; FSXATTR_BYTES] {
    let flags = EXTENDED_FLAGS.iter().filter(|(flag, _)| attr.flags.contains(*flag));
    let flags = flags.fold(0, |all, (_, bit)| all | bit);
    let mut bytes = [0; FSXATTR_BYTES];
    bytes[..4].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&attr.project.to_ne_bytes());
    bytes
}
