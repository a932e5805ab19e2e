//! A mounted filesystem: the filesystem together with the caches above it.
//!
//! Called by the FUSE server (by inode) and by the library's users and the program (by path, see `path.rs`).
//! What is called by inode does not check permissions: the kernel has, or the caller does.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::inode_cache::{InodeCache, Keep, Leaving};
use crate::inode_making::BeingMade;
use crate::name_cache::{Known, NameCache};
use crate::namespace::NamespaceLocks;
use crate::place;
use crate::{Error, File, FileSystem, Found, HashedName, Ino, InodeFlags, Node, Result};

/// How much memory the caches may take, and how names are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VfsOptions {
    /// Bytes of inodes that are kept while they are not in use.
    pub inode_cache_bytes: usize,
    /// Bytes of names that are kept.
    pub name_cache_bytes: usize,
    /// Operations on different names of one directory go in parallel. Without it (`pdirops=off`) a directory has
    /// one lock, as in Linux: the plain form, to measure against.
    pub parallel_directory_operations: bool,
}

impl Default for VfsOptions {
    fn default() -> Self {
        Self { inode_cache_bytes: 24 << 20, name_cache_bytes: 8 << 20, parallel_directory_operations: true }
    }
}

/// A mounted filesystem.
pub struct Vfs {
    fs: Arc<dyn FileSystem>,
    inodes: InodeCache,
    root: OnceLock<Arc<Node>>,
    root_ino: Ino,
    name_max_bytes: usize,
    keeps_nodes: bool,
    locks: NamespaceLocks,
}

impl fmt::Debug for Vfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vfs")
            .field("kind", &self.fs.kind())
            .field("device", &self.fs.data_device().map(|device| device.name()))
            .field("read_only", &self.fs.is_read_only())
            .finish_non_exhaustive()
    }
}

impl Vfs {
    /// Puts the caches above a filesystem. Touches no disk.
    #[must_use]
    pub fn new(fs: Arc<dyn FileSystem>, options: VfsOptions) -> Arc<Self> {
        let names = NameCache::new(options.name_cache_bytes);
        let inodes = InodeCache::new(options.inode_cache_bytes, names);
        let name_max_bytes = fs.limits().name_max_bytes as usize;
        Arc::new(Self {
            root_ino: fs.root(),
            keeps_nodes: fs.keeps_nodes(),
            fs,
            inodes,
            root: OnceLock::new(),
            name_max_bytes,
            locks: NamespaceLocks::new(options.parallel_directory_operations),
        })
    }

    /// The filesystem below.
    #[must_use]
    pub fn filesystem(&self) -> &Arc<dyn FileSystem> {
        &self.fs
    }

    /// Makes everything durable that was done before.
    ///
    /// # Errors
    /// I/O failure, now or since the filesystem was opened.
    pub fn sync(&self) -> Result<()> {
        self.fs.sync()
    }

    /// Ends the filesystem's use, as an unmount does: makes everything durable, and leaves it clean. A program that
    /// changes a filesystem calls this to learn whether that went well; changes are refused afterwards.
    ///
    /// # Errors
    /// The first failure since the filesystem was opened; what is on the device is as a crash would leave it then.
    pub fn close(&self) -> Result<()> {
        self.fs.close()
    }

    /// The root directory.
    ///
    /// # Errors
    /// The filesystem's own when the root cannot be read.
    pub fn root(&self) -> Result<Arc<Node>> {
        self.root_ref().cloned()
    }

    /// The root directory without a handle of one's own. The node stays in memory once it was read.
    pub(crate) fn root_ref(&self) -> Result<&Arc<Node>> {
        match self.root.get() {
            Some(root) => Ok(root),
            None => {
                let root = self.node(self.root_ino)?;
                Ok(self.root.get_or_init(|| root))
            }
        }
    }

    /// The node of an inode number, through the inode cache.
    ///
    /// # Errors
    /// [`Stale`](Error::Stale) for a number that names no live inode.
    pub fn node(&self, ino: Ino) -> Result<Arc<Node>> {
        if self.keeps_nodes {
            return self.fs.kept_node(ino);
        }
        self.inodes.get(&*self.fs, ino, Keep::Cached)
    }

