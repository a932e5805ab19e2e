//! What a filesystem must provide.
//!
//! A filesystem hands out inodes as shared handles; everything that can be the same for every filesystem
//! (caches, permissions, name locks, path walking, moving data) is done above this line, once.
//!
//! **Changing names.** The caller holds the lock of every name that a call adds, removes or changes, in every
//! directory it is called with, and has made sure that a directory to which a name is added is not being removed. So
//! calls for one name never run at the same time. Calls for different names of one directory do, and the filesystem
//! protects the directory's structure itself. An inode does not get a name while it loses another. `lookup` may be
//! called at any time, without a lock.
//!
//! **Changing content.** The caller holds the inode's state: exclusively in [`set_size`](Inode::set_size),
//! [`fallocate`](Inode::fallocate) and a write past the end, otherwise shared with writers of whole blocks and
//! overwrites; a write to [shared](Mapping::Shared) space holds it exclusively too, because it replaces blocks. So the size changes under one caller at a time, and no part of a block is written while another thread
//! writes the block for the first time. Reads share the state, except in a filesystem without a data device: there
//! they may run at any time.
//!
//! **A filesystem in memory** is its own cache: it keeps [`Node`]s and returns them, and the vfs caches neither its
//! inodes nor its names (see [`FileSystem::keeps_nodes`]).

use std::any::Any;
use std::fmt;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

use undercroft_block::Device;

use crate::{
    Attr, AttrChange, Durable, Error, ExtentSizeHints, FallocateMode, FileType, HashedName, Ino, NewInode,
    Node, Ownership, Result, XattrMode,
};

/// A position in a directory stream. 0 is the start; other values come from [`DirEntry::next`] of the same
/// directory and stay valid while the directory lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirOffset(pub u64);

/// One name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The name's bytes: any but `/` and NUL, not necessarily UTF-8.
    pub name: &'a [u8],
    /// The inode it names.
    pub ino: Ino,
    /// The kind of file, where the directory knows it.
    pub kind: Option<FileType>,
    /// Where the stream goes on after this entry.
    pub next: DirOffset,
}

/// The inode that a name stands for.
#[derive(Clone)]
pub enum Found {
    /// By number: the vfs has its node cached or reads the inode.
    Ino(Ino),
    /// The node itself, from a filesystem that [keeps nodes](FileSystem::keeps_nodes).
    Node(Arc<Node>),
    /// An inode that was made this moment, with its number, from a filesystem that does not keep nodes.
    Made(Ino, Arc<dyn Inode>),
    /// The name is being moved, and what it stands for is undecided: ask again under its lock. Only from a filesystem
    /// that keeps nodes; for others the vfs takes a name out of its cache before it moves.
    Moving,
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ino(ino) => f.debug_tuple("Ino").field(ino).finish(),
            Self::Node(node) => f.debug_tuple("Node").field(node).finish(),
            Self::Made(ino, _) => f.debug_tuple("Made").field(ino).finish_non_exhaustive(),
            Self::Moving => f.write_str("Moving"),
        }
    }
}

/// What lies under a byte range of a file.
#[derive(Clone, Debug)]
pub enum Mapping {
    /// Nothing is allocated; reads as zeroes.
    Hole,
    /// Allocated on the data device and never written; reads as zeroes.
    Unwritten {
        /// First byte on [`FileSystem::data_device`].
        offset: u64,
    },
    /// On the data device, from this byte on.
    Device {
        /// First byte on [`FileSystem::data_device`].
        offset: u64,
    },
    /// On the data device, from this byte on, in space that other files, or other places of this one, have too. It is read
    /// like [`Device`](Self::Device) and never overwritten: a write goes to space of its own, as
    /// [`Inode::prepare_write`] says.
    Shared {
        /// First byte on [`FileSystem::data_device`].
        offset: u64,
    },
    /// In these bytes, which the filesystem keeps in the inode; what is missing at the end reads as zeroes.
    Inline(Arc<[u8]>),
    /// The filesystem keeps the bytes in memory: [`Inode::read_kept`], [`Inode::write_kept`].
    Kept,
}

/// A run of a file's bytes that is mapped in one way.
#[derive(Clone, Debug)]
pub struct Extent {
    /// First byte of the run within the file; at or before the byte that was asked for.
    pub start: u64,
    /// Length of the run in bytes; reaches past the byte that was asked for. May reach past the end of the
    /// file: the size bounds what is read, not the mapping.
    pub len: u64,
    /// What lies under it.
    pub mapping: Mapping,
}

