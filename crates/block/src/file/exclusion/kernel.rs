//! What the kernel does with a file or a block device, read from `/proc` and `/sys`.
//!
//! The kernel takes no locks on the file of a loop device, and says of a block device only that it is in use. What it
//! is used for is put together here: mounts, swap, devices made of the device, its partitions, loop devices, and what
//! these are used for in turn. Everything is a look at one moment; what cannot be read is left out.

use std::cell::OnceCell;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, major, minor};
use rustix::io::Errno;

use super::holder::Holder;
use super::loops::{self, LoopDevice};
use super::mounts;
use super::opened::Identity;
use crate::mountinfo::Mount;

/// Devices upon devices are followed so far.
const DEPTH: u32 = 8;

/// The tables of the kernel at one moment, each read when it is first needed.
pub(super) struct View {
    /// Also of other namespaces.
    mounts: OnceCell<Vec<Mount>>,
    swaps: Vec<PathBuf>,
    loops: Vec<LoopDevice>,
}

impl View {
    pub(super) fn take() -> Self {
        Self { loops: loops::all(), mounts: OnceCell::new(), swaps: mounts::swaps() }
    }

    /// The users of a regular file, which was opened as `path`. What is stacked on `except` does not count.
    pub(super) fn of_file(&self, file: &Metadata, path: &Path, except: Option<&LoopDevice>) -> Vec<Holder> {
        let identity = Identity::of(file);
        let mut found = self.loops_on(identity, except, DEPTH);
        // A server that mounts a file names it as its source, and so does the kernel where it needs no loop device.
        // Our own servers have locks, which end with them; their mounts may stay a moment longer.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let own = mounts::own();
        let mounts = own.iter().filter(|entry| entry.source == path && !entry.is_ours());
        found.extend(mounts.map(mount));
        if self.swaps.iter().any(|swap| is(swap, identity)) {
            found.push(Holder::Swap);
        }
        found
    }

    /// The users of a block device.
    pub(super) fn of_block(&self, number: u64) -> Vec<Holder> {
        self.of_block_to(number, DEPTH)
    }

    fn of_block_to(&self, number: u64, depth: u32) -> Vec<Holder> {
        let Some(depth) = depth.checked_sub(1) else { return Vec::new() };
        let mut found = self.directly(number, depth);
        let Some(sysfs) = sysfs(number) else { return found };
        if sysfs.join("partition").exists() {
            // The disk around it may be used as a whole; other partitions of it do not matter.
            if let Some(disk) = sysfs.parent() {
                let holders = numbered(disk).map(|number| self.directly(number, depth)).unwrap_or_default();
                found.extend((!holders.is_empty()).then(|| device(disk, holders)));
            }
            return found;
        }
        for part in children(&sysfs).into_iter().filter(|child| child.join("partition").exists()) {
            let holders = numbered(&part).map(|number| self.directly(number, depth)).unwrap_or_default();
            found.extend((!holders.is_empty()).then(|| device(&part, holders)));
        }
        found
    }

    /// Without those of its partitions.
    fn directly(&self, number: u64, depth: u32) -> Vec<Holder> {
        let identity = Identity::Block { number };
        let is_on = |entry: &&Mount| match entry.device.major {
            // A filesystem with a number of its own, as btrfs has: there is only what it says of itself.
            0 => !entry.is_ours() && entry.source.starts_with("/dev") && is(&entry.source, identity),
            _ => (entry.device.major, entry.device.minor) == (major(number), minor(number)),
        };
        let mut found: Vec<Holder> =
            self.mounts.get_or_init(mounts::all).iter().filter(is_on).map(mount).collect();
        found.dedup();
        if self.swaps.iter().any(|swap| is(swap, identity)) {
            found.push(Holder::Swap);
        }
        if let Some(sysfs) = sysfs(number) {
            for holder in children(&sysfs.join("holders")) {
                let holders = numbered(&holder).map(|number| self.of_block_to(number, depth));
                found.push(device(&holder, holders.unwrap_or_default()));
            }
        }
        found.extend(self.loops_on(identity, None, depth));
        found
    }

