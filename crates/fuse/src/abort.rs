//! Ending a connection to the kernel whose server cannot go on: every request fails, every thread that waits for one
//! ends.
//!
//! The kernel has a file for that, in the filesystem `fusectl`, which belongs to the user that mounted. It is usually
//! mounted; root can do without.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use undercroft_block::mountinfo::MountDevice;

/// Where the system keeps it mounted.
const CONTROL: &str = "/sys/fs/fuse/connections";

/// Aborts the connection of a mount. `is_it` is asked whether the mount still has the number, when the file is open that
/// aborts what has it then.
pub(crate) fn abort(device: MountDevice, is_it: impl Fn() -> bool) -> io::Result<()> {
    // The number by which the kernel names a connection: of 12 and 20 bits, as in `st_dev` inside the kernel.
    let connection = (device.major << 20) | device.minor;
    let by_system = rustix::fs::open(CONTROL, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let file =
        by_system.and_then(|by| open(&by, connection)).or_else(|_| open(&own_control()?, connection))?;
    if !is_it() {
        return Ok(());
    }
    rustix::io::write(&file, b"1")?;
    Ok(())
}

/// A `fusectl` of our own, mounted nowhere.
fn own_control() -> rustix::io::Result<OwnedFd> {
    let filesystem = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&filesystem)?;
    rustix::mount::fsmount(&filesystem, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

fn open(control: &OwnedFd, connection: u32) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::openat(control, format!("{connection}/abort"), flags, Mode::empty())
}
