//! The directory that an entry is in.
//!
//! Entries come mostly in the order of a tree, so the nodes of the last path are kept, and only names that differ are
//! looked up.

use std::sync::Arc;

use undercroft_vfs::{Credentials, Error as VfsError, FileType, NewObject, Node, Result};

use super::xattrs::Refusal;
use super::{Writer, refused};
use crate::{EntryPath, Error};

/// Where a directory is: its name, and the directory that it is in. `None` is the base.
#[derive(Debug)]
pub(super) struct Place {
    above: Option<Arc<Place>>,
    name: Box<[u8]>,
}

impl Place {
    /// The path from the base.
    pub(super) fn path(&self) -> EntryPath {
        let mut names = vec![&*self.name];
        let mut place = self;
        while let Some(above) = &place.above {
            names.push(&above.name);
            place = above;
        }
        names.reverse();
        EntryPath::new(&names.join(&b'/')).unwrap_or_default()
    }
}

/// The directories of the path that was asked for last.
pub(super) struct Parents {
    base: Arc<Node>,
    /// Places and nodes from the base down.
    stack: Vec<(Arc<Place>, Arc<Node>)>,
    /// The path of the last of them.
    path: Vec<u8>,
    /// Whether a symbolic link leads to one of them. The link may be replaced at any time, so the path is asked for
    /// again each time.
    through_link: bool,
    /// Whether what is made in the last of them may inherit from it.
    hands_on: bool,
}

impl Parents {
    pub(super) fn new(base: Arc<Node>) -> Self {
        let hands_on = hands_on(&base);
        Self { base, stack: Vec::new(), path: Vec::new(), through_link: false, hands_on }
    }

    pub(super) fn base(&self) -> Arc<Node> {
        Arc::clone(&self.base)
    }

    /// The node of the path.
    fn last(&self) -> &Arc<Node> {
        self.stack.last().map_or(&self.base, |(_, node)| node)
    }

    /// The place of a name in the directory of the path.
    pub(super) fn place(&self, name: &[u8]) -> Arc<Place> {
        let above = self.stack.last().map(|(place, _)| Arc::clone(place));
        Arc::new(Place { above, name: name.into() })
    }

    /// Whether what is made in the directory of the path may inherit from it.
    pub(super) const fn hands_on(&self) -> bool {
        self.hands_on
    }

    /// Forgets the path: a directory of it may be removed.
    pub(super) fn forget(&mut self) {
        self.stack.clear();
        self.path.clear();
        self.through_link = false;
        self.hands_on = hands_on(&self.base);
    }

    fn push(&mut self, name: &[u8], node: Arc<Node>) {
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        self.hands_on = hands_on(&node);
        self.stack.push((self.place(name), node));
    }

    /// Leaves the directories that are not on the way to `path`; how many of its names are left on the way.
    fn leave_others(&mut self, path: &[u8]) -> usize {
        let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        let shared = names.zip(&self.stack).take_while(|(name, (known, _))| **name == *known.name).count();
        if shared < self.stack.len() {
            self.stack.truncate(shared);
            self.path = self.stack.iter().map(|(place, _)| &*place.name).collect::<Vec<_>>().join(&b'/');
            self.hands_on = hands_on(self.last());
        }
        shared
    }
}

/// Whether a directory hands on a group or a list.
fn hands_on(dir: &Node) -> bool {
    // Asked for once for each directory that is gone into.
    dir.ownership().permissions & 0o2000 != 0
        || dir.xattr(b"system.posix_acl_default").is_ok_and(|list| list.is_some())
}

impl Writer {
    /// The directory of `entry`, which is made with those above it where they are missing.
    pub(super) fn parent(&mut self, entry: &EntryPath, path: &[u8]) -> std::result::Result<Arc<Node>, Error> {
        if self.parents.through_link {
            self.parents.forget();
        }
        if self.parents.path == path {
            return Ok(Arc::clone(self.parents.last()));
        }
        let shared = self.parents.leave_others(path);
        let names = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        for name in names.skip(shared) {
            let dir = Arc::clone(self.parents.last());
            let node = match self.vfs.lookup(&dir, name) {
                Err(VfsError::NotFound) => self.make_parent(&dir, name).map_err(refused(entry))?,
                node => node.map_err(refused(entry))?,
            };
            match node.kind() {
                FileType::Directory => self.parents.push(name, node),
                FileType::Symlink => match self.follow(&dir, &node).map_err(refused(entry))? {
                    Some(target) => {
                        self.parents.push(name, target);
                        self.parents.through_link = true;
                    }
                    None => return Err(below(entry, name, self.why_not_followed(&node))),
                },
                _ => return Err(below(entry, name, "no directory in this filesystem")),
            }
        }
        Ok(Arc::clone(self.parents.last()))
    }

    /// Makes a directory that no entry has named.
    fn make_parent(&mut self, dir: &Arc<Node>, name: &[u8]) -> std::result::Result<Arc<Node>, Refusal> {
        let root = &Credentials::root();
        let node = self.vfs.create(root, dir, name, &NewObject::directory(0o755))?;
        self.note_made(&node, self.parents.place(name))?;
        Ok(node)
    }

    /// What a path stands for; a link itself, where its last name is one.
    pub(super) fn find(&self, path: &EntryPath) -> Result<Arc<Node>> {
        let mut dir = self.parents.base();
        let mut node = Arc::clone(&dir);
        for name in path.names() {
            if node.kind() == FileType::Symlink {
                node = self.follow(&dir, &node)?.ok_or(VfsError::NotDirectory)?;
            }
            if node.kind() != FileType::Directory {
                return Err(VfsError::NotDirectory);
            }
            dir = node;
            node = self.vfs.lookup(&dir, name)?;
        }
        Ok(node)
    }
}

fn below(entry: &EntryPath, name: &[u8], kind: &str) -> Error {
    let what = format!("it lies below {}, which is {kind}", name.escape_ascii());
    Error::entry(entry.clone(), what)
}
