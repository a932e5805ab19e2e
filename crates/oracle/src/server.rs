//! A mount of ours that a process of its own serves, so that it can be killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::Context;
use crate::{Error, Result, Scratch};

/// A mount has to be gone within this after its server has ended.
const END: Duration = Duration::from_secs(30);

/// A mount and its server. Dropping it kills the server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    point: Scratch,
}

impl Server {
    /// Mounts the image: `program` is the built `serve_ext4` of this crate, whose place only a test knows.
    ///
    /// # Errors
    /// It cannot be started, or has said on standard error why it does not serve.
    pub fn start(program: &str, image: &Path) -> Result<Self> {
        let point = Scratch::new("served")?;
        let mut child = Command::new(program)
            .arg(image)
            .arg(point.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("start", program)?;
        let mut said = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut said).context("read what is said by", program)?;
        }
        let server = Self { child, point };
        match said.as_str() {
            "ready\n" => Ok(server),
            _ => Err(Error::Unfit(format!("{program} does not serve {}", image.display()))),
        }
    }

    /// The mount's root directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.point.path()
    }

    /// Kills the server where it stands, and waits until its mount is gone.
    ///
    /// # Errors
    /// The mount stays.
    pub fn kill(mut self) -> Result<()> {
        self.end()
    }

    /// Unmounts and waits until the server has closed the image.
    ///
    /// # Errors
    /// The mount is in use; the server could not write what it still had.
    pub fn unmount(mut self) -> Result<()> {
        undercroft_fuse::unmount(self.path())
            .map_err(|error| Error::Unfit(format!("cannot unmount {}: {error}", self.path().display())))?;
        let status = self.child.wait().context("wait for the server of", self.point.path())?;
        match status.success() {
            true => Ok(()),
            false => {
                Err(Error::Unfit(format!("the server of {} ended ill: {status}", self.path().display())))
            }
        }
    }

    fn end(&mut self) -> Result<()> {
        self.child.kill().context("kill the server of", self.point.path())?;
        self.child.wait().context("wait for the server of", self.point.path())?;
        let end = Instant::now() + END;
        while self.is_mounted()? {
            if Instant::now() > end {
                return Err(Error::Unfit(format!("{} is still mounted", self.path().display())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn is_mounted(&self) -> Result<bool> {
        let table = "/proc/self/mountinfo";
        let mounts = std::fs::read_to_string(table).context("read", table)?;
        let point = self.path().display().to_string();
        Ok(mounts.lines().any(|line| line.split(' ').nth(4) == Some(&point)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("{error}");
        }
    }
}
