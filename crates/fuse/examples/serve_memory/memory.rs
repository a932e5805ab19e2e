//! A small read-only filesystem in memory, with one of everything that a mount has to show.
//!
//! Built once from a list of objects; nothing changes afterwards, so there are no locks. Objects may be damaged on
//! purpose. The tests of this crate mount it as well.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use undercroft_block::Device;
use undercroft_vfs::{
    Attr, Corruption, DeviceNumber, DirEntry, DirOffset, Error, Extent, FileSystem, FileType, Found,
    HashedName, Ino, Inode, InodeFlags, Limits, Mapping, Result, StatFs, Timestamp,
};

/// As on ext4, where 1 is taken by something that has no name.
const ROOT: Ino = Ino(2);

const FIRST_INO: u64 = 11;

/// A filesystem in memory.
pub(crate) struct Memory {
    objects: HashMap<Ino, Arc<Object>>,
    next_ino: u64,
}

/// One inode.
pub(crate) struct Object {
    attr: Attr,
    content: Content,
    xattrs: Vec<(&'static str, Vec<u8>)>,
}

/// What an inode holds.
pub(crate) enum Content {
    /// Names.
    Directory(Vec<(Vec<u8>, Ino)>),
    /// Another path.
    Symlink(Vec<u8>),
    /// Some bytes between two holes.
    Bytes { data: Arc<[u8]>, at: Range<u64>, size_bytes: u64 },
    /// The same piece over and over.
    Repeated { piece: Arc<[u8]>, size_bytes: u64 },
    /// Nothing: a pipe, a socket, a device.
    Special(FileType, DeviceNumber),
    /// An inode that cannot be read.
    Damaged,
    /// A file whose inode is well and whose bytes are not.
    DamagedBytes,
    /// A file that is encrypted.
    Locked,
    /// A file whose bytes cannot be read: the code that reads them panics.
    Defective,
}

impl Content {
    /// A file that holds just these bytes.
    pub(crate) fn bytes(data: &[u8]) -> Self {
        let len = data.len() as u64;
        Self::Bytes { data: data.into(), at: 0..len, size_bytes: len }
    }

    fn kind(&self) -> FileType {
        match self {
            Self::Directory(_) => FileType::Directory,
            Self::Symlink(_) => FileType::Symlink,
            Self::Special(kind, _) => *kind,
            Self::Bytes { .. } | Self::Repeated { .. } => FileType::Regular,
            Self::Damaged | Self::DamagedBytes | Self::Locked | Self::Defective => FileType::Regular,
        }
    }

    fn size_bytes(&self) -> u64 {
        match self {
            Self::Directory(names) => names.len() as u64 * 16,
            Self::Symlink(target) => target.len() as u64,
            Self::Bytes { size_bytes, .. } | Self::Repeated { size_bytes, .. } => *size_bytes,
            Self::DamagedBytes | Self::Locked | Self::Defective => 4096,
            Self::Special(..) | Self::Damaged => 0,
        }
    }
}

impl Memory {
    /// A filesystem with an empty root directory.
    pub(crate) fn new() -> Self {
        let mut memory = Self { objects: HashMap::new(), next_ino: FIRST_INO };
        memory.put(ROOT, Content::Directory(Vec::new()), 0o755);
        memory
    }

    /// The root directory.
    pub(crate) fn root(&self) -> Ino {
        ROOT
    }

    /// Adds an object under a name, and returns its number.
    pub(crate) fn add(&mut self, dir: Ino, name: &str, permissions: u16, content: Content) -> Ino {
        let ino = Ino(self.next_ino);
        self.next_ino += 1;
        self.put(ino, content, permissions);
        self.link(dir, name, ino);
        ino
    }

    /// Adds a name for whatever has, or has not, this number.
    pub(crate) fn link(&mut self, dir: Ino, name: &str, ino: Ino) {
        if let Some(object) = self.objects.get_mut(&dir).and_then(Arc::get_mut)
            && let Content::Directory(names) = &mut object.content
        {
            names.push((name.as_bytes().to_vec(), ino));
        }
    }

    /// Changes the attributes of an object.
    pub(crate) fn change(&mut self, ino: Ino, change: impl FnOnce(&mut Attr)) {
        if let Some(object) = self.objects.get_mut(&ino).and_then(Arc::get_mut) {
            change(&mut object.attr);
        }
    }

    /// Gives an object an extended attribute.
    pub(crate) fn set_xattr(&mut self, ino: Ino, name: &'static str, value: &[u8]) {
        if let Some(object) = self.objects.get_mut(&ino).and_then(Arc::get_mut) {
            object.xattrs.push((name, value.to_vec()));
        }
    }

