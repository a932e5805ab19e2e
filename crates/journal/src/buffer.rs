//! Blocks of the buffer cache as items, sealed when they are written.
//!
//! A *seal* says how the checksum of a block is made. It is kept beside the block and applied to the copy that is
//! written, to the log or home, so that changing a block costs no checksum.

use std::fmt::Debug;

use undercroft_cache::{Block, BlockGuard, Buffer};

use crate::{Item, ItemGuard, ItemState, Tid};

/// How a client seals a block.
pub trait Seal: Copy + Debug + Default + Send + Sync + 'static {
    /// The block is being frozen: what goes with the frozen version, where `committed` went with the newest version that is
    /// durable in the log and not yet written back. A client that logs only parts of a block keeps them here: the frozen
    /// version has those of both, and the next transaction begins without any.
    fn freeze(&mut self, committed: Option<Self>) -> Self {
        let _ = committed;
        *self
    }
}

/// A block of the cache that transactions change.
pub type LoggedBlock<S> = Block<LoggedState<S>>;

/// What is kept beside a block.
#[derive(Debug, Default)]
pub struct LoggedState<S: Seal> {
    state: ItemState<Sealed<S>>,
    /// How the block is sealed when it is written.
    pub seal: S,
}

/// A version of a block, and how it is sealed.
#[derive(Clone, Debug)]
pub struct Sealed<S> {
    /// The bytes.
    pub buffer: Buffer,
    /// How the block is sealed.
    pub seal: S,
}

impl<S: Seal> LoggedState<S> {
    /// The transaction that changed the block last; number 0 for a block that was never changed.
    #[must_use]
    pub fn changed_in(&self) -> Tid {
        self.state.changed_in()
    }

    /// Whether the log may have a version that is not yet written back when transaction `tid` is running: one that is
    /// durable, or one that is on its way to the log.
    #[must_use]
    pub fn may_be_in_log(&self, tid: Tid) -> bool {
        self.state.committed().is_some() || self.state.changed_in().next() >= tid
    }

    /// The block becomes metadata again, after it was cancelled. `false` if it is leaving the cache; see
    /// [`ItemState::reuse`].
    #[must_use]
    pub fn reuse(&mut self) -> bool {
        self.state.reuse()
    }
}

impl<S: Seal> Item for LoggedBlock<S> {
    type Version = Sealed<S>;
    type Home = u64;
    type Guard<'a> = BlockGuard<'a, LoggedState<S>>;

    fn home(&self) -> u64 {
        self.number()
    }

    fn lock(&self) -> Self::Guard<'_> {
        Block::lock(self)
    }
}

impl<S: Seal> ItemGuard<Sealed<S>> for BlockGuard<'_, LoggedState<S>> {
    fn state(&self) -> &ItemState<Sealed<S>> {
        &self.private().state
    }

    fn state_mut(&mut self) -> &mut ItemState<Sealed<S>> {
        &mut self.private_mut().state
    }

    fn freeze(&mut self) -> Sealed<S> {
        let private = self.private_mut();
        let committed = private.state.committed().map(|version| version.seal);
        let seal = private.seal.freeze(committed);
        Sealed { buffer: self.buffer().clone(), seal }
    }
}
