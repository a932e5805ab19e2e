//! Sizes and space: what is allowed to change them, and the bytes that come to lie within the size.
//!
//! Behind the end of a file its last block may hold anything: bytes that were cut off, or that a program wrote through
//! a mapping. They are cleared before the end moves past them, here for every filesystem.
//!
//! Locks: the caller holds the inode's state exclusively.

use super::write::write_first;
use super::{Backing, Hold, Source, Stop};
use crate::{Error, FallocateMode, Result, WriteKind};

/// Clears mapped bytes between the end of the file and the end of its last block, before the end moves to `until`
/// without a write of those bytes.
pub(crate) fn clear_tail(backing: Backing<'_>, until: u64) -> Result<()> {
    let size = backing.inode.size_bytes();
    if until <= size {
        return Ok(());
    }
    let block = backing.block_bytes();
    let len = (block - size % block) % block;
    if len == 0 {
        return Ok(());
    }
    let run = backing.run_at(size)?;
    let zeroes = vec![0; len.min(run.len) as usize];
    match run.source {
        Source::Device(to) => {
            backing.inode.check_changes()?;
            Ok(backing.device()?.write_at(to, &zeroes)?)
        }
        Source::Kept => backing.inode.write_kept(size, &zeroes),
        Source::Shared(_) => {
            backing.inode.check_changes()?;
            match write_first(backing, size, &zeroes, &run, Hold::Exclusive) {
                // The file keeps its size.
                Ok(len) => backing.inode.finish_write(size, len as u64, size, WriteKind::Allocating),
                Err(Stop::Failed(error)) => Err(error),
                Err(Stop::NeedsExclusive) => unreachable!("it is held exclusively"),
            }
        }
        Source::Hole | Source::Unwritten(_) | Source::Inline { .. } => Ok(()),
    }
}

/// Changes what lies under a range of a file that may become `limit` bytes long.
pub(crate) fn fallocate(
    backing: Backing<'_>,
    mode: FallocateMode,
    offset: u64,
    len: u64,
    keep_size: bool,
    limit: u64,
) -> Result<()> {
    if len == 0 {
        return Err(Error::InvalidArgument("the range is empty"));
    }
    let end = offset.checked_add(len).filter(|&end| end <= limit).ok_or(Error::FileTooLarge)?;
    let old = backing.inode.size_bytes();
    let size = match mode {
        FallocateMode::Allocate | FallocateMode::Zero if !keep_size => old.max(end),
        FallocateMode::Allocate | FallocateMode::Zero | FallocateMode::PunchHole => old,
        FallocateMode::Collapse if end < old => old - len,
        FallocateMode::Collapse => {
            return Err(Error::InvalidArgument("what is taken out must end before the end of the file"));
        }
        FallocateMode::Insert if offset < old => {
            old.checked_add(len).filter(|&size| size <= limit).ok_or(Error::FileTooLarge)?
        }
        FallocateMode::Insert => {
            return Err(Error::InvalidArgument("a hole can be put in only before the end of the file"));
        }
    };
    if mode != FallocateMode::Insert {
        clear_tail(backing, size)?;
    }
    backing.inode.fallocate(mode, offset, len, size)
}
