//! Operations done by system calls, below a mount.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Uid, XattrFlags, chmodat,
    chownat, fallocate, linkat, lremovexattr, lsetxattr, mknodat, renameat_with, symlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl, opcode};
use undercroft_vfs::FallocateMode;

use super::{Done, Hand, Operation, bytes};

/// Works below a directory of a mounted filesystem.
#[derive(Clone, Debug)]
pub struct KernelHand {
    root: PathBuf,
}

impl KernelHand {
    /// A hand that works below `root`.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn open(&self, path: &str, append: bool) -> std::io::Result<File> {
        // Not through links, and not waiting for a pipe's other end.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let mut options = File::options();
        // What is cloned must be open for reading.
        if append {
            options.append(true)
        } else {
            options.read(true).write(true)
        };
        let file = options.custom_flags(flags).open(self.at(path))?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(ErrorKind::InvalidInput.into()) }
    }

    fn try_to(&self, operation: &Operation) -> std::io::Result<()> {
        match operation {
            Operation::Create { path } => {
                File::options().write(true).create_new(true).mode(0o644).open(self.at(path)).map(drop)
            }
            Operation::Mkdir { path } => Ok(rustix::fs::mkdir(self.at(path), Mode::from_raw_mode(0o755))?),
            Operation::Symlink { path, target } => Ok(symlinkat(target.as_str(), CWD, self.at(path))?),
            Operation::Fifo { path } => {
                Ok(mknodat(CWD, self.at(path), FileType::Fifo, Mode::from_raw_mode(0o644), 0)?)
            }
            Operation::Link { path, to } => {
                Ok(linkat(CWD, self.at(path), CWD, self.at(to), AtFlags::empty())?)
            }
            Operation::Unlink { path } => Ok(unlinkat(CWD, self.at(path), AtFlags::empty())?),
            Operation::Rmdir { path } => Ok(unlinkat(CWD, self.at(path), AtFlags::REMOVEDIR)?),
            Operation::Rename { path, to, exchange } => {
                let flags = if *exchange { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
                Ok(renameat_with(CWD, self.at(path), CWD, self.at(to), flags)?)
            }
            Operation::Write { path, offset, len, seed } => {
                self.open(path, false)?.write_all_at(&bytes(*seed, *len), *offset)
            }
            Operation::Append { path, len, seed } => self.open(path, true)?.write_all(&bytes(*seed, *len)),
            Operation::Truncate { path, size } => self.open(path, false)?.set_len(*size),
            Operation::Space { path, change, offset, len, keep_size } => {
                let mut flags = match change {
                    FallocateMode::Allocate => FallocateFlags::empty(),
                    FallocateMode::PunchHole => FallocateFlags::PUNCH_HOLE,
                    FallocateMode::Zero => FallocateFlags::ZERO_RANGE,
                    FallocateMode::Collapse => FallocateFlags::COLLAPSE_RANGE,
                    FallocateMode::Insert => FallocateFlags::INSERT_RANGE,
                };
                let keeps = matches!(
                    change,
                    FallocateMode::Allocate | FallocateMode::PunchHole | FallocateMode::Zero
                );
                if *keep_size && keeps {
                    flags |= FallocateFlags::KEEP_SIZE;
                }
                Ok(fallocate(self.open(path, false)?, flags, *offset, *len)?)
            }
            Operation::Share { path, offset, to, to_offset, len } => {
                share(&self.open(path, false)?, *offset, &self.open(to, false)?, *to_offset, *len)
            }
            Operation::SetXattr { path, name, value } => {
                Ok(lsetxattr(self.at(path), name.as_str(), value, XattrFlags::empty())?)
            }
            Operation::RemoveXattr { path, name } => Ok(lremovexattr(self.at(path), name.as_str())?),
            Operation::Chmod { path, mode } => {
                // There is no change of a link's own permissions.
                if std::fs::symlink_metadata(self.at(path))?.is_symlink() {
                    return Err(ErrorKind::Unsupported.into());
                }
                Ok(chmodat(CWD, self.at(path), Mode::from_raw_mode(u32::from(*mode)), AtFlags::empty())?)
            }
            Operation::Chown { path, uid, gid } => {
                let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
                Ok(chownat(CWD, self.at(path), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
            }
            Operation::Sync { path } => self.open(path, false)?.sync_all(),
        }
    }
}

/// What `FICLONERANGE` points at.
#[repr(C)]
struct CloneRange {
    source: i64,
    offset: u64,
    len: u64,
    to_offset: u64,
}

/// Lets a range of one file have the blocks of another one.
fn share(source: &File, offset: u64, to: &File, to_offset: u64, len: u64) -> std::io::Result<()> {
    let range = CloneRange { source: i64::from(source.as_raw_fd()), offset, len, to_offset };
    // SAFETY: FICLONERANGE reads one `file_clone_range` from the pointer it is given, which `Setter` points at `range`.
    #[expect(unsafe_code, reason = "the kernel reads what this ioctl is documented to read")]
    unsafe {
        Ok(ioctl(to, Setter::<{ opcode::write::<CloneRange>(0x94, 13) }, CloneRange>::new(range))?)
    }
}

impl Hand for KernelHand {
    fn act(&self, operation: &Operation) -> Result<Done, String> {
        match self.try_to(operation) {
            Ok(()) => Ok(Done::Yes),
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                // Attributes have little room, on however large a disk.
                Some(Errno::NOSPC) if matches!(operation, Operation::SetXattr { .. }) => Ok(Done::Refused),
                Some(Errno::IO | Errno::ROFS | Errno::NOSPC | Errno::UCLEAN) => {
                    Err(format!("{operation}: {error}"))
                }
                _ => Ok(Done::Refused),
            },
        }
    }
}
