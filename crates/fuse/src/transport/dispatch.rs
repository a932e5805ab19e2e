//! Which request is answered by what: takes requests apart, asks the server, puts replies together.
//!
//! Called from all event loops at once; keeps nothing between requests but what was agreed on at the beginning.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use undercroft_vfs::{AttrChange, Durable, Error, InodeFlags, NewKind, NewObject, NewTime, Timestamp};

use super::REQUEST_BYTES;
use super::abi::{
    BatchForgetIn, CopyFileRangeIn, CopyFileRangeOut, CreateIn, EntryOut, FSYNC_DATA_ONLY, FallocateIn,
    ForgetIn, ForgetOne, FsyncIn, GETATTR_FILE, GetAttrIn, GetXattrIn, GetXattrOut, IOCTL_32BIT, InitFlags,
    IoctlIn, IoctlOut, LinkIn, LseekIn, LseekOut, MkdirIn, MknodIn, Opcode, OpenIn, OpenOut, OpenedFlags,
    ReadIn, Rename2In, RenameIn, SETXATTR_ACL_KILL_SGID, SetAttrIn, SetAttrValid, SetXattrIn,
    ShortSetXattrIn, WRITE_CACHE, WRITE_KILL_SUIDGID, WriteIn, WriteOut,
};
use super::encode::{Timeouts, kind_of_mode, push_listed, statfs_out, unpacked_device};
use super::notify::Notifier;
use super::reply::Reply;
use super::request::{Malformed, Request, unique_of};
use super::write_cache::{FileAccess, WriteCache};
use crate::MountOptions;
use crate::attributes::SetAttr;
use crate::directory::Details;
use crate::errno::errno;
use crate::files::{Cached, WriteHow};
use crate::ioctl::Ioctl;
use crate::nodes::NodeId;
use crate::panics::caught;
use crate::server::{Entry, Server, TRUSTED};

/// The shorter form of a copy has 32 bits for its answer; this many whole pages fit.
const COPY_MAX_BYTES: u64 = 0xffff_f000;

/// How files are opened that the kernel does not cache.
const PAST_THE_CACHE: OpenedFlags = OpenedFlags::DIRECT_IO.union(OpenedFlags::PARALLEL_DIRECT_WRITES);

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// Sends requests to the server.
pub(super) struct Dispatcher {
    server: Arc<Server>,
    timeouts: Timeouts,
    agreed: InitFlags,
    notifier: Arc<Notifier>,
    write_cache: WriteCache,
    /// How files are opened; `None` when the kernel need not ask.
    opened: Option<OpenedFlags>,
}

/// What the event loop does next.
pub(super) enum Next<'a> {
    Reply(&'a [u8]),
    Nothing,
}

/// Why a request is refused.
enum Refusal {
    Filesystem(Error),
    Number(Errno),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Filesystem(error)
    }
}

impl From<Malformed> for Refusal {
    fn from(_: Malformed) -> Self {
        Self::Number(Errno::INVAL)
    }
}

impl Refusal {
    fn errno(&self) -> Errno {
        match self {
            Self::Filesystem(error) => errno(error),
            Self::Number(errno) => *errno,
        }
    }
}

type Answered = Result<(), Refusal>;

impl Dispatcher {
    pub(super) fn new(
        server: Arc<Server>,
        options: &MountOptions,
        agreed: InitFlags,
        notifier: Arc<Notifier>,
        write_cache: WriteCache,
    ) -> Self {
        let timeouts = Timeouts { entry: options.entry_timeout, attr: options.attr_timeout };
        let cached = OpenedFlags::KEEP_CACHE | OpenedFlags::NOFLUSH;
        let opened = if options.direct_io {
            Some(PAST_THE_CACHE | OpenedFlags::NOFLUSH)
        } else if options.read_only && agreed.contains(InitFlags::NO_OPEN_SUPPORT) {
            None
        } else {
            Some(cached)
        };
        Self { server, timeouts, agreed, notifier, write_cache, opened }
    }

