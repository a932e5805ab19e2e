//! A handle: an operation's part in the running transaction, in which it changes blocks.

use undercroft_cache::Buffer;
use undercroft_vfs::Result;

use super::{Block, Seal, Tid};
use crate::numbers::FsBlock;
use crate::volume::Volume;
use crate::writer::{Mounted, Writer};

/// An operation's part in the running transaction, from [`Mounted::start`] until it is dropped. A block that it changes
/// uses one of the units that it has reserved, if the transaction had not changed the block before.
pub(crate) struct Handle<'a>(undercroft_journal::Handle<'a, Mounted>);

impl<'a> Handle<'a> {
    pub(crate) fn new(handle: undercroft_journal::Handle<'a, Mounted>) -> Self {
        Self(handle)
    }

    /// The filesystem's blocks.
    pub(crate) fn volume(&self) -> &'a Volume {
        self.0.client()
    }

    /// What makes the changes.
    #[inline]
    pub(crate) fn writer(&self) -> &'a Writer {
        match self.0.client().writer() {
            Ok(writer) => writer,
            Err(_) => unreachable!("only a writable filesystem has handles"),
        }
    }

    /// The transaction.
    pub(crate) fn tid(&self) -> Tid {
        self.0.tid()
    }

    /// Passes on the outcome of changes. A failure among them ends all changes, as some have been made; `what` says which.
    pub(crate) fn or_abort<T>(&self, what: &str, changed: Result<T>) -> Result<T> {
        if let Err(error) = &changed {
            self.writer().transactions.abort_with(what, error);
        }
        changed
    }

    /// Whether `blocks` more can be changed under this handle. If not, the operation stops where everything is
    /// consistent, drops the handle and starts another.
    pub(crate) fn has_room(&self, blocks: u32) -> bool {
        self.0.has_room(blocks)
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
        Ok(self.change_block(&self.volume().block(home)?, seal, change))
    }

    /// Changes a metadata block that the caller holds: this does not fail.
    pub(crate) fn change_block<R>(
        &self,
        block: &Block,
        seal: Seal,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        self.0.change(block, 1, |guard| {
            guard.private_mut().seal = seal;
            change(guard.bytes_mut())
        })
    }

    /// As [`change_block`](Self::change_block), of a block that is validated first, under the same lock.
    ///
    /// # Errors
    /// Those of `validate`. Nothing has changed then.
    pub(crate) fn validate_and_change_block(
        &self,
        block: &Block,
        seal: Seal,
        validate: impl FnOnce(&Buffer) -> Result<()>,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        self.0.validate_and_change(
            block,
            1,
            |guard| validate(guard.buffer()),
            |guard| {
                guard.private_mut().seal = seal;
                change(guard.bytes_mut());
            },
        )
    }

    /// Makes a block that becomes metadata: all zeroes, then what `fill` makes of it. Its content counts as validated.
    ///
    /// # Errors
    /// Corruption when there is no such block.
    pub(crate) fn make<R>(&self, home: FsBlock, seal: Seal, fill: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let block = self.volume().make_block(home)?;
        {
            let mut guard = block.lock();
            guard.mark_all_validated();
            guard.bytes_mut().fill(0);
            // Its space is not used again before the transaction that freed it is durable, and its buffer gone.
            let _ = guard.private_mut().reuse();
        }
        Ok(self.change_block(&block, seal, fill))
    }

    /// A block stops being metadata: the log revokes it, so that no older version is replayed over it. The caller frees
    /// its space, which is not used again before this transaction is durable.
    pub(crate) fn forget(&self, home: FsBlock) {
        self.0.cancel(home.0);
    }

    /// Runs `then` once the transaction is durable, on the commit thread and without a handle.
    pub(crate) fn after_commit(&self, then: impl FnOnce(&Mounted) + Send + 'static) {
        self.0.after_commit(then);
    }
}

impl Mounted {
    /// Joins the running transaction; see [`Transactions::start`](undercroft_journal::Transactions::start).
    ///
    /// # Errors
    /// [`ReadOnly`](undercroft_vfs::Error::ReadOnly); why the filesystem takes no changes any more.
    pub(crate) fn start(&self, credits: u32) -> Result<Handle<'_>> {
        Ok(Handle::new(self.writer()?.transactions.start(self, credits)?))
    }

    /// Joins the running transaction if it has room; see
    /// [`Transactions::start_if_room`](undercroft_journal::Transactions::start_if_room).
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub(crate) fn start_if_room(&self, credits: u32) -> Result<Option<Handle<'_>>> {
        Ok(self.writer()?.transactions.start_if_room(self, credits)?.map(Handle::new))
    }
}
