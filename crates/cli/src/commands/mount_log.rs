//! Where the server of a mount in the background says what is wrong with the disk, since it has no terminal.
//!
//! A line for each fault, with the time, the image and where it is mounted: several mounts may share one file, which
//! is only ever appended to, a whole line at a time. A file that was named is opened at once, so that mistakes in its
//! name are reported in the terminal. The default one is made with the first fault, so that mounting a good image
//! leaves nothing behind; if that fails the fault cannot be reported.

use std::env;
use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::Access;

use crate::failure::Failure;
use crate::text::human;
use crate::text::names::safe;

/// Root's log when none is named.
const OF_ROOT: &str = "/var/log/undercroft.log";

/// The log of one mount.
#[derive(Debug)]
pub(crate) struct MountLog {
    /// What the lines are about.
    mount: String,
    /// `None` if there is no place for one.
    path: Option<PathBuf>,
    /// `None` if it cannot be opened.
    file: OnceLock<Option<File>>,
}

impl MountLog {
    /// The log of `image` on `dir`: the file that is named, or else the standard one.
    ///
    /// # Errors
    /// A file that is named cannot be written.
    pub(crate) fn open(named: Option<&Path>, image: &str, dir: &Path) -> Result<Self, Failure> {
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let mount = format!("{} on {}", safe(image.as_bytes()), safe(dir.as_os_str().as_bytes()));
        let Some(path) = named else {
            let path = standard_path(rustix::process::geteuid().is_root(), |name| env::var_os(name));
            let path = path.filter(|path| can_be_made(path));
            return Ok(Self { mount, path, file: OnceLock::new() });
        };
        let file = append(path).map_err(|error| {
            Failure::host(format!("cannot write the log {}", safe(path.as_os_str().as_bytes())), &error)
        })?;
        Ok(Self { mount, path: Some(path.to_owned()), file: OnceLock::from(Some(file)) })
    }

    /// Where it is, or will be when there is something to say.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.path.as_deref().and_then(|path| std::path::absolute(path).ok())
    }

    /// Adds a line.
    pub(crate) fn add(&self, failure: &Failure) {
        if let Some(mut file) = self.file.get_or_init(|| append_private(self.path.as_deref()?).ok()).as_ref()
        {
            let line = format!("{} {}: {failure}\n", human::now(), self.mount);
            let _ = file.write_all(line.as_bytes());
        }
    }
}

/// `/var/log` for root, otherwise where the XDG base directory specification wants logs.
fn standard_path(root: bool, var: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if root {
        return Some(PathBuf::from(OF_ROOT));
    }
    let absolute = |name| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("undercroft/mount.log"))
}

/// Whether the first directory above that is there takes new names, or the file is there.
fn can_be_made(path: &Path) -> bool {
    let there = path.ancestors().find(|above| above.symlink_metadata().is_ok());
    there.is_some_and(|there| rustix::fs::access(there, Access::WRITE_OK).is_ok())
}

fn append(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).open(path)
}

/// As [`append`], in a directory that is made for its owner only if it is missing.
fn append_private(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    append(path)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::PathBuf;

    use super::{OF_ROOT, standard_path};

    #[test]
    fn the_log_of_an_ordinary_user_is_in_the_state_directory() {
        let path = |state: &'static str, home: &'static str| {
            standard_path(false, |name| match name {
                "XDG_STATE_HOME" => Some(OsString::from(state)),
                "HOME" => Some(OsString::from(home)),
                _ => None,
            })
        };
        assert_eq!(path("/state", "/home/anna"), Some(PathBuf::from("/state/undercroft/mount.log")));
        let at_home = Some(PathBuf::from("/home/anna/.local/state/undercroft/mount.log"));
        assert_eq!(path("", "/home/anna"), at_home);
        // The specification has relative ones ignored.
        assert_eq!(path("state", "/home/anna"), at_home);
        assert_eq!(path("", ""), None);
        assert_eq!(standard_path(true, |_| Some(OsString::from("/state"))), Some(PathBuf::from(OF_ROOT)));
    }
}