    /// Answers the request in `bytes`. What is no request is refused, or dropped if it does not even say what a refusal
    /// would have to name.
    pub(super) fn answer<'a>(&self, bytes: &[u8], reply: &'a mut Reply<'_>) -> Next<'a> {
        let Ok(request) = Request::parse(bytes) else {
            self.complain("the kernel sent half a request, which was refused");
            return match unique_of(bytes) {
                Some(unique) => Next::Reply(reply.refuse(unique, Errno::IO)),
                None => Next::Nothing,
            };
        };
        if is_forgetting(&request) {
            // No caller waits for an answer.
            let _ = self.carry_out(request, reply);
            return Next::Nothing;
        }
        Next::Reply(self.answer_always(request, reply))
    }

    /// Answers a request whose reply is waited for, whatever it is. Over a ring that is each: there the kernel also gives
    /// inodes back that it has refused, and its thread waits until the entry comes back.
    pub(super) fn answer_always<'a>(&self, request: Request<'_>, reply: &'a mut Reply<'_>) -> &'a [u8] {
        let unique = request.unique();
        match self.carry_out(request, reply) {
            Ok(()) => reply.finish(unique),
            Err(refused) => reply.refuse(unique, refused),
        }
    }

    /// Says what is wrong with the connection.
    pub(super) fn complain(&self, what: &str) {
        self.server.complain(what);
    }

    /// Does what a request asks for. A defect that it meets is a refusal.
    fn carry_out(&self, mut request: Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        reply.clear();
        let (Opcode(number), NodeId(inode)) = (request.opcode(), request.node());
        let done = caught(|| self.dispatch(&mut request, reply));
        if may_change(Opcode(number)) {
            self.server.pauses().note_change();
        }
        match done {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Refusal::Number(errno))) => Err(errno),
            Ok(Err(Refusal::Filesystem(error))) => {
                self.server.report(&error);
                Err(errno(&error))
            }
            Err(panic) => {
                self.server.note_defect(format!("request {number} for inode {inode} panicked: {panic}"));
                Err(Errno::IO)
            }
        }
    }

    fn dispatch(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Answered {
        match request.opcode() {
            Opcode::LOOKUP => self.lookup(request, reply),
            Opcode::GETATTR => self.get_attr(request, reply),
            Opcode::STATX => {
                self.write_cache.asked(request.node());
                reply.push(&self.timeouts.statx(&self.server.attr(request.node())?));
                Ok(())
            }
            Opcode::SETATTR => self.set_attr(request, reply),
            Opcode::READLINK => {
                reply.push_bytes(&self.server.read_link(request.node())?);
                Ok(())
            }
            Opcode::SYMLINK => self.symlink(request, reply),
            Opcode::MKNOD => self.mknod(request, reply),
            Opcode::MKDIR => self.mkdir(request, reply),
            Opcode::CREATE => self.create(request, reply),
            Opcode::TMPFILE => self.tmpfile(request, reply),
            Opcode::LINK => self.link(request, reply),
            Opcode::UNLINK => {
                Ok(self.server.unlink(request.caller(), request.node(), request.take_name()?)?)
            }
            Opcode::RMDIR => Ok(self.server.rmdir(request.caller(), request.node(), request.take_name()?)?),
            Opcode::RENAME => {
                let RenameIn { newdir } = request.take()?;
                self.rename(request, newdir, 0)
            }
            Opcode::RENAME2 => {
                let Rename2In { newdir, flags, .. } = request.take()?;
                self.rename(request, newdir, flags)
            }
            Opcode::OPEN => self.open(request, reply),
            Opcode::OPENDIR => self.open_dir(reply),
            Opcode::RELEASE => {
                self.server.closed(request.node());
                Ok(())
            }
            Opcode::RELEASEDIR => Ok(()),
            Opcode::READ => self.read(request, reply),
            Opcode::READDIR => self.list(request, reply),
            Opcode::READDIRPLUS => self.list_with_details(request, reply),
            Opcode::WRITE => self.write(request, reply),
            Opcode::FALLOCATE => {
                let FallocateIn { offset, length, mode, .. } = request.take()?;
                let (caller, id) = (request.caller(), request.node());
                self.telling_mode(id, || Ok(self.server.fallocate(caller, id, mode, offset, length)?))?;
                self.write_cache.note_taken(usize::try_from(length).unwrap_or(usize::MAX));
                Ok(())
            }
            Opcode::LSEEK => self.seek(request, reply),
            Opcode::COPY_FILE_RANGE | Opcode::COPY_FILE_RANGE_64 => self.copy_range(request, reply),
            Opcode::FSYNC | Opcode::FSYNCDIR => {
                let FsyncIn { fsync_flags, .. } = request.take()?;
                let data_only = fsync_flags & FSYNC_DATA_ONLY != 0;
                let what = if data_only { Durable::Data } else { Durable::Everything };
                let synced = self.server.sync_node(request.node(), what);
                self.notifier.send_noted(request.node());
                Ok(synced?)
            }
            Opcode::SYNCFS => Ok(self.server.sync()?),
            Opcode::STATFS => {
                reply.push(&statfs_out(&self.server.statfs_after_deletions()?));
                Ok(())
            }
            Opcode::SETXATTR => self.set_xattr(request),
            Opcode::GETXATTR => {
                let GetXattrIn { size, .. } = request.take()?;
                let value = self.server.xattr(request.node(), request.take_name()?)?;
                push_sized(reply, &value, size)
            }
            Opcode::LISTXATTR => {
                let GetXattrIn { size, .. } = request.take()?;
                let names = self.server.xattr_names(request.caller(), request.node())?;
                push_sized(reply, &names, size)
            }
            Opcode::REMOVEXATTR => {
                let (caller, id, name) = (request.caller(), request.node(), request.take_name()?);
                self.telling_list(id, name, || Ok(self.server.remove_xattr(caller, id, name)?))
            }
            Opcode::IOCTL => self.ioctl(request, reply),
            Opcode::FORGET | Opcode::BATCH_FORGET => Ok(self.forget(request)?),
            Opcode::DESTROY => {
                self.server.close();
                Ok(())
            }
            // Said once, and the kernel does without: flush (nothing is kept for an open file), access (a user that
            // got in without the kernel's checks may see everything), interrupt (nothing takes long), poll, bmap.
            _ => Err(Refusal::Number(Errno::NOSYS)),
        }
    }

    fn forget(&self, request: &mut Request<'_>) -> Result<(), Malformed> {
        if request.opcode() == Opcode::FORGET {
            let ForgetIn { nlookup } = request.take()?;
            self.write_cache.forget(request.node());
            self.server.forget(request.node(), nlookup);
            return Ok(());
        }
        let BatchForgetIn { count, .. } = request.take()?;
        for _ in 0..count {
            let ForgetOne { nodeid, nlookup } = request.take()?;
            self.write_cache.forget(NodeId(nodeid));
            self.server.forget(NodeId(nodeid), nlookup);
        }
        Ok(())
    }

    fn lookup(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Answered {
        match self.server.lookup(request.node(), request.take_name()?) {
            Ok(entry) => reply.push(&self.timeouts.entry(&entry)),
            // An entry without an inode lets the kernel remember that there is none.
            Err(Error::NotFound) => reply.push(&self.timeouts.absent()),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn push_entry(&self, reply: &mut Reply<'_>, entry: &Entry) -> Answered {
        reply.push(&self.timeouts.entry(entry));
        Ok(())
    }

    fn get_attr(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Answered {
        let GetAttrIn { getattr_flags, fh, .. } = request.take()?;
        let opened = if getattr_flags & GETATTR_FILE == 0 { None } else { Some(FileAccess::of_handle(fh)) };
        if let Some(errno) = self.write_cache.refuse(request.node(), opened) {
            return Err(Refusal::Number(errno));
        }
        reply.push(&self.timeouts.attr(&self.server.attr(request.node())?));
        Ok(())
    }

    fn set_attr(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Answered {
        let new: SetAttrIn = request.take()?;
        let valid = SetAttrValid::from_bits_retain(new.valid);
        let given = |flag: SetAttrValid| valid.contains(flag);
        let time = |flag, now, seconds, nanoseconds| {
            let at = NewTime::At(Timestamp { seconds, nanoseconds });
            given(flag).then(|| if given(now) { NewTime::Now } else { at })
        };
        let changed = Timestamp { seconds: new.ctime, nanoseconds: new.ctimensec };
        let change = AttrChange {
            permissions: given(SetAttrValid::MODE).then_some(new.mode as u16 & 0o7777),
            uid: given(SetAttrValid::UID).then_some(new.uid),
            gid: given(SetAttrValid::GID).then_some(new.gid),
            accessed: time(SetAttrValid::ATIME, SetAttrValid::ATIME_NOW, new.atime, new.atimensec),
            modified: time(SetAttrValid::MTIME, SetAttrValid::MTIME_NOW, new.mtime, new.mtimensec),
            changed: given(SetAttrValid::CTIME).then_some(changed),
            flags: None,
            project: None,
            hints: None,
        };
        let set = SetAttr {
            change,
            size_bytes: given(SetAttrValid::SIZE).then_some(new.size),
            drop_privileges: given(SetAttrValid::KILL_SUIDGID),
            of_nothing: (valid - (SetAttrValid::FILE | SetAttrValid::LOCK_OWNER)).is_empty(),
        };
        let attr = self.server.set_attr(request.caller(), request.node(), &set)?;
        if set.size_bytes.is_some() {
            self.write_cache.cut_off(request.node());
        }
        self.write_cache.told(request.node());
        reply.push(&self.timeouts.attr(&attr));
        Ok(())
    }

    fn symlink(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Answered {
        let name = request.take_name()?;
        let target = request.take_name()?;
        let object = NewObject { kind: NewKind::Symlink(target), permissions: 0o777, umask: 0 };
        self.push_entry(reply, &self.server.create(request.caller(), request.node(), name, &object)?)
    }

    fn mknod(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Answered {
        use undercroft_vfs::FileType;

        let MknodIn { mode, rdev, umask, .. } = request.take()?;
        let device = unpacked_device(rdev);
        let kind = match kind_of_mode(mode) {
            Some(FileType::Regular) => NewKind::Regular,
            Some(FileType::Fifo) => NewKind::Fifo,
            Some(FileType::Socket) => NewKind::Socket,
            Some(FileType::CharDevice) => NewKind::CharDevice(device),
            Some(FileType::BlockDevice) => NewKind::BlockDevice(device),
            Some(FileType::Directory | FileType::Symlink) | None => {
                return Err(Refusal::Number(Errno::INVAL));
            }
        };
        let object = NewObject { kind, permissions: mode as u16 & 0o7777, umask: umask as u16 };
        let name = request.take_name()?;
        self.push_entry(reply, &self.server.create(request.caller(), request.node(), name, &object)?)
    }

    fn mkdir(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Answered {
        let MkdirIn { mode, umask } = request.take()?;
        let permissions = mode as u16 & 0o7777;
        let object = NewObject { kind: NewKind::Directory, permissions, umask: umask as u16 };
        let name = request.take_name()?;
        self.push_entry(reply, &self.server.create(request.caller(), request.node(), name, &object)?)
    }

    fn create(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Answered {
        let CreateIn { flags, mode, umask, .. } = request.take()?;
        let permissions = mode as u16 & 0o7777;
        let object = NewObject { kind: NewKind::Regular, permissions, umask: umask as u16 };
        let (caller, dir, name) = (request.caller(), request.node(), request.take_name()?);
        self.push_created(reply, &self.server.create_or_open(caller, dir, name, &object, flags)?, flags)
    }

    fn tmpfile(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Answered {
        let CreateIn { flags, mode, umask, .. } = request.take()?;
        let (permissions, umask) = (mode as u16 & 0o7777, umask as u16);
        let created = self.server.tmpfile(request.caller(), request.node(), permissions, umask)?;
        self.push_created(reply, &created, flags)
    }

    /// An inode that is opened with its creation.
    fn push_created(&self, reply: &mut Reply<'_>, entry: &Entry, flags: u32) -> Answered {
        let (mut timeouts, access) = (self.timeouts, FileAccess::of_flags(flags));
        if self.write_cache.created(entry.id, access) {
            timeouts.attr = Duration::ZERO;
        }
        reply.push(&timeouts.entry(entry));
        // It may have inherited the flag.
        let how = if access != FileAccess::Read && entry.attr.flags.contains(InodeFlags::SYNC) {
            OpenedFlags::DIRECT_IO
        } else {
            self.opened.unwrap_or(OpenedFlags::KEEP_CACHE)
        };
        reply.push(&opened(how, access));
        Ok(())
    }

    fn link(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Answered {
        let LinkIn { oldnodeid } = request.take()?;
        let old = NodeId(oldnodeid);
        let name = request.take_name()?;
        self.push_entry(reply, &self.server.link(request.caller(), old, request.node(), name)?)
    }

    fn rename(&self, request: &mut Request<'_>, to: u64, flags: u32) -> Answered {
        let (from, to) = (request.node(), NodeId(to));
        let (name, to_name) = (request.take_name()?, request.take_name()?);
        Ok(self.server.rename(request.caller(), (from, name), (to, to_name), flags)?)
    }

    fn open(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Answered {
        let OpenIn { flags, .. } = request.take()?;
        // Said once; from then on the kernel opens files by itself.
        let Some(how) = self.opened else { return Err(Refusal::Number(Errno::NOSYS)) };
        let how = match self.server.open(request.node(), flags)? {
            Cached::Yes => how,
            Cached::Anew => how.difference(OpenedFlags::KEEP_CACHE | PAST_THE_CACHE),
            Cached::No => OpenedFlags::DIRECT_IO,
        };
        let access = FileAccess::of_flags(flags);
        if access != FileAccess::Read {
            self.write_cache.opened(request.node());
        }
        reply.push(&opened(how, access));
        Ok(())
    }

    fn open_dir(&self, reply: &mut Reply<'_>) -> Answered {
        // Nothing is kept for an open directory, and what the kernel has listed stays good until it changes
        // something itself.
        if self.agreed.contains(InitFlags::NO_OPENDIR_SUPPORT) {
            return Err(Refusal::Number(Errno::NOSYS));
        }
        reply.push(&opened(OpenedFlags::CACHE_DIR | OpenedFlags::KEEP_CACHE, FileAccess::Read));
        Ok(())
    }

    fn read(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Answered {
        let ReadIn { offset, size, .. } = request.take()?;
        let room = reply.room(size.min(REQUEST_BYTES) as usize);
        let len = self.server.read(request.node(), offset, room)?;
        reply.grow(len);
        Ok(())
    }

    fn list(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Answered {
        let ReadIn { offset, size, .. } = request.take()?;
        let room = size as usize;
        let listed =
            self.server.list(request.node(), offset, &mut |entry| push_listed(reply, room, entry, None));
        Ok(listed?)
    }

    fn list_with_details(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Answered {
        let ReadIn { offset, size, .. } = request.take()?;
        let room = size as usize;
        // A listing hands out names and attributes as one, so the shorter of both times holds.
        let both = self.timeouts.entry.min(self.timeouts.attr);
        let timeouts = Timeouts { entry: both, attr: both };
        let listed = self.server.list_with_details(request.node(), offset, &mut |entry, details| {
            let plus = match details {
                Details::Inode(inode) => timeouts.entry(inode),
                // Without an id the kernel takes the name alone.
                Details::NameOnly => EntryOut::default(),
            };
            push_listed(reply, room, entry, Some(&plus))
        });
        Ok(listed?)
    }

    fn write(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Answered {
        let WriteIn { offset, size, write_flags, flags, .. } = request.take()?;
        let data = request.take_bytes(size)?;
        let how = WriteHow {
            flags,
            from_cache: write_flags & WRITE_CACHE != 0,
            drop_privileges: write_flags & WRITE_KILL_SUIDGID != 0,
        };
        let (caller, id) = (request.caller(), request.node());
        let write = || Ok(self.server.write(caller, id, offset, data, how)?);
        let written =
            if how.from_cache { self.noting_space(id, write) } else { self.telling_mode(id, write) };
        match &written {
            Ok(_) => self.write_cache.note_taken(data.len()),
            Err(refusal) if how.from_cache => self.write_cache.note_failed(id, refusal.errno()),
            Err(_) => {}
        }
        let written = written?;
        reply.push(&WriteOut { size: written as u32, padding: 0 });
        Ok(())
    }

    /// Does what may change attributes of an inode that the request's sender holds, beyond what the kernel knows of. If
    /// it does, the kernel has forgotten them before it gets the answer.
    fn telling<T>(&self, id: NodeId, change: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
        let before = self.server.attr(id).ok();
        let answer = change();
        if before.is_some() && self.server.attr(id).ok() != before {
            self.notifier.attributes_changed(id);
        }
        answer
    }

    /// As [`telling`](Self::telling), for an extended attribute. One of `trusted.` may be another name of an access control
    /// list, as XFS shows those it keeps: the kernel forgets a list that it has cached with the attributes, and looks at
    /// them anew before it asks the list.
    fn telling_list<T>(
        &self,
        id: NodeId,
        name: &[u8],
        change: impl FnOnce() -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        if !name.starts_with(TRUSTED) {
            return self.telling(id, change);
        }
        let answer = change();
        self.notifier.attributes_changed(id);
        answer
    }

    /// As [`telling`](Self::telling), for what changes nothing but the mode behind the kernel's back, and that only where
    /// it gives rights.
    fn telling_mode<T>(&self, id: NodeId, change: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
        if self.server.gives_rights(id) { self.telling(id, change) } else { change() }
    }

    /// Does what the kernel writes back. How much space that takes it learns soon after, or with an fsync.
    fn noting_space<T>(&self, id: NodeId, write: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
        let sectors = || self.server.attr(id).ok().map(|attr| attr.sectors);
        let before = sectors();
        let answer = write();
        if sectors() != before {
            self.notifier.attributes_change(id, false);
        }
        answer
    }

    fn seek(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Answered {
        // The kernel asks without having written what it has cached, so the answer could not be right. Said once,
        // and it takes all of a file for data.
        if self.agreed.contains(InitFlags::WRITEBACK_CACHE) {
            return Err(Refusal::Number(Errno::NOSYS));
        }
        let LseekIn { offset, whence, .. } = request.take()?;
        let found = match whence {
            // Off the end of numbers that mean an offset.
            SEEK_DATA | SEEK_HOLE if offset.cast_signed() < 0 => return Err(Error::NoSuchOffset.into()),
            SEEK_DATA => self.server.seek_data(request.node(), offset)?,
            SEEK_HOLE => self.server.seek_hole(request.node(), offset)?,
            _ => return Err(Error::InvalidArgument("seek only for data and holes").into()),
        };
        reply.push(&LseekOut { offset: found });
        Ok(())
    }

    fn copy_range(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Answered {
        let CopyFileRangeIn { off_in, nodeid_out, off_out, len, .. } = request.take()?;
        let long = request.opcode() == Opcode::COPY_FILE_RANGE_64;
        let len = if long { len } else { len.min(COPY_MAX_BYTES) };
        let (from, to) = ((request.node(), off_in), (NodeId(nodeid_out), off_out));
        let caller = request.caller();
        let copied = self.telling_mode(to.0, || Ok(self.server.copy_range(caller, from, to, len)?))?;
        if long {
            reply.push(&CopyFileRangeOut { bytes_copied: copied });
        } else {
            reply.push(&WriteOut { size: copied as u32, padding: 0 });
        }
        Ok(())
    }

    fn set_xattr(&self, request: &mut Request<'_>) -> Answered {
        let (size, flags, drop_group_id) = if self.agreed.contains(InitFlags::SETXATTR_EXT) {
            let SetXattrIn { size, flags, setxattr_flags, .. } = request.take()?;
            (size, flags, setxattr_flags & SETXATTR_ACL_KILL_SGID != 0)
        } else {
            let ShortSetXattrIn { size, flags } = request.take()?;
            (size, flags, false)
        };
        let name = request.take_name()?;
        let value = request.take_bytes(size)?;
        let (caller, id) = (request.caller(), request.node());
        self.telling_list(id, name, || {
            Ok(self.server.set_xattr(caller, id, name, value, flags, drop_group_id)?)
        })
    }

    fn ioctl(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Answered {
        let IoctlIn { flags, cmd: command, arg: pointer, in_size, out_size, .. } = request.take()?;
        let input = request.take_bytes(in_size)?;
        let is_of_32_bits = flags & IOCTL_32BIT != 0;
        let ioctl = Ioctl { command, pointer, is_of_32_bits, input };
        let (caller, id) = (request.caller(), request.node());
        let answer = self.telling(id, || Ok(self.server.ioctl(caller, id, &ioctl)?))?;
        // An ioctl that is none of ours does not apply to the file.
        let answer = answer.ok_or(Refusal::Number(Errno::NOTTY))?;
        reply.push(&IoctlOut::default());
        reply.push_bytes(&answer[..answer.len().min(out_size as usize)]);
        Ok(())
    }
}

/// Whether a request gives inodes back, for which the kernel wants no reply.
fn is_forgetting(request: &Request<'_>) -> bool {
    matches!(request.opcode(), Opcode::FORGET | Opcode::BATCH_FORGET)
}

/// Whether a request may change what is on the disk; also by giving a file back whose last name is gone.
fn may_change(opcode: Opcode) -> bool {
    !matches!(
        opcode,
        Opcode::LOOKUP
            | Opcode::GETATTR
            | Opcode::STATX
            | Opcode::READLINK
            | Opcode::OPEN
            | Opcode::OPENDIR
            | Opcode::RELEASE
            | Opcode::RELEASEDIR
            | Opcode::READ
            | Opcode::READDIR
            | Opcode::READDIRPLUS
            | Opcode::LSEEK
            | Opcode::STATFS
            | Opcode::GETXATTR
            | Opcode::LISTXATTR
            | Opcode::FSYNC
            | Opcode::FSYNCDIR
            | Opcode::SYNCFS
            | Opcode::DESTROY
    )
}

fn opened(flags: OpenedFlags, access: FileAccess) -> OpenOut {
    OpenOut { fh: access.handle(), open_flags: flags.bits(), backing_id: 0 }
}

/// Answers with as many bytes as there are, or, if there is no room at all, with their number.
fn push_sized(reply: &mut Reply<'_>, bytes: &[u8], room: u32) -> Answered {
    let len = u32::try_from(bytes.len()).map_err(|_| Refusal::Number(Errno::TOOBIG))?;
    if room == 0 {
        reply.push(&GetXattrOut { size: len, padding: 0 });
    } else if len <= room {
        reply.push_bytes(bytes);
    } else {
        return Err(Refusal::Number(Errno::RANGE));
    }
    Ok(())
}
