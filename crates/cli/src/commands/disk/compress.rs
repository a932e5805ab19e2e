//! A disk compressed on its way to standard output.

use std::io::{self, Write};

use flate2::write::GzEncoder;
use lzma_rust2::{XzOptions, XzWriter};

use crate::plan::Compress;

/// As the programs of these formats compress when nothing is said.
const XZ_PRESET: u32 = 6;

/// What takes a disk's bytes.
pub(super) enum Compressor<W: Write> {
    Plain(W),
    Gzip(GzEncoder<W>),
    Zstd(zstd::Encoder<'static, W>),
    Xz(Box<XzWriter<W>>),
}

impl<W: Write> Compressor<W> {
    /// Compresses into `out`.
    pub(super) fn new(out: W, how: Option<Compress>) -> io::Result<Self> {
        Ok(match how {
            None => Self::Plain(out),
            Some(Compress::Gzip) => Self::Gzip(GzEncoder::new(out, flate2::Compression::default())),
            Some(Compress::Zstd) => Self::Zstd(zstd::Encoder::new(out, zstd::DEFAULT_COMPRESSION_LEVEL)?),
            Some(Compress::Xz) => Self::Xz(Box::new(XzWriter::new(out, XzOptions::with_preset(XZ_PRESET))?)),
        })
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.write_all(bytes),
            Self::Gzip(out) => out.write_all(bytes),
            Self::Zstd(out) => out.write_all(bytes),
            Self::Xz(out) => out.write_all(bytes),
        }
    }

    /// Writes what is still held.
    pub(super) fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(out) => out,
            Self::Gzip(out) => out.finish()?,
            Self::Zstd(out) => out.finish()?,
            Self::Xz(out) => out.finish()?,
        }
        .flush()
    }
}
