//! Moving indirect blocks to other blocks. What they hold stays.

use undercroft_vfs::Result;

use super::change::Way;
use super::{DIRECT, Route, set};
use crate::inode::Inode;
use crate::map::run::FILE_BLOCKS;
use crate::map::space;
use crate::numbers::FsBlock;
use crate::transaction::{Handle, Seal};
use crate::volume::Volume;

/// Calls `visit` with the home of each indirect block.
pub(in crate::map) fn nodes(volume: &Volume, inode: &Inode, visit: &mut dyn FnMut(FsBlock)) -> Result<()> {
    let mut at = 0;
    while at < FILE_BLOCKS
        && let Some(route) = Route::to(volume, at)
    {
        let way = Way::find(volume, inode, route)?;
        (1..=way.depth).filter_map(|level| way.home(level)).for_each(&mut *visit);
        at = after(&way);
    }
    Ok(())
}

/// Moves the indirect blocks on the way to `at` that lie at or past `end`. Returns where another way begins.
pub(in crate::map) fn relocate(handle: &Handle<'_>, inode: &mut Inode, at: u64, end: FsBlock) -> Result<u64> {
    let volume = handle.volume();
    let Some(route) = Route::to(volume, at) else { return Ok(FILE_BLOCKS) };
    loop {
        let way = Way::find(volume, inode, route)?;
        let is_past = |level: &usize| way.home(*level).is_some_and(|home| home >= end);
        let Some(level) = (1..=way.depth).find(is_past) else { return Ok(after(&way)) };
        let Some(old) = way.home(level) else { return Ok(after(&way)) };
        let content = way.with(inode, level, <[u8]>::to_vec);
        let goal = space::goal(handle, inode);
        let new = space::allocate_metadata(handle, inode, goal)?;
        handle.make(new, Seal::Plain, |bytes| bytes.copy_from_slice(&content))?;
        way.change(handle, inode, level - 1, |bytes| set(bytes, route.slots[level - 1], new.0 as u32));
        space::free_metadata(handle, inode, old)?;
    }
}

/// The file block behind those that share the way's last indirect block, or that it lacks.
fn after(way: &Way) -> u64 {
    match (way.route.levels, way.is_whole()) {
        (0, _) => DIRECT,
        (levels, true) => way.route.end(levels - 1),
        (_, false) => way.route.end(way.depth),
    }
}
