//! An inode as the vfs keeps it: the filesystem's handle, plus what is cached about it.
//!
//! Users get nodes from [`Vfs`](crate::Vfs) as `Arc<Node>`. While the node of an inode number is held, asking for the
//! number again gives the same node: the inode cache's table knows every live node, and a node leaves that table after
//! the filesystem's handle is dropped (see `cached_inode.rs`). Dropping the last handle of a node takes the lock of
//! one inode cache shard, so no lock of a later class may be held then.

use std::any::Any;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use undercroft_sync::{StripedRwLock, order};

use crate::acl::AclCell;
use crate::cached_inode::CachedInode;
use crate::inode_cache::{Departure, Shard};
use crate::name_cache::{Children, NameCache};
use crate::namespace::RemovalBarrier;
use crate::place_word::Place;
use crate::{
    Attr, DirEntry, DirOffset, Error, Extent, ExtentSizeHints, FileType, Ino, Inode, Ownership, Result,
};

/// An in-memory inode, shared by all of its users.
///
/// The filesystem's inode lies in the same memory. Users need not know its type: a plain `Node` is a node of any.
pub struct Node<I: ?Sized = dyn Inode> {
    ino: Ino,
    kind: FileType,
    /// Used since the inode cache's clock last passed.
    referenced: AtomicBool,
    /// No further handle is given out: the inode is going with its last name. See `inode_cache.rs`.
    leaving: AtomicBool,
    /// Known to have no file capabilities; written with the state held exclusively.
    no_capabilities: AtomicBool,
    /// How many threads let other files have its blocks. Raised with the state held exclusively.
    giving: AtomicU32,
    acl: AclCell,
    /// Held exclusively to change the size or the attributes; shared by writers within the size.
    state: StripedRwLock,
    /// Only directories have one.
    directory: Option<Box<Directory>>,
    inode: I,
}

/// What only directories have.
pub(crate) struct Directory {
    this: Weak<Node>,
    /// The names known here; none for a filesystem that keeps nodes, which knows them itself.
    children: Option<Children>,
    barrier: RemovalBarrier,
    place: Place,
    /// The list that new files inherit.
    default_acl: AclCell,
}

impl Directory {
    fn new(this: Weak<Node>, children: Option<Children>) -> Box<Self> {
        Box::new(Self {
            this,
            children,
            barrier: RemovalBarrier::new(),
            place: Place::default(),
            default_acl: AclCell::new(),
        })
    }

    /// A handle of the directory itself, for code that has only a reference.
    pub(crate) fn this(&self) -> Option<Arc<Node>> {
        self.this.upgrade()
    }

    pub(crate) fn children(&self) -> Option<&Children> {
        self.children.as_ref()
    }

    pub(crate) fn barrier(&self) -> &RemovalBarrier {
        &self.barrier
    }

    /// Where the directory has its name.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn default_acl_cell(&self) -> &AclCell {
        &self.default_acl
    }
}

impl<I: Inode> Node<I> {
    // Inlined, and made where it will lie: an inode is a few cache lines that would be copied for each call on their
    // way.
    #[inline(always)]
    fn make(
        ino: Ino,
        kind: FileType,
        inode: impl FnOnce() -> I,
        names: Option<&Arc<NameCache>>,
    ) -> Arc<Node> {
        Arc::new_cyclic(|this: &Weak<Self>| Self {
            ino,
            kind,
            referenced: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            no_capabilities: AtomicBool::new(false),
            giving: AtomicU32::new(0),
            acl: AclCell::new(),
            state: StripedRwLock::new(&order::INODE, ()),
            directory: (kind == FileType::Directory).then(|| {
                let this: Weak<Self> = Weak::clone(this);
                let this: Weak<Node> = this;
                let children = names.map(|names| Children::new(Weak::clone(&this), Arc::clone(names)));
                Directory::new(this, children)
            }),
            inode: inode(),
        })
    }
}

impl Node {
    /// The node of an inode that the inode cache looks after.
    pub(crate) fn cached(
        ino: Ino,
        inode: Arc<dyn Inode>,
        home: Weak<Shard>,
        names: &Arc<NameCache>,
    ) -> Arc<Self> {
        let kind = inode.ownership().kind;
        let inode = CachedInode::new(inode, Departure::new(ino, home));
        Node::make(ino, kind, || inode, Some(names))
    }