/// Where a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// Over bytes that [`Inode::map`] found written, all of them. The state of the inode has been locked since, so that
    /// they still are.
    Overwrite,
    /// Into space that [`Inode::prepare_write`] prepared.
    Allocating,
}

/// What `statfs` reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Unit of the block counts below, in bytes.
    pub block_bytes: u32,
    /// Blocks for data, as the kernel counts them (without the filesystem's own overhead).
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks that an ordinary user may take.
    pub blocks_available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Filesystem id.
    pub fsid: u64,
    /// Longest name in bytes.
    pub name_max_bytes: u32,
}

/// What a filesystem can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest name in bytes.
    pub name_max_bytes: u32,
    /// Largest file in bytes.
    pub file_max_bytes: u64,
}

/// A mounted filesystem. Any number of threads may call it at the same time.
pub trait FileSystem: Send + Sync + 'static {
    /// The kind, as `mount` names it: `ext4`.
    fn kind(&self) -> &'static str;

    /// Times are kept in steps of this many nanoseconds; what is set is cut off to the step before.
    fn time_step_ns(&self) -> u32 {
        1
    }

    /// The root directory's number.
    fn root(&self) -> Ino;

    /// Reads an inode by number. The vfs keeps one handle for each number, so this is called once while any
    /// handle lives.
    ///
    /// # Errors
    /// [`Stale`](crate::Error::Stale) for a number that names no live inode.
    fn read_inode(&self, ino: Ino) -> Result<Arc<dyn Inode>>;

    /// Checks a number that no directory gave: that of a file handle, which a program may have made up. For filesystems
    /// in which a number may lead to bytes that a user wrote: there must be an inode in use. The default is for those in
    /// which it cannot, so that what [`read_inode`](Self::read_inode) validates is enough.
    ///
    /// # Errors
    /// [`Stale`](crate::Error::Stale) for a number of no inode in use; corruption or I/O failure while that is looked
    /// up.
    fn check_handle(&self, _ino: Ino) -> Result<()> {
        Ok(())
    }

    /// Where the bytes of [`Mapping::Device`] lie; `None` for a filesystem that has no device. It refuses writes once the
    /// filesystem takes no changes any more.
    fn data_device(&self) -> Option<&Device>;

    /// Free and used space.
    ///
    /// # Errors
    /// Corruption or I/O failure in the counters' home.
    fn statfs(&self) -> Result<StatFs>;

    /// What it can hold.
    fn limits(&self) -> Limits;

    /// Whether it takes no changes. The vfs refuses them before it asks.
    fn is_read_only(&self) -> bool {
        true
    }

    /// Whether set-user-ID and set-group-ID go when flags, hints and project are set together (`FS_IOC_FSSETXATTR`) by a
    /// caller without the right to keep them, as on Linux's XFS.
    fn fssetxattr_clears_suid_sgid(&self) -> bool {
        false
    }

    /// Whether it keeps nodes itself, as a filesystem in memory does. Then every [`Found`] is a node, and
    /// [`kept_node`](Self::kept_node) takes the place of [`read_inode`](Self::read_inode).
    fn keeps_nodes(&self) -> bool {
        false
    }

    /// The node of a number, for a filesystem that keeps nodes.
    ///
    /// # Errors
    /// [`Stale`](crate::Error::Stale) for a number that names no live inode.
    fn kept_node(&self, _ino: Ino) -> Result<Arc<Node>> {
        Err(Error::Stale)
    }

    /// Makes everything durable that was done before.
    ///
    /// # Errors
    /// I/O failure, now or since the filesystem was opened.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Ends the changes. What was done before is durable afterwards, and the filesystem is left as one that needs no
    /// recovery. A program that writes calls this last, when no inode is in use any more, and gets the result; later
    /// changes may be refused. A filesystem that was not closed is closed when it is dropped, without a result. What
    /// lies below is not closed with it. A second call answers as the first.
    ///
    /// # Errors
    /// The first failure since the filesystem was opened; what is on the device is as a crash would leave it then.
    fn close(&self) -> Result<()> {
        self.sync()
    }

    /// Registers `listener`, which is called once, with [`TurnedReadOnly`](crate::Error::TurnedReadOnly) and the first
    /// cause, when a failure makes the filesystem stop taking changes; at once if that has happened already. The
    /// calling thread may hold locks and may be unwinding. So `listener` must not call the filesystem, nor own a handle
    /// of it: dropping the last one there would close the filesystem on that thread. A panic of `listener` is caught. A
    /// filesystem that never stops for a failure ignores this.
    fn when_failed(&self, _listener: Box<dyn Fn(&Error) + Send + Sync>) {}

    /// Why it has stopped taking changes, if something failed.
    fn failure(&self) -> Option<Error> {
        None
    }

    /// Stops: every later change is refused with [`ShutDown`](crate::Error::ShutDown). With `flush_log` what was
    /// done before is made durable first; without, the filesystem is left as a crash would leave it.
    ///
    /// Nothing is begun after this has returned. What other threads have given the device, at most one request or batch
    /// each, is not waited for, as with Linux: it may reach the disk later, a commit that was under way among it. When
    /// those calls have returned nothing follows.
    ///
    /// # Errors
    /// [`Unsupported`](crate::Error::Unsupported) where there is nothing to stop; I/O failure while flushing.
    fn shut_down(&self, _flush_log: bool) -> Result<()> {
        Err(Error::Unsupported("shutting this filesystem down".into()))
    }

    /// Records that the filesystem has been mounted on `dir`, a path from the root, if its format has a field for that.
    ///
    /// # Errors
    /// It cannot be kept.
    fn mounted_on(&self, _dir: &Path) -> Result<()> {
        Ok(())
    }

    /// Tells the device which of the filesystem's bytes in `range` are free, in pieces of at least `min_len` bytes
    /// (`FITRIM`); returns how many bytes that was.
    ///
    /// # Errors
    /// [`Unsupported`](crate::Error::Unsupported) where there is no device, [`ReadOnly`](crate::Error::ReadOnly);
    /// [`InvalidArgument`](crate::Error::InvalidArgument) for a range that begins past the end or is shorter than a
    /// block, and for pieces that cannot be as long; I/O failure.
    fn trim(&self, _range: Range<u64>, _min_len: u64) -> Result<u64> {
        Err(Error::Unsupported("trimming a filesystem that is on no device".into()))
    }

    /// The kernel's hint that many inodes of `entries` are wanted soon (readdirplus, a tree walk): the
    /// filesystem may bring their homes into its cache with few large reads. Failures are not reported; the
    /// later reads will meet them.
    fn prefetch_inodes(&self, _entries: &[Ino]) {}
}

