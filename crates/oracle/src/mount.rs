//! A filesystem mounted by the kernel for as long as a value lives.
//!
//! Needs root. The mount is undone on drop, also while a panic unwinds, so that a failed test leaves no mount
//! and no loop device behind.

use std::path::Path;
use std::time::Duration;

use crate::{Result, Scratch, Tool};

/// A loop mount. Dropping it unmounts.
#[derive(Debug)]
pub struct LoopMount {
    point: Scratch,
    mounted: bool,
}

impl LoopMount {
    /// Mounts the filesystem in the file `image`.
    ///
    /// `kind` is the type as `mount -t` takes it, `options` go to `mount -o` beside `loop`: `ro`, `noatime`.
    ///
    /// # Errors
    /// What mount said, for example that the caller is not root.
    pub fn new(image: &Path, kind: &str, options: &str) -> Result<Self> {
        let point = Scratch::new("mount")?;
        let options = if options.is_empty() { "loop".to_owned() } else { format!("loop,{options}") };
        Tool::new("mount").args(["-t", kind, "-o", &options]).arg(image).arg(point.path()).run()?;
        Ok(Self { point, mounted: true })
    }

    /// The mount's root directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.point.path()
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
