//! Content within a file: a blob of a layout, or a member of an archive.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use crate::tar::Archive;
use crate::{SourceErrorKind, Stream};

/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;
/// Most bytes of an index, a manifest or a config.
const DOCUMENT_MAX_BYTES: u64 = 4 << 20;

/// A part of a file.
#[derive(Clone, Debug)]
pub(super) struct Blob {
    file: Arc<File>,
    range: Range<u64>,
}

/// What tells that a file is another one, or was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity([i64; 7]);

impl Blob {
    pub(super) fn new(file: Arc<File>, range: Range<u64>) -> Self {
        Self { file, range }
    }

    /// All of a file.
    pub(super) fn whole(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self::new(Arc::new(file), 0..len))
    }

    pub(super) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    pub(super) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    pub(super) fn identity(&self) -> io::Result<Identity> {
        let found = self.file.metadata()?;
        let (device, inode) = (found.dev().cast_signed(), found.ino().cast_signed());
        let changed = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
        let [modified, nanoseconds, change, change_nanoseconds] = changed;
        let len = found.len().cast_signed();
        Ok(Identity([device, inode, len, modified, nanoseconds, change, change_nanoseconds]))
    }

    /// From its first byte on.
    pub(super) fn stream(&self) -> Stream {
        Box::new(BufReader::with_capacity(READ_BYTES, self.part()))
    }

    /// From its first byte on, with parts that are not read.
    pub(super) fn archive(&self) -> Box<dyn Archive> {
        Box::new(Skipping(BufReader::with_capacity(READ_BYTES, self.part())))
    }

    fn part(&self) -> Part {
        Part { file: Arc::clone(&self.file), at: self.range.start, end: self.range.end }
    }

    /// All of it, if it is as large as a document may be.
    pub(super) fn document(&self) -> Result<Vec<u8>, SourceErrorKind> {
        if self.len() > DOCUMENT_MAX_BYTES {
            let what = format!(
                "it has {} bytes, more than the {DOCUMENT_MAX_BYTES} that are read of one",
                self.len()
            );
            return Err(SourceErrorKind::TooLarge(what));
        }
        let mut bytes = Vec::new();
        self.part().read_to_end(&mut bytes).map_err(SourceErrorKind::Io)?;
        Ok(bytes)
    }
}

/// A position in a part of a file.
struct Part {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Part {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let len = buf.len().min(left);
        let read = self.file.read_at(&mut buf[..len], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for Part {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(to) => Some(to),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.end.checked_add_signed(by),
        };
        self.at = to.filter(|&to| to <= self.end).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(self.at)
    }
}

struct Skipping(BufReader<Part>);

impl Read for Skipping {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Archive for Skipping {
    fn skip(&mut self, len: u64) -> io::Result<()> {
        let len = i64::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        self.0.seek_relative(len)
    }
}
