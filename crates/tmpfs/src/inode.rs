//! An inode: attributes, extended attributes, and what its kind has besides.
//!
//! It lives while it has a name, through the table of numbers, or while its node is held. When it goes, its pages and
//! its place among the inodes are given back.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use undercroft_sync::{RwLock, order};
use undercroft_vfs::clock::Coarse;
use undercroft_vfs::{
    Attr, AttrChange, DeviceNumber, DirEntry, DirOffset, Durable, Error, Extent, FallocateMode, FileType,
    Found, HashedName, Ino, Inode, InodeFlags, NewInode, NewKind, Node, Ownership, Result, WriteKind,
    XattrMode,
};

use crate::contents::Contents;
use crate::directory::Directory;
use crate::meta::Meta;
use crate::options::PAGE_BYTES;
use crate::shared::Home;

pub(crate) struct TmpInode {
    ino: Ino,
    home: Arc<Home>,
    /// Number of names; or [`LINKABLE`].
    links: AtomicU32,
    /// Is in the table of numbers without having a name.
    known_unnamed: AtomicBool,
    meta: Meta,
    body: Body,
    /// Made when the first one is set.
    xattrs: OnceLock<Box<RwLock<Xattrs>>>,
}

/// By full name.
type Xattrs = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// The count of links of a file that was made without a name and may get its first.
const LINKABLE: u32 = 1 << 31;

/// More names than any program makes; the count must not reach [`LINKABLE`].
const LINKS_MAX: u32 = LINKABLE - 1;

/// Bytes of all extended attributes of an inode, as Linux bounds one value.
const XATTRS_MAX_BYTES: usize = 1 << 20;

/// What a kind of inode has besides.
pub(crate) enum Body {
    Regular { size: AtomicU64, contents: Contents },
    Directory(Box<Directory>),
    Symlink(Box<[u8]>),
    Special(FileType, DeviceNumber),
}

impl TmpInode {
    /// Makes an inode without a name, which is in no table yet. It takes a place among the inodes.
    pub(crate) fn make(
        home: Arc<Home>,
        new: &NewInode<'_>,
        parent: Option<Ino>,
        moment: Coarse,
    ) -> Result<Arc<Node>> {
        let ino = match parent {
            Some(_) => home.fresh_number(),
            None => crate::shared::ROOT,
        };
        let body = match new.kind {
            NewKind::Regular => Body::Regular { size: AtomicU64::new(0), contents: Contents::new() },
            NewKind::Directory => Body::Directory(Box::new(Directory::new(parent.unwrap_or(ino)))),
            NewKind::Symlink(target) => Body::Symlink(target.into()),
            NewKind::Fifo => Body::Special(FileType::Fifo, DeviceNumber::default()),
            NewKind::Socket => Body::Special(FileType::Socket, DeviceNumber::default()),
            NewKind::CharDevice(number) => Body::Special(FileType::CharDevice, number),
            NewKind::BlockDevice(number) => Body::Special(FileType::BlockDevice, number),
        };
        if !home.inodes().take(1) {
            return Err(Error::NoSpace);
        }
        let xattrs = if new.xattrs.is_empty() {
            OnceLock::new()
        } else {
            let xattrs = new.xattrs.iter().map(|&(name, value)| (name.into(), value.into())).collect();
            OnceLock::from(Box::new(RwLock::new(&order::XATTRS, xattrs)))
        };
        // Nowhere but in the call, so that it need not be copied to where it will lie.
        let inode = || Self {
            ino,
            home,
            links: AtomicU32::new(0),
            known_unnamed: AtomicBool::new(false),
            meta: Meta::new(new.permissions, new.uid, new.gid, moment),
            body,
            xattrs,
        };
        Ok(Node::kept(ino, new.kind.file_type(), inode))
    }

    pub(crate) fn ino(&self) -> Ino {
        self.ino
    }

    pub(crate) fn home(&self) -> &Arc<Home> {
        &self.home
    }

