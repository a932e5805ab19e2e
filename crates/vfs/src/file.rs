//! An open regular file.
//!
//! Calls go to the file's inode and to the data device; there is no table of open files. The extent of the last read
//! is not remembered: asking ext4 again takes a tenth of the time of a read from the page cache.
//!
//! Locks: the inode's state (class `inode`). Reads hold it shared where a file can lose blocks to another file, and
//! take none in a filesystem in memory or one that is only read. Writes within the size hold it shared, so that they
//! run in parallel; extending writes, changes of the file's space, and partial writes to unwritten blocks hold it
//! exclusively, and so does a file that gets blocks of another one. The other one's state is held shared then, so that it
//! can be read; a mark on its node makes its writers take the state exclusively, and so wait
//! ([`Node::begin_giving`]). Of two files the one with the lower inode number is locked first. It is held while the device transfers the bytes: a size must not be cut under them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use undercroft_block::Device;

use crate::attributes::drop_capabilities;
use crate::data::{self, Backing, DataRanges, Hold, Stop};
use crate::permission::without_privilege;
use crate::{AttrChange, Durable, Error, FallocateMode, Ino, InodeFlags, Node, Result};

/// An open regular file. Any number of threads may use it at the same time.
pub struct File {
    node: Arc<Node>,
    device: Option<Device>,
    /// How large the file may become; `None` if it was opened for reading.
    limit: Option<u64>,
    /// Written bytes were accepted by a cache earlier, so flags that the file has got since do not apply.
    accepted: bool,
    /// Blocks of the device may stop being this file's while it is open.
    moves: bool,
}

impl File {
    /// Opens a node that is known to be a regular file, for reading.
    pub(crate) fn new(node: Arc<Node>, device: Option<Device>, read_only: bool) -> Self {
        let moves = device.is_some() && !read_only;
        Self { node, device, limit: None, accepted: false, moves }
    }

    /// The same, for writing as well, up to `limit` bytes.
    pub(crate) fn writing(self, limit: u64) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// The same, for bytes that a cache above accepted before the file got the flags it has.
    pub(crate) fn accepted(self) -> Self {
        Self { accepted: true, ..self }
    }

