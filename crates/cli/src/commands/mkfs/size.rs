//! The smallest filesystem that holds what it is filled with.
//!
//! The filling is rehearsed without content, on a filesystem that is larger than needed, in a scratch file that takes only the
//! room of its metadata. What it took there it takes in a smaller one: the smallest is the one in which, by mkfs's own
//! arithmetic, as much is free. A filesystem that turns out to be too small, or to have less free than asked for, because its space
//! lies in more pieces, is made again a little larger.

use std::env::temp_dir;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use undercroft_block::{Device, FileDevice, FileOptions, MemoryDevice};
use undercroft_diskfs::mkfs::MkfsError;
use undercroft_ext4 as ext4;
use undercroft_xfs as xfs;

use super::fill::{FillFailure, Filling, Used};
use super::whole::NewImage;
use super::{Contents, Made};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::plan::{FillPlan, Free, MkfsPlan, NewFormat};
use crate::text::names::safe;

/// Sizes on which a rehearsal is tried. On the first, a few groups of ext4, directories lie between files, and come to be in
/// more pieces than in a larger filesystem, which has groups for directories: a little more than needed is counted. The second
/// has room for 4 million files of ext4.
const REHEARSED_BYTES: [u64; 4] = [256 << 20, 64 << 30, 1 << 40, MOST_BYTES];

/// More than the largest of them is not tried.
const MOST_BYTES: u64 = 15 << 40;

/// Sizes are tried in steps of this.
const STEP_BYTES: u64 = 4096;

/// Of this size a filesystem is neither small nor big: sizes that mkfs takes by a filesystem's size are taken as of this.
const MIDDLING_BYTES: u64 = 1 << 30;

/// XFS is not made smaller, unless that is asked for.
const XFS_BYTES: u64 = 300 << 20;

/// A file without a name, of the size of the metadata, on which filling is rehearsed.
pub(super) struct Scratch {
    file: File,
    /// The directory whose space it takes.
    directory: PathBuf,
}

impl Scratch {
    pub(super) fn in_directory(directory: &Path) -> Result<Self, Failure> {
        let shown = safe(directory.as_os_str().as_bytes());
        let file = tempfile::tempfile_in(directory)
            .map_err(|error| Failure::host(format!("cannot make a file in {shown}"), &error))?;
        Ok(Self { file, directory: directory.to_owned() })
    }

    /// An empty device of this size in it.
    fn device(&self, size: u64) -> Result<Device, Failure> {
        let shown = format!("the scratch file in {}", safe(self.directory.as_os_str().as_bytes()));
        let sized = self.file.set_len(0).and_then(|()| self.file.set_len(size));
        sized.map_err(|error| Failure::host(format!("cannot make {shown} larger"), &error))?;
        // It has no other name.
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let device = FileDevice::open(path, FileOptions::read_write())
            .map_err(|error| Failure::of(Kind::Host, &error))?;
        Ok(Arc::new(device.shown_as(shown)))
    }
}

/// What a new filesystem has room for.
#[derive(Clone, Copy, Debug)]
struct Room {
    blocks: u64,
    inodes: u64,
    /// Inodes that it has for itself.
    own_inodes: u64,
    /// Those that ordinary users may take, of `blocks`.
    available: u64,
    block_bytes: u64,
}

impl Room {
    /// Of a filesystem that would be made.
    fn of(options: &NewFormat, size: u64) -> Result<Self, MkfsError> {
        let device = MemoryDevice::new(size);
        Ok(match options {
            NewFormat::Ext(options) => {
                let made = ext4::plan_mkfs(&device, options)?;
                let geometry = made.superblock.geometry();
                let blocks = made.free_blocks();
                Self {
                    blocks,
                    inodes: made.free_inodes().into(),
                    own_inodes: geometry.inodes().saturating_sub(made.free_inodes()).into(),
                    available: blocks.saturating_sub(geometry.reserved_blocks()),
                    block_bytes: geometry.block_bytes().into(),
                }
            }
            NewFormat::Xfs(options) => {
                let made = xfs::plan_mkfs(&device, options)?;
                let superblock = &made.superblock;
                let blocks = superblock.free_blocks();
                // The groups' own trees have room set aside.
                let blocks = blocks - blocks / 64;
                Self {
                    blocks,
                    // Made as they are needed.
                    inodes: u64::MAX,
                    own_inodes: 0,
                    available: blocks,
                    block_bytes: superblock.geometry().block_bytes().into(),
                }
            }
        })
    }

    /// Whether what was used fits, and leaves as much as is asked for.
    fn fits(&self, used: Used, free: Free, size: u64) -> bool {
        let wanted = free.bytes_of(size);
        let left = if wanted == 0 { self.blocks } else { self.available };
        self.inodes >= used.inodes && left >= used.blocks.saturating_add(wanted.div_ceil(self.block_bytes))
    }
}

/// Makes and fills the smallest filesystem that holds the sources.
pub(super) fn smallest(
    plan: &MkfsPlan,
    fill: &FillPlan,
    filling: &mut Filling,
    new: &NewImage,
    scratch: &Scratch,
) -> Result<(Made, Contents), Failure> {
    let mut plan = plan.clone();
    fix_blocks(&mut plan.options)?;
    let used = rehearse(&with_inodes(&plan.options, None), filling, scratch)
        .map_err(|failure| with_advice(failure, "make room there, or give the image's `--size`"))?;
    if let NewFormat::Ext(options) = &mut plan.options
        && options.inodes.is_none()
        && options.bytes_per_inode.is_none()
    {
        options.inodes = Some(inodes_for(used, fill.free));
    } else {
        refuse_few_inodes(&filling.at_its_time(&plan.options), used, fill.free)?;
    }
    let mut size = least_size(&filling.at_its_time(&plan.options), used, fill.free)?;
    let mut more = (size / 4096).max(STEP_BYTES);
    loop {
        let short_of = match new.fill(&plan, filling, size) {
            Err(FillFailure::NoSpace) if size < MOST_BYTES => 0,
            made => {
                let (made, contents) = made?;
                let short_of = fill.free.bytes_of(size).saturating_sub(contents.available_bytes);
                if short_of == 0 || size >= MOST_BYTES {
                    return Ok((made, contents));
                }
                short_of
            }
        };
        size = (size + more.max(short_of)).next_multiple_of(STEP_BYTES);
        more *= 2;
    }
}

