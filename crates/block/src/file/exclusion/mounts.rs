//! What is mounted, here and where other processes live, and what is swapped to.
//!
//! Read from `/proc`, in which nothing waits for a filesystem. Mounts in the namespaces of other processes are seen as
//! far as the caller may look; they keep a device just as busy.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One line of a table of mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MountEntry {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) point: PathBuf,
    pub(super) fs_type: String,
    /// The source as it was given to `mount`: a device, a file, or any word.
    pub(super) source: PathBuf,
    /// Of the whole filesystem: a read-only mount point of a writable one does not count.
    pub(super) read_only: bool,
}

/// The mounts of this process's namespace.
pub(super) fn own() -> Vec<MountEntry> {
    read(Path::new("/proc/self/mountinfo"))
}

/// All mounts that can be seen, this process's own first.
pub(super) fn all() -> Vec<MountEntry> {
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
    paths.filter(|path| path.starts_with(b"/")).map(path).collect()
}

fn read(table: &Path) -> Vec<MountEntry> {
    let table = fs::read(table).unwrap_or_default();
    table.split(|&byte| byte == b'\n').filter_map(parse).collect()
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/root rw`; before the `-` stands any number of tags.
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let (major, minor) = str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let point = path(fields.nth(1)?);
    let mut of_filesystem = fields.skip_while(|field| *field != b"-").skip(1);
    let fs_type = String::from_utf8_lossy(of_filesystem.next()?).into_owned();
    let source = path(of_filesystem.next()?);
    let options = of_filesystem.next().unwrap_or_default();
    let read_only = options.split(|&byte| byte == b',').any(|option| option == b"ro");
    Some(MountEntry {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
        point,
        fs_type,
        source,
        read_only,
    })
}

/// Space, tab, newline and backslash are written as `\040` and so on.
fn path(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| byte == b'\\').and_then(|digits| str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(escaped) => {
                bytes.push(escaped);
                rest = &after[3..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_as_the_kernel_writes_it() {
        let line =
            b"70 27 7:3 / /mnt/a\\040b rw,noatime shared:1 master:2 - ext4 /dev/loop3 ro,errors=continue";
        let entry = parse(line).unwrap();
        assert_eq!((entry.major, entry.minor, entry.read_only), (7, 3, true));
        assert_eq!(entry.point, Path::new("/mnt/a b"));
        assert_eq!((entry.fs_type.as_str(), entry.source.as_path()), ("ext4", Path::new("/dev/loop3")));
        assert!(!parse(b"1 2 0:5 / / ro - tmpfs none rw").unwrap().read_only);
        for wrong in [&b""[..], b"1 2 3", b"1 2 x:y / / ro - ext4 a b", b"1 2 7:3 / / ro ext4 a b"] {
            assert_eq!(parse(wrong), None);
        }
    }

    #[test]
    fn our_own_mounts_are_found() {
        assert!(all().iter().any(|entry| entry.point == Path::new("/proc")));
    }
}
