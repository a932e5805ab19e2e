//! The wire: the only module that knows the crate `fuser`, so that another transport can take its place.
//!
//! Takes a mounted connection, agrees with the kernel on how to talk, and runs the event loops: each thread reads
//! a request from its own clone of the connection, answers it by itself and reads the next, so no request ever
//! waits for another thread to be woken. Errors become errnos here, and nowhere else.
//!
//! What this transport cannot do: `statx` with a creation time (no such message; the kernel falls back to
//! `getattr`), replies without copying (`splice`), io_uring, and a node id that differs from the inode number in a
//! reply that hands out an inode. The last is why node ids are inode numbers; see `nodes.rs`.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr, Request, Session, SessionACL,
};
use rustix::io::Errno as OsErrno;
use undercroft_vfs::{Attr, DeviceNumber, Error, FileType, Ino, Timestamp};

use crate::directory::Details;
use crate::errno::errno;
use crate::nodes::NodeId;
use crate::server::Server;
use crate::{ListAttributes, MountOptions, attach};

/// Largest read, and with it the largest request: 256 pages, the most that an ordinary kernel allows.
const REQUEST_BYTES: u32 = 1 << 20;

/// Reads ahead that may be under way at once.
const BACKGROUND_REQUESTS: u16 = 64;

/// Told as the size of an inode that cannot be read: no file has it, so the kernel lists the name, takes no
/// attributes from us, and asks again when somebody wants to know.
const NO_SIZE: u64 = u64::MAX;

const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

