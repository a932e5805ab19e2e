//! The directories from the top down to the one that is being read, each with the names that are left in it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, Dir, FileType, Mode, OFlags};

use super::FileId;
use super::object::{changed, id_of};
use crate::{EntryPath, PathError};

/// How many of the nearest directories above the one that is read are kept open, beside the top.
const OPEN_MAX: usize = 64;

/// A name, with the kind of file where the directory says it.
type Name = (Box<[u8]>, FileType);

/// The directories that are being read.
#[derive(Debug)]
pub(super) struct Levels {
    top: OwnedFd,
    /// The names that are left in the top.
    names: std::vec::IntoIter<Name>,
    below: Vec<Level>,
    /// The path of the last level, without a slash in front.
    path: Vec<u8>,
}

#[derive(Debug)]
struct Level {
    name: Box<[u8]>,
    id: FileId,
    /// `None` where it was closed for the sake of those below.
    open: Option<OwnedFd>,
    names: std::vec::IntoIter<Name>,
    /// Bytes in the path of the level above.
    above_len: usize,
}

impl Levels {
    pub(super) fn new(top: OwnedFd) -> io::Result<Self> {
        let names = list(top.as_fd())?;
        Ok(Self { top, names, below: Vec::new(), path: Vec::new() })
    }

    /// The path of a name in the directory that is read.
    pub(super) fn path_of(&self, name: &[u8]) -> Result<EntryPath, PathError> {
        EntryPath::new(&[&self.path[..], name].join(&b'/'))
    }

    /// The directory that is read.
    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.below.last().and_then(|level| level.open.as_ref()).unwrap_or(&self.top).as_fd()
    }

    /// The next name in it.
    pub(super) fn next_name(&mut self) -> Option<Name> {
        self.below.last_mut().map_or(&mut self.names, |level| &mut level.names).next()
    }

    /// Goes into a directory that was opened in the one that is read.
    pub(super) fn enter(&mut self, name: &[u8], open: OwnedFd) -> io::Result<()> {
        let id = id_of(&fs::fstat(&open)?);
        let names = list(open.as_fd())?;
        let above_len = self.path.len();
        if above_len > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        self.below.push(Level { name: name.into(), id, open: Some(open), names, above_len });
        if let Some(far) = self.below.len().checked_sub(OPEN_MAX + 1) {
            self.below[far].open = None;
        }
        Ok(())
    }

    /// Goes back to the directory above; whether there is one.
    pub(super) fn leave(&mut self) -> Result<bool, (Vec<u8>, io::Error)> {
        let Some(left) = self.below.pop() else { return Ok(false) };
        self.path.truncate(left.above_len);
        self.reopen_last().map_err(|error| (self.path.clone(), error))?;
        Ok(true)
    }

    /// Opens the last level again, if it was closed: from the top down, and only if each directory is still the same.
    fn reopen_last(&mut self) -> io::Result<()> {
        if self.below.last().is_none_or(|level| level.open.is_some()) {
            return Ok(());
        }
        let mut at: Option<OwnedFd> = None;
        let kept = self.below.len().saturating_sub(OPEN_MAX / 2);
        for (depth, level) in self.below.iter_mut().enumerate() {
            let open = fs::openat(at.as_ref().unwrap_or(&self.top), &*level.name, flags(), Mode::empty())?;
            if id_of(&fs::fstat(&open)?) != level.id {
                return Err(changed());
            }
            if depth >= kept {
                // Those that come next on the way back.
                level.open = Some(open.try_clone()?);
            }
            at = Some(open);
        }
        Ok(())
    }
}

/// How a directory is opened.
pub(super) fn flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// The names in a directory, in the order of their bytes.
fn list(dir: BorrowedFd<'_>) -> io::Result<std::vec::IntoIter<Name>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push((Box::from(name), entry.file_type()));
        }
    }
    names.sort_unstable_by(|(one, _), (other, _): &(Box<[u8]>, _)| one.cmp(other));
    Ok(names.into_iter())
}

#[cfg(test)]
impl Levels {
    /// How many directories are open.
    pub(super) fn open_count(&self) -> usize {
        1 + self.below.iter().filter(|level| level.open.is_some()).count()
    }
}
