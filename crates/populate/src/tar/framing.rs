//! Where headers and content lie in an archive: everything begins at a multiple of 512 bytes.

use std::io::{self, Read};

use super::header::{Header, RECORD_BYTES};
use super::{Archive, foreign};
use crate::SourceErrorKind;

/// The block that an archive is written in, unless its maker says another factor than 20.
const BLOCK_BYTES: u64 = 10_240;

/// An archive without members has less than this, whatever fills its one block. Disks have more, by whole MiB as a rule.
const EMPTY_END_BYTES: u64 = 1 << 20;

/// An archive, and where reading is in it.
pub(super) struct Framing {
    archive: Box<dyn Archive>,
    /// Bytes that were read or skipped.
    at: u64,
    /// Where the last header began.
    last_header: u64,
    /// Bytes of the last member's content that were not read, and of what fills its last record.
    content: u64,
    padding: u64,
    ended: bool,
}

impl Framing {
    pub(super) fn new(archive: Box<dyn Archive>) -> Self {
        Self { archive, at: 0, last_header: 0, content: 0, padding: 0, ended: false }
    }

    /// Where the last header began.
    pub(super) const fn last_header(&self) -> u64 {
        self.last_header
    }

    /// How much was read and skipped.
    pub(super) const fn position(&self) -> u64 {
        self.at
    }

    /// Reads to the end of the stream.
    pub(super) fn drain(&mut self) -> Result<(), SourceErrorKind> {
        io::copy(&mut self.archive, &mut io::sink()).map(drop).map_err(failed)
    }

    /// The next header, behind the rest of the last member; `None` at the end.
    pub(super) fn next_header(&mut self) -> Result<Option<Header>, SourceErrorKind> {
        self.skip_rest()?;
        if self.ended {
            return Ok(None);
        }
        self.last_header = self.at;
        let mut record = [0; RECORD_BYTES];
        let read = self.read_up_to(&mut record)?;
        let ends = read == 0 || record.iter().all(|&byte| byte == 0);
        if read > 0 && self.at < RECORD_BYTES as u64 {
            return Err(foreign::what(record.get(..read).unwrap_or_default()));
        }
        if read > 0 && read < RECORD_BYTES {
            return Err(cut_off());
        }
        if ends {
            self.ended = true;
            if self.last_header == 0 && read > 0 {
                self.refuse_zeroes()?;
            }
            self.archive.finish().map_err(failed)?;
            return Ok(None);
        }
        let header = Header::new(record).ok_or_else(|| self.no_header(&record))?;
        Ok(Some(header))
    }

    /// Refuses what begins with zeroes and is no archive without members: the image of a disk, for example.
    fn refuse_zeroes(&mut self) -> Result<(), SourceErrorKind> {
        let mut record = [0; RECORD_BYTES];
        loop {
            let read = self.read_up_to(&mut record)?;
            let is_cut = self.at > BLOCK_BYTES && !self.at.is_multiple_of(RECORD_BYTES as u64);
            if self.at >= EMPTY_END_BYTES || is_cut || record.iter().any(|&byte| byte != 0) {
                return Err(foreign::zeroes());
            }
            if read < RECORD_BYTES {
                return Ok(());
            }
        }
    }

    fn no_header(&self, record: &[u8]) -> SourceErrorKind {
        if self.last_header == 0 {
            return foreign::what(record);
        }
        SourceErrorKind::Malformed("a header's checksum does not fit its bytes".into())
    }

    /// Says that so many bytes of content follow the last header.
    pub(super) fn expect_content(&mut self, len: u64) {
        self.content = len;
        self.padding = len.wrapping_neg() % RECORD_BYTES as u64;
    }

    /// Reads the next bytes of the content.
    pub(super) fn read_content(&mut self, buf: &mut [u8]) -> Result<(), SourceErrorKind> {
        let left = self.content.checked_sub(buf.len() as u64);
        let Some(left) = left else {
            return Err(SourceErrorKind::Malformed("its content is shorter than its map of data".into()));
        };
        self.read_exact(buf)?;
        self.content = left;
        Ok(())
    }

    /// Reads a record of 512 bytes that follows the last header, and is none of its content.
    pub(super) fn read_record(&mut self) -> Result<[u8; RECORD_BYTES], SourceErrorKind> {
        let mut record = [0; RECORD_BYTES];
        self.read_exact(&mut record)?;
        Ok(record)
    }

    /// Reads the whole content of an extended header, whose length was checked.
    pub(super) fn read_whole(&mut self, len: u64) -> Result<Vec<u8>, SourceErrorKind> {
        self.expect_content(len);
        let mut whole = Vec::new();
        let read = <&mut Box<dyn Archive> as Read>::take(&mut self.archive, len)
            .read_to_end(&mut whole)
            .map_err(crate::failure)?;
        self.at += read as u64;
        if (read as u64) < len {
            return Err(cut_off());
        }
        self.content = 0;
        Ok(whole)
    }

    /// Passes over the content of a member that means nothing here.
    pub(super) fn skip_content(&mut self, header: &Header) -> Result<(), SourceErrorKind> {
        let len = header.size()?;
        self.expect_content(len);
        self.skip_rest()
    }

    /// Passes over what is left of the last member.
    pub(super) fn skip_rest(&mut self) -> Result<(), SourceErrorKind> {
        let (content, padding) = (std::mem::take(&mut self.content), std::mem::take(&mut self.padding));
        if content > 0 {
            self.archive.skip(content).map_err(failed)?;
            self.at = self.at.saturating_add(content);
        }
        // umoci ends archives without it.
        let mut record = [0; RECORD_BYTES];
        self.read_up_to(&mut record[..padding as usize]).map(drop)
    }

    fn read_exact(&mut self, buf: &mut [u8]) -> Result<(), SourceErrorKind> {
        self.archive.read_exact(buf).map_err(failed)?;
        self.at += buf.len() as u64;
        Ok(())
    }

    /// Reads until the buffer is full or the archive ends.
    fn read_up_to(&mut self, buf: &mut [u8]) -> Result<usize, SourceErrorKind> {
        let mut read = 0;
        while let Some(rest) = buf.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match self.archive.read(rest) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(crate::failure(error)),
            }
        }
        self.at += read as u64;
        Ok(read)
    }
}

fn failed(error: io::Error) -> SourceErrorKind {
    // Of the archive itself, unless what it is compressed with says more.
    if error.kind() == io::ErrorKind::UnexpectedEof && error.get_ref().is_none() {
        cut_off()
    } else {
        crate::failure(error)
    }
}

fn cut_off() -> SourceErrorKind {
    SourceErrorKind::Malformed("the archive is cut off".into())
}
