//! What is measured: the one place that knows the filesystems by name.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::{ArrayForm, BenchError, Ext4Form, InProcess, XfsForm};

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
    /// A device in memory of this process, without a filesystem on it.
    Device,
    /// A RAID5 array of devices in memory of this process; with an ext4 on it for workloads that need files.
    Array(ArrayForm),
    /// What such an array does at least: copying, XOR, reading and writing, without an array.
    Xor {
        /// On files in memory instead of memory of this process.
        files: bool,
    },
    /// Whatever is mounted where this directory is, by system calls.
    Mounted(PathBuf),
}

/// The device without a filesystem, as users type it.
const DEVICE: &str = "mem:raw";

/// What follows the colon to ask for one lock for each directory.
const PLAIN: &str = "plain";

/// An array of devices in memory, as users type it; more may follow.
const ARRAY: &str = "mem:md5";
/// The least that an array does, as users type it.
const XOR: &str = "mem:xor";
/// The same where the array is `mem:md5:files`.
const XOR_FILES: &str = "mem:xor:files";

/// The filesystem in memory, as users type it.
const TMPFS: &str = "tmpfs:";
/// ext4 on a device in memory, as users type it; more may follow.
const EXT4: &str = "mem:ext4";
/// XFS on a device in memory, as users type it; more may follow.
const XFS: &str = "mem:xfs";

impl Target {
    /// Reads a target as users type it: `tmpfs:`, `tmpfs:plain`, `mem:ext4`, `mem:ext4:plain,orphan=list`, `mem:xfs`,
    /// `mem:xfs:finobt=0,agcount=1`, `mem:raw`, `mem:md5`, `mem:md5:stripes=16,stripe_wake=all`, `mem:xor`, `dir:PATH`.
    ///
    /// # Errors
    /// [`NotYet`](BenchError::NotYet) for an image;
    /// [`UnknownTarget`](BenchError::UnknownTarget).
    pub fn parse(typed: &OsStr) -> Result<Self, BenchError> {
        let shown = || typed.to_string_lossy().into_owned();
        if let Some(path) = typed.as_bytes().strip_prefix(b"dir:").filter(|path| !path.is_empty()) {
            return Ok(Self::Mounted(OsStr::from_bytes(path).into()));
        }
        if typed == OsStr::new(DEVICE) {
            return Ok(Self::Device);
        }
        for (name, files) in [(XOR, false), (XOR_FILES, true)] {
            if typed == OsStr::new(name) {
                return Ok(Self::Xor { files });
            }
        }
        if let Some(form) = typed.to_str().and_then(parse_array) {
            return Ok(Self::Array(form));
        }
        if let Some(target) = typed.to_str().and_then(Self::parse_in_process) {
            return Ok(target);
        }
        let is_image = || {
            let path = typed.as_bytes().split(|&byte| byte == b'?').next().unwrap_or_default();
            Path::new(OsStr::from_bytes(path)).exists()
        };
        if is_image() {
            return Err(BenchError::NotYet(shown()));
        }
        Err(BenchError::UnknownTarget(shown()))
    }

    fn parse_in_process(typed: &str) -> Option<Self> {
        if let Some(how) = typed.strip_prefix(TMPFS) {
            let plain = how == PLAIN;
            return (plain || how.is_empty())
                .then_some(Self::InProcess { filesystem: InProcess::Tmpfs, plain });
        }
        if let Some(how) = typed.strip_prefix(XFS) {
            let (form, plain) = parse_form(how, XfsForm::default(), XfsForm::with)?;
            return Some(Self::InProcess { filesystem: InProcess::Xfs(form), plain });
        }
        let (form, plain) = parse_form(typed.strip_prefix(EXT4)?, Ext4Form::default(), Ext4Form::with)?;
        Some(Self::InProcess { filesystem: InProcess::Ext4(form), plain })
    }

    /// The same filesystem with one lock for each directory.
    ///
    /// # Errors
    /// [`OnlyInProcess`](BenchError::OnlyInProcess) for what is not ours to choose.
    pub fn into_plain(self) -> Result<Self, BenchError> {
        match self {
            Self::InProcess { filesystem, .. } => Ok(Self::InProcess { filesystem, plain: true }),
            Self::Device | Self::Array(_) | Self::Xor { .. } | Self::Mounted(_) => {
                Err(self.only_in_process("the plain form of directory locks"))
            }
        }
    }

    /// Whether it runs in this process.
    #[must_use]
    pub const fn is_in_process(&self) -> bool {
        !matches!(self, Self::Mounted(_))
    }

    /// Refuses what only a filesystem of ours can tell.
    pub(crate) fn check_in_process(&self, what: &'static str) -> Result<(), BenchError> {
        if self.is_in_process() {
            return Ok(());
        }
        Err(self.only_in_process(what))
    }

    fn only_in_process(&self, what: &'static str) -> BenchError {
        BenchError::OnlyInProcess { target: self.to_string(), what }
    }

