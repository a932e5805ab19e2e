//! What is measured: the one place that knows the filesystems by name.
//!
//! A filesystem of ours is one more [`InProcess`], with its name and how it is opened.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::FileSystem;

use crate::BenchError;

/// A filesystem to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One of ours, in this process.
    InProcess {
        /// Which.
        filesystem: InProcess,
        /// One lock for each directory, as in Linux, instead of one for each name.
        plain: bool,
    },
    /// Whatever is mounted where this directory is, by system calls.
    Mounted(PathBuf),
}

/// A filesystem of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InProcess {
    /// The filesystem in memory.
    Tmpfs,
}

/// What follows the colon to ask for one lock for each directory.
const PLAIN: &str = "plain";

/// Targets that are to come: they take no changes yet.
const NOT_YET: [&str; 3] = ["mem:ext4", "mem:xfs", "mem:md5"];

impl InProcess {
    const ALL: [Self; 1] = [Self::Tmpfs];

    const fn name(self) -> &'static str {
        match self {
            Self::Tmpfs => "tmpfs",
        }
    }

    /// A new, empty one.
    pub(crate) fn open(self) -> Result<Arc<dyn FileSystem>, BenchError> {
        match self {
            Self::Tmpfs => match Tmpfs::new(&TmpfsOptions::default()) {
                Ok(tmpfs) => Ok(tmpfs),
                Err(source) => Err(BenchError::Vfs { what: "open", source }),
            },
        }
    }
}

impl Target {
    /// Reads a target as users type it: `tmpfs:`, `tmpfs:plain`, `dir:PATH`.
    ///
    /// # Errors
    /// [`NotYet`](BenchError::NotYet) for what is to come, an image among it; [`UnknownTarget`](BenchError::UnknownTarget).
    pub fn parse(typed: &OsStr) -> Result<Self, BenchError> {
        let shown = || typed.to_string_lossy().into_owned();
        if let Some(path) = typed.as_bytes().strip_prefix(b"dir:").filter(|path| !path.is_empty()) {
            return Ok(Self::Mounted(OsStr::from_bytes(path).into()));
        }
        for filesystem in InProcess::ALL {
            match typed.to_str().and_then(|typed| typed.strip_prefix(filesystem.name())) {
                Some(":") => return Ok(Self::InProcess { filesystem, plain: false }),
                Some(how) if how.strip_prefix(':') == Some(PLAIN) => {
                    return Ok(Self::InProcess { filesystem, plain: true });
                }
                _ => {}
            }
        }
        let is_image = || {
            let path = typed.as_bytes().split(|&byte| byte == b'?').next().unwrap_or_default();
            Path::new(OsStr::from_bytes(path)).exists()
        };
        if NOT_YET.iter().any(|name| typed == OsStr::new(name)) || is_image() {
            return Err(BenchError::NotYet(shown()));
        }
        Err(BenchError::UnknownTarget(shown()))
    }

    /// The same filesystem with one lock for each directory.
    ///
    /// # Errors
    /// [`OnlyInProcess`](BenchError::OnlyInProcess) for what is not ours to choose.
    pub fn into_plain(self) -> Result<Self, BenchError> {
        self.check_in_process("the plain form of directory locks")?;
        Ok(match self {
            Self::InProcess { filesystem, .. } => Self::InProcess { filesystem, plain: true },
            mounted @ Self::Mounted(_) => mounted,
        })
    }

    /// Whether it runs in this process.
    #[must_use]
    pub const fn is_in_process(&self) -> bool {
        matches!(self, Self::InProcess { .. })
    }

    /// Refuses what only a filesystem of ours can tell.
    pub(crate) fn check_in_process(&self, what: &'static str) -> Result<(), BenchError> {
        if self.is_in_process() {
            return Ok(());
        }
        Err(BenchError::OnlyInProcess { target: self.to_string(), what })
    }

    /// As it is typed.
    #[must_use]
    pub fn to_typed(&self) -> OsString {
        match self {
            Self::InProcess { .. } => self.to_string().into(),
            Self::Mounted(path) => {
                OsString::from_vec([b"dir:".as_slice(), path.as_os_str().as_bytes()].concat())
            }
        }
    }
}

/// As it is typed, as far as that is text.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InProcess { filesystem, plain } => {
                write!(f, "{}:{}", filesystem.name(), if *plain { PLAIN } else { "" })
            }
            Self::Mounted(path) => write!(f, "dir:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(typed: &str) -> Result<Target, BenchError> {
        Target::parse(OsStr::new(typed))
    }

    #[test]
    fn targets_are_read_as_they_are_written() {
        for typed in ["tmpfs:", "tmpfs:plain", "dir:/dev/shm", "dir:.", "dir:a?b"] {
            let target = parse(typed).unwrap();
            assert_eq!((target.to_string().as_str(), target.to_typed()), (typed, typed.into()));
        }
        let odd = OsStr::from_bytes(b"dir:/\xff");
        assert_eq!(Target::parse(odd).unwrap().to_typed(), odd);
    }

    #[test]
    fn what_is_to_come_is_refused_by_name() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let image = image.path().display();
        let typed =
            NOT_YET.map(str::to_owned).into_iter().chain([image.to_string(), format!("{image}?part=1")]);
        for typed in typed {
            let error = parse(&typed).unwrap_err();
            assert!(matches!(error, BenchError::NotYet(_)), "{error}");
            assert!(error.to_string().starts_with(&typed), "{error}");
        }
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for typed in ["", "tmpfs", "tmpfs:fast", "dir:", "mem:", "mem:ntfs", "nowhere.img"] {
            assert!(matches!(parse(typed), Err(BenchError::UnknownTarget(_))), "{typed}");
        }
    }

    #[test]
    fn only_what_is_ours_has_a_plain_form() {
        assert_eq!(parse("tmpfs:").unwrap().into_plain().unwrap(), parse("tmpfs:plain").unwrap());
        let error = parse("dir:/tmp").unwrap().into_plain().unwrap_err();
        assert!(error.to_string().starts_with("dir:/tmp: the plain form"), "{error}");
    }
}
