//! The kernel's table of mounts, `/proc/PID/mountinfo`.
//!
//! Used to see what a device is mounted as, and by the FUSE server to find its mounts. Reading it asks no filesystem, whose
//! server may be dead. A line is
//!
//! ```text
//! 36 35 98:0 /root /point rw,noatime shared:1 master:2 - ext4 /dev/root rw,errors=continue
//! ```
//!
//! with any number of tags before the `-`. Paths are bytes of any kind; space, tab, newline, `#` and backslash are written
//! as `\040` and so on. A line of another form is left out. Source: proc_pid_mountinfo(5), and what Linux writes.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Largest table that is read. By default Linux allows 100,000 mounts in a namespace.
const TABLE_MAX_BYTES: u64 = 64 << 20;

/// What mounts of this project's have after `fuse.` or `fuseblk.` in their types, before the kind of filesystem.
pub const SUBTYPE: &str = "undercroft.";

/// Asks `statx` for a number of the mount that no other mount gets before the next boot (Linux 6.8). Source: statx(2).
pub const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

/// Device number of a mounted filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountDevice {
    /// The driver; 0 for a filesystem that is on no device of its own.
    pub major: u32,
    /// The device among the driver's.
    pub minor: u32,
}

/// As the table and sysfs write it.
impl fmt::Display for MountDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The mount's number, which another one may get after it.
    pub id: u64,
    /// The mount on which it lies.
    pub parent: u64,
    /// The filesystem's device.
    pub device: MountDevice,
    /// Which directory of the filesystem is mounted.
    pub root: PathBuf,
    /// Where.
    pub point: PathBuf,
    /// The options of this mount.
    pub options: OsString,
    /// The type, with its subtype.
    pub fs_type: String,
    /// The source as it was given to `mount`: a device, a file, or any word.
    pub source: PathBuf,
    /// The options of the filesystem, which all of its mounts share.
    pub super_options: OsString,
}

impl Mount {
    /// Whether it is served by this project's program, or was.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        let subtype = self.fs_type.strip_prefix("fuse.").or_else(|| self.fs_type.strip_prefix("fuseblk."));
        subtype.is_some_and(|subtype| subtype.starts_with(SUBTYPE))
    }

    /// What an option of the filesystem is set to; empty for one without a value.
    #[must_use]
    pub fn super_option(&self, name: &str) -> Option<&OsStr> {
        let options = self.super_options.as_bytes().split(|&byte| byte == b',');
        options
            .filter_map(|option| option.strip_prefix(name.as_bytes()))
            .find_map(|rest| if rest.is_empty() { Some(rest) } else { rest.strip_prefix(b"=") })
            .map(OsStr::from_bytes)
    }

    /// Whether the filesystem takes no writes: a read-only mount of a writable one does not count.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.super_option("ro").is_some()
    }

    /// The user and the group that a FUSE server's filesystem was mounted for.
    #[must_use]
    pub fn owner(&self) -> Option<(u32, u32)> {
        let number = |name| self.super_option(name)?.to_str()?.parse().ok();
        number("user_id").zip(number("group_id"))
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|&byte| byte == b' ');
        let mut number = || str::from_utf8(fields.next()?).ok()?.parse().ok();
        let (id, parent) = (number()?, number()?);
        let (major, minor) = str::from_utf8(fields.next()?).ok()?.split_once(':')?;
        let device = MountDevice { major: major.parse().ok()?, minor: minor.parse().ok()? };
        let (root, point, options) = (fields.next()?, fields.next()?, fields.next()?);
        let mut of_filesystem = fields.skip_while(|field| *field != b"-").skip(1);
        let (fs_type, source) = (of_filesystem.next()?, of_filesystem.next()?);
        let super_options = of_filesystem.next().unwrap_or_default();
        Some(Self {
            id,
            parent,
            device,
            root: unescape(root).into(),
            point: unescape(point).into(),
            options: unescape(options),
            fs_type: unescape(fs_type).to_string_lossy().into_owned(),
            source: unescape(source).into(),
            super_options: unescape(super_options),
        })
    }
}

