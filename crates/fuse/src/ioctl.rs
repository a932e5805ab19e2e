//! The ioctls: what `lsattr`, `chattr` and the quota tools want to know and to change, and those of the administrator,
//! which shut a filesystem down and trim it (`fstrim`).
//!
//! Numbers and layouts are Linux's (`linux/fs.h`). Everything else is refused as not applying to the file.
//!
//! **Rights.** Since Linux 5.13 the kernel takes flags and projects by calls of its own, checks the caller's rights, and
//! then sends an ioctl that it makes itself, which points at nothing. An ioctl that a program made points into its
//! memory, and comes unchecked: from older kernels, and from any for numbers that the kernel does not know. Such a one
//! changes nothing unless the caller's owner and capabilities, read here, permit it. The numbers for programs of 32 bits
//! are for these alone, as on Linux's own filesystems.

use std::sync::Arc;

use undercroft_vfs::{
    Attr, AttrChange, Error, ExtentSizeHints, FileType, InodeFlags, Node, Result, SET_GROUP_ID, SET_USER_ID,
};

use crate::caller::{Caller, Capability};
use crate::nodes::NodeId;
use crate::server::Server;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC32_GETFLAGS: u32 = 0x8004_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC32_SETFLAGS: u32 = 0x4004_6602;
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const FS_IOC32_GETVERSION: u32 = 0x8004_7601;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
/// XFS's number, which ext4 and others have taken over.
const SHUTDOWN: u32 = 0x8004_587d;

/// What [`SHUTDOWN`] points at: everything is made durable first, or only what is in the journal, or nothing.
const SHUT_DOWN_CLEANLY: u32 = 0;
const SHUT_DOWN_FLUSHING_LOG: u32 = 1;
const SHUT_DOWN_AT_ONCE: u32 = 2;

const FITRIM: u32 = 0xc018_5879;

/// Size of `struct fstrim_range`: first byte, number of bytes, and least length of a piece, in words of eight bytes.
/// The number of bytes that were trimmed comes back in place of the second.
const FSTRIM_RANGE_BYTES: usize = 24;

/// Size of `struct fsxattr`.
const FSXATTR_BYTES: usize = 28;

/// Pairs of a flag and what `struct fsxattr` has for it.
const EXTENDED_FLAGS: [(InodeFlags, u32); 8] = [
    (InodeFlags::IMMUTABLE, 0x0000_0008),
    (InodeFlags::APPEND, 0x0000_0010),
    (InodeFlags::SYNC, 0x0000_0020),
    (InodeFlags::NOATIME, 0x0000_0040),
    (InodeFlags::NODUMP, 0x0000_0080),
    (InodeFlags::PROJECT_INHERIT, 0x0000_0200),
    (InodeFlags::DAX, 0x0000_8000),
    (InodeFlags::VERITY, 0x0002_0000),
];

/// What `struct fsxattr` has besides for extent size hints: of a file, for what is made in a directory,
/// and of copies.
const HAS_EXTENT_SIZE: u32 = 0x0000_0800;
const HANDS_ON_EXTENT_SIZE: u32 = 0x0000_1000;
const HAS_COPY_SIZE: u32 = 0x0001_0000;

/// Flags that tell how an inode is kept. No ioctl takes them off.
const STAYING: InodeFlags = InodeFlags::ENCRYPTED
    .union(InodeFlags::INDEXED)
    .union(InodeFlags::EXTENTS)
    .union(InodeFlags::VERITY)
    .union(InodeFlags::INLINE_DATA);

/// An ioctl, as it comes from the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ioctl<'a> {
    pub(crate) command: u32,
    /// What the caller has handed over, as an address in its own memory; zero in what the kernel makes itself.
    pub(crate) pointer: u64,
    /// Made by a program whose words have 32 bits.
    pub(crate) is_of_32_bits: bool,
    /// What lies there, if the number says that something does.
    pub(crate) input: &'a [u8],
}

