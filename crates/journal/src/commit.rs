//! Committing a transaction.
//!
//! The steps, in order:
//!
//! 1. lock the running transaction; let the client store what it keeps outside of items;
//! 2. freeze a version of every item that was changed; open the next transaction;
//! 3. with handles running again, write the versions to the log and make them durable;
//! 4. cancel the write-back of homes that are out of use; put the items on the checkpoint list;
//! 5. run what was registered for after the commit (freed space becomes free), and wake the waiters.
//!
//! Without a log, step 3 writes the items to their homes instead, and step 4 does not apply.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use undercroft_vfs::Result;

use crate::slots::{AfterCommit, Changes};
use crate::{Client, Frozen, Item, ItemGuard, Transaction, Transactions};

/// A transaction whose handles have finished.
struct Locked<C: Client> {
    transaction: Transaction<C::Item>,
    after_commit: Vec<AfterCommit<C>>,
}

/// What follows a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The next one.
    OpenNext,
    /// Nothing: the barrier stays, and threads that start a handle get the reason.
    StayLocked,
}

impl<C: Client> Transactions<C> {
    /// Commits on the calling thread, for a filesystem whose [`Service`](crate::Service) has not been started.
    ///
    /// # Errors
    /// The device's.
    pub fn commit_running(&self, client: &C) -> Result<()> {
        self.commit_then(client, Then::OpenNext)
    }

    /// Locks the running transaction, makes it durable and wakes its waiters.
    ///
    /// If it fails or panics, readers still find the transaction's changes in memory.
    ///
    /// # Errors
    /// The device's; the caller aborts the changes.
    pub(crate) fn commit_then(&self, client: &C, then: Then) -> Result<()> {
        let Locked { mut transaction, after_commit } = self.freeze(client, then)?;
        // The last handle may have aborted the changes.
        let written = catch_unwind(AssertUnwindSafe(|| {
            self.check().and_then(|()| self.write(client, &mut transaction))
        }));
        if !matches!(written, Ok(Ok(()))) {
            self.keep_unwritten(transaction.items.into_iter().map(|frozen| frozen.item));
            return written.unwrap_or_else(|panic| resume_unwind(panic));
        }
        for home in &transaction.cancelled {
            // An item that comes into the cache from here on is another one, which a later transaction has made. While this
            // one is held it is not dropped, and no other takes its place before it is evicted.
            let Some(item) = client.cached(*home) else { continue };
            let may_go = item.lock().state_mut().evict();
            if may_go {
                client.evict(*home);
            }
        }
        for then in after_commit {
            then(client);
        }
        self.set_durable(transaction.tid);
        Ok(())
    }

    /// Makes a locked transaction durable. Nothing of what it cancelled is written back afterwards.
    fn write(&self, client: &C, transaction: &mut Transaction<C::Item>) -> Result<()> {
        let Some(log) = self.log() else { return client.write_unlogged(&transaction.items) };
        let logged = log.append(client, transaction, || self.check())?;
        self.check()?;
        // An item of the transaction may lie where part of a cancelled one did, which must not be written over it.
        log.cancel_write_back(client, &transaction.cancelled);
        log.add_to_checkpoint_list(transaction, logged);
        Ok(())
    }

    /// Locks the running transaction, takes its changes, and opens the next one.
    fn freeze(&self, client: &C, then: Then) -> Result<Locked<C>> {
        let handle = self.lock(client);
        let tid = handle.tid();
        let prepared = client.prepare_commit(handle);
        let Changes { items, cancelled, after_commit } = self.slots().take_changes();
        let items: Vec<_> = items
            .into_iter()
            .filter_map(|item| {
                let mut guard = item.lock();
                if guard.state().cancelled_in == Some(tid) {
                    return None;
                }
                let version = guard.freeze();
                drop(guard);
                Some(Frozen { item, version })
            })
            .collect();
        let cancelled = without_reused(cancelled, &items);
        if then == Then::OpenNext {
            self.open_next();
        }
        let transaction = Transaction { tid, items, cancelled };
        match prepared {
            Ok(()) => Ok(Locked { transaction, after_commit }),
            Err(error) => {
                self.keep_unwritten(transaction.items.into_iter().map(|frozen| frozen.item));
                Err(error)
            }
        }
    }
}

/// The cancelled homes without those that became metadata again in the same transaction: their items are logged.
fn without_reused<I: Item>(mut cancelled: Vec<I::Home>, items: &[Frozen<I>]) -> Vec<I::Home> {
    if !cancelled.is_empty() {
        cancelled.sort_unstable();
        let is_cancelled = |home: &I::Home| cancelled.binary_search(home).is_ok();
        let reused: BTreeSet<_> =
            items.iter().map(|frozen| frozen.item.home()).filter(is_cancelled).collect();
        cancelled.dedup();
        cancelled.retain(|home| !reused.contains(home));
    }
    cancelled
}