    pub(crate) fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The names, if it is a directory.
    pub(crate) fn directory(&self) -> Result<&Directory> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }

    /// Sets the count of an inode that is not reachable yet.
    pub(crate) fn set_links(&self, links: u32) {
        self.links.store(links, Ordering::Relaxed);
    }

    /// May get its first name later.
    pub(crate) fn make_linkable(&self) {
        self.links.store(LINKABLE, Ordering::Relaxed);
    }

    /// Is found by number until it is gone, though it has no name.
    pub(crate) fn stay_known(&self) {
        self.known_unnamed.store(true, Ordering::Relaxed);
    }

    /// One name more. Tells whether it is the first.
    pub(crate) fn add_link(&self) -> Result<bool> {
        let mut links = self.links.load(Ordering::Relaxed);
        loop {
            let more = match links {
                0 => return Err(Error::NotFound),
                LINKABLE => 1,
                LINKS_MAX => return Err(Error::TooManyLinks),
                _ => links + 1,
            };
            match self.links.compare_exchange(links, more, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(links == LINKABLE),
                Err(other) => links = other,
            }
        }
    }

    /// One name less. Tells whether it was the last.
    pub(crate) fn drop_link(&self) -> bool {
        self.links.fetch_sub(1, Ordering::Relaxed) == 1
    }

    fn regular(&self) -> Result<(&AtomicU64, &Contents)> {
        match &self.body {
            Body::Regular { size, contents } => Ok((size, contents)),
            Body::Directory(_) => Err(Error::IsDirectory),
            Body::Symlink(_) | Body::Special(..) => {
                Err(Error::InvalidArgument("only a regular file has bytes"))
            }
        }
    }

    fn kind(&self) -> FileType {
        match &self.body {
            Body::Regular { .. } => FileType::Regular,
            Body::Directory(_) => FileType::Directory,
            Body::Symlink(_) => FileType::Symlink,
            Body::Special(kind, _) => *kind,
        }
    }
}

impl Drop for TmpInode {
    fn drop(&mut self) {
        if let Body::Regular { contents, .. } = &mut self.body {
            contents.clear(self.home.pages());
        }
        self.home.inodes().give(1);
        if *self.known_unnamed.get_mut() {
            self.home.forget(self.ino);
        }
    }
}

impl Inode for TmpInode {
    fn attr(&self) -> Attr {
        let set = self.meta.read();
        let sectors = match &self.body {
            Body::Regular { contents, .. } => contents.pages() * (PAGE_BYTES / 512),
            _ => 0,
        };
        let rdev = match self.body {
            Body::Special(_, number) => number,
            _ => DeviceNumber::default(),
        };
        Attr {
            ino: self.ino,
            // A number is never used again.
            generation: 0,
            kind: self.kind(),
            permissions: set.permissions,
            links: self.links.load(Ordering::Relaxed) & !LINKABLE,
            uid: set.uid,
            gid: set.gid,
            rdev,
            size_bytes: self.size_bytes(),
            sectors,
            block_bytes: PAGE_BYTES as u32,
            accessed: set.accessed,
            modified: set.modified,
            changed: set.changed,
            created: Some(set.created.timestamp()),
            flags: set.flags,
            project: set.project,
        }
    }

    fn ownership(&self) -> Ownership {
        self.meta.ownership(self.kind())
    }

