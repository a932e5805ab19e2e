//! What the server answers, in the terms of the vfs: node ids come in, attributes and bytes go out.
//!
//! Called by [`transport`](crate::transport) from all event loops at once. Nothing here knows how requests and
//! replies are encoded. There are no open files: the kernel is told that opening needs no message, so every
//! request names its inode by node id, and the inode of a request is alive because the kernel holds the id.
//!
//! Locks: none of its own, and none of the vfs is held across a call. The busy path, a request on a directory or
//! file that was used before, reads the lock-free node table and goes straight to the node.

use std::sync::Arc;

use undercroft_vfs::{Attr, Corruption, Error, Ino, Node, Result, StatFs, Vfs};

use crate::fault_log::FaultLog;
use crate::nodes::{NodeId, NodeTable, node_id};

/// Attributes of this prefix are for the administrator alone.
const TRUSTED: &[u8] = b"trusted.";

/// Serves one filesystem.
pub(crate) struct Server {
    vfs: Arc<Vfs>,
    root: Arc<Node>,
    nodes: Arc<NodeTable>,
    faults: FaultLog,
}

/// An inode that was handed to the kernel and counted.
pub(crate) struct Entry {
    pub(crate) id: NodeId,
    pub(crate) attr: Attr,
}

impl Server {
    pub(crate) fn new(vfs: Arc<Vfs>) -> Result<Self> {
        let root = vfs.root()?;
        if root.kind() != undercroft_vfs::FileType::Directory {
            return Err(Error::NotDirectory);
        }
        Ok(Self { vfs, root, nodes: Arc::new(NodeTable::new()), faults: FaultLog::new() })
    }

    pub(crate) fn vfs(&self) -> &Vfs {
        &self.vfs
    }

    pub(crate) fn nodes(&self) -> &Arc<NodeTable> {
        &self.nodes
    }

    /// Says on standard error what the kernel cannot say.
    pub(crate) fn report(&self, error: &Error) {
        self.faults.report(error);
    }

    /// The id under which an inode that a directory names may be handed out.
    pub(crate) fn id_of(&self, ino: Ino) -> Option<NodeId> {
        node_id(ino, self.root.ino())
    }

    /// The inode of a request.
    pub(crate) fn node(&self, id: NodeId) -> Result<Arc<Node>> {
        if id == NodeId::ROOT {
            return Ok(Arc::clone(&self.root));
        }
        match self.nodes.pinned(id) {
            Some(node) => Ok(node),
            None => self.vfs.node(Ino(id.0)),
        }
    }

    /// The inode of a request that is likely to be followed by more of its kind.
    pub(crate) fn busy_node(&self, id: NodeId) -> Result<Arc<Node>> {
        if id == NodeId::ROOT {
            return Ok(Arc::clone(&self.root));
        }
        if let Some(node) = self.nodes.pinned(id) {
            return Ok(node);
        }
        let node = self.vfs.node(Ino(id.0))?;
        self.nodes.keep(id, &node);
        Ok(node)
    }

    /// Looks a name up and counts what it found. The kernel asks for `.` and `..` when it rebuilds the path of
    /// an inode from a file handle.
    pub(crate) fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Entry> {
        let dir = self.busy_node(dir)?;
        let node = match self.vfs.lookup(&dir, name) {
            // The directory lives, so it is the entry that is wrong.
            Err(Error::Stale) => return Err(bad_entry(&dir, "it names an inode that is not in use".into())),
            answer => answer?,
        };
        let id = if (name == b"." || name == b"..") && node.ino() == self.root.ino() {
            NodeId::ROOT
        } else {
            let wrong =
                || bad_entry(&dir, format!("it names inode {}, which has no name", node.ino()).into());
            self.id_of(node.ino()).ok_or_else(wrong)?
        };
        self.nodes.acquire(id);
        Ok(Entry { id, attr: node.attr() })
    }

    /// Takes back `lookups` of what was handed out.
    pub(crate) fn forget(&self, id: NodeId, lookups: u64) {
        self.nodes.release(id, lookups);
    }

    pub(crate) fn attr(&self, id: NodeId) -> Result<Attr> {
        Ok(self.node(id)?.attr())
    }

    pub(crate) fn read_link(&self, id: NodeId) -> Result<Vec<u8>> {
        self.node(id)?.read_link()
    }

    /// Fills `buf` from `offset` and returns the number of bytes; fewer only at the end of the file.
    pub(crate) fn read(&self, id: NodeId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.vfs.open_node(&self.busy_node(id)?)?.read_at(offset, buf)
    }

    pub(crate) fn seek_data(&self, id: NodeId, offset: u64) -> Result<u64> {
        self.vfs.open_node(&self.node(id)?)?.seek_data(offset)
    }

    pub(crate) fn seek_hole(&self, id: NodeId, offset: u64) -> Result<u64> {
        self.vfs.open_node(&self.node(id)?)?.seek_hole(offset)
    }

    pub(crate) fn xattr(&self, id: NodeId, name: &[u8]) -> Result<Vec<u8>> {
        self.node(id)?.xattr(name)?.ok_or(Error::NoAttribute)
    }

    /// All names, each followed by a NUL. The kernel keeps `trusted.` values from ordinary users, but not the
    /// names.
    pub(crate) fn xattr_names(&self, id: NodeId, administrator: bool) -> Result<Vec<u8>> {
        let names = self.node(id)?.list_xattrs()?;
        let mut list = Vec::with_capacity(names.iter().map(|name| name.len() + 1).sum());
        for name in names.iter().filter(|name| administrator || !name.starts_with(TRUSTED)) {
            list.extend_from_slice(name);
            list.push(0);
        }
        Ok(list)
    }

    pub(crate) fn statfs(&self) -> Result<StatFs> {
        self.vfs.filesystem().statfs()
    }
}

fn bad_entry(dir: &Node, detail: std::borrow::Cow<'static, str>) -> Error {
    Corruption { structure: "directory entry", ino: Some(dir.ino()), block: None, detail }.into()
}
