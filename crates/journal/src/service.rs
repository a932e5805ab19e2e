//! The threads of a log: one commits, one runs checkpoints.
//!
//! They hold the client, and so does the filesystem. [`Service::close`] ends them: it commits what is there, writes it
//! back, empties the log, and has the client record that the filesystem was left clean. After an abort the threads do
//! nothing more, and the log stays as it was after the last commit that succeeded. The commit thread has the client
//! record the abort at once, its own panic included.
//!
//! Locks: `threads`, of class `journal`, for the closing thread; nothing is held while a thread is joined.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use undercroft_sync::atomic::Ordering;
use undercroft_sync::thread::{self, JoinHandle};
use undercroft_sync::{Mutex, order};
use undercroft_vfs::Result;

use crate::commit::Then;
use crate::{Client, Stopped, Transactions};

/// The threads of one filesystem.
pub struct Service<C: Client> {
    client: Arc<C>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<C: Client> Service<C> {
    /// Starts them. Changes are committed `every` so often, and when a thread waits for a commit.
    #[must_use]
    pub fn start(client: Arc<C>, every: Duration) -> Self {
        let mut threads = Vec::new();
        let of_commits = Arc::clone(&client);
        threads.push(thread::spawn(move || of_commits.transactions().run_commits(&*of_commits, every)));
        if client.transactions().log().is_some() {
            let of_checkpoints = Arc::clone(&client);
            threads
                .push(thread::spawn(move || of_checkpoints.transactions().run_checkpoints(&*of_checkpoints)));
        }
        Self { threads: Mutex::new(&order::JOURNAL, threads), client }
    }

    /// Ends the changes. What was done before is durable afterwards, and the filesystem is clean. A second call does
    /// not wait, and returns the cause of an abort that has happened by then.
    ///
    /// # Errors
    /// The cause of the abort, if there was one since the filesystem was opened; it has not been left clean then.
    pub fn close(&self) -> Result<()> {
        let client = &*self.client;
        let transactions = client.transactions();
        transactions.begin_closing();
        let threads = std::mem::take(&mut *self.threads.lock());
        if threads.is_empty() {
            return transactions.first_failure();
        }
        for thread in threads {
            // One that panicked has aborted the changes.
            let _ = thread.join();
        }
        if !transactions.has_stopped()
            && let Err(error) = transactions.leave_clean(client)
        {
            transactions.abort_because(&error);
        }
        transactions.record_abort(client);
        transactions.stop(Stopped::Closed);
        transactions.first_failure()
    }
}

impl<C: Client> Transactions<C> {
    /// The commit thread. However it ends, an abort is recorded.
    fn run_commits(&self, client: &C, every: Duration) {
        self.abort_if_it_panics(|| self.commit_until_closed(client, every));
        self.record_abort(client);
        if let Some(log) = self.log() {
            log.stop();
        }
    }

    /// Commits when a thread waits for it, and `every` so often when something has changed, until it is asked to end or
    /// the changes are aborted.
    fn commit_until_closed(&self, client: &C, every: Duration) {
        let mut wait = every;
        loop {
            let is_called = || self.is_wanted() || self.is_closing() || self.has_stopped();
            let is_called = self.work.wait_timeout(wait, is_called);
            if self.has_stopped() {
                break;
            }
            let is_closing = self.is_closing();
            let all_stored = is_called || client.prepare_timed_commit();
            // What had no room goes into the next transaction, at once.
            wait = if all_stored { every } else { Duration::ZERO };
            if !is_called && all_stored && !self.has_changes() {
                continue;
            }
            let then = if is_closing { Then::StayLocked } else { Then::OpenNext };
            if let Err(error) = self.commit_then(client, then) {
                self.abort_because(&error);
            }
            if is_closing {
                break;
            }
        }
    }

    /// The checkpoint thread.
    fn run_checkpoints(&self, client: &C) {
        self.abort_if_it_panics(|| {
            if let Some(log) = self.log()
                && let Err(error) = log.checkpoint_when_needed(client, || self.has_stopped())
            {
                self.abort_because(&error);
            }
        });
    }

    /// A thread that has panicked has left a transaction half done.
    fn abort_if_it_panics(&self, work: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            self.abort("a thread that writes the log has panicked");
        }
    }

    /// Everything is committed and both threads have ended: writes it back and has the filesystem marked clean.
    fn leave_clean(&self, client: &C) -> Result<()> {
        if let Some(log) = self.log() {
            log.empty(client, self.running().next())?;
        }
        client.mark_clean()
    }

    /// Records an abort on the disk, once.
    fn record_abort(&self, client: &C) {
        if let Some(Stopped::Aborted { cause, .. }) = self.stopped()
            && !self.recorded.swap(true, Ordering::SeqCst)
        {
            // The device has failed already, most likely; callers get the first cause.
            let _ = self.log().map_or(Ok(()), |log| log.record_abort(client));
            client.record_abort(cause);
        }
    }
}

impl<C: Client> Drop for Service<C> {
    fn drop(&mut self) {
        // A caller that needs the result has called `close`.
        let _ = self.close();
    }
}

impl<C: Client> std::fmt::Debug for Service<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}
