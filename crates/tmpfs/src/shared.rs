//! What all inodes of one filesystem have in common.
//!
//! Inodes reach it through the [`Home`] of the group of threads that made them, of which there are a few, so that
//! making and dropping inodes does not count references on one cache line.

use std::sync::{Arc, OnceLock, Weak};

use undercroft_vfs::{Ino, Node};

use crate::budget::{Budget, STRIPES, UNLIMITED, thread_group};
use crate::numbers::{Numbers, Run, runs};
use crate::options::{PAGE_BYTES, TmpfsOptions};

/// The root directory's number.
pub(crate) const ROOT: Ino = Ino(1);

pub(crate) struct Shared {
    pages: Budget,
    inodes: Budget,
    numbers: Numbers,
    runs: [Run; STRIPES],
    homes: OnceLock<[Weak<Home>; STRIPES]>,
}

/// A group of threads' way to what is shared; padded to its own cache lines.
#[repr(align(128))]
pub(crate) struct Home {
    shared: Arc<Shared>,
}

impl Shared {
    /// The homes own what is shared, and the filesystem owns the homes.
    pub(crate) fn homes(options: &TmpfsOptions) -> [Arc<Home>; STRIPES] {
        let pages = options.size_bytes.map_or(UNLIMITED, |bytes| bytes.div_ceil(PAGE_BYTES));
        let shared = Arc::new(Self {
            pages: Budget::new(pages),
            inodes: Budget::new(options.inodes.unwrap_or(UNLIMITED)),
            numbers: Numbers::new(),
            runs: runs(),
            homes: OnceLock::new(),
        });
        let homes: [Arc<Home>; STRIPES] =
            std::array::from_fn(|_| Arc::new(Home { shared: Arc::clone(&shared) }));
        let _ = shared.homes.set(std::array::from_fn(|at| Arc::downgrade(&homes[at])));
        homes
    }
}

impl Home {
    pub(crate) fn pages(&self) -> &Budget {
        &self.shared.pages
    }

    pub(crate) fn inodes(&self) -> &Budget {
        &self.shared.inodes
    }

    /// The home of the calling thread.
    pub(crate) fn here(self: &Arc<Self>) -> Arc<Self> {
        let homes = self.shared.homes.get();
        homes.and_then(|homes| homes[thread_group()].upgrade()).unwrap_or_else(|| Arc::clone(self))
    }

    /// A number that no inode has had.
    pub(crate) fn fresh_number(&self) -> Ino {
        self.shared.numbers.fresh(&self.shared.runs[thread_group()])
    }

    pub(crate) fn find(&self, ino: Ino) -> Option<Arc<Node>> {
        self.shared.numbers.find(ino)
    }

    /// The inode has a name from now on.
    pub(crate) fn name(&self, node: &Arc<Node>) {
        self.shared.numbers.name(node);
    }

    /// The inode has no name, and is in use.
    pub(crate) fn know_unnamed(&self, node: &Arc<Node>) {
        self.shared.numbers.know_unnamed(node);
    }

    /// The inode has lost its last name, or is gone.
    pub(crate) fn forget(&self, ino: Ino) {
        self.shared.numbers.forget(ino);
    }

    /// Drops every inode: the filesystem is gone.
    pub(crate) fn clear(&self) {
        self.shared.numbers.clear();
    }
}