impl Ioctl<'_> {
    /// The number; one for programs of 32 bits as the one for others. `None` for the former from one of the latter.
    fn number(&self) -> Option<u32> {
        let number = match self.command {
            FS_IOC32_GETFLAGS => FS_IOC_GETFLAGS,
            FS_IOC32_SETFLAGS => FS_IOC_SETFLAGS,
            FS_IOC32_GETVERSION => FS_IOC_GETVERSION,
            other => return Some(other),
        };
        self.is_of_32_bits.then_some(number)
    }

    /// Whether the kernel has made it, and checked the caller's rights before.
    fn is_checked(&self) -> bool {
        self.pointer == 0
    }
}

impl Server {
    /// The bytes that answer an ioctl; `None` if it is none of ours.
    pub(crate) fn ioctl(&self, caller: Caller, id: NodeId, ioctl: &Ioctl<'_>) -> Result<Option<Vec<u8>>> {
        // Four bytes also where the number says eight: that is how long the values are, and what callers
        // have room for.
        Ok(Some(match ioctl.number() {
            Some(FS_IOC_GETFLAGS) => self.attr(id)?.flags.bits().to_ne_bytes().to_vec(),
            Some(FS_IOC_GETVERSION) => self.attr(id)?.generation.to_ne_bytes().to_vec(),
            Some(FS_IOC_FSGETXATTR) => {
                let node = self.node(id)?;
                fsxattr(&self.attr(id)?, node.extent_size_hints(), node.extent_count()).to_vec()
            }
            Some(FS_IOC_SETFLAGS) => {
                self.set_flags(caller, id, ioctl)?;
                Vec::new()
            }
            Some(FS_IOC_FSSETXATTR) => {
                self.set_extended_flags(caller, id, ioctl)?;
                Vec::new()
            }
            Some(SHUTDOWN) => {
                self.shut_down(caller, ioctl.pointer)?;
                Vec::new()
            }
            Some(FITRIM) => self.trim(caller, ioctl.input)?.to_vec(),
            _ => return Ok(None),
        }))
    }

    /// Changes flags and project, if the caller may.
    fn change(&self, caller: Caller, node: &Arc<Node>, ioctl: &Ioctl<'_>, change: &AttrChange) -> Result<()> {
        if !ioctl.is_checked() {
            check_right(caller, &node.attr(), change)?;
        }
        self.vfs().set_attr(&caller.credentials(), node, change)
    }

    fn set_flags(&self, caller: Caller, id: NodeId, ioctl: &Ioctl<'_>) -> Result<()> {
        let node = self.node(id)?;
        let wanted = InodeFlags::from_bits_retain(word(ioctl.input, 0)?);
        // The filesystem refuses those that it does not have.
        let flags = Some(wanted | node.ownership().flags.intersection(STAYING));
        self.change(caller, &node, ioctl, &AttrChange { flags, ..AttrChange::default() })
    }

    fn set_extended_flags(&self, caller: Caller, id: NodeId, ioctl: &Ioctl<'_>) -> Result<()> {
        let (wanted, project) = (word(ioctl.input, 0)?, word(ioctl.input, 12)?);
        let node = self.node(id)?;
        let now = node.attr();
        let mut flags = now.flags;
        // Verity is asked for in another way.
        for (flag, bit) in EXTENDED_FLAGS.into_iter().filter(|(flag, _)| *flag != InodeFlags::VERITY) {
            flags.set(flag, wanted & bit != 0);
        }
        let hints = hints(ioctl.input, now.kind)?;
        let privileges = SET_USER_ID | SET_GROUP_ID;
        let loses_privileges = self.vfs().filesystem().fssetxattr_clears_suid_sgid()
            && now.permissions & privileges != 0
            && !caller.keeps_privileges();
        let change = AttrChange {
            permissions: loses_privileges.then_some(now.permissions & !privileges),
            hints: (hints != node.extent_size_hints()).then_some(hints),
            flags: (flags != now.flags).then_some(flags),
            project: (project != now.project).then_some(project),
            ..AttrChange::default()
        };
        self.change(caller, &node, ioctl, &change)
    }

