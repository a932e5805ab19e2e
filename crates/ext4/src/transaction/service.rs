//! The threads that bring transactions to the disk: one commits, one makes room in the log.
//!
//! They hold the volume, and so does the filesystem; [`Service::close`] ends them, and everything else with them: it
//! commits what is there, brings it home, empties the log, and says in the superblock that the filesystem was left
//! clean. After a failure they stand still, and the log stays as it was when the last commit succeeded. The committing
//! thread says in the superblock, at once, that something went wrong: its own panic as well.
//!
//! Locks: the threads' handles, of class `journal`, for who closes; nothing is held while a thread is waited for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use undercroft_sync::atomic::Ordering;
use undercroft_sync::thread::{self, JoinHandle};
use undercroft_sync::{Mutex, order};
use undercroft_vfs::Result;

use super::commit::Then;
use super::failure::Ended;
use super::{Tid, Transactions};
use crate::superblock;
use crate::volume::Volume;

/// The threads of one filesystem.
pub(crate) struct Service {
    volume: Arc<Volume>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Whether the filesystem had been left clean when it was opened.
    found_clean: bool,
}

impl Service {
    /// Starts them for a volume that takes changes.
    ///
    /// # Errors
    /// [`ReadOnly`](undercroft_vfs::Error::ReadOnly) for one that does not.
    pub(crate) fn start(volume: Arc<Volume>, found_clean: bool) -> Result<Self> {
        let writer = volume.writer()?;
        let every = Duration::from_secs(u64::from(writer.options.commit_seconds.max(1)));
        let mut threads = Vec::new();
        let for_commits = Arc::clone(&volume);
        threads
            .push(thread::spawn(move || transactions(&for_commits).commit_when_needed(&for_commits, every)));
        if writer.transactions.journal().is_some() {
            let for_checkpoints = Arc::clone(&volume);
            threads.push(thread::spawn(move || {
                transactions(&for_checkpoints).checkpoint_when_needed(&for_checkpoints);
            }));
        }
        Ok(Self { threads: Mutex::new(&order::JOURNAL, threads), volume, found_clean })
    }

    /// Ends the changes. What was done before is durable afterwards, and the filesystem is clean. A second call waits
    /// for nothing and answers as one after a failure or none.
    ///
    /// # Errors
    /// The first failure since the filesystem was opened; it has not been left clean then.
    pub(crate) fn close(&self) -> Result<()> {
        let transactions = transactions(&self.volume);
        transactions.stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        if threads.is_empty() {
            return transactions.failure();
        }
        for thread in threads {
            // One that panicked, which is told by now, has ended the changes.
            let _ = thread.join();
        }
        if !transactions.has_ended()
            && let Err(error) = transactions.leave_clean(&self.volume, self.found_clean)
        {
            transactions.fail_because(&error);
        }
        transactions.record_failure(&self.volume);
        transactions.closed();
        transactions.failure()
    }
}

impl Transactions {
    /// What the committing thread does. However it ends, a failure is recorded.
    fn commit_when_needed(&self, volume: &Volume, every: Duration) {
        self.fail_if_it_panics(|| self.commit_until_told(volume, every));
        self.record_failure(volume);
        if let Some(journal) = self.journal() {
            journal.stop();
        }
    }

    /// Commits when somebody wants it, and `every` so often when something has changed, until it is told to stop or
    /// something fails.
    fn commit_until_told(&self, volume: &Volume, every: Duration) {
        let mut wait = every;
        loop {
            let is_called = || self.is_wanted() || self.is_stopped() || self.has_ended();
            let called = self.called.wait_timeout(wait, is_called);
            if self.has_ended() {
                break;
            }
            let stopped = self.is_stopped();
            let all_stored = called || self.store_late_times(volume);
            // What had no room goes into the next transaction, at once.
            wait = if all_stored { every } else { Duration::ZERO };
            if !called && all_stored && !self.has_changes() {
                continue;
            }
            let then = if stopped { Then::StayShut } else { Then::Open };
            if let Err(error) = self.commit_then(volume, then) {
                self.fail_because(&error);
            }
            if stopped {
                break;
            }
        }
    }

    /// Nobody waits for a thread that has panicked: it has left a transaction half done, and the changes end.
    fn fail_if_it_panics(&self, work: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            self.fail("a thread that writes the log has panicked");
        }
    }

    /// Times that are kept in memory only reach the disk with what the clock brings there. Whether there was room for
    /// all of them; what keeps one from being stored is told to who changes its inode next.
    fn store_late_times(&self, volume: &Volume) -> bool {
        volume.writer().and_then(|writer| writer.late_times.store_what_fits()).unwrap_or(true)
    }

    fn checkpoint_when_needed(&self, volume: &Volume) {
        self.fail_if_it_panics(|| {
            if let Some(journal) = self.journal()
                && let Err(error) = journal.checkpoint_when_needed(volume, || self.has_ended())
            {
                self.fail_because(&error);
            }
        });
    }

    /// Everything was committed and both threads have ended: brings it home and says that all is well.
    fn leave_clean(&self, volume: &Volume, found_clean: bool) -> Result<()> {
        if let Some(journal) = self.journal() {
            journal.empty(volume, Tid(self.running().0 + 1))?;
        }
        let without_orphans = volume.writer()?.orphans.file_is_empty();
        superblock::mark_clean(&**volume.device(), without_orphans, found_clean)
    }

    /// Tells the disk, once and as well as it can be told, that something failed.
    fn record_failure(&self, volume: &Volume) {
        if let Some(Ended::Failed { record, .. }) = self.ended()
            && !self.recorded.swap(true, Ordering::SeqCst)
        {
            // The device has failed already, most likely; the first cause is the one to tell.
            let _ = self.journal().map_or(Ok(()), |journal| journal.record_failure(volume));
            let _ = superblock::mark_failed(&**volume.device_below(), record);
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Who wanted to know has closed it.
        let _ = self.close();
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

/// The volume of a service takes changes; that was seen when it was started.
fn transactions(volume: &Volume) -> &Transactions {
    match volume.writer() {
        Ok(writer) => &writer.transactions,
        Err(_) => unreachable!("a service is started for a volume that takes changes"),
    }
}
