//! A tar archive as a source: POSIX (PAX), GNU and old ones.
//!
//! | module    | holds                                                                     |
//! | --------- | ------------------------------------------------------------------------- |
//! | this one  | members in order, and their content                                       |
//! | `header`  | one header of 512 bytes                                                   |
//! | `pax`     | records of extended headers                                               |
//! | `member`  | header and records together: one entry                                    |
//! | `acl`     | access control lists, from their text                                     |
//! | `names`   | the numbers of users and groups that the archive names                    |
//! | `sparse`  | where a sparse member has data                                            |
//! | `framing` | where headers and content lie in the archive                              |
//! | `foreign` | what a file is that is no tar archive                                     |
//!
//! Owners are the numbers of the archive, never those that a name has on this machine. A slash in front of a name is left
//! out, as GNU tar does, and `..` is refused. An archive may end without the two blocks of zeroes and
//! without what fills its last block, but not within a member. One without members has no more zeroes than fill a block,
//! which is smaller than 1 MiB.
//!
//! Format: POSIX.1-2024, `pax`; the GNU tar manual, "Basic Tar Format" and "Sparse Formats"; star(5) for `SCHILY.`
//! records, libarchive's tar(5) for `LIBARCHIVE.` ones.

mod acl;
mod foreign;
mod framing;
mod header;
mod member;
mod names;
mod pax;
mod sparse;

use std::io::{self, Read};
use std::ops::Range;

use self::framing::Framing;
use self::header::Header;
pub(crate) use self::header::RECORD_BYTES;
use self::names::{Names, Numbers};
use self::pax::{Layered, Records};
use crate::source::piece_len;
use crate::{Entry, EntryKind, Piece, Source, SourceError, SourceErrorKind};

/// Most bytes of records and long names that one member may have.
const EXTENDED_MAX_BYTES: u64 = 4 << 20;

/// Most bytes of records of global headers, all together.
const GLOBAL_MAX_BYTES: usize = 1 << 20;

