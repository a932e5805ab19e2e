//! Making a file durable.

use undercroft_sync::atomic::Ordering;
use undercroft_vfs::{Durable, FileType, Result};

use super::Live;
use crate::transaction::Tid;

/// Makes a file durable, as much of it as is asked for.
///
/// # Errors
/// I/O failure; why the filesystem takes no changes any more.
pub(in super::super) fn sync(live: &Live, what: Durable) -> Result<()> {
    if what == Durable::Everything {
        live.store_lazy_times()?;
    }
    let transactions = &live.volume.writer()?.transactions;
    transactions.check()?;
    // Names change without the directory's inode where its times stay the same.
    if live.kind == FileType::Directory {
        return transactions.commit_everything(&live.volume);
    }
    // A file whose content has not changed since it was made or read may not be durable itself yet.
    let tid = match (what, live.content.changed_in.load(Ordering::Relaxed)) {
        (Durable::Everything, _) | (Durable::Data, 0) => inode_changed_in(live),
        (Durable::Data, tid) => Tid(tid),
    };
    // A commit that begins from here on flushes what was written before; one that is under way may have done so
    // already.
    let flushes = !transactions.is_durable(tid) && transactions.running() == tid;
    transactions.commit(tid)?;
    if !flushes {
        live.volume.flush()?;
    }
    Ok(())
}

/// The last transaction that can have changed the inode: the one that changed the block that it lies in.
fn inode_changed_in(live: &Live) -> Tid {
    let geometry = live.volume.geometry();
    let home = geometry.inode_place(live.ino).and_then(|(block, _)| geometry.linear(block));
    // A block of a transaction that is not durable is held in the cache.
    let block = home.and_then(|home| live.volume.buffers().cached(home));
    block.map_or(Tid(0), |block| block.lock().private().changed_in())
}
