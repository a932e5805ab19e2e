//! Changes of inodes: the core, in the byte order of the host that wrote it, and the forks as they were in memory.

use std::sync::Arc;

use undercroft_vfs::{Error, Ino, Result};

use super::buffer::{INODE_CRC, INODE_MAGIC};
use super::cancelled::{BufferKey, Cancelled};
use super::format::{Lsn, be16, be64, le16, le32, le64};
use super::target::Target;
use super::transactions::Item;
use crate::error::{Verdict, corrupt_inode};
use crate::format::{Daddr, Superblock, crc};

const STRUCTURE: &str = "logged inode";

/// Which parts are logged (`XFS_ILOG_*`).
mod part {
    pub(super) const DATA: u32 = 0x002;
    pub(super) const DATA_EXTENTS: u32 = 0x004;
    pub(super) const DATA_ROOT: u32 = 0x008;
    pub(super) const DEVICE: u32 = 0x010;
    pub(super) const ATTRIBUTES: u32 = 0x040;
    pub(super) const ATTRIBUTE_EXTENTS: u32 = 0x080;
    pub(super) const ATTRIBUTE_ROOT: u32 = 0x100;
    pub(super) const OWNER_CHANGED: u32 = 0x200 | 0x400;
    pub(super) const DATA_FORK: u32 = DATA | DATA_EXTENTS | DATA_ROOT;
    pub(super) const ATTRIBUTE_FORK: u32 = ATTRIBUTES | ATTRIBUTE_EXTENTS | ATTRIBUTE_ROOT;
}

/// Formats of a fork.
mod fork_format {
    pub(super) const LOCAL: u8 = 1;
    pub(super) const EXTENTS: u8 = 2;
    pub(super) const BTREE: u8 = 3;
}

const FLAG2_BIGTIME: u64 = 1 << 3;
const FLAG2_NREXT64: u64 = 1 << 4;

/// Bytes of a core, from version 3 on and before it.
const CORE_V3: usize = 176;
const CORE_V2: usize = 96;

/// Where the data fork begins, from version 3 on and before it.
const FORK_V3: usize = 176;
const FORK_V2: usize = 100;

/// The wrapping counter of flushes of version 4 starts over after it.
const MAX_FLUSHES: u16 = 0xFFFF;

/// Where a logged core has the mode, its bits for the kind, and those of a directory.
const MODE: usize = 2;
const MODE_KIND: u16 = 0o170_000;
const MODE_DIRECTORY: u16 = 0o040_000;

/// An inode's description.
struct InodeItem<'a> {
    item: Item<'a>,
    fields: u32,
    ino: Ino,
    device: u32,
    buffer: BufferKey,
    /// Byte within the buffer.
    offset: u32,
}

/// What came of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Replayed,
    /// What lies there is newer.
    Newer,
    /// The inode's buffer was freed later on.
    Freed,
}

/// Makes the change that an item describes.
///
/// # Errors
/// `Corrupt` when the inode cannot be there or is not what the log says; `Io`.
pub(super) fn replay(
    item: Item<'_>,
    target: &mut Target,
    cancelled: &Cancelled,
    lsn: Lsn,
) -> Result<Outcome> {
    let logged = InodeItem::of(item).map_err(|what| crate::error::corrupt(STRUCTURE, what))?;
    if cancelled.holds(logged.buffer) {
        return Ok(Outcome::Freed);
    }
    let superblock = Arc::clone(&target.superblock);
    logged.check_place(&superblock).map_err(|what| logged.corrupt(what))?;
    let mut inode = vec![0; superblock.geometry().inode_bytes() as usize];
    let (daddr, sectors) = logged.buffer;
    let at = u64::from(logged.offset);
    if at + inode.len() as u64 > target.buffer_bytes(daddr, sectors)? as u64 {
        return Err(logged.corrupt("reaches past its buffer".into()));
    }
    target.read_bytes(daddr.byte() + at, &mut inode)?;
    if be16(&inode, 0) != INODE_MAGIC {
        return Err(logged.corrupt("has no inode where it belongs".into()));
    }
    let outcome = logged.apply(&mut inode, &superblock, lsn)?;
    if outcome == Outcome::Replayed {
        target.write(daddr.byte() + at, &inode)?;
    }
    Ok(outcome)
}

/// The number of the inode that an item changes, if that is a directory.
pub(super) fn directory(item: Item<'_>) -> Option<Ino> {
    let is_directory = item.region(1).is_some_and(|core| le16(core, MODE) & MODE_KIND == MODE_DIRECTORY);
    InodeItem::of(item).ok().filter(|_| is_directory).map(|logged| logged.ino)
}

