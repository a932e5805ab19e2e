//! An inode in the inode cache: the filesystem's inode, and the removal of its number from the cache's table.
//!
//! Passes every call on: a method of [`Inode`] that is not passed on fails clippy, also one with a default. It is there
//! because a node's inode is the last thing in its memory, and the number must be free again only after the inode has
//! been dropped.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::inode_cache::Departure;
use crate::{
    Attr, AttrChange, DirEntry, DirOffset, Durable, Extent, ExtentSizeHints, FallocateMode, Found,
    HashedName, Inode, NewInode, Node, Ownership, Result, WriteKind, XattrMode,
};

pub(crate) struct CachedInode {
    inode: Arc<dyn Inode>,
    /// Last, since fields are dropped in this order.
    _departure: Departure,
}

impl CachedInode {
    pub(crate) fn new(inode: Arc<dyn Inode>, departure: Departure) -> Self {
        Self { inode, _departure: departure }
    }

    pub(crate) fn inode(&self) -> &dyn Inode {
        &*self.inode
    }
}

impl Drop for CachedInode {
    fn drop(&mut self) {
        Arc::clone(&self.inode).release();
    }
}

#[deny(clippy::missing_trait_methods, reason = "what has a default is passed on as well")]
impl Inode for CachedInode {
    fn attr(&self) -> Attr {
        self.inode.attr()
    }

    fn extent_size_hints(&self) -> ExtentSizeHints {
        self.inode.extent_size_hints()
    }

    fn extent_count(&self) -> u64 {
        self.inode.extent_count()
    }

    fn ownership(&self) -> Ownership {
        self.inode.ownership()
    }

    fn size_bytes(&self) -> u64 {
        self.inode.size_bytes()
    }

    fn links(&self) -> u32 {
        self.inode.links()
    }

    /// Done by dropping, when the last user of this one has gone.
    fn release(self: Arc<Self>) {}

    fn leave_times_to_cache(&self) {
        self.inode.leave_times_to_cache();
    }

    fn memory_bytes(&self) -> usize {
        self.inode.memory_bytes()
    }

    fn lookup(&self, name: &HashedName<'_>) -> Result<Option<Found>> {
        self.inode.lookup(name)
    }

    fn expect_name(&self, name: &HashedName<'_>) {
        self.inode.expect_name(name);
    }

    fn read_dir(&self, from: DirOffset, sink: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> Result<()> {
        self.inode.read_dir(from, sink)
    }

    fn read_dir_behind(&self, from: DirOffset) -> Option<DirOffset> {
        self.inode.read_dir_behind(from)
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        self.inode.read_link()
    }

    fn map(&self, offset: u64) -> Result<Extent> {
        self.inode.map(offset)
    }

    fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inode.xattr(name)
    }

    fn list_xattrs(&self) -> Result<Vec<Vec<u8>>> {
        self.inode.list_xattrs()
    }

    fn make_ahead(&self, new: &NewInode<'_>) -> Option<Arc<Node>> {
        self.inode.make_ahead(new)
    }

    fn create(&self, name: &HashedName<'_>, new: &NewInode<'_>, made: Option<Arc<Node>>) -> Result<Found> {
        self.inode.create(name, new, made)
    }

    fn tmpfile(&self, new: &NewInode<'_>) -> Result<Found> {
        self.inode.tmpfile(new)
    }

    fn link(&self, name: &HashedName<'_>, node: &Arc<Node>) -> Result<()> {
        self.inode.link(name, node)
    }

    fn unlink(&self, name: &HashedName<'_>, victim: &Arc<Node>) -> Result<()> {
        self.inode.unlink(name, victim)
    }

    fn unlink_unused(&self, name: &HashedName<'_>, victim: &Arc<Node>) -> Result<()> {
        self.inode.unlink_unused(name, victim)
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
        self.inode.rename(name, moved, to, to_name, replaced, whiteout)
    }

    fn exchange(
        &self,
        name: &HashedName<'_>,
        one: &Arc<Node>,
        to: &Node,
        to_name: &HashedName<'_>,
        other: &Arc<Node>,
    ) -> Result<()> {
        self.inode.exchange(name, one, to, to_name, other)
    }

    fn set_attr(&self, change: &AttrChange) -> Result<()> {
        self.inode.set_attr(change)
    }

    fn set_xattr(
        &self,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
        attributes: &AttrChange,
    ) -> Result<()> {
        self.inode.set_xattr(name, value, mode, attributes)
    }

    fn prepare_write(&self, offset: u64, len: u64) -> Result<Extent> {
        self.inode.prepare_write(offset, len)
    }

    fn written_at(&self, offset: u64, len: u64) -> Option<u64> {
        self.inode.written_at(offset, len)
    }

    fn check_changes(&self) -> Result<()> {
        self.inode.check_changes()
    }

    fn finish_write(&self, offset: u64, len: u64, size: u64, written: WriteKind) -> Result<()> {
        self.inode.finish_write(offset, len, size, written)
    }

    fn cancel_write(&self, offset: u64, len: u64) {
        self.inode.cancel_write(offset, len);
    }

    fn read_kept(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inode.read_kept(offset, buf)
    }

    fn write_kept(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.inode.write_kept(offset, data)
    }

    fn set_size(&self, size: u64) -> Result<()> {
        self.inode.set_size(size)
    }

    fn fallocate(&self, mode: FallocateMode, offset: u64, len: u64, size: u64) -> Result<()> {
        self.inode.fallocate(mode, offset, len, size)
    }

    fn shares_blocks(&self) -> bool {
        self.inode.shares_blocks()
    }

    fn clone_range(&self, source: &Node, from: u64, offset: u64, len: u64) -> Result<u64> {
        self.inode.clone_range(source, from, offset, len)
    }

    fn sync(&self, what: Durable) -> Result<()> {
        self.inode.sync(what)
    }
}
