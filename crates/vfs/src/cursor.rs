//! An open file with a position, for what reads and writes by [`std::io`].
//!
//! The position is the cursor's own and has no lock: threads that share a file use [`File`] itself, whose calls take an
//! offset.

use std::io::{self, Read, Seek, SeekFrom, Write};

use crate::File;

/// An open file with a position. See [`File::into_cursor`].
///
/// Writing puts bytes at the position, over what is there, and past the end makes the file longer. [`flush`](Write::flush)
/// has nothing to do: there is no buffer above the file, and what makes it durable is [`File::sync`].
#[derive(Debug)]
pub struct FileCursor {
    file: File,
    position: u64,
}

impl File {
    /// The file as a [`Read`], [`Write`] and [`Seek`], from its first byte on.
    #[must_use]
    pub fn into_cursor(self) -> FileCursor {
        FileCursor { file: self, position: 0 }
    }
}

impl FileCursor {
    /// The file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The file without a position.
    #[must_use]
    pub fn into_file(self) -> File {
        self.file
    }
}

impl Read for FileCursor {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(self.position, buf)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl Write for FileCursor {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.file.write_at(self.position, data)?;
        self.position += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for FileCursor {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(by) => self.file.size_bytes().checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        self.position = position.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "a position before the file's first byte")
        })?;
        Ok(self.position)
    }
}
