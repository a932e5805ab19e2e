//! Targets of symbolic links: in the inode when short, else in blocks.
//!
//! In version 5 each extent of a target begins with a header, whose checksum is over the extent. A target that is written
//! takes one block, or two of 1 KiB, which need not lie together.
//!
//! Source: "XFS Algorithms & Data Structures", chapter "Symbolic Links".

use std::sync::Arc;

use undercroft_vfs::{Ino, Result};

use crate::da::{Content, Fork, Layout, remote};
use crate::error::corrupt_inode;
use crate::format::block_header::HeaderKind;
use crate::format::{FileBlock, FsBlock};
use crate::inode::{self, ForkKind, Inode};
use crate::map;
use crate::transaction::{Handle, Seal};
use crate::volume::Volume;

const STRUCTURE: &str = "symbolic link";

/// The longest target that is read, in bytes.
const TARGET_MAX_BYTES: u64 = 1024;

/// The longest target that is made. Linux makes and reads none of 1024 bytes.
pub(crate) const NEW_TARGET_MAX_BYTES: u64 = TARGET_MAX_BYTES - 1;

const MAGIC: &[u8; 4] = b"XSLM";

/// The target of the link `ino`, whose size is `size_bytes`, from its data fork.
///
/// # Errors
/// Corruption, I/O failure.
pub(crate) fn read(ino: Ino, layout: &Layout, content: Content<'_>, size_bytes: u64) -> Result<Vec<u8>> {
    let wrong = |detail: String| corrupt_inode(STRUCTURE, ino, None, detail);
    if !(1..=TARGET_MAX_BYTES).contains(&size_bytes) {
        return Err(wrong(format!("target is {size_bytes} bytes long")));
    }
    let len = size_bytes as usize;
    let target = match content {
        Content::Inline(bytes) => {
            let target = bytes
                .get(..len)
                .ok_or_else(|| wrong(format!("target of {len} bytes lies in {}", bytes.len())))?;
            target.to_vec()
        }
        Content::Blocks(blocks) => {
            read_blocks(&Fork { blocks, layout, owner: ino, structure: STRUCTURE, unit: 1 }, len)?
        }
    };
    if target.contains(&0) {
        return Err(wrong("target contains NUL".into()));
    }
    Ok(target)
}

fn read_blocks(fork: &Fork<'_>, len: usize) -> Result<Vec<u8>> {
    let count = len.div_ceil(remote::room(fork.layout, fork.layout.block_bytes)) as u32;
    let mut target = Vec::with_capacity(len);
    let mut at = 0;
    while target.len() < len {
        let run = fork.blocks.run_length(at)?.min(count.saturating_sub(at));
        let block = if run == 0 { None } else { fork.blocks.read(at, run, HeaderKind::Remote)? };
        let Some(block) = block else {
            return Err(fork.corrupt(None, format!("target lies in block {at}, which is not there")));
        };
        let part = remote::part(&block.bytes, fork.layout, MAGIC, target.len(), len);
        target.extend_from_slice(fork.validated(block.home, part)?);
        at += run;
    }
    Ok(target)
}

/// Blocks that [`fill`] changes at most, and blocks of space that it takes at most.
pub(crate) fn needs(volume: &Volume, inode: &Inode, target: &[u8]) -> (u32, u64) {
    if target.len() <= inode.core.data_fork.len() {
        return (0, 0);
    }
    let blocks = blocks_of(&Layout::of(volume.superblock()), target);
    let credits = map::change::credits(volume, inode, ForkKind::Data);
    let space = map::change::space(inode, ForkKind::Data);
    (blocks * (credits + 1), u64::from(blocks) * (1 + space))
}

/// Blocks that a target takes, wherever they lie.
fn blocks_of(layout: &Layout, target: &[u8]) -> u32 {
    target.len().div_ceil(remote::room(layout, layout.block_bytes)) as u32
}