    /// The node of an inode number, for a caller that passes each inode once: an inode that is not cached yet
    /// lives only as long as the handle, so that passing a million files leaves the cache as it was.
    ///
    /// # Errors
    /// As for [`node`](Self::node).
    pub fn node_once(&self, ino: Ino) -> Result<Arc<Node>> {
        if self.keeps_nodes {
            return self.fs.kept_node(ino);
        }
        self.inodes.get(&*self.fs, ino, Keep::WhileUsed)
    }

    /// The node that `name` stands for in `dir`. The root's `..` is the root.
    ///
    /// # Errors
    /// [`NotFound`](Error::NotFound), [`NotDirectory`](Error::NotDirectory),
    /// [`NameTooLong`](Error::NameTooLong), [`InvalidArgument`](Error::InvalidArgument) for a name that cannot
    /// exist (empty, or with `/` or NUL in it); the filesystem's own.
    pub fn lookup(&self, dir: &Node, name: &[u8]) -> Result<Arc<Node>> {
        self.lookup_hashed(dir, &HashedName::new(name))
    }

    pub(crate) fn lookup_hashed(&self, dir: &Node, name: &HashedName<'_>) -> Result<Arc<Node>> {
        let directory = dir.directory()?;
        let Some(children) = directory.children() else {
            return self.lookup_kept(dir, name);
        };
        dir.touch();
        match children.get(name) {
            Some(Known::Node(node)) => {
                node.touch();
                return Ok(node);
            }
            Some(Known::Absent) => return Err(Error::NotFound),
            Some(Known::Ino(ino)) if self.fs.is_read_only() => {
                let node = self.node(ino)?;
                self.keep_place(dir, name, &node)?;
                children.insert(name, &node);
                return Ok(node);
            }
            Some(Known::Ino(_)) | None => {}
        }
        // Names that were never right are not in the cache, so a hit need not be checked for them.
        self.check_name(name)?;
        if **name == *b"." || (**name == *b".." && dir.ino() == self.root_ino) {
            return directory.this().ok_or(Error::Stale);
        }
        // What is read must still be true when it goes into the cache.
        let _name = (!self.fs.is_read_only()).then(|| self.locks.share(dir, name));
        self.look_and_remember(dir, name)
    }

    /// Asks the filesystem, under the name's lock, and keeps the answer.
    pub(crate) fn look_and_remember(&self, dir: &Node, name: &HashedName<'_>) -> Result<Arc<Node>> {
        let found = dir.inode().lookup(name)?;
        let Some(children) = dir.children() else {
            return match found {
                Some(found) => self.node_of(found),
                None => Err(Error::NotFound),
            };
        };
        match found {
            Some(found) => {
                let node = self.node_of_entry(dir, name, found)?;
                children.insert(name, &node);
                Ok(node)
            }
            None => {
                // Without regard to case one creation makes many names exist, which a table of exact names
                // cannot follow.
                if !dir.ownership().flags.contains(InodeFlags::CASEFOLD) {
                    children.insert_absent(name);
                }
                Err(Error::NotFound)
            }
        }
    }

    /// Looks a name up in a filesystem that keeps nodes: there is nothing to remember and nothing to lock, unless
    /// the name is being moved at this moment.
    fn lookup_kept(&self, dir: &Node, name: &HashedName<'_>) -> Result<Arc<Node>> {
        match dir.inode().lookup(name)? {
            Some(Found::Node(node)) => Ok(node),
            Some(found @ (Found::Ino(_) | Found::Made(..))) => self.node_of(found),
            Some(Found::Moving) => {
                let _name = self.locks.share(dir, name);
                self.look_and_remember(dir, name)
            }
            None => {
                self.check_name(name)?;
                Err(Error::NotFound)
            }
        }
    }

    /// The node that an entry leads to. The name is locked, or the filesystem takes no changes, so an entry that leads
    /// to no inode is wrong, unless it is the `..` of a directory that was removed.
    fn node_of_entry(&self, dir: &Node, name: &HashedName<'_>, found: Found) -> Result<Arc<Node>> {
        let ino = match &found {
            Found::Ino(ino) => Some(*ino),
            _ => None,
        };
        let node = match (self.node_of(found), ino) {
            (Err(Error::Stale), Some(ino)) if **name != *b".." || dir.inode().links() > 0 => {
                return Err(place::dangling(dir, name, ino));
            }
            (node, _) => node?,
        };
        self.check_place(dir, name, &node)?;
        Ok(node)
    }

