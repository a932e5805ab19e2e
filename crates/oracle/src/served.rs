//! A filesystem that a server program mounts through FUSE, for as long as a value lives: a process of its own, so that
//! it can be measured and killed.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::Context;
use crate::{Error, Image, Result, Scratch, Tool};

/// A mount has to be there within this after its server was started, and gone within this after the server has ended. Far
/// above what it takes, for a machine that is busy: a server may have 100,000 orphans to delete first.
const PATIENCE: Duration = Duration::from_secs(180);

/// A mount and its server, which is killed when this is dropped.
#[derive(Debug)]
pub struct Served {
    point: Scratch,
    server: Child,
    ended: bool,
}

impl Served {
    /// The image, mounted for writing by the `serve_image` of this crate: only a test knows where that was built.
    ///
    /// # Errors
    /// The program cannot be started, or does not mount: it says why on standard error.
    pub fn image(program: impl AsRef<Path>, image: &Image) -> Result<Self> {
        Self::start(Command::new(program.as_ref()).arg(image.kind()), image.path())
    }

    /// The image, mounted by the undercroft program `program`, with these options for `-o`.
    ///
    /// # Errors
    /// As for [`image`](Self::image).
    pub fn undercroft(program: &Path, image: &Path, options: &str) -> Result<Self> {
        let mut command = Command::new(program);
        Self::start(command.args(["mount", "--foreground", "-o", options]), image)
    }

    /// The image, mounted by fuse2fs with these options for `-o`. By itself it checks permissions on its own; with
    /// `default_permissions` the kernel checks them too, as it does for ours, and with `fakeroot` nothing is checked.
    ///
    /// # Errors
    /// As for [`image`](Self::image).
    pub fn fuse2fs(image: &Path, options: &str) -> Result<Self> {
        Self::start(Command::new("fuse2fs").args(["-f", "-o", options]), image)
    }

    /// `command` lacks the image and the directory.
    fn start(command: &mut Command, image: &Path) -> Result<Self> {
        let point = Scratch::new("served")?;
        let program = command.get_program().display().to_string();
        let command = command.arg(image).arg(point.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let server = command.spawn().context("start", &*program)?;
        let mut served = Self { point, server, ended: false };
        let end = Instant::now() + PATIENCE;
        while !served.is_mounted()? {
            let has_ended = served.server.try_wait().context("wait for", &*program)?.is_some();
            if has_ended || Instant::now() > end {
                return Err(Error::Unfit(format!("{program} does not serve {}", image.display())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // The mount is there before its server has answered the kernel's first message, and a server that is unmounted before
        // has served nothing, which is an error. This waits for the answer.
        std::fs::metadata(served.path()).context("look at", served.path())?;
        Ok(served)
    }

    /// The mount's root directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.point.path()
    }

    /// The server's process.
    #[must_use]
    pub fn server_id(&self) -> u32 {
        self.server.id()
    }

    /// Unmounts and waits until the server has closed the image.
    ///
    /// # Errors
    /// The mount is in use; the server could not write what it still had.
    pub fn unmount(self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        // A process that another thread has just started may have open what is closed here.
        while let Err(error) = Tool::new("fusermount3").arg("-u").arg(self.path()).run() {
            if !error.to_string().contains("busy") || Instant::now() > end {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.wait()
    }

    /// Waits for the end of a server whose mount is gone.
    ///
    /// # Errors
    /// The server could not write what it still had.
    pub fn wait(mut self) -> Result<()> {
        self.ended = true;
        let status = self.server.wait().context("wait for the server of", self.point.path())?;
        if status.success() {
            return Ok(());
        }
        Err(Error::Unfit(format!("the server of {} ended ill: {status}", self.path().display())))
    }

    /// Kills the server where it stands, and waits until its mount is gone, which a server of ours sees to.
    ///
    /// # Errors
    /// The mount stays.
    pub fn kill(mut self) -> Result<()> {
        self.server.kill().context("kill the server of", self.point.path())?;
        self.server.wait().context("wait for the server of", self.point.path())?;
        let end = Instant::now() + PATIENCE;
        while self.is_mounted()? {
            if Instant::now() > end {
                return Err(Error::Unfit(format!("{} is still mounted", self.path().display())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.ended = true;
        Ok(())
    }

    fn is_mounted(&self) -> Result<bool> {
        let table = "/proc/self/mountinfo";
        let mounts = std::fs::read_to_string(table).context("read", table)?;
        let point = self.path().display().to_string();
        Ok(mounts.lines().any(|line| line.split(' ').nth(4) == Some(&point)))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // In the way of an error already. The kernel keeps a dead server's mount, which a lazy unmount takes away.
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = Tool::new("umount").arg("-l").arg(self.path()).run();
    }
}
