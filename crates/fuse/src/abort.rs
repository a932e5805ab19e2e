//! Ending a connection to the kernel whose server cannot go on: every request fails, every thread that waits for one
//! ends.
//!
//! The kernel has a file for that, in the filesystem `fusectl`, which belongs to the user that mounted. It is usually
//! mounted; root can do without.

use std::io;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use undercroft_block::mountinfo::MountDevice;

/// Where the system keeps it mounted.
const CONTROL: &str = "/sys/fs/fuse/connections";

/// Aborts the connection of a mount.
pub(crate) fn abort(device: MountDevice) -> io::Result<()> {
    // The number by which the kernel names a connection: of 12 and 20 bits, as in `st_dev` inside the kernel.
    let connection = (device.major << 20) | device.minor;
    let by_system = rustix::fs::open(CONTROL, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    by_system
        .and_then(|control| abort_in(&control, connection))
        .or_else(|_| abort_in(&control()?, connection))
        .map_err(io::Error::from)
}

/// A `fusectl` of our own, mounted nowhere.
fn control() -> rustix::io::Result<rustix::fd::OwnedFd> {
    let filesystem = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&filesystem)?;
    rustix::mount::fsmount(&filesystem, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

fn abort_in(control: &rustix::fd::OwnedFd, connection: u32) -> rustix::io::Result<()> {
    let file = rustix::fs::openat(
        control,
        format!("{connection}/abort"),
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    rustix::io::write(&file, b"1").map(drop)
}
