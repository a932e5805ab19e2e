//! Owners, modes, times and flags.
//!
//! Projects are left to the recipes: many kernels refuse to write to a filesystem that has them.

use crate::Result;
use crate::dir::Dir;
use crate::manifest::Time;

/// Inode flags, with the values of FS_IOC_SETFLAGS, and the names of the files that get them.
const FLAGS: &[(&str, u32)] = &[
    ("secure-deletion", 0x0000_0001),
    ("undelete", 0x0000_0002),
    ("sync", 0x0000_0008),
    ("immutable", 0x0000_0010),
    ("append", 0x0000_0020),
    ("nodump", 0x0000_0040),
    ("noatime", 0x0000_0080),
    ("immutable-append-nodump", 0x0000_0070),
];
const DIRSYNC: u32 = 0x0001_0000;
const TOPDIR: u32 = 0x0002_0000;

pub(super) fn populate(top: &Dir) -> Result<()> {
    owners(&top.dir("owners")?)?;
    modes(&top.dir("modes")?)?;
    times(&top.dir("times")?)?;
    flags(&top.dir("flags")?)
}

pub(super) fn owners(dir: &Dir) -> Result<()> {
    for (uid, gid) in
        [(0, 0), (1000, 100), (65_534, 65_535), (65_536, 70_000), (4_294_967_294, 4_294_967_294)]
    {
        let name = format!("{uid}-{gid}");
        dir.file(&name)?;
        dir.chown(&name, uid, gid)?;
    }
    dir.symlink("symlink", b"0-0")?;
    dir.chown("symlink", 12, 345_678)
}

pub(super) fn modes(dir: &Dir) -> Result<()> {
    for mode in [0o0, 0o4755, 0o2755, 0o1644, 0o7777, 0o444, 0o111] {
        let name = format!("file-{mode:o}");
        dir.file(&name)?;
        dir.chmod(&name, mode)?;
        let name = format!("directory-{mode:o}");
        dir.dir(&name)?;
        dir.chmod(&name, mode)?;
    }
    Ok(())
}

/// The 32-bit seconds' ends, the ends of each of the two extra epoch bits, and what lies beside them. Small
/// inodes cannot hold most of these; the kernel then stores the nearest that they can.
pub(super) fn times(dir: &Dir) -> Result<()> {
    const MOMENTS: &[Time] = &[
        (i32::MIN as i64, 0),
        (i32::MIN as i64 + 1, 999_999_999),
        (-1, 500_000_000),
        (-1, 0),
        (0, 0),
        (0, 1),
        (i32::MAX as i64, 999_999_999),
        (i32::MAX as i64 + 1, 123_456_789),
        (u32::MAX as i64, 1),
        (u32::MAX as i64 + 1, 2),
        ((2 << 32) + i32::MIN as i64, 3),
        ((3 << 32) + i32::MIN as i64, 4),
        ((3 << 32) + i32::MAX as i64, 999_999_999),
    ];
    for (number, &modified) in MOMENTS.iter().enumerate() {
        let accessed = MOMENTS[(number + 5) % MOMENTS.len()];
        let name = format!("{}.{:09}", modified.0, modified.1);
        dir.file(&name)?;
        dir.times(&name, accessed, modified)?;
    }
    drop(dir.dir("directory")?);
    dir.times("directory", (-86_400, 7), (1 << 33, 8))?;
    dir.symlink("symlink", b"x")?;
    dir.times("symlink", (1 << 33, 9), (-2, 10))
}

fn flags(dir: &Dir) -> Result<()> {
    for (name, flags) in FLAGS {
        dir.file_with(name, u64::from(*flags), 10)?;
        dir.flags(name, *flags)?;
    }
    for (name, flags) in [("dirsync", DIRSYNC), ("topdir", TOPDIR), ("immutable-directory", 0x10)] {
        dir.dir(name)?.file("inside")?;
        dir.flags(name, flags)?;
    }
    Ok(())
}
