//! A handle: an operation's part in the running transaction.
//!
//! A handle that is dropped by a panic leaves its operation half done. There is no undo, so the changes are aborted: the
//! transaction is never committed, and later callers get the stored error.

use std::cell::Cell;
use std::convert::Infallible;

use undercroft_sync::Declared;

use crate::client::HomeOf;
use crate::slots::SlotId;
use crate::{Client, Item, ItemGuard, Tid, Transactions};

/// An operation's part in the running transaction, from [`Transactions::start`] until it is dropped.
pub struct Handle<'a, C: Client> {
    pub(crate) client: &'a C,
    pub(crate) transactions: &'a Transactions<C>,
    pub(crate) tid: Tid,
    pub(crate) slot: SlotId,
    /// Units that the operation has reserved and not used.
    pub(crate) reserved: Cell<u32>,
    /// The thread was unwinding when the handle was started, by a destructor that does all of its work.
    pub(crate) began_unwinding: bool,
    /// A handle is ordered as a lock is: locking the transaction for commit waits for it.
    pub(crate) _declared: Option<Declared>,
}

impl<'a, C: Client> Handle<'a, C> {
    /// The filesystem.
    #[must_use]
    pub fn client(&self) -> &'a C {
        self.client
    }

    /// The transaction.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Whether `units` more can be used under this handle; reserves them where it has fewer. If not, the operation stops
    /// where everything is consistent, drops the handle and starts another.
    #[must_use]
    pub fn has_room(&self, units: u32) -> bool {
        let reserved = self.reserved.get();
        if reserved >= units {
            return true;
        }
        let extended = self.transactions.extend(self.slot, units - reserved);
        if extended {
            self.reserved.set(units);
        }
        extended
    }

    /// Changes an item that the caller holds. `units` are used if the running transaction had not changed it yet.
    pub fn change<R>(
        &self,
        item: &C::Item,
        units: u32,
        change: impl FnOnce(&mut <C::Item as Item>::Guard<'_>) -> R,
    ) -> R {
        let changed: Result<R, Infallible> = self.validate_and_change(item, units, |_| Ok(()), change);
        match changed {
            Ok(result) => result,
        }
    }

    /// As [`change`](Self::change), of an item that is validated first, under the same lock.
    ///
    /// # Errors
    /// Those of `validate`. Nothing has changed then.
    pub fn validate_and_change<R, E>(
        &self,
        item: &C::Item,
        units: u32,
        validate: impl FnOnce(&<C::Item as Item>::Guard<'_>) -> Result<(), E>,
        change: impl FnOnce(&mut <C::Item as Item>::Guard<'_>) -> R,
    ) -> Result<R, E> {
        let mut guard = item.lock();
        validate(&guard)?;
        let result = change(&mut guard);
        let state = guard.state_mut();
        let is_first = state.changed_in != self.tid;
        state.changed_in = self.tid;
        drop(guard);
        if is_first {
            self.charge(units);
            self.transactions.add_item(self.slot, item.clone());
        }
        Ok(result)
    }

    /// Uses units, for a client whose changes take more of the log than the item's first.
    pub fn charge(&self, units: u32) {
        self.reserved.set(self.reserved.get().saturating_sub(units));
    }

    /// A home stops being metadata, or an intent is done. The version that the log has of it must not be written back any
    /// more, which the log records. The caller frees the space, which is not used again before this transaction is
    /// durable.
    pub fn cancel(&self, home: HomeOf<C>) {
        self.transactions.cancel(self.client, self.slot, self.tid, home);
    }

    /// Runs `then` once the transaction is durable, on the commit thread and without a handle.
    pub fn after_commit(&self, then: impl FnOnce(&C) + Send + 'static) {
        self.transactions.after_commit(self.slot, Box::new(then));
    }
}

impl<C: Client> Drop for Handle<'_, C> {
    fn drop(&mut self) {
        // Before it leaves: the commit thread waits for it, and looks afterwards.
        if std::thread::panicking() && !self.began_unwinding {
            self.transactions.abort("an operation panicked in the middle of a change");
        }
        self.transactions.leave(self.slot, self.reserved.get());
    }
}

impl<C: Client> std::fmt::Debug for Handle<'_, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("tid", &self.tid)
            .field("reserved", &self.reserved)
            .finish_non_exhaustive()
    }
}
