//! Work that the log announced and a crash interrupted, finished when the filesystem is opened for writing.
//!
//! All of it is done in one transaction, whose checkpoint is the first behind the replayed log. Until that is durable a
//! recovery finds the log as it was, and the same work (see [`log::write`](crate::log)). So a failure in here, which
//! aborts the transaction, leaves a filesystem whose log has been replayed and is to be replayed again.
//!
//! The order is that of Linux: what the log announced for the groups, as it announced it, and then changes of files' maps.
//! Those lead to changes of the reverse map, which Linux makes after all that was announced.
//!
//! No locks: nothing else uses the filesystem yet.

use undercroft_vfs::{Error, Result};

use crate::alloc::{Changes, too_much};
use crate::error::{corrupt, corrupt_inode};
use crate::format::FileBlock;
use crate::format::extent::Extent;
use crate::inode::{ForkKind, Inode, STORE_CREDITS};
use crate::log::{MapChange, Unfinished};
use crate::map::change::{self, Progress};
use crate::transaction::Handle;
use crate::writer::Mounted;

/// Finishes what the log announced, in one transaction, which the caller commits.
///
/// # Errors
/// [`Unsupported`](Error::Unsupported) if that is too small; [`NoSpace`](Error::NoSpace) where a tree has no block at all to
/// grow into; corruption; I/O failure. The changes are aborted then.
pub(crate) fn finish(volume: &Mounted, steps: &[Unfinished]) -> Result<()> {
    let allocator = &volume.writer()?.allocator;
    let handle = volume.start(STORE_CREDITS)?;
    let finish_all = || {
        let mut changes = Changes::default();
        steps.iter().try_for_each(|step| allocator.finish_step(&handle, step, &mut changes))?;
        let maps = steps
            .iter()
            .filter_map(|step| if let Unfinished::Map(change) = step { Some(change) } else { None });
        maps.into_iter().try_for_each(|change| change_map(&handle, change))
    };
    let finished = finish_all().map_err(|error| match error {
        Error::TooManyLinks | Error::FileTooLarge => {
            corrupt("logged work", "counts more users of blocks, or more extents of a file, than can be")
        }
        error => error,
    });
    handle.or_abort(finished)
}

/// Blocks come into a file's map, or go out of it, with the users that they have.
fn change_map(handle: &Handle<'_>, change: &MapChange) -> Result<()> {
    let volume = handle.volume();
    let mut inode = Inode::read(volume, change.ino).map_err(|error| match error {
        Error::Stale => corrupt_inode("logged change of a map", change.ino, None, "the inode is free"),
        error => error,
    })?;
    let inode = &mut inode;
    let kind = if change.attribute_fork { ForkKind::Attr } else { ForkKind::Data };
    if !handle.has_room(change::credits(volume, inode, kind) + STORE_CREDITS) {
        return Err(too_much());
    }
    let needed = change::needed_space(inode, kind, 1);
    if matches!(handle.ensure_space(needed), Err(Error::NoSpace)) {
        let missing = needed.saturating_sub(handle.space());
        handle.writer().allocator.reserve_set_aside(missing);
        handle.add_space(missing);
    }
    if change.map {
        let MapChange { at, start, blocks, unwritten, .. } = *change;
        change::insert(handle, inode, kind, Extent { file: at, block: start, count: blocks, unwritten })?;
    } else {
        let end = FileBlock(change.at.0.saturating_add(change.blocks.into()));
        if change::unmap(handle, inode, kind, change.at, end)? != Progress::Done {
            return Err(too_much());
        }
    }
    inode.store(handle)
}
