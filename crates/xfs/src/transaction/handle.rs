//! A handle: an operation's part in the running transaction, in which it changes blocks.

use std::cell::Cell;

use undercroft_cache::BlockGuard;
use undercroft_vfs::{Error, Result};

use super::block::LoggedState;
use super::{Block, Seal, Tid};
use crate::error::corrupt_block;
use crate::format::{FsBlock, block_header};
use crate::volume::Volume;
use crate::writer::{Mounted, Writer};

/// An operation's part in the running transaction, from [`Mounted::start`] until it is dropped. A block that it changes
/// uses one of the credits that it has reserved, if the transaction had not changed the block before. Blocks that it
/// allocates come out of the space that it has reserved.
pub(crate) struct Handle<'a> {
    handle: undercroft_journal::Handle<'a, Mounted>,
    /// Free blocks that are reserved and not allocated.
    space: Cell<u64>,
}

impl<'a> Handle<'a> {
    pub(crate) fn new(handle: undercroft_journal::Handle<'a, Mounted>, space: u64) -> Self {
        Self { handle, space: Cell::new(space) }
    }

    /// The filesystem's blocks.
    pub(crate) fn volume(&self) -> &'a Volume {
        self.handle.client()
    }

    /// What makes the changes.
    #[inline]
    pub(crate) fn writer(&self) -> &'a Writer {
        match self.handle.client().writer() {
            Ok(writer) => writer,
            Err(_) => unreachable!("only a writable filesystem has handles"),
        }
    }

    /// The transaction.
    pub(crate) fn tid(&self) -> Tid {
        self.handle.tid()
    }

    /// Whether `blocks` more can be changed under this handle. If not, the operation stops where everything is
    /// consistent, drops the handle and starts another.
    pub(crate) fn has_room(&self, blocks: u32) -> bool {
        self.handle.has_room(blocks.saturating_mul(self.handle.client().credit_units()))
    }

    /// Reserved blocks that are not allocated yet.
    pub(crate) fn space(&self) -> u64 {
        self.space.get()
    }

    /// Uses `blocks` of the reserved space: they are being allocated. `false` if fewer are reserved; none is used then.
    pub(crate) fn use_space(&self, blocks: u64) -> bool {
        let left = self.space.get().checked_sub(blocks);
        left.map(|left| self.space.set(left)).is_some()
    }

    /// Adds to the reserved space blocks that were reserved elsewhere, or were allocated and are not used after all.
    pub(crate) fn add_space(&self, blocks: u64) {
        self.space.set(self.space.get() + blocks);
    }

    /// Reserves free space up to `blocks`, where the handle has less.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace); the handle has what it had then.
    pub(crate) fn ensure_space(&self, blocks: u64) -> Result<()> {
        let more = blocks.saturating_sub(self.space());
        if more > 0 {
            if !self.writer().allocator.reserve(more) {
                return Err(Error::NoSpace);
            }
            self.add_space(more);
        }
        Ok(())
    }

    /// Changes a metadata block, which is read if it is not cached. `change` reads no other block. The caller has
    /// validated the block, and leaves it valid.
    ///
    /// # Errors
    /// Corruption when there is no such block; I/O failure. Nothing has changed then.
    pub(crate) fn change<R>(
        &self,
        block: FsBlock,
        seal: Seal,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        Ok(self.change_block(&self.volume().block(block)?, seal, change))
    }

    /// Changes a metadata block that the caller holds: this does not fail.
    pub(crate) fn change_block<R>(
        &self,
        block: &Block,
        seal: Seal,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        self.change_guarded(block, seal, |guard| change(guard.bytes_mut()))
    }

    /// The same, after which a kind of validation counts for the block, unless `change` fails.
    pub(crate) fn change_and_validate<R, E>(
        &self,
        block: &Block,
        seal: Seal,
        kind: Option<u32>,
        change: impl FnOnce(&mut [u8]) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        self.change_guarded(block, seal, |guard| {
            let changed = change(guard.bytes_mut())?;
            if let Some(kind) = kind {
                guard.mark_validated(kind);
            }
            Ok(changed)
        })
    }

    /// A block uses as much of the reservation as it may take of the log, counted once in each transaction.
    fn change_guarded<R>(
        &self,
        block: &Block,
        seal: Seal,
        change: impl FnOnce(&mut BlockGuard<'_, LoggedState>) -> R,
    ) -> R {
        let mut more = 0;
        let result = self.handle.change(block, 0, |guard| {
            let tid = self.tid();
            let private = guard.private_mut();
            let is_first = private.changed_in() != tid;
            let used = if is_first { 0 } else { self.units(block, private.seal) };
            let in_log = private.may_be_in_log(tid);
            if is_first && let Seal::Inodes(parts) = &mut private.seal {
                parts.begin(in_log);
            }
            private.seal = private.seal.then(seal);
            more = self.units(block, private.seal).saturating_sub(used);
            change(guard)
        });
        self.handle.charge(more);
        result
    }

    /// Units of the log that a block may take in the running transaction.
    fn units(&self, block: &Block, seal: Seal) -> u32 {
        let client = self.handle.client();
        let whole = client.units_of(block);
        match seal {
            Seal::Inodes(parts) => parts.units(client.geometry()).min(whole),
            _ => whole,
        }
    }

    /// Makes a block that becomes metadata: all zeroes, then what `fill` makes of it. Its content counts as validated.
    ///
    /// # Errors
    /// Corruption when there is no such block.
    pub(crate) fn make<R>(&self, block: FsBlock, seal: Seal, fill: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        self.make_structure(block, 1, seal, fill)
    }

    /// The same for a structure of `count` blocks that lie together.
    fn make_structure<R>(
        &self,
        block: FsBlock,
        count: u32,
        seal: Seal,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        let block = loop {
            let block = self.volume().make_structure(block, count)?;
            let mut guard = block.lock();
            if guard.private_mut().reuse() {
                guard.mark_all_validated();
                guard.bytes_mut().fill(0);
                drop(guard);
                break block;
            }
            drop(guard);
            // The commit of the transaction in which the block stopped being metadata is taking it out of the cache.
            undercroft_sync::thread::yield_now();
        };
        Ok(self.change_block(&block, seal, fill))
    }

    /// Makes a block that describes itself, as [`make`](Self::make): what `fill` leaves gets the header that its kind has,
    /// of a block that belongs to `owner`, a group's number or an inode's.
    ///
    /// # Errors
    /// As for [`make`](Self::make).
    pub(crate) fn make_owned<R>(
        &self,
        block: FsBlock,
        seal: Seal,
        owner: u64,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        self.make_owned_structure(block, 1, seal, owner, fill)
    }

    /// The same for a structure of `count` blocks that lie together, with one header.
    ///
    /// # Errors
    /// As for [`make`](Self::make).
    pub(crate) fn make_owned_structure<R>(
        &self,
        block: FsBlock,
        count: u32,
        seal: Seal,
        owner: u64,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        let superblock = self.volume().superblock();
        let Some(address) = superblock.geometry().daddr(block) else {
            return Err(corrupt_block("block number", block, "lies in no allocation group"));
        };
        self.make_structure(block, count, seal, |bytes| {
            let filled = fill(bytes);
            if let Some(kind) = seal.header() {
                block_header::fill(bytes, kind, superblock, address, owner);
            }
            filled
        })
    }

    /// A block stops being metadata: the log cancels it, so that no older version is replayed over it. The caller frees
    /// its space, which is not used again before this transaction is durable.
    pub(crate) fn forget(&self, block: FsBlock) {
        self.forget_structure(block, 1);
    }

    /// The same for a structure of `count` blocks, which was logged as one buffer and is cancelled as one.
    pub(crate) fn forget_structure(&self, block: FsBlock, count: u32) {
        if let Ok(span) = self.volume().span(block, count) {
            self.handle.cancel(span.name());
        }
    }

    /// Runs `then` once the transaction is durable, on the commit thread and without a handle.
    pub(crate) fn after_commit(&self, then: impl FnOnce(&Mounted) + Send + 'static) {
        self.handle.after_commit(then);
    }

    /// Passes on the outcome of the rest of an operation that has begun to change blocks. That cannot be undone, so a
    /// failure aborts the changes, and nothing of the transaction reaches the disk.
    pub(crate) fn or_abort<T>(&self, rest: Result<T>) -> Result<T> {
        if let Err(error) = &rest {
            self.writer().transactions.abort_because(error);
        }
        rest
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        let unused = self.space.get();
        if unused > 0 {
            self.writer().allocator.unreserve(unused);
        }
    }
}

