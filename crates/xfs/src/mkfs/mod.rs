//! Making a filesystem, of version 5 with an internal log.
//!
//! | module | what it decides |
//! | --- | --- |
//! | `options`, `arguments`, `features` | what was asked for, and whether it can be made |
//! | `units`, `stripes`, `division`, `log_size`, `shape` | sizes and counts |
//! | `groups` | each allocation group: its headers, the roots of its trees, what is free |
//! | `superblock`, `inodes`, `log` | the bytes of everything else |
//! | `writer` | writing |
//!
//! The same arguments and UUID make what mkfs.xfs 6.1 makes, byte for byte, apart from the times of three inodes. The
//! root directory is empty.
//!
//! Everything is decided before the first byte is written. Then the marks of what was on the device are erased,
//! everything but the primary superblock is written and flushed, and the primary superblock is written last: a crash leaves
//! no recognizable filesystem, or the complete one.
//!
//! Uses no locks; the device must not be in use otherwise. Left out: version 4, real-time sections, external logs,
//! names in which case does not count, and prototype files.

mod arguments;
mod division;
mod features;
mod groups;
mod inodes;
mod log;
mod log_size;
mod options;
mod shape;
mod stripes;
mod superblock;
#[cfg(test)]
mod tests;
mod units;
mod writer;

use std::time::{SystemTime, UNIX_EPOCH};

use undercroft_block::BlockDevice;
use undercroft_diskfs::mkfs::{MkfsError, random_uuid, refuse, what_is_on};
use undercroft_vfs::Timestamp;
use uuid::Uuid;

use crate::format::{Geometry, Superblock};
use division::GROUP_MIN_BYTES;
pub(crate) use groups::{Form, Group};
pub use options::{Groups, MkfsOptions, Stripe};
use shape::Shape;
use writer::Writer;

/// So much of the device's beginning and end is zeroed: no known mark lies farther in.
const MARKS_BYTES: u64 = 128 << 10;

/// A filesystem that was made, or that would be.
#[derive(Clone, Debug)]
pub struct NewFilesystem {
    /// Its superblock, as it was written.
    pub superblock: Superblock,
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
    draft.write(device, options)?;
    Ok(NewFilesystem { superblock: draft.superblock })
}

/// What [`mkfs`] would make, whatever the device holds. Writes nothing.
///
/// # Errors
/// [`MkfsError::Refused`], if what was asked for cannot be made.
pub fn plan_mkfs(device: &dyn BlockDevice, options: &MkfsOptions) -> Result<NewFilesystem, MkfsError> {
    Ok(NewFilesystem { superblock: Draft::make(device, options)?.superblock })
}

/// A filesystem that is decided and not written yet.
struct Draft {
    shape: Shape,
    uuid: Uuid,
    first_group: Group,
    root: u32,
    superblock: Superblock,
}

impl Draft {
    fn make(device: &dyn BlockDevice, options: &MkfsOptions) -> Result<Self, MkfsError> {
        let shape = Shape::decide(options, device)?;
        let uuid = options.uuid.map_or_else(random_uuid, Ok)?;
        let no_room = "the first allocation group has no room for the root directory";
        let Some(first_group) = Group::plan(&shape, 0) else { return refuse(no_room) };
        let Some(inodes) = &first_group.inodes else { return refuse(no_room) };
        if inodes.start != shape.first_inodes_expected() {
            return refuse(
                "the log's stripe unit leaves a gap where xfs_repair would not look for the root directory",
            );
        }
        let root = inodes.start << (shape.block_log - shape.inode_log);
        let raw = superblock::primary(&shape, uuid, &options.label, root);
        let superblock = Superblock::from_sector(&superblock::sector(&shape, &raw))
            .map_err(|error| MkfsError::Refused(format!("what was asked for cannot be made: {error}")))?;
        Ok(Self { shape, uuid, first_group, root, superblock })
    }

    fn write(&self, device: &dyn BlockDevice, options: &MkfsOptions) -> Result<(), MkfsError> {
        let shape = &self.shape;
        let group_bytes = u64::from(shape.group_blocks) << shape.block_log;
        let log = u64::from(shape.log_group) * group_bytes + (u64::from(shape.log_start) << shape.block_log);
        if !options.device_is_zeroed {
            erase(device, shape, options.discard)?;
            device.write_zeroes(log, u64::from(shape.log_blocks) << shape.block_log)?;
        }
        let primary = superblock::sector(shape, self.superblock.raw());
        let mut writer = Writer::new(device);
        // The first sector stays zero until the end.
        let mut first = self.first_group.encode(&shape.form(), self.uuid, &primary);
        writer.write(primary.len() as u64, first.split_off(primary.len()))?;
        let inodes = inodes::encode(shape, self.uuid, self.root, now(options));
        writer.write(u64::from(self.root) << shape.inode_log, inodes)?;
        writer.write(log, log::encode(shape, self.uuid))?;
        for number in 1..shape.groups {
            let raw = superblock::secondary(shape, self.superblock.raw(), number);
            if let Some(group) = Group::plan(shape, number) {
                let bytes = group.encode(&shape.form(), self.uuid, &superblock::sector(shape, &raw));
                writer.write(u64::from(number) * group_bytes, bytes)?;
            }
        }
        writer.finish()?;
        device.write_at(0, &primary)?;
        device.flush()?;
        Ok(())
    }
}

fn now(options: &MkfsOptions) -> Timestamp {
    options.time.unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp { seconds: since.as_secs().cast_signed(), nanoseconds: since.subsec_nanos() }
    })
}

/// Erases the marks of what was on the device, so that a crash does not leave an old filesystem that is recognized, and
/// the copies of an old superblock, so that xfs_repair does not take them for the new one's.
fn erase(device: &dyn BlockDevice, shape: &Shape, discard: bool) -> Result<(), MkfsError> {
    let old = Superblock::read(device).ok();
    let size = device.size_bytes();
    if discard {
        device.discard(0, shape.blocks << shape.block_log)?;
    }
    let group_bytes = |geometry: &&Geometry| u64::from(geometry.ag_blocks()) << geometry.block_log();
    // No tool makes smaller groups; a superblock that says so is not worth a write for each.
    let old = old.as_ref().map(Superblock::geometry).filter(|old| group_bytes(old) >= GROUP_MIN_BYTES);
    if let Some(geometry) = old {
        let group_bytes = group_bytes(&geometry);
        for group in 1..geometry.ag_count() {
            device.write_zeroes(u64::from(group) * group_bytes, geometry.sector_bytes().into())?;
        }
    }
    let ends = MARKS_BYTES.min(size);
    device.write_zeroes(0, ends)?;
    device.write_zeroes(size - ends, ends)?;
    device.flush()?;
    Ok(())
}