    /// The file's inode.
    #[must_use]
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The size in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.backing().inode.size_bytes()
    }

    /// Reads from `offset` and returns how many bytes were read: as many as `buf` holds, or fewer at the end of the
    /// file, and none past it.
    ///
    /// # Errors
    /// Corruption or I/O failure; then the content of `buf` is undefined.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        // Where a truncated block may be given to another file, no read of it may still be under way.
        let _state = self.moves.then(|| self.node.state().read());
        data::read_at(self.backing(), offset, buf)
    }

    /// The first byte at or after `offset` that is not in a hole. What is allocated and unwritten counts as a
    /// hole.
    ///
    /// # Errors
    /// [`NoSuchOffset`](Error::NoSuchOffset) when only a hole follows, or at and past the end.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        data::seek_data(self.backing(), offset)
    }

    /// The first byte at or after `offset` that is in a hole. The end of the file counts as one.
    ///
    /// # Errors
    /// [`NoSuchOffset`](Error::NoSuchOffset) at and past the end.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        data::seek_hole(self.backing(), offset)
    }

    /// The parts of `within` and of the file that hold data, in order: what [`seek_data`](Self::seek_data) and
    /// [`seek_hole`](Self::seek_hole) find by turns. There may be as many as the file has extents, and of a damaged file
    /// far more than its space explains.
    #[must_use]
    pub fn data_ranges(&self, within: Range<u64>) -> DataRanges<'_> {
        DataRanges::new(self.backing(), within)
    }

    /// Writes at `offset`, past the end as well: what lies in between reads as zeroes then. Returns how many bytes were
    /// written: all, or fewer where the filesystem's space or the largest size of a file ends.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace) and [`FileTooLarge`](Error::FileTooLarge) when not even one byte could be written;
    /// [`NotPermitted`](Error::NotPermitted) for a file that can only be appended to;
    /// [`InvalidArgument`](Error::InvalidArgument) for one that was opened for reading. After corruption or I/O
    /// failure some of the bytes may have been written.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<usize> {
        let written = self.write_some(offset, data)?;
        self.sync_if_marked()?;
        Ok(written)
    }

    #[inline]
    fn write_some(&self, offset: u64, data: &[u8]) -> Result<usize> {
        let limit = self.limit()?;
        if data.is_empty() {
            return Ok(0);
        }
        let data = cut_to_limit(offset, data, limit)?;
        let mut done = 0;
        // Checked before the lock too: a write that needs it exclusively should not queue up twice.
        if self.contains(offset, data) {
            let _state = self.node.state().read();
            self.check_writable()?;
            let may_write = !self.node.gives_blocks();
            if may_write && data::overwrite_at_once(self.backing(), offset, data)? {
                return Ok(data.len());
            }
            if may_write && self.contains(offset, data) {
                let (written, stop) = data::write(self.backing(), offset, data, Hold::Shared);
                match stop {
                    Some(Stop::NeedsExclusive) => done = written,
                    stop => return outcome(written, stop),
                }
            }
        }
        let _state = self.node.state().write();
        self.check_writable()?;
        let (written, stop) = self.write_exclusive(offset + done as u64, &data[done..])?;
        outcome(done + written, stop)
    }

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// As for [`write_at`](Self::write_at); some of the bytes may have been written.
    pub fn write_all_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            done += self.write_at(offset + done as u64, &data[done..])?;
        }
        Ok(())
    }

    /// Writes at the end of the file, wherever that is: appends of several threads never meet. Returns where the bytes
    /// were written, and how many, as [`write_at`](Self::write_at) does.
    ///
    /// # Errors
    /// As for [`write_at`](Self::write_at), except that it is what an append-only file takes.
    pub fn append(&self, data: &[u8]) -> Result<(u64, usize)> {
        let appended = self.append_some(data)?;
        self.sync_if_marked()?;
        Ok(appended)
    }

    fn append_some(&self, data: &[u8]) -> Result<(u64, usize)> {
        let limit = self.limit()?;
        let _state = self.node.state().write();
        check_flags(&self.node, InodeFlags::empty())?;
        let offset = self.backing().inode.size_bytes();
        if data.is_empty() {
            return Ok((offset, 0));
        }
        let data = cut_to_limit(offset, data, limit)?;
        let (written, stop) = self.write_exclusive(offset, data)?;
        Ok((offset, outcome(written, stop)?))
    }

    /// Sets the size: cuts off what is past it, or adds a hole.
    ///
    /// # Errors
    /// [`FileTooLarge`](Error::FileTooLarge), [`NotPermitted`](Error::NotPermitted) for a file that can only be
    /// appended to, [`InvalidArgument`](Error::InvalidArgument) for one that was opened for reading; corruption or
    /// I/O failure.
    pub fn truncate(&self, size: u64) -> Result<()> {
        if size > self.limit()? {
            return Err(Error::FileTooLarge);
        }
        {
            let _state = self.node.state().write();
            check_flags(&self.node, InodeFlags::APPEND)?;
            data::clear_tail(self.backing(), size)?;
            self.node.inode().set_size(size)?;
        }
        self.sync_if_marked()
    }

    /// Changes what lies under a range. The file grows to hold what is allocated or zeroed, unless `keep_size`; a
    /// punched hole never changes the size, what is collapsed or inserted always does.
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for an empty range, a range that is not aligned as the filesystem
    /// needs it, a collapse that reaches the end of the file, an insertion at or past it, or a file that was opened
    /// for reading; [`FileTooLarge`](Error::FileTooLarge), [`NoSpace`](Error::NoSpace),
    /// [`Unsupported`](Error::Unsupported); [`NotPermitted`](Error::NotPermitted) for anything but an allocation in a
    /// file that can only be appended to, which is where Linux draws the line.
    pub fn fallocate(&self, mode: FallocateMode, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        let limit = self.limit()?;
        let state = self.node.state().write();
        let refused = match mode {
            FallocateMode::Allocate => InodeFlags::empty(),
            FallocateMode::PunchHole
            | FallocateMode::Zero
            | FallocateMode::Collapse
            | FallocateMode::Insert => InodeFlags::APPEND,
        };
        check_flags(&self.node, refused)?;
        data::fallocate(self.backing(), mode, offset, len, keep_size, limit)?;
        drop(state);
        self.sync_if_marked()
    }

    /// Lets the `len` bytes from `to_offset` on in `to` be those of this file from `from` on, without a copy: both files have
    /// the same space, until one of them is written to there (`FICLONERANGE`). A `len` of zero stands for the rest of this
    /// file. Both may be the same file if the ranges do not overlap.
    ///
    /// # Errors
    /// [`Unsupported`](Error::Unsupported) where no blocks can be shared, [`CrossDevice`](Error::CrossDevice);
    /// [`InvalidArgument`](Error::InvalidArgument) for a range that ends behind this file, that does not begin with a block,
    /// or does not end with one, unless this file ends there and the range ends no earlier than the target; for ranges that
    /// overlap, and for a target that was opened for reading; [`FileTooLarge`](Error::FileTooLarge),
    /// [`NoSpace`](Error::NoSpace); [`NotPermitted`](Error::NotPermitted) for a target that can only be appended to. After an
    /// error a part from the range's begin on may be shared.
    pub fn clone_range(&self, from: u64, to: &Self, to_offset: u64, len: u64) -> Result<()> {
        let limit = to.limit()?;
        self.giving_blocks(to, || {
            check_flags(&to.node, InodeFlags::APPEND)?;
            let size = self.size_bytes();
            let len = if len == 0 { size.checked_sub(from).ok_or(BEHIND_END)? } else { len };
            if to_offset.checked_add(len).is_none_or(|end| end > limit) {
                return Err(Error::FileTooLarge);
            }
            let mut done = 0;
            while done < len {
                let (from, to_offset) = (from + done, to_offset + done);
                done += data::share(self.backing(), &self.node, from, to.backing(), to_offset, len - done)?;
            }
            Ok(())
        })?;
        to.sync_if_marked()
    }

    /// Copies `len` bytes from `from` on to `to_offset` in `to`, which may be the same file if the ranges do not
    /// overlap. Where the filesystem can, whole blocks are shared instead, as [`clone_range`](Self::clone_range) does.
    /// Holes become no bytes: the target keeps its own there, or grows, and where it has bytes gets zeroes.
    /// Returns how many bytes were copied: fewer at the end of this file, and where space or the largest size ends.
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for ranges that overlap, or a target that was opened for reading;
    /// otherwise as for [`write_at`](Self::write_at).
    pub fn copy_range(&self, from: u64, to: &Self, to_offset: u64, len: u64) -> Result<u64> {
        let limit = to.limit()?;
        let len = len.min(self.backing().inode.size_bytes().saturating_sub(from));
        if len == 0 {
            return Ok(0);
        }
        let len = len.min(limit.checked_sub(to_offset).filter(|&room| room > 0).ok_or(Error::FileTooLarge)?);
        let same = Arc::ptr_eq(&self.node, &to.node);
        if same && from.abs_diff(to_offset) < len {
            return Err(Error::InvalidArgument("the ranges of a copy within a file overlap"));
        }
        let mut copied = self.share_what_can_be(from, to, to_offset, len)?;
        while copied < len {
            let piece = self.with_both(to, || {
                check_flags(&to.node, InodeFlags::APPEND)?;
                let (from, to_offset) = (from + copied, to_offset + copied);
                data::copy_piece(self.backing(), from, to.backing(), to_offset, len - copied)
            });
            match piece {
                // The file was cut meanwhile.
                Ok(0) => break,
                Ok(piece) => copied += piece,
                Err(Error::NoSpace) if copied > 0 => break,
                Err(error) => return Err(error),
            }
        }
        to.sync_if_marked()?;
        Ok(copied)
    }

    /// The part of a copy that is done by sharing blocks, from its begin on. What cannot be shared is left to be copied, and
    /// so is what an error keeps from being shared: the copy meets it, or does without.
    fn share_what_can_be(&self, from: u64, to: &Self, to_offset: u64, len: u64) -> Result<u64> {
        if !self.node.inode().shares_blocks() {
            return Ok(0);
        }
        self.giving_blocks(to, || {
            check_flags(&to.node, InodeFlags::APPEND)?;
            let len = data::sharable(self.backing(), from, to.backing(), to_offset, len);
            if len == 0 {
                return Ok(0);
            }
            let shared = data::share(self.backing(), &self.node, from, to.backing(), to_offset, len);
            Ok(shared.unwrap_or(0))
        })
    }

    /// Takes set-user-ID off the file, and set-group-ID where the group may execute it, as Linux does when a caller
    /// without privilege changes its content. Writes carry no credentials, so a server that writes for an unprivileged
    /// caller calls this before; it costs little when there is nothing to take off.
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for a file that was opened for reading; the filesystem's own.
    pub fn drop_privilege_bits(&self) -> Result<()> {
        self.limit()?;
        if self.without_privilege().is_none() {
            return Ok(());
        }
        let _state = self.node.state().write();
        match self.without_privilege() {
            None => Ok(()),
            permissions => self.node.inode().set_attr(&AttrChange { permissions, ..AttrChange::default() }),
        }
    }

    /// Takes the capabilities off a program, as Linux does at every write. Writes themselves do not, since a cache
    /// above has done it when it accepted the bytes; it costs a look at a flag when it is known that there are none.
    /// Returns whether there were some.
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for a file that was opened for reading; the filesystem's own.
    pub fn drop_capabilities(&self) -> Result<bool> {
        self.limit()?;
        if self.node.no_capabilities().load(Ordering::Relaxed) {
            return Ok(false);
        }
        let _state = self.node.state().write();
        drop_capabilities(&self.node)
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// I/O failure, now or since the last call.
    pub fn sync(&self, what: Durable) -> Result<()> {
        self.node.inode().sync(what)
    }

    /// Makes what was written durable where the file is marked so (`chattr +S`).
    #[inline]
    fn sync_if_marked(&self) -> Result<()> {
        if self.node.ownership().flags.contains(InodeFlags::SYNC) { self.sync(Durable::Data) } else { Ok(()) }
    }

    fn backing(&self) -> Backing<'_> {
        Backing { inode: self.node.inode(), device: self.device.as_ref() }
    }

    fn limit(&self) -> Result<u64> {
        self.limit.ok_or(Error::InvalidArgument("the file was opened for reading"))
    }

    /// Refuses a write anywhere but at the end of a file that does not take it.
    fn check_writable(&self) -> Result<()> {
        if self.accepted { Ok(()) } else { check_flags(&self.node, InodeFlags::APPEND) }
    }

    /// Whether bytes at `offset` lie within the size. They do not overflow.
    fn contains(&self, offset: u64, data: &[u8]) -> bool {
        offset + data.len() as u64 <= self.backing().inode.size_bytes()
    }

    /// Writes with the state held exclusively, past the end as well.
    fn write_exclusive(&self, offset: u64, data: &[u8]) -> Result<(usize, Option<Stop>)> {
        data::clear_tail(self.backing(), offset)?;
        Ok(data::write(self.backing(), offset, data, Hold::Exclusive))
    }

    /// The permissions without the bits that give privilege, if there are any.
    fn without_privilege(&self) -> Option<u16> {
        let permissions = self.node.ownership().permissions;
        let left = without_privilege(permissions);
        (left != permissions).then_some(left)
    }

    /// Does something with the state of `to` held exclusively and that of this file at least shared.
    fn with_both<T>(&self, to: &Self, work: impl FnOnce() -> T) -> T {
        let (source, target) = (&self.node, &to.node);
        if Arc::ptr_eq(source, target) {
            let _state = target.state().write();
            return work();
        }
        if rank(source) < rank(target) {
            let _source = source.state().read_nested(0);
            let _target = target.state().write_nested(1);
            return work();
        }
        let _target = target.state().write_nested(0);
        let _source = source.state().read_nested(1);
        work()
    }

    /// Does something that lets `to` have blocks of this file: with the state of `to` held exclusively, and that of this file
    /// shared, while no writer of it is at work. Readers of this file go on meanwhile, as on Linux.
    fn giving_blocks<T>(&self, to: &Self, work: impl FnOnce() -> T) -> T {
        let _giving = (!Arc::ptr_eq(&self.node, &to.node)).then(|| self.node.begin_giving());
        self.with_both(to, work)
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("ino", &self.node.ino().0)
            .field("writable", &self.limit.is_some())
            .finish_non_exhaustive()
    }
}

