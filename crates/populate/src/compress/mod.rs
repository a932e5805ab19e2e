//! Compressed streams: gzip, xz, zstd and bzip2, recognised by their first bytes and never by a name.
//!
//! | module     | holds                                                             |
//! | ---------- | ----------------------------------------------------------------- |
//! | this one   | which compression it is, and the reader of what comes out         |
//! | `gzip`     | gzip's members, one after the other                               |
//! | `thread`   | decompression on a thread of its own                              |
//!
//! What comes out is bounded ([`decompressed`]), and so is the memory that a stream may ask for: 128 MiB of window.

mod gzip;
#[cfg(test)]
mod tests;
mod thread;

use std::fmt;
use std::io::{self, BufReader, Chain, Cursor, Read};

use self::gzip::Members;
use self::thread::Pieces;
use crate::SourceErrorKind;

/// A stream of bytes.
pub type Stream = Box<dyn Read + Send>;

/// Bytes that say what a stream is.
const MARK_BYTES: usize = 10;
/// Bytes that are read at once of what is compressed.
const READ_BYTES: usize = 128 << 10;
/// Binary logarithm of the largest window of zstd; `zstd --long=28` and above writes larger ones.
const ZSTD_WINDOW_LOG: u32 = 27;
/// KiB that decoding xz may take: a dictionary of 128 MiB and what comes with it. `xz -9` needs 64 MiB.
const XZ_MEMORY_KIB: u32 = (128 << 10) + 1024;

/// What a stream is compressed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// gzip, of any number of members.
    Gzip,
    /// xz, of any number of streams.
    Xz,
    /// zstd, of any number of frames.
    Zstd,
    /// bzip2, of any number of streams.
    Bzip2,
}

/// First bytes of what is not supported, and its name.
const UNSUPPORTED: [(&[u8], &str); 5] = [
    (b"LZIP\x01", "lzip"),
    (b"\x89LZO\0\r\n\x1a\n", "lzop"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\x1f\x9d", "compress"),
    (b"\x5d\0\0\x80\0\xff", "lzma"),
];

impl Compression {
    /// What a stream that begins with these bytes is compressed with; `None`: with nothing known here.
    #[must_use]
    pub fn recognised(first: &[u8]) -> Option<Self> {
        match first {
            [0x1f, 0x8b, 8, ..] => Some(Self::Gzip),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            // A frame, or one to be skipped in front of it.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            // With the mark of a block, or with that of the end.
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..]
            | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, 0x38, 0x50, 0x90, ..] => Some(Self::Bzip2),
            _ => None,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
        })
    }
}

/// Why a stream cannot be decompressed, as the cause within an [`io::Error`].
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("what is compressed with {0} in it is larger than {1} bytes")]
    TooLarge(Compression, u64),
    #[error("it is larger than {0} bytes")]
    TooLong(u64),
    #[error("it is compressed with {0}, which is not supported")]
    Unsupported(&'static str),
    #[error("its {0} data is damaged or asks for too much memory, after {1} bytes of output: {2}")]
    Damaged(Compression, u64, io::Error),
}

/// What a failed read of a stream says about the source.
#[must_use]
pub fn failure(error: io::Error) -> SourceErrorKind {
    let cause = error.get_ref();
    match cause.and_then(|cause| cause.downcast_ref::<Refused>()) {
        Some(Refused::TooLarge(..) | Refused::TooLong(_)) => SourceErrorKind::TooLarge(error.to_string()),
        Some(Refused::Unsupported(_)) => SourceErrorKind::Unsupported(error.to_string()),
        Some(Refused::Damaged(..)) => SourceErrorKind::Malformed(error.to_string()),
        None if cause.is_some_and(is_ours) => SourceErrorKind::Malformed(error.to_string()),
        None if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
            SourceErrorKind::Malformed(error.to_string())
        }
        None => SourceErrorKind::Io(error),
    }
}

/// The failure of a stream of more bytes than were allowed.
pub(crate) fn too_large(most_bytes: u64) -> io::Error {
    io::Error::other(Refused::TooLong(most_bytes))
}

/// The stream as it was before it was compressed, or as it is if it is not compressed. Decompression runs on a thread of
/// its own, which ends with the stream or soon after the reader is dropped.
///
/// A stream from which more than `most_bytes` come fails there.
///
/// # Errors
/// The stream cannot be read, or is compressed with something else. What is wrong further on comes as a failure of a read;
/// [`failure`] tells what it means.
pub fn decompressed(stream: Stream, most_bytes: u64) -> io::Result<Stream> {
    let (first, stream) = with_first(stream)?;
    let Some(compression) = Compression::recognised(&first) else {
        let unsupported = UNSUPPORTED.iter().find(|(mark, _)| first.starts_with(mark));
        return match unsupported {
            Some((_, name)) => Err(io::Error::other(Refused::Unsupported(name))),
            None => Ok(Box::new(stream)),
        };
    };
    let decoder = decoder(compression, BufReader::with_capacity(READ_BYTES, stream))?;
    Ok(Box::new(Pieces::of(Bounded { decoder, compression, came: 0, most_bytes })?))
}

/// A stream of which some was read.
type Whole = Chain<Cursor<Vec<u8>>, Stream>;

/// The first bytes of a stream, and all of it.
fn with_first(mut stream: Stream) -> io::Result<(Vec<u8>, Whole)> {
    let mut first = Vec::with_capacity(MARK_BYTES);
    (&mut stream).take(MARK_BYTES as u64).read_to_end(&mut first)?;
    Ok((first.clone(), Cursor::new(first).chain(stream)))
}

fn decoder<R: io::BufRead + Send + 'static>(compression: Compression, stream: R) -> io::Result<Stream> {
    Ok(match compression {
        Compression::Gzip => Box::new(Members::of(stream)),
        Compression::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(stream, true, XZ_MEMORY_KIB)),
        Compression::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(stream)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG)?;
            Box::new(decoder)
        }
        Compression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(stream)),
    })
}

/// A decoder that gives so much and no more, and whose failures say where.
struct Bounded {
    decoder: Stream,
    compression: Compression,
    came: u64,
    most_bytes: u64,
}

impl Read for Bounded {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.decoder.read(buf).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            // A failure of the stream below says itself what it is.
            _ if error.raw_os_error().is_some() || error.get_ref().is_some_and(is_ours) => error,
            _ => io::Error::other(Refused::Damaged(self.compression, self.came, error)),
        })?;
        self.came += len as u64;
        if self.came > self.most_bytes {
            return Err(io::Error::other(Refused::TooLarge(self.compression, self.most_bytes)));
        }
        Ok(len)
    }
}

/// Whether an error comes from a reader of this crate.
fn is_ours(inner: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    inner.is::<Refused>() || inner.is::<crate::verify::Mismatch>()
}
