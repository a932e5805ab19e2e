//! Attributes, names and numbers in the kernel's terms, and back.

use std::ops::ControlFlow;
use std::time::Duration;

use undercroft_vfs::{Attr, DeviceNumber, FileType, InodeFlags, StatFs, Timestamp};

use super::abi::{AttrOut, Dirent, EntryOut, FuseAttr, StatfsOut, StatxOut, StatxTime};
use super::reply::Reply;
use crate::directory::Listed;
use crate::server::Entry;

/// What `statx` always has, and the time of creation.
const STATX_BASIC: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

/// Pairs of a flag and what `statx` has for it.
const STATX_ATTRIBUTES: [(InodeFlags, u64); 6] = [
    (InodeFlags::COMPRESSED, 0x4),
    (InodeFlags::IMMUTABLE, 0x10),
    (InodeFlags::APPEND, 0x20),
    (InodeFlags::NODUMP, 0x40),
    (InodeFlags::ENCRYPTED, 0x800),
    (InodeFlags::VERITY, 0x10_0000),
];

/// Entries of a listing begin at multiples of this.
const ENTRY_ALIGN: usize = 8;

/// For how long the kernel may keep what it is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) entry: Duration,
    pub(super) attr: Duration,
}

impl Timeouts {
    /// An inode and what is known about it.
    pub(super) fn entry(&self, entry: &Entry) -> EntryOut {
        EntryOut {
            nodeid: entry.id.0,
            generation: entry.attr.generation.into(),
            entry_valid: self.entry.as_secs(),
            attr_valid: self.attr.as_secs(),
            entry_valid_nsec: self.entry.subsec_nanos(),
            attr_valid_nsec: self.attr.subsec_nanos(),
            attr: attr_out(&entry.attr),
        }
    }

    /// A name that stands for nothing, which the kernel may remember.
    pub(super) fn absent(&self) -> EntryOut {
        EntryOut {
            entry_valid: self.entry.as_secs(),
            entry_valid_nsec: self.entry.subsec_nanos(),
            ..EntryOut::default()
        }
    }

    pub(super) fn attr(&self, attr: &Attr) -> AttrOut {
        AttrOut {
            attr_valid: self.attr.as_secs(),
            attr_valid_nsec: self.attr.subsec_nanos(),
            dummy: 0,
            attr: attr_out(attr),
        }
    }

    pub(super) fn statx(&self, attr: &Attr) -> StatxOut {
        let attributes = STATX_ATTRIBUTES.iter();
        let set = attributes.clone().filter(|(flag, _)| attr.flags.contains(*flag));
        let created = if attr.created.is_some() { STATX_BTIME } else { 0 };
        StatxOut {
            attr_valid: self.attr.as_secs(),
            attr_valid_nsec: self.attr.subsec_nanos(),
            mask: STATX_BASIC | created,
            blksize: attr.block_bytes,
            attributes: set.fold(0, |all, (_, bit)| all | bit),
            attributes_mask: attributes.fold(0, |all, (_, bit)| all | bit),
            nlink: attr.links,
            uid: attr.uid,
            gid: attr.gid,
            mode: attr.mode() as u16,
            ino: attr.ino.0,
            size: attr.size_bytes,
            blocks: attr.sectors,
            atime: statx_time(attr.accessed),
            btime: statx_time(attr.created.unwrap_or_default()),
            ctime: statx_time(attr.changed),
            mtime: statx_time(attr.modified),
            rdev_major: attr.rdev.major,
            rdev_minor: attr.rdev.minor,
            ..StatxOut::default()
        }
    }
}

fn attr_out(attr: &Attr) -> FuseAttr {
    FuseAttr {
        ino: attr.ino.0,
        size: attr.size_bytes,
        blocks: attr.sectors,
        atime: attr.accessed.seconds,
        mtime: attr.modified.seconds,
        ctime: attr.changed.seconds,
        atimensec: attr.accessed.nanoseconds,
        mtimensec: attr.modified.nanoseconds,
        ctimensec: attr.changed.nanoseconds,
        mode: attr.mode(),
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: packed_device(attr.rdev),
        blksize: attr.block_bytes,
        flags: 0,
    }
}