    fn loops_on(&self, identity: Identity, except: Option<&LoopDevice>, depth: u32) -> Vec<Holder> {
        let on_it = self.loops.iter().filter(|found| found.file == Some(identity));
        let others = on_it.filter(|found| except.is_none_or(|except| except.path != found.path));
        others
            .map(|found| {
                let holders = numbered(&found.sysfs).map(|number| self.of_block_to(number, depth));
                Holder::Device {
                    path: found.path.clone(),
                    read_only: found.read_only,
                    holders: holders.unwrap_or_default(),
                }
            })
            .collect()
    }

    /// Whether loop devices on the file are just going away: their last user has gone, or will have in a moment.
    pub(super) fn are_going(&self, holders: &[Holder]) -> bool {
        let is_going = |holder: &Holder| match holder {
            Holder::Device { path, holders, .. } => {
                holders.is_empty() && self.loops.iter().any(|found| found.path == *path && found.is_going)
            }
            _ => false,
        };
        holders.iter().all(is_going)
    }
}

/// The loop device that a block device is or is a part of.
pub(super) fn loop_around(number: u64) -> Option<LoopDevice> {
    loops::around(&sysfs(number)?)
}

/// Claims a block device from the kernel, which then mounts it for no other.
pub(super) fn claim(path: &Path, to_write: bool) -> io::Result<File> {
    let flags = OFlags::EXCL | OFlags::NONBLOCK;
    File::options().read(true).write(to_write).custom_flags(flags.bits().cast_signed()).open(path)
}

/// Whether something that cannot be seen from here has claimed the device.
pub(super) fn is_claimed(path: &Path) -> bool {
    claim(path, false).is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::BUSY))
}

/// Where servers of this project's have mounted what is in a file or device, or in a partition of it, as far as this process's
/// mount table tells.
pub(super) fn served(path: &Path) -> Vec<Holder> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let is_source = |source: &Path| {
        let rest = source.as_os_str().as_bytes().strip_prefix(path.as_os_str().as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"?part="))
    };
    let own = mounts::own();
    own.iter().filter(|entry| entry.is_ours() && is_source(&entry.source)).map(mount).collect()
}

fn mount(entry: &Mount) -> Holder {
    Holder::Mount { point: entry.point.clone(), read_only: entry.is_read_only() }
}

fn device(sysfs: &Path, holders: Vec<Holder>) -> Holder {
    let read_only = fs::read(sysfs.join("ro")).is_ok_and(|value| value.starts_with(b"1"));
    Holder::Device { path: dev_path(sysfs), read_only, holders }
}

/// `/dev/mapper/home` or `/dev/md0`.
fn dev_path(sysfs: &Path) -> PathBuf {
    if let Ok(name) = fs::read_to_string(sysfs.join("dm/name")) {
        return Path::new("/dev/mapper").join(name.trim_end());
    }
    let name = sysfs.file_name().unwrap_or_default().to_string_lossy().replace('!', "/");
    Path::new("/dev").join(name)
}

fn sysfs(number: u64) -> Option<PathBuf> {
    fs::canonicalize(format!("/sys/dev/block/{}:{}", major(number), minor(number))).ok()
}

/// Links are followed: the holders of a device are links to devices.
fn children(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| fs::canonicalize(entry.path()).ok())
        .filter(|path| path.join("dev").exists())
        .collect()
}

/// The number of the device that has this directory in sysfs.
fn numbered(sysfs: &Path) -> Option<u64> {
    let text = fs::read_to_string(sysfs.join("dev")).ok()?;
    let (major, minor) = text.trim_end().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn is(path: &Path, identity: Identity) -> bool {
    fs::metadata(path).is_ok_and(|metadata| match identity {
        Identity::Block { number } => metadata.rdev() == number,
        file @ Identity::File { .. } => Identity::of(&metadata) == file,
    })
}
