//! Owners, permissions, extended attributes and times.

use std::sync::Arc;

use undercroft_vfs::{AttrChange, Credentials, FileType, Ino, NewTime, Node, Result, Timestamp, clock};

use super::parents::Place;
use super::xattrs::{ACCESS_LIST, DEFAULT_LIST};
use super::{Refusal, Writer, refused};
use crate::{EntryPath, Error, Metadata, Xattr};

type Refusable<T> = std::result::Result<T, Refusal>;

const SET_GROUP_ID: u16 = 0o2000;

/// What a directory gets at the end.
#[derive(Debug)]
pub(super) struct Late {
    /// `None` for the base.
    place: Option<Arc<Place>>,
    /// With set-group-ID; `None` where the bits are right already.
    permissions: Option<u16>,
    default_list: Option<Box<[u8]>>,
    accessed: Timestamp,
    modified: Timestamp,
}

impl Late {
    /// Where the directory is.
    pub(super) fn path(&self) -> EntryPath {
        self.place.as_ref().map_or_else(EntryPath::root, |place| place.path())
    }
}

impl Writer {
    /// Gives an inode that is no directory its metadata; owner and permissions are right unless it `inherited` some.
    pub(super) fn dress(&self, node: &Arc<Node>, metadata: &Metadata, inherited: bool) -> Refusable<()> {
        let root = &Credentials::root();
        if inherited {
            self.undo_inheritance(node, metadata)?;
        }
        for Xattr { name, value } in &metadata.xattrs {
            self.set_xattr(node, name, value)?;
        }
        let change = AttrChange {
            accessed: Some(NewTime::At(metadata.accessed.unwrap_or(metadata.modified))),
            modified: Some(NewTime::At(metadata.modified)),
            changed: self.options.changed,
            ..AttrChange::default()
        };
        Ok(self.vfs.set_attr(root, node, &change)?)
    }

    /// Takes away what a directory with a default list or with set-group-ID handed to a new inode.
    fn undo_inheritance(&self, node: &Arc<Node>, metadata: &Metadata) -> Result<()> {
        let root = &Credentials::root();
        if node.kind() != FileType::Symlink {
            self.vfs.remove_xattr(root, node, ACCESS_LIST)?;
        }
        let own = node.ownership();
        let permissions = metadata.permissions & 0o7777;
        let wrong = own.permissions != permissions && node.kind() != FileType::Symlink;
        if wrong || (own.uid, own.gid) != (metadata.uid, metadata.gid) {
            let change = AttrChange {
                permissions: (node.kind() != FileType::Symlink).then_some(permissions),
                uid: Some(metadata.uid),
                gid: Some(metadata.gid),
                ..AttrChange::default()
            };
            self.vfs.set_attr(root, node, &change)?;
        }
        Ok(())
    }

    /// Gives a directory its metadata, and notes what it gets at the end.
    pub(super) fn dress_directory(
        &mut self,
        node: &Arc<Node>,
        path: &EntryPath,
        place: Option<Arc<Place>>,
        metadata: Metadata,
        is_new: bool,
    ) -> std::result::Result<(), Error> {
        let late = self.dress_directory_now(node, place, metadata, is_new).map_err(refused(path))?;
        self.late.insert(node.ino(), late);
        Ok(())
    }

    fn dress_directory_now(
        &self,
        node: &Arc<Node>,
        place: Option<Arc<Place>>,
        metadata: Metadata,
        is_new: bool,
    ) -> Refusable<Late> {
        let root = &Credentials::root();
        let Metadata { uid, gid, permissions, modified, accessed, xattrs } = metadata;
        let permissions = permissions & 0o7777;
        if !is_new || self.parents.hands_on() {
            // The lists are those of the entry; one that it has replaces what is there at once.
            for list in [ACCESS_LIST, DEFAULT_LIST] {
                if is_new || xattrs.iter().all(|xattr| *xattr.name != *list) {
                    self.vfs.remove_xattr(root, node, list)?;
                }
            }
        }
        let own = node.ownership();
        // The bit of a directory that has it stays meanwhile: what comes next may fail.
        let has_bit = if is_new { 0 } else { own.permissions & SET_GROUP_ID };
        let now = permissions & (!SET_GROUP_ID | has_bit);
        if own.permissions != now || (own.uid, own.gid) != (uid, gid) {
            let change = AttrChange {
                permissions: Some(now),
                uid: Some(uid),
                gid: Some(gid),
                ..AttrChange::default()
            };
            self.vfs.set_attr(root, node, &change)?;
        }
        let mut default_list = None;
        for Xattr { name, value } in xattrs {
            if *name == *DEFAULT_LIST {
                default_list = Some(value);
                continue;
            }
            self.set_xattr(node, &name, &value)?;
        }
        Ok(Late {
            place,
            permissions: (permissions != now).then_some(permissions),
            default_list,
            accessed: accessed.unwrap_or(modified),
            modified,
        })
    }

    /// A directory that no entry names, as the one for which it was made needs it.
    pub(super) fn note_made(&mut self, node: &Arc<Node>, place: Arc<Place>) -> Refusable<()> {
        let now = self.options.changed.unwrap_or_else(clock::now);
        let late = match &self.options.unnamed {
            None => {
                let place = Some(place);
                Late { place, permissions: None, default_list: None, accessed: now, modified: now }
            }
            Some(rules) => {
                let metadata = Metadata { permissions: 0o755, modified: now, ..Metadata::default() };
                self.dress_directory_now(node, Some(place), rules.of_directory(metadata), true)?
            }
        };
        self.late.insert(node.ino(), late);
        Ok(())
    }

    /// Changes the base by the rules, if no entry has named it.
    pub(super) fn dress_unnamed_base(&mut self) -> std::result::Result<(), Error> {
        let base = self.parents.base();
        let Some(rules) = self.options.unnamed.clone().filter(|_| !self.late.contains_key(&base.ino()))
        else {
            return Ok(());
        };
        let own = base.ownership();
        let metadata = rules.of_root(Metadata {
            uid: own.uid,
            gid: own.gid,
            permissions: own.permissions,
            modified: self.options.changed.unwrap_or_else(clock::now),
            ..Metadata::default()
        });
        self.dress_directory(&base, &EntryPath::root(), None, metadata, false)
    }

    /// Gives a directory what it gets at the end.
    pub(super) fn apply_late(&self, ino: Ino, late: &Late) -> Refusable<()> {
        let root = &Credentials::root();
        let node = self.vfs.node_once(ino)?;
        if let Some(list) = &late.default_list {
            self.set_xattr(&node, DEFAULT_LIST, list)?;
        }
        let change = AttrChange {
            // An access list that was set meanwhile has changed the other bits.
            permissions: late.permissions.map(|_| node.ownership().permissions | SET_GROUP_ID),
            accessed: Some(NewTime::At(late.accessed)),
            modified: Some(NewTime::At(late.modified)),
            changed: self.options.changed,
            ..AttrChange::default()
        };
        Ok(self.vfs.set_attr(root, &node, &change)?)
    }

    /// A new name changes the inode; where the times of change are said, that one stays.
    pub(super) fn keep_change_time(&self, node: &Arc<Node>) -> Result<()> {
        let Some(changed) = self.options.changed else { return Ok(()) };
        let change = AttrChange { changed: Some(changed), ..AttrChange::default() };
        self.vfs.set_attr(&Credentials::root(), node, &change)
    }
}
