//! Where the bytes of an archive come from: a file that may be read again, or a stream that is kept in one.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::compress;
use crate::tar::{Archive, OpenArchive};

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 256 << 10;

/// A file from a position of its own.
struct At {
    file: Arc<File>,
    at: u64,
    len: u64,
}

impl Read for At {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buf, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for At {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(to) => Some(to),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.len.checked_add_signed(by),
        };
        self.at = to.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// An archive in a file.
struct FileArchive(BufReader<At>);

impl Read for FileArchive {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Archive for FileArchive {
    fn skip(&mut self, len: u64) -> io::Result<()> {
        let At { at, len: end, .. } = *self.0.get_ref();
        let here = at.saturating_sub(self.0.buffer().len() as u64);
        if len > end.saturating_sub(here) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
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
        let at = At { file: Arc::clone(&file), at: 0, len };
        Ok(Box::new(FileArchive(BufReader::with_capacity(BUFFER_BYTES, at))))
    }))
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
