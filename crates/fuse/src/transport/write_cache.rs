//! What the server does about the kernel's write cache: it keeps it small where space is short, and lets `write(2)` fail
//! where what was cached before found no room.
//!
//! Before the kernel caches a write it needs the file's mode. If it does not have it, because it was told that the
//! attributes are no longer so, it asks on behalf of the open file, and what that is answered with is what `write(2)`
//! fails with. While attributes last longer than files stay open, the kernel asks on behalf of an open file for nothing
//! else, so no `read` or `stat` meets the answer, with one exception below.
//!
//! The attributes of a file that is made where there is no space do not last at all, if it is opened for writing alone:
//! any message would come later than the first write. Then the kernel also asks before it reads past the end or seeks
//! there. The opening that it asks for is told by the handle that each opening is given ([`FileAccess`]): one that only reads is never
//! refused; one that only writes always is, also when it seeks the end; one that does both is answered once, with attributes that
//! last, and meets the refusal when the kernel has been told to forget them. Where the kernel has
//! no attributes of the file that last, as under load, a read of such an opening meets the refusal, too.

use std::sync::Arc;
use std::time::Duration;

use papaya::HashSet;
use rustix::io::Errno;
use undercroft_vfs::{Error, FileType, InodeFlags};

use super::notify::Notifier;
use crate::dirty_limit::DirtyLimit;
use crate::failed_writes::FailedWrites;
use crate::nodes::NodeId;
use crate::server::Server;

/// Attributes that do not last so long may run out while a file is open, and then the kernel also asks before it reads.
pub(super) const LASTING: Duration = Duration::from_secs(60 * 60);

/// What a file was opened for, which its handle keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileAccess {
    Read,
    Write,
    Both,
}

impl FileAccess {
    /// From the flags of `open(2)`.
    pub(super) fn of_flags(flags: u32) -> Self {
        match flags & 0o3 {
            0o1 => Self::Write,
            0o2 => Self::Both,
            // Three is for neither.
            _ => Self::Read,
        }
    }

    pub(super) fn handle(self) -> u64 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Both => 2,
        }
    }

    pub(super) fn of_handle(handle: u64) -> Self {
        match handle {
            1 => Self::Write,
            2 => Self::Both,
            _ => Self::Read,
        }
    }
}

/// Of one mount.
pub(super) struct WriteCache {
    server: Arc<Server>,
    notifier: Arc<Notifier>,
    limit: Arc<DirtyLimit>,
    failed: FailedWrites,
    /// Files whose attributes do not last.
    fleeting: HashSet<u64>,
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
        Self { server, notifier, limit, failed: FailedWrites::default(), fleeting: HashSet::new(), asks }
    }

    fn free_bytes(&self) -> Option<u64> {
        let found = self.server.statfs().ok()?;
        Some(found.blocks_available.saturating_mul(u64::from(found.block_bytes)))
    }

    /// Whether there is space, or it is not known that there is none.
    fn has_room(&self) -> bool {
        self.free_bytes() != Some(0)
    }

    /// The same, after waiting for the space of files that were removed before, as a request waits that finds none. Occupies
    /// an event loop meanwhile.
    fn gets_room(&self) -> bool {
        self.server.with_space(|| if self.has_room() { Ok(()) } else { Err(Error::NoSpace) }).is_ok()
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

    /// The attributes of a file are asked for by a request whose sender holds the inode, on behalf of a file that he has
    /// open or not. Answers with what the write fails with that the kernel is about to cache. Otherwise the kernel does not
    /// keep the answer where it has to ask before the next write.
    pub(super) fn refuse(&self, id: NodeId, opened: Option<FileAccess>) -> Option<Errno> {
        if !self.asks {
            return None;
        }
        match opened {
            Some(FileAccess::Both) if self.is_fleeting(id) => {
                self.fleeting.pin().remove(&id.0);
                // Told with the next gathering: a message that is quicker than the answer would void it.
                self.notifier.attributes_change(id, false);
                None
            }
            Some(FileAccess::Write | FileAccess::Both) => {
                let refused = self.failed.tell(id, || self.gets_room());
                refused.or_else(|| (self.is_hopeless(id) && !self.gets_room()).then_some(Errno::NOSPC))
            }
            Some(FileAccess::Read) | None => {
                self.asked(id);
                None
            }
        }
    }

    /// As [`refuse`](Self::refuse), for what is not asked before a write.
    pub(super) fn asked(&self, id: NodeId) {
        if self.asks && (self.failed.contains(id) || self.is_hopeless(id)) {
            self.notifier.attributes_changed(id);
        }
    }

    /// The kernel is told attributes that it keeps.
    pub(super) fn told(&self, id: NodeId) {
        if self.asks && (self.failed.contains(id) || self.is_hopeless(id)) {
            self.notifier.attributes_change(id, false);
        }
    }

    fn is_fleeting(&self, id: NodeId) -> bool {
        !self.fleeting.is_empty() && self.fleeting.pin().contains(&id.0)
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
        self.failed.reopen(id, || self.gets_room());
        if self.asks && self.limit.is_least() && self.is_without_space(id) {
            self.notifier.attributes_changed(id);
        }
    }

    /// A file is made and opened. Tells whether its attributes must not last, so that the kernel asks before the first
    /// write. If the file can be read from, that would ask, too: then the kernel is told to forget the attributes, which
    /// the first write may be quicker than.
    pub(super) fn created(&self, id: NodeId, access: FileAccess) -> bool {
        if !self.asks || access == FileAccess::Read || !self.limit.is_least() || self.has_room() {
            return false;
        }
        if access == FileAccess::Both {
            self.notifier.attributes_change(id, true);
            return false;
        }
        self.fleeting.pin().insert(id.0);
        true
    }

    /// What was written to the file is gone.
    pub(super) fn cut_off(&self, id: NodeId) {
        self.failed.forget(id);
    }

    /// The kernel has forgotten the file.
    pub(super) fn forget(&self, id: NodeId) {
        self.failed.forget(id);
        if self.is_fleeting(id) {
            self.fleeting.pin().remove(&id.0);
        }
    }
}
