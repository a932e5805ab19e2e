//! What is mounted, here and where other processes live, and what is swapped to.
//!
//! Read from `/proc`, in which nothing waits for a filesystem. Mounts in the namespaces of other processes are seen as
//! far as the caller may look; they keep a device just as busy.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::mountinfo::{Mount, MountTable, unescape};

/// The mounts of this process's namespace.
pub(super) fn own() -> Vec<Mount> {
    read(Path::new("/proc/self/mountinfo"))
}

/// All mounts that can be seen, this process's own first.
pub(super) fn all() -> Vec<Mount> {
    let mut found = own();
    let own = fs::read_link("/proc/self/ns/mnt").ok();
    let mut seen: BTreeSet<PathBuf> = own.into_iter().collect();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if !entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        let Ok(namespace) = fs::read_link(entry.path().join("ns/mnt")) else { continue };
        if seen.insert(namespace) {
            found.extend(read(&entry.path().join("mountinfo")));
        }
    }
    found
}

/// Files and devices that the kernel swaps to.
pub(super) fn swaps() -> Vec<PathBuf> {
    let table = fs::read("/proc/swaps").unwrap_or_default();
    let lines = table.split(|&byte| byte == b'\n').skip(1);
    let paths = lines.filter_map(|line| line.split(u8::is_ascii_whitespace).next());
    paths.filter(|path| path.starts_with(b"/")).map(|path| unescape(path).into()).collect()
}

fn read(table: &Path) -> Vec<Mount> {
    MountTable::read(table).map(|table| table.mounts().collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_this_process_are_found() {
        assert!(all().iter().any(|mount| mount.point == Path::new("/proc")));
    }
}
