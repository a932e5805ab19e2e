//! Changing metadata, many blocks at once or none.
//!
//! An operation joins the running transaction with [`Transactions::start`], changes blocks through its [`Handle`],
//! and drops that. All handles that joined one transaction reach the disk together, or none does. Now and then, and
//! when somebody wants to be sure, the running transaction is closed: no handle joins, those that have joined
//! finish, the versions of its blocks are taken, and the next transaction opens; only then does the writing begin.
//!
//! Joining is one atomic addition on a line that few threads share, and a look at a flag. A block is entered into
//! the transaction once, by who changes it first. Nothing else is shared.
//!
//! Rules for who changes something:
//!
//! - all that an operation must read, and all that can be refused, comes before its first change: there is no undo.
//!   An error after that latches the filesystem read-only ([`Transactions::fail`]), and so does a panic under a handle;
//! - a thread has one handle, joined before locks of rank 420 and above; nothing that waits for another handle (a
//!   commit, a `start`) is called while one is held. It passes `&Handle` on to what it calls;
//! - `start` is told how many blocks the operation changes at most; who does not know in advance works in steps and
//!   asks [`Handle::has_room`] between them, leaving everything consistent for a crash in between (an orphan, say);
//! - a block that stops being metadata is [forgotten](Handle::forget) before its space is freed, and freed space is
//!   not used again before the transaction that freed it is durable;
//! - data is on the device before the handle is joined that lets somebody read it: a commit flushes the device
//!   before it says that it happened.

mod commit;
mod failure;
mod handle;
mod journal;
mod running;
mod seal;
mod service;
mod stop;
#[cfg(test)]
mod tests;

pub(crate) use handle::Handle;
pub(crate) use journal::Journal;
pub(crate) use running::Transactions;
pub(crate) use seal::Seal;
pub(crate) use service::Service;
pub(crate) use stop::{Stop, StoppedWith};

use undercroft_cache::Buffer;

use crate::journal::Sequence;

/// A transaction's number: rises by one, never wraps. Its lower half is the sequence number in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tid(pub(crate) u64);

impl Tid {
    /// Its number in the log.
    fn sequence(self) -> Sequence {
        Sequence(self.0 as u32)
    }
}

/// A block of the cache, with what its log keeps beside it.
pub(crate) type Block = undercroft_cache::Block<Logged>;

/// What is known beside a block.
#[derive(Debug, Default)]
pub(crate) struct Logged {
    /// The transaction that changed the block last.
    pub(crate) changed_in: Tid,
    /// The transaction in which the block stopped being metadata, if it has.
    pub(crate) forgotten_in: Option<Tid>,
    /// How its checksum is made when it is written.
    pub(crate) seal: Seal,
    /// The newest version that is durable in the log and not yet at home.
    pub(crate) committed: Option<Committed>,
}

/// A version that is durable in the log.
#[derive(Clone, Debug)]
pub(crate) struct Committed {
    /// The transaction that it is from.
    tid: Tid,
    buffer: Buffer,
    seal: Seal,
}

/// A version of a block as one transaction left it.
#[derive(Debug)]
pub(crate) struct Frozen {
    pub(crate) block: Block,
    pub(crate) buffer: Buffer,
    pub(crate) seal: Seal,
}
