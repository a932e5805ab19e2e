//! The vfs contract in terms of this crate, for an in-memory inode.

use std::ops::ControlFlow;
use std::sync::Arc;

use undercroft_vfs::{
    Attr, AttrChange, DirEntry, DirOffset, Durable, Error, Extent, ExtentSizeHints, FallocateMode, FileType,
    Found, HashedName, Inode as VfsInode, NewInode, Node, Ownership, Result, WriteKind, XattrMode,
};

use super::{Live, attributes, content, names, owner, release};
use crate::da::Layout;
use crate::inode::Inode;
use crate::{attr, dir, symlink};

/// The least preferred size of I/O that Linux reports: a page.
const PAGE_BYTES: u32 = 4096;

impl Live {
    /// Passes on the outcome of a change, after a commit if the filesystem is mounted with `sync`.
    #[inline]
    fn synced<T>(&self, outcome: Result<T>) -> Result<T> {
        if outcome.is_ok()
            && let Ok(writer) = self.volume.writer()
            && writer.options.synchronous
        {
            writer.transactions.commit(writer.transactions.running())?;
        }
        outcome
    }

    /// The outcome of a change of names, which may need blocks, as for [`synced`](Self::synced).
    fn synced_with_space<T>(&self, change: impl FnMut() -> Result<T>) -> Result<T> {
        self.synced(content::retry_when_full(self, change))
    }
}

impl VfsInode for Live {
    fn attr(&self) -> Attr {
        self.times.note_seen();
        let inode = &*self.fields.read();
        let Inode { ino, core, .. } = inode;
        let block_bytes = self.volume.geometry().block_bytes();
        Attr {
            ino: *ino,
            generation: core.generation,
            kind: core.kind,
            permissions: core.permissions,
            links: core.links,
            uid: core.uid,
            gid: core.gid,
            rdev: inode.device_number(),
            size_bytes: core.size_bytes,
            sectors: core.blocks.saturating_mul(u64::from(block_bytes / 512)),
            block_bytes: match core.kind {
                FileType::CharDevice | FileType::BlockDevice => PAGE_BYTES,
                _ => block_bytes.max(PAGE_BYTES),
            },
            accessed: core.accessed,
            modified: core.modified,
            changed: core.changed,
            created: core.created,
            flags: owner::shown_flags(core.flags, core.flags2),
            project: core.project,
        }
    }

    fn extent_size_hints(&self) -> ExtentSizeHints {
        self.permissions_cache.extent_size_hints(self.volume.geometry().block_log())
    }

    fn extent_count(&self) -> u64 {
        self.fields.read().core.data_extents
    }

    fn ownership(&self) -> Ownership {
        self.permissions_cache.ownership(self.kind)
    }

    fn size_bytes(&self) -> u64 {
        if self.kind == FileType::Regular {
            return content::size(self);
        }
        self.fields.read().core.size_bytes
    }

    fn links(&self) -> u32 {
        self.fields.read().core.links
    }

    fn leave_times_to_cache(&self) {
        self.times.leave_to_cache();
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() - size_of::<Inode>() + self.fields.read().memory_bytes()
    }

    fn lookup(&self, name: &HashedName<'_>) -> Result<Option<Found>> {
        Ok(dir::lookup_live(self, name.bytes())?.map(Found::Ino))
    }

    fn read_dir(&self, from: DirOffset, sink: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> Result<()> {
        dir::read_dir_live(self, from, sink)
    }

    fn read_dir_behind(&self, from: DirOffset) -> Option<DirOffset> {
        dir::behind_live(self, from)
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        if self.kind != FileType::Symlink {
            return Err(Error::InvalidArgument("not a symbolic link"));
        }
        let layout = &Layout::of(self.volume.superblock());
        let (data, size_bytes) = {
            let inode = self.fields.read();
            (inode.data.clone(), inode.core.size_bytes)
        };
        self.with_content(&data, "symbolic link", |content| {
            symlink::read(self.ino, layout, content, size_bytes)
        })
    }

    fn map(&self, offset: u64) -> Result<Extent> {
        content::map(self, offset)
    }

    fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.with_attributes(|attributes| attr::get(attributes, name))?.flatten())
    }

    fn list_xattrs(&self) -> Result<Vec<Vec<u8>>> {
        Ok(self.with_attributes(attr::list)?.unwrap_or_default())
    }

    fn create(&self, name: &HashedName<'_>, new: &NewInode<'_>, _: Option<Arc<Node>>) -> Result<Found> {
        self.synced_with_space(|| names::create(self, name, new))
    }

    fn tmpfile(&self, new: &NewInode<'_>) -> Result<Found> {
        self.synced_with_space(|| names::tmpfile(self, new))
    }

    fn link(&self, name: &HashedName<'_>, node: &Arc<Node>) -> Result<()> {
        self.synced_with_space(|| names::link(self, name, node))
    }

    fn unlink(&self, name: &HashedName<'_>, victim: &Arc<Node>) -> Result<()> {
        self.synced(names::unlink(self, name, victim))
    }

    fn unlink_unused(&self, name: &HashedName<'_>, victim: &Arc<Node>) -> Result<()> {
        self.synced(names::unlink_unused(self, name, victim))
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
        self.synced_with_space(|| names::rename(self, name, moved, to, to_name, replaced, whiteout))
    }

    fn exchange(
        &self,
        name: &HashedName<'_>,
        one: &Arc<Node>,
        to: &Node,
        to_name: &HashedName<'_>,
        other: &Arc<Node>,
    ) -> Result<()> {
        self.synced(names::exchange(self, name, one, to, to_name, other))
    }

    fn set_attr(&self, change: &AttrChange) -> Result<()> {
        self.synced(attributes::set_attr(self, change))
    }

    fn set_xattr(
        &self,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
        attributes: &AttrChange,
    ) -> Result<()> {
        self.synced_with_space(|| attributes::set_xattr(self, name, value, mode, attributes))
    }

    fn prepare_write(&self, offset: u64, len: u64) -> Result<Extent> {
        content::prepare_write(self, offset, len)
    }

    fn written_at(&self, offset: u64, len: u64) -> Option<u64> {
        content::written_at(self, offset, len)
    }

    fn check_changes(&self) -> Result<()> {
        self.volume.writer()?.transactions.check()
    }

    fn finish_write(&self, offset: u64, len: u64, size: u64, written: WriteKind) -> Result<()> {
        let writer = self.volume.writer()?;
        // An overwrite starts no handle, so an abort has to be checked for here.
        writer.transactions.check()?;
        if written == WriteKind::Overwrite && content::is_noted(self, writer, size) {
            return Ok(());
        }
        self.synced(content::finish_write(self, offset, len, size, written))
    }

    fn cancel_write(&self, _: u64, _: u64) {
        content::cancel_write(self);
    }

    fn set_size(&self, size: u64) -> Result<()> {
        self.synced(content::set_size(self, size))
    }

    fn fallocate(&self, mode: FallocateMode, offset: u64, len: u64, size: u64) -> Result<()> {
        self.synced(content::fallocate(self, mode, offset, len, size))
    }

    fn shares_blocks(&self) -> bool {
        content::shares_blocks(self)
    }

    fn clone_range(&self, source: &Node, from: u64, offset: u64, len: u64) -> Result<u64> {
        self.synced(content::clone_range(self, source.inode_as()?, from, offset, len))
    }

    fn sync(&self, what: Durable) -> Result<()> {
        content::sync(self, what)
    }

    fn release(self: Arc<Self>) {
        release::release(&self);
    }
}
