//! The allocation groups of a writable filesystem.

use undercroft_sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64};
use undercroft_sync::{AppendList, Mutex, order};
use undercroft_vfs::{Error, Result};

use super::group::Group;
use super::set_aside::extent_credits;
use crate::format::AgNumber;
use crate::volume::Volume;

/// More groups than this are kept in memory for no filesystem: mkfs.xfs makes them of 16 MiB at least, and larger in
/// large filesystems.
pub(crate) const GROUPS_MAX: u32 = 1 << 20;

/// The allocation groups of a writable filesystem.
#[derive(Debug)]
pub(crate) struct Allocator {
    /// More are appended when the filesystem grows.
    pub(super) groups: AppendList<Group>,
    /// Held, as the lock of a group, while a group is appended, and while a reader is in a group that is not in the list yet.
    pub(super) appending: Mutex<()>,
    /// Blocks that can be reserved.
    pub(super) reservable: AtomicI64,
    /// Blocks that can be reserved after a commit.
    pub(super) busy: AtomicU64,
    pub(super) extent_credits: u32,
    /// Directories are spread over the groups: the one that the next directory is tried in.
    pub(super) directory_rotor: AtomicU32,
    /// Groups in which records of chunks are newer in memory.
    pub(super) groups_with_newer: AtomicU32,
    /// The opening found lists of unlinked inodes, or inodes on them, that it could not read.
    pub(super) has_damaged_lists: AtomicBool,
}

impl Allocator {
    /// The groups of `volume`, as their headers have them.
    ///
    /// # Errors
    /// Corruption of the groups' headers; I/O failure.
    pub(crate) fn new(volume: &Volume) -> Result<Self> {
        if volume.geometry().ag_count() > GROUPS_MAX {
            return Err(Error::Unsupported("writing to a filesystem of so many allocation groups".into()));
        }
        let groups =
            volume.geometry().ags().map(|ag| Group::new(volume, ag)).collect::<Result<AppendList<_>>>()?;
        let reservable = groups.iter().map(|group| group.state.lock().counted).sum::<u64>();
        Ok(Self {
            groups,
            appending: Mutex::new(&order::GROUP, ()),
            reservable: AtomicI64::new(i64::try_from(reservable).unwrap_or(i64::MAX)),
            busy: AtomicU64::new(0),
            extent_credits: extent_credits(volume),
            directory_rotor: AtomicU32::new(0),
            groups_with_newer: AtomicU32::new(0),
            has_damaged_lists: AtomicBool::new(false),
        })
    }

    /// One without groups, for tests of what changes blocks and allocates none.
    #[cfg(test)]
    pub(crate) fn without_groups() -> Self {
        Self {
            groups: AppendList::default(),
            appending: Mutex::new(&order::GROUP, ()),
            reservable: AtomicI64::new(0),
            busy: AtomicU64::new(0),
            extent_credits: 0,
            directory_rotor: AtomicU32::new(0),
            groups_with_newer: AtomicU32::new(0),
            has_damaged_lists: AtomicBool::new(false),
        }
    }

    /// Keeps a group's headers and trees, and its length, as they are while the caller reads them, until what it returns is
    /// dropped. The caller must take no other lock of class `group` meanwhile.
    ///
    /// While the filesystem grows, the superblock has groups that are not in the list yet. Nothing changes in such a group
    /// until it is appended: the reader keeps it from being appended, because it has no lock that the reader could hold.
    pub(crate) fn hold_still(&self, number: AgNumber) -> impl Sized + '_ {
        let find = || self.groups.get(number.0 as usize);
        if find().is_none() {
            let appending = self.appending.lock();
            // It may have been appended before this thread got the lock.
            if find().is_none() {
                return (Some(appending), None);
            }
        }
        (None, find().map(|group| group.state.lock()))
    }

    /// A group.
    ///
    /// # Errors
    /// Corruption: there is no such group.
    pub(super) fn group(&self, number: AgNumber) -> Result<&Group> {
        self.groups
            .get(number.0 as usize)
            .ok_or_else(|| crate::error::corrupt("allocation group", format!("there is no group {number}")))
    }
}