fn statx_time(time: Timestamp) -> StatxTime {
    StatxTime { tv_sec: time.seconds, tv_nsec: time.nanoseconds, reserved: 0 }
}

pub(super) fn statfs_out(space: &StatFs) -> StatfsOut {
    StatfsOut {
        blocks: space.blocks,
        bfree: space.blocks_free,
        bavail: space.blocks_available,
        files: space.inodes,
        ffree: space.inodes_free,
        bsize: space.block_bytes,
        namelen: space.name_max_bytes,
        frsize: space.block_bytes,
        ..StatfsOut::default()
    }
}

/// Adds a name to a listing, unless the reply would become longer than `room`. With `entry`, it is a name of a
/// listing with attributes.
pub(super) fn push_listed(
    reply: &mut Reply<'_>,
    room: usize,
    listed: &Listed<'_>,
    entry: Option<&EntryOut>,
) -> ControlFlow<()> {
    let before = reply.payload_bytes();
    let plus = if entry.is_some() { size_of::<EntryOut>() } else { 0 };
    let len = plus + size_of::<Dirent>() + listed.name.len();
    let padded = len.next_multiple_of(ENTRY_ALIGN);
    if before + padded > room {
        return ControlFlow::Break(());
    }
    if let Some(entry) = entry {
        reply.push(entry);
    }
    reply.push(&Dirent {
        ino: listed.ino.0,
        off: listed.next,
        namelen: listed.name.len() as u32,
        kind: listed.kind.mode_bits() >> 12,
    });
    reply.push_bytes(listed.name);
    reply.push_bytes(&[0; ENTRY_ALIGN][..padded - len]);
    ControlFlow::Continue(())
}

/// The kind of file of a mode.
pub(super) fn kind_of_mode(mode: u32) -> Option<FileType> {
    // No type at all means a regular file, as in mknod(2).
    if mode & 0o170_000 == 0 { Some(FileType::Regular) } else { FileType::from_mode(mode) }
}

/// The kernel's 32-bit form: 12 bits of major number, 20 of minor, whose low 8 come first.
fn packed_device(device: DeviceNumber) -> u32 {
    (device.minor & 0xff) | (device.major << 8) | ((device.minor & !0xff) << 12)
}

/// Back from the kernel's 32-bit form.
pub(super) fn unpacked_device(packed: u32) -> DeviceNumber {
    DeviceNumber { major: (packed >> 8) & 0xfff, minor: (packed & 0xff) | ((packed >> 12) & 0xf_ff00) }
}

#[cfg(test)]
mod tests {
    use undercroft_vfs::Ino;

    use super::*;

    #[test]
    fn device_numbers_are_packed_as_the_kernel_unpacks_them() {
        assert_eq!(packed_device(DeviceNumber { major: 8, minor: 1 }), 0x801);
        assert_eq!(packed_device(DeviceNumber { major: 0xfff, minor: 0xf_ffff }), 0xffff_ffff);
        for device in [0, 0x801, 0xffff_ffff, 0x1234_5678] {
            assert_eq!(packed_device(unpacked_device(device)), device);
        }
    }

    #[test]
    fn a_listing_ends_before_it_is_too_long() {
        let mut reply = Reply::new();
        let name = |name| Listed { name, ino: Ino(7), kind: FileType::Directory, next: 5 };
        // 24 bytes and a name, padded to 8.
        assert!(push_listed(&mut reply, 64, &name(b"12345678"), None).is_continue());
        assert!(push_listed(&mut reply, 64, &name(b"123456789"), None).is_break());
        assert!(push_listed(&mut reply, 64, &name(b"1"), None).is_continue());
        assert_eq!(reply.payload_bytes(), 64);
        let bytes = reply.finish(1);
        assert_eq!(bytes[16..24], 7_u64.to_ne_bytes());
        assert_eq!(bytes[36..40], 4_u32.to_ne_bytes());
        assert_eq!(bytes[48 + 24..], *b"1\0\0\0\0\0\0\0");
    }
}
