//! Opening files, and what changes their bytes.
//!
//! An append-only file can only be opened for appending, and an immutable one only for reading; the kernel knows
//! neither flag, so it is settled here, when it asks to open. What goes to an append-only file passes the kernel's
//! cache by: from there whole pages would come, which is no appending.

use undercroft_vfs::{
    AttrChange, Durable, Error, FallocateMode, File, FileType, InodeFlags, Node, Result, SET_GROUP_ID,
    SET_USER_ID,
};

use crate::caller::Caller;
use crate::nodes::NodeId;
use crate::server::Server;

const O_ACCMODE: u32 = 0o3;
const O_TRUNC: u32 = 0o1000;
const O_APPEND: u32 = 0o2000;
const O_DIRECT: u32 = rustix::fs::OFlags::DIRECT.bits();

const KEEP_SIZE: u32 = 0x01;
const PUNCH_HOLE: u32 = 0x02;
const COLLAPSE_RANGE: u32 = 0x08;
const ZERO_RANGE: u32 = 0x10;
const INSERT_RANGE: u32 = 0x20;

/// How bytes are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteHow {
    /// What the file was opened with.
    pub(crate) flags: u32,
    /// The kernel has had them in its cache.
    pub(crate) from_cache: bool,
    /// Set-user-ID and set-group-ID go.
    pub(crate) drop_privileges: bool,
}

impl Server {
    /// Opens a file, if it may be opened like this.
    pub(crate) fn open(&self, id: NodeId, flags: u32) -> Result<Cached> {
        let node = self.busy_node(id)?;
        let cached = check_open(&node, flags)?;
        if node.kind() == FileType::Regular {
            self.vfs().open_node(&node)?;
        }
        Ok(cached)
    }

    /// Writes to a file and tells how many bytes.
    pub(crate) fn write(
        &self,
        caller: Caller,
        id: NodeId,
        offset: u64,
        data: &[u8],
        how: WriteHow,
    ) -> Result<usize> {
        let node = self.busy_node(id)?;
        let file = if how.from_cache {
            self.vfs().open_node_for_writing_back(&node)?
        } else {
            self.vfs().open_node_for_writing(&node)?
        };
        if how.drop_privileges {
            self.drop_privileges(caller, &file)?;
        }
        if how.from_cache {
            // The kernel has taken capabilities away before it caches a write, and does not read how much was written.
            self.with_space(|| write_all(&file, offset, data))?;
            return Ok(data.len());
        }
        if file.drop_capabilities()? {
            file.sync(Durable::Everything)?;
        }
        if how.flags & O_APPEND != 0 && node.ownership().flags.contains(InodeFlags::APPEND) {
            return self.with_space(|| file.append(data)).map(|(_, written)| written);
        }
        if how.flags & O_DIRECT != 0 {
            // Of several requests of one call that the kernel sends at once, a short one is an I/O error to it.
            self.with_space(|| write_all(&file, offset, data))?;
            return Ok(data.len());
        }
        self.with_space(|| file.write_at(offset, data))
    }

    /// Changes what lies under a range, with the mode of `fallocate(2)`.
    pub(crate) fn fallocate(
        &self,
        caller: Caller,
        id: NodeId,
        mode: u32,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let unknown = || Error::Unsupported("this way to allocate space".into());
        let change = match mode & !KEEP_SIZE {
            0 => FallocateMode::Allocate,
            PUNCH_HOLE if mode & KEEP_SIZE != 0 => FallocateMode::PunchHole,
            ZERO_RANGE => FallocateMode::Zero,
            COLLAPSE_RANGE if mode & KEEP_SIZE == 0 => FallocateMode::Collapse,
            INSERT_RANGE if mode & KEEP_SIZE == 0 => FallocateMode::Insert,
            _ => return Err(unknown()),
        };
        let file = self.vfs().open_node_for_writing(&self.busy_node(id)?)?;
        self.drop_privileges_unless_kept(caller, &file)?;
        let attempt = || file.fallocate(change, offset, len, mode & KEEP_SIZE != 0);
        match change {
            // A second attempt would move once more what the first has moved.
            FallocateMode::Collapse | FallocateMode::Insert => attempt(),
            FallocateMode::Allocate | FallocateMode::PunchHole | FallocateMode::Zero => {
                self.with_space(attempt)
            }
        }
    }