const BEHIND_END: Error =
    Error::InvalidArgument("the range begins past the end of the file that is to be cloned");

/// The place of a file in the order in which two are locked. Two filesystems may use one number: then the place in memory
/// decides.
fn rank(node: &Arc<Node>) -> (Ino, *const Node) {
    (node.ino(), Arc::as_ptr(node))
}

/// The part of `data` that a file of at most `limit` bytes can hold at `offset`.
fn cut_to_limit(offset: u64, data: &[u8], limit: u64) -> Result<&[u8]> {
    match limit.checked_sub(offset) {
        None | Some(0) => Err(Error::FileTooLarge),
        Some(room) => Ok(&data[..room.min(data.len() as u64) as usize]),
    }
}

/// Refuses a file that cannot be changed, or that has one of the flags in `refused`.
fn check_flags(node: &Node, refused: InodeFlags) -> Result<()> {
    if node.ownership().flags.intersects(refused | InodeFlags::IMMUTABLE) {
        Err(Error::NotPermitted)
    } else {
        Ok(())
    }
}

/// The result of a write that stopped here: out of space after some bytes is a short write.
fn outcome(written: usize, stop: Option<Stop>) -> Result<usize> {
    match stop {
        Some(Stop::Failed(Error::NoSpace)) if written > 0 => Ok(written),
        Some(Stop::Failed(error)) => Err(error),
        Some(Stop::NeedsExclusive) | None => Ok(written),
    }
}
