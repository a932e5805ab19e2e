//! Moving the nodes of a tree to other blocks. What they hold stays.

use undercroft_vfs::Result;

use super::path::Path;
use super::raw::{self, RawIndex};
use crate::inode::Inode;
use crate::map::run::FILE_BLOCKS;
use crate::map::space;
use crate::numbers::FsBlock;
use crate::transaction::{Handle, Seal};
use crate::volume::Volume;

/// Calls `visit` with the home of each node below the root.
pub(in crate::map) fn nodes(volume: &Volume, inode: &Inode, visit: &mut dyn FnMut(FsBlock)) -> Result<()> {
    let mut at = 0;
    while at < FILE_BLOCKS {
        let path = Path::find(volume, inode, at)?;
        (1..=path.depth).filter_map(|level| path.home(level)).for_each(&mut *visit);
        at = path.high.max(at + 1);
    }
    Ok(())
}

/// Moves the nodes on the way to `at` that lie at or past `end`. Returns where the next leaf begins.
pub(in crate::map) fn relocate(handle: &Handle<'_>, inode: &mut Inode, at: u64, end: FsBlock) -> Result<u64> {
    loop {
        let path = Path::find(handle.volume(), inode, at)?;
        let is_past = |level: &usize| path.home(*level).is_some_and(|home| home >= end);
        match (1..=path.depth).find(is_past) {
            Some(level) => relocate_one(handle, inode, &path, level)?,
            None => return Ok(path.high.max(at + 1)),
        }
    }
}

fn relocate_one(handle: &Handle<'_>, inode: &mut Inode, path: &Path, level: usize) -> Result<()> {
    let Some(old) = path.home(level) else { return Ok(()) };
    let seal = Seal::ExtentNode(inode.checksum_seed(handle.volume()));
    let content = path.with(inode, level, <[u8]>::to_vec);
    let goal = space::goal(handle, inode);
    let new = space::allocate_metadata(handle, inode, goal)?;
    handle.make(new, seal, |bytes| bytes.copy_from_slice(&content))?;
    let lead = |bytes: &mut [u8]| {
        if let Some(index) = raw::entries_mut::<RawIndex>(bytes).get_mut(path.at(level - 1)) {
            *index = RawIndex::new(index.first(), new);
        }
    };
    match path.block(level - 1) {
        None => lead(&mut inode.i_block),
        Some(block) => handle.change_block(block, seal, lead),
    }
    space::free_metadata(handle, inode, old)
}
