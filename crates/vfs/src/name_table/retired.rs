//! Entries that were taken out of a table, on their way back to the memory they came from.
//!
//! An entry is freed when every possible reader is done, which any thread may detect. But memory that one thread
//! allocates and another frees is slower for both. So each thread collects what it has taken out and hands it to the
//! epochs in batches; the thread that finds out that a batch may be freed sends it back to its owner, which frees it
//! when its next batch is full.
//!
//! A thread that takes nothing out any more keeps a few batches until it ends; then any other thread frees them.

use std::cell::RefCell;
use std::sync::mpsc::{Receiver, Sender, channel};

use crossbeam_epoch::{Guard, pin};

use super::leaf::{Batch, Gone};

/// Entries of a batch: enough that the cache lines of the epochs seldom move between processors, and no more than fit a
/// processor's own cache together with their inodes.
pub(super) const BATCH: usize = 128;

/// What may be freed.
type Free = Vec<Box<dyn Send>>;

struct Retired {
    batch: Batch,
    home: Sender<Free>,
    returned: Receiver<Free>,
}

impl Retired {
    fn new() -> Self {
        let (home, returned) = channel();
        Self { batch: Batch::default(), home, returned }
    }

    /// The batch, if it is full now, and what has come back by then.
    fn add(&mut self, gone: Gone) -> Option<(Batch, Sender<Free>, Vec<Free>)> {
        self.batch.push(gone);
        (self.batch.len() >= BATCH)
            .then(|| (std::mem::take(&mut self.batch), self.home.clone(), self.returned.try_iter().collect()))
    }
}

impl Drop for Retired {
    fn drop(&mut self) {
        std::mem::take(&mut self.batch).hand_over(&pin(), drop);
    }
}

/// Frees an entry when no thread can be reading it any more.
pub(super) fn retire(gone: Gone, guard: &Guard) {
    thread_local! {
        static RETIRED: RefCell<Retired> = RefCell::new(Retired::new());
    }
    let mut gone = Some(gone);
    let full = RETIRED.try_with(|retired| gone.take().and_then(|gone| retired.borrow_mut().add(gone)));
    if let Ok(Some((batch, home, returned))) = full {
        // Should the thread have ended, what is sent is freed where it is.
        batch.hand_over(guard, move |entries| drop(home.send(entries)));
        // Freed here, where a value that is dropped may use tables itself.
        drop(returned);
    }
    // The thread is about to end.
    if let Some(gone) = gone {
        let mut batch = Batch::default();
        batch.push(gone);
        batch.hand_over(guard, drop);
    }
}