/// The bytes of an archive, from the first one on.
pub trait Archive: Read + Send {
    /// Skips bytes that need not be read.
    ///
    /// # Errors
    /// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) if there are not as many; the system's.
    fn skip(&mut self, len: u64) -> io::Result<()> {
        let skipped = io::copy(&mut <&mut Self as Read>::take(self, len), &mut io::sink())?;
        if skipped == len { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Reads what follows the last member: a stream that was compressed has its checksum at its end.
    ///
    /// # Errors
    /// The system's, and what decompression finds.
    fn finish(&mut self) -> io::Result<()> {
        io::copy(self, &mut io::sink()).map(drop)
    }
}

/// Opens an archive, from its beginning each time.
pub type OpenArchive = Box<dyn Fn() -> io::Result<Box<dyn Archive>> + Send>;

/// A tar archive.
pub struct TarSource {
    shown: String,
    open: OpenArchive,
    framing: Option<Framing>,
    /// Records of global headers, which hold for all members that follow.
    global: Records,
    /// The numbers that users and groups have by name in this archive.
    names: Names,
    /// What is left of the content of the last member.
    content: Option<Reading>,
}

/// The regular member that came last.
#[derive(Debug)]
struct Reading {
    member: Box<[u8]>,
    /// What comes after `range`.
    data: std::vec::IntoIter<Range<u64>>,
    range: Range<u64>,
}

impl std::fmt::Debug for TarSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TarSource").field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl TarSource {
    /// An archive that `open` opens, known to the user as `shown`. It is opened with the first entry.
    #[must_use]
    pub fn new(shown: impl Into<String>, open: OpenArchive) -> Self {
        Self {
            shown: shown.into(),
            open,
            framing: None,
            global: Records::default(),
            names: Names::default(),
            content: None,
        }
    }

    /// Where in the archive the content of the last entry begins.
    pub(crate) fn content_begin(&self) -> u64 {
        self.framing.as_ref().map_or(0, Framing::position)
    }

    /// Reads what is behind the end of the archive, as far as there is something.
    pub(crate) fn drain(&mut self) -> Result<(), SourceError> {
        match &mut self.framing {
            Some(framing) => framing.drain().map_err(|kind| self.error(None, kind)),
            None => Ok(()),
        }
    }

    /// An archive that is searched for names.
    fn searched(archive: Box<dyn Archive>) -> Self {
        Self {
            shown: String::new(),
            open: Box::new(|| Err(io::ErrorKind::Unsupported.into())),
            framing: Some(Framing::new(archive)),
            global: Records::default(),
            names: Names::of_search(),
            content: None,
        }
    }

    fn error(&self, member: Option<&[u8]>, kind: SourceErrorKind) -> SourceError {
        let error = SourceError::new(&self.shown, kind);
        let error = match member {
            Some(member) => error.at_member(member),
            None => error,
        };
        let at = self.framing.as_ref().map_or(0, Framing::last_header);
        error.at_byte(at)
    }

    fn begin(&mut self) -> Result<(), SourceError> {
        if self.framing.is_none() {
            let archive =
                (self.open)().map_err(|error| SourceError::new(&self.shown, SourceErrorKind::Io(error)))?;
            self.framing = Some(Framing::new(archive));
        }
        Ok(())
    }

    /// The next member that is a file; `None` at the end.
    fn next_member(&mut self) -> Result<Option<Entry>, SourceError> {
        let mut local = Records::default();
        let mut extended_bytes = 0;
        loop {
            let Some(framing) = &mut self.framing else { return Ok(None) };
            let header = match framing.next_header() {
                Ok(Some(header)) => header,
                Ok(None) if local.is_empty() => return Ok(None),
                Ok(None) => {
                    let what = "the archive ends behind an extended header";
                    return Err(self.error(None, SourceErrorKind::Malformed(what.into())));
                }
                Err(kind) => return Err(self.error(None, kind)),
            };
            let name = header.path();
            let result = match header.typeflag() {
                b'x' | b'X' => read_records(framing, &header, &mut extended_bytes, &mut local),
                b'g' => read_global(framing, &header, &mut extended_bytes, &mut self.global),
                b'L' => read_long(framing, &header, &mut extended_bytes).map(|long| local.set(b"path", long)),
                b'K' => {
                    read_long(framing, &header, &mut extended_bytes).map(|long| local.set(b"linkpath", long))
                }
                // The name of the archive.
                b'V' => framing.skip_content(&header).map(drop),
                _ => {
                    let numbers = &mut Numbers { names: &mut self.names, open: &self.open };
                    let records = Layered { local: &local, global: &self.global };
                    let member = member::Member::new(header, records, numbers);
                    let taken = member.and_then(|member| member.into_entry(framing));
                    return match taken {
                        Ok((entry, data)) => Ok(Some(self.began(entry, data))),
                        Err(kind) => {
                            let name = local.get(b"path").map_or(name, <[u8]>::to_vec);
                            Err(self.error(Some(&name), kind))
                        }
                    };
                }
            };
            result.map_err(|kind| self.error(Some(&name), kind))?;
        }
    }

    /// Notes the content that a member has.
    fn began(&mut self, entry: Entry, data: Vec<Range<u64>>) -> Entry {
        self.content = match entry.kind {
            EntryKind::Regular(_) => {
                let member = entry.path.as_bytes().into();
                Some(Reading { member, data: data.into_iter(), range: 0..0 })
            }
            _ => None,
        };
        entry
    }
}

/// Reads the records of an extended header into `records`.
fn read_records(
    framing: &mut Framing,
    header: &Header,
    bytes: &mut u64,
    records: &mut Records,
) -> Result<(), SourceErrorKind> {
    let text = read_extended(framing, header, bytes)?;
    records.read(&text)
}

/// Reads the records of a global header over those of earlier ones.
fn read_global(
    framing: &mut Framing,
    header: &Header,
    bytes: &mut u64,
    records: &mut Records,
) -> Result<(), SourceErrorKind> {
    read_records(framing, header, bytes, records)?;
    // They go before no part of a member's content.
    records.parts.clear();
    if records.bytes() > GLOBAL_MAX_BYTES {
        let what = format!("the global extended headers have more than {GLOBAL_MAX_BYTES} bytes");
        return Err(SourceErrorKind::TooLarge(what));
    }
    Ok(())
}

/// Reads a long name of GNU tar.
fn read_long(framing: &mut Framing, header: &Header, bytes: &mut u64) -> Result<Vec<u8>, SourceErrorKind> {
    let mut name = read_extended(framing, header, bytes)?;
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    name.truncate(end);
    Ok(name)
}

fn read_extended(
    framing: &mut Framing,
    header: &Header,
    bytes: &mut u64,
) -> Result<Vec<u8>, SourceErrorKind> {
    let len = header.size()?;
    *bytes = bytes.saturating_add(len).saturating_add(512);
    if *bytes > EXTENDED_MAX_BYTES {
        let what = format!("its extended headers have more than {EXTENDED_MAX_BYTES} bytes");
        return Err(SourceErrorKind::TooLarge(what));
    }
    framing.read_whole(len)
}

impl Source for TarSource {
    fn name(&self) -> &str {
        &self.shown
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, SourceError> {
        self.begin()?;
        let last = self.content.take();
        let skipped = self.framing.as_mut().map_or(Ok(()), Framing::skip_rest);
        skipped.map_err(|kind| self.error(last.as_ref().map(|last| &*last.member), kind))?;
        self.next_member()
    }

    fn read_content(&mut self, buf: &mut [u8]) -> Result<Option<Piece>, SourceError> {
        let (Some(reading), Some(framing)) = (&mut self.content, &mut self.framing) else { return Ok(None) };
        while reading.range.is_empty() {
            match reading.data.next() {
                Some(range) => reading.range = range,
                None => return Ok(None),
            }
        }
        let offset = reading.range.start;
        let len = piece_len(&reading.range, buf.len());
        let Some(buf) = buf.get_mut(..len) else { return Ok(None) };
        if let Err(kind) = framing.read_content(buf) {
            let member = reading.member.clone();
            return Err(self.error(Some(&member), kind));
        }
        reading.range.start += len as u64;
        Ok(Some(Piece { offset, len }))
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.framing = None;
        self.global = Records::default();
        self.names.may_search();
        self.content = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
