//! One directory as fast commits changed it.

use std::collections::{BTreeMap, BTreeSet};

/// What happened to the names of one directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct DirectoryChange {
    names: BTreeMap<Box<[u8]>, NameChange>,
    /// The directory that holds this one's name, when this one came to be in a fast commit.
    parent: Option<u32>,
}

#[derive(Clone, Debug, Default)]
struct NameChange {
    /// Where the name leads in the end.
    added: Option<u32>,
    /// Inodes to which an entry on disk no longer leads, if there is one that does.
    removed: BTreeSet<u32>,
}

impl DirectoryChange {
    pub(super) fn set_created_in(&mut self, parent: u32) {
        self.parent = Some(parent);
    }

    pub(super) fn link(&mut self, name: &[u8], ino: u32) {
        self.names.entry(name.into()).or_default().added = Some(ino);
    }

    /// Only a name that leads to this very inode goes: it may be a second replay, and the name in use again.
    pub(super) fn unlink(&mut self, name: &[u8], ino: u32) {
        let change = self.names.entry(name.into()).or_default();
        if change.added == Some(ino) {
            change.added = None;
        }
        change.removed.insert(ino);
    }

    /// Set when the directory came to be in a fast commit: its blocks were never written, so `.` is itself,
    /// `..` is this, and the other entries are exactly [`added`](Self::added).
    pub(crate) fn created_in(&self) -> Option<u32> {
        self.parent
    }

    /// Where a name leads, given the inode that its entry on disk leads to, if it has one.
    pub(crate) fn lookup(&self, name: &[u8], on_disk: Option<u32>) -> Option<u32> {
        match self.names.get(name) {
            Some(change) => change.added.or(on_disk.filter(|ino| !change.removed.contains(ino))),
            None => on_disk,
        }
    }

    /// Whether an entry on disk is to be listed. An entry whose name is also added is not: [`added`](Self::added)
    /// lists it.
    pub(crate) fn keeps(&self, name: &[u8], ino: u32) -> bool {
        self.names.get(name).is_none_or(|change| change.added.is_none() && !change.removed.contains(&ino))
    }

    /// Names that lead somewhere because of fast commits, and where, ordered by name.
    pub(crate) fn added(&self) -> impl Iterator<Item = (&[u8], u32)> {
        self.names.iter().filter_map(|(name, change)| Some((&**name, change.added?)))
    }

    /// Every name to which something happened. [`lookup`](Self::lookup) returns the result.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.names.keys().map(|name| &**name)
    }
}
