//! A part in the running transaction.
//!
//! A handle that is dropped by a panic leaves its operation half done. There is no undo, so the changes end: the
//! transaction is never committed, and later callers get the stored error.

use undercroft_sync::Declared;
use undercroft_vfs::Result;

use super::running::Place;
use super::{Block, Seal, Tid, Transactions};
use crate::numbers::FsBlock;
use crate::volume::Volume;

/// An operation's part in the running transaction, from [`Transactions::start`] until it is dropped.
pub(crate) struct Handle<'a> {
    pub(super) volume: &'a Volume,
    pub(super) transactions: &'a Transactions,
    pub(super) tid: Tid,
    pub(super) place: Place,
    /// Blocks that the operation may yet enter.
    pub(super) credits: std::cell::Cell<u32>,
    /// Its thread was unwinding when the handle was started, by a destructor that does all of its work.
    pub(super) began_unwinding: bool,
    /// A handle is ordered as a lock is: closing the transaction waits for it.
    pub(super) _declared: Option<Declared>,
}

impl<'a> Handle<'a> {
    /// The filesystem's blocks.
    pub(crate) fn volume(&self) -> &'a Volume {
        self.volume
    }

    /// The transaction.
    pub(crate) fn tid(&self) -> Tid {
        self.tid
    }

    /// Whether `blocks` more can be changed under this handle. If not, the operation stops where everything is
    /// consistent, drops the handle and starts another.
    pub(crate) fn has_room(&self, blocks: u32) -> bool {
        let credits = self.credits.get();
        if credits >= blocks {
            return true;
        }
        let extended = self.transactions.extend(self.place, blocks - credits);
        if extended {
            self.credits.set(blocks);
        }
        extended
    }

    /// Changes a metadata block, which is read if it is not cached. `change` reads no other block.
    ///
    /// # Errors
    /// Corruption when there is no such block; I/O failure. Nothing has changed then.
    pub(crate) fn change<R>(
        &self,
        home: FsBlock,
        seal: Seal,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        Ok(self.change_block(&self.volume.block(home)?, seal, change))
    }

    /// Changes a metadata block that the caller holds: this does not fail.
    pub(crate) fn change_block<R>(
        &self,
        block: &Block,
        seal: Seal,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let mut guard = block.lock();
        let result = change(guard.bytes_mut());
        let logged = guard.beside_mut();
        logged.seal = seal;
        let first = logged.changed_in != self.tid;
        logged.changed_in = self.tid;
        drop(guard);
        if first {
            self.credits.set(self.credits.get().saturating_sub(1));
            self.transactions.enter(self.place, block.clone());
        }
        result
    }

    /// Makes a block that becomes metadata: all zeroes, then what `fill` makes of it. Its content is believed.
    ///
    /// # Errors
    /// Corruption when there is no such block.
    pub(crate) fn make<R>(&self, home: FsBlock, seal: Seal, fill: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let block = self.volume.make_block(home)?;
        {
            let mut guard = block.lock();
            guard.believe_all();
            guard.bytes_mut().fill(0);
            guard.beside_mut().forgotten_in = None;
        }
        Ok(self.change_block(&block, seal, fill))
    }

    /// A block stops being metadata. What of it is in the log must not come home any more, which the log is told by
    /// a revocation. The caller frees its space, which nobody gets before this transaction is durable.
    pub(crate) fn forget(&self, home: FsBlock) {
        self.transactions.forget(self.volume, self.place, self.tid, home);
    }

    /// Runs `then` once the transaction is durable, on the committing thread and without a handle.
    pub(crate) fn after_commit(&self, then: impl FnOnce(&Volume) + Send + 'static) {
        self.transactions.after_commit(self.place, Box::new(then));
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // Before it leaves: who commits waits for it, and looks afterwards.
        if std::thread::panicking() && !self.began_unwinding {
            self.transactions.fail("an operation panicked in the middle of a change");
        }
        self.transactions.leave(self.place, self.credits.get());
    }
}