thread_local! {
    /// What a read is answered from; grows to the largest read seen.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// An agreed connection, ready to be served.
pub(crate) struct Connection {
    session: Session<Wire>,
}

impl Connection {
    /// Agrees with the kernel on how to talk. When this returns, the mount answers.
    pub(crate) fn open(fd: OwnedFd, server: Arc<Server>, options: MountOptions) -> io::Result<Self> {
        let mut config = Config::default();
        config.n_threads = Some(options.threads.get());
        // Who may use the mount is the kernel's to decide: `allow_other`.
        config.acl = SessionACL::All;
        config.clone_fd = attach::may_open_device();
        let wire = Wire { server, options, opens: Opens { files: true, directories: true } };
        Ok(Self { session: Session::from_fd(wire, fd, SessionACL::All, config)? })
    }

    /// Serves until the mount is gone.
    pub(crate) fn run(self) -> io::Result<()> {
        self.session.run()
    }
}

/// The server in fuser's terms.
struct Wire {
    server: Arc<Server>,
    options: MountOptions,
    opens: Opens,
}

/// Whether the kernel sends a message for each open. It need not: we keep nothing per open file, and what it has
/// cached of an image that does not change stays good.
struct Opens {
    files: bool,
    directories: bool,
}

impl Wire {
    fn refuse(&self, error: &Error) -> Errno {
        self.server.report(error);
        to_wire(errno(error))
    }
}

impl Filesystem for Wire {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT
            | InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_HAS_IOCTL_DIR;
        wanted |= match self.options.list_attributes {
            ListAttributes::Always => InitFlags::FUSE_DO_READDIRPLUS,
            ListAttributes::Auto => InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO,
            ListAttributes::Never => InitFlags::empty(),
        };
        // With ACLs the kernel checks permissions whether asked to or not.
        wanted.set(InitFlags::FUSE_POSIX_ACL, self.options.default_permissions);
        let offered = config.capabilities();
        let agreed = |flags: Result<(), InitFlags>| {
            flags.map_err(|flags| io::Error::other(format!("the kernel took back {flags:?}")))
        };
        agreed(config.add_capabilities(wanted & offered))?;
        self.opens.files = !offered.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.opens.directories = !offered.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        let set = |set: Result<_, _>| set.map_err(|nearest| io::Error::other(format!("limit is {nearest}")));
        set(config.set_max_write(REQUEST_BYTES).map(drop))?;
        config
            .set_max_background(BACKGROUND_REQUESTS)
            .map_err(|nearest| io::Error::other(format!("at least {nearest} requests")))?;
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.server.lookup(NodeId(parent.0), name.as_bytes()) {
            Ok(entry) => {
                // Here the root would show the number of its id as its inode number, so it is not kept.
                let is_root = entry.id == NodeId::ROOT;
                let attr_timeout = if is_root { Duration::ZERO } else { self.options.attr_timeout };
                let generation = Generation(entry.attr.generation.into());
                let attr = FileAttr { ino: INodeNo(entry.id.0), ..file_attr(&entry.attr) };
                reply.entry_with_ttls(&attr_timeout, &self.options.entry_timeout, &attr, generation);
            }
            // An entry without an inode lets the kernel remember that there is none.
            Err(Error::NotFound) => {
                reply.entry_with_ttls(&Duration::ZERO, &self.options.entry_timeout, &absent(), Generation(0));
            }
            Err(error) => reply.error(self.refuse(&error)),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.server.forget(NodeId(ino.0), lookups);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.server.attr(NodeId(ino.0)) {
            Ok(attr) => reply.attr(&self.options.attr_timeout, &file_attr(&attr)),
            Err(error) => reply.error(self.refuse(&error)),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.server.read_link(NodeId(ino.0)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(self.refuse(&error)),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.opens.files {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
        } else {
            // Said once; from then on the kernel opens files by itself.
            reply.error(Errno::ENOSYS);
        }
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.opens.directories {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE);
        } else {
            reply.error(Errno::ENOSYS);
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Said once: there is never anything to flush.
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self.server.read(NodeId(ino.0), offset, &mut buffer[..size]) {
                Ok(len) => reply.data(&buffer[..len]),
                Err(error) => reply.error(self.refuse(&error)),
            }
        });
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = self.server.list(NodeId(ino.0), offset, &mut |entry| {
            let name = OsStr::from_bytes(entry.name);
            until_full(reply.add(INodeNo(entry.ino.0), entry.next, file_type(entry.kind), name))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.refuse(&error)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.server.list_with_details(NodeId(ino.0), offset, &mut |entry, details| {
            let name = OsStr::from_bytes(entry.name);
            let bare = FileAttr { ino: INodeNo(entry.ino.0), kind: file_type(entry.kind), ..absent() };
            let (timeout, attr, generation) = match details {
                Details::Dots => (Duration::ZERO, bare, 0),
                Details::Inode(id, attr) => {
                    let attr_now = FileAttr { ino: INodeNo(id.0), ..file_attr(attr) };
                    (self.options.entry_timeout.min(self.options.attr_timeout), attr_now, attr.generation)
                }
                Details::Unreadable => (Duration::ZERO, FileAttr { size: NO_SIZE, ..bare }, 0),
            };
            let generation = Generation(generation.into());
            until_full(reply.add(attr.ino, entry.next, name, &timeout, &attr, generation))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.refuse(&error)),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.server.statfs() {
            Ok(space) => reply.statfs(
                space.blocks,
                space.blocks_free,
                space.blocks_available,
                space.inodes,
                space.inodes_free,
                space.block_bytes,
                space.name_max_bytes,
                space.block_bytes,
            ),
            Err(error) => reply.error(self.refuse(&error)),
        }
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, room: u32, reply: ReplyXattr) {
        self.reply_sized(self.server.xattr(NodeId(ino.0), name.as_bytes()), room, reply);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, room: u32, reply: ReplyXattr) {
        self.reply_sized(self.server.xattr_names(NodeId(ino.0), request.uid() == 0), room, reply);
    }

    fn access(&self, _: &Request, _: INodeNo, _: fuser::AccessFlags, reply: ReplyEmpty) {
        // Said once: who got in without the kernel's checks may see everything.
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        command: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        match self.server.ioctl(NodeId(ino.0), command) {
            Ok(Some(answer)) => reply.ioctl(0, &answer),
            Ok(None) => reply.error(to_wire(OsErrno::NOTTY)),
            Err(error) => reply.error(self.refuse(&error)),
        }
    }

    fn lseek(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let found = match (whence, u64::try_from(offset)) {
            (SEEK_DATA, Ok(offset)) => self.server.seek_data(NodeId(ino.0), offset),
            (SEEK_HOLE, Ok(offset)) => self.server.seek_hole(NodeId(ino.0), offset),
            (SEEK_DATA | SEEK_HOLE, Err(_)) => Err(Error::NoSuchOffset),
            _ => Err(Error::InvalidArgument("seek only for data and holes")),
        };
        match found {
            Ok(offset) => reply.offset(offset.cast_signed()),
            Err(error) => reply.error(self.refuse(&error)),
        }
    }
}

impl Wire {
    /// Answers with as many bytes as there are, or, if there is no room at all, with their number.
    fn reply_sized(&self, value: undercroft_vfs::Result<Vec<u8>>, room: u32, reply: ReplyXattr) {
        match value {
            Err(error) => reply.error(self.refuse(&error)),
            Ok(value) => match u32::try_from(value.len()) {
                Ok(len) if room == 0 => reply.size(len),
                Ok(len) if len <= room => reply.data(&value),
                _ => reply.error(to_wire(OsErrno::RANGE)),
            },
        }
    }
}

fn until_full(full: bool) -> ControlFlow<()> {
    if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

fn to_wire(errno: OsErrno) -> Errno {
    Errno::from_i32(errno.raw_os_error())
}

/// Attributes as the kernel gets them when it asks for them by node id.
fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size_bytes,
        blocks: attr.sectors,
        atime: time(attr.accessed),
        mtime: time(attr.modified),
        ctime: time(attr.changed),
        crtime: UNIX_EPOCH,
        kind: file_type(attr.kind),
        perm: attr.permissions,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: device_number(attr.rdev),
        blksize: attr.block_bytes,
        flags: 0,
    }
}

/// The attributes of nothing.
fn absent() -> FileAttr {
    let zero = Timestamp::default();
    file_attr(&Attr {
        ino: Ino(0),
        generation: 0,
        kind: FileType::Regular,
        permissions: 0,
        links: 0,
        uid: 0,
        gid: 0,
        rdev: DeviceNumber::default(),
        size_bytes: 0,
        sectors: 0,
        block_bytes: 0,
        accessed: zero,
        modified: zero,
        changed: zero,
        created: None,
        flags: undercroft_vfs::InodeFlags::empty(),
        project: 0,
    })
}

fn file_type(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
        FileType::Socket => fuser::FileType::Socket,
    }
}

/// The kernel's 32-bit form: 12 bits of major number, 20 of minor, whose low 8 come first.
fn device_number(device: DeviceNumber) -> u32 {
    (device.minor & 0xff) | (device.major << 8) | ((device.minor & !0xff) << 12)
}

/// Times too far away for the wire become the epoch.
fn time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let second =
        if time.seconds < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
    second
        .and_then(|second| second.checked_add(Duration::from_nanos(time.nanoseconds.into())))
        .unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_fraction() {
        let before = time(Timestamp { seconds: -2, nanoseconds: 800_000_000 });
        assert_eq!(UNIX_EPOCH.duration_since(before).unwrap(), Duration::from_millis(1200));
        let after = time(Timestamp { seconds: 1 << 34, nanoseconds: 1 });
        assert_eq!(after.duration_since(UNIX_EPOCH).unwrap(), Duration::new(1 << 34, 1));
    }

    #[test]
    fn device_numbers_are_packed_as_the_kernel_unpacks_them() {
        assert_eq!(device_number(DeviceNumber { major: 8, minor: 1 }), 0x801);
        assert_eq!(device_number(DeviceNumber { major: 0xfff, minor: 0xf_ffff }), 0xffff_ffff);
    }
}