    /// The node of what a filesystem found.
    pub(crate) fn node_of(&self, found: Found) -> Result<Arc<Node>> {
        match found {
            Found::Node(node) => Ok(node),
            Found::Ino(ino) => self.node(ino),
            Found::Made(ino, inode) => self.inodes.adopt(ino, inode),
            // A move holds the name's lock, and so do we.
            Found::Moving => Err(Error::Stale),
        }
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// [`IsDirectory`](Error::IsDirectory); [`InvalidArgument`](Error::InvalidArgument) for anything else that
    /// has no bytes; [`NoKey`](Error::NoKey) for encrypted content.
    pub fn open_node(&self, node: &Arc<Node>) -> Result<File> {
        node.check_regular()?;
        // Refused here, as Linux does, so that an empty one is refused too. Keys cannot be given yet.
        if node.ownership().flags.contains(InodeFlags::ENCRYPTED) {
            return Err(Error::NoKey);
        }
        Ok(File::new(Arc::clone(node), self.fs.data_device().cloned(), self.fs.is_read_only()))
    }

    /// Opens a regular file for reading and writing.
    ///
    /// A caller without the right to keep set-user-ID and set-group-ID bits calls
    /// [`File::drop_privilege_bits`] before it writes.
    ///
    /// # Errors
    /// [`ReadOnly`](Error::ReadOnly) in a read-only filesystem; [`NotPermitted`](Error::NotPermitted)
    /// for a file that cannot be changed; otherwise as for [`open_node`](Self::open_node).
    pub fn open_node_for_writing(&self, node: &Arc<Node>) -> Result<File> {
        node.check_regular()?;
        self.check_writable()?;
        if node.ownership().flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::VERITY) {
            return Err(Error::NotPermitted);
        }
        Ok(self.open_node(node)?.writing(self.fs.limits().file_max_bytes))
    }

    /// Opens a regular file for [`File::write_at`] of bytes that a cache above accepted earlier: a file that became
    /// immutable or append-only since then takes them still.
    ///
    /// # Errors
    /// [`ReadOnly`](Error::ReadOnly); otherwise as for [`open_node`](Self::open_node).
    pub fn open_node_for_writing_back(&self, node: &Arc<Node>) -> Result<File> {
        node.check_regular()?;
        self.check_writable()?;
        Ok(self.open_node(node)?.writing(self.fs.limits().file_max_bytes).accepted())
    }

    /// A new inode, whose number is to be announced.
    pub(crate) fn being_made(&self) -> BeingMade<'_> {
        BeingMade::new(self.inodes.announced())
    }

    /// The inode cache, for its tests.
    #[cfg(test)]
    pub(crate) fn inodes(&self) -> &InodeCache {
        &self.inodes
    }

    pub(crate) fn locks(&self) -> &NamespaceLocks {
        &self.locks
    }

    /// Called after a name of `node` was removed: a node without names is not kept in the cache.
    pub(crate) fn drop_unless_named(&self, node: &Node) {
        if !self.keeps_nodes && node.inode().links() == 0 {
            self.inodes.release(node.ino());
        }
    }

    /// Called before a name of `node` is removed. If it is the last name of a file that only the caller uses, no
    /// further handle is given out; see [`InodeCache::leave`].
    pub(crate) fn leave_with_last_name<'a>(&'a self, node: &'a Arc<Node>) -> Option<Leaving<'a>> {
        if self.keeps_nodes || node.inode().links() != 1 {
            return None;
        }
        self.inodes.leave(node)
    }

    pub(crate) fn root_ino(&self) -> Ino {
        self.root_ino
    }

    /// Refuses every change of a filesystem that takes none.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.fs.is_read_only() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    pub(crate) fn check_name(&self, name: &[u8]) -> Result<()> {
        if name.len() > self.name_max_bytes {
            return Err(Error::NameTooLong);
        }
        if name.is_empty() {
            return Err(Error::InvalidArgument("a name cannot be empty"));
        }
        if name.iter().any(|&byte| byte == b'/' || byte == 0) {
            return Err(Error::InvalidArgument("a name cannot hold a slash or a NUL byte"));
        }
        Ok(())
    }
}