/// An inode in use.
///
/// The methods that change something have defaults that refuse with [`ReadOnly`](crate::Error::ReadOnly).
pub trait Inode: Any + Send + Sync {
    /// The attributes now. Cheap: no I/O.
    fn attr(&self) -> Attr;

    /// The extent size hints, where the filesystem keeps some.
    fn extent_size_hints(&self) -> ExtentSizeHints {
        ExtentSizeHints::default()
    }

    /// How many extents its content has, where the filesystem counts them.
    fn extent_count(&self) -> u64 {
        0
    }

    /// The part of the attributes that permission checks need.
    fn ownership(&self) -> Ownership {
        self.attr().ownership()
    }

    /// The size in bytes. Like [`ownership`](Self::ownership), this does not mark the times as read.
    fn size_bytes(&self) -> u64 {
        self.attr().size_bytes
    }

    /// How many names it has.
    fn links(&self) -> u32 {
        self.attr().links
    }

    /// The last user of the inode is gone, in a filesystem that does not keep nodes. No handle of this number is given
    /// out before this returns, so the rest is done here: an unlinked inode is deleted. The filesystem must record
    /// failures. Locks before `journal` in the lock order may be held.
    fn release(self: Arc<Self>) {}

    /// From now on a cache above keeps the times at which this regular file and its content changed, and sets them with
    /// [`set_attr`](Self::set_attr). As long as this handle lives nothing else changes them, so that the cache's times
    /// stay valid. Only writes to an immutable or append-only file, which bypass such a cache, set times themselves.
    fn leave_times_to_cache(&self) {}

    /// About how many bytes of memory this handle occupies.
    fn memory_bytes(&self) -> usize;

