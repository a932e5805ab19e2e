//! The list of orphans: from the superblock to the newest, and from each to the next in its deletion time.
//!
//! In memory it is linked both ways, so that one in the middle is taken out by changing the one before it. The blocks
//! in which the members' inodes lie are held, so that links are changed without I/O.

use std::collections::HashMap;

use undercroft_sync::{Mutex, order};

use crate::inode::Location;
use crate::transaction::Block;

/// The list.
#[derive(Debug)]
pub(super) struct OrphanList(pub(super) Mutex<Links>);

#[derive(Debug)]
pub(super) struct Links {
    /// The newest; 0 when there is none.
    pub(super) head: u32,
    /// Those that were entered since the filesystem was opened. What was there before comes after all of them.
    pub(super) members: HashMap<u32, Member>,
}

#[derive(Debug)]
pub(super) struct Member {
    /// Neighbours; 0 for none.
    pub(super) before: u32,
    pub(super) after: u32,
    pub(super) location: Location,
    pub(super) _table: Block,
}

impl OrphanList {
    pub(super) fn new(head: u32) -> Self {
        Self(Mutex::new(&order::ORPHAN, Links { head, members: HashMap::new() }))
    }

    pub(super) fn head(&self) -> u32 {
        self.0.lock().head
    }

    /// Takes and releases the lock, as a query does in the plain form.
    pub(super) fn ask(&self) {
        drop(self.0.lock());
    }
}
