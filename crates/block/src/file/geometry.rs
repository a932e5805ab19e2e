//! What a file is, how large it is, and which sizes it prefers.
//!
//! A regular file tells nothing of the disk below it, and what it may later be written to is unknown: it gets the
//! sizes of a common disk. For a block device the kernel is asked, by ioctl and in `/sys/dev/block`.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{SeekFrom, ioctl_blkpbszget, ioctl_blksszget, major, minor, seek};

use crate::{OpenError, Topology};

/// The kinds of file that can be a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Regular,
    BlockDevice,
}

impl Kind {
    /// The kind of a file, or a refusal that names what it is instead.
    pub(super) fn of(metadata: &Metadata, path: &Path) -> Result<Self, OpenError> {
        let file_type = metadata.file_type();
        let kind = match file_type {
            _ if file_type.is_file() => return Ok(Self::Regular),
            _ if file_type.is_block_device() => return Ok(Self::BlockDevice),
            _ if file_type.is_dir() => "directory",
            _ if file_type.is_char_device() => "character device",
            _ if file_type.is_fifo() => "pipe",
            _ if file_type.is_socket() => "socket",
            _ => "file of an unknown kind",
        };
        Err(OpenError::NotADevice { path: path.to_owned(), kind })
    }

    /// The unit in bytes in which space is given back or zeroed without writing.
    pub(super) fn allocation_unit(self, topology: Topology) -> u64 {
        match self {
            // Filesystems zero parts of their blocks by writing, which is better left to one place: ours.
            Self::Regular => 4096,
            Self::BlockDevice => u64::from(topology.logical_block_bytes),
        }
    }
}

/// The size in bytes. A block device does not have it in its metadata, but its end can be sought.
pub(super) fn size_bytes(file: &File, kind: Kind) -> io::Result<u64> {
    match kind {
        Kind::Regular => Ok(file.metadata()?.len()),
        Kind::BlockDevice => Ok(seek(file, SeekFrom::End(0))?),
    }
}

/// The sizes that the file prefers.
pub(super) fn topology(file: &File, kind: Kind) -> io::Result<Topology> {
    match kind {
        Kind::Regular => Ok(Topology::default()),
        Kind::BlockDevice => {
            let device = file.metadata()?.rdev();
            let logical_block_bytes = ioctl_blksszget(file)?;
            Ok(Topology {
                logical_block_bytes,
                physical_block_bytes: ioctl_blkpbszget(file)?.max(logical_block_bytes),
                minimum_io_bytes: queue_limit(device, "minimum_io_size"),
                optimal_io_bytes: queue_limit(device, "optimal_io_size"),
            })
        }
    }
}

/// Whether calls may go unanswered for ever. A file on a server's filesystem; a block device unless its driver ends every
/// request (SCSI and NVMe have timeouts, network block devices and device mappers may wait).
pub(super) fn may_hang(file: &File, kind: Kind) -> io::Result<bool> {
    // As in statfs(2): FUSE, NFS, SMB, CIFS, 9P, Ceph, AFS, GFS2, OCFS2.
    const SERVED: [u32; 9] = [
        0x6573_5546,
        0x6969,
        0xfe53_4d42,
        0xff53_4d42,
        0x0102_1997,
        0x00c3_6400,
        0x5346_414f,
        0x0116_1970,
        0x7461_636f,
    ];
    match kind {
        // The type has another width on other machines; the numbers have 32 bits.
        Kind::Regular => Ok(SERVED.contains(&(rustix::fs::fstatfs(file)?.f_type as u32))),
        Kind::BlockDevice => {
            let device = file.metadata()?.rdev();
            let link = std::fs::read_link(format!("/sys/dev/block/{}:{}", major(device), minor(device)));
            let ends = |name: &str| name.starts_with("nvme") || name.starts_with("sd");
            let is_known = link.is_ok_and(|path| path.iter().any(|part| part.to_str().is_some_and(ends)));
            Ok(!is_known)
        }
    }
}

/// A limit of the device's request queue in bytes, 0 where the kernel does not tell. A partition has the queue of
/// the disk around it.
fn queue_limit(device: u64, name: &str) -> u32 {
    let directory = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    [format!("{directory}/queue/{name}"), format!("{directory}/../queue/{name}")]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok())
        .unwrap_or(0)
}