    /// Stops the filesystem, as `godown` asks ext4 and XFS to. The number of this ioctl says that the kernel
    /// hands something out, when the flags go in, so they have to be fetched from the caller's memory.
    fn shut_down(&self, caller: Caller, pointer: u64) -> Result<()> {
        if !caller.is_administrator() {
            return Err(Error::NotPermitted);
        }
        let filesystem = self.vfs().filesystem();
        match caller.read_word(pointer)? {
            SHUT_DOWN_CLEANLY => {
                filesystem.sync()?;
                filesystem.shut_down(true)
            }
            SHUT_DOWN_FLUSHING_LOG => filesystem.shut_down(true),
            SHUT_DOWN_AT_ONCE => filesystem.shut_down(false),
            _ => Err(Error::InvalidArgument("a filesystem is shut down in the ways 0, 1 and 2")),
        }
    }

    fn trim(&self, caller: Caller, input: &[u8]) -> Result<[u8; FSTRIM_RANGE_BYTES]> {
        if !caller.is_administrator() {
            return Err(Error::NotPermitted);
        }
        let Some(mut range) = input.first_chunk().copied() else { return Err(TOO_SHORT) };
        let (words, _) = range.as_chunks::<8>();
        let [start, len, min_len] = [0, 1, 2].map(|at| u64::from_ne_bytes(words[at]));
        let trimmed = self.vfs().filesystem().trim(start..start.saturating_add(len), min_len)?;
        range[8..16].copy_from_slice(&trimmed.to_ne_bytes());
        Ok(range)
    }
}

/// Linux's rules for flags and projects, for what the kernel has not checked: they are the owner's to change, those
/// that bind the owner too only with a capability, and a project not from inside a container.
fn check_right(caller: Caller, now: &Attr, change: &AttrChange) -> Result<()> {
    let binding = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
    let changed = change.flags.map_or(InodeFlags::empty(), |flags| flags.symmetric_difference(now.flags));
    let may = (caller.is_user(now.uid) || caller.has(Capability::OwnAnything))
        && (!changed.intersects(binding) || caller.has(Capability::SetImmutable))
        && (change.project.is_none() || caller.is_in_our_namespace());
    if may { Ok(()) } else { Err(Error::NotPermitted) }
}

const TOO_SHORT: Error = Error::InvalidArgument("an ioctl's argument is too short");

/// The word at an offset of what was handed over.
fn word(input: &[u8], at: usize) -> Result<u32> {
    let bytes = input.get(at..).and_then(|rest| rest.first_chunk());
    Ok(u32::from_ne_bytes(*bytes.ok_or(TOO_SHORT)?))
}

/// The hints that `struct fsxattr` has. As with Linux a size without its flag is none, and so is a flag without a size.
fn hints(input: &[u8], kind: FileType) -> Result<ExtentSizeHints> {
    let (wanted, size, copy_size) = (word(input, 0)?, word(input, 4)?, word(input, 16)?);
    let (own, other) = match kind {
        FileType::Directory => (HANDS_ON_EXTENT_SIZE, HAS_EXTENT_SIZE),
        _ => (HAS_EXTENT_SIZE, HANDS_ON_EXTENT_SIZE),
    };
    if size != 0 && wanted & other != 0 {
        return Err(Error::InvalidArgument("files have a size of extents, and directories hand one on"));
    }
    let when = |flag: u32, size: u32| if wanted & flag != 0 { size } else { 0 };
    Ok(ExtentSizeHints { size: when(own, size), copy_size: when(HAS_COPY_SIZE, copy_size) })
}

