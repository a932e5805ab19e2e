//! A damaged image: the names are listed, and each damage has its errno.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::io;

use rustix::io::Errno;

use crate::support::Fixture;

fn errno<T>(result: io::Result<T>) -> Option<Errno> {
    Errno::from_io_error(&result.err()?)
}

#[test]
fn damage_and_missing_keys_are_told_apart() {
    let fixture = Fixture::new("");
    assert_eq!(errno(fs::read(fixture.path("damage/bytes"))), Some(Errno::UCLEAN));
    assert_eq!(errno(fs::read(fixture.path("damage/locked"))), Some(Errno::NOKEY));
    for name in ["inode", "nothing", "reserved", "root"] {
        let path = fixture.path("damage").join(name);
        assert_eq!(errno(fs::symlink_metadata(path)), Some(Errno::UCLEAN), "{name}");
    }
}

#[test]
fn entries_whose_inodes_cannot_be_read_are_listed() {
    let fixture = Fixture::new("");
    // The first listing asks for attributes along with the names, the second finds the names in the kernel.
    for _ in 0..2 {
        let entries = fs::read_dir(fixture.path("damage")).unwrap();
        let entries: BTreeMap<_, DirEntry> =
            entries.map(|entry| entry.unwrap()).map(|entry| (entry.file_name(), entry)).collect();
        let names: Vec<&str> = entries.keys().map(|name| name.to_str().unwrap()).collect();
        assert_eq!(names, ["bytes", "inode", "locked", "nothing", "reserved", "root"]);
        assert_eq!(errno(entries[std::ffi::OsStr::new("inode")].metadata()), Some(Errno::UCLEAN));
        assert_eq!(entries[std::ffi::OsStr::new("bytes")].metadata().unwrap().len(), 4096);
    }
    // The listing handed out what could not be read as well, and the kernel gave it back at once.
    assert!(fixture.mounted.inodes_in_kernel() <= 4);
}
