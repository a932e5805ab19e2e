//! Values in blocks of their own.

use undercroft_vfs::Result;

use crate::da::{Fork, remote};
use crate::format::block_header::HeaderKind;

const MAGIC: &[u8; 4] = b"XARM";

/// Reads a value of `len` bytes, a length from a validated leaf, from block `first` of the fork on.
pub(super) fn read(fork: &Fork<'_>, first: u32, len: u32) -> Result<Vec<u8>> {
    let len = len as usize;
    let mut value = Vec::with_capacity(len);
    let mut at = first;
    while value.len() < len {
        let Some(block) = fork.read(at, HeaderKind::Remote)? else {
            return Err(fork.corrupt(None, format!("a value lies in block {at}, which is not there")));
        };
        let part = remote::part(&block.bytes, fork.layout, MAGIC, value.len(), len);
        value.extend_from_slice(fork.validated(block.home, part)?);
        at = at.saturating_add(1);
    }
    Ok(value)
}
