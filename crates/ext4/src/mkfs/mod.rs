//! Making a filesystem.
//!
//! | module | what it decides |
//! | --- | --- |
//! | `options`, `number`, `features` | what was asked for, and whether it can be made |
//! | `conf` | what was not asked for: mke2fs.conf(5) |
//! | `shape` | sizes and counts |
//! | `tables`, `space` | where each group's bitmaps and inode tables lie, and what is left |
//! | `files`, `inode` | the root directory and the filesystem's own files |
//! | `groups` | descriptors and bitmaps |
//! | `writer` | what is written, and writing it |
//!
//! Everything is decided in memory before the first byte is written. Then the marks of what was on the device are
//! erased, everything but the primary superblock is written and flushed, and the primary superblock is written last: a
//! crash leaves no recognizable filesystem, or the complete one.
//!
//! Uses no locks; the device must not be in use otherwise. Left out: quota files, external journals, and lists of
//! bad blocks.

mod conf;
mod features;
mod files;
mod groups;
mod inode;
mod number;
mod options;
mod shape;
mod space;
mod tables;
#[cfg(test)]
mod tests;
mod writer;

use std::time::{SystemTime, UNIX_EPOCH};

use undercroft_block::BlockDevice;
use undercroft_diskfs::mkfs::{MkfsError, what_is_on};
use undercroft_vfs::Timestamp;
use zerocopy::IntoBytes;

pub use conf::{ConfError, Mke2fsConf};
use files::Files;
use groups::{InodeUse, Totals};
pub(crate) use groups::{describe_unused, encode};
use inode::NewInode;
pub use number::c_number;
pub use options::{Amount, Family, MkfsOptions};
use shape::Shape;
pub(crate) use shape::{orphan_file_blocks, usual_journal_blocks};
pub(crate) use space::Space;
pub(crate) use tables::{Tables, base_blocks, place};
pub(crate) use writer::Planned;

use crate::checksum::crc32c;
use crate::numbers::Group;
use crate::superblock::{Geometry, RawSuperblock, SUPERBLOCK_OFFSET, Superblock};

/// The first inode that is not reserved.
const FIRST_INODE: u32 = 11;
const LOST_AND_FOUND_INODE: u32 = FIRST_INODE;
const ORPHAN_FILE_INODE: u32 = FIRST_INODE + 1;
/// What inodes larger than 128 bytes use of the rest for their own fields.
const EXTRA_INODE_BYTES: u16 = 32;
/// So much of the device's beginning and end is zeroed: no known mark lies farther in.
const MARKS_BYTES: u64 = 128 << 10;

/// A filesystem that was made.
#[derive(Clone, Debug)]
pub struct NewFilesystem {
    /// Its superblock, as it was written.
    pub superblock: Superblock,
    /// Blocks of the journal; 0 without one.
    pub journal_blocks: u32,
    /// The blocks at which copies of the superblock lie.
    pub backups: Vec<u64>,
}

impl NewFilesystem {
    /// Blocks that are free, those that are kept for the superuser among them.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        let raw = self.superblock.raw();
        u64::from(raw.s_free_blocks_count_hi.get()) << 32 | u64::from(raw.s_free_blocks_count_lo.get())
    }

    /// Inodes that are free.
    #[must_use]
    pub fn free_inodes(&self) -> u32 {
        self.superblock.raw().s_free_inodes_count.get()
    }
}

/// Makes a filesystem on a device.
///
/// # Errors
/// [`MkfsError`]: something is on the device that may not be overwritten, what was asked for cannot be made, or the
/// device failed.
pub fn mkfs(device: &dyn BlockDevice, options: &MkfsOptions) -> Result<NewFilesystem, MkfsError> {
    if !options.overwrite
        && let Some(what) = what_is_on(device, &mut |_| {})?
    {
        return Err(MkfsError::Present { device: device.name(), what });
    }
    let draft = Draft::make(device, options)?;
    draft.write(device, options)
}

fn now(options: &MkfsOptions) -> Timestamp {
    options.time.unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp { seconds: since.as_secs().cast_signed(), nanoseconds: 0 }
    })
}

