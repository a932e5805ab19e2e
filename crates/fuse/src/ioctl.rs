//! The ioctls: what `lsattr`, `chattr` and the quota tools want to know and to change, and those of the administrator,
//! which shut a filesystem down and trim it (`fstrim`).
//!
//! Numbers and layouts are Linux's (`linux/fs.h`). The kernel itself turns its newer calls for file attributes
//! into these, and checks who may. Everything else is refused as not applying to the file.

use undercroft_vfs::{Attr, AttrChange, Error, InodeFlags, Result};

use crate::caller::Caller;
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

/// Flags that tell how an inode is kept. Nobody sets them by ioctl; they stay as they are.
const STAYING: InodeFlags = InodeFlags::ENCRYPTED
    .union(InodeFlags::INDEXED)
    .union(InodeFlags::HUGE_FILE)
    .union(InodeFlags::EXTENTS)
    .union(InodeFlags::VERITY)
    .union(InodeFlags::EA_INODE)
    .union(InodeFlags::INLINE_DATA);

impl Server {
    /// The bytes that answer an ioctl; `None` if it is none of ours. `input` is what the caller has handed over,
    /// if the number says that it does, and `pointer` what it has in its own memory.
    pub(crate) fn ioctl(
        &self,
        caller: Caller,
        id: NodeId,
        command: u32,
        pointer: u64,
        input: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        // Four bytes also where the number says eight: that is how long the values are, and what callers
        // have room for.
        Ok(Some(match command {
            FS_IOC_GETFLAGS | FS_IOC32_GETFLAGS => self.attr(id)?.flags.bits().to_ne_bytes().to_vec(),
            FS_IOC_GETVERSION | FS_IOC32_GETVERSION => self.attr(id)?.generation.to_ne_bytes().to_vec(),
            FS_IOC_FSGETXATTR => fsxattr(&self.attr(id)?).to_vec(),
            FS_IOC_SETFLAGS | FS_IOC32_SETFLAGS => {
                self.set_flags(caller, id, word(input, 0)?)?;
                Vec::new()
            }
            FS_IOC_FSSETXATTR => {
                self.set_extended_flags(caller, id, input)?;
                Vec::new()
            }
            SHUTDOWN => {
                self.shut_down(caller, pointer)?;
                Vec::new()
            }
            FITRIM => self.trim(caller, input)?.to_vec(),
            _ => return Ok(None),
        }))
    }

    fn set_flags(&self, caller: Caller, id: NodeId, wanted: u32) -> Result<()> {
        let node = self.node(id)?;
        let wanted = InodeFlags::from_bits_retain(wanted).difference(STAYING);
        let flags = Some(wanted | node.ownership().flags.intersection(STAYING));
        self.vfs().set_attr(&caller.credentials(), &node, &AttrChange { flags, ..AttrChange::default() })
    }

    fn set_extended_flags(&self, caller: Caller, id: NodeId, input: &[u8]) -> Result<()> {
        let (wanted, project) = (word(input, 0)?, word(input, 12)?);
        let node = self.node(id)?;
        let now = node.attr();
        let mut flags = now.flags;
        for (flag, bit) in EXTENDED_FLAGS {
            flags
                .set(flag, if STAYING.contains(flag) { now.flags.contains(flag) } else { wanted & bit != 0 });
        }
        let change = AttrChange {
            flags: (flags != now.flags).then_some(flags),
            project: (project != now.project).then_some(project),
            ..AttrChange::default()
        };
        self.vfs().set_attr(&caller.credentials(), &node, &change)
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

const TOO_SHORT: Error = Error::InvalidArgument("an ioctl's argument is too short");

/// The word at an offset of what was handed over.
fn word(input: &[u8], at: usize) -> Result<u32> {
    let bytes = input.get(at..).and_then(|rest| rest.first_chunk());
    Ok(u32::from_ne_bytes(*bytes.ok_or(TOO_SHORT)?))
}

/// `struct fsxattr`: flags, extent size hint, number of extents, project, copy-on-write hint, padding.
fn fsxattr(attr: &Attr) -> [u8; FSXATTR_BYTES] {
    let flags = EXTENDED_FLAGS.iter().filter(|(flag, _)| attr.flags.contains(*flag));
    let flags = flags.fold(0, |all, (_, bit)| all | bit);
    let mut bytes = [0; FSXATTR_BYTES];
    bytes[..4].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&attr.project.to_ne_bytes());
    bytes
}