/// A table as it was when it was read.
#[derive(Debug)]
pub struct MountTable(Vec<u8>);

impl MountTable {
    /// The table of this process's namespace.
    ///
    /// # Errors
    /// The system's, and a table of more than 64 MiB.
    pub fn own() -> io::Result<Self> {
        let path = Path::new("/proc/self/mountinfo");
        Self::read(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::new(
                io::ErrorKind::NotFound,
                "there is no /proc/self/mountinfo, which lists what is mounted: mount /proc",
            ),
            _ => error,
        })
    }

    /// The table in a file.
    ///
    /// # Errors
    /// As for [`own`](Self::own).
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut table = Vec::new();
        File::open(path)?.take(TABLE_MAX_BYTES + 1).read_to_end(&mut table)?;
        if table.len() as u64 > TABLE_MAX_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "the table of mounts has more than 64 MiB",
            ));
        }
        Ok(Self(table))
    }

    /// The mounts in the table's order: of those at one place the one on top comes last.
    pub fn mounts(&self) -> impl DoubleEndedIterator<Item = Mount> + '_ {
        self.0.split(|&byte| byte == b'\n').filter_map(Mount::parse)
    }
}

/// Bytes that are written as a backslash and three octal digits are themselves again.
pub(crate) fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        match after {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] if byte == b'\\' => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[u8]) -> Mount {
        Mount::parse(line).unwrap()
    }

    #[test]
    fn tags_and_options_may_be_missing() {
        let mount =
            parse(b"36 35 98:0 /mnt1 /mnt2 rw,noatime shared:1 master:2 - ext3 /dev/root ro,errors=continue");
        let expected = Mount {
            id: 36,
            parent: 35,
            device: MountDevice { major: 98, minor: 0 },
            root: "/mnt1".into(),
            point: "/mnt2".into(),
            options: "rw,noatime".into(),
            fs_type: "ext3".into(),
            source: "/dev/root".into(),
            super_options: "ro,errors=continue".into(),
        };
        assert_eq!(mount, expected);
        assert!(mount.is_read_only() && !mount.is_ours() && mount.owner().is_none());
        assert_eq!(mount.super_option("errors"), Some(OsStr::new("continue")));
        assert_eq!(mount.super_option("error"), None);

        let ours =
            parse(b"70 27 0:57 / /mnt ro - fuse.undercroft.ext4 /tmp/x rw,user_id=0,group_id=7,allow_other");
        assert!(ours.is_ours() && !ours.is_read_only());
        assert_eq!((ours.owner(), ours.device.to_string()), (Some((0, 7)), "0:57".to_owned()));
        assert_eq!(ours.super_option("allow_other"), Some(OsStr::new("")));
        assert_eq!(parse(b"1 2 0:5 / / ro - tmpfs none").super_options, "");
    }

    #[test]
    fn ours_are_known_by_their_subtype() {
        let is_ours =
            |fs_type: &str| parse(format!("1 2 0:5 / / ro - {fs_type} none rw").as_bytes()).is_ours();
        assert!(is_ours("fuse.undercroft.ext4") && is_ours("fuseblk.undercroft.ext4"));
        assert!(!is_ours("fuse.undercroft") && !is_ours("ext4") && !is_ours("fuse.sshfs"));
    }

    #[test]
    fn lines_of_another_form_are_left_out() {
        for wrong in
            [&b""[..], b"1 2 3", b"1 2 x:y / / ro - ext4 a b", b"1 2 7:3 / / ro ext4 a b", b"\xff - x"]
        {
            assert_eq!(Mount::parse(wrong), None, "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn escaped_bytes_are_what_they_were() {
        let escaped = b"/a\\040b\\011c\\012d\\134040e\\043\xff\\9\\400\\+12\\";
        assert_eq!(unescape(escaped).as_bytes(), b"/a b\tc\nd\\040e#\xff\\9\\400\\+12\\");
    }

    #[test]
    fn a_table_that_never_ends_is_refused() {
        let refused = MountTable::read(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
    }
}