    /// Looks a name up in a directory. `.` and `..` are answered as the directory has them.
    ///
    /// # Errors
    /// [`NotDirectory`](crate::Error::NotDirectory); `Ok(None)` says that there is no such name.
    fn lookup(&self, name: &HashedName<'_>) -> Result<Option<Found>>;

    /// `name` is about to be locked, and probably added: an implementation may prefetch what that changes in memory.
    fn expect_name(&self, _name: &HashedName<'_>) {}

    /// Gives `sink` the entries from `from` on, `.` and `..` included, until it breaks or the directory ends.
    /// No lock is held while `sink` runs that a lookup in the same directory needs.
    ///
    /// # Errors
    /// [`NotDirectory`](crate::Error::NotDirectory). After a corrupt part, an error; entries already given
    /// were good.
    fn read_dir(&self, from: DirOffset, sink: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) -> Result<()>;

    /// Where [`read_dir`](Self::read_dir) goes on behind the corrupt part that it met after the entries before `from`; a
    /// position behind `from`. `None`: nowhere that is known.
    fn read_dir_behind(&self, _from: DirOffset) -> Option<DirOffset> {
        None
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) when it is not one.
    fn read_link(&self) -> Result<Vec<u8>>;

    /// What lies under `offset`, and how far the same holds.
    ///
    /// # Errors
    /// [`IsDirectory`](crate::Error::IsDirectory), [`InvalidArgument`](crate::Error::InvalidArgument) for what
    /// has no bytes, [`NoKey`](crate::Error::NoKey), [`Unsupported`](crate::Error::Unsupported).
    fn map(&self, offset: u64) -> Result<Extent>;

    /// The value of an extended attribute by its full name (`user.note`); `None` when there is none.
    /// `system.posix_acl_access` and `_default` are in the form that `getxattr` gives.
    ///
    /// # Errors
    /// Corruption or I/O failure.
    fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>>;

    /// The full names of all extended attributes.
    ///
    /// # Errors
    /// Corruption or I/O failure.
    fn list_xattrs(&self) -> Result<Vec<Vec<u8>>>;

    /// Makes the inode that [`create`](Self::create) is about to name, while the name's lock is on its way. `None`
    /// leaves all of it to `create`. If there is nothing to name after all, it is dropped.
    fn make_ahead(&self, _new: &NewInode<'_>) -> Option<Arc<Node>> {
        None
    }

    /// Makes an inode, unless it was [made ahead](Self::make_ahead), and gives it a name in this directory.
    ///
    /// # Errors
    /// [`Exists`](crate::Error::Exists) when the directory has such a name; [`NoSpace`](crate::Error::NoSpace),
    /// [`TooManyLinks`](crate::Error::TooManyLinks) for a directory in a directory that holds as many as it can.
    /// Nothing has changed then.
    fn create(&self, _name: &HashedName<'_>, _new: &NewInode<'_>, _made: Option<Arc<Node>>) -> Result<Found> {
        Err(Error::ReadOnly)
    }

    /// Makes a regular file without a name (`O_TMPFILE`). It is deleted with its last handle, unless
    /// [`link`](Self::link) gives it a name. Called on the directory that it would be created in.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    fn tmpfile(&self, _new: &NewInode<'_>) -> Result<Found> {
        Err(Error::ReadOnly)
    }

    /// Gives an inode that is not a directory another name, in this directory.
    ///
    /// # Errors
    /// [`Exists`](crate::Error::Exists); [`NotFound`](crate::Error::NotFound) for an inode that has lost its last name,
    /// and was not made without one; [`TooManyLinks`](crate::Error::TooManyLinks), [`NoSpace`](crate::Error::NoSpace).
    fn link(&self, _name: &HashedName<'_>, _node: &Arc<Node>) -> Result<()> {
        Err(Error::ReadOnly)
    }

    /// Takes the name of `victim` out of this directory. An unlinked inode lives until its last handle is
    /// dropped.
    ///
    /// # Errors [`NotEmpty`](crate::Error::NotEmpty) for a directory with names. No names are added to it meanwhile.
    fn unlink(&self, _name: &HashedName<'_>, _victim: &Arc<Node>) -> Result<()> {
        Err(Error::ReadOnly)
    }

    /// As [`unlink`](Self::unlink), for the last name of a file of which the caller has the only handle and no other
    /// is given out until the caller has dropped it. A filesystem may delete it in the same step; its
    /// [`release`](Self::release) comes all the same.
    ///
    /// # Errors
    /// As for [`unlink`](Self::unlink).
    fn unlink_unused(&self, name: &HashedName<'_>, victim: &Arc<Node>) -> Result<()> {
        self.unlink(name, victim)
    }

    /// Moves `moved` from `name` here to `to_name` in `to`, in one step for every lookup of `to_name`: it stands for
    /// `replaced` before and for `moved` after. With a `whiteout`, that inode is made and gets the old name. A
    /// directory that is moved to another gets a new `..`. `replaced` is gone as after [`unlink`](Self::unlink).
    ///
    /// # Errors
    /// [`NotEmpty`](crate::Error::NotEmpty) for a replaced directory with names; [`Exists`](crate::Error::Exists) if
    /// nothing is to be replaced and `to_name` is there;
    /// [`NoSpace`](crate::Error::NoSpace), [`TooManyLinks`](crate::Error::TooManyLinks). Nothing has changed then.
    fn rename(
        &self,
        _name: &HashedName<'_>,
        _moved: &Arc<Node>,
        _to: &Node,
        _to_name: &HashedName<'_>,
        _replaced: Option<&Arc<Node>>,
        _whiteout: Option<&NewInode<'_>>,
    ) -> Result<()> {
        Err(Error::ReadOnly)
    }

    /// Lets `one`, which is `name` here, and `other`, which is `to_name` in `to`, change places.
    ///
    /// # Errors
    /// As for [`rename`](Self::rename).
    fn exchange(
        &self,
        _name: &HashedName<'_>,
        _one: &Arc<Node>,
        _to: &Node,
        _to_name: &HashedName<'_>,
        _other: &Arc<Node>,
    ) -> Result<()> {
        Err(Error::ReadOnly)
    }

    /// Changes attributes, all at once.
    ///
    /// # Errors
    /// I/O failure; [`InvalidArgument`](crate::Error::InvalidArgument) for flags that it cannot keep.
    fn set_attr(&self, _change: &AttrChange) -> Result<()> {
        Err(Error::ReadOnly)
    }

    /// Sets an extended attribute by its full name, or with `None` removes it, together with `attributes`.
    ///
    /// # Errors
    /// [`Exists`](crate::Error::Exists), [`NoAttribute`](crate::Error::NoAttribute) by `mode` and for a removal;
    /// [`NoSpace`](crate::Error::NoSpace); [`Unsupported`](crate::Error::Unsupported) for a namespace it does not
    /// keep.
    fn set_xattr(
        &self,
        _name: &[u8],
        _value: Option<&[u8]>,
        _mode: XattrMode,
        _attributes: &AttrChange,
    ) -> Result<()> {
        Err(Error::ReadOnly)
    }

    /// Where on the [data device](FileSystem::data_device) the `len` bytes from `offset` on lie, if that is known at once:
    /// they lie within the size, were all written, follow each other there and are not shared. `None` says nothing:
    /// [`map`](Self::map) is to be asked then. Called for each write before `map`, so it costs next to nothing.
    fn written_at(&self, _offset: u64, _len: u64) -> Option<u64> {
        None
    }

    /// Whether the filesystem takes changes at the moment. Called before bytes are written to where [`map`](Self::map)
    /// says, so that a write after a failure or a shutdown gets the first cause. Costs next to nothing.
    ///
    /// # Errors
    /// Why it takes none.
    fn check_changes(&self) -> Result<()> {
        Ok(())
    }

    /// Prepares a write of `len` bytes at `offset`, whose first byte is a hole, unwritten, inline or shared. Returns an
    /// extent for `offset` that is never a hole, inline or shared; it may be shorter than `len`. New space is
    /// [`Unwritten`](Mapping::Unwritten) or [kept](Mapping::Kept). Neither the size nor what is read changes: a hole
    /// goes on reading as zeroes and shared bytes as they are, until [`finish_write`](Self::finish_write).
    ///
    /// An unwritten extent begins where the block does: the caller writes all of a block that it writes for the first
    /// time, with zeroes around its own bytes, or where the block was shared with what it had before.
    ///
    /// # Errors
    /// [`NoSpace`](crate::Error::NoSpace), when not even the first byte has room.
    fn prepare_write(&self, _offset: u64, _len: u64) -> Result<Extent> {
        Err(Error::ReadOnly)
    }

    /// The bytes from `offset` on, with the rest of the blocks that were unwritten, were written to where
    /// [`prepare_write`](Self::prepare_write) or [`map`](Self::map) said: they become readable, the file becomes at
    /// least `size` long, and its times change. After an [overwrite](WriteKind::Overwrite) the map stays as it is.
    ///
    /// # Errors
    /// I/O failure: the bytes may or may not be readable.
    fn finish_write(&self, _offset: u64, _len: u64, _size: u64, _written: WriteKind) -> Result<()> {
        Err(Error::ReadOnly)
    }

    /// A write that was prepared from `offset` on fails: its bytes were not written, or not all of them, and it will not
    /// be finished. What was held for it may be freed. The thread that prepared a write finishes or cancels it before it
    /// prepares another in the same file.
    fn cancel_write(&self, _offset: u64, _len: u64) {}

    /// Copies bytes out of [kept](Mapping::Kept) space; holes within it read as zeroes.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::Error::InvalidArgument) from a filesystem that keeps no bytes.
    fn read_kept(&self, _offset: u64, _buf: &mut [u8]) -> Result<()> {
        Err(Error::InvalidArgument("this filesystem keeps no bytes in memory"))
    }

    /// Copies bytes into [kept](Mapping::Kept) space that was prepared.
    ///
    /// # Errors
    /// As for [`read_kept`](Self::read_kept); [`NoSpace`](crate::Error::NoSpace) if the space has gone since.
    fn write_kept(&self, _offset: u64, _data: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    /// Sets the size. What is cut off is gone; what is added reads as zeroes. When the size grows, the caller has
    /// cleared what is mapped between the old one and the next multiple of the inode's `block_bytes`. The times of
    /// content and inode change, also if the size does not.
    ///
    /// # Errors
    /// I/O failure.
    fn set_size(&self, _size: u64) -> Result<()> {
        Err(Error::ReadOnly)
    }

    /// Changes what lies under a range, which does not overflow, and makes the file `size` bytes long, which the
    /// caller has worked out: it changes by what is collapsed or inserted, and otherwise only grows. As for
    /// [`set_size`](Self::set_size), the rest of the last block is clear then.
    ///
    /// # Errors
    /// [`NoSpace`](crate::Error::NoSpace), [`Unsupported`](crate::Error::Unsupported) for a change that the
    /// filesystem does not make, [`InvalidArgument`](crate::Error::InvalidArgument) for a range that is not
    /// aligned as a collapse or an insertion needs it.
    fn fallocate(&self, _mode: FallocateMode, _offset: u64, _len: u64, _size: u64) -> Result<()> {
        Err(Error::ReadOnly)
    }

    /// Whether [`clone_range`](Self::clone_range) may succeed with an inode of this filesystem: a copy tries it first then.
    fn shares_blocks(&self) -> bool {
        false
    }

    /// Lets the `len` bytes from `offset` on be those that `source` has from `from` on, in the same space: each is written to
    /// apart from the other afterwards. The file becomes at least as long as the range reaches. Returns how many bytes were
    /// done: fewer than all only if an error came after the first ones; what is done is a whole number of blocks.
    ///
    /// The caller holds the state of this inode exclusively and that of the source shared, and keeps writers of the source
    /// out; readers of the source are let in. The range lies within the source, does not overflow, and is not
    /// empty. As for [`set_size`](Self::set_size), the rest of the target's last block is clear where the range begins
    /// past the end. A crash leaves in each block the old bytes or the new ones.
    ///
    /// # Errors
    /// [`Unsupported`](crate::Error::Unsupported) from a filesystem that shares no blocks,
    /// [`CrossDevice`](crate::Error::CrossDevice) for an inode of another one;
    /// [`InvalidArgument`](crate::Error::InvalidArgument) for offsets that are no multiples of the block's size, for a length
    /// that is none unless it ends with the source and not within the target, and for ranges of one file that overlap;
    /// [`NoSpace`](crate::Error::NoSpace), [`TooManyLinks`](crate::Error::TooManyLinks) for a block that as many files have
    /// as can be counted.
    fn clone_range(&self, _source: &Node, _from: u64, _offset: u64, _len: u64) -> Result<u64> {
        Err(Error::Unsupported("files with blocks in common".into()))
    }

    /// Makes the inode durable as it is.
    ///
    /// # Errors
    /// I/O failure, now or since the last call.
    fn sync(&self, _what: Durable) -> Result<()> {
        Ok(())
    }
}
