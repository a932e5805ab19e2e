//! A filesystem of one inode in memory, which records the changes that were requested: for this module's tests.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use undercroft_block::Device;
use undercroft_sync::{Mutex, order};

use crate::{
    Attr, AttrChange, Credentials, DeviceNumber, DirEntry, DirOffset, Error, Extent, FileSystem, FileType,
    Found, HashedName, Ino, Inode, InodeFlags, Limits, Node, Result, StatFs, Timestamp, Vfs, VfsOptions,
    XattrMode,
};

const INO: Ino = Ino(9);

/// The inode under test, mounted.
pub(super) struct Subject {
    pub(super) vfs: Arc<Vfs>,
    pub(super) node: Arc<Node>,
    pub(super) inode: Arc<Recorder>,
}

impl Subject {
    pub(super) fn new(kind: FileType, permissions: u16, uid: u32, gid: u32) -> Self {
        Self::mounted(kind, permissions, uid, gid, false)
    }

    pub(super) fn read_only() -> Self {
        Self::mounted(FileType::Regular, 0o644, 7, 9, true)
    }

    fn mounted(kind: FileType, permissions: u16, uid: u32, gid: u32, read_only: bool) -> Self {
        let inode = Arc::new(Recorder::new(kind, permissions, uid, gid));
        let fs = RecorderFs { inode: Arc::clone(&inode), read_only };
        let vfs = Vfs::new(Arc::new(fs), VfsOptions::default());
        let node = vfs.node(INO).unwrap();
        Self { vfs, node, inode }
    }

    /// The same with flags.
    pub(super) fn flagged(self, flags: InodeFlags) -> Self {
        self.inode.state.lock().attr.flags = flags;
        self
    }

    /// The same with an attribute.
    pub(super) fn with_xattr(self, name: &[u8], value: &[u8]) -> Self {
        self.inode.state.lock().xattrs.insert(name.to_vec(), value.to_vec());
        self
    }

    pub(super) fn set_attr(&self, caller: &Credentials, change: AttrChange) -> String {
        outcome(self.vfs.set_attr(caller, &self.node, &change))
    }

    pub(super) fn set_xattr(&self, caller: &Credentials, name: &[u8], value: &[u8]) -> String {
        outcome(self.vfs.set_xattr(caller, &self.node, name, value, XattrMode::Set))
    }

    pub(super) fn remove_xattr(&self, caller: &Credentials, name: &[u8]) -> String {
        outcome(self.vfs.remove_xattr(caller, &self.node, name))
    }

    pub(super) fn permissions(&self) -> u16 {
        self.node.attr().permissions
    }

    pub(super) fn stored(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.inode.state.lock().xattrs.get(name).cloned()
    }

    /// What the filesystem was asked to change since the last call.
    pub(super) fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.inode.state.lock().calls)
    }
}

/// The kind of answer, without its words.
pub(super) fn outcome<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => "ok".into(),
        Err(error) => format!("{error:?}").split('(').next().unwrap_or_default().into(),
    }
}

/// A change that the filesystem was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Attr(AttrChange),
    Xattr { name: Vec<u8>, value: Option<Vec<u8>>, attributes: AttrChange },
}

pub(super) struct Recorder {
    state: Mutex<State>,
}

struct State {
    attr: Attr,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    calls: Vec<Call>,
    /// Called after the next attribute has been read and before it is returned.
    while_reading: Option<Box<dyn FnOnce() + Send>>,
    /// Changes are made, and reported as failures.
    failing: bool,
}

impl Recorder {
    fn new(kind: FileType, permissions: u16, uid: u32, gid: u32) -> Self {
        let attr = Attr {
            ino: INO,
            generation: 0,
            kind,
            permissions,
            links: 1,
            uid,
            gid,
            rdev: DeviceNumber::default(),
            size_bytes: 0,
            sectors: 0,
            block_bytes: 4096,
            accessed: Timestamp::default(),
            modified: Timestamp::default(),
            changed: Timestamp::default(),
            created: None,
            flags: InodeFlags::empty(),
            project: 0,
        };
        let state =
            State { attr, xattrs: BTreeMap::new(), calls: Vec::new(), while_reading: None, failing: false };
        Self { state: Mutex::new(&order::COLLECTED, state) }
    }

    /// Does something once, between the next reading of an attribute and the answer.
    pub(super) fn while_reading(&self, something: impl FnOnce() + Send + 'static) {
        self.state.lock().while_reading = Some(Box::new(something));
    }

    pub(super) fn set_failing(&self) {
        self.state.lock().failing = true;
    }
}

impl State {
    fn apply(&mut self, change: &AttrChange) {
        self.attr.permissions = change.permissions.unwrap_or(self.attr.permissions);
        self.attr.uid = change.uid.unwrap_or(self.attr.uid);
        self.attr.gid = change.gid.unwrap_or(self.attr.gid);
        self.attr.flags = change.flags.unwrap_or(self.attr.flags);
        self.attr.project = change.project.unwrap_or(self.attr.project);
    }

    fn answer(&self) -> Result<()> {
        if self.failing { Err(Error::NoSpace) } else { Ok(()) }
    }
}

impl Inode for Recorder {
    fn attr(&self) -> Attr {
        self.state.lock().attr
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn lookup(&self, _name: &HashedName<'_>) -> Result<Option<Found>> {
        Ok(None)
    }

    fn read_dir(&self, _: DirOffset, _: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> Result<()> {
        Ok(())
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        Ok(b"elsewhere".to_vec())
    }

    fn map(&self, _offset: u64) -> Result<Extent> {
        Err(Error::InvalidArgument("it has no bytes"))
    }

    fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let (value, while_reading) = {
            let mut state = self.state.lock();
            (state.xattrs.get(name).cloned(), state.while_reading.take())
        };
        if let Some(something) = while_reading {
            something();
        }
        Ok(value)
    }

    fn list_xattrs(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self.state.lock().xattrs.keys().cloned().collect())
    }

    fn set_attr(&self, change: &AttrChange) -> Result<()> {
        let mut state = self.state.lock();
        state.calls.push(Call::Attr(*change));
        state.apply(change);
        state.answer()
    }

    fn set_xattr(
        &self,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
        attributes: &AttrChange,
    ) -> Result<()> {
        let mut state = self.state.lock();
        match (mode, state.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(Error::Exists),
            (XattrMode::Replace, false) => return Err(Error::NoAttribute),
            (XattrMode::Set, false) if value.is_none() => return Err(Error::NoAttribute),
            _ => {}
        }
        let value = value.map(<[u8]>::to_vec);
        state.calls.push(Call::Xattr { name: name.to_vec(), value: value.clone(), attributes: *attributes });
        match value {
            Some(value) => drop(state.xattrs.insert(name.to_vec(), value)),
            None => drop(state.xattrs.remove(name)),
        }
        state.apply(attributes);
        state.answer()
    }
}

struct RecorderFs {
    inode: Arc<Recorder>,
    read_only: bool,
}

impl FileSystem for RecorderFs {
    fn kind(&self) -> &'static str {
        "recorder"
    }

    fn root(&self) -> Ino {
        INO
    }

    fn read_inode(&self, _ino: Ino) -> Result<Arc<dyn Inode>> {
        Ok(self.inode.clone())
    }

    fn data_device(&self) -> Option<&Device> {
        None
    }

    fn statfs(&self) -> Result<StatFs> {
        Err(Error::Unsupported("statfs of one inode".into()))
    }

    fn limits(&self) -> Limits {
        Limits { name_max_bytes: 255, file_max_bytes: u64::MAX }
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }
}
