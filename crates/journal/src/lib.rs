//! Write-ahead logging: many changes of metadata reach the disk together, or none does.
//!
//! An operation joins the running transaction with [`Transactions::start`], changes items through its [`Handle`], and
//! drops the handle. The commit thread takes all handles of a transaction to the disk at once (group commit):
//!
//! ```text
//!  handles change items          commit thread                           checkpoint thread
//!  ─────────────────────         ──────────────────────────────          ─────────────────────────────
//!  running transaction ──lock──► frozen versions ──write, flush──► log ──write back──► home ──► log space
//! ```
//!
//! 1. The commit thread locks the running transaction: no handle joins, and the open handles finish.
//! 2. It freezes a version of every item that the transaction changed, and opens the next transaction.
//! 3. It writes the frozen versions to the log and makes them durable. Handles run again meanwhile.
//! 4. The transaction joins the checkpoint list until all of its items are written back.
//!
//! The engine does not depend on a format. A filesystem implements [`Client`]: what an item is and where its home is
//! ([`Item`]), how a transaction is laid out in the log ([`LogHead`], [`LogTail`]), and how versions are written back.
//! Units of reservation and of log space are the client's: blocks for one format, bytes for another.
//!
//! Rules for the threads that change items:
//!
//! - all that an operation must read, and all that can be refused, comes before its first change: there is no undo. An
//!   error after that aborts the transaction ([`Transactions::abort`]), and so does a panic under a handle;
//! - a thread has one handle, joined before locks of rank 420 and above. With a handle open it calls nothing that waits
//!   for another handle (a commit, a `start`). It passes `&Handle` on to the functions that it calls;
//! - `start` gets the number of units that the operation needs at most. An operation that cannot compute it works in
//!   steps and calls [`Handle::has_room`] between them; each step leaves everything consistent for a crash;
//! - a home that stops being metadata is [cancelled](Handle::cancel) before its space is freed, and freed space is not
//!   used again before the transaction that freed it is durable;
//! - data is on the device before the handle is joined that makes it readable: a commit flushes the device before its
//!   commit record is written.
//!
//! Locks: see each module. Their classes are `journal` and, inside it, `transaction`; items have classes between the two.

mod abort;
mod buffer;
mod checkpoint;
mod client;
mod commit;
mod device;
mod frozen;
mod handle;
mod item;
mod room;
mod service;
mod slots;
mod transactions;

pub use abort::{Cause, Stop, Stopped};
pub use buffer::{LoggedBlock, LoggedState, Seal, Sealed};
pub use checkpoint::{Limits, WriteBack};
pub use client::{Client, HomeOf, LogHead, LogTail, VersionOf};
pub use device::StoppableDevice;
pub use frozen::{Frozen, Transaction};
pub use handle::Handle;
pub use item::{Committed, Item, ItemGuard, ItemState, Position};
pub use service::Service;
pub use transactions::{Stats, Transactions};

/// A transaction's number: rises by one, never wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(pub u64);

impl Tid {
    /// The transaction after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
