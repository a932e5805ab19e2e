//! What the server does about the kernel's write cache: it keeps it small where space is short, and lets `write(2)` fail
//! where what was cached before found no room.
//!
//! Before the kernel caches a write it needs the file's mode. If it does not have it, because it was told that the
//! attributes are no longer so, it asks on behalf of the open file, and what that is answered with is what `write(2)`
//! fails with. While attributes last longer than files stay open, the kernel asks on behalf of an open file for nothing
//! else, so no `read` or `stat` meets the answer.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use undercroft_vfs::{FileType, InodeFlags};

use super::notify::Notifier;
use crate::dirty_limit::DirtyLimit;
use crate::failed_writes::FailedWrites;
use crate::nodes::NodeId;
use crate::server::Server;

/// Attributes that do not last so long may run out while a file is open, and then the kernel also asks before it reads.
pub(super) const LASTING: Duration = Duration::from_secs(60 * 60);

/// Of one mount.
pub(super) struct WriteCache {
    server: Arc<Server>,
    notifier: Arc<Notifier>,
    limit: Arc<DirtyLimit>,
    failed: FailedWrites,
    /// Whether what the kernel asks on behalf of an open file comes before a write.
    asks: bool,
}

impl WriteCache {
    pub(super) fn new(
        server: Arc<Server>,
        notifier: Arc<Notifier>,
        limit: Arc<DirtyLimit>,
        asks: bool,
    ) -> Self {
        Self { server, notifier, limit, failed: FailedWrites::default(), asks }
    }

    fn free_bytes(&self) -> Option<u64> {
        let found = self.server.statfs().ok()?;
        Some(found.blocks_available.saturating_mul(u64::from(found.block_bytes)))
    }

    /// Whether there is space, or it is not known that there is none.
    fn has_room(&self) -> bool {
        self.free_bytes() != Some(0)
    }

    /// Space was taken, by a write or otherwise.
    pub(super) fn note_taken(&self, bytes: usize) {
        self.limit.note_written(bytes, || self.free_bytes());
    }

    /// A cached write has failed.
    pub(super) fn note_failed(&self, id: NodeId, errno: Errno) {
        if let Some(free) = self.free_bytes() {
            self.limit.adapt(free);
        }
        if self.asks {
            self.failed.note(id, errno);
            // What is written back has no sender that holds the inode.
            self.notifier.attributes_change(id, true);
        }
    }

    /// What a write to this file fails with, before it is cached.
    pub(super) fn refuse(&self, id: NodeId) -> Option<Errno> {
        if !self.asks {
            return None;
        }
        self.failed.tell(id, || self.has_room()).or_else(|| self.is_hopeless(id).then_some(Errno::NOSPC))
    }

    /// The attributes of a file are asked for, by a request whose sender holds the inode. The kernel does not keep the
    /// answer where it has to ask before the next write.
    pub(super) fn asked(&self, id: NodeId) {
        if self.asks && (self.failed.contains(id) || self.is_hopeless(id)) {
            self.notifier.attributes_changed(id);
        }
    }

    /// Whether no byte of this file can be stored: it has no space of its own, and there is no other.
    fn is_hopeless(&self, id: NodeId) -> bool {
        self.limit.is_least() && self.is_without_space(id) && !self.has_room()
    }

    fn is_without_space(&self, id: NodeId) -> bool {
        self.server.attr(id).is_ok_and(|attr| {
            attr.kind == FileType::Regular
                && attr.sectors == 0
                && !attr.flags.contains(InodeFlags::INLINE_DATA)
        })
    }

    /// A file is opened for writing, by a request whose sender holds the inode.
    pub(super) fn opened(&self, id: NodeId) {
        self.failed.reopen(id, || self.has_room());
        if self.asks && self.limit.is_least() && self.is_without_space(id) {
            self.notifier.attributes_changed(id);
        }
    }

    /// A file is made and opened. Tells whether its attributes must not last, so that the kernel asks before the first
    /// write. If the file can be read from, it would ask before that, too: then it is told to forget the attributes, which
    /// the first write may be quicker than.
    pub(super) fn created(&self, id: NodeId, for_writing_alone: bool) -> bool {
        if !self.asks || !self.limit.is_least() || self.has_room() {
            return false;
        }
        if !for_writing_alone {
            self.notifier.attributes_change(id, true);
        }
        for_writing_alone
    }

    /// What was written to the file is gone, or the kernel has forgotten it.
    pub(super) fn forget(&self, id: NodeId) {
        self.failed.forget(id);
    }
}