/// What [`mkfs`] would make, whatever the device holds. Writes nothing.
///
/// # Errors
/// [`MkfsError::Refused`], if what was asked for cannot be made.
pub fn plan_mkfs(device: &dyn BlockDevice, options: &MkfsOptions) -> Result<NewFilesystem, MkfsError> {
    let Draft { superblock, journal_blocks, .. } = Draft::make(device, options)?;
    let backups = backups(superblock.geometry()).map(|(_, block)| block).collect();
    Ok(NewFilesystem { superblock, journal_blocks, backups })
}

/// A filesystem that is decided and not written yet.
struct Draft {
    superblock: Superblock,
    planned: Planned,
    descriptors: Vec<u8>,
    journal_blocks: u32,
    discard: bool,
}

impl Draft {
    fn make(device: &dyn BlockDevice, options: &MkfsOptions) -> Result<Self, MkfsError> {
        let shape = Shape::decide(options, device)?;
        let time = now(options);
        let mut raw = shape.superblock.clone();
        let superblock = validate(&mut raw, device)?;
        let geometry = superblock.geometry();
        let mut space = Space::new(geometry.blocks(), u64::from(geometry.blocks_per_cluster()));
        let mut planned = Planned::default();
        let tables = tables::place(&superblock, &mut space, Group(0))?;
        let taken_by_groups = space.clusters_taken(u64::from(geometry.first_data_block()));
        let mut files =
            Files { superblock: &superblock, space: &mut space, planned: &mut planned, inodes: Vec::new() };
        files.make(&shape, &mut raw, options.root_owner, time)?;
        let inodes = files.inodes;
        let used = files::used_inodes(&shape);
        let lazy = shape.lazy_inode_tables && shape.chosen.has_group_checksums();
        let inode_use = InodeUse { used, tables_are_zeroed: options.device_is_zeroed || !lazy };
        let totals =
            groups::describe(&superblock, &space, Group(0), &tables, &inodes, inode_use, &mut planned);
        plan_inodes(&superblock, &tables, &inodes, inode_use, time, &mut planned);
        let overhead = files::overhead_clusters(&superblock, taken_by_groups, shape.journal_blocks);
        let Totals { free_clusters, free_inodes, details } = totals;
        let descriptors = groups::encode(&superblock, Group(0), &details);
        let free_blocks = free_clusters * u64::from(geometry.blocks_per_cluster());
        raw.s_free_blocks_count_lo.set(free_blocks as u32);
        raw.s_free_blocks_count_hi.set((free_blocks >> 32) as u32);
        raw.s_free_inodes_count.set(free_inodes);
        // A count that does not fit its 32 bits is left for Linux to work out.
        raw.s_overhead_clusters.set(u32::try_from(overhead).unwrap_or(0));
        let superblock = validate(&mut raw, device)?;
        let Shape { journal_blocks, discard, .. } = shape;
        Ok(Self { superblock, planned, descriptors, journal_blocks, discard })
    }

    fn write(self, device: &dyn BlockDevice, options: &MkfsOptions) -> Result<NewFilesystem, MkfsError> {
        let Self { superblock, planned, descriptors, journal_blocks, discard } = self;
        let geometry = superblock.geometry();
        let block_bytes = u64::from(geometry.block_bytes());
        if !options.device_is_zeroed {
            erase(device, geometry.blocks() * block_bytes, discard)?;
        }
        planned.carry_out(device, block_bytes, options.device_is_zeroed)?;
        write_descriptors(device, &superblock, &descriptors)?;
        for (group, block) in backups(geometry) {
            let mut copy = superblock.raw().clone();
            copy.s_block_group_nr.set(group.0 as u16);
            seal(&mut copy, superblock.has_metadata_checksums());
            device.write_at(block * block_bytes, copy.as_bytes())?;
        }
        device.flush()?;
        device.write_at(SUPERBLOCK_OFFSET, superblock.raw().as_bytes())?;
        device.flush()?;
        let backups = backups(geometry).map(|(_, block)| block).collect();
        Ok(NewFilesystem { superblock, journal_blocks, backups })
    }
}