/// `struct fsxattr`: flags, extent size hint, number of extents, project, copy-on-write hint, padding.
fn fsxattr(attr: &Attr, hints: ExtentSizeHints, extents: u64) -> [u8; FSXATTR_BYTES] {
    let flags = EXTENDED_FLAGS.iter().filter(|(flag, _)| attr.flags.contains(*flag));
    let mut flags = flags.fold(0, |all, (_, bit)| all | bit);
    let own = if attr.kind == FileType::Directory { HANDS_ON_EXTENT_SIZE } else { HAS_EXTENT_SIZE };
    for (flag, size) in [(own, hints.size), (HAS_COPY_SIZE, hints.copy_size)] {
        flags |= if size == 0 { 0 } else { flag };
    }
    let extents = u32::try_from(extents).unwrap_or(u32::MAX);
    let mut bytes = [0; FSXATTR_BYTES];
    bytes[..4].copy_from_slice(&flags.to_ne_bytes());
    bytes[4..8].copy_from_slice(&hints.size.to_ne_bytes());
    bytes[8..12].copy_from_slice(&extents.to_ne_bytes());
    bytes[16..20].copy_from_slice(&hints.copy_size.to_ne_bytes());
    bytes[12..16].copy_from_slice(&attr.project.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_programs_of_32_bits_are_for_these_alone() {
        let ioctl = |command, is_of_32_bits| Ioctl { command, pointer: 8, is_of_32_bits, input: &[] };
        for (short, long) in [
            (FS_IOC32_GETFLAGS, FS_IOC_GETFLAGS),
            (FS_IOC32_SETFLAGS, FS_IOC_SETFLAGS),
            (FS_IOC32_GETVERSION, FS_IOC_GETVERSION),
        ] {
            assert_eq!(ioctl(short, true).number(), Some(long));
            assert_eq!(ioctl(short, false).number(), None);
            assert_eq!(ioctl(long, false).number(), Some(long));
        }
    }
}

/// Callers are processes of several users, which root starts.
#[cfg(all(test, feature = "oracle"))]
mod oracle_tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use super::*;
    use crate::sample::sample;
    use undercroft_vfs::FileSystem;

    /// A process that waits, as the caller of a request.
    struct Process(Child);

    impl Process {
        fn of(user: u32, program: &[&str]) -> Self {
            let mut command = Command::new(program[0]);
            Self(command.args(&program[1..]).uid(user).gid(user).spawn().unwrap())
        }

        fn caller(&self) -> Caller {
            Caller { uid: 0, gid: 0, thread: self.0.id() }
        }
    }

    impl Drop for Process {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn what_the_kernel_has_not_checked_needs_an_owner_or_capabilities() {
        const OWNER: u32 = 1234;
        let mut memory = sample(1, 0);
        memory.change(memory.root(), |attr| attr.uid = OWNER);
        let attr = memory.read_inode(memory.root()).unwrap().attr();
        let flags = |flags| AttrChange { flags: Some(flags), ..AttrChange::default() };
        let (harmless, binding) = (flags(InodeFlags::NODUMP), flags(InodeFlags::IMMUTABLE));
        let project = AttrChange { project: Some(7), ..AttrChange::default() };
        let may = |caller: Caller| {
            [harmless, binding, project].map(|change| check_right(caller, &attr, &change).is_ok())
        };
        let wait = ["sleep", "1000"];
        let root = Caller { uid: 0, gid: 0, thread: std::process::id() };
        assert_eq!(may(root), [true, true, true]);
        assert_eq!(may(Process::of(OWNER, &wait).caller()), [true, false, true]);
        assert_eq!(may(Process::of(65534, &wait).caller()), [false, false, false]);
        // A process that the server cannot see, and one that does not say what it is in the request.
        assert_eq!(may(Caller { uid: OWNER, gid: OWNER, thread: 0 }), [false, false, false]);
        // The lock that a flag of the owner's removes binds as much as one that it sets.
        let bound = Attr { flags: InodeFlags::APPEND, ..attr };
        assert!(check_right(Process::of(OWNER, &wait).caller(), &bound, &harmless).is_err());
    }

    #[test]
    fn a_container_has_no_capabilities_here() {
        let attr = {
            let memory = sample(1, 0);
            memory.read_inode(memory.root()).unwrap().attr()
        };
        let change = AttrChange { flags: Some(InodeFlags::IMMUTABLE), ..AttrChange::default() };
        let process = Process::of(0, &["unshare", "-U", "sleep", "1000"]);
        let caller = process.caller();
        // Once it is in there. It is user 0 then, seen from here, and has all capabilities.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while caller.is_in_our_namespace() {
            assert!(std::time::Instant::now() < end);
            std::thread::yield_now();
        }
        assert!(!caller.is_administrator());
        assert!(check_right(caller, &attr, &change).is_err());
    }
}
