//! The same done twice: in a directory of Linux's own tmpfs, and in one of ours through the mount. What the first
//! answers is right.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use tempfile::TempDir;
use undercroft_fuse::{MountOptions, Mounted, mount};
use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::{Vfs, VfsOptions};

/// Space in both.
const SIZE: &str = "size=64M";

/// A tmpfs of ours, served by this process. Unmounted when dropped.
pub(crate) struct Ours {
    _mounted: Mounted,
    dir: TempDir,
}

impl Ours {
    pub(crate) fn new(options: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut how = TmpfsOptions::default();
        how.apply(SIZE).unwrap();
        let vfs = Vfs::new(Tmpfs::new(&how).unwrap(), VfsOptions::default());
        let mut settings = MountOptions::parse("rw,allow_other,suid,dev").unwrap();
        settings.apply(options).unwrap();
        let mounted = mount(vfs, dir.path(), settings).unwrap();
        Self { _mounted: mounted, dir }
    }

    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// A tmpfs of Linux's.
struct Theirs {
    dir: TempDir,
}

impl Theirs {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = std::ffi::CString::new(SIZE).unwrap();
        rustix::mount::mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), data.as_c_str()).unwrap();
        Self { dir }
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.dir.path(), UnmountFlags::DETACH);
    }
}

/// Answers of system calls, in the order in which they were made, each with a word that says which it is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers(Vec<(String, Result<String, Errno>)>);

impl Answers {
    /// Notes an answer of the standard library.
    pub(crate) fn note<T: std::fmt::Debug>(&mut self, what: &str, answer: io::Result<T>) {
        let answer = answer.map(|value| format!("{value:?}"));
        self.0.push((what.to_owned(), answer.map_err(|error| Errno::from_io_error(&error).unwrap())));
    }

    /// Notes an answer of a system call.
    pub(crate) fn call<T: std::fmt::Debug>(&mut self, what: &str, answer: rustix::io::Result<T>) {
        self.note(what, answer.map_err(io::Error::from));
    }

    /// Notes something that is known already.
    pub(crate) fn tell<T: std::fmt::Debug>(&mut self, what: &str, value: T) {
        self.note(what, Ok(value));
    }
}

/// Does `work` in both, under every way to mount ours that treats files differently, and compares the answers.
pub(crate) fn same_answers(work: impl Fn(&Path, &mut Answers)) {
    same_answers_with(&["", "no_writeback_cache", "direct_io", "readdirplus=never,threads=1"], work);
}

/// As [`same_answers`], with these options.
pub(crate) fn same_answers_with(ways: &[&str], work: impl Fn(&Path, &mut Answers)) {
    let theirs = Theirs::new();
    let dir = |parent: &Path| {
        let dir = parent.join("work");
        fs::create_dir(&dir).unwrap();
        dir
    };
    let mut expected = Answers::default();
    work(&dir(theirs.dir.path()), &mut expected);
    for &options in ways {
        let ours = Ours::new(options);
        let mut answers = Answers::default();
        work(&dir(ours.root()), &mut answers);
        for (theirs, ours) in expected.0.iter().zip(&answers.0) {
            assert_eq!(theirs, ours, "with \"{options}\"");
        }
        assert_eq!(expected.0.len(), answers.0.len());
    }
}
