//! Sharing: a file gets the blocks of another one, where the filesystem can do that.
//!
//! What may be shared is what Linux shares: whole blocks, and the block that a source ends in where it does not come to
//! lie within the target.
//!
//! Locks: the caller holds the target's state exclusively and the source's shared, and keeps writers of the source out: one
//! that has found a block unshared must have written it before it is shared.

use super::{Backing, clear_tail};
use crate::{Error, Node, Result};

/// The part of a copy that can be shared, from its begin on; zero if none can.
pub(crate) fn sharable(source: Backing<'_>, from: u64, target: Backing<'_>, to: u64, len: u64) -> u64 {
    let block = source.block_bytes();
    if !from.is_multiple_of(block) || !to.is_multiple_of(block) {
        return 0;
    }
    let ends = from + len == source.inode.size_bytes() && to + len >= target.inode.size_bytes();
    if ends { len } else { len - len % block }
}

/// Lets the target share `len` bytes, at least one, and returns how many it shares: fewer than all only if an error came
/// after the first ones.
pub(crate) fn share(
    source: Backing<'_>,
    node: &Node,
    from: u64,
    target: Backing<'_>,
    to: u64,
    len: u64,
) -> Result<u64> {
    if from.checked_add(len).is_none_or(|end| end > source.inode.size_bytes()) {
        return Err(Error::InvalidArgument("the range ends behind the file that is to be cloned"));
    }
    target.inode.check_changes()?;
    clear_tail(target, to)?;
    let done = target.inode.clone_range(node, from, to, len)?;
    if done == 0 || done > len {
        return Err(target.corrupt(format!("{done} of {len} bytes were cloned")));
    }
    Ok(done)
}
