//! What a writable filesystem does alike in every format: syncing, closing, and saying why it stopped.

use undercroft_block::Device;
use undercroft_journal::{Client, Service, Transactions};
use undercroft_vfs::{Error, Result};

use crate::in_use::LazyTimes;

/// How changes have gone to the disk since the filesystem was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteStats {
    /// Parts of transactions that operations have joined.
    pub handles_started: u64,
    /// Transactions that are durable.
    pub commits: u64,
    /// Blocks that were written to the log.
    pub blocks_logged: u64,
    /// Checkpoints that made room in the log.
    pub checkpoints: u64,
    /// Unlinked inodes that could not be deleted, for want of space or for damage, and wait for the next opening.
    pub inodes_left: u64,
}

/// A volume that may have been opened for changes.
pub trait Changeable: Client {
    /// Its transactions and its inodes with lazy times.
    ///
    /// # Errors
    /// [`ReadOnly`](Error::ReadOnly) for a filesystem that was opened for reading.
    fn changes(&self) -> Result<(&Transactions<Self>, &LazyTimes)>;

    /// Makes durable what was written to the device before. A failure ends the changes, because what was lost is unknown.
    ///
    /// # Errors
    /// I/O failure.
    fn flush_device(&self, device: &Device) -> Result<()> {
        let flushed = device.flush().map_err(Error::from);
        if let (Err(error), Ok((transactions, _))) = (&flushed, self.changes()) {
            transactions.abort_because(error);
        }
        flushed
    }

    /// Makes every change durable that was made before.
    ///
    /// # Errors
    /// Why the filesystem takes no changes any more.
    fn sync_all(&self) -> Result<()> {
        let Ok((transactions, lazy_times)) = self.changes() else { return Ok(()) };
        lazy_times.store_all()?;
        transactions.commit_everything(self)
    }

    /// Ends the changes: those made before are durable afterwards, and later ones are refused.
    ///
    /// # Errors
    /// The first failure since the filesystem was opened.
    fn close(&self, service: &Service<Self>) -> Result<()> {
        if let Ok((_, lazy_times)) = self.changes() {
            // A failure here has ended the changes, and the service returns its cause.
            let _ = lazy_times.store_all();
        }
        service.close()
    }

    /// Calls `listener` when a failure ends the changes.
    fn when_failed(&self, listener: Box<dyn Fn(&Error) + Send + Sync>) {
        if let Ok((transactions, _)) = self.changes() {
            transactions.when_aborted(listener);
        }
    }

    /// Why the filesystem takes no changes any more, if a failure ended them.
    fn failure(&self) -> Option<Error> {
        self.changes().ok()?.0.first_failure().err()
    }

    /// Ends the changes at once, as a crash does; with `flush_log` those made before are made durable first.
    ///
    /// # Errors
    /// [`Unsupported`](Error::Unsupported) for a filesystem that was opened for reading; as for
    /// [`sync_all`](Self::sync_all), and the changes have ended all the same.
    fn shut_down(&self, flush_log: bool) -> Result<()> {
        let Ok((transactions, _)) = self.changes() else {
            return Err(Error::Unsupported("shutting down a read-only filesystem".into()));
        };
        let flushed = if flush_log { self.sync_all() } else { Ok(()) };
        transactions.shut_down();
        flushed
    }

    /// How changes have gone to the disk, as far as transactions know; all zero for a filesystem that was opened for
    /// reading.
    fn write_stats(&self) -> WriteStats {
        let Ok((transactions, _)) = self.changes() else { return WriteStats::default() };
        let stats = transactions.stats();
        WriteStats {
            handles_started: stats.handles_started,
            commits: stats.commits,
            blocks_logged: stats.items_logged,
            checkpoints: stats.checkpoints,
            inodes_left: 0,
        }
    }
}
