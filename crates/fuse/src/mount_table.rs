//! The kernel's mount table, as far as a mount of ours has to be found in it.
//!
//! A mount is known by its own number and its device's: mount points may be stacked or renamed, these stay for as long as
//! it lives. Both may come again afterwards, at the next mount even; `own_mount` tells that one from ours. Nothing here
//! asks the filesystem itself, whose server may be dead.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use crate::mount_point::MountPoint;

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
    pub(crate) id: u64,
    /// The mount on which it lies.
    pub(crate) parent: u64,
    pub(crate) device: MountDevice,
    pub(crate) point: PathBuf,
    pub(crate) fs_type: String,
    /// The user and the group for whom a FUSE server's filesystem was mounted.
    pub(crate) owner: Option<(u32, u32)>,
}

impl MountEntry {
    /// Whether the kernel has claimed a block device for it.
    pub(crate) fn is_on_device(&self) -> bool {
        self.fs_type.starts_with("fuseblk.")
    }

    /// Where the kernel has the settings of what it caches for the filesystem.
    pub(crate) fn cache_settings(&self) -> PathBuf {
        let suffix = if self.is_on_device() { "-fuseblk" } else { "" };
        PathBuf::from(format!("/sys/class/bdi/{}{suffix}", self.device))
    }
}

/// What is mounted on `point`, which must be absolute and free of links; of several mounts the one on top.
pub(crate) fn mount_at(point: &Path) -> io::Result<Option<MountEntry>> {
    Ok(entries(&fs::read("/proc/self/mountinfo")?).filter(|entry| entry.point == point).last())
}

/// What lies on this directory; of several mounts the one on top.
pub(crate) fn mount_on(point: &MountPoint) -> io::Result<Option<MountEntry>> {
    Ok(entries(&fs::read("/proc/self/mountinfo")?).filter(|entry| point.is_below(entry)).last())
}

/// The mount of this number and device, as the table has it now.
pub(crate) fn find(id: u64, device: MountDevice) -> io::Result<Option<MountEntry>> {
    Ok(entries(&fs::read("/proc/self/mountinfo")?).find(|entry| entry.id == id && entry.device == device))
}

/// Whether something is mounted on top of this mount, at the same place.
pub(crate) fn is_covered(mount: &MountEntry) -> io::Result<bool> {
    let table = fs::read("/proc/self/mountinfo")?;
    let now = entries(&table).find(|entry| entry.id == mount.id && entry.device == mount.device);
    Ok(now.is_some_and(|now| entries(&table).any(|above| above.parent == now.id && above.point == now.point)))
}

/// A mount of ours, as far as who syncs it must know.
pub(crate) struct OurMount {
    /// Other users than the one who mounted have access.
    pub(crate) allows_others: bool,
}

/// The mount of ours with this device number, if there is one.
pub(crate) fn ours(device: MountDevice) -> io::Result<Option<OurMount>> {
    let table = fs::read("/proc/self/mountinfo")?;
    let is_it = |line: &&[u8]| {
        parse(line).is_some_and(|it| it.device == device && crate::attach::is_ours(&it.fs_type))
    };
    Ok(table.split(|&byte| byte == b'\n').find(is_it).map(|line| OurMount {
        allows_others: line.rsplit(|&byte| byte == b' ').next().is_some_and(|options| {
            options.split(|&byte| byte == b',').any(|option| option == b"allow_other")
        }),
    }))
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

fn entries(table: &[u8]) -> impl Iterator<Item = MountEntry> + '_ {
    table.split(|&byte| byte == b'\n').filter_map(parse)
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/root rw`; before the `-` stands any number of tags.
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let mut number = || str::from_utf8(fields.next()?).ok()?.parse().ok();
    let (id, parent) = (number()?, number()?);
    let (major, minor) = str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let device = MountDevice { major: major.parse().ok()?, minor: minor.parse().ok()? };
    let point = unescape(fields.nth(1)?);
    let mut rest = fields.skip_while(|field| *field != b"-");
    let fs_type = rest.nth(1)?;
    let options = rest.nth(1).unwrap_or_default();
    let number_of = |word: &[u8]| {
        let mut options = options.split(|&byte| byte == b',');
        str::from_utf8(options.find_map(|option| option.strip_prefix(word))?).ok()?.parse().ok()
    };
    Some(MountEntry {
        id,
        parent,
        device,
        point: PathBuf::from(OsString::from_vec(point)),
        fs_type: String::from_utf8_lossy(fs_type).into_owned(),
        owner: number_of(b"user_id=").zip(number_of(b"group_id=")),
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
            70 27 0:57 / /mnt/a\\040b\\134 ro - fuse.undercroft.ext4 /tmp/x ro,user_id=0,group_id=7,allow_other\nnonsense\n";
        let entries: Vec<MountEntry> = entries(table).collect();
        assert_eq!(
            entries,
            [
                MountEntry {
                    id: 36,
                    parent: 35,
                    device: MountDevice { major: 98, minor: 0 },
                    point: PathBuf::from("/mnt2"),
                    fs_type: "ext3".to_owned(),
                    owner: None,
                },
                MountEntry {
                    id: 70,
                    parent: 27,
                    device: MountDevice { major: 0, minor: 57 },
                    point: PathBuf::from("/mnt/a b\\"),
                    fs_type: "fuse.undercroft.ext4".to_owned(),
                    owner: Some((0, 7)),
                },
            ]
        );
        assert_eq!(entries[1].device.to_string(), "0:57");
    }

    #[test]
    fn escaped_bytes_of_a_path_are_what_they_were() {
        assert_eq!(unescape(b"/a\\040b\\011c\\012d\\134040e\\9"), b"/a b\tc\nd\\040e\\9");
    }

    #[test]
    fn proc_is_found_where_it_is_mounted() {
        let entry = mount_at(&absolute(Path::new("/proc/../proc")).unwrap()).unwrap().unwrap();
        assert_eq!(entry.fs_type, "proc");
        assert_eq!(find(entry.id, entry.device).unwrap().as_ref(), Some(&entry));
        assert!(find(entry.id + 1_000_000, entry.device).unwrap().is_none());
        assert!(mount_at(Path::new("/proc/self")).unwrap().is_none());
    }
}