    /// Copies bytes from one file to another, or within one, and tells how many.
    pub(crate) fn copy_range(
        &self,
        caller: Caller,
        from: (NodeId, u64),
        to: (NodeId, u64),
        len: u64,
    ) -> Result<u64> {
        let source = self.vfs().open_node(&self.busy_node(from.0)?)?;
        let target = self.vfs().open_node_for_writing(&self.busy_node(to.0)?)?;
        self.drop_privileges_unless_kept(caller, &target)?;
        self.with_space(|| source.copy_range(from.1, &target, to.1, len))
    }

    /// Takes away what a program was trusted with: a caller without privilege changes it. The kernel says when, but
    /// not whether the caller is in the file's group, which may keep a set-group-ID that lets no user execute.
    ///
    /// What was taken away is durable before anything of the file is changed: the bytes may be on the disk before the next
    /// commit, and after a crash would have the rights of those that were there.
    pub(crate) fn drop_privileges(&self, caller: Caller, file: &File) -> Result<()> {
        let before = file.node().ownership().permissions;
        file.drop_privilege_bits()?;
        let attr = file.node().ownership();
        if attr.permissions & SET_GROUP_ID != 0 && !caller.is_in_group(attr.gid) {
            let permissions = Some(attr.permissions & !SET_GROUP_ID);
            let change = AttrChange { permissions, ..AttrChange::default() };
            self.vfs().set_attr(&caller.credentials(), file.node(), &change)?;
        }
        if file.node().ownership().permissions == before { Ok(()) } else { file.sync(Durable::Everything) }
    }

    /// As [`drop_privileges`](Self::drop_privileges), for requests with which the kernel does not say whether to.
    pub(crate) fn drop_privileges_unless_kept(&self, caller: Caller, file: &File) -> Result<()> {
        if gives_rights(file.node()) && !caller.keeps_privileges() {
            self.drop_privileges(caller, file)
        } else {
            Ok(())
        }
    }

    /// Whether a program in this file runs with other rights than those of its caller.
    pub(crate) fn gives_rights(&self, id: NodeId) -> bool {
        self.node(id).is_ok_and(|node| gives_rights(&node))
    }

    /// Makes an inode durable.
    pub(crate) fn sync_node(&self, id: NodeId, what: Durable) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        let node = self.busy_node(id)?;
        match node.kind() {
            FileType::Regular => self.vfs().open_node(&node)?.sync(what),
            // Names are not in one place.
            _ => self.sync(),
        }
    }
}

/// Writes all of it, or fails.
fn write_all(file: &File, offset: u64, data: &[u8]) -> Result<()> {
    let mut done = 0;
    while done < data.len() {
        match file.write_at(offset + done as u64, &data[done..])? {
            0 => return Err(Error::NoSpace),
            written => done += written,
        }
    }
    Ok(())
}

/// Whether the kernel may cache what is written to an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cached {
    Yes,
    /// Also on a mount that caches nothing, and without what it has cached before. Only so the kernel takes
    /// set-user-ID and set-group-ID away, by a request of its own, before it writes: a program that is started meanwhile
    /// then runs without them.
    Anew,
    No,
}

fn gives_rights(node: &Node) -> bool {
    node.ownership().permissions & (SET_USER_ID | SET_GROUP_ID) != 0
}

/// Flags of files whose writes the kernel must not keep: each is appended, or durable, when it returns.
pub(crate) const PAST_THE_CACHE: InodeFlags = InodeFlags::APPEND.union(InodeFlags::SYNC);

/// Refuses to open for writing what cannot be written to, and otherwise than for appending what can only be
/// appended to.
pub(crate) fn check_open(node: &Node, flags: u32) -> Result<Cached> {
    let writes = flags & O_ACCMODE != 0 || flags & O_TRUNC != 0;
    if !writes || node.kind() != FileType::Regular {
        return Ok(Cached::Yes);
    }
    let has = node.ownership().flags;
    let appends = flags & O_APPEND != 0 && flags & O_TRUNC == 0;
    if has.contains(InodeFlags::IMMUTABLE) || (has.contains(InodeFlags::APPEND) && !appends) {
        return Err(Error::NotPermitted);
    }
    Ok(if has.intersects(PAST_THE_CACHE) {
        Cached::No
    } else if gives_rights(node) {
        Cached::Anew
    } else {
        Cached::Yes
    })
}
