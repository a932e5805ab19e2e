//! What uses a file or a block device besides its opener, in words that a user can act on.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::Access;

/// One user of a file or a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holder {
    /// A filesystem that the kernel or a server has mounted.
    Mount {
        /// Where.
        point: PathBuf,
        /// Whether the whole filesystem is read-only.
        read_only: bool,
    },
    /// The kernel swaps to it.
    Swap,
    /// A block device that is made of it: a loop device, a partition, an array, a logical volume.
    Device {
        /// Its name.
        path: PathBuf,
        /// Whether it takes no writes.
        read_only: bool,
        /// What uses that device.
        holders: Vec<Holder>,
    },
    /// A process that holds a lock.
    Process {
        /// The process.
        id: u32,
        /// Its name.
        name: String,
        /// Whether the lock is one of a writer.
        writes: bool,
    },
    /// This process has it open for writing.
    ThisProgram,
    /// A program or a part of the kernel that cannot be seen from here.
    Unseen {
        /// What it does, with a verb.
        what: &'static str,
        /// Whether it may write.
        writes: bool,
    },
}

impl Holder {
    /// Whether a reader may find the content changed by it.
    #[must_use]
    pub fn writes(&self) -> bool {
        match self {
            Self::Mount { read_only, .. } => !read_only,
            Self::Device { read_only, holders, .. } => !read_only && holders.iter().any(Self::writes),
            Self::Swap | Self::ThisProgram => true,
            Self::Process { writes, .. } | Self::Unseen { writes, .. } => *writes,
        }
    }

    /// Whether a writer must be refused. A read-only device that is not in use excludes no writer.
    pub(super) fn excludes_writers(&self) -> bool {
        match self {
            Self::Device { read_only, holders, .. } => !read_only || !holders.is_empty(),
            _ => true,
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mount { point, .. } => write!(f, "mounted on {}", point.display()),
            Self::Swap => f.write_str("swapped to"),
            Self::Device { path, holders, .. } if holders.is_empty() => path.display().fmt(f),
            Self::Device { path, holders, .. } => write!(f, "{}, {}", path.display(), Shown(holders)),
            Self::Process { id, name, .. } => write!(f, "{name} (process {id})"),
            Self::ThisProgram => f.write_str("this program has it open for writing already"),
            Self::Unseen { what, .. } => write!(f, "something that cannot be seen from here {what}"),
        }
    }
}

/// Users in one clause, each once; no more than a few of them.
pub(crate) struct Shown<'a>(pub(crate) &'a [Holder]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 4;
        let mut users: Vec<&Holder> = Vec::new();
        for holder in self.0 {
            // One process may hold several locks.
            if !users.contains(&holder) {
                users.push(holder);
            }
        }
        for (index, holder) in users.iter().take(MOST).enumerate() {
            let separator = if index == 0 { "" } else { " and " };
            write!(f, "{separator}{holder}")?;
        }
        match users.len().saturating_sub(MOST) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// A file that is in use, for a program to tell its user.
#[derive(Clone, Copy, Debug)]
pub struct InUse<'a> {
    /// The file as it was named.
    pub path: &'a Path,
    /// What it is opened for all the same.
    pub wanted: Access,
    /// What uses it.
    pub holders: &'a [Holder],
}

impl fmt::Display for InUse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is in use: {}", self.path.display(), Shown(self.holders))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(read_only: bool) -> Holder {
        Holder::Mount { point: PathBuf::from("/mnt"), read_only }
    }

    fn device(read_only: bool, holders: Vec<Holder>) -> Holder {
        Holder::Device { path: PathBuf::from("/dev/loop3"), read_only, holders }
    }

    #[test]
    fn users_are_named_in_one_clause() {
        let holders = [device(false, vec![mount(false)]), device(true, Vec::new())];
        let shown =
            InUse { path: Path::new("disk.img"), wanted: Access::ReadOnly, holders: &holders }.to_string();
        assert_eq!(shown, "disk.img is in use: /dev/loop3, mounted on /mnt and /dev/loop3");
        assert_eq!(Shown(&vec![mount(true); 6]).to_string(), "mounted on /mnt");
        let mount_on = |name: u32| Holder::Mount { point: format!("/mnt/{name}").into(), read_only: true };
        let six: Vec<Holder> = (0..6).map(mount_on).collect();
        assert_eq!(Shown(&six).to_string().matches("mounted").count(), 4);
    }

    #[test]
    fn readers_mind_what_writes_and_writers_mind_more() {
        for (holder, writes, excludes) in [
            (mount(true), false, true),
            (mount(false), true, true),
            (device(false, Vec::new()), false, true),
            (device(true, Vec::new()), false, false),
            (device(true, vec![mount(true)]), false, true),
            (device(false, vec![mount(true)]), false, true),
            (device(false, vec![mount(false)]), true, true),
        ] {
            assert_eq!((holder.writes(), holder.excludes_writers()), (writes, excludes), "{holder:?}");
        }
    }
}
