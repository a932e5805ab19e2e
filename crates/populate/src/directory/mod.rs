//! A directory of the host as a source: everything that this user may read of it.
//!
//! | module   | holds                                                    |
//! | -------- | -------------------------------------------------------- |
//! | this one | the walk: every directory before its names, in order     |
//! | `levels` | the directories that are being read, with their names    |
//! | `object` | what the system says about one name                      |
//!
//! Names come in the order of their bytes. Each is opened relative to its directory's descriptor, and no symbolic link below
//! the top is followed. Of the directories above the one being read only the nearest are kept open.
//!
//! Times of access are not taken: reading the tree may change them.

mod levels;
mod object;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, FileType as HostType, Mode, OFlags, Stat};

use self::levels::Levels;
use self::object::Object;
use crate::source::piece_len;
use crate::{Content, Entry, EntryKind, EntryPath, LeftOut, Piece, Source, SourceError, SourceErrorKind};

/// A file of the host, by the numbers that no other file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The device of its filesystem.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
}

impl FileId {
    /// Of the file that these are the metadata of.
    #[must_use]
    pub fn of(found: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;

        Self { device: found.dev(), inode: found.ino() }
    }
}

/// A directory of the host.
pub struct DirectorySource {
    shown: Shown,
    path: PathBuf,
    not_these: HashSet<FileId>,
    left_out: Option<LeftOut>,
    /// Directories on other filesystems are not entered.
    one_file_system: bool,
    /// The device of the source's own filesystem, from its first directory on.
    device: Option<u64>,
    /// `None` before the first entry.
    levels: Option<Levels>,
    /// Files with several names that were given, with the first of these and how many are still to come.
    links: HashMap<FileId, (EntryPath, u32)>,
    content: Option<Reading>,
}

/// What errors name.
struct Shown {
    /// The source, as the user knows it.
    source: String,
    /// The one name in the directory that is read, with what is below it: the source is what has this name.
    only: Option<Box<[u8]>>,
}

/// The regular file that came last.
#[derive(Debug)]
struct Reading {
    path: EntryPath,
    file: File,
    /// What the system said of it.
    stat: Stat,
    /// What is left to be read.
    data: std::vec::IntoIter<Range<u64>>,
    range: Range<u64>,
}

impl std::fmt::Debug for DirectorySource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectorySource").field("path", &self.path).finish_non_exhaustive()
    }
}

impl DirectorySource {
    /// The directory at `path`; the files `not_these` are no part of it.
    ///
    /// # Errors
    /// There is no directory that can be read.
    pub fn open(path: &Path, not_these: impl IntoIterator<Item = FileId>) -> Result<Self, SourceError> {
        let source = Self {
            shown: Shown { source: path.display().to_string(), only: None },
            path: path.to_owned(),
            not_these: not_these.into_iter().collect(),
            left_out: None,
            one_file_system: false,
            device: None,
            levels: None,
            links: HashMap::new(),
            content: None,
        };
        source.open_top()?;
        Ok(source)
    }

    /// The same without these paths, of which nothing is opened.
    #[must_use]
    pub fn leaving_out(self, left_out: Option<LeftOut>) -> Self {
        Self { left_out, ..self }
    }

    /// The same, or without entering directories on other filesystems than its first directory's, as `tar` and `cp -x`: they
    /// come without what is in them.
    #[must_use]
    pub fn within_one_file_system(self, one_file_system: bool) -> Self {
        Self { one_file_system, ..self }
    }

    /// The same of one name in the directory, which may be any file; a symbolic link is not followed.
    ///
    /// # Errors
    /// As for [`open`](Self::open). That there is no such name is told by the first entry after the directory's own.
    pub fn only(
        path: &Path,
        name: &[u8],
        not_these: impl IntoIterator<Item = FileId>,
    ) -> Result<Self, SourceError> {
        let source = Self::open(path, not_these)?;
        let own = Path::new(OsStr::from_bytes(name));
        let shown = if path == Path::new(".") { own.to_owned() } else { path.join(own) };
        let shown = Shown { source: shown.display().to_string(), only: Some(name.into()) };
        Ok(Self { shown, ..source })
    }