    /// The node of an inode whose filesystem [keeps nodes](crate::FileSystem::keeps_nodes). The filesystem makes one
    /// for each inode and returns it for as long as the inode exists.
    #[inline(always)]
    #[must_use]
    pub fn kept<I: Inode>(ino: Ino, kind: FileType, inode: impl FnOnce() -> I) -> Arc<Self> {
        Node::make(ino, kind, inode, None)
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

    /// How many names there are. Does not look at the times, as [`attr`](Self::attr) does.
    #[must_use]
    pub fn links(&self) -> u32 {
        self.inode.links()
    }

    /// The part of the attributes that permission checks need.
    #[must_use]
    pub fn ownership(&self) -> Ownership {
        self.inode.ownership()
    }

    /// As [`Inode::extent_size_hints`].
    #[must_use]
    pub fn extent_size_hints(&self) -> ExtentSizeHints {
        self.inode.extent_size_hints()
    }

    /// As [`Inode::extent_count`].
    #[must_use]
    pub fn extent_count(&self) -> u64 {
        self.inode.extent_count()
    }

    /// As [`Inode::leave_times_to_cache`]; only regular files are written through a cache.
    pub fn leave_times_to_cache(&self) {
        if self.kind() == FileType::Regular {
            self.inode().leave_times_to_cache();
        }
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

    /// Where [`read_dir`](Self::read_dir) goes on behind the corrupt part that it met after the entries before `from`.
    #[must_use]
    pub fn read_dir_behind(&self, from: DirOffset) -> Option<DirOffset> {
        self.inode.read_dir_behind(from).filter(|behind| *behind > from)
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

    /// What the filesystem handed out, for the filesystem itself, which knows its type.
    ///
    /// # Errors
    /// [`CrossDevice`](Error::CrossDevice) for the inode of another kind of filesystem.
    pub fn inode_as<T: Inode>(&self) -> Result<&T> {
        let inode: &dyn Any = match (&self.inode as &dyn Any).downcast_ref::<CachedInode>() {
            Some(cached) => cached.inode(),
            None => &self.inode,
        };
        inode.downcast_ref().ok_or(Error::CrossDevice)
    }

    /// What the filesystem handed out.
    pub(crate) fn inode(&self) -> &dyn Inode {
        &self.inode
    }

    /// What only a directory has.
    pub(crate) fn directory(&self) -> Result<&Directory> {
        self.directory.as_deref().ok_or(Error::NotDirectory)
    }

    /// The names known below this directory; `None` where none are kept.
    pub(crate) fn children(&self) -> Option<&Children> {
        self.directory.as_ref()?.children()
    }

    /// The lock of the inode's state; class `inode`.
    pub(crate) fn state(&self) -> &StripedRwLock {
        &self.state
    }

    /// From now on other files may get blocks of this one, until the answer is dropped: no writer is at work that holds the
    /// state shared, and none begins. What reads may go on.
    pub(crate) fn begin_giving(&self) -> Giving<'_> {
        let _state = self.state.write();
        self.giving.fetch_add(1, Ordering::Relaxed);
        Giving(self)
    }

    /// Whether other files may be getting blocks of this one. Asked with the state held shared, by a thread that is to write:
    /// if so, it must hold the state exclusively.
    pub(crate) fn gives_blocks(&self) -> bool {
        self.giving.load(Ordering::Acquire) > 0
    }

    pub(crate) fn acl_cell(&self) -> &AclCell {
        &self.acl
    }

    /// Marks the node as used for the inode cache's clock. A plain load comes first so that a busy node's cache line
    /// stays shared between processors.
    pub(crate) fn touch(&self) {
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the inode is going with its last name: a lookup that got this handle treats the node as gone.
    pub(crate) fn is_leaving(&self) -> bool {
        // Relaxed, and why that is enough: see `Shard::leave`.
        self.leaving.load(Ordering::Relaxed)
    }

    pub(crate) fn set_leaving(&self, leaving: bool) {
        self.leaving.store(leaving, Ordering::Relaxed);
    }

    /// Whether the node was used since the last call.
    pub(crate) fn take_referenced(&self) -> bool {
        self.referenced.swap(false, Ordering::Relaxed)
    }

    /// Set while it is known that the file has no capabilities.
    pub(crate) fn no_capabilities(&self) -> &AtomicBool {
        &self.no_capabilities
    }

    /// About how many bytes of memory the inode cache keeps alive by keeping this node. Its names are counted
    /// by the name cache.
    pub(crate) fn memory_bytes(&self) -> usize {
        let directory = self.directory.as_deref().map_or(0, |directory| {
            size_of::<Directory>() + directory.children().map_or(0, Children::lasting_bytes)
        });
        size_of_val(self) + self.state.stripes_bytes() + directory + self.inode.memory_bytes()
    }
}

/// Other files may be getting blocks of the node, until this is dropped.
#[must_use = "writers go on when this is dropped"]
pub(crate) struct Giving<'a>(&'a Node);

impl Drop for Giving<'_> {
    fn drop(&mut self) {
        // What a thread that sees this looks up is not older than what was given.
        self.0.giving.fetch_sub(1, Ordering::Release);
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("ino", &self.ino.0).field("kind", &self.kind).finish_non_exhaustive()
    }
}
