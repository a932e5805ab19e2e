//! The first inodes: the root directory, two files of the real-time section without content, and free ones.
//!
//! Source: images made by mkfs.xfs 6.1.

use undercroft_vfs::Timestamp;
use uuid::Uuid;
use zerocopy::{FromZeros, IntoBytes};

use super::shape::Shape;
use crate::format::dinode::{CORE_V3_BYTES, CRC_OFFSET, DiFlags, DiFlags2, MAGIC, RawDinode};
use crate::format::{crc, time};

const LOCAL: u8 = 1;
const EXTENTS: u8 = 2;
const DIRECTORY: u16 = 0o040_755;
const FILE: u16 = 0o100_000;
/// A new inode is counted twice as changed: when it is made and when it gets its content.
const CHANGES: u64 = 2;

/// All first inodes, in their order, from the root directory's number on.
pub(super) fn encode(shape: &Shape, uuid: Uuid, root: u32, now: Timestamp) -> Vec<u8> {
    let size = 1_usize << shape.inode_log;
    let mut bytes = vec![0; shape.first_inodes() as usize * size];
    for (bytes, number) in bytes.chunks_exact_mut(size).zip(root..) {
        let mut raw = RawDinode::new_zeroed();
        raw.di_magic.set(MAGIC);
        raw.di_version = 3;
        raw.di_next_unlinked.set(u32::MAX);
        raw.di_ino.set(number.into());
        raw.di_uuid = uuid.into_bytes();
        match number - root {
            0 => {
                use_inode(&mut raw, shape, now, DIRECTORY, LOCAL, 2);
                // A directory without entries: two counts of entries, and its parent, which is itself.
                let fork = [&[0, 0][..], &root.to_be_bytes()].concat();
                raw.di_size.set(fork.len() as u64);
                bytes[CORE_V3_BYTES..CORE_V3_BYTES + fork.len()].copy_from_slice(&fork);
            }
            1 => {
                use_inode(&mut raw, shape, now, FILE, EXTENTS, 1);
                raw.di_flags.set(DiFlags::NEW_RT_BITMAP.bits());
            }
            2 => use_inode(&mut raw, shape, now, FILE, EXTENTS, 1),
            _ => {}
        }
        bytes[..CORE_V3_BYTES].copy_from_slice(raw.as_bytes());
        crc::seal(bytes, CRC_OFFSET);
    }
    bytes
}

fn use_inode(raw: &mut RawDinode, shape: &Shape, now: Timestamp, mode: u16, format: u8, links: u32) {
    let bigtime = shape.chosen.bigtime;
    let now = time::encode(now, bigtime);
    raw.di_mode.set(mode);
    raw.di_format = format;
    raw.di_aformat = EXTENTS;
    raw.di_nlink.set(links);
    raw.di_atime.set(time::encode(Timestamp { seconds: 0, nanoseconds: 0 }, bigtime));
    raw.di_mtime.set(now);
    raw.di_ctime.set(now);
    raw.di_crtime.set(now);
    raw.di_changecount.set(CHANGES);
    let mut flags = DiFlags2::empty();
    flags.set(DiFlags2::BIGTIME, bigtime);
    flags.set(DiFlags2::NREXT64, shape.chosen.nrext64);
    raw.di_flags2.set(flags.bits());
}
