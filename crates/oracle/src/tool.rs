//! Running Linux's own programs: mke2fs, debugfs, mount and the like.
//!
//! A program that is missing is an error that names its package: a test that silently does without its oracle
//! proves nothing. Programs run in the C locale, without standard input unless they are given some, and with
//! the system directories in their search path, since an ordinary user's path often lacks them.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::{Error, Result};

/// Which Debian package has a program.
const PACKAGES: &[(&str, &str)] = &[
    ("chattr", "e2fsprogs"),
    ("debugfs", "e2fsprogs"),
    ("dumpe2fs", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("fusermount3", "fuse3"),
    ("losetup", "mount"),
    ("lsattr", "e2fsprogs"),
    ("mdadm", "mdadm"),
    ("mke2fs", "e2fsprogs"),
    ("mount", "mount"),
    ("tune2fs", "e2fsprogs"),
    ("umount", "mount"),
    ("mkfs.xfs", "xfsprogs"),
    ("xfs_admin", "xfsprogs"),
    ("xfs_db", "xfsprogs"),
    ("xfs_growfs", "xfsprogs"),
    ("xfs_io", "xfsprogs"),
    ("xfs_repair", "xfsprogs"),
];

/// One run of a program, being put together.
#[derive(Debug)]
pub struct Tool {
    name: &'static str,
    command: Command,
    accepted: &'static [i32],
    input: Option<Vec<u8>>,
}

impl Tool {
    /// A run of the program `name`.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        let mut command = Command::new(name);
        let inherited = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{inherited}:/usr/local/sbin:/usr/sbin:/sbin"));
        command.env("LC_ALL", "C").stdin(Stdio::null());
        Self { name, command, accepted: &[0], input: None }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(args);
        self
    }

    /// Runs it in this directory.
    #[must_use]
    pub fn current_dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Gives it these bytes on its standard input.
    #[must_use]
    pub fn input(mut self, bytes: &[u8]) -> Self {
        self.input = Some(bytes.to_vec());
        self
    }

    /// The exit codes that are not failures, where 0 is not the only one (e2fsck answers 1 for "mended").
    #[must_use]
    pub fn accept(mut self, codes: &'static [i32]) -> Self {
        self.accepted = codes;
        self
    }

    /// Runs it to its end and gives its standard output.
    ///
    /// # Errors
    /// [`Error::MissingTool`], or [`Error::ToolFailed`] with what it wrote.
    pub fn run(mut self) -> Result<Vec<u8>> {
        let shown = self.shown();
        let output = self.output().map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => {
                let package = PACKAGES.iter().find(|(tool, _)| *tool == self.name);
                Error::MissingTool { tool: self.name, package: package.map_or(self.name, |(_, p)| p) }
            }
            _ => Error::System { action: "run", path: shown.clone(), source },
        })?;
        if output.status.code().is_some_and(|code| self.accepted.contains(&code)) {
            return Ok(output.stdout);
        }
        // e2fsck writes its findings to standard output, and only its name to standard error.
        let said = [output.stderr, output.stdout].concat();
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        Err(Error::ToolFailed { command: shown, status: output.status.to_string(), said })
    }

    /// Runs it to its end and gives its standard output as text.
    ///
    /// # Errors
    /// As for [`run`](Self::run). Bytes that are not UTF-8 are replaced.
    pub fn run_text(self) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.run()?).into_owned())
    }

    fn output(&mut self) -> std::io::Result<Output> {
        let Some(input) = self.input.take() else { return self.command.output() };
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn()?;
        // Less than a pipe holds, so that the program need not read while we write.
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(&input)?;
        }
        child.wait_with_output()
    }

    fn shown(&self) -> String {
        let mut shown = self.name.to_owned();
        for arg in self.command.get_args() {
            shown.push(' ');
            shown.push_str(&arg.to_string_lossy());
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_is_an_error_that_names_it() {
        let error = Tool::new("no-such-program-anywhere").run().unwrap_err();
        assert!(error.to_string().contains("no-such-program-anywhere is not installed"), "{error}");
    }

    #[test]
    fn a_failing_tool_is_an_error_with_its_own_words() {
        let error = Tool::new("dumpe2fs").arg("/nonexistent-image").run().unwrap_err();
        let Error::ToolFailed { command, said, .. } = error else { panic!("{error}") };
        assert_eq!(command, "dumpe2fs /nonexistent-image");
        assert!(said.contains("No such file"), "{said}");
    }
}
