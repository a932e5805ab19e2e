//! The table of mounts, as Linux writes it. Needs root.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use undercroft_block::mountinfo::MountTable;

/// Linux's own writing of a name with every byte that it escapes, and of bytes that are not UTF-8.
#[test]
fn a_mount_point_of_odd_bytes_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let point = dir.path().join(OsStr::from_bytes(b"a b\tc\nd\\e#f\xff\\040"));
    std::fs::create_dir(&point).unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "a source"]).arg(&point).status();
    assert!(mounted.unwrap().success(), "mount (needs root)");
    let found = MountTable::own().unwrap().mounts().rfind(|mount| mount.point == point);
    assert!(Command::new("umount").arg(&point).status().unwrap().success());
    let found = found.expect("the mount is not in the table");
    assert_eq!((found.fs_type.as_str(), found.source.as_path()), ("tmpfs", Path::new("a source")));
    assert_eq!(found.super_option("size"), Some(OsStr::new("1024k")));
}
