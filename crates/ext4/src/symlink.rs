//! Targets of symbolic links: in the inode when short, in a block when long, or as inline data.
//!
//! Source: kernel documentation, section "Symbolic Links"; a target is at most one block, and 4095 bytes.
//! An encrypted target begins with its length: `Documentation/filesystems/fscrypt.rst`, and what Linux writes.

use undercroft_vfs::{Error, FileType, Result};

use crate::error::corrupt_inode;
use crate::inode::{Inode, InodeFlags};
use crate::map::{self, RunState};
use crate::numbers::FileBlock;
use crate::transaction::{Handle, Seal};
use crate::volume::Volume;
use crate::{dir, inline};

const STRUCTURE: &str = "symbolic link";
/// The longest path that Linux takes.
const PATH_MAX: u64 = 4096;
/// Before an encrypted target stands its length.
const LENGTH_BYTES: usize = 2;

/// The target of `inode`.
pub(crate) fn read(volume: &Volume, inode: &Inode) -> Result<Vec<u8>> {
    if inode.kind != FileType::Symlink {
        return Err(Error::InvalidArgument("not a symbolic link"));
    }
    let wrong = |detail: String| Err(corrupt_inode(STRUCTURE, inode.number, None, detail));
    let size = inode.size_bytes;
    if size == 0 || size >= PATH_MAX.min(u64::from(volume.block_bytes()) + 1) {
        return wrong(format!("target is {size} bytes long"));
    }
    let size = size as usize;
    let target = if inode.has_inline_data() {
        inline::read(volume, inode)?.get(..size).map(<[u8]>::to_vec)
    } else if inode.is_fast_link(volume) {
        inode.i_block.get(..size).map(<[u8]>::to_vec)
    } else {
        let RunState::Mapped(block) = map::lookup(volume, inode, FileBlock(0))?.state else {
            return wrong("target has no block".into());
        };
        volume.read_block(block)?.get(..size).map(<[u8]>::to_vec)
    };
    match target {
        Some(target) if inode.flags.contains(InodeFlags::ENCRYPTED) => match encrypted_part(&target) {
            Some(encrypted) => Ok(dir::disguise_target(encrypted)),
            None => wrong(format!("encrypted target does not fit into its {size} bytes")),
        },
        Some(target) if !target.contains(&0) => Ok(target),
        _ => wrong(format!("target is shorter than its size of {size} bytes")),
    }
}

/// Gives a new link its target, in the inode when there is room. The caller stores the inode.
///
/// # Errors
/// [`NameTooLong`](Error::NameTooLong); [`NoSpace`](Error::NoSpace). Nothing has changed then.
pub(crate) fn fill(handle: &Handle<'_>, inode: &mut Inode, target: &[u8]) -> Result<()> {
    let most = PATH_MAX.min(u64::from(handle.volume().block_bytes())) - 1;
    if target.len() as u64 > most {
        return Err(Error::NameTooLong);
    }
    // Linux counts a NUL that it does not write.
    if target.len() < inode.i_block.len() {
        inode.flags.remove(InodeFlags::EXTENTS);
        inode.i_block = [0; 60];
        inode.i_block[..target.len()].copy_from_slice(target);
    } else {
        let block = map::grow(handle, inode, FileBlock(0))?;
        handle.make(block, Seal::Plain, |bytes| bytes[..target.len()].copy_from_slice(target))?;
    }
    inode.size_bytes = target.len() as u64;
    Ok(())
}

/// The length of the target as it is shown, which `stat` reports as the link's size. An encrypted one is shown in the
/// disguise that Linux gives it while the key is missing.
pub(crate) fn shown_bytes(inode: &Inode) -> u64 {
    if inode.flags.contains(InodeFlags::ENCRYPTED) {
        dir::disguised_bytes(inode.size_bytes.saturating_sub(LENGTH_BYTES as u64))
    } else {
        inode.size_bytes
    }
}

/// The encrypted bytes of a target: its length comes before it.
fn encrypted_part(target: &[u8]) -> Option<&[u8]> {
    let (len, rest) = target.split_first_chunk::<LENGTH_BYTES>()?;
    rest.get(..usize::from(u16::from_le_bytes(*len))).filter(|encrypted| !encrypted.is_empty())
}
