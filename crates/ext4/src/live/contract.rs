//! The vfs contract in terms of this crate, for an in-memory inode.

use std::ops::ControlFlow;
use std::sync::Arc;

use undercroft_vfs::{
    Attr, AttrChange, DirEntry, DirOffset, Durable, Error, Extent, FallocateMode, FileType, Found,
    HashedName, Ino, Inode as VfsInode, InodeFlags, NewInode, Node, Ownership, Result, WriteKind, XattrMode,
};

use super::{Live, attributes, content, names, release};
use crate::{dir, symlink, xattr};

/// Flags of a directory whose changes are durable when they return.
const MARKS: InodeFlags = InodeFlags::SYNC.union(InodeFlags::DIRSYNC);

impl Live {
    /// Passes on the outcome of a change, after a commit if the filesystem is mounted with `sync`, or a directory is marked
    /// so (`chattr +S`, `chattr +D`).
    #[inline]
    fn synced<T>(&self, outcome: Result<T>) -> Result<T> {
        let is_marked = || self.kind == FileType::Directory && self.ownership().flags.intersects(MARKS);
        self.synced_if(is_marked, outcome)
    }

    /// The same of a change in two directories.
    fn synced_with<T>(&self, to: &Node, outcome: Result<T>) -> Result<T> {
        let is_marked = |flags: InodeFlags| flags.intersects(MARKS);
        self.synced_if(|| is_marked(self.ownership().flags) || is_marked(to.ownership().flags), outcome)
    }

    fn synced_if<T>(&self, is_marked: impl FnOnce() -> bool, outcome: Result<T>) -> Result<T> {
        if outcome.is_ok()
            && let Ok(writer) = self.volume.writer()
            && (writer.options.synchronous || is_marked())
        {
            writer.transactions.commit(writer.transactions.running())?;
        }
        outcome
    }

    /// The outcome of a change of names, which may need blocks, as for [`synced`](Self::synced).
    fn synced_with_space<T>(&self, change: impl FnMut() -> Result<T>) -> Result<T> {
        self.synced(content::retry_when_full(self, change))
    }

    fn require_directory(&self) -> Result<()> {
        if self.kind == FileType::Directory { Ok(()) } else { Err(Error::NotDirectory) }
    }
}

impl VfsInode for Live {
    fn attr(&self) -> Attr {
        self.times.note_seen();
        let inode = &*self.fields.read();
        // As Linux counts them: a file whose data lies in the inode has no blocks, and tools that read a count of
        // zero as "nothing but a hole" would not copy it.
        let inline_bytes =
            if inode.kind == FileType::Regular && inode.has_inline_data() { inode.size_bytes } else { 0 };
        Attr {
            ino: Ino(u64::from(inode.number)),
            generation: inode.generation,
            kind: inode.kind,
            permissions: inode.permissions,
            links: u32::from(inode.links),
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.device_number(),
            size_bytes: if inode.kind == FileType::Symlink {
                symlink::shown_bytes(inode)
            } else {
                inode.size_bytes
            },
            sectors: inode.sectors + inline_bytes.div_ceil(512),
            block_bytes: self.volume.block_bytes(),
            accessed: inode.accessed,
            modified: inode.modified,
            changed: inode.changed,
            created: inode.created,
            flags: inode.flags.shown(),
            project: inode.project,
        }
    }

    fn ownership(&self) -> Ownership {
        self.permissions_cache.ownership(self.kind)
    }

    fn size_bytes(&self) -> u64 {
        if self.kind == FileType::Regular {
            return content::size(self);
        }
        let inode = self.fields.read();
        if inode.kind == FileType::Symlink { symlink::shown_bytes(&inode) } else { inode.size_bytes }
    }

    fn links(&self) -> u32 {
        u32::from(self.fields.read().links)
    }

    fn leave_times_to_cache(&self) {
        self.times.leave_to_cache();
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + 2 * size_of::<usize>()
    }

    fn lookup(&self, name: &HashedName<'_>) -> Result<Option<Found>> {
        self.require_directory()?;
        let found = dir::lookup_live(self, name)?;
        Ok(found.map(|number| Found::Ino(Ino(u64::from(number)))))
    }

    fn read_dir(&self, from: DirOffset, sink: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> Result<()> {
        self.require_directory()?;
        dir::read_dir_live(self, from, sink)
    }

    fn read_dir_behind(&self, from: DirOffset) -> Option<DirOffset> {
        dir::behind_block(self, from)
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        symlink::read(&self.volume, &self.fields.read())
    }

    fn map(&self, offset: u64) -> Result<Extent> {
        content::map(self, offset)
    }

    fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        xattr::get(&self.volume, &self.fields.read(), name)
    }

    fn list_xattrs(&self) -> Result<Vec<Vec<u8>>> {
        xattr::list(&self.volume, &self.fields.read())
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
        let rename = || names::rename(self, name, moved, to, to_name, replaced, whiteout);
        self.synced_with(to, content::retry_when_full(self, rename))
    }

    fn exchange(
        &self,
        name: &HashedName<'_>,
        one: &Arc<Node>,
        to: &Node,
        to_name: &HashedName<'_>,
        other: &Arc<Node>,
    ) -> Result<()> {
        self.synced_with(to, names::exchange(self, name, one, to, to_name, other))
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
        self.synced(attributes::set_xattr(self, name, value, mode, attributes))
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

    fn set_size(&self, size: u64) -> Result<()> {
        self.synced(content::set_size(self, size))
    }

    fn fallocate(&self, mode: FallocateMode, offset: u64, len: u64, size: u64) -> Result<()> {
        self.synced(content::fallocate(self, mode, offset, len, size))
    }

    fn sync(&self, what: Durable) -> Result<()> {
        content::sync(self, what)
    }

    fn release(self: Arc<Self>) {
        release::release(&self);
    }
}
