//! Which processes hold a lock on a file, as far as `/proc` tells.
//!
//! The kernel does not say to which process a lock of an open file belongs; each process's `fdinfo` lists the locks of
//! its open files. An ordinary user sees that of its own processes only. Used for messages, so what cannot be read is
//! left out.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::byte_locks::Range;
use super::holder::Holder;

/// One lock, as `fdinfo` has it.
#[derive(Debug, PartialEq, Eq)]
struct Lock {
    is_flock: bool,
    writes: bool,
    inode: u64,
    range: Range,
}

/// Which locks are meant.
pub(super) enum Which<'a> {
    /// Those on the whole file: all, or those of writers only.
    Flock { of_writers: bool },
    /// Those on one of these ranges.
    Bytes(&'a [Range]),
}

impl Which<'_> {
    fn includes(&self, lock: &Lock) -> bool {
        match self {
            Self::Flock { of_writers } => lock.is_flock && (lock.writes || !of_writers),
            Self::Bytes(ranges) => {
                let overlaps =
                    |range: &Range| lock.range.start() <= range.end() && range.start() <= lock.range.end();
                !lock.is_flock && ranges.iter().any(overlaps)
            }
        }
    }
}

/// Whether the kernel's list has a lock on the whole of a file with this inode number: a cheap first look.
pub(super) fn is_locked(file: &File) -> bool {
    let Ok(ours) = file.metadata() else { return false };
    let list = fs::read_to_string("/proc/locks").unwrap_or_default();
    // As in `fdinfo`, but for the word in front.
    list.lines().any(|line| {
        parse(&format!("lock: {line}")).is_some_and(|lock| lock.is_flock && lock.inode == ours.ino())
    })
}

/// The processes that hold such locks on `file`, not counting this opening of it. `writes` is what is said of them.
pub(super) fn holding(file: &File, which: &Which<'_>, writes: bool) -> Vec<Holder> {
    let mut found = Vec::new();
    let Ok(ours) = file.metadata() else { return found };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in entries {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let process = entry.path();
        let is_own = id == std::process::id();
        let descriptors = fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten();
        let holds = descriptors.into_iter().any(|descriptor| {
            let number = descriptor.file_name();
            if is_own && number.to_str() == Some(&file.as_raw_fd().to_string()) {
                return false;
            }
            let Ok(info) = fs::read_to_string(descriptor.path()) else { return false };
            let matches =
                |line| parse(line).is_some_and(|lock| lock.inode == ours.ino() && which.includes(&lock));
            // Inode numbers are those of one filesystem only.
            info.lines().any(matches)
                && fs::metadata(process.join("fd").join(number))
                    .is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()))
        });
        match (holds, is_own) {
            (true, true) => found.push(Holder::ThisProgram),
            (true, false) => found.push(Holder::Process { id, name: name(&process), writes }),
            (false, _) => {}
        }
    }
    found
}

fn name(process: &Path) -> String {
    match fs::read(process.join("comm")) {
        Ok(name) => String::from_utf8_lossy(name.trim_ascii_end()).into_owned(),
        Err(_) => "a process".to_owned(),
    }
}

/// `lock: 1: OFDLCK ADVISORY  READ -1 08:01:12345 100 101`; the last word may be `EOF`.
fn parse(line: &str) -> Option<Lock> {
    let mut words = line.strip_prefix("lock:")?.split_ascii_whitespace().skip(1);
    let is_flock = words.next()? == "FLOCK";
    let writes = words.nth(1)? != "READ";
    let inode = words.nth(1)?.rsplit(':').next()?.parse().ok()?;
    let first = words.next()?.parse().ok()?;
    let last = match words.next()? {
        "EOF" => u64::MAX,
        number => number.parse().ok()?,
    };
    Some(Lock { is_flock, writes, inode, range: first..=last })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_read_as_the_kernel_lists_them() {
        let lock = parse("lock:\t1: OFDLCK ADVISORY  READ -1 00:1b:3 100 101").unwrap();
        assert_eq!(lock, Lock { is_flock: false, writes: false, inode: 3, range: 100..=101 });
        let lock = parse("lock:\t2: FLOCK  ADVISORY  WRITE 2945 fe:00:6242862 0 EOF").unwrap();
        assert_eq!(lock, Lock { is_flock: true, writes: true, inode: 6_242_862, range: 0..=u64::MAX });
        for wrong in [
            "",
            "lock:",
            "pos:\t0",
            "lock:\t1: POSIX ADVISORY WRITE 1 x 0",
            "lock:\t1: FLOCK A W 1 0:0:x 0 1",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_lock_is_meant_by_its_kind_and_its_bytes() {
        let lock = parse("lock:\t1: OFDLCK ADVISORY  READ -1 00:1b:3 100 101").unwrap();
        for (range, included) in
            [(101..=101, true), (0..=99, false), (102..=u64::MAX, false), (0..=200, true)]
        {
            assert_eq!(Which::Bytes(&[range]).includes(&lock), included);
        }
        assert!(!Which::Flock { of_writers: false }.includes(&lock));
    }
}
