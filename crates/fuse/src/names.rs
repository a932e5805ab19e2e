//! Making, linking, moving and removing names.
//!
//! What a reply hands out is counted before the reply is sent.

use std::sync::Arc;

use undercroft_vfs::{Error, NewObject, Node, RenameFlags, Result};

use crate::caller::Caller;
use crate::files;
use crate::nodes::NodeId;
use crate::server::{Entry, Server};

const O_EXCL: u32 = 0o200;

impl Server {
    /// Makes an object and gives it a name.
    pub(crate) fn create(
        &self,
        caller: Caller,
        dir: NodeId,
        name: &[u8],
        object: &NewObject<'_>,
    ) -> Result<Entry> {
        let (who, dir) = (caller.credentials(), self.busy_node(dir)?);
        let node = self.with_space(|| self.vfs().create(&who, &dir, name, object))?;
        self.entry(&node)
    }

    /// Makes a regular file, or opens the one that another caller has made meanwhile.
    pub(crate) fn create_or_open(
        &self,
        caller: Caller,
        dir: NodeId,
        name: &[u8],
        object: &NewObject<'_>,
        flags: u32,
    ) -> Result<Entry> {
        match self.create(caller, dir, name, object) {
            Err(Error::Exists) if flags & O_EXCL == 0 => {
                let node = self.vfs().lookup(&*self.busy_node(dir)?, name)?;
                files::check_open(&node, flags)?;
                self.entry(&node)
            }
            created => created,
        }
    }

    /// Makes a regular file without a name.
    pub(crate) fn tmpfile(&self, caller: Caller, dir: NodeId, permissions: u16, umask: u16) -> Result<Entry> {
        let dir = self.busy_node(dir)?;
        let who = caller.credentials();
        let node = self.with_space(|| self.vfs().tmpfile(&who, &dir, permissions, umask))?;
        self.nodes().returning().expect();
        self.entry(&node)
    }

    /// Gives an object another name.
    pub(crate) fn link(&self, caller: Caller, id: NodeId, dir: NodeId, name: &[u8]) -> Result<Entry> {
        let node = self.node(id)?;
        let (who, dir) = (caller.credentials(), self.busy_node(dir)?);
        self.with_space(|| self.vfs().link(&who, &node, &dir, name))?;
        self.entry(&node)
    }

    /// Removes the name of anything but a directory.
    pub(crate) fn unlink(&self, caller: Caller, dir: NodeId, name: &[u8]) -> Result<()> {
        self.vfs().unlink(&caller.credentials(), &self.busy_node(dir)?, name)?;
        self.nodes().returning().expect();
        Ok(())
    }

    /// Removes an empty directory.
    pub(crate) fn rmdir(&self, caller: Caller, dir: NodeId, name: &[u8]) -> Result<()> {
        self.vfs().rmdir(&caller.credentials(), &self.busy_node(dir)?, name)?;
        self.nodes().returning().expect();
        Ok(())
    }

    /// Moves a name; `flags` are those of `renameat2(2)`.
    pub(crate) fn rename(
        &self,
        caller: Caller,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        flags: u32,
    ) -> Result<()> {
        let unknown = Error::InvalidArgument("a way to rename that Linux does not have");
        let flags = RenameFlags::from_bits(flags).ok_or(unknown)?;
        let (from_dir, to_dir) = (self.busy_node(from.0)?, self.busy_node(to.0)?);
        let who = caller.credentials();
        self.with_space(|| self.vfs().rename(&who, (&from_dir, from.1), (&to_dir, to.1), flags))?;
        self.nodes().returning().expect();
        Ok(())
    }

    /// Counts an inode that a reply is going to name.
    fn entry(&self, node: &Arc<Node>) -> Result<Entry> {
        let id = self.id_of(node.ino()).ok_or(Error::Stale)?;
        self.hand_out(id, node);
        Ok(Entry { id, attr: node.attr() })
    }
}
