//! The operations of [`Mix::Xfs`](super::Mix::Xfs): each is one that XFS logs in its own way.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, FileType};

use super::{DIRECTORIES, Mix, Worker, consequence, make_or_remove_directory, write};
use crate::dir::Dir;
use crate::error::Context;
use crate::populate::noise;
use crate::{Error, Result};
use undercroft_block::testing::Rng;

/// Names that one directory's files have.
const NAMES: u64 = 60;

/// Pieces of a file that is written in every second block, at most.
const PIECES: u64 = 300;

/// The operations of [`Mix::XfsChains`], by the numbers that [`Worker::operation_of_xfs`] has for them.
const CHAINS: [u64; 16] = [0, 5, 5, 5, 8, 8, 8, 11, 11, 14, 16, 20, 23, 24, 32, 37];

/// The largest filesystem block of these images: places that are multiples of it can be shared and moved.
const UNIT: u64 = 4096;

/// Blocks of a file, about.
const FILE_UNITS: u64 = 60;

impl Worker {
    pub(super) fn operation_of_xfs(&mut self, calm: bool) -> Result<()> {
        let seed = self.random.bits();
        let name = format!("file-{:02}", self.random.below(NAMES));
        let other = format!("file-{:02}", self.random.below(NAMES));
        let dir = if self.random.below(4) == 0 { &self.shared } else { &self.own };
        let random = &mut self.random;
        let kind = match self.options.mix {
            Mix::XfsChains if random.below(20) > 0 => CHAINS[random.index(CHAINS.len())],
            _ => random.below(40),
        };
        let file = match kind {
            0..=2 => Some(dir.file_with(&name, seed, random.below(60_000) as usize)?),
            3 | 4 => Some(write(dir, &name, seed, random.below(250_000), 1 + random.below(20_000))?),
            5..=7 => Some(in_pieces(dir, &name, random)?),
            8..=10 => Some(cut(dir, &name, random)?),
            11..=13 => Some(clone_all(dir, &name, &other)?),
            14 | 15 => Some(clone_part(dir, &name, &other, random)?),
            16 | 17 => Some(write_over(dir, &name, random)?),
            18 => Some(allocate(dir, &name, FallocateFlags::empty(), random)?),
            19 => Some(allocate(dir, &name, FallocateFlags::KEEP_SIZE, random)?),
            20 | 21 => {
                Some(allocate(dir, &name, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, random)?)
            }
            22 => Some(allocate(dir, &name, FallocateFlags::ZERO_RANGE, random)?),
            23 => Some(allocate(dir, &name, FallocateFlags::COLLAPSE_RANGE, random)?),
            24 => Some(allocate(dir, &name, FallocateFlags::INSERT_RANGE, random)?),
            25 => Some(allocate(dir, &name, FallocateFlags::UNSHARE_RANGE, random)?),
            26 | 27 => return attribute(dir, &name, seed, random),
            28 => return remove_attribute(dir, &name, random),
            29 => return dir.link(&name, &self.shared, format!("link-{other}")),
            30 => return dir.rename(&name, &other),
            31 => return dir.rename_to(&name, &self.shared, &other),
            32 => return dir.unlink(&name),
            33 => return make_or_remove_directory(dir, random),
            34 => return dir.symlink(&name, &vec![b'l'; 1 + random.below(1000) as usize]),
            35 => return nodes(dir, &name, random),
            36 => return many_names(dir, random),
            _ => {
                let file = dir.existing(&name)?;
                dir.unlink(&name)?;
                self.hold(file);
                return Ok(());
            }
        };
        self.sync_some(calm, file, &name)
    }
}

/// Every second block of a file that has its size first, so that each is an extent of its own.
fn in_pieces(dir: &Dir, name: &str, random: &mut Rng) -> Result<File> {
    let file = match dir.existing(name) {
        Ok(file) => file,
        Err(_) => dir.file(name)?,
    };
    let pieces = 1 + random.below(PIECES);
    let unit = [1024, UNIT, UNIT, UNIT][random.index(4)];
    file.set_len(pieces * 2 * unit).context("set the size of", name)?;
    let mut data = vec![0; unit as usize];
    for piece in 0..pieces {
        noise(piece ^ pieces << 32, &mut data);
        file.write_all_at(&data, piece * 2 * unit).context("write", name)?;
    }
    if random.below(2) == 0 {
        // Now the extents are there, for what comes next to take away.
        rustix::fs::fdatasync(&file).context("sync", name)?;
    }
    Ok(file)
}