    /// As it is typed.
    #[must_use]
    pub fn to_typed(&self) -> OsString {
        match self {
            Self::InProcess { .. } | Self::Device | Self::Array(_) | Self::Xor { .. } => {
                self.to_string().into()
            }
            Self::Mounted(path) => {
                OsString::from_vec([b"dir:".as_slice(), path.as_os_str().as_bytes()].concat())
            }
        }
    }
}

/// A form by its words, each of which `with` adds, and whether the plain form of directory locks is among them.
fn parse_form<F>(how: &str, mut form: F, with: impl Fn(F, &str) -> Option<F>) -> Option<(F, bool)> {
    let mut plain = false;
    if !how.is_empty() {
        for word in how.strip_prefix(':')?.split(',') {
            if word == PLAIN {
                plain = true;
            } else {
                form = with(form, word)?;
            }
        }
    }
    Some((form, plain))
}

fn parse_array(typed: &str) -> Option<ArrayForm> {
    match typed.strip_prefix(ARRAY)? {
        "" => Some(ArrayForm::default()),
        how => how.strip_prefix(':')?.split(',').try_fold(ArrayForm::default(), ArrayForm::with),
    }
}

fn write_words(f: &mut fmt::Formatter<'_>, words: impl Iterator<Item = impl fmt::Display>) -> fmt::Result {
    for (index, word) in words.enumerate() {
        write!(f, "{}{word}", if index == 0 { ':' } else { ',' })?;
    }
    Ok(())
}

/// As it is typed, as far as that is text.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InProcess { filesystem: InProcess::Tmpfs, plain } => {
                write!(f, "{TMPFS}{}", if *plain { PLAIN } else { "" })
            }
            Self::InProcess { filesystem: InProcess::Ext4(form), plain } => {
                f.write_str(EXT4)?;
                write_words(f, plain.then_some(PLAIN).into_iter().chain(form.words()))
            }
            Self::InProcess { filesystem: InProcess::Xfs(form), plain } => {
                f.write_str(XFS)?;
                let plain = plain.then(|| PLAIN.to_owned());
                write_words(f, plain.into_iter().chain(form.words().map(|word| word.to_string())))
            }
            Self::Device => f.write_str(DEVICE),
            Self::Array(form) => {
                f.write_str(ARRAY)?;
                write_words(f, form.words())
            }
            Self::Xor { files } => f.write_str(if *files { XOR_FILES } else { XOR }),
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
        for typed in [
            "tmpfs:",
            "tmpfs:plain",
            "mem:ext4",
            "mem:ext4:plain",
            "mem:ext4:plain,orphan=locked,overwrite=journaled,no-journal",
            "mem:ext4:orphan=list",
            "mem:xfs",
            "mem:xfs:plain,finobt=0,overwrite=journaled,agcount=1",
            "mem:xfs:finobt=off",
            "mem:raw",
            "mem:md5",
            "mem:md5:stripe_wake=all,stripes=16,files,member_us=100",
            "mem:xor",
            "mem:xor:files",
            "dir:/dev/shm",
            "dir:.",
            "dir:a?b",
        ] {
            let target = parse(typed).unwrap();
            assert_eq!((target.to_string().as_str(), target.to_typed()), (typed, typed.into()));
        }
        let odd = OsStr::from_bytes(b"dir:/\xff");
        assert_eq!(Target::parse(odd).unwrap().to_typed(), odd);
    }

    #[test]
    fn images_are_refused_by_name() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let image = image.path().display();
        for typed in [image.to_string(), format!("{image}?part=1")] {
            let error = parse(&typed).unwrap_err();
            assert!(matches!(error, BenchError::NotYet(_)), "{error}");
            assert!(error.to_string().starts_with(&typed), "{error}");
        }
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for typed in [
            "",
            "tmpfs",
            "tmpfs:fast",
            "dir:",
            "mem:",
            "mem:raw:",
            "mem:md5:",
            "mem:md5:stripes=0",
            "mem:xor:all",
            "mem:ext4:",
            "mem:ext4:fast",
            "mem:ext4plain",
            "mem:xfs:",
            "mem:xfs:orphan=list",
            "mem:xfs:agcount=0",
            "mem:ntfs",
            "nowhere.img",
        ] {
            assert!(matches!(parse(typed), Err(BenchError::UnknownTarget(_))), "{typed}");
        }
    }

    #[test]
    fn only_what_is_ours_has_a_plain_form() {
        for (target, plain) in
            [("tmpfs:", "tmpfs:plain"), ("mem:ext4:no-journal", "mem:ext4:plain,no-journal")]
        {
            assert_eq!(parse(target).unwrap().into_plain().unwrap(), parse(plain).unwrap());
        }
        for target in ["dir:/tmp", "mem:raw", "mem:md5", "mem:xor"] {
            let error = parse(target).unwrap().into_plain().unwrap_err();
            assert!(error.to_string().starts_with(&format!("{target}: the plain form")), "{error}");
        }
    }
}