/// The same with another number of inodes; `None` leaves it to mkfs.
fn with_inodes(options: &NewFormat, inodes: Option<u32>) -> NewFormat {
    let mut options = options.clone();
    if let NewFormat::Ext(options) = &mut options {
        options.inodes = inodes;
    }
    options
}

/// Refuses a number of inodes that is too small for the sources: every group has some more than asked for, so a filesystem
/// many times as large as its content would have enough of them.
fn refuse_few_inodes(options: &NewFormat, used: Used, free: Free) -> Result<(), Failure> {
    let NewFormat::Ext(ext4::MkfsOptions { inodes: Some(inodes), .. }) = options else { return Ok(()) };
    let size = least_size(options, Used { inodes: 0, ..used }, free)?;
    let room = Room::of(options, size).map_err(|error| Failure::of(Kind::of_mkfs(&error), &error))?;
    if room.inodes >= used.inodes {
        return Ok(());
    }
    let needed = used.inodes + room.own_inodes;
    let what = format!("{inodes} inodes are too few: the sources need {needed}");
    Err(Failure::new(Kind::Usage, what).advise(format!("give `-N {needed}`, or leave `-N` off")))
}

/// The size from which on a filesystem of this kind holds the sources, as far as mkfs's arithmetic tells.
pub(crate) fn least_bytes(options: &NewFormat, filling: &mut Filling) -> Result<u64, Failure> {
    let used = rehearse(options, filling, &Scratch::in_directory(&temp_dir())?)?;
    let least = least_size(&filling.at_its_time(options), used, Free::Nothing)?;
    // It is not made again if its space should lie in more pieces.
    Ok(least.saturating_add(least / 256).next_multiple_of(STEP_BYTES))
}

/// The sizes that mkfs takes by the filesystem's size would change with it.
pub(crate) fn fix_blocks(options: &mut NewFormat) -> Result<(), Failure> {
    if let NewFormat::Ext(options) = options {
        let bytes = options.block_bytes_at(MIDDLING_BYTES);
        options.block_bytes = Some(bytes.map_err(|error| Failure::of(Kind::of_mkfs(&error), &error))?);
    }
    Ok(())
}

fn least_size(options: &NewFormat, used: Used, free: Free) -> Result<u64, Failure> {
    let least = match options {
        NewFormat::Xfs(options) if !options.small => XFS_BYTES,
        _ => 0,
    };
    search(least, |size| Room::of(options, size).is_ok_and(|room| room.fits(used, free, size)))
        .ok_or_else(|| Failure::new(Kind::Usage, "no filesystem with these options holds the sources"))
}

/// What filling takes.
fn rehearse(options: &NewFormat, filling: &mut Filling, scratch: &Scratch) -> Result<Used, Failure> {
    for size in REHEARSED_BYTES {
        if size < REHEARSED_BYTES[1] && Room::of(options, size).is_err() {
            continue;
        }
        match filling.rehearse(&scratch.device(size)?, options) {
            Err(FillFailure::NoSpace) => {}
            used => return Ok(used?),
        }
    }
    Err(FillFailure::NoSpace.into())
}

/// What to do where the scratch file failed: of a rehearsal no other device can.
pub(crate) fn with_advice(failure: Failure, advice: &str) -> Failure {
    if failure.kind() == Kind::Io { failure.advise(advice) } else { failure }
}

/// How many inodes a filesystem needs that has room for more than the sources.
fn inodes_for(used: Used, free: Free) -> u32 {
    // Those that every filesystem of the family has for itself.
    let own = 16;
    let more = match free {
        Free::Nothing => 0,
        Free::Percent(percent) => (used.inodes as f64 * percent / (100.0 - percent)) as u64,
        Free::Bytes(bytes) => bytes / 16384,
    };
    u32::try_from(used.inodes + own + more).unwrap_or(u32::MAX)
}

/// The smallest size, from `least` on, for which `fits` holds and does not for one step less.
fn search(least: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    let mut too_small = least.div_ceil(STEP_BYTES).max(1) - 1;
    let mut step = 256;
    let mut large = loop {
        let tried = too_small + step;
        if fits(tried * STEP_BYTES) {
            break tried;
        }
        if tried * STEP_BYTES > MOST_BYTES {
            return None;
        }
        too_small = tried;
        step *= 2;
    };
    while large - too_small > 1 {
        let middle = too_small + (large - too_small) / 2;
        if fits(middle * STEP_BYTES) {
            large = middle;
        } else {
            too_small = middle;
        }
    }
    Some(large * STEP_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_at_the_smallest_size() {
        for wanted in [1, 2, 255, 256, 257, 100_000] {
            assert_eq!(search(0, |size| size >= wanted * STEP_BYTES), Some(wanted * STEP_BYTES));
        }
        assert_eq!(search(300 << 20, |_| true), Some(300 << 20));
        assert_eq!(search(0, |_| false), None);
    }
}