fn cut(dir: &Dir, name: &str, random: &mut Rng) -> Result<File> {
    let file = dir.existing(name)?;
    let len = if random.below(2) == 0 { 0 } else { random.below(300_000) };
    file.set_len(len).context("truncate", name)?;
    Ok(file)
}

fn clone_all(dir: &Dir, name: &str, other: &str) -> Result<File> {
    let source = dir.existing(name)?;
    let target = match dir.existing(other) {
        Ok(target) => target,
        Err(_) => dir.file(other)?,
    };
    rustix::fs::ioctl_ficlone(&target, &source).context("clone", name).map(|()| target)
}

/// Some blocks of a file for another file, or for another place of the same.
fn clone_part(dir: &Dir, name: &str, other: &str, random: &mut Rng) -> Result<File> {
    let source = dir.existing(name)?;
    let target = dir.existing(other)?;
    let (mut from, mut to) = (random.below(FILE_UNITS) * UNIT, random.below(FILE_UNITS) * UNIT);
    let len = (1 + random.below(20)) * UNIT;
    rustix::fs::copy_file_range(&source, Some(&mut from), &target, Some(&mut to), len as usize)
        .context("copy within the filesystem", name)?;
    Ok(target)
}

/// Blocks here and there, written over: those that are shared get copies.
fn write_over(dir: &Dir, name: &str, random: &mut Rng) -> Result<File> {
    let file = dir.existing(name)?;
    let size = file.metadata().context("stat", name)?.len();
    let mut data = vec![0; 2 * UNIT as usize];
    for _ in 0..1 + random.below(12) {
        if size == 0 {
            break;
        }
        noise(random.bits(), &mut data);
        let len = 1 + random.below(data.len() as u64);
        file.write_all_at(&data[..len as usize], random.below(size)).context("write", name)?;
    }
    if random.below(2) == 0 {
        rustix::fs::fdatasync(&file).context("sync", name)?;
    }
    Ok(file)
}

/// Changes how a piece of a file is allocated; only whole blocks can be moved.
fn allocate(dir: &Dir, name: &str, flags: FallocateFlags, random: &mut Rng) -> Result<File> {
    let file = dir.existing(name)?;
    let (mut offset, mut len) = (random.below(200_000), 1 + random.below(80_000));
    if flags.intersects(FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE) {
        (offset, len) = (offset / UNIT * UNIT, len.next_multiple_of(UNIT));
    }
    rustix::fs::fallocate(&file, flags, offset, len).context("allocate", name).map(|()| file)
}

/// An attribute in one of all sizes.
fn attribute(dir: &Dir, name: &str, seed: u64, random: &mut Rng) -> Result<()> {
    let most = [60, 800, 3000, 40_000][random.index(4)];
    let mut value = vec![0; random.below(most) as usize];
    noise(seed, &mut value);
    dir.xattr(name, &format!("user.x{}", random.below(40)), &value)
}

fn remove_attribute(dir: &Dir, name: &str, random: &mut Rng) -> Result<()> {
    let file = dir.existing(name)?;
    rustix::fs::fremovexattr(&file, format!("user.x{}", random.below(40)).as_str())
        .context("remove an extended attribute of", name)
}

fn nodes(dir: &Dir, name: &str, random: &mut Rng) -> Result<()> {
    let kind = [FileType::Fifo, FileType::CharacterDevice, FileType::Socket][random.index(3)];
    dir.node(&format!("node-{name}"), kind, 5, random.below(9) as u32)?;
    dir.chmod(&format!("node-{name}"), 0o600)
}

/// A directory that grows to blocks and leaves, or that gives them back.
fn many_names(dir: &Dir, random: &mut Rng) -> Result<()> {
    let name = format!("many-{}", random.below(DIRECTORIES / 4));
    let sub = match dir.sub(&name) {
        Ok(sub) => sub,
        Err(_) => dir.dir(&name)?,
    };
    let first = random.below(400);
    let removes = random.below(2) == 0;
    for number in first..first + 150 {
        let entry = format!("{number:04}-{}", "n".repeat((number % 50) as usize));
        let done = if removes { sub.unlink(&entry) } else { sub.file(&entry).map(drop) };
        match done {
            Err(error) if !goes_on(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn goes_on(error: &Error) -> bool {
    matches!(consequence(error), super::Consequence::GoOn)
}
