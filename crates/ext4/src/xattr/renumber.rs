//! Where attributes have their values in inodes, and letting them lead to other numbers. Hashes do not depend on numbers.
//!
//! The filesystem is in use by the calling thread only.

use undercroft_vfs::Result;

use super::block::{AttributeBlock, HEADER_BYTES};
use super::{MAGIC, in_inode};
use crate::inode::{self, Inode};
use crate::numbers::FsBlock;
use crate::transaction::{Handle, Seal};
use crate::volume::Volume;

/// Where in an entry the number lies of the inode with its value.
const NUMBER_AT: usize = 4;
/// An entry without its name.
const ENTRY_BYTES: usize = 16;

/// Where an attribute's value is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueNamed {
    InInode,
    InBlock(FsBlock),
}

/// Calls `visit` with the numbers of all inodes that hold values of an inode's attributes, and where they are named.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn for_each_value_inode(
    volume: &Volume,
    inode: &Inode,
    visit: &mut dyn FnMut(u32, ValueNamed),
) -> Result<()> {
    let bytes = inode.read_inline_xattrs(volume)?;
    if in_inode(inode, &bytes)?.is_some() {
        for (_, number) in numbers(&bytes, MAGIC.len()) {
            visit(number, ValueNamed::InInode);
        }
    }
    if let Some(block) = AttributeBlock::read(volume, inode)? {
        for (_, number) in numbers(block.bytes(), HEADER_BYTES) {
            visit(number, ValueNamed::InBlock(inode.xattr_block));
        }
    }
    Ok(())
}

/// Lets the values that the inode `owner` names as `from` lead to `to`. One block changes.
///
/// # Errors
/// Corruption; I/O failure.
pub(crate) fn lead_value_elsewhere(
    handle: &Handle<'_>,
    owner: u32,
    named: ValueNamed,
    from: u32,
    to: u32,
) -> Result<()> {
    match named {
        ValueNamed::InBlock(home) => {
            handle.change(home, Seal::Xattrs, |bytes| replace(bytes, HEADER_BYTES, from, to))
        }
        ValueNamed::InInode => {
            let location = inode::locate(handle.volume(), owner)?;
            let inode = Inode::read_linked_or_not(handle.volume(), owner, location)?;
            inode.store_with(handle, location, |bytes| {
                if bytes.starts_with(&MAGIC) {
                    replace(bytes, MAGIC.len(), from, to);
                }
            })
        }
    }
}

fn replace(bytes: &mut [u8], first: usize, from: u32, to: u32) {
    for (at, number) in numbers(bytes, first) {
        if number == from {
            bytes[at..at + 4].copy_from_slice(&to.to_le_bytes());
        }
    }
}

/// Places of numbers of inodes with values, and the numbers, in a list of entries that begins at `first`.
fn numbers(bytes: &[u8], first: usize) -> Vec<(usize, u32)> {
    let mut found = Vec::new();
    let mut at = first;
    while let Some(entry) = bytes.get(at..at + ENTRY_BYTES) {
        if entry[..4] == [0; 4] {
            break;
        }
        let number = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        if number != 0 {
            found.push((at + NUMBER_AT, number));
        }
        at += (ENTRY_BYTES + usize::from(entry[0])).next_multiple_of(4);
    }
    found
}
