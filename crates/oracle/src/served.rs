//! A filesystem that a server program mounts through FUSE, for as long as a value lives.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::Context;
use crate::{Error, Result, Scratch, Tool};

/// Something mounted by a server program, which is killed if it was not stopped.
#[derive(Debug)]
pub struct Served {
    dir: Scratch,
    server: Child,
    unmount: Vec<String>,
    stopped: bool,
}

impl Served {
    /// The image `image`, mounted by the undercroft program `program`, with these options for `-o`.
    ///
    /// # Errors
    /// The program cannot be started, or does not mount within 20 seconds.
    pub fn undercroft(program: &Path, image: &Path, options: &str) -> Result<Self> {
        let args = ["mount", "--foreground", "--no-lock"];
        Self::start(program, &args, options, image, vec![program.display().to_string(), "unmount".into()])
    }

    /// The image `image`, mounted by fuse2fs. The kernel checks permissions for it, as it does for ours.
    ///
    /// # Errors
    /// As for [`undercroft`](Self::undercroft).
    pub fn fuse2fs(image: &Path, options: &str) -> Result<Self> {
        let options = [options, "default_permissions"].map(str::to_owned).join(",");
        let unmount = vec!["fusermount3".into(), "-u".into()];
        Self::start(Path::new("fuse2fs"), &["-f"], &options, image, unmount)
    }

    fn start(
        program: &Path,
        args: &[&str],
        options: &str,
        image: &Path,
        unmount: Vec<String>,
    ) -> Result<Self> {
        let dir = Scratch::new("served")?;
        let server = Command::new(program)
            .args(args)
            .args(["-o", options])
            .arg(image)
            .arg(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start", program)?;
        let mut served = Self { dir, server, unmount, stopped: false };
        let began = Instant::now();
        while std::fs::read_dir(served.path()).context("list", served.path())?.next().is_none() {
            let ended = served.server.try_wait().context("wait for", program)?.is_some();
            if ended || began.elapsed() > Duration::from_secs(20) {
                return Err(Error::Unfit(format!("{} did not mount the image", program.display())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(served)
    }

    /// The mount's root directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The server's process.
    #[must_use]
    pub fn server_id(&self) -> u32 {
        self.server.id()
    }

    /// Unmounts, and waits for the server to end.
    ///
    /// # Errors
    /// What the unmounting program said, or how the server ended.
    pub fn stop(mut self) -> Result<()> {
        self.unmount()?;
        self.stopped = true;
        let status = self.server.wait().context("wait for", "the server")?;
        if status.success() { Ok(()) } else { Err(Error::Unfit(format!("the server ended with {status}"))) }
    }

    fn unmount(&self) -> Result<()> {
        let status = Command::new(&self.unmount[0])
            .args(&self.unmount[1..])
            .arg(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .context("start", &*self.unmount[0])?;
        if status.success() {
            return Ok(());
        }
        Err(Error::Unfit(format!("`{}` ended with {status}", self.unmount.join(" "))))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if self.stopped {
            return;
        }
        // In the way of an error already. The kernel keeps a dead server's mount, which a lazy unmount takes away.
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = Tool::new("umount").arg("-l").arg(self.path()).run();
    }
}
