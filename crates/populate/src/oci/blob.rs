//! Content within a file: a blob of a layout, or a member of an archive.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use crate::archive::{BUFFER_BYTES, FileArchive, FilePart};
use crate::tar::Archive;
use crate::{SourceErrorKind, Stream};

/// Most bytes of an index, a manifest or a config.
pub(super) const DOCUMENT_MAX_BYTES: u64 = 4 << 20;

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
        Box::new(BufReader::with_capacity(BUFFER_BYTES, self.part()))
    }

    /// From its first byte on, with parts that are not read.
    pub(super) fn archive(&self) -> Box<dyn Archive> {
        Box::new(FileArchive::new(self.part()))
    }

    fn part(&self) -> FilePart {
        FilePart::new(Arc::clone(&self.file), self.range.clone())
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