impl<'a> InodeItem<'a> {
    fn of(item: Item<'a>) -> Verdict<Self> {
        let description = item.description();
        // 32-bit hosts leave the padding before the number out.
        let shift = match description.len() {
            56 => 0,
            52 => 4,
            other => return Err(format!("has a description of {other} bytes").into()),
        };
        let (ino, device) = (le64(description, 16 - shift), le32(description, 24 - shift));
        let daddr = Daddr(le64(description, 40 - shift));
        let [sectors, offset] = [48, 52].map(|at| le32(description, at - shift));
        Ok(Self {
            item,
            fields: le32(description, 4),
            ino: Ino(ino),
            device,
            buffer: (daddr, sectors),
            offset,
        })
    }

    fn corrupt(&self, what: std::borrow::Cow<'static, str>) -> Error {
        corrupt_inode(STRUCTURE, self.ino, None, what)
    }

    /// The buffer and the place in it must be those of the inode's number.
    fn check_place(&self, superblock: &Superblock) -> Verdict<()> {
        let (daddr, _) = self.buffer;
        let geometry = superblock.geometry();
        let place =
            geometry.inode_place(self.ino).and_then(|(block, at)| Some(geometry.byte(block)? + at as u64));
        let logged = daddr.byte().checked_add(u64::from(self.offset));
        if place.is_none() || place != logged {
            return Err(
                format!("is said to lie at byte {} of the buffer at sector {daddr}", self.offset).into()
            );
        }
        Ok(())
    }

    fn apply(&self, inode: &mut [u8], superblock: &Superblock, lsn: Lsn) -> Result<Outcome> {
        let core = self.item.region(1).unwrap_or_default();
        let has_v3 = superblock.features().has_crc();
        let expected = if has_v3 { CORE_V3 } else { CORE_V2 };
        if core.len() != expected || le16(core, 0) != INODE_MAGIC {
            return Err(self.corrupt(format!("has a core of {} bytes, not {expected}", core.len()).into()));
        }
        let versions = if has_v3 { 3..=3 } else { 1..=2 };
        if !versions.contains(&core[4]) {
            return Err(self.corrupt(format!("has a core of version {}", core[4]).into()));
        }
        if has_v3 {
            let there = Lsn(be64(inode, 112));
            // Of an inode that a write left in part the position says nothing.
            let is_newer = there != Lsn(0) && there != Lsn::NULL && there > lsn;
            if is_newer && crc::verify(inode, INODE_CRC).is_ok() {
                return self.newer();
            }
        } else {
            let (there, logged) = (be16(inode, 30), le16(core, 30));
            let wrapped = there == MAX_FLUSHES && logged < MAX_FLUSHES >> 1;
            if logged < there && !wrapped {
                return self.newer();
            }
        }
        self.check_core(core, superblock).map_err(|what| self.corrupt(what))?;
        write_core(core, inode, lsn);
        self.write_forks(inode).map_err(|what| self.corrupt(what))?;
        self.refuse_owner_change()?;
        if has_v3 {
            crc::seal(inode, INODE_CRC);
        }
        Ok(Outcome::Replayed)
    }

    fn newer(&self) -> Result<Outcome> {
        self.refuse_owner_change()?;
        Ok(Outcome::Newer)
    }

    /// A defragmentation that exchanged two files' B+trees changes the owner of each of their blocks, also where the
    /// inode is newer.
    fn refuse_owner_change(&self) -> Result<()> {
        if self.fields & part::OWNER_CHANGED == 0 {
            return Ok(());
        }
        let what = format!(
            "a log with an exchange of extents by defragmentation (xfs_fsr) of inode {}: mount the filesystem once",
            self.ino.0
        );
        Err(Error::Unsupported(what.into()))
    }

    fn check_core(&self, core: &[u8], superblock: &Superblock) -> Verdict<()> {
        let (mode, format) = (le16(core, 2), core[5]);
        let possible = match mode & 0o170_000 {
            0o100_000 => matches!(format, fork_format::EXTENTS | fork_format::BTREE),
            0o040_000 => (fork_format::LOCAL..=fork_format::BTREE).contains(&format),
            _ => true,
        };
        if !possible {
            return Err(format!("of mode {mode:o} has a data fork of format {format}").into());
        }
        let blocks = le64(core, 64);
        let (extents, attribute_extents) = if is_nrext64(core) {
            (le64(core, 24), u64::from(le32(core, 76)))
        } else {
            (u64::from(le32(core, 76)), u64::from(le16(core, 80)))
        };
        if extents.saturating_add(attribute_extents) > blocks {
            return Err(format!("has {extents} and {attribute_extents} extents in {blocks} blocks").into());
        }
        let fork_offset = usize::from(core[82]) * 8;
        let room = superblock.geometry().inode_bytes() as usize - fork_start(core[4]);
        if fork_offset >= room {
            return Err(format!("has its attribute fork {fork_offset} bytes in, of {room}").into());
        }
        Ok(())
    }

