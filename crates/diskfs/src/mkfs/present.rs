//! What is on a device already and might be missed.
//!
//! First what `undercroft_block::probe` has a name for; then any byte that is not zero. A device that reports where it
//! holds data, as an image file does, is searched as a whole, up to the first such byte; any other at its ends.

use std::fmt;
use std::ops::Range;

use undercroft_block::{BlockDevice, NextData, probe};

use super::error::MkfsError;

/// What is on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Present {
    /// Something with a name, and its article: "an XFS filesystem".
    Known(&'static str),
    /// Something else.
    Unknown {
        /// Its first byte that is not zero.
        offset: u64,
    },
}

impl fmt::Display for Present {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(what) => f.write_str(what),
            Self::Unknown { offset } => write!(f, "data that is not known, from byte {offset} on"),
        }
    }
}

/// How much of each end is searched on a device that does not report where it holds data.
const ENDS_BYTES: u64 = 1 << 20;
/// So much is read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// What is on a device already and might be missed: a filesystem, a volume, a partition table, a common kind of file,
/// or anything but zeroes. On a device that does not report where it holds data, such as a disk, the first and the last
/// MiB are looked at.
///
/// A large file of written zeroes takes as long as it takes to read it: `progress` is called with the bytes that it has
/// come to.
///
/// # Errors
/// When the device cannot be read.
pub fn what_is_on(
    device: &dyn BlockDevice,
    progress: &mut dyn FnMut(u64),
) -> Result<Option<Present>, MkfsError> {
    if let Some(content) = probe::probe(device)? {
        return Ok(Some(Present::Known(content.format.what)));
    }
    Ok(first_byte(device, progress)?.map(|offset| Present::Unknown { offset }))
}

/// The first byte that is not zero, of those that are looked at.
fn first_byte(device: &dyn BlockDevice, progress: &mut dyn FnMut(u64)) -> Result<Option<u64>, MkfsError> {
    let size = device.size_bytes();
    let mut at = 0;
    while at < size {
        let data = match device.next_data(at)? {
            NextData::Nowhere => return Ok(None),
            NextData::At(range) => range.start.max(at)..range.end.clamp(at + 1, size),
            NextData::Unknown => {
                let front = ENDS_BYTES.min(size);
                let back = size.saturating_sub(ENDS_BYTES).max(front);
                return match first_byte_in(device, 0..front, progress)? {
                    None => first_byte_in(device, back..size, progress),
                    found => Ok(found),
                };
            }
        };
        at = data.end;
        if let Some(found) = first_byte_in(device, data, progress)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn first_byte_in(
    device: &dyn BlockDevice,
    range: Range<u64>,
    progress: &mut dyn FnMut(u64),
) -> Result<Option<u64>, MkfsError> {
    static ZEROES: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(CHUNK_BYTES as u64) as usize;
        let chunk = &mut chunk[..len];
        device.read_at(at, chunk)?;
        // Compared as a whole first, which is as fast as memory.
        if *chunk != ZEROES[..len] {
            return Ok(chunk.iter().position(|&byte| byte != 0).map(|index| at + index as u64));
        }
        at += len as u64;
        progress(at);
    }
    Ok(None)
}
