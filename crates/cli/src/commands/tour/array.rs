//! The part of the tour about arrays: a RAID5 of sparse temporary files, or of memory where none can be made, gets a
//! filesystem with the tour's own tree in it, loses a member, is read without it, is rebuilt, and loses another.
//!
//! Everything that the tour claims is read back: every file is compared with the sums that travel with the tour,
//! through a filesystem that was reopened, so that nothing comes from a cache of ours.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs, process};

use serde::Serialize;
use undercroft_block::{BlockDevice as _, Device, FileDevice, FileOptions, MemoryDevice};
use undercroft_ext4::{Ext4, Family, MkfsOptions, OpenOptions, WriteOptions, mkfs};
use undercroft_md::{Array, ArrayOptions, CreateOptions, Level};
use undercroft_vfs::{FileSystem, Vfs, VfsOptions};

use super::copy::copy;
use super::sums::{self, Verified};
use super::{SUMS, SUMS_INSIDE};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::md_failure;

const MEMBERS: u32 = 4;
/// Of each member: sparse, so that the disk holds what the tree takes.
const MEMBER_BYTES: u64 = 16 << 20;
const CHUNK_BYTES: u32 = 64 << 10;
/// The one that fails first.
const LOST: u32 = 1;
/// Long enough for a rebuild of so little on any machine.
const REBUILD_AT_MOST: Duration = Duration::from_secs(60);

/// What became of the array.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) members: u32,
    pub(super) member_bytes: u64,
    pub(super) array_bytes: u64,
    pub(super) chunk_bytes: u32,
    /// The role whose member failed first.
    pub(super) lost_role: u32,
    /// What was read without it.
    pub(super) without_it: Verified,
    pub(super) rebuilt_bytes: u64,
    pub(super) mismatched_bytes: u64,
    /// The role whose member failed after that, so that the new one is read.
    pub(super) lost_role_then: u32,
    pub(super) without_another: Verified,
    pub(super) milliseconds: u64,
}

/// Makes the array, fills it from `tree`, and lets it lose members.
pub(super) fn show(tree: &Vfs) -> Result<Report, Failure> {
    let begun = Instant::now();
    let place = Place::new();
    let members = (0..MEMBERS).map(|number| place.member(number)).collect::<Result<Vec<_>, _>>()?;
    let options = CreateOptions {
        chunk_bytes: Some(CHUNK_BYTES),
        assume_clean: true,
        ..CreateOptions::new(Level::Raid5)
    };
    let array =
        Array::create(members, &options, ArrayOptions::default()).map_err(|error| md_failure(&error))?;
    let array = Arc::new(array);
    fill(&array, tree)?;

    array.fail(LOST).map_err(|error| md_failure(&error))?;
    let without_it = verify(&array)?;
    array.add(place.member(MEMBERS)?).map_err(|error| md_failure(&error))?;
    wait(&array)?;
    array.check().map_err(|error| md_failure(&error))?;
    wait(&array)?;
    let checked = array.status();
    let Some(finished) = checked.finished.filter(|_| checked.degraded == 0) else {
        return Err(Failure::new(Kind::Io, "the tour's own array was not rebuilt"));
    };
    let another = LOST + 1;
    array.fail(another).map_err(|error| md_failure(&error))?;
    let without_another = verify(&array)?;
    array.close().map_err(|error| md_failure(&error))?;
    Ok(Report {
        members: MEMBERS,
        member_bytes: MEMBER_BYTES,
        array_bytes: array.size_bytes(),
        chunk_bytes: CHUNK_BYTES,
        lost_role: LOST,
        without_it,
        rebuilt_bytes: checked.geometry.member_bytes.first().copied().unwrap_or(0),
        mismatched_bytes: finished.mismatched_bytes,
        lost_role_then: another,
        without_another,
        milliseconds: begun.elapsed().as_millis() as u64,
    })
}

/// An ext4 with the tree in it.
fn fill(array: &Arc<Array>, tree: &Vfs) -> Result<(), Failure> {
    let options = MkfsOptions { device_is_zeroed: true, ..MkfsOptions::new(Family::Ext4) };
    mkfs(&**array, &options).map_err(|error| Failure::of(Kind::of_mkfs(&error), &error))?;
    let failed = |error: undercroft_vfs::Error| {
        Failure::new(Kind::of(&error), "cannot fill the tour's own array").because(&error)
    };
    let device = Arc::clone(array) as Device;
    let ext4 = Ext4::open(device, OpenOptions::default(), WriteOptions::default()).map_err(failed)?;
    let vfs = Vfs::new(Arc::clone(&ext4) as Arc<dyn FileSystem>, VfsOptions::default());
    copy(tree, &vfs).map_err(failed)?;
    ext4.close().map_err(failed)
}

/// Reads all of it, with caches that know nothing yet.
fn verify(array: &Arc<Array>) -> Result<Verified, Failure> {
    let failed = |error: undercroft_vfs::Error| {
        Failure::new(Kind::of(&error), "cannot read the tour's own array").because(&error)
    };
    let device = Arc::clone(array) as Device;
    let ext4 = Ext4::open_read_only(device, OpenOptions::default()).map_err(failed)?;
    let vfs = Vfs::new(ext4, VfsOptions::default());
    let verified = sums::verify(&vfs, SUMS, SUMS_INSIDE).map_err(failed)?;
    match verified.wrong.first() {
        None => Ok(verified),
        Some(wrong) => Err(Failure::new(
            Kind::Corrupt,
            format!(
                "{} on the tour's own array does not have the SHA-256 sum it should have",
                crate::text::names::safe(&wrong.raw)
            ),
        )),
    }
}

fn wait(array: &Array) -> Result<(), Failure> {
    if array.wait_for_sync(REBUILD_AT_MOST) {
        return Ok(());
    }
    Err(Failure::new(Kind::Host, "the tour's own array is not rebuilt after a minute")
        .advise("try again when this machine has less to do"))
}

/// Where the members lie.
enum Place {
    /// In a directory that goes when it is dropped.
    Files(PathBuf),
    /// In memory, where no directory takes them.
    Memory,
}

impl Place {
    fn new() -> Self {
        let path = env::temp_dir().join(format!("undercroft-tour-{}", process::id()));
        match fs::create_dir(&path) {
            Ok(()) => Self::Files(path),
            Err(_) => Self::Memory,
        }
    }

    /// A sparse file, or memory that is taken as it is written, as a device.
    fn member(&self, number: u32) -> Result<Device, Failure> {
        let Self::Files(dir) = self else { return Ok(Arc::new(MemoryDevice::new(MEMBER_BYTES))) };
        let path = dir.join(format!("member-{number}"));
        let made = fs::File::create_new(&path).and_then(|file| file.set_len(MEMBER_BYTES));
        made.map_err(|error| {
            Failure::host(format!("cannot make {}", path.display()), &error)
                .advise("set TMPDIR to a directory that can be written to")
        })?;
        let device = FileDevice::open(&path, FileOptions::read_write())
            .map_err(|error| Failure::of(Kind::Host, &error))?;
        Ok(Arc::new(device))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Self::Files(path) = self {
            // What is left behind is small, and in a place that is cleaned by others.
            let _ = fs::remove_dir_all(path);
        }
    }
}
