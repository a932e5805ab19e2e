//! What a source says about one file.

use std::ops::Range;

use undercroft_vfs::{DeviceNumber, Timestamp};

use crate::EntryPath;

/// One file of a source, or an instruction about a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is to be.
    pub path: EntryPath,
    /// What it is.
    pub kind: EntryKind,
    /// Its metadata. For a hard link it is that of the file it leads to and is not applied again; for a whiteout and an
    /// opaque directory it means nothing.
    pub metadata: Metadata,
}

impl Entry {
    /// About how much memory an entry holds.
    pub(crate) fn held_bytes(&self) -> usize {
        let kind = match &self.kind {
            EntryKind::Regular(content) => {
                content.data.as_ref().map_or(0, |data| size_of_val::<[Range<u64>]>(data))
            }
            EntryKind::Symlink(target) => target.len(),
            EntryKind::HardLink(target) => target.as_bytes().len(),
            _ => 0,
        };
        let xattrs = self.metadata.xattrs.iter();
        let xattrs: usize =
            xattrs.map(|Xattr { name, value }| size_of::<Xattr>() + name.len() + value.len()).sum();
        size_of::<Self>() + self.path.as_bytes().len() + kind + xattrs
    }
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory; one that is there already stays and gets the metadata.
    Directory,
    /// A regular file, whose content the source gives after the entry.
    Regular(Content),
    /// A symbolic link to this path, whatever its bytes.
    Symlink(Box<[u8]>),
    /// Another name of an earlier entry that is no directory.
    HardLink(EntryPath),
    /// A character device's node.
    CharDevice(DeviceNumber),
    /// A block device's node.
    BlockDevice(DeviceNumber),
    /// A named pipe.
    Fifo,
    /// A Unix socket's node.
    Socket,
    /// What earlier layers have at this path goes, with everything below it.
    Whiteout,
    /// What earlier layers have below this path goes; the directory stays.
    Opaque,
}

/// The size of a regular file, and where it has data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The file's size in bytes.
    pub size_bytes: u64,
    /// The parts that are no holes, in order, not empty, apart from each other, and within the size. `None`: all of it.
    pub data: Option<Box<[Range<u64>]>>,
}

impl Content {
    /// Content without holes.
    #[must_use]
    pub const fn whole(size_bytes: u64) -> Self {
        Self { size_bytes, data: None }
    }
}

/// The metadata of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits with set-user-ID, set-group-ID and sticky.
    pub permissions: u16,
    /// Last change of content.
    pub modified: Timestamp,
    /// Last access, where the source says it; as [`modified`](Self::modified) otherwise.
    pub accessed: Option<Timestamp>,
    /// Extended attributes. Access control lists are among them, as `getxattr` gives `system.posix_acl_access` and
    /// `system.posix_acl_default`.
    pub xattrs: Vec<Xattr>,
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// Full name: `user.note`.
    pub name: Box<[u8]>,
    /// Value.
    pub value: Box<[u8]>,
}
