//! An inode as the vfs keeps it: the filesystem's handle, plus what is cached about it.
//!
//! Users get nodes from [`Vfs`](crate::Vfs) as `Arc<Node>`. While anybody holds the node of an inode number,
//! asking for the number again gives the same node: the inode cache's table knows every live node, and a node
//! leaves that table after the filesystem's handle is dropped. Dropping the last handle of a node takes the lock
//! of one inode cache shard, so no lock of a later class may be held then.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use crate::acl::AclCell;
use crate::inode_cache::{Departure, Shard};
use crate::name_cache::{Children, NameCache};
use crate::{Attr, DirEntry, DirOffset, Error, Extent, FileType, Ino, Inode, Result};

/// A live inode, shared by everybody who uses it.
pub struct Node {
    inode: Arc<dyn Inode>,
    ino: Ino,
    kind: FileType,
    /// Used since the inode cache's clock last passed.
    referenced: AtomicBool,
    /// Held by the inode cache; written under the shard's lock.
    resident: AtomicBool,
    acl: AclCell,
    /// Only directories have one.
    children: Option<Box<Children>>,
    /// Last, since fields are dropped in this order: the number is free again after the inode is dropped.
    _departure: Departure,
}

impl Node {
    pub(crate) fn new(
        ino: Ino,
        inode: Arc<dyn Inode>,
        home: Weak<Shard>,
        names: &Arc<NameCache>,
    ) -> Arc<Self> {
        let kind = inode.attr().kind;
        Arc::new_cyclic(|this| Self {
            inode,
            ino,
            kind,
            referenced: AtomicBool::new(false),
            resident: AtomicBool::new(false),
            acl: AclCell::new(),
            children: (kind == FileType::Directory)
                .then(|| Box::new(Children::new(Weak::clone(this), Arc::clone(names)))),
            _departure: Departure::new(ino, home),
        })
    }

    /// The inode's number.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// What kind of file it is.
    #[must_use]
    pub fn kind(&self) -> FileType {
        self.kind
    }

    /// The attributes now.
    #[must_use]
    pub fn attr(&self) -> Attr {
        self.inode.attr()
    }

    /// Gives `sink` the entries of a directory from `from` on, `.` and `..` included, until it breaks or the
    /// directory ends.
    ///
    /// # Errors
    /// [`NotDirectory`](Error::NotDirectory); the filesystem's own after a corrupt part.
    pub fn read_dir(
        &self,
        from: DirOffset,
        sink: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        if self.kind != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        self.inode.read_dir(from, sink)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) when it is not one.
    pub fn read_link(&self) -> Result<Vec<u8>> {
        if self.kind != FileType::Symlink {
            return Err(Error::InvalidArgument("not a symbolic link"));
        }
        self.inode.read_link()
    }

    /// The value of an extended attribute by its full name; `None` when there is none.
    ///
    /// # Errors
    /// Corruption or I/O failure.
    pub fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inode.xattr(name)
    }

    /// The full names of all extended attributes.
    ///
    /// # Errors
    /// Corruption or I/O failure.
    pub fn list_xattrs(&self) -> Result<Vec<Vec<u8>>> {
        self.inode.list_xattrs()
    }

    /// What lies under `offset` of a regular file, and how far the same holds.
    ///
    /// # Errors
    /// [`IsDirectory`](Error::IsDirectory), [`InvalidArgument`](Error::InvalidArgument) for what has no bytes;
    /// the filesystem's own.
    pub fn map(&self, offset: u64) -> Result<Extent> {
        self.check_regular()?;
        self.inode.map(offset)
    }

    /// Refuses what has no bytes to read.
    pub(crate) fn check_regular(&self) -> Result<()> {
        match self.kind {
            FileType::Regular => Ok(()),
            FileType::Directory => Err(Error::IsDirectory),
            FileType::Symlink => Err(Error::InvalidArgument("a symbolic link has no bytes of its own")),
            FileType::Fifo | FileType::CharDevice | FileType::BlockDevice | FileType::Socket => {
                Err(Error::InvalidArgument("only a regular file has bytes"))
            }
        }
    }

    /// What the filesystem handed out.
    pub(crate) fn inode(&self) -> &dyn Inode {
        &*self.inode
    }

    /// The names known below this directory; `None` for anything else.
    pub(crate) fn children(&self) -> Option<&Children> {
        self.children.as_deref()
    }

    pub(crate) fn acl_cell(&self) -> &AclCell {
        &self.acl
    }

    /// Tells the inode cache that the node is in use. A plain load comes first so that a busy node's cache
    /// line stays shared between processors.
    pub(crate) fn touch(&self) {
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the node was used since the last call.
    pub(crate) fn take_referenced(&self) -> bool {
        self.referenced.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn resident(&self) -> &AtomicBool {
        &self.resident
    }

    /// About how many bytes of memory the inode cache keeps alive by keeping this node. Its names are counted
    /// by the name cache.
    pub(crate) fn memory_bytes(&self) -> usize {
        let children = if self.children.is_some() { size_of::<Children>() } else { 0 };
        size_of::<Self>() + children + self.inode.memory_bytes()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("ino", &self.ino.0).field("kind", &self.kind).finish_non_exhaustive()
    }
}