    fn size_bytes(&self) -> u64 {
        match &self.body {
            Body::Regular { size, .. } => size.load(Ordering::Acquire),
            Body::Directory(_) => PAGE_BYTES,
            Body::Symlink(target) => target.len() as u64,
            Body::Special(..) => 0,
        }
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn lookup(&self, name: &HashedName<'_>) -> Result<Option<Found>> {
        crate::directory::lookup(self, name)
    }

    fn expect_name(&self, name: &HashedName<'_>) {
        crate::directory::expect_name(self, name);
    }

    fn read_dir(&self, from: DirOffset, sink: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> Result<()> {
        crate::directory::read_dir(self, from, sink)
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        match &self.body {
            Body::Symlink(target) => Ok(target.to_vec()),
            _ => Err(Error::InvalidArgument("not a symbolic link")),
        }
    }

    fn map(&self, offset: u64) -> Result<Extent> {
        Ok(self.regular()?.1.map(offset))
    }

    fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(xattrs) = self.xattrs.get() else { return Ok(None) };
        Ok(xattrs.read().get(name).map(|value| value.to_vec()))
    }

    fn list_xattrs(&self) -> Result<Vec<Vec<u8>>> {
        let Some(xattrs) = self.xattrs.get() else { return Ok(Vec::new()) };
        Ok(xattrs.read().keys().map(|name| name.to_vec()).collect())
    }

    fn make_ahead(&self, new: &NewInode<'_>) -> Option<Arc<Node>> {
        crate::directory::make(self, new).ok()
    }

    fn create(&self, name: &HashedName<'_>, new: &NewInode<'_>, made: Option<Arc<Node>>) -> Result<Found> {
        crate::directory::create(self, name, new, made).map(Found::Node)
    }

    fn tmpfile(&self, new: &NewInode<'_>) -> Result<Found> {
        crate::directory::tmpfile(self, new).map(Found::Node)
    }

    fn link(&self, name: &HashedName<'_>, node: &Arc<Node>) -> Result<()> {
        crate::directory::link(self, name, node)
    }

    fn unlink(&self, name: &HashedName<'_>, victim: &Arc<Node>) -> Result<()> {
        crate::directory::unlink(self, name, victim)
    }

    fn rename(
        &self,
        name: &HashedName<'_>,
        moved: &Arc<Node>,
        to: &Node,
        to_name: &HashedName<'_>,
        replaced: Option<&Arc<Node>>,
        whiteout: Option<&NewInode<'_>>,
    ) -> Result<()> {
        crate::directory::rename(self, name, moved, to.inode_as()?, to_name, replaced, whiteout)
    }

    fn exchange(
        &self,
        name: &HashedName<'_>,
        one: &Arc<Node>,
        to: &Node,
        to_name: &HashedName<'_>,
        other: &Arc<Node>,
    ) -> Result<()> {
        crate::directory::exchange(self, name, one, to.inode_as()?, to_name, other)
    }

    fn leave_times_to_cache(&self) {
        self.meta.leave_times_to_cache();
    }

    fn set_attr(&self, change: &AttrChange) -> Result<()> {
        if change.flags.is_some_and(|flags| !KEPT_FLAGS.contains(flags)) {
            return Err(Error::Unsupported("a flag that tmpfs does not keep".into()));
        }
        self.meta.change(change);
        Ok(())
    }

    fn set_xattr(
        &self,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
        attributes: &AttrChange,
    ) -> Result<()> {
        let xattrs = self.xattrs.get_or_init(|| Box::new(RwLock::new(&order::XATTRS, Xattrs::new())));
        {
            let mut xattrs = xattrs.write();
            match (value, mode, xattrs.contains_key(name)) {
                (_, XattrMode::Create, true) => return Err(Error::Exists),
                (_, XattrMode::Replace, false) | (None, _, false) => return Err(Error::NoAttribute),
                (None, ..) => {
                    xattrs.remove(name);
                }
                (Some(value), ..) => {
                    let others = xattrs.iter().filter(|(other, _)| other[..] != *name);
                    let bytes: usize = others.map(|(name, value)| name.len() + value.len()).sum();
                    if bytes + name.len() + value.len() > XATTRS_MAX_BYTES {
                        return Err(Error::NoSpace);
                    }
                    xattrs.insert(name.into(), value.into());
                }
            }
        }
        self.meta.change(attributes);
        Ok(())
    }

    fn prepare_write(&self, offset: u64, len: u64) -> Result<Extent> {
        let prepared = self.regular()?.1.prepare(offset, len, self.home.pages())?;
        Ok(Extent { start: offset, len: prepared, mapping: undercroft_vfs::Mapping::Kept })
    }

    fn finish_write(&self, _offset: u64, _len: u64, size: u64, _written: WriteKind) -> Result<()> {
        // Release: a reader that sees the size sees the bytes.
        self.regular()?.0.fetch_max(size, Ordering::Release);
        self.meta.touch_content(Coarse::now());
        Ok(())
    }

    fn read_kept(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.regular()?.1.read(offset, buf);
        Ok(())
    }

    fn write_kept(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.regular()?.1.write(offset, data)
    }

    fn set_size(&self, new: u64) -> Result<()> {
        let (size, contents) = self.regular()?;
        if size.swap(new, Ordering::AcqRel) > new {
            contents.truncate(new, self.home.pages());
        }
        self.meta.touch_content(Coarse::now());
        Ok(())
    }

    fn fallocate(&self, mode: FallocateMode, offset: u64, len: u64, new_size: u64) -> Result<()> {
        let (size, contents) = self.regular()?;
        let pages = self.home.pages();
        match mode {
            FallocateMode::Allocate => contents.allocate(offset, len, pages)?,
            FallocateMode::PunchHole => contents.punch(offset, len, pages),
            FallocateMode::Zero => contents.zero(offset, len, pages)?,
            FallocateMode::Collapse => {
                contents.collapse(offset, len, pages)?;
                size.fetch_sub(len, Ordering::AcqRel);
            }
            FallocateMode::Insert => {
                contents.insert(offset, len)?;
                size.fetch_add(len, Ordering::AcqRel);
            }
        }
        if !matches!(mode, FallocateMode::Collapse) {
            size.fetch_max(new_size, Ordering::AcqRel);
        }
        self.meta.touch_content(Coarse::now());
        Ok(())
    }

    fn sync(&self, _what: Durable) -> Result<()> {
        // Memory is as durable as it gets.
        Ok(())
    }
}

/// Flags that a tmpfs keeps, as Linux's does.
pub(crate) const KEPT_FLAGS: InodeFlags =
    InodeFlags::IMMUTABLE.union(InodeFlags::APPEND).union(InodeFlags::NODUMP).union(InodeFlags::NOATIME);
