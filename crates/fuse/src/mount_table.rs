//! The kernel's mount table, as far as a mount of ours has to be found in it.
//!
//! A mount is known by its device number: mount points may be stacked or renamed, the number belongs to one
//! mounted filesystem for as long as it lives. Nothing here asks the filesystem itself, whose server may be dead.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// Device number of a mounted filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MountDevice {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// As the mount table and sysfs write it.
impl fmt::Display for MountDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountEntry {
    pub(crate) device: MountDevice,
    pub(crate) point: PathBuf,
    pub(crate) fs_type: String,
}

/// What is mounted on `point`, which must be absolute and free of links; of several mounts the one on top.
pub(crate) fn mount_at(point: &Path) -> io::Result<Option<MountEntry>> {
    Ok(entries(&fs::read("/proc/self/mountinfo")?).filter(|entry| entry.point == point).last())
}

/// Whether the filesystem is mounted anywhere we can see.
pub(crate) fn is_mounted(device: MountDevice) -> io::Result<bool> {
    Ok(entries(&fs::read("/proc/self/mountinfo")?).any(|entry| entry.device == device))
}

/// The path of a mount point, absolute and free of links. A mount point that cannot be looked at, because it is
/// somebody else's mount or one whose server is gone, is found by its directory.
pub(crate) fn absolute(point: &Path) -> io::Result<PathBuf> {
    let canonical = point.canonicalize();
    match (point.parent(), point.components().next_back()) {
        (Some(parent), Some(Component::Normal(name))) if canonical.is_err() => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(parent.canonicalize()?.join(name))
        }
        _ => canonical,
    }
}

/// The path as it stands in the table, in one line and without spaces.
pub(crate) fn escape(point: &Path) -> Vec<u8> {
    let mut escaped = Vec::new();
    for &byte in point.as_os_str().as_bytes() {
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\\') {
            escaped.extend_from_slice(format!("\\{byte:03o}").as_bytes());
        } else {
            escaped.push(byte);
        }
    }
    escaped
}

fn entries(table: &[u8]) -> impl Iterator<Item = MountEntry> + '_ {
    table.split(|&byte| byte == b'\n').filter_map(parse)
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/root rw`; before the `-` stands any number of tags.
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let (major, minor) = str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let device = MountDevice { major: major.parse().ok()?, minor: minor.parse().ok()? };
    let point = unescape(fields.nth(1)?);
    let fs_type = fields.skip_while(|field| *field != b"-").nth(1)?;
    Some(MountEntry {
        device,
        point: PathBuf::from(OsString::from_vec(point)),
        fs_type: String::from_utf8_lossy(fs_type).into_owned(),
    })
}

/// Space, tab, newline and backslash are written as `\040` and so on.
fn unescape(field: &[u8]) -> Vec<u8> {
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
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_and_without_tags_are_read() {
        let table = b"36 35 98:0 /mnt1 /mnt2 rw,noatime shared:1 master:2 - ext3 /dev/root rw\n\
            70 27 0:57 / /mnt/a\\040b\\134 ro - fuse.undercroft.ext4 /tmp/x ro,user_id=0\nnonsense\n";
        let entries: Vec<MountEntry> = entries(table).collect();
        assert_eq!(
            entries,
            [
                MountEntry {
                    device: MountDevice { major: 98, minor: 0 },
                    point: PathBuf::from("/mnt2"),
                    fs_type: "ext3".to_owned(),
                },
                MountEntry {
                    device: MountDevice { major: 0, minor: 57 },
                    point: PathBuf::from("/mnt/a b\\"),
                    fs_type: "fuse.undercroft.ext4".to_owned(),
                },
            ]
        );
        assert_eq!(entries[1].device.to_string(), "0:57");
    }

    #[test]
    fn escaping_is_undone_by_unescaping() {
        let point = "/a b\tc\nd\\040e";
        let escaped = escape(Path::new(point));
        assert_eq!(escaped, b"/a\\040b\\011c\\012d\\134040e");
        assert_eq!(unescape(&escaped), point.as_bytes());
    }

    #[test]
    fn proc_is_found_where_it_is_mounted() {
        let entry = mount_at(&absolute(Path::new("/proc/../proc")).unwrap()).unwrap().unwrap();
        assert_eq!(entry.fs_type, "proc");
        assert!(is_mounted(entry.device).unwrap());
        assert!(mount_at(Path::new("/proc/self")).unwrap().is_none());
    }
}
