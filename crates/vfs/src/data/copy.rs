//! Copying from file to file, piece by piece.
//!
//! Holes stay holes: where the source has one, the target gets nothing where it has one too, grows where it ends, and
//! gets zeroes where it has bytes.
//!
//! Locks: the caller holds the state of the source at least shared and that of the target exclusively. They are held
//! for one short piece at a time, so that other threads get them in between.

use super::{Backing, Hold, Stop, clear_tail, read_at, write};
use crate::Result;

/// Most bytes that are read and written in one piece.
const PIECE: u64 = 1 << 20;

/// Copies a part of `len` bytes, at least one, and returns how much: nothing at the end of the source.
pub(crate) fn copy_piece(
    source: Backing<'_>,
    from: u64,
    target: Backing<'_>,
    to: u64,
    len: u64,
) -> Result<u64> {
    let len = len.min(source.inode.size_bytes().saturating_sub(from));
    if len == 0 {
        return Ok(0);
    }
    let run = source.run_at(from)?;
    let len = len.min(run.len);
    if run.source.is_hole() {
        return copy_hole(target, to, len);
    }
    let mut bytes = vec![0; len.min(PIECE) as usize];
    read_at(source, from, &mut bytes)?;
    store(target, to, &bytes)
}

fn copy_hole(target: Backing<'_>, to: u64, len: u64) -> Result<u64> {
    let size = target.inode.size_bytes();
    if to >= size {
        clear_tail(target, to + len)?;
        target.inode.set_size(to + len)?;
        return Ok(len);
    }
    let run = target.run_at(to)?;
    let len = len.min(size - to).min(run.len);
    if run.source.is_hole() {
        return Ok(len);
    }
    store(target, to, &vec![0; len.min(PIECE) as usize])
}

/// Writes bytes of the target; fewer than all only if at least one was written.
fn store(target: Backing<'_>, to: u64, bytes: &[u8]) -> Result<u64> {
    clear_tail(target, to)?;
    match write(target, to, bytes, Hold::Exclusive) {
        (0, Some(Stop::Failed(error))) => Err(error),
        (written, _) => Ok(written as u64),
    }
}