impl Mounted {
    /// Joins the running transaction; see [`Transactions::start`](undercroft_journal::Transactions::start). The handle
    /// has no space reserved.
    ///
    /// # Errors
    /// [`ReadOnly`](undercroft_vfs::Error::ReadOnly); why the filesystem takes no changes any more.
    pub(crate) fn start(&self, credits: u32) -> Result<Handle<'_>> {
        let units = credits.saturating_mul(self.credit_units());
        Ok(Handle::new(self.writer()?.transactions.start(self, units)?, 0))
    }

    /// The same with `blocks` of free space reserved.
    ///
    /// # Errors
    /// As for [`start`](Self::start); [`NoSpace`](Error::NoSpace).
    pub(crate) fn start_with_space(&self, credits: u32, blocks: u64) -> Result<Handle<'_>> {
        let writer = self.writer()?;
        if !writer.allocator.reserve(blocks) {
            return Err(Error::NoSpace);
        }
        match self.start(credits) {
            Ok(handle) => {
                handle.add_space(blocks);
                Ok(handle)
            }
            Err(error) => {
                writer.allocator.unreserve(blocks);
                Err(error)
            }
        }
    }

    /// Joins the running transaction if it has room; see
    /// [`Transactions::start_if_room`](undercroft_journal::Transactions::start_if_room).
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub(crate) fn start_if_room(&self, credits: u32) -> Result<Option<Handle<'_>>> {
        let units = credits.saturating_mul(self.credit_units());
        let handle = self.writer()?.transactions.start_if_room(self, units)?;
        Ok(handle.map(|handle| Handle::new(handle, 0)))
    }
}