    fn put(&mut self, ino: Ino, content: Content, permissions: u16) {
        let time = Timestamp { seconds: 1_700_000_000, nanoseconds: 123_456_789 };
        let rdev = if let Content::Special(_, device) = content { device } else { DeviceNumber::default() };
        let attr = Attr {
            ino,
            generation: 1,
            kind: content.kind(),
            permissions,
            links: if content.kind() == FileType::Directory { 2 } else { 1 },
            uid: 0,
            gid: 0,
            rdev,
            size_bytes: content.size_bytes(),
            sectors: content.size_bytes().div_ceil(512),
            block_bytes: 4096,
            accessed: time,
            modified: time,
            changed: time,
            created: Some(time),
            flags: InodeFlags::empty(),
            project: 0,
        };
        self.objects.insert(ino, Arc::new(Object { attr, content, xattrs: Vec::new() }));
    }
}

impl FileSystem for Memory {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn root(&self) -> Ino {
        ROOT
    }

    fn read_inode(&self, ino: Ino) -> Result<Arc<dyn Inode>> {
        let object = self.objects.get(&ino).ok_or(Error::Stale)?;
        if matches!(object.content, Content::Damaged) {
            return Err(damage("inode", ino));
        }
        Ok(Arc::clone(object) as Arc<dyn Inode>)
    }

    fn data_device(&self) -> Option<&Device> {
        None
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs {
            block_bytes: 4096,
            blocks: 1000,
            blocks_free: 300,
            blocks_available: 200,
            inodes: 50_000,
            inodes_free: 40_000,
            fsid: 0,
            name_max_bytes: 255,
        })
    }

    fn limits(&self) -> Limits {
        Limits { name_max_bytes: 255, file_max_bytes: 1 << 44 }
    }
}

impl Object {
    fn names(&self) -> Result<&[(Vec<u8>, Ino)]> {
        match &self.content {
            Content::Directory(names) => Ok(names),
            _ => Err(Error::NotDirectory),
        }
    }
}

impl Inode for Object {
    fn attr(&self) -> Attr {
        self.attr
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn lookup(&self, name: &HashedName<'_>) -> Result<Option<Found>> {
        match name.bytes() {
            b"." => return Ok(Some(Found::Ino(self.attr.ino))),
            b".." => return Ok(Some(Found::Ino(ROOT))),
            _ => {}
        }
        // A linear search would make a test of ten thousand names slow; they are added in rising order.
        let names = self.names()?;
        let sorted = names.binary_search_by(|(other, _)| other.as_slice().cmp(name)).ok();
        let at = sorted.or_else(|| names.iter().position(|(other, _)| **other == **name));
        Ok(at.map(|at| Found::Ino(names[at].1)))
    }

    fn read_dir(&self, from: DirOffset, sink: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> Result<()> {
        let dots = [(&b"."[..], self.attr.ino), (b"..", ROOT)];
        let names = self.names()?.iter().map(|(name, ino)| (name.as_slice(), *ino));
        for (at, (name, ino)) in dots.into_iter().chain(names).enumerate().skip(from.0 as usize) {
            let entry = DirEntry { name, ino, kind: None, next: DirOffset(at as u64 + 1) };
            if sink(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        match &self.content {
            Content::Symlink(target) => Ok(target.clone()),
            _ => Err(Error::InvalidArgument("not a symbolic link")),
        }
    }

    fn map(&self, offset: u64) -> Result<Extent> {
        match &self.content {
            Content::Bytes { at, .. } if offset < at.start => {
                Ok(Extent { start: 0, len: at.start, mapping: Mapping::Hole })
            }
            Content::Bytes { data, at, .. } if offset < at.end => Ok(Extent {
                start: at.start,
                len: at.end - at.start,
                mapping: Mapping::Inline(Arc::clone(data)),
            }),
            Content::Bytes { at, .. } => {
                Ok(Extent { start: at.end, len: u64::MAX - at.end, mapping: Mapping::Hole })
            }
            Content::Repeated { piece, .. } => {
                let len = piece.len() as u64;
                Ok(Extent { start: offset - offset % len, len, mapping: Mapping::Inline(Arc::clone(piece)) })
            }
            Content::DamagedBytes => Err(damage("extent tree node", self.attr.ino)),
            Content::Locked => Err(Error::NoKey),
            Content::Defective => panic!("a defect on purpose"),
            _ => Err(Error::InvalidArgument("only a regular file has bytes")),
        }
    }

    fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let found = self.xattrs.iter().find(|(other, _)| other.as_bytes() == name);
        Ok(found.map(|(_, value)| value.clone()))
    }

    fn list_xattrs(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self.xattrs.iter().map(|(name, _)| name.as_bytes().to_vec()).collect())
    }
}

fn damage(structure: &'static str, ino: Ino) -> Error {
    Corruption { structure, ino: Some(ino), block: Some(7), detail: "damaged on purpose".into() }.into()
}
