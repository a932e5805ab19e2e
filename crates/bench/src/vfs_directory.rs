//! A directory of a filesystem in this process, above the vfs.

use std::ops::ControlFlow;
use std::sync::Arc;

use undercroft_vfs::{
    Credentials, DirOffset, Durable, Error, File, FileSystem, NewObject, Node, RenameFlags, Vfs, VfsOptions,
};

use crate::BenchError;
use crate::directory::{Caching, Content, Directory, Resizable};

/// A directory.
pub(crate) struct VfsDirectory {
    vfs: Arc<Vfs>,
    node: Arc<Node>,
    who: Credentials,
}

impl VfsDirectory {
    /// A new one in a filesystem that has no other user, or the one that this call has made there before; `plain` gives
    /// each of its directories one lock.
    pub(crate) fn new(fs: Arc<dyn FileSystem>, plain: bool) -> Result<Self, BenchError> {
        let options = VfsOptions { parallel_directory_operations: !plain, ..VfsOptions::default() };
        let (vfs, who) = (Vfs::new(fs, options), Credentials::root());
        let node =
            vfs.root().map_err(|source| BenchError::Vfs { what: "open the root directory", source })?;
        Self { vfs, node, who }.inside(b"bench")
    }
}

impl Directory for VfsDirectory {
    type File = File;

    fn create(&self, name: &[u8]) -> Result<(), BenchError> {
        let made = self.vfs.create(&self.who, &self.node, name, &NewObject::file(0o644));
        made.map(drop).map_err(|source| BenchError::Vfs { what: "create a file", source })
    }

    fn inside(&self, name: &[u8]) -> Result<Self, BenchError> {
        // Several workers may ask for it at once.
        let node = match self.vfs.create(&self.who, &self.node, name, &NewObject::directory(0o755)) {
            Err(Error::Exists) => self.vfs.lookup(&self.node, name),
            made => made,
        };
        let node = node.map_err(|source| BenchError::Vfs { what: "make a directory", source })?;
        Ok(Self { vfs: Arc::clone(&self.vfs), node, who: self.who.clone() })
    }

    fn unlink(&self, name: &[u8]) -> Result<(), BenchError> {
        let removed = self.vfs.unlink(&self.who, &self.node, name);
        removed.map_err(|source| BenchError::Vfs { what: "unlink a file", source })
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), BenchError> {
        let renamed = self.vfs.rename(&self.who, (&self.node, from), (&self.node, to), RenameFlags::empty());
        renamed.map_err(|source| BenchError::Vfs { what: "rename a file", source })
    }

    fn stat(&self, name: &[u8]) -> Result<(), BenchError> {
        let found = self.vfs.lookup(&self.node, name);
        let node = found.map_err(|source| BenchError::Vfs { what: "look a file up", source })?;
        std::hint::black_box(node.attr());
        Ok(())
    }

    fn list(&self) -> Result<u64, BenchError> {
        let mut found = 0;
        let listed = self.node.read_dir(DirOffset::default(), &mut |entry| {
            std::hint::black_box(entry.name);
            found += 1;
            ControlFlow::Continue(())
        });
        listed.map_err(|source| BenchError::Vfs { what: "list the files", source })?;
        Ok(found)
    }

    fn open(&self, name: &[u8], _caching: Caching) -> Result<File, BenchError> {
        // The vfs caches no data: every write goes to the device.
        let node = match self.vfs.lookup(&self.node, name) {
            Err(Error::NotFound) => self.vfs.create(&self.who, &self.node, name, &NewObject::file(0o644)),
            found => found,
        };
        let opened = node.and_then(|node| self.vfs.open_node_for_writing(&node));
        opened.map_err(|source| BenchError::Vfs { what: "open a file", source })
    }
}

impl Content for File {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), BenchError> {
        let mut done = 0;
        while done < bytes.len() {
            let written = self.write_at(offset + done as u64, &bytes[done..]);
            done += written.map_err(|source| BenchError::Vfs { what: "write to a file", source })?;
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), BenchError> {
        let synced = File::sync(self, Durable::Everything);
        synced.map_err(|source| BenchError::Vfs { what: "make a file durable", source })
    }
}

impl Resizable for File {
    fn set_size(&self, size: u64) -> Result<(), BenchError> {
        self.truncate(size).map_err(|source| BenchError::Vfs { what: "set the size of a file", source })
    }
}