    fn write_forks(&self, inode: &mut [u8]) -> Verdict<()> {
        let start = fork_start(inode[4]);
        let header_bytes = if inode[4] >= 3 { 72 } else { 24 };
        let fork_offset = usize::from(inode[82]) * 8;
        let (data_format, attribute_format) = (inode[5], inode[83]);
        let (_, forks) = inode.split_at_mut(start);
        let (data, attributes) = forks.split_at_mut(if fork_offset == 0 { forks.len() } else { fork_offset });
        if self.fields & part::DEVICE != 0 {
            data.first_chunk_mut::<4>()
                .ok_or("has no room for a device number")?
                .copy_from_slice(&self.device.to_be_bytes());
        }
        let mut region = 2;
        for (logged, root, format, fork) in [
            (self.fields & part::DATA_FORK, part::DATA_ROOT, data_format, data),
            (self.fields & part::ATTRIBUTE_FORK, part::ATTRIBUTE_ROOT, attribute_format, attributes),
        ] {
            if logged == 0 {
                continue;
            }
            if !logged.is_power_of_two() {
                return Err(format!("is logged with the parts {:#x}", self.fields).into());
            }
            let Some(bytes) = self.item.region(region) else {
                // Only forks that have content are logged as regions.
                break;
            };
            region += 1;
            if logged == root {
                if format != fork_format::BTREE {
                    return Err(format!("has the root of a tree for a fork of format {format}").into());
                }
                write_root(bytes, header_bytes, fork)?;
            } else {
                let room = fork.len();
                fork.get_mut(..bytes.len())
                    .ok_or_else(|| format!("has {} bytes for a fork of {room}", bytes.len()))?
                    .copy_from_slice(bytes);
            }
        }
        Ok(())
    }
}

fn fork_start(version: u8) -> usize {
    if version >= 3 { FORK_V3 } else { FORK_V2 }
}

fn is_nrext64(core: &[u8]) -> bool {
    core[4] >= 3 && le64(core, 120) & FLAG2_NREXT64 != 0
}

/// Writes a core as it was in the host's memory to where it lies on the disk. What orders or checks the inode there is
/// not the host's, and stays or gets the log's.
fn write_core(core: &[u8], inode: &mut [u8], lsn: Lsn) {
    let version = core[4];
    let mut swap = |at: usize, len: usize| {
        let field = &mut inode[at..at + len];
        field.copy_from_slice(&core[at..at + len]);
        field.reverse();
    };
    // Magic and mode, user, group and links, both parts of the project, size, blocks and the extent size.
    for (at, len) in [(0, 2), (2, 2), (8, 4), (12, 4), (16, 4), (20, 2), (22, 2), (56, 8), (64, 8), (72, 4)] {
        swap(at, len);
    }
    // Event mask and state, flags, generation.
    for (at, len) in [(84, 4), (88, 2), (90, 2), (92, 4)] {
        swap(at, len);
    }
    let has_bigtime = version >= 3 && le64(core, 120) & FLAG2_BIGTIME != 0;
    let times: &[usize] = if version >= 3 { &[32, 40, 48, 144] } else { &[32, 40, 48] };
    for &at in times {
        if has_bigtime {
            swap(at, 8);
        } else {
            swap(at, 4);
            swap(at + 4, 4);
        }
    }
    if is_nrext64(core) {
        swap(24, 8);
        swap(76, 4);
        swap(80, 2);
    } else {
        swap(76, 4);
        swap(80, 2);
    }
    if version >= 3 {
        for (at, len) in [(104, 8), (120, 8), (128, 4), (152, 8)] {
            swap(at, len);
        }
        inode[112..120].copy_from_slice(&lsn.0.to_be_bytes());
        inode[132..144].fill(0);
        inode[160..176].copy_from_slice(&core[160..176]);
    }
    // Version and format, and the fork's offset and format, are bytes; the old count of links is unused.
    inode[4..6].copy_from_slice(&core[4..6]);
    inode[6..8].fill(0);
    inode[82..84].copy_from_slice(&core[82..84]);
    if !is_nrext64(core) {
        // In version 3 padding. Before, the counter of flushes starts over.
        inode[24..32].fill(0);
    }
}

/// Writes the root of a B+tree, which is a whole block in memory, into a fork: its level and count, keys and pointers.
fn write_root(block: &[u8], header_bytes: usize, fork: &mut [u8]) -> Verdict<()> {
    if block.len() < header_bytes || fork.len() < 4 {
        return Err(format!("has a root of {} bytes for a fork of {}", block.len(), fork.len()).into());
    }
    let records = usize::from(be16(block, 6));
    let room_there = (block.len() - header_bytes) / 16;
    let room_here = (fork.len() - 4) / 16;
    if records > room_there || records > room_here {
        return Err(format!(
            "has a root of {records} records in {} bytes, and room for {room_here}",
            block.len()
        )
        .into());
    }
    fork[..4].copy_from_slice(&block[4..8]);
    let bytes = records * 8;
    fork[4..4 + bytes].copy_from_slice(&block[header_bytes..][..bytes]);
    fork[4 + room_here * 8..][..bytes].copy_from_slice(&block[header_bytes + room_there * 8..][..bytes]);
    Ok(())
}
