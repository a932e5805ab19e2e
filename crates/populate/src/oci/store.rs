//! Where an image's files are: in a directory, or in an archive of one.
//!
//! Nothing else is opened. In a directory every name on the way is opened without following links; in an archive a link
//! leads to another member only.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::blob::Blob;
use crate::tar::TarSource;
use crate::{EntryKind, EntryPath, Source, SourceError, SourceErrorKind};

/// Most members of an archive.
const MEMBERS_MAX: usize = 100_000;
/// Most bytes of a member's name.
const NAME_MAX_BYTES: usize = 1024;
/// Most links on the way to a member.
const LINKS_MAX: usize = 8;

/// An image's files by their paths.
#[derive(Debug)]
pub(super) enum Store {
    Directory(OwnedFd),
    Archive(Members),
}

/// The members of an archive.
#[derive(Debug)]
pub(super) struct Members {
    file: Arc<File>,
    members: HashMap<EntryPath, Member>,
}

#[derive(Debug)]
enum Member {
    /// With the place of its content.
    File(Range<u64>),
    /// To another one.
    Link(EntryPath),
    /// A file that cannot be a part of an image.
    Other,
}

impl Store {
    /// A directory of the host.
    pub(super) fn directory(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self::Directory(fs::open(path, flags, Mode::empty())?))
    }

    /// An archive in a file.
    pub(super) fn archive(shown: &str, file: File) -> Result<Self, SourceError> {
        let kind = |error| SourceError::new(shown, SourceErrorKind::Io(error));
        let blob = Blob::whole(file).map_err(kind)?;
        let file = blob.file();
        let mut source = TarSource::new(shown, Box::new(move || Ok(blob.archive())));
        let mut members = HashMap::new();
        while let Some(entry) = source.next_entry()? {
            let refused = |kind| SourceError::new(shown, kind).at_member(entry.path.as_bytes());
            let member = match &entry.kind {
                EntryKind::Directory => continue,
                EntryKind::Regular(content) if content.data.is_none() => {
                    let begin = source.content_begin();
                    Member::File(begin..begin.saturating_add(content.size_bytes))
                }
                EntryKind::HardLink(target) => Member::Link(target.clone()),
                EntryKind::Symlink(target) => link(&entry.path, target).map_or(Member::Other, Member::Link),
                _ => Member::Other,
            };
            if members.len() >= MEMBERS_MAX || entry.path.as_bytes().len() > NAME_MAX_BYTES {
                return Err(refused(SourceErrorKind::TooLarge(
                    "it has more names than an image can have".into(),
                )));
            }
            members.insert(entry.path, member);
        }
        Ok(Self::Archive(Members { file, members }))
    }

    /// The file at a path; `None` if there is none.
    pub(super) fn open(&self, path: &str) -> Result<Option<Blob>, SourceErrorKind> {
        let path = EntryPath::new(path.as_bytes()).map_err(|error| {
            SourceErrorKind::Refused(format!("{path:?} is no path of a file in it: {error}"))
        })?;
        match self {
            Self::Directory(top) => match open_below(top, &path) {
                Ok(blob) => Ok(blob),
                Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                    Err(leads_elsewhere(&path))
                }
                Err(error) => Err(SourceErrorKind::Io(error)),
            },
            Self::Archive(archive) => archive.open(path),
        }
    }
}

fn leads_elsewhere(path: &EntryPath) -> SourceErrorKind {
    SourceErrorKind::Refused(format!("{path:?} is, or lies behind, a symbolic link, which is not followed"))
}

/// What a symbolic link in an archive leads to, if that can be in the archive.
fn link(path: &EntryPath, target: &[u8]) -> Option<EntryPath> {
    let (dir, _) = path.split()?;
    let mut names: Vec<&[u8]> =
        if target.first() == Some(&b'/') { return None } else { dir.split(|&b| b == b'/').collect() };
    for name in target.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()?),
            name => names.push(name),
        }
    }
    EntryPath::new(&names.join(&b'/')).ok()
}

fn open_below(top: &OwnedFd, path: &EntryPath) -> io::Result<Option<Blob>> {
    let mut dir: Option<OwnedFd> = None;
    let mut names = path.names().peekable();
    while let Some(name) = names.next() {
        let here = dir.as_ref().map_or(top.as_fd(), AsFd::as_fd);
        let is_last = names.peek().is_none();
        let more = if is_last { OFlags::NONBLOCK } else { OFlags::DIRECTORY };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | more;
        match fs::openat(here, name, flags, Mode::empty()) {
            Ok(open) => dir = Some(open),
            Err(Errno::NOENT) => return Ok(None),
            // Of a link, with the flag for directories.
            Err(Errno::NOTDIR) => return Err(Errno::LOOP.into()),
            Err(error) => return Err(error.into()),
        }
    }
    let Some(open) = dir else { return Ok(None) };
    if FileType::from_raw_mode(fs::fstat(&open)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other(format!("{path:?} is no regular file")));
    }
    Blob::whole(File::from(open)).map(Some)
}

impl Members {
    fn open(&self, path: EntryPath) -> Result<Option<Blob>, SourceErrorKind> {
        let mut path = path;
        for _ in 0..=LINKS_MAX {
            match self.members.get(&path) {
                None => return Ok(None),
                Some(Member::File(range)) => {
                    return Ok(Some(Blob::new(Arc::clone(&self.file), range.clone())));
                }
                Some(Member::Link(target)) => path = target.clone(),
                Some(Member::Other) => {
                    return Err(SourceErrorKind::Refused(format!(
                        "{path:?} is no regular file of the archive"
                    )));
                }
            }
        }
        Err(SourceErrorKind::Refused(format!("{path:?} is a link to itself")))
    }
}