/// Gives a new link its target, which is not too long. The handle has room and space for what it [needs]; the caller stores
/// the inode.
///
/// # Errors
/// I/O failure or corruption, when blocks may have changed.
pub(crate) fn fill(handle: &Handle<'_>, inode: &mut Inode, target: &[u8]) -> Result<()> {
    inode.core.size_bytes = target.len() as u64;
    if target.len() <= inode.core.data_fork.len() {
        inode.data = inode::Fork::Local(target.into());
        return Ok(());
    }
    inode.data = inode::Fork::Extents(Arc::from([]));
    let layout = Layout::of(handle.volume().superblock());
    let (mut at, count) = (0, blocks_of(&layout, target));
    let mut parts: Vec<(FsBlock, u32)> = Vec::new();
    while at < count {
        let file = FileBlock(u64::from(at));
        let (home, len) = map::change::add_run(handle, inode, ForkKind::Data, file, count - at)?;
        at += len;
        match parts.last_mut() {
            // They have become one extent.
            Some((first, before)) if first.0 + u64::from(*before) == home.0 => *before += len,
            _ => parts.push((home, len)),
        }
    }
    let mut from = 0;
    for (home, len) in parts {
        let room = remote::room(&layout, len as usize * layout.block_bytes);
        let part = &target[from..target.len().min(from + room)];
        handle.make_owned_structure(home, len, Seal::Symlink, inode.ino.0, |bytes| {
            bytes[..4].copy_from_slice(MAGIC);
            bytes[4..8].copy_from_slice(&(from as u32).to_be_bytes());
            bytes[8..12].copy_from_slice(&(part.len() as u32).to_be_bytes());
            bytes[56..56 + part.len()].copy_from_slice(part);
        })?;
        from += part.len();
    }
    Ok(())
}

#[cfg(all(test, feature = "oracle"))]
mod tests {
    use undercroft_vfs::Error;

    use super::*;
    use crate::da::testing::Image;

    #[test]
    fn targets_of_every_length_are_read() {
        let targets: Vec<String> =
            [1, 30, 156, 400, 460, 969, 1020].map(|len| "target/".repeat(146)[..len].into()).into();
        let lines =
            targets.iter().enumerate().map(|(number, target)| format!("link{number} l--777 0 0 {target}\n"));
        let list = format!("/dev/null\n0 0\nd--755 0 0\n{}$\n", lines.collect::<String>());
        // mkfs.xfs writes no headers, so that in version 5 its long links cannot be read.
        for (args, most) in
            [("", 300), ("-i size=2048", 1024), ("-m crc=0 -b size=512", 1024), ("-m crc=0", 1024)]
        {
            let image = Image::make(args, &list);
            let image = image.open();
            for (number, target) in targets.iter().enumerate().filter(|(_, target)| target.len() <= most) {
                let inode = image.inode(&format!("/link{number}"));
                let size = inode.dinode.size_bytes;
                inode.with_data(|content| {
                    let found = read(inode.ino, &inode.layout, content, size).unwrap();
                    assert_eq!(String::from_utf8_lossy(&found), *target, "mkfs.xfs {args}");
                    for wrong in [0, 1025, u64::MAX] {
                        let outcome = read(inode.ino, &inode.layout, content, wrong);
                        assert!(matches!(outcome, Err(Error::Corrupt(_))), "{outcome:?}");
                    }
                });
            }
        }
    }

    #[test]
    fn a_target_has_no_nul() {
        let layout = Layout {
            self_describing: true,
            has_kinds: true,
            folds_case: false,
            block_bytes: 4096,
            dir_block_bytes: 4096,
        };
        let read = |bytes: &[u8], size| {
            read(Ino(131), &layout, Content::Inline(bytes), size).map_err(|error| error.to_string())
        };
        assert_eq!(read(b"abc\0\0", 3), Ok(b"abc".to_vec()));
        assert!(read(b"abc\0\0", 4).unwrap_err().contains("NUL"));
        assert!(read(b"abc\0\0", 6).unwrap_err().contains("lies in 5"));
    }
}
