//! A filesystem mounted by the kernel for as long as a value lives.
//!
//! Needs root. The mount and its loop device are undone on drop, also while a panic unwinds, so that a failed
//! test leaves nothing behind.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Context;
use crate::{Error, Result, Scratch, Tool};

/// How the kernel may treat the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountMode {
    /// Mounted for reading and writing.
    ReadWrite,
    /// Mounted read-only on a device that takes writes: a dirty journal is recovered into the image.
    Recovering,
    /// Mounted read-only on a read-only device: nothing is written, and a dirty journal is refused.
    ReadOnly,
}

/// A loop mount. Dropping it unmounts.
#[derive(Debug)]
pub struct LoopMount {
    point: Scratch,
    device: PathBuf,
    mounted: bool,
}

impl LoopMount {
    /// Mounts the filesystem in the file `image`.
    ///
    /// `kind` is the type as `mount -t` takes it, `options` go to `mount -o`, for example `noatime`.
    ///
    /// # Errors
    /// What losetup or mount said, for example that the caller is not root.
    pub fn new(image: &Path, kind: &str, mode: MountMode, options: &str) -> Result<Self> {
        let point = Scratch::new("mount")?;
        let losetup = Tool::new("losetup").args(["--find", "--show"]);
        let losetup = if mode == MountMode::ReadOnly { losetup.arg("--read-only") } else { losetup };
        let device = PathBuf::from(losetup.arg(image).run_text()?.trim());
        let access = if mode == MountMode::ReadWrite { "rw" } else { "ro" };
        let options = [access, options].into_iter().filter(|o| !o.is_empty()).collect::<Vec<_>>().join(",");
        let mount =
            Tool::new("mount").args(["-t", kind, "-o", &options]).arg(&device).arg(point.path()).run();
        // The device is in use now and goes away with its last user; if the mount failed, at once.
        let detach = Tool::new("losetup").arg("--detach").arg(&device).run();
        mount?;
        let this = Self { point, device, mounted: true };
        detach?;
        Ok(this)
    }

    /// The mount's root directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.point.path()
    }

    /// How many writes have reached the image, and how many requests are under way.
    ///
    /// # Errors
    /// The kernel's statistics cannot be read.
    pub fn writes(&self) -> Result<Writes> {
        let name = self.device.file_name().unwrap_or_default();
        let path = Path::new("/sys/block").join(name).join("stat");
        let stat = std::fs::read_to_string(&path).context("read", &path)?;
        let numbers: Vec<u64> = stat.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [_, _, _, _, done, _, sectors, _, under_way, ..] => Ok(Writes { done, sectors, under_way }),
            _ => Err(Error::Unfit(format!("{} has another form: {stat}", path.display()))),
        }
    }

    /// Unmounts now, so that failure is seen and everything the kernel held is in the image afterwards.
    ///
    /// # Errors
    /// What umount said.
    pub fn unmount(mut self) -> Result<()> {
        self.umount()?;
        self.mounted = false;
        Ok(())
    }

    // Other processes of the machine (indexers, monitors) may look into a fresh mount for an instant.
    fn umount(&self) -> Result<()> {
        const TRIES: u32 = 20;
        for _ in 1..TRIES {
            if Tool::new("umount").arg(self.path()).run().is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Tool::new("umount").arg(self.path()).run().map(drop)
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        if !self.mounted {
            return;
        }
        if let Err(error) = self.umount() {
            // A lazy unmount at least ends with the last user, and keeps the scratch directory removable.
            let lazy = Tool::new("umount").arg("-l").arg(self.path()).run();
            eprintln!("{error}; a lazy unmount said {lazy:?}");
        }
    }
}

/// What a loop device has written so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writes {
    /// Completed write requests.
    pub done: u64,
    /// Sectors of 512 bytes in them.
    pub sectors: u64,
    /// Requests under way, reads included.
    pub under_way: u64,
}
