//! The shared data path: moves a file's bytes for every filesystem.
//!
//! The filesystem says what lies under a byte range, prepares space where there is none, and is called after a write.
//! This module fills holes with zeroes, copies inline bytes, gets kept bytes from the filesystem, and reads and writes
//! ranges of the device. Called by [`File`](crate::File), which takes the locks that each part's header asks for.
//!
//! | module  | does                                             |
//! | ------- | ------------------------------------------------ |
//! | `read`  | reads, and finds data and holes; takes no lock   |
//! | `write` | writes                                           |
//! | `space` | clears what comes to lie within a file's size    |
//! | `copy`  | copies from file to file, holes as holes         |
//! | `share` | lets a file have the blocks of another one       |
//!
//! An extent that does not contain the byte that was asked for would make these loops run for ever, so it is
//! refused as corruption.

mod copy;
mod read;
mod share;
mod space;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;

use undercroft_block::Device;

use crate::{Corruption, Error, Extent, Inode, Mapping, Result};

pub(crate) use self::copy::copy_piece;
pub use self::read::DataRanges;
pub(crate) use self::read::{read_at, seek_data, seek_hole};
pub(crate) use self::share::{sharable, share};
pub(crate) use self::space::{clear_tail, fallocate};
pub(crate) use self::write::{Hold, Stop, overwrite_at_once, write};

/// Most device requests in one batch; bounds the memory of a call that touches many small extents.
const BATCH: usize = 64;

/// A file's inode, and the device where its bytes lie.
#[derive(Clone, Copy)]
pub(crate) struct Backing<'a> {
    pub(crate) inode: &'a dyn Inode,
    pub(crate) device: Option<&'a Device>,
}

/// The rest of an extent from a certain byte on.
struct Run {
    /// At least 1.
    len: u64,
    /// Bytes of the extent that come before.
    before: u64,
    source: Source,
}

/// Where bytes come from.
enum Source {
    Hole,
    /// From this byte of the data device on, once something is written there; zeroes until then.
    Unwritten(u64),
    /// From this byte of the data device on.
    Device(u64),
    /// From this byte of the data device on, which must not be written.
    Shared(u64),
    /// From these bytes after the first `skip`; zeroes after the last.
    Inline {
        bytes: Arc<[u8]>,
        skip: u64,
    },
    /// From the filesystem's memory.
    Kept,
}

impl Source {
    /// Whether nothing was ever written there.
    fn is_hole(&self) -> bool {
        matches!(self, Self::Hole | Self::Unwritten(_))
    }
}

impl Backing<'_> {
    /// What lies under `offset` and after it.
    fn run_at(&self, offset: u64) -> Result<Run> {
        self.run_in(offset, self.inode.map(offset)?)
    }

    /// The part of an extent from `offset` on, which must lie in it.
    fn run_in(&self, offset: u64, extent: Extent) -> Result<Run> {
        let Extent { start, len, mapping } = extent;
        let before = offset.checked_sub(start);
        let Some((before, len)) =
            before.and_then(|before| Some((before, len.checked_sub(before).filter(|&len| len > 0)?)))
        else {
            let detail = format!("asked for byte {offset}, got {len} bytes from byte {start}");
            return Err(self.corrupt(detail));
        };
        let on_device = |from: u64| {
            from.checked_add(before)
                .ok_or_else(|| self.corrupt(format!("device byte {from} plus {before} overflows")))
        };
        let source = match mapping {
            Mapping::Hole => Source::Hole,
            Mapping::Unwritten { offset } => Source::Unwritten(on_device(offset)?),
            Mapping::Device { offset } => Source::Device(on_device(offset)?),
            Mapping::Shared { offset } => Source::Shared(on_device(offset)?),
            Mapping::Inline(bytes) => Source::Inline { bytes, skip: before },
            Mapping::Kept => Source::Kept,
        };
        Ok(Run { len, before, source })
    }

    /// The unit of allocation. It reads all attributes and so marks the times as read, which makes the next change more
    /// expensive: not for ordinary writes.
    fn block_bytes(&self) -> u64 {
        u64::from(self.inode.attr().block_bytes.max(1))
    }

    fn device(&self) -> Result<&Device> {
        self.device
            .ok_or_else(|| self.corrupt("a device range in a filesystem without a data device".to_owned()))
    }

    fn corrupt(&self, detail: String) -> Error {
        Corruption {
            structure: "extent",
            ino: Some(self.inode.attr().ino),
            block: None,
            detail: detail.into(),
        }
        .into()
    }
}