/// The groups that begin with copies of the superblock, and where those lie.
fn backups(geometry: &Geometry) -> impl Iterator<Item = (Group, u64)> {
    let groups = (1..geometry.groups()).map(Group).filter(|&group| geometry.has_superblock(group));
    groups.map(|group| (group, geometry.group_start(group).0))
}

/// Completes a superblock's checksum and has it validated as a reader would.
fn validate(raw: &mut RawSuperblock, device: &dyn BlockDevice) -> Result<Superblock, MkfsError> {
    let checked = raw.s_feature_ro_compat.get() & crate::features::RoCompat::METADATA_CSUM.bits() != 0;
    seal(raw, checked);
    Superblock::from_raw(raw.clone(), device.size_bytes())
        .map_err(|error| MkfsError::Refused(format!("what was asked for cannot be made: {error}")))
}

fn seal(raw: &mut RawSuperblock, checked: bool) {
    if checked {
        let sum = crc32c(!0, &raw.as_bytes()[..size_of::<RawSuperblock>() - 4]);
        raw.s_checksum.set(sum);
    }
}

/// Erases the marks of what was on the device, so that a crash does not leave an old filesystem that is recognized.
fn erase(device: &dyn BlockDevice, size: u64, discard: bool) -> Result<(), MkfsError> {
    if discard {
        device.discard(0, size)?;
    }
    let ends = MARKS_BYTES.min(size);
    device.write_zeroes(0, ends)?;
    device.write_zeroes(size - ends, ends)?;
    device.flush()?;
    Ok(())
}

/// The used part of each inode table; the rest is zeroed, or never looked at.
fn plan_inodes(
    superblock: &Superblock,
    tables: &[Tables],
    inodes: &[NewInode],
    inode_use: InodeUse,
    time: Timestamp,
    planned: &mut Planned,
) {
    let geometry = superblock.geometry();
    let block_bytes = geometry.block_bytes() as usize;
    let numbers: Vec<u32> = (1..=inode_use.used).collect();
    for (group, table) in tables.iter().enumerate() {
        let blocks = table.inode_table..table.inode_table + u64::from(geometry.inode_table_blocks());
        if inode_use.tables_are_zeroed {
            planned.zero(blocks);
        }
        let first = group * geometry.inodes_per_group() as usize;
        let Some(rest) = numbers.get(first..).filter(|rest| !rest.is_empty()) else { continue };
        let mut bytes = Vec::new();
        for &number in rest.iter().take(geometry.inodes_per_group() as usize) {
            bytes.extend(match inodes.iter().find(|inode| inode.number == number) {
                Some(inode) => inode.encode(superblock, time),
                None => inode::encode_reserved(superblock, number, time),
            });
        }
        bytes.resize(bytes.len().next_multiple_of(block_bytes), 0);
        planned.write(table.inode_table, bytes);
    }
}

/// All copies of the group descriptors.
fn write_descriptors(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    descriptors: &[u8],
) -> Result<(), MkfsError> {
    let geometry = superblock.geometry();
    let block_bytes = u64::from(geometry.block_bytes());
    let per_block = geometry.descriptors_per_block();
    let whole = geometry.descriptor_blocks_before_meta_groups() as usize * block_bytes as usize;
    let (front, in_meta_groups) = descriptors.split_at(whole.min(descriptors.len()));
    if !front.is_empty() {
        for group in (0..geometry.groups()).map(Group).filter(|&group| geometry.has_superblock(group)) {
            let at =
                geometry.group_start(group).0.max(u64::from(geometry.block_bits() == 10 && group.0 == 0));
            device.write_at((at + 1) * block_bytes, front)?;
        }
    }
    for (index, part) in in_meta_groups.chunks(block_bytes as usize).enumerate() {
        let first = index as u32 * per_block;
        let (primary, _) = geometry.descriptor_location(Group(first));
        device.write_at(primary.0 * block_bytes, part)?;
        for group in [first + 1, first + per_block - 1].map(Group) {
            if group.0 < geometry.groups() && group.0 > first {
                let at = geometry.group_start(group).0 + u64::from(geometry.has_superblock(group));
                device.write_at(at * block_bytes, part)?;
            }
        }
    }
    Ok(())
}
