//! The FUSE protocol's structures and numbers, as `linux/fuse.h` has them (protocol 7, minor 45).
//!
//! Native byte order: both sides are one machine. Requests are read by copy, so nothing depends on where in a
//! buffer they begin. Only what this server takes or sends is listed.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Protocol version that this server speaks.
pub(super) const MAJOR: u32 = 7;
/// And its minor number: 41 brought the last structure that is used here, 39 `statx`.
pub(super) const MINOR: u32 = 45;
/// The oldest minor number that is talked to: with 31 the last structure that differs in size was settled.
pub(super) const MINOR_MIN: u32 = 31;

/// What the kernel asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opcode(pub(super) u32);

impl Opcode {
    pub(super) const LOOKUP: Self = Self(1);
    pub(super) const FORGET: Self = Self(2);
    pub(super) const GETATTR: Self = Self(3);
    pub(super) const SETATTR: Self = Self(4);
    pub(super) const READLINK: Self = Self(5);
    pub(super) const SYMLINK: Self = Self(6);
    pub(super) const MKNOD: Self = Self(8);
    pub(super) const MKDIR: Self = Self(9);
    pub(super) const UNLINK: Self = Self(10);
    pub(super) const RMDIR: Self = Self(11);
    pub(super) const RENAME: Self = Self(12);
    pub(super) const LINK: Self = Self(13);
    pub(super) const OPEN: Self = Self(14);
    pub(super) const READ: Self = Self(15);
    pub(super) const WRITE: Self = Self(16);
    pub(super) const STATFS: Self = Self(17);
    pub(super) const RELEASE: Self = Self(18);
    pub(super) const FSYNC: Self = Self(20);
    pub(super) const SETXATTR: Self = Self(21);
    pub(super) const GETXATTR: Self = Self(22);
    pub(super) const LISTXATTR: Self = Self(23);
    pub(super) const REMOVEXATTR: Self = Self(24);
    pub(super) const INIT: Self = Self(26);
    pub(super) const OPENDIR: Self = Self(27);
    pub(super) const READDIR: Self = Self(28);
    pub(super) const RELEASEDIR: Self = Self(29);
    pub(super) const FSYNCDIR: Self = Self(30);
    pub(super) const CREATE: Self = Self(35);
    pub(super) const DESTROY: Self = Self(38);
    pub(super) const IOCTL: Self = Self(39);
    pub(super) const BATCH_FORGET: Self = Self(42);
    pub(super) const FALLOCATE: Self = Self(43);
    pub(super) const READDIRPLUS: Self = Self(44);
    pub(super) const RENAME2: Self = Self(45);
    pub(super) const LSEEK: Self = Self(46);
    pub(super) const COPY_FILE_RANGE: Self = Self(47);
    pub(super) const SYNCFS: Self = Self(50);
    pub(super) const TMPFILE: Self = Self(51);
    pub(super) const STATX: Self = Self(52);
    pub(super) const COPY_FILE_RANGE_64: Self = Self(53);
}

/// Since this minor number the kernel asks for those attributes only that it needs and does not have.
pub(super) const MINOR_ASKING_FOR_MODE: u32 = 36;

bitflags::bitflags! {
    /// What the kernel offers and the server takes when they agree on how to talk.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct InitFlags: u64 {
        /// Several reads of one file at a time.
        const ASYNC_READ = 1 << 0;
        /// Inodes are found by number, for file handles that are kept.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes of more than a page.
        const BIG_WRITES = 1 << 5;
        /// The server applies the mask for permissions.
        const DONT_MASK = 1 << 6;
        /// Ioctls on directories.
        const HAS_IOCTL_DIR = 1 << 11;
        /// Listings with attributes.
        const DO_READDIRPLUS = 1 << 13;
        /// Listings with attributes where they seem wanted.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Several direct reads and writes of one file at a time.
        const ASYNC_DIO = 1 << 15;
        /// The kernel keeps what was written and writes it later.
        const WRITEBACK_CACHE = 1 << 16;
        /// Files are opened without asking, once an open was answered with "no such call".
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Look-ups and listings of one directory at a time.
        const PARALLEL_DIROPS = 1 << 18;
        /// Access control lists.
        const POSIX_ACL = 1 << 20;
        /// `max_pages` counts.
        const MAX_PAGES = 1 << 22;
        /// The kernel keeps the targets of links.
        const CACHE_SYMLINKS = 1 << 23;
        /// As for files.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// The server takes away set-user-ID and set-group-ID, told when to.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// The longer form of setting an attribute.
        const SETXATTR_EXT = 1 << 29;
        /// There are more than 32 flags.
        const INIT_EXT = 1 << 30;
        /// Mapped memory of files that are read and written directly.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Mounts that map users.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests come over io_uring.
        const OVER_IO_URING = 1 << 41;
    }

    /// How an opened file is treated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct OpenedFlags: u32 {
        /// Past the kernel's cache.
        const DIRECT_IO = 1 << 0;
        /// What the kernel has cached stays good.
        const KEEP_CACHE = 1 << 1;
        /// The kernel may cache the listing.
        const CACHE_DIR = 1 << 3;
        /// No message when a descriptor is closed.
        const NOFLUSH = 1 << 5;
        /// Several direct writes at a time.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
    }

    /// Which fields of [`SetAttrIn`] count.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) struct SetAttrValid: u32 {
        const MODE = 1 << 0;
        const UID = 1 << 1;
        const GID = 1 << 2;
        const SIZE = 1 << 3;
        const ATIME = 1 << 4;
        const MTIME = 1 << 5;
        const FILE = 1 << 6;
        const ATIME_NOW = 1 << 7;
        const MTIME_NOW = 1 << 8;
        const LOCK_OWNER = 1 << 9;
        const CTIME = 1 << 10;
        /// With a new size, set-user-ID and set-group-ID go.
        const KILL_SUIDGID = 1 << 11;
    }
}

