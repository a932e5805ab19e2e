//! Numbers of inodes that are being made, and the threads that wait for them.
//!
//! A filesystem makes an inode in several steps, and another thread may read it between two of them: the directory
//! lists the new name already, or the thread has the number of a deleted inode from before. What it reads may be a
//! part of the inode only, and the inode cache must never have two nodes of one number. So the filesystem announces
//! the number before the first step ([`Announce::number`]). It is withdrawn when the cache has the node, when no node
//! comes of the inode (a whiteout), or when the inode was not made after all.
//!
//! A thread that has read an inode looks whether its number is announced. If it is, the thread drops what it has read,
//! waits, and asks the cache again. Looking after the read is enough: a read that has seen a step of the maker's comes
//! after the announcement, and the maker puts the node into the cache before it withdraws the number, for which it
//! waits for readers (see `inode_cache.rs`).
//!
//! A maker waits for no lock of a rank below `journal` between announcing and withdrawing, other than those of the inode
//! cache, which no thread holds while it waits here. So no thread waits here for one that waits for it.
//!
//! Locks: class `inode_making`, held for a look at a short list.

use std::cell::Cell;
use std::fmt;

use undercroft_sync::{Mutex, WaitQueue, order};

use crate::Ino;
use crate::hash::InoHashBuilder;

/// Parts that numbers are spread over, so that threads that make inodes rarely meet.
const SHARDS: usize = 64;

/// The announced numbers.
pub(crate) struct Announced {
    shards: Box<[Shard]>,
    hash: InoHashBuilder,
}

struct Shard {
    /// At most one for each thread that makes an inode.
    numbers: Mutex<Vec<Ino>>,
    withdrawn: WaitQueue,
}

impl Announced {
    pub(crate) fn new() -> Self {
        let shard =
            || Shard { numbers: Mutex::new(&order::INODE_MAKING, Vec::new()), withdrawn: WaitQueue::new() };
        Self { shards: (0..SHARDS).map(|_| shard()).collect(), hash: InoHashBuilder::random() }
    }

    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.shard(ino).numbers.lock().contains(&ino)
    }

    /// Waits until the number is withdrawn.
    pub(crate) fn wait(&self, ino: Ino) {
        self.shard(ino).withdrawn.wait(|| !self.contains(ino));
    }

    fn shard(&self, ino: Ino) -> &Shard {
        &self.shards[self.hash.spread(ino, SHARDS)]
    }

    fn add(&self, ino: Ino) {
        self.shard(ino).numbers.lock().push(ino);
    }

    fn remove(&self, ino: Ino) {
        let shard = self.shard(ino);
        let mut numbers = shard.numbers.lock();
        if let Some(at) = numbers.iter().position(|&other| other == ino) {
            numbers.swap_remove(at);
        }
        drop(numbers);
        shard.withdrawn.wake_all();
    }
}

/// An inode that a thread makes. Its number is withdrawn when this is dropped.
pub(crate) struct BeingMade<'a> {
    announced: &'a Announced,
    number: Cell<Option<Ino>>,
}

impl<'a> BeingMade<'a> {
    /// One without a number.
    pub(crate) fn new(announced: &'a Announced) -> Self {
        Self { announced, number: Cell::new(None) }
    }

    /// Where the filesystem announces the number.
    pub(crate) fn announce(&self) -> Announce<'_> {
        Announce(Some(self))
    }

    /// Announces a number in place of the one before.
    fn set(&self, number: Option<Ino>) {
        if let Some(new) = number {
            self.announced.add(new);
        }
        if let Some(old) = self.number.replace(number) {
            self.announced.remove(old);
        }
    }
}

impl Drop for BeingMade<'_> {
    fn drop(&mut self) {
        self.set(None);
    }
}

/// Where a filesystem announces the number of a new inode. By default nothing is told: for callers without an inode cache.
#[derive(Clone, Copy, Default)]
pub struct Announce<'a>(Option<&'a BeingMade<'a>>);

impl Announce<'_> {
    /// Says which number the inode gets. A filesystem that does not keep nodes calls this when it has chosen the number,
    /// before anything of the inode or its name can be read; if it then chooses another one, again. From now on no other
    /// thread gets a handle of the number by [`read_inode`](crate::FileSystem::read_inode) until the call that makes the
    /// inode has returned it.
    pub fn number(&self, ino: Ino) {
        if let Some(being_made) = self.0 {
            being_made.set(Some(ino));
        }
    }
}

impl fmt::Debug for Announce<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Announce").field(&self.0.and_then(|being_made| being_made.number.get())).finish()
    }
}
