//! Bringing a transaction to the disk.
//!
//! The steps, in order: close the running transaction; let the allocator and the superblock write what they keep in
//! memory; take the version of every block it changed; open the next. Then, with handles running again: write it to
//! the log and make it durable; keep what it changed until that is at home; forget what stopped being metadata; hand
//! out the space that it freed; say so. A filesystem without a log has its blocks written home instead.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use undercroft_block::Request;
use undercroft_vfs::Result;

use super::running::{AfterCommit, Changes};
use super::{Frozen, Seal, Tid, Transactions};
use crate::numbers::FsBlock;
use crate::volume::Volume;

/// A closed transaction on its way to the disk.
pub(super) struct Closed {
    pub(super) tid: Tid,
    pub(super) blocks: Vec<Frozen>,
    pub(super) forgotten: Vec<FsBlock>,
    after_commit: Vec<AfterCommit>,
}

/// What follows a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The next one.
    Open,
    /// Nothing: the door stays shut, and who wants in waits to be told why.
    StayShut,
}

impl Transactions {
    /// Commits without the thread that does so, which has not been started.
    ///
    /// # Errors
    /// As for [`commit_then`](Self::commit_then).
    pub(crate) fn commit_running(&self, volume: &Volume) -> Result<()> {
        self.commit_then(volume, Then::Open)
    }

    /// Closes the running transaction, makes it durable and says so.
    ///
    /// Whatever ends it, a panic too: memory goes on to show what the transaction has changed.
    ///
    /// # Errors
    /// The device's; the filesystem takes no changes from then on.
    pub(super) fn commit_then(&self, volume: &Volume, then: Then) -> Result<()> {
        let mut closed = self.freeze(volume, then)?;
        // The last handle may have ended the changes.
        let written =
            catch_unwind(AssertUnwindSafe(|| self.check().and_then(|()| self.write(volume, &mut closed))));
        if !matches!(written, Ok(Ok(()))) {
            self.abandon(closed.blocks.into_iter().map(|frozen| frozen.block));
            return written.unwrap_or_else(|panic| resume_unwind(panic));
        }
        for home in &closed.forgotten {
            volume.buffers().forget(home.0);
        }
        for then in closed.after_commit {
            then(volume);
        }
        self.set_durable(closed.tid);
        Ok(())
    }

    /// Makes a closed transaction durable. Nothing of what it forgot is written home afterwards.
    fn write(&self, volume: &Volume, closed: &mut Closed) -> Result<()> {
        let Some(journal) = self.journal() else { return Self::write_home(volume, closed) };
        let ring_blocks = journal.log(volume, closed, || self.has_ended())?;
        self.check()?;
        journal.keep(closed, ring_blocks);
        journal.disown(volume, &closed.forgotten);
        Ok(())
    }

    fn freeze(&self, volume: &Volume, then: Then) -> Result<Closed> {
        let handle = self.close(volume);
        let tid = handle.tid();
        let prepared = volume.prepare_commit(&handle);
        let Changes { blocks, forgotten, after_commit } = self.take_changes();
        let blocks = blocks
            .into_iter()
            .filter_map(|block| {
                let guard = block.lock();
                let logged = guard.beside();
                if logged.forgotten_in == Some(tid) {
                    return None;
                }
                let (buffer, seal) = (guard.buffer().clone(), logged.seal);
                drop(guard);
                Some(Frozen { block, buffer, seal })
            })
            .collect();
        drop(handle);
        if then == Then::Open {
            self.open_next();
        }
        let closed = Closed { tid, blocks, forgotten, after_commit };
        match prepared {
            Ok(()) => Ok(closed),
            Err(error) => {
                self.abandon(closed.blocks.into_iter().map(|frozen| frozen.block));
                Err(error)
            }
        }
    }

    /// Without a log: every block goes to its home. Data first, since it was written first; then what names lead
    /// to, then names.
    fn write_home(volume: &Volume, closed: &Closed) -> Result<()> {
        volume.flush()?;
        let (names, others): (Vec<_>, Vec<_>) = closed.blocks.iter().partition(|frozen| {
            matches!(frozen.seal, Seal::DirectoryLeaf(_) | Seal::DirectoryIndex(_) | Seal::Superblock)
        });
        for frozen in [others, names] {
            write_in_place(volume, &frozen)?;
            volume.flush()?;
        }
        Ok(())
    }
}

fn write_in_place(volume: &Volume, frozen: &[&Frozen]) -> Result<()> {
    let block_bytes = u64::from(volume.block_bytes());
    let mut sealed: Vec<(u64, Vec<u8>)> = frozen
        .iter()
        .map(|frozen| {
            let home = frozen.block.number();
            let mut bytes = frozen.buffer.to_vec();
            frozen.seal.apply(volume, FsBlock(home), &mut bytes);
            (home, bytes)
        })
        .collect();
    sealed.sort_unstable_by_key(|(home, _)| *home);
    let mut batch: Vec<_> = sealed
        .iter()
        .map(|(home, bytes)| Request::Write { offset: home * block_bytes, data: bytes })
        .collect();
    Ok(volume.device().run_batch(&mut batch)?)
}
