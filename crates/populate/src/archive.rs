//! Where the bytes of an archive come from: a file that may be read again, or a stream that is kept in one.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::compress;
use crate::tar::{Archive, OpenArchive};

/// Bytes that are read at once.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

/// A position in a part of a file.
pub(crate) struct FilePart {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl FilePart {
    pub(crate) fn new(file: Arc<File>, range: Range<u64>) -> Self {
        Self { file, at: range.start, end: range.end }
    }
}

impl Read for FilePart {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let len = buf.len().min(left);
        let read = self.file.read_at(&mut buf[..len], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for FilePart {
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

/// An archive in a part of a file.
pub(crate) struct FileArchive(BufReader<FilePart>);

impl FileArchive {
    pub(crate) fn new(part: FilePart) -> Self {
        Self(BufReader::with_capacity(BUFFER_BYTES, part))
    }
}

impl Read for FileArchive {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Archive for FileArchive {
    fn skip(&mut self, len: u64) -> io::Result<()> {
        let len = i64::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        self.0.seek_relative(len)
    }

    /// Nothing in a plain file says more about what is before it.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A regular file as an archive; it is read again from its beginning each time that it is opened.
///
/// # Errors
/// Its size cannot be had.
pub fn archive_in(file: File) -> io::Result<OpenArchive> {
    let file = Arc::new(file);
    file.metadata()?;
    Ok(Box::new(move || {
        let len = file.metadata()?.len();
        Ok(Box::new(FileArchive::new(FilePart::new(Arc::clone(&file), 0..len))))
    }))
}

/// An archive that can be opened once.
pub(crate) fn once(archive: Box<dyn Archive>) -> OpenArchive {
    let archive = Cell::new(Some(archive));
    Box::new(move || archive.take().ok_or_else(|| io::Error::other("an archive is read once")))
}

/// A stream as an archive that can be read again: all of it is kept in a file without a name in `dir`.
///
/// # Errors
/// The stream cannot be read, or not kept, or has more than `most_bytes`; [`failure`](crate::failure) tells which.
pub fn archive_from(stream: &mut dyn Read, dir: &Path, most_bytes: u64) -> io::Result<OpenArchive> {
    let mut kept = tempfile::tempfile_in(dir)?;
    if io::copy(&mut stream.take(most_bytes.saturating_add(1)), &mut kept)? > most_bytes {
        return Err(compress::too_large(most_bytes));
    }
    archive_in(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SourceErrorKind, failure};

    #[test]
    fn endless_streams_are_kept_up_to_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let whole = [7_u8; 1000];
        let mut read = Vec::new();
        archive_from(&mut &whole[..], dir.path(), 1000).unwrap()().unwrap().read_to_end(&mut read).unwrap();
        assert_eq!(read, whole);
        let endless = archive_from(&mut io::repeat(0), dir.path(), 1 << 20);
        let Err(error) = endless else { panic!("all of an endless stream was kept") };
        assert!(matches!(failure(error), SourceErrorKind::TooLarge(_)));
    }
}
