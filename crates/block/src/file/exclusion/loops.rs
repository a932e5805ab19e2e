//! The kernel's loop devices and the files that they store their bytes in.
//!
//! A loop device is asked for the device and the inode number of its file, as the file's name says nothing: it may
//! be another one by now, or belong to another namespace. Where the caller may not ask, the name has to do.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::ioctl::{Getter, ioctl};

use super::opened::Identity;

/// A loop device that has a file.
#[derive(Clone, Debug)]
pub(super) struct LoopDevice {
    /// `/dev/loop3`.
    pub(super) path: PathBuf,
    /// Its directory in sysfs.
    pub(super) sysfs: PathBuf,
    /// Its file, if that can be told.
    pub(super) file: Option<Identity>,
    /// The file's name, as sysfs has it.
    pub(super) file_name: PathBuf,
    pub(super) read_only: bool,
    /// It goes when its last user has gone.
    pub(super) is_going: bool,
}

/// All that have a file.
pub(super) fn all() -> Vec<LoopDevice> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(b"loop") {
            found.extend(look(&entry.path()));
        }
    }
    found
}

/// The loop device of this directory in sysfs, or that around this partition.
pub(super) fn around(sysfs: &Path) -> Option<LoopDevice> {
    look(sysfs).or_else(|| look(sysfs.parent()?))
}

fn look(sysfs: &Path) -> Option<LoopDevice> {
    let mut name = fs::read(sysfs.join("loop/backing_file")).ok()?;
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    let file_name = PathBuf::from(OsString::from_vec(name));
    let path = Path::new("/dev").join(sysfs.file_name()?);
    let says = |attribute: &str| fs::read(sysfs.join(attribute)).is_ok_and(|value| value.starts_with(b"1"));
    let by_name = || {
        let is_gone = file_name.as_os_str().as_bytes().ends_with(b" (deleted)");
        fs::metadata(&file_name).ok().filter(|_| !is_gone).map(|metadata| Identity::of(&metadata))
    };
    let file = status(&path).ok().or_else(by_name);
    Some(LoopDevice {
        read_only: says("ro"),
        is_going: says("loop/autoclear"),
        sysfs: sysfs.to_owned(),
        path,
        file,
        file_name,
    })
}

/// What the loop device itself says of its file.
fn status(path: &Path) -> io::Result<Identity> {
    /// `LOOP_GET_STATUS64`, which is older than the scheme for such numbers.
    const GET_STATUS: u32 = 0x4C05;
    /// `struct loop_info64` in words: device, inode, and number of the device that the file is, come first.
    type Status = [u64; 29];
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    if !file.metadata()?.file_type().is_block_device() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: LOOP_GET_STATUS64 fills a `struct loop_info64`, which is 232 bytes of integers, as `Status` is.
    #[expect(unsafe_code, reason = "the kernel fills a struct, as this ioctl is documented to")]
    let [device, inode, number, ..] = unsafe { ioctl(&file, Getter::<GET_STATUS, Status>::new())? };
    Ok(if number == 0 { Identity::File { device, inode } } else { Identity::Block { number } })
}

impl LoopDevice {
    /// Opens the file to read, if it is still to be found by its name.
    pub(super) fn open_file(&self) -> Option<File> {
        let expected = self.file?;
        let found = fs::metadata(&self.file_name).ok()?;
        // Looked at by name first: opening a pipe would wait for its other end.
        if Identity::of(&found) != expected {
            return None;
        }
        let file = File::open(&self.file_name).ok()?;
        (Identity::of(&file.metadata().ok()?) == expected).then_some(file)
    }
}
