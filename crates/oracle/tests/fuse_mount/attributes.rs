//! What is known about files.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use rustix::io::Errno;
use undercroft_vfs::InodeFlags;

use crate::sample::ACL;
use crate::support::Fixture;

#[test]
fn stat_shows_every_attribute() {
    let fixture = Fixture::new("");
    let odd = fs::metadata(fixture.path("odd")).unwrap();
    assert_eq!(odd.mode(), 0o104_751);
    assert_eq!((odd.uid(), odd.gid()), (70_000, 80_000));
    assert_eq!((odd.size(), odd.blocks(), odd.blksize()), (3, 1, 4096));
    assert_eq!((odd.mtime(), odd.mtime_nsec()), (-2, 500_000_000));
    assert_eq!((odd.ctime(), odd.ctime_nsec()), (1 << 33, 1));
    assert_eq!((odd.atime(), odd.atime_nsec()), (1_700_000_000, 123_456_789));
    let (first, second) = (fixture.path("hello"), fixture.path("also-hello"));
    let (first, second) = (fs::metadata(first).unwrap(), fs::metadata(second).unwrap());
    assert_eq!((first.ino(), first.nlink()), (second.ino(), 2));
    let device = fs::symlink_metadata(fixture.path("device")).unwrap();
    assert!(device.file_type().is_char_device());
    assert_eq!((rustix::fs::major(device.rdev()), rustix::fs::minor(device.rdev())), (1, 0x12345));
    assert!(fs::symlink_metadata(fixture.path("pipe")).unwrap().file_type().is_fifo());
    assert!(fs::symlink_metadata(fixture.path("link")).unwrap().file_type().is_symlink());
}

#[test]
fn the_root_shows_its_own_inode_number() {
    let fixture = Fixture::new("");
    assert_eq!(fs::metadata(fixture.root()).unwrap().ino(), 2);
    assert_eq!(fs::metadata(fixture.path("many/..")).unwrap().ino(), 2);
}

#[test]
fn inode_flags_generation_and_project_are_told() {
    let fixture = Fixture::new("");
    let odd = fs::File::open(fixture.path("odd")).unwrap();
    let flags = rustix::fs::ioctl_getflags(&odd).unwrap();
    let expected = InodeFlags::IMMUTABLE | InodeFlags::NODUMP | InodeFlags::EXTENTS;
    assert_eq!(flags.bits(), expected.bits());
    let lsattr = std::process::Command::new("lsattr").arg("-pv").arg(fixture.path("odd")).output().unwrap();
    let words = String::from_utf8(lsattr.stdout).unwrap();
    let mut words = words.split_whitespace();
    assert_eq!(words.next(), Some("42"));
    assert_eq!(words.next(), Some("3735928559"));
    let directory = fs::File::open(fixture.root()).unwrap();
    assert_eq!(rustix::fs::ioctl_getflags(&directory).unwrap().bits(), 0);
}

#[test]
fn extended_attributes_come_whole_or_with_their_size() {
    let fixture = Fixture::new("");
    let noted = fixture.path("noted");
    let mut value = [0; 100];
    let mut get = |name: &str, room: usize| rustix::fs::getxattr(&noted, name, &mut value[..room]);
    assert_eq!(rustix::fs::getxattr_query(&noted, "user.note"), Ok(13));
    assert_eq!(get("user.note", 12), Err(Errno::RANGE));
    assert_eq!(get("user.note", 13), Ok(13));
    assert_eq!(get("user.empty", 1), Ok(0));
    assert_eq!(get("user.missing", 100), Err(Errno::NODATA));
    assert_eq!(&value[..13], b"remember this");
    let mut list = [0_u8; 100];
    let names = b"user.note\0user.empty\0trusted.secret\0";
    assert_eq!(rustix::fs::listxattr_query(&noted), Ok(names.len()));
    assert_eq!(rustix::fs::listxattr(&noted, &mut list[..names.len() - 1]), Err(Errno::RANGE));
    assert_eq!(rustix::fs::listxattr(&noted, &mut list), Ok(names.len()));
    assert_eq!(&list[..names.len()], names);
    let mut acl = [0; 100];
    let len = rustix::fs::getxattr(fixture.path("shared"), "system.posix_acl_access", &mut acl).unwrap();
    assert_eq!(acl[..len], ACL);
}

#[test]
fn statfs_shows_space_and_limits() {
    let fixture = Fixture::new("");
    let space = rustix::fs::statvfs(fixture.root()).unwrap();
    assert_eq!((space.f_bsize, space.f_frsize, space.f_namemax), (4096, 4096, 255));
    assert_eq!((space.f_blocks, space.f_bfree, space.f_bavail), (1000, 300, 200));
    assert_eq!((space.f_files, space.f_ffree), (50_000, 40_000));
}