/// Of [`IoctlIn::flags`]: made by a program whose words have 32 bits.
pub(super) const IOCTL_32BIT: u32 = 1 << 3;
/// Of [`WriteIn::write_flags`]: written from the kernel's cache.
pub(super) const WRITE_CACHE: u32 = 1 << 0;
/// Of [`WriteIn::write_flags`]: set-user-ID and set-group-ID go.
pub(super) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// Of [`SetXattrIn::setxattr_flags`]: set-group-ID goes.
pub(super) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// In place of an error, in a message without a request: what the kernel keeps of an inode is no longer so.
pub(super) const INVALIDATE_INODE: i32 = 2;
/// Of [`GetAttrIn::getattr_flags`]: asked on behalf of an open file.
pub(super) const GETATTR_FILE: u32 = 1 << 0;
/// Of [`FsyncIn::fsync_flags`].
pub(super) const FSYNC_DATA_ONLY: u32 = 1 << 0;

/// Declares structures that come from the kernel.
macro_rules! from_kernel {
    ($($(#[$meta:meta])* struct $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* } $size:literal)*) => {
        $($(#[$meta])*
        #[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable)]
        #[repr(C)]
        pub(super) struct $name { $($(#[$field_meta])* pub(super) $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $size);)*
    };
}

/// Declares structures that go to the kernel.
macro_rules! to_kernel {
    ($($(#[$meta:meta])* struct $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* } $size:literal)*) => {
        $($(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, IntoBytes, KnownLayout, Immutable)]
        #[repr(C)]
        pub(super) struct $name { $($(#[$field_meta])* pub(super) $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $size);)*
    };
}

from_kernel! {
    /// Begins every request.
    struct InHeader {
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        /// The thread that asks.
        pid: u32,
        total_extlen: u16,
        padding: u16,
    } 40
    /// The kernel's offer; older ones end after `flags`, with the rest zero.
    struct InitIn {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        flags2: u32,
        unused: [u32; 11],
    } 64
    struct ForgetIn { nlookup: u64, } 8
    struct BatchForgetIn { count: u32, dummy: u32, } 8
    struct ForgetOne { nodeid: u64, nlookup: u64, } 16
    struct MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32, } 16
    struct MkdirIn { mode: u32, umask: u32, } 8
    struct RenameIn { newdir: u64, } 8
    struct Rename2In { newdir: u64, flags: u32, padding: u32, } 16
    struct LinkIn { oldnodeid: u64, } 8
    struct SetAttrIn {
        valid: u32,
        padding: u32,
        fh: u64,
        size: u64,
        lock_owner: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    } 88
    struct GetAttrIn { getattr_flags: u32, dummy: u32, fh: u64, } 16
    struct OpenIn { flags: u32, open_flags: u32, } 8
    struct CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32, } 16
    /// Of a file's bytes and of a directory's entries.
    struct ReadIn {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    } 40
    struct WriteIn {
        fh: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    } 40
    struct FsyncIn { fh: u64, fsync_flags: u32, padding: u32, } 16
    /// The longer form, agreed on with [`InitFlags::SETXATTR_EXT`].
    struct SetXattrIn { size: u32, flags: u32, setxattr_flags: u32, padding: u32, } 16
    /// The form without it.
    struct ShortSetXattrIn { size: u32, flags: u32, } 8
    struct GetXattrIn { size: u32, padding: u32, } 8
    struct IoctlIn { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32, } 32
    struct FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, } 32
    struct LseekIn { fh: u64, offset: u64, whence: u32, padding: u32, } 24
    struct CopyFileRangeIn {
        fh_in: u64,
        off_in: u64,
        nodeid_out: u64,
        fh_out: u64,
        off_out: u64,
        len: u64,
        flags: u64,
    } 56
}

to_kernel! {
    /// Begins every reply.
    struct OutHeader { len: u32, error: i32, unique: u64, } 16
    struct InitOut {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        max_stack_depth: u32,
        request_timeout: u16,
        unused: [u16; 11],
    } 64
    struct FuseAttr {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    } 88
    struct EntryOut {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: FuseAttr,
    } 128
    struct AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: FuseAttr, } 104
    struct StatxTime { tv_sec: i64, tv_nsec: u32, reserved: i32, } 16
    struct StatxOut {
        attr_valid: u64,
        attr_valid_nsec: u32,
        flags: u32,
        spare: [u64; 2],
        mask: u32,
        blksize: u32,
        attributes: u64,
        nlink: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        spare0: u16,
        ino: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        atime: StatxTime,
        btime: StatxTime,
        ctime: StatxTime,
        mtime: StatxTime,
        rdev_major: u32,
        rdev_minor: u32,
        dev_major: u32,
        dev_minor: u32,
        spare2: [u64; 14],
    } 288
    struct OpenOut { fh: u64, open_flags: u32, backing_id: i32, } 16
    struct WriteOut { size: u32, padding: u32, } 8
    struct StatfsOut {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    } 80
    struct GetXattrOut { size: u32, padding: u32, } 8
    struct IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, } 16
    struct LseekOut { offset: u64, } 8
    struct CopyFileRangeOut { bytes_copied: u64, } 8
    struct InvalidateInodeOut { ino: u64, off: i64, len: i64, } 24
    /// Begins an entry of a listing; the name follows, padded to 8 bytes.
    struct Dirent { ino: u64, off: u64, namelen: u32, kind: u32, } 24
}
