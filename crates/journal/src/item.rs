//! Items: what transactions change and log.
//!
//! An item is whatever a format logs as one thing: a block, an inode's fields, an intent. It keeps an [`ItemState`]
//! under its own lock, in which the engine notes the transaction that changed it last and the version that is durable
//! in the log and not yet written back.

use std::fmt::Debug;

use crate::Tid;

/// A place in the log, in the client's own numbering. Later transactions have higher positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// A shared handle of something that transactions change. Holding it keeps the item in memory.
pub trait Item: Clone + Debug + Send + Sync + 'static {
    /// The item as one transaction left it: what goes into the log and, later, home.
    type Version: Clone + Debug + Send + Sync;
    /// Where the item is written back to. Write-back goes in this order.
    type Home: Copy + Ord + Debug + Send + Sync;
    /// The item with its lock held.
    type Guard<'a>: ItemGuard<Self::Version>
    where
        Self: 'a;

    /// Whether [`is_pinned`](Self::is_pinned) can ever be true.
    const CAN_PIN: bool = false;

    /// Where the item is written back to.
    fn home(&self) -> Self::Home;

    /// Locks the item.
    fn lock(&self) -> Self::Guard<'_>;

    /// Whether the log must keep the item's newest version though nothing is left to write back: an intent whose work
    /// is not done. The client logs such items again in every transaction, from [`Client::prepare_commit`], so that
    /// they never hold more of the log than the last transaction.
    ///
    /// [`Client::prepare_commit`]: crate::Client::prepare_commit
    fn is_pinned(&self) -> bool {
        false
    }
}

/// An item whose lock is held.
pub trait ItemGuard<V> {
    /// The engine's state.
    fn state(&self) -> &ItemState<V>;

    /// The engine's state, to be changed.
    fn state_mut(&mut self) -> &mut ItemState<V>;

    /// The version that the closing transaction logs. No handle is open. A client that logs only what changed adds what
    /// [`ItemState::committed`] has, because the log space of that version may be used again before this one is
    /// written back.
    fn freeze(&mut self) -> V;
}

/// What the engine keeps beside an item.
#[derive(Debug)]
pub struct ItemState<V> {
    /// The transaction that changed the item last.
    pub(crate) changed_in: Tid,
    /// The transaction in which its home stopped being metadata.
    pub(crate) cancelled_in: Option<Tid>,
    /// Its home has become metadata again, or for the first time, since it was cancelled.
    is_reused: bool,
    /// It is leaving the memory, or has left.
    is_evicted: bool,
    /// The newest version that is durable in the log and not yet written back.
    pub(crate) committed: Option<Committed<V>>,
}

/// A version that is durable in the log.
#[derive(Clone, Debug)]
pub struct Committed<V> {
    /// The transaction that logged it.
    pub(crate) tid: Tid,
    /// Where in the log that transaction is.
    pub(crate) position: Position,
    pub(crate) version: V,
}

impl<V> ItemState<V> {
    /// The transaction that changed the item last; number 0 for an item that was never changed.
    #[must_use]
    pub fn changed_in(&self) -> Tid {
        self.changed_in
    }

    /// The newest version that is durable in the log and not yet written back.
    #[must_use]
    pub fn committed(&self) -> Option<&V> {
        self.committed.as_ref().map(|committed| &committed.version)
    }

    /// The item's home is metadata again: it was cancelled and has been allocated anew. A client in which a home that
    /// stops being metadata serves as nothing else before that is durable may do this while the transaction that cancelled
    /// it is running or being committed.
    ///
    /// Returns `false` if the item is leaving the memory for that reason: the caller gets it anew.
    #[must_use]
    pub fn reuse(&mut self) -> bool {
        if self.is_evicted {
            return false;
        }
        self.cancelled_in = None;
        self.is_reused = true;
        true
    }

    /// The item's home stops being metadata.
    pub(crate) fn cancel(&mut self, tid: Tid) {
        self.cancelled_in = Some(tid);
        self.is_reused = false;
    }

    /// The transaction that cancelled the item is durable. Returns whether it leaves the memory.
    pub(crate) fn evict(&mut self) -> bool {
        self.is_evicted = !self.is_reused;
        self.is_evicted
    }

    /// The version that transaction `tid` logged, while no younger transaction has logged one and it is not written back.
    pub(crate) fn committed_in(&self, tid: Tid) -> Option<&Committed<V>> {
        self.committed.as_ref().filter(|committed| committed.tid == tid)
    }
}

impl<V> Default for ItemState<V> {
    fn default() -> Self {
        Self {
            changed_in: Tid::default(),
            cancelled_in: None,
            is_reused: false,
            is_evicted: false,
            committed: None,
        }
    }
}
