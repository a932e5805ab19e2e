//! A program that looks at everything in a mounted filesystem, by system calls. Every answer is right; what counts is
//! that there is one.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// A damaged directory can make a small image look vast: so many entries are looked at.
const MOST_ENTRIES: usize = 3000;
/// And so much at both ends of each file.
const READ_BYTES: usize = 16 * 1024;
/// Longer paths are refused by the kernel.
const MOST_DEPTH: usize = 40;

/// How a look at a mount went.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) entries: usize,
    pub(crate) errors: usize,
}

/// Walks as `ls -lR` and `find` do, and reads what there is.
pub(crate) fn look_at(root: &Path) -> Seen {
    let mut seen = Seen::default();
    let mut buf = vec![0; READ_BYTES];
    let mut waiting: Vec<(PathBuf, usize)> = vec![(root.to_owned(), 0)];
    while let Some((dir, depth)) = waiting.pop() {
        let Ok(entries) = fs::read_dir(&dir) else {
            seen.errors += 1;
            continue;
        };
        for entry in entries {
            let Ok(entry) = entry else {
                seen.errors += 1;
                break;
            };
            seen.entries += 1;
            if seen.entries > MOST_ENTRIES {
                return seen;
            }
            let path = entry.path();
            if let Some(is_directory) = look_at_one(&path, &mut buf, &mut seen)
                && is_directory
                && depth < MOST_DEPTH
            {
                waiting.push((path, depth + 1));
            }
        }
    }
    seen
}

/// Asks everything of one path; tells whether it is a directory, if it can be had at all.
fn look_at_one(path: &Path, buf: &mut [u8], seen: &mut Seen) -> Option<bool> {
    let attr = seen.note(fs::symlink_metadata(path))?;
    let kind = attr.file_type();
    let mut names = [0; 4096];
    if let Some(len) = seen.note(rustix::fs::llistxattr(path, &mut names[..])) {
        for name in names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            let name = std::ffi::OsStr::from_bytes(name);
            seen.note(rustix::fs::lgetxattr(path, name, &mut *buf));
        }
    }
    if kind.is_symlink() {
        seen.note(fs::read_link(path));
    }
    if kind.is_dir() {
        seen.note(fs::symlink_metadata(path.join("..")));
        let missing = fs::symlink_metadata(path.join("no such name, but long enough to be hashed"));
        if missing.is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound) {
            seen.errors += 1;
        }
    }
    if kind.is_file() {
        // Neither through a link nor waiting for a pipe's other end, if the damage is of that kind.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        if let Some(file) = seen.note(File::options().read(true).custom_flags(flags).open(path)) {
            seen.note(file.read_at(buf, 0));
            seen.note(file.read_at(buf, attr.len().saturating_sub(buf.len() as u64)));
        }
    }
    Some(kind.is_dir())
}

impl Seen {
    fn note<T, E>(&mut self, answer: Result<T, E>) -> Option<T> {
        self.errors += usize::from(answer.is_err());
        answer.ok()
    }
}
