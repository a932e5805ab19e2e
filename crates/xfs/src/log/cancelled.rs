//! Buffers that were freed.
//!
//! A freed buffer is logged as cancelled: what the log holds of it from before must not be replayed, because its blocks
//! may have become file data since. The first pass counts the cancellations of each buffer, the second takes them back
//! one by one as it passes them, so that what follows the last is replayed again.

use std::collections::HashMap;

use undercroft_vfs::{Error, Result};

use crate::format::Daddr;

/// A buffer's address and its length in sectors of 512 bytes.
pub(super) type BufferKey = (Daddr, u32);

/// Freed buffers, at most; they take up to 256 MiB.
const MAX_BUFFERS: usize = 1 << 22;

/// Cancellations that the second pass has not passed yet.
#[derive(Debug, Default)]
pub(super) struct Cancelled(HashMap<BufferKey, u32>);

impl Cancelled {
    /// The first pass found a cancellation.
    ///
    /// # Errors
    /// `Unsupported` when there are too many.
    pub(super) fn add(&mut self, buffer: BufferKey) -> Result<()> {
        *self.0.entry(buffer).or_default() += 1;
        if self.0.len() > MAX_BUFFERS {
            let what = format!("a log that frees more than {MAX_BUFFERS} buffers: mount the filesystem once");
            return Err(Error::Unsupported(what.into()));
        }
        Ok(())
    }

    /// The second pass has passed a cancellation.
    pub(super) fn pass(&mut self, buffer: BufferKey) {
        if let Some(count) = self.0.get_mut(&buffer) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&buffer);
            }
        }
    }

    /// Whether a cancellation of the buffer is still to come.
    pub(super) fn holds(&self, buffer: BufferKey) -> bool {
        self.0.contains_key(&buffer)
    }
}
