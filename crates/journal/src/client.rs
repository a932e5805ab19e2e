//! What a filesystem gives to the engine: its items, its log's format, and its own part in a commit.

use undercroft_vfs::Result;

use crate::{Cause, Frozen, Handle, Item, Position, Tid, Transaction, Transactions, WriteBack};

/// Where items of a client are written back to.
pub type HomeOf<C> = <<C as Client>::Item as Item>::Home;

/// Versions of a client's items.
pub type VersionOf<C> = <<C as Client>::Item as Item>::Version;

/// A filesystem whose metadata is changed in transactions.
pub trait Client: Sized + Send + Sync + 'static {
    /// What transactions change.
    type Item: Item;

    /// The client's transactions.
    fn transactions(&self) -> &Transactions<Self>;

    /// Makes everything durable that was written to the device before.
    ///
    /// # Errors
    /// I/O failure; what was lost is unknown.
    fn flush(&self) -> Result<()>;

    /// The item with this home, if it is in memory.
    fn cached(&self, home: HomeOf<Self>) -> Option<Self::Item>;

    /// Drops the item with this home from memory: it is no longer in use.
    fn evict(&self, home: HomeOf<Self>);

    /// Stores state that is kept only in memory into items. Called with the running transaction locked; `handle` is its
    /// only handle. Intents whose work is not done are logged again here; see [`Item::is_pinned`].
    ///
    /// # Errors
    /// I/O failure; the transaction is not committed then.
    fn prepare_commit(&self, handle: Handle<'_, Self>) -> Result<()>;

    /// Called before a timed commit: stores the state that waits for one, through handles of its own. Returns whether
    /// all of it had room; if not, it is called again at once.
    fn prepare_timed_commit(&self) -> bool {
        true
    }

    /// Writes versions to their homes, in the order given, which is that of the homes. It need not flush. A version
    /// belongs to [`WriteBack::position`]; a format that stamps its blocks with log positions stamps that one.
    ///
    /// # Errors
    /// The device's.
    fn write_back(&self, batch: &[WriteBack<'_, Self::Item>]) -> Result<()>;

    /// Without a log: writes the items of a transaction to their homes and makes them durable, in an order that serves
    /// the repair after a crash.
    ///
    /// # Errors
    /// The device's.
    fn write_unlogged(&self, items: &[Frozen<Self::Item>]) -> Result<()>;

    /// Records that the filesystem was left clean: everything is written back and the log is empty.
    ///
    /// # Errors
    /// I/O failure.
    fn mark_clean(&self) -> Result<()>;

    /// Records on the disk that the changes were aborted, as well as it can: the device has failed already, most likely.
    fn record_abort(&self, cause: &Cause);
}

/// Appends transactions to a log; used by the commit thread only.
pub trait LogHead<C: Client>: Send {
    /// Log space that the transaction takes, in the log's own units.
    fn space(&self, transaction: &Transaction<C::Item>) -> u64;

    /// Writes a transaction and makes it durable, and with it everything that was written to the device before. The log
    /// has room for it. Returns the transaction's place in the log.
    ///
    /// # Errors
    /// The device's. The transaction is then in the log or not, and nothing is written after it.
    fn append(&mut self, client: &C, transaction: &Transaction<C::Item>) -> Result<Position>;
}

/// Moves the tail of a log: where recovery begins.
pub trait LogTail<C: Client>: Send {
    /// Frees `space` of the log: the oldest transactions, which take it, have been written back durably. Recovery
    /// begins with transaction `next` from now on, which may not have been logged yet. Durable on return.
    ///
    /// # Errors
    /// The device's.
    fn advance(&mut self, client: &C, space: u64, next: Tid) -> Result<()>;

    /// Makes the log empty: everything is written back, and transaction `next` will be the first in it. Durable on
    /// return.
    ///
    /// # Errors
    /// The device's.
    fn make_empty(&mut self, client: &C, next: Tid) -> Result<()>;

    /// Records in the log that its writer gave up.
    ///
    /// # Errors
    /// The device's.
    fn record_abort(&mut self, client: &C) -> Result<()>;
}
