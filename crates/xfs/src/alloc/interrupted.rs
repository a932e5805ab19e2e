//! Work that a crash interrupted, finished when the filesystem is opened for writing.
//!
//! The log announces work that takes several transactions; what it announced and did not finish is done in one transaction
//! here. The first record behind the replayed log is that transaction's, so a crash before it is durable leads to the same
//! log and the same work.
//!
//! Copies on write that were being made are in the tree of reference counts; each is freed by itself.
//!
//! Not done, and refused before anything is written: changes of files' maps, and all of it in a filesystem with reverse
//! mappings.

use super::*;
use crate::btree::RefcountBt;
use crate::format::{AgBlock, Superblock};
use crate::log::{Unfinished, UsersChange};
use crate::writer::Mounted;

/// Whether a step that was interrupted is one that is finished here.
pub(crate) fn can_finish(superblock: &Superblock, step: &Unfinished) -> bool {
    let users = matches!(
        step,
        Unfinished::Users {
            change: UsersChange::Increase | UsersChange::Decrease | UsersChange::Reserve,
            ..
        }
    );
    !superblock.features().has_rmapbt() && (users || matches!(step, Unfinished::Free { .. }))
}

impl Allocator {
    /// Finishes work that the log announced, in one transaction, which the caller commits.
    ///
    /// # Errors
    /// [`Unsupported`](undercroft_vfs::Error::Unsupported) if that is too small; corruption; I/O failure.
    pub(crate) fn finish_interrupted(&self, volume: &Mounted, steps: &[Unfinished]) -> Result<()> {
        let mut pieces = Vec::new();
        for step in steps {
            match *step {
                Unfinished::Free { start, blocks }
                | Unfinished::Users { start, blocks, change: UsersChange::Reserve } => {
                    pieces.push((start, blocks, None));
                }
                Unfinished::Users { start, blocks, change } => {
                    let mut at = 0;
                    while at < blocks {
                        let block = FsBlock(start.0 + u64::from(at));
                        let count = self.sharing(volume, block, blocks - at)?.count.max(1);
                        pieces.push((block, count, Some(change)));
                        at += count;
                    }
                }
                Unfinished::Owner(_) | Unfinished::Map(_) => {
                    return Err(undercroft_vfs::Error::Unsupported("this kind of interrupted work".into()));
                }
            }
        }
        let credits =
            u32::try_from(pieces.len()).unwrap_or(u32::MAX).saturating_mul(2 * self.extent_credits());
        let room = volume.writer()?.transactions.room();
        if credits.saturating_mul(volume.credit_units()) > room {
            let what = format!(
                "an XFS log that ends in the middle of more work than fits in a transaction ({} steps): let Linux mount \
                 the filesystem once",
                pieces.len()
            );
            return Err(undercroft_vfs::Error::Unsupported(what.into()));
        }
        let handle = volume.start(credits)?;
        for (start, blocks, change) in pieces {
            let done = match change {
                Some(UsersChange::Increase) => self.add_user(&handle, start, blocks.into()),
                Some(_) => self.remove_user(&handle, start, blocks.into()),
                None => self.free(&handle, start, blocks.into()),
            };
            handle.or_abort(done)?;
        }
        Ok(())
    }

    /// Frees the blocks of copies that were being made: no file has them. The threads of the log do not run yet, so a
    /// transaction that is full is committed here.
    ///
    /// # Errors
    /// Corruption; I/O failure.
    pub(crate) fn free_copies(&self, volume: &Mounted) -> Result<()> {
        if !volume.superblock().features().has_reflink() {
            return Ok(());
        }
        for ag in volume.geometry().ags() {
            loop {
                let Some(handle) = volume.start_if_room(2 * self.extent_credits())? else {
                    volume.writer()?.transactions.commit_running(volume)?;
                    continue;
                };
                let mut group = self.change_group(&handle, ag)?;
                let copy = group.tree::<RefcountBt>()?.cursor().lookup_ge(&(true, AgBlock(0)))?;
                let Some(copy) = copy.filter(|copy| copy.cow) else { break };
                group.delete::<RefcountBt>(&(true, copy.start))?;
                let freed = group.free(copy.start, copy.count, true);
                handle.or_abort(freed)?;
            }
        }
        Ok(())
    }
}
