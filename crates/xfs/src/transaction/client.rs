//! The filesystem's own part in commits and checkpoints.

use undercroft_journal::{Cause, Client, Frozen, WriteBack};
use undercroft_vfs::Result;

use super::Block;
use crate::writer::{Mounted, Transactions};

impl Client for Mounted {
    type Item = Block;

    /// # Panics
    /// For a filesystem that takes no changes; it has no transactions.
    fn transactions(&self) -> &Transactions {
        match self.writer() {
            Ok(writer) => &writer.transactions,
            Err(_) => unreachable!("only a filesystem that takes changes is a client of the journal"),
        }
    }

    fn flush(&self) -> Result<()> {
        Self::flush(self)
    }

    fn cached(&self, home: u64) -> Option<Block> {
        self.buffers().cached(home)
    }

    fn evict(&self, home: u64) {
        self.buffers().forget(home);
    }

    fn prepare_commit(&self, handle: undercroft_journal::Handle<'_, Self>) -> Result<()> {
        drop(handle);
        Ok(())
    }

    fn prepare_timed_commit(&self) -> bool {
        self.writer().and_then(|writer| writer.late_times.store_what_fits()).unwrap_or(true)
    }

    fn write_back(&self, batch: &[WriteBack<'_, Block>]) -> Result<()> {
        let _ = batch;
        todo!("transactions")
    }

    fn write_unlogged(&self, items: &[Frozen<Block>]) -> Result<()> {
        let _ = items;
        todo!("transactions: for unit tests, which work without a log")
    }

    fn mark_clean(&self) -> Result<()> {
        todo!("transactions")
    }

    fn record_abort(&self, cause: &Cause) {
        let _ = cause;
    }
}