    fn open_top(&self) -> Result<OwnedFd, SourceError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::open(&self.path, flags, Mode::empty())
            .map_err(|error| self.shown.failure(b"", SourceErrorKind::Io(error.into())))
    }

    fn failure(&self, path: &EntryPath, error: io::Error) -> SourceError {
        self.shown.failure_at(path, error)
    }

    /// The entry of the top, and the names in it as the first level.
    fn begin(&mut self) -> Result<Entry, SourceError> {
        let top = self.open_top()?;
        let root = EntryPath::root();
        let fail = |error: io::Error| self.failure(&root, error);
        let stat = fs::fstat(&top).map_err(|error| fail(error.into()))?;
        let xattrs = object::xattrs_of_open(top.as_fd()).map_err(fail)?;
        let levels = match &self.shown.only {
            Some(name) => Levels::only(top, name),
            None => Levels::new(top).map_err(fail)?,
        };
        self.device = self.shown.only.is_none().then_some(stat.st_dev);
        let metadata = object::metadata(&stat, xattrs);
        self.levels = Some(levels);
        Ok(Entry { path: root, kind: EntryKind::Directory, metadata })
    }

    /// The next name; `None` at the end.
    fn advance(&mut self) -> Result<Option<Entry>, SourceError> {
        loop {
            let Some(levels) = &mut self.levels else { return Ok(None) };
            let Some((name, kind)) = levels.next_name() else {
                let left = levels.leave();
                if !left.map_err(|(path, error)| self.shown.failure(&path, SourceErrorKind::Io(error)))? {
                    return Ok(None);
                }
                continue;
            };
            let path = levels
                .path_of(&name)
                .map_err(|error| self.shown.failure(&name, SourceErrorKind::TooLarge(error.to_string())))?;
            if self.left_out.as_ref().is_some_and(|left_out| left_out(path.as_bytes())) {
                continue;
            }
            let dir = levels.directory();
            let only_on = self.device.filter(|_| self.one_file_system);
            let object =
                Object::look(dir, &name, kind, only_on).map_err(|error| self.failure(&path, error))?;
            if self.not_these.contains(&object.id()) {
                continue;
            }
            if let Some(link) = self.known_link(&path, &object) {
                return Ok(Some(link));
            }
            return self.take(path, &name, object).map(Some);
        }
    }

    /// The entry of a file that was given already, by another name.
    fn known_link(&mut self, path: &EntryPath, object: &Object) -> Option<Entry> {
        if object.stat.st_nlink < 2 || object.kind() == HostType::Directory {
            return None;
        }
        let known = self.links.get_mut(&object.id())?;
        let (target, left) = known;
        let kind = EntryKind::HardLink(target.clone());
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.links.remove(&object.id());
        }
        let metadata = object::metadata(&object.stat, Vec::new());
        Some(Entry { path: path.clone(), kind, metadata })
    }

    /// The entry of a file, which is the one that is read from now on.
    fn take(&mut self, path: EntryPath, name: &[u8], object: Object) -> Result<Entry, SourceError> {
        let Some(levels) = &mut self.levels else {
            return Err(self.failure(&path, io::Error::other("not begun")));
        };
        let fail = |error: io::Error| self.shown.failure_at(&path, error);
        let xattrs = object.xattrs(levels.directory(), name).map_err(fail)?;
        let metadata = object::metadata(&object.stat, xattrs);
        if object.kind() != HostType::Directory && object.stat.st_nlink > 1 {
            let left = u32::try_from(object.stat.st_nlink - 1).unwrap_or(u32::MAX);
            self.links.insert(object.id(), (path.clone(), left));
        }
        let kind = match object.kind() {
            HostType::RegularFile => {
                let Some(open) = object.open else { return Err(fail(object::changed())) };
                let (file, stat) = (File::from(open), object.stat);
                let size_bytes = object.stat.st_size.cast_unsigned();
                // One block of it is not worth a look for holes.
                let may_have_holes = size_bytes > 4096
                    || object.stat.st_blocks.cast_unsigned().saturating_mul(512) < size_bytes;
                let data =
                    if may_have_holes { object::data_of(&file, size_bytes).map_err(fail)? } else { None };
                let content = Content { size_bytes, data };
                let whole = || std::iter::once(0..size_bytes).collect();
                let ranges: Vec<_> = content.data.as_deref().map_or_else(whole, <[_]>::to_vec);
                self.content =
                    Some(Reading { path: path.clone(), file, stat, data: ranges.into_iter(), range: 0..0 });
                EntryKind::Regular(content)
            }
            HostType::Directory => {
                let device = *self.device.get_or_insert(object.stat.st_dev);
                if !self.one_file_system || object.stat.st_dev == device {
                    let Some(open) = object.open else { return Err(fail(object::changed())) };
                    levels.enter(name, open).map_err(fail)?;
                }
                EntryKind::Directory
            }
            HostType::Symlink => EntryKind::Symlink(object::target(levels.directory(), name).map_err(fail)?),
            HostType::Fifo => EntryKind::Fifo,
            HostType::Socket => EntryKind::Socket,
            HostType::CharacterDevice => EntryKind::CharDevice(object.device_number()),
            HostType::BlockDevice => EntryKind::BlockDevice(object.device_number()),
            HostType::Unknown => return Err(fail(io::Error::other("it is a file of an unknown kind"))),
        };
        Ok(Entry { path, kind, metadata })
    }
}

impl Shown {
    fn failure_at(&self, path: &EntryPath, error: io::Error) -> SourceError {
        self.failure(path.as_bytes(), SourceErrorKind::Io(error))
    }

    fn failure(&self, path: &[u8], kind: SourceErrorKind) -> SourceError {
        let error = SourceError::new(&self.source, kind);
        let member = match self.only.as_deref().and_then(|only| path.strip_prefix(only)) {
            Some(below) => below.strip_prefix(b"/").unwrap_or(below),
            None => path,
        };
        if member.is_empty() { error } else { error.at_member(member) }
    }
}

impl Source for DirectorySource {
    fn name(&self) -> &str {
        &self.shown.source
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        self.content = None;
        if self.levels.is_none() { self.begin().map(Some) } else { self.advance() }
    }

    fn read_content(&mut self, buf: &mut [u8]) -> Result<Option<Piece>, SourceError> {
        let Some(reading) = &mut self.content else { return Ok(None) };
        while reading.range.is_empty() {
            match reading.data.next() {
                Some(range) => reading.range = range,
                None => {
                    let same = object::is_as_before(&reading.file, &reading.stat);
                    let same = same.map_err(|error| self.shown.failure_at(&reading.path, error))?;
                    let changed = || self.shown.failure_at(&reading.path, object::changed());
                    return if same { Ok(None) } else { Err(changed()) };
                }
            }
        }
        let offset = reading.range.start;
        let wanted = piece_len(&reading.range, buf.len());
        let Some(buf) = buf.get_mut(..wanted) else { return Ok(None) };
        match reading.file.read_exact_at(buf, offset) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(self.shown.failure_at(&reading.path, object::changed()));
            }
            Err(error) => return Err(self.shown.failure_at(&reading.path, error)),
        }
        reading.range.start += wanted as u64;
        Ok(Some(Piece { offset, len: wanted }))
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.levels = None;
        self.links.clear();
        self.content = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
