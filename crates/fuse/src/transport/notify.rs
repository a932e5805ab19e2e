//! Telling the kernel that what it keeps of an inode is no longer so.
//!
//! The kernel keeps attributes for as long as it was allowed to, and takes new ones from an answer about that inode
//! only. What the server changes beyond that is announced by a message without a request
//! (`FUSE_NOTIFY_INVAL_INODE`, attributes only): the kernel then asks when a caller wants to know. Messages go over the
//! device, also where requests come over io_uring.
//!
//! **Which thread sends.** For a message the kernel takes a reference to the inode. If that turns out to be the last
//! one, the sending thread frees the inode, and waits for what is being written back of it: for answers of other
//! threads, or its own.
//! - A thread that answers a request may send ([`Notifier::attributes_changed`]) only while the request's sender holds
//!   the inode, because it has the file open or has looked it up: any request about an inode but those that write back.
//! - Everything else is noted ([`Notifier::attributes_change`]) and sent by a thread that answers no requests.
//!
//! Locks: none. The set of noted inodes is lock-free; one inode is in it once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use papaya::HashSet;
use undercroft_sync::WaitQueue;
use zerocopy::IntoBytes;

use super::abi::{INVALIDATE_INODE, InvalidateInodeOut, OutHeader};
use super::device::Device;
use crate::nodes::NodeId;

/// How long noted inodes are gathered, so that one that is written to all the time is not announced all the time.
const NOTIFY_DELAY: Duration = Duration::from_millis(200);

/// Sends messages to the kernel.
pub(super) struct Notifier {
    device: Arc<Device>,
    noted: HashSet<u64>,
    /// Something is noted that cannot wait to be gathered.
    urgent: AtomicBool,
    ended: AtomicBool,
    /// The thread that sends waits here for something to be noted,
    idle: WaitQueue,
    /// and here while it is gathered.
    gathering: WaitQueue,
}

impl Notifier {
    pub(super) fn new(device: Arc<Device>) -> Self {
        Self {
            device,
            noted: HashSet::new(),
            urgent: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            idle: WaitQueue::new(),
            gathering: WaitQueue::new(),
        }
    }

    /// The kernel forgets the attributes of an inode, before this returns. The sender of the request that is being
    /// answered must hold the inode.
    pub(super) fn attributes_changed(&self, id: NodeId) {
        self.noted.pin().remove(&id.0);
        self.send(id.0);
    }

    /// As [`attributes_changed`](Self::attributes_changed), if that was noted and not sent yet.
    pub(super) fn send_noted(&self, id: NodeId) {
        if !self.noted.is_empty() && self.noted.pin().remove(&id.0) {
            self.send(id.0);
        }
    }

    /// The kernel forgets the attributes of an inode soon; at once where it is urgent.
    pub(super) fn attributes_change(&self, id: NodeId, urgent: bool) {
        if self.noted.pin().insert(id.0) {
            self.idle.wake_all();
        }
        if urgent {
            self.urgent.store(true, Ordering::Release);
            self.gathering.wake_all();
        }
    }

    /// Sends what is noted, until [`end`](Self::end).
    pub(super) fn run(&self) {
        let ended = || self.ended.load(Ordering::Acquire);
        let urgent = || self.urgent.load(Ordering::Acquire);
        while !ended() {
            self.idle.wait(|| ended() || !self.noted.is_empty());
            self.gathering.wait_timeout(NOTIFY_DELAY, || ended() || urgent());
            self.urgent.store(false, Ordering::Release);
            let noted: Vec<u64> = self.noted.pin().iter().copied().collect();
            for id in noted {
                // Taken out first: what changes from here on is noted anew.
                self.send_noted(NodeId(id));
            }
        }
    }

    /// [`run`](Self::run) returns.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.idle.wake_all();
        self.gathering.wake_all();
    }

    fn send(&self, id: u64) {
        // Before the first byte of a file: its pages stay.
        let body = InvalidateInodeOut { ino: id, off: -1, len: 0 };
        let mut message = [0; size_of::<OutHeader>() + size_of::<InvalidateInodeOut>()];
        let header = OutHeader { len: message.len() as u32, error: INVALIDATE_INODE, unique: 0 };
        let (head, rest) = message.split_at_mut(size_of::<OutHeader>());
        head.copy_from_slice(header.as_bytes());
        rest.copy_from_slice(body.as_bytes());
        // An inode that the kernel does not know has no attributes to forget; without a mount there is none at all.
        let _ = self.device.send(&message);
    }
}

/// Ends a notifier with the scope that it is in.
pub(super) struct EndOnDrop<'a>(pub(super) &'a Notifier);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
