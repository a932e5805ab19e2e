//! A file's bytes as a fingerprint: where its data lies, and SHA-256 of it.
//!
//! Two sums are taken. One covers everything that is not zero, with its place, and looks only where SEEK_DATA
//! shows data: holes cost nothing, so a sparse file of 8 GiB is as cheap as the data in it, and the sum is the
//! same however the file is laid out. The other covers all bytes as a reader sees them, holes as zeroes, for
//! files up to [`FULL_SUM_LIMIT`].
//!
//! The segments must be asked for before anything is read: once an unwritten extent's zeroes are in the page
//! cache, the kernel reports them as data.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::Result;
use crate::error::Context;

/// Largest file in bytes that is also read whole, through its holes.
pub const FULL_SUM_LIMIT: u64 = 64 << 20;

/// What is either all zero or not, in bytes.
const PIECE: usize = 4096;

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The data segments, as (first byte, length); clipped to the file's size.
    pub segments: Vec<(u64, u64)>,
    /// SHA-256 over each aligned piece of 4 KiB that is not all zero: its place and its bytes; then the size.
    pub data_sha256: [u8; 32],
    /// SHA-256 over all bytes, for files up to [`FULL_SUM_LIMIT`].
    pub sha256: Option<[u8; 32]>,
}

impl Content {
    /// Takes the fingerprint of a file of `size` bytes with these data segments. `read` fills the whole
    /// buffer from an offset.
    ///
    /// # Errors
    /// What `read` says.
    pub fn of<E>(
        size: u64,
        segments: Vec<(u64, u64)>,
        mut read: impl FnMut(u64, &mut [u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<Self, E> {
        let mut buf = vec![0; (1 << 20).min(size as usize).next_multiple_of(PIECE)];
        let mut sum = Sha256::new();
        let mut done = 0;
        for &(start, len) in &segments {
            // A piece that two segments touch is taken once.
            let mut at = (start - start % PIECE as u64).max(done);
            let end = (start + len).next_multiple_of(PIECE as u64);
            while at < end {
                let step = (end - at).min(buf.len() as u64).min(size - at) as usize;
                read(at, &mut buf[..step])?;
                for (number, piece) in buf[..step].chunks(PIECE).enumerate() {
                    if piece.iter().any(|byte| *byte != 0) {
                        sum.update((at + (number * PIECE) as u64).to_le_bytes());
                        sum.update(piece);
                    }
                }
                at = (at + step as u64).next_multiple_of(PIECE as u64);
            }
            done = done.max(at);
        }
        sum.update(size.to_le_bytes());
        let sha256 = if size <= FULL_SUM_LIMIT {
            let mut full = Sha256::new();
            feed(&mut full, &mut buf, 0, size, &mut read)?;
            Some(full.finalize().into())
        } else {
            None
        };
        Ok(Self { segments, data_sha256: sum.finalize().into(), sha256 })
    }
}

fn feed<E>(
    sum: &mut Sha256,
    buf: &mut [u8],
    start: u64,
    len: u64,
    read: &mut impl FnMut(u64, &mut [u8]) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let mut at = start;
    while at < start + len {
        let step = (start + len - at).min(buf.len() as u64) as usize;
        read(at, &mut buf[..step])?;
        sum.update(&buf[..step]);
        at += step as u64;
    }
    Ok(())
}

/// The data segments of an open file of `size` bytes, by SEEK_DATA and SEEK_HOLE. Adjoining ones are merged.
///
/// # Errors
/// The kernel's, other than "no more data".
pub fn data_segments(file: impl AsFd, size: u64) -> rustix::io::Result<Vec<(u64, u64)>> {
    let file = file.as_fd();
    collect_segments(size, |offset| match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(start) => rustix::fs::seek(file, SeekFrom::Hole(start)).map(|end| Some((start, end))),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error),
    })
}

/// Collects data segments up to `size`. `next` gives the first data at or after an offset as (start, end), or
/// `None`.
///
/// # Errors
/// What `next` says.
pub fn collect_segments<E>(
    size: u64,
    mut next: impl FnMut(u64) -> std::result::Result<Option<(u64, u64)>, E>,
) -> std::result::Result<Vec<(u64, u64)>, E> {
    let mut segments: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    while at < size {
        let Some((start, end)) = next(at)? else { break };
        assert!(start >= at && end > start, "segment {start}..{end} was given for data from {at} on");
        let end = end.min(size);
        match segments.last_mut() {
            Some((last, len)) if *last + *len == start => *len += end - start,
            _ => segments.push((start, end - start)),
        }
        at = end;
    }
    Ok(segments)
}

/// SHA-256 over all bytes of a file.
///
/// # Errors
/// The file cannot be opened or read.
pub fn sha256_of_file(path: &Path) -> Result<[u8; 32]> {
    let file = File::open(path).context("open", path)?;
    let size = file.metadata().context("stat", path)?.len();
    let mut sum = Sha256::new();
    let mut buf = vec![0; 1 << 20];
    feed(&mut sum, &mut buf, 0, size, &mut |at, buf: &mut [u8]| file.read_exact_at(buf, at))
        .context("read", path)?;
    Ok(sum.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_merged_and_clipped() {
        let data = [(10, 20), (20, 30), (40, 100)];
        let found = collect_segments(50, |at| {
            Ok::<_, ()>(data.iter().find(|(_, end)| *end > at).map(|(start, end)| ((*start).max(at), *end)))
        });
        assert_eq!(found.unwrap(), [(10, 20), (40, 10)]);
    }

    fn content(bytes: &[u8], segments: &[(u64, u64)]) -> Content {
        let read = |at: u64, buf: &mut [u8]| {
            buf.copy_from_slice(&bytes[at as usize..at as usize + buf.len()]);
            Ok::<_, ()>(())
        };
        Content::of(bytes.len() as u64, segments.to_vec(), read).unwrap()
    }

    #[test]
    fn the_sums_do_not_depend_on_the_layout() {
        let mut bytes = vec![0; 3 * PIECE + 100];
        bytes[5] = 1;
        bytes[2 * PIECE + 7] = 2;
        bytes[3 * PIECE + 99] = 3;
        let dense = content(&bytes, &[(0, bytes.len() as u64)]);
        let sparse = content(&bytes, &[(0, 1024), (2 * PIECE as u64, 1024), (3 * PIECE as u64, 100)]);
        let split = content(&bytes, &[(0, 512), (1024, 512), (2 * PIECE as u64, PIECE as u64 + 100)]);
        assert_eq!((dense.data_sha256, dense.sha256), (sparse.data_sha256, sparse.sha256));
        assert_eq!((dense.data_sha256, dense.sha256), (split.data_sha256, split.sha256));
    }

    #[test]
    fn the_sums_notice_every_byte_and_every_place() {
        let mut bytes = vec![0; 2 * PIECE];
        bytes[5] = 1;
        let one = content(&bytes, &[(0, 2 * PIECE as u64)]);
        bytes[5] = 2;
        let other_byte = content(&bytes, &[(0, 2 * PIECE as u64)]);
        bytes[5] = 0;
        bytes[PIECE + 5] = 1;
        let other_place = content(&bytes, &[(0, 2 * PIECE as u64)]);
        for other in [other_byte, other_place] {
            assert_ne!(one.sha256, other.sha256);
            assert_ne!(one.data_sha256, other.data_sha256);
        }
    }
}
