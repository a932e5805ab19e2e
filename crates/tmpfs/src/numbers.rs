//! Inode numbers: which are given out, and which node has which.
//!
//! A number is never used twice. Each group of threads takes a run of numbers at a time, so that new inodes need no
//! counter that everybody writes to, and the inodes that one thread makes fall into one shard of the table.
//!
//! The table owns every inode that has a name (the directories own nothing), and knows those that lost their last
//! name while somebody was using them, so that they are found by number, as file handles need it.
//!
//! Locks: one shard (`numbers`) at a time; nothing is locked and no node dropped while it is held.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use undercroft_sync::{Mutex, order};
use undercroft_vfs::{Ino, Node};

use crate::budget::STRIPES;

/// Numbers that a group of threads takes at once.
const RUN: u64 = 1024;

const SHARDS: u64 = 64;

pub(crate) struct Numbers {
    /// Where the next run begins.
    next_run: AtomicU64,
    shards: Box<[Shard]>,
}

#[repr(align(128))]
struct Shard(Mutex<HashMap<u64, Known, foldhash::fast::RandomState>>);

enum Known {
    /// It has a name.
    Named(Arc<Node>),
    /// It has none, and lives while somebody uses it.
    Unnamed(Weak<Node>),
}

/// A group of threads' run of numbers; alone on its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Run {
    /// At a multiple of [`RUN`] there is none left.
    next: AtomicU64,
}

impl Numbers {
    pub(crate) fn new() -> Self {
        let shard = |_| Shard(Mutex::new(&order::NUMBERS, HashMap::default()));
        // The numbers below are for the root.
        Self { next_run: AtomicU64::new(RUN), shards: (0..SHARDS).map(shard).collect() }
    }

    /// A number that no inode has had.
    pub(crate) fn fresh(&self, run: &Run) -> Ino {
        let mut next = run.next.load(Ordering::Relaxed);
        loop {
            let number =
                if next.is_multiple_of(RUN) { self.next_run.fetch_add(RUN, Ordering::Relaxed) } else { next };
            match run.next.compare_exchange(next, number + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ino(number),
                // Another thread of the group was quicker; a run that was taken for nothing is no loss.
                Err(other) => next = other,
            }
        }
    }

    /// The live inode with this number.
    pub(crate) fn find(&self, ino: Ino) -> Option<Arc<Node>> {
        match self.shard(ino).lock().get(&ino.0)? {
            Known::Named(node) => Some(Arc::clone(node)),
            Known::Unnamed(node) => node.upgrade(),
        }
    }

    /// The inode has a name from now on.
    pub(crate) fn name(&self, node: &Arc<Node>) {
        let before = self.shard(node.ino()).lock().insert(node.ino().0, Known::Named(Arc::clone(node)));
        drop(before);
    }

    /// The inode has no name, and is in use: it stays known until it is [forgotten](Self::forget).
    pub(crate) fn know_unnamed(&self, node: &Arc<Node>) {
        let known = Known::Unnamed(Arc::downgrade(node));
        let before = self.shard(node.ino()).lock().insert(node.ino().0, known);
        drop(before);
    }

    /// The inode has lost its last name, or is gone.
    pub(crate) fn forget(&self, ino: Ino) {
        let mut shard = self.shard(ino).lock();
        let forgotten = shard.remove(&ino.0);
        // Millions of files that are gone must not leave their table behind.
        if shard.capacity() > 8 * (shard.len() + 32) {
            shard.shrink_to_fit();
        }
        drop(shard);
        drop(forgotten);
    }

    /// Lets go of every inode: the filesystem is gone.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let inodes = std::mem::take(&mut *shard.0.lock());
            drop(inodes);
        }
    }

    fn shard(&self, ino: Ino) -> &Mutex<HashMap<u64, Known, foldhash::fast::RandomState>> {
        &self.shards[(ino.0 / RUN % SHARDS) as usize].0
    }
}

/// One run for each group of threads.
pub(crate) fn runs() -> [Run; STRIPES] {
    Default::default()
}
