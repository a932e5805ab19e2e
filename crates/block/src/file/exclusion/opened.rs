//! What this process has open for writing, so that no device has two writers in it.
//!
//! `flock` and the kernel's claims find out most of it; the table also does where both are left out, where two names
//! lead to one device, and where one of the two is a loop device of the other. It can tell a user that it is this
//! program that is in the way.
//!
//! Locks: class `DEVICE`, held for a look at a short list.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::LazyLock;

use undercroft_sync::{Mutex, order};

/// Which file or device it is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// A regular file.
    File { device: u64, inode: u64 },
    /// A block device.
    Block { number: u64 },
}

impl Identity {
    pub(super) fn of(metadata: &Metadata) -> Self {
        if metadata.file_type().is_block_device() {
            Self::Block { number: metadata.rdev() }
        } else {
            Self::File { device: metadata.dev(), inode: metadata.ino() }
        }
    }
}

static OPEN: LazyLock<Mutex<Vec<Identity>>> = LazyLock::new(|| Mutex::new(&order::DEVICE, Vec::new()));

/// Whether this process has it open for writing.
pub(super) fn is_open(identity: Identity) -> bool {
    OPEN.lock().contains(&identity)
}

/// One opening for writing: the device, and what it stores its bytes in.
#[derive(Debug)]
pub(super) struct Entry(Vec<Identity>);

impl Entry {
    /// Enters an opening; `None` if one of these is open already.
    pub(super) fn new(identities: Vec<Identity>) -> Option<Self> {
        let mut open = OPEN.lock();
        if identities.iter().any(|identity| open.contains(identity)) {
            return None;
        }
        open.extend(&identities);
        Some(Self(identities))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        OPEN.lock().retain(|identity| !self.0.contains(identity));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_and_what_is_below_it_are_entered_once() {
        let file = Identity::File { device: u64::MAX, inode: 1 };
        let block = Identity::Block { number: u64::MAX };
        let both = Entry::new(vec![block, file]).unwrap();
        assert!(Entry::new(vec![file]).is_none() && Entry::new(vec![block]).is_none());
        drop(both);
        let _file = Entry::new(vec![file]).unwrap();
        assert!(Entry::new(vec![block, file]).is_none());
        Entry::new(vec![block]).unwrap();
    }
}
