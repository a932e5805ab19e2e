//! The filesystem as the vfs sees it.

use std::fmt;
use std::sync::Arc;

use undercroft_block::Device;
use undercroft_vfs::clock::Coarse;
use undercroft_vfs::{
    Announce, Error, FileSystem, Ino, Inode, Limits, NewInode, NewKind, Node, Result, StatFs,
};

use crate::budget::{STRIPES, UNLIMITED};
use crate::inode::TmpInode;
use crate::options::{PAGE_BYTES, TmpfsOptions};
use crate::shared::{Home, ROOT, Shared};

/// Largest file, as Linux's tmpfs has it.
const FILE_MAX_BYTES: u64 = i64::MAX as u64;

const NAME_MAX_BYTES: u32 = 255;

/// A filesystem in memory. Everything in it goes when it is dropped.
pub struct Tmpfs {
    homes: [Arc<Home>; STRIPES],
}

impl fmt::Debug for Tmpfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pages, inodes) = (self.home().pages(), self.home().inodes());
        let limit = |limit| (limit != UNLIMITED).then_some(limit);
        f.debug_struct("Tmpfs")
            .field("pages", &limit(pages.limit()))
            .field("inodes", &limit(inodes.limit()))
            .finish_non_exhaustive()
    }
}

impl Tmpfs {
    /// An empty filesystem.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace) when the options leave no inode for the root directory.
    pub fn new(options: &TmpfsOptions) -> Result<Arc<Self>> {
        let homes = Shared::homes(options);
        let new = NewInode {
            kind: NewKind::Directory,
            permissions: options.mode,
            uid: options.uid,
            gid: options.gid,
            xattrs: &[],
            announce: Announce::default(),
        };
        let root = TmpInode::make(Arc::clone(&homes[0]), &new, None, Coarse::now())?;
        root.inode_as::<TmpInode>()?.set_links(2);
        homes[0].name(&root);
        Ok(Arc::new(Self { homes }))
    }

    fn home(&self) -> &Home {
        &self.homes[0]
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // The inodes own their homes, and through them the table that owns the inodes.
        self.home().clear();
    }
}

impl FileSystem for Tmpfs {
    fn kind(&self) -> &'static str {
        "tmpfs"
    }

    fn root(&self) -> Ino {
        ROOT
    }

    fn read_inode(&self, _ino: Ino) -> Result<Arc<dyn Inode>> {
        // Never asked: its nodes are kept.
        Err(Error::Stale)
    }

    fn data_device(&self) -> Option<&Device> {
        None
    }

    fn statfs(&self) -> Result<StatFs> {
        let (pages, inodes) = (self.home().pages(), self.home().inodes());
        let shown = |limit: u64, number: u64| if limit == UNLIMITED { 0 } else { number };
        let (pages_left, inodes_left) = (pages.left(), inodes.left());
        Ok(StatFs {
            block_bytes: PAGE_BYTES as u32,
            blocks: shown(pages.limit(), pages.limit()),
            blocks_free: shown(pages.limit(), pages_left),
            blocks_available: shown(pages.limit(), pages_left),
            inodes: shown(inodes.limit(), inodes.limit()),
            inodes_free: shown(inodes.limit(), inodes_left),
            fsid: 0,
            name_max_bytes: NAME_MAX_BYTES,
        })
    }

    fn limits(&self) -> Limits {
        Limits { name_max_bytes: NAME_MAX_BYTES, file_max_bytes: FILE_MAX_BYTES }
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn keeps_nodes(&self) -> bool {
        true
    }

    fn kept_node(&self, ino: Ino) -> Result<Arc<Node>> {
        self.home().find(ino).ok_or(Error::Stale)
    }
}
