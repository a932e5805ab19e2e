//! Inode numbers: which are given out, and which node has which.
//!
//! A number is never used twice. Each group of threads takes a run of numbers at a time, so that new inodes need no
//! counter that all threads write to, and the inodes that one thread makes fall into one shard of the table.
//!
//! The table owns every inode that has a name (the directories own nothing), and knows those that lost their last name
//! while in use, so that they are found by number, as file handles need it. It is kept in pages of neighbouring
//! numbers, because those come one after the other: a table of single numbers would have to be rehashed each time it
//! doubles, and a thread that came at that moment would wait for it. A page of 1 KiB goes with the last of its inodes.
//!
//! Locks: one shard (`numbers`) at a time; nothing is locked and no node dropped while it is held.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;
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
struct Shard(Mutex<Pages>);

/// Numbers in one page.
const PAGE: u64 = 64;

/// The pages of one shard, none of them empty.
#[derive(Default)]
struct Pages {
    pages: HashMap<u64, Page, foldhash::fast::RandomState>,
    /// An empty one: a file that comes and goes again and again needs no new memory.
    spare: Option<Page>,
}

struct Page {
    known: Box<[Known; PAGE as usize]>,
    /// How many are not `Unused`.
    count: u32,
}

enum Known {
    Unused,
    /// It has a name.
    Named(Arc<Node>),
    /// It has none, and lives while it is used.
    Unnamed(Weak<Node>),
}

/// A group of threads' run of numbers; padded to its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Run {
    /// At a multiple of [`RUN`] there is none left.
    next: AtomicU64,
}

impl Numbers {
    pub(crate) fn new() -> Self {
        let shard = |_| Shard(Mutex::new(&order::NUMBERS, Pages::default()));
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
        match self.shard(ino).lock().get(ino) {
            Known::Unused => None,
            Known::Named(node) => Some(Arc::clone(node)),
            Known::Unnamed(node) => node.upgrade(),
        }
    }

    /// The inode has a name from now on.
    pub(crate) fn name(&self, node: &Arc<Node>) {
        let before = self.shard(node.ino()).lock().put(node.ino(), Known::Named(Arc::clone(node)));
        drop(before);
    }

    /// The inode has no name, and is in use: it stays known until it is [forgotten](Self::forget).
    pub(crate) fn know_unnamed(&self, node: &Arc<Node>) {
        let known = Known::Unnamed(Arc::downgrade(node));
        let before = self.shard(node.ino()).lock().put(node.ino(), known);
        drop(before);
    }

    /// The inode has lost its last name, or is gone.
    pub(crate) fn forget(&self, ino: Ino) {
        let forgotten = self.shard(ino).lock().take(ino);
        drop(forgotten);
    }

    /// Drops every inode: the filesystem is gone.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let pages = mem::take(&mut *shard.0.lock());
            drop(pages);
        }
    }

    fn shard(&self, ino: Ino) -> &Mutex<Pages> {
        &self.shards[(ino.0 / RUN % SHARDS) as usize].0
    }
}

impl Pages {
    fn get(&self, ino: Ino) -> &Known {
        self.pages.get(&(ino.0 / PAGE)).map_or(&Known::Unused, |page| &page.known[(ino.0 % PAGE) as usize])
    }

    /// Gives back what was known, for the caller to drop without the lock.
    fn put(&mut self, ino: Ino, known: Known) -> Known {
        let fresh = || self.spare.take().unwrap_or_default();
        let page = self.pages.entry(ino.0 / PAGE).or_insert_with(fresh);
        let before = mem::replace(&mut page.known[(ino.0 % PAGE) as usize], known);
        page.count += u32::from(matches!(before, Known::Unused));
        before
    }

    /// Forgets a number, and gives back what was known, for the caller to drop without the lock.
    fn take(&mut self, ino: Ino) -> Known {
        let Entry::Occupied(mut page) = self.pages.entry(ino.0 / PAGE) else { return Known::Unused };
        let known = mem::replace(&mut page.get_mut().known[(ino.0 % PAGE) as usize], Known::Unused);
        page.get_mut().count -= u32::from(!matches!(known, Known::Unused));
        if page.get().count == 0 {
            self.spare = Some(page.remove());
            // Millions of files that are gone must not leave their table behind.
            if self.pages.capacity() > 8 * (self.pages.len() + 32) {
                self.pages.shrink_to_fit();
            }
        }
        known
    }
}

impl Default for Page {
    fn default() -> Self {
        Self { known: Box::new([const { Known::Unused }; PAGE as usize]), count: 0 }
    }
}

/// One run for each group of threads.
pub(crate) fn runs() -> [Run; STRIPES] {
    Default::default()
}

#[cfg(test)]
mod tests {
    use undercroft_vfs::FileSystem;

    use super::*;

    #[test]
    fn pages_go_with_their_last_inode() {
        let fs = crate::Tmpfs::new(&crate::TmpfsOptions::default()).unwrap();
        let node = fs.kept_node(fs.root()).unwrap();
        let unnamed = || Known::Unnamed(Arc::downgrade(&node));
        let mut pages = Pages::default();
        let numbers = (1000..2000).map(Ino);
        for ino in numbers.clone() {
            assert!(matches!(pages.put(ino, unnamed()), Known::Unused));
            // Known in another way, and counted once.
            assert!(matches!(pages.put(ino, unnamed()), Known::Unnamed(_)));
        }
        assert_eq!(pages.pages.len() as u64, 2000_u64.div_ceil(PAGE) - 1000 / PAGE);
        for ino in numbers {
            assert!(matches!(pages.get(ino), Known::Unnamed(_)));
            assert!(matches!(pages.take(ino), Known::Unnamed(_)));
            assert!(matches!(pages.get(ino), Known::Unused));
            assert!(matches!(pages.take(ino), Known::Unused));
        }
        assert!(pages.pages.is_empty());
        assert!(
            pages.spare.is_some_and(|page| page.known.iter().all(|known| matches!(known, Known::Unused)))
        );
    }
}
