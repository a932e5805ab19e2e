//! Entries put into a filesystem in memory.

use std::sync::Arc;

use undercroft_vfs::{Credentials, DeviceNumber, FileType, Timestamp, Vfs};

use super::{Writer, WriterOptions};
use crate::testing::{Given, entry, file, memory, node, xattr};
use crate::{Content, Entry, EntryKind, EntryPath, Error, FillOptions, Metadata, Source, fill};

const LIST: &[u8] = &[
    2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 7, 0, 5, 0, 0, 0, 4, 0, 4, 0, 255, 255, 255, 255, 16,
    0, 7, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
];

fn put(vfs: &Arc<Vfs>, entries: impl IntoIterator<Item = Entry>) -> Result<(), Error> {
    let mut writer = Writer::new(Arc::clone(vfs), vfs.root().unwrap(), WriterOptions::default());
    entries.into_iter().try_for_each(|entry| writer.put(entry))?;
    writer.finish().map(drop)
}

fn link(path: &str, target: &str) -> Entry {
    entry(path, EntryKind::HardLink(EntryPath::new(target.as_bytes()).unwrap()))
}

fn symlink(path: &str, target: &str) -> Entry {
    entry(path, EntryKind::Symlink(target.as_bytes().into()))
}

#[test]
fn every_kind_has_what_its_entry_says() {
    let vfs = memory();
    let number = DeviceNumber { major: 8, minor: 1 };
    let mut directory = entry("d", EntryKind::Directory);
    directory.metadata.permissions = 0o2750;
    directory.metadata.xattrs = vec![xattr("user.a", b"1"), xattr("system.posix_acl_default", LIST)];
    let entries = [
        entry("", EntryKind::Directory),
        directory,
        file("d/file", 0),
        symlink("d/link", "/nowhere"),
        entry("d/char", EntryKind::CharDevice(number)),
        entry("d/block", EntryKind::BlockDevice(number)),
        entry("d/fifo", EntryKind::Fifo),
        entry("d/socket", EntryKind::Socket),
        entry("d/below", EntryKind::Directory),
        link("d/again", "d/file"),
        file("made/above/file", 0),
    ];
    put(&vfs, entries.clone()).unwrap();
    for entry in &entries {
        let attr = node(&vfs, &format!("/{}", String::from_utf8_lossy(entry.path.as_bytes()))).attr();
        if matches!(entry.kind, EntryKind::HardLink(_)) {
            assert_eq!(attr.links, 2);
            continue;
        }
        let permissions = if attr.kind == FileType::Symlink { 0o777 } else { entry.metadata.permissions };
        assert_eq!((attr.uid, attr.gid, attr.permissions), (7, 8, permissions), "{entry:?}");
        assert_eq!((attr.modified, attr.accessed), (entry.metadata.modified, entry.metadata.modified));
    }
    assert_eq!(node(&vfs, "/d/block").attr().rdev, number);
    assert_eq!(node(&vfs, "/d/link").read_link().unwrap(), b"/nowhere");
    assert_eq!(node(&vfs, "/d").xattr(b"user.a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(node(&vfs, "/d").xattr(b"system.posix_acl_default").unwrap().as_deref(), Some(LIST));
    assert_eq!(node(&vfs, "/d/below").xattr(b"system.posix_acl_default").unwrap(), None);
    assert_eq!(node(&vfs, "/made/above").attr().permissions, 0o755);
}

#[test]
fn what_is_there_hands_nothing_on() {
    let vfs = memory();
    let mut directory = entry("d", EntryKind::Directory);
    directory.metadata.permissions = 0o2777;
    directory.metadata.gid = 99;
    directory.metadata.xattrs = vec![xattr("system.posix_acl_default", LIST)];
    put(&vfs, [directory]).unwrap();
    put(&vfs, [file("d/file", 0), entry("d/below", EntryKind::Directory), symlink("d/link", "x")]).unwrap();
    for (path, permissions) in [("/d/file", 0o640), ("/d/below", 0o640), ("/d/link", 0o777)] {
        let node = node(&vfs, path);
        assert_eq!((node.attr().gid, node.attr().permissions), (8, permissions), "{path}");
        assert!(node.list_xattrs().unwrap().is_empty(), "{path}");
    }
}

#[test]
fn the_last_entry_of_a_name_wins() {
    let vfs = memory();
    let with = |path: &str, seconds| Entry {
        metadata: Metadata { modified: Timestamp { seconds, nanoseconds: 0 }, ..Metadata::default() },
        ..file(path, 0)
    };
    let entries = [
        with("f", 1),
        link("same", "f"),
        link("f", "same"),
        with("f", 2),
        entry("f2", EntryKind::Directory),
        with("f2", 3),
        symlink("to-directory", "f3"),
        entry("to-directory", EntryKind::Directory),
        entry("kept", EntryKind::Directory),
        with("kept/file", 4),
        entry("kept", EntryKind::Directory),
    ];
    put(&vfs, entries).unwrap();
    assert_eq!(node(&vfs, "/f").attr().modified.seconds, 2);
    assert_eq!(node(&vfs, "/same").attr().modified.seconds, 1);
    assert_eq!(node(&vfs, "/f2").attr().modified.seconds, 3);
    assert_eq!(node(&vfs, "/to-directory").kind(), FileType::Directory);
    assert_eq!(node(&vfs, "/kept/file").attr().modified.seconds, 4);
    let refused = put(&vfs, [with("kept", 5)]).unwrap_err();
    assert!(refused.to_string().contains("a directory with something in it"), "{refused}");
}

#[test]
fn no_link_is_followed() {
    let vfs = memory();
    put(&vfs, [entry("real", EntryKind::Directory), symlink("link", "real"), file("real/f", 0)]).unwrap();
    for (hostile, words) in [
        (file("link/below", 0), "is a symbolic link"),
        (file("real/f/below", 0), "is no directory"),
        (link("x", "link/f"), "which is not there"),
        (link("x", "missing"), "which is not there"),
        (link("x", "real"), "which is a directory"),
        (file("", 0), "the root can only be a directory"),
    ] {
        let refused = put(&vfs, [hostile]).unwrap_err();
        assert!(refused.to_string().contains(words), "{refused}");
    }
    put(&vfs, [link("x", "link")]).unwrap();
    assert_eq!(node(&vfs, "/x").kind(), FileType::Symlink);
    assert!(vfs.read_dir(&Credentials::root(), "/real").unwrap().count() == 1);
}

#[test]
fn whiteouts_take_away_what_is_below() {
    let vfs = memory();
    let mut entries: Vec<_> = (0..2500).map(|n| file(&format!("a/b/{n}"), 0)).collect();
    entries.push(file("a/c/d/e", 0));
    entries.push(file("kept/b", 0));
    put(&vfs, entries).unwrap();
    let gone = [
        entry("a/b", EntryKind::Whiteout),
        entry("nothing/at/all", EntryKind::Whiteout),
        entry("kept", EntryKind::Opaque),
    ];
    put(&vfs, gone).unwrap();
    let names = |path: &str| vfs.read_dir(&Credentials::root(), path).unwrap().count();
    assert_eq!((names("/"), names("/a"), names("/kept")), (2, 1, 0));
    put(&vfs, [entry("a", EntryKind::Opaque), entry("", EntryKind::Opaque), file("new", 0)]).unwrap();
    assert_eq!(names("/"), 1);
}

#[test]
fn content_and_holes_are_where_the_source_has_them() {
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    for single_thread in [false, true] {
        let vfs = memory();
        let sparse = Content { size_bytes: 1 << 30, data: Some(std::iter::once(0..3_000_000).collect()) };
        let given = Given::default()
            .with(file("whole", bytes.len() as u64), &bytes)
            .with(file("empty", 0), &[])
            .with(entry("sparse", EntryKind::Regular(sparse)), &bytes);
        let mut sources: Vec<Box<dyn Source>> =
            vec![Box::new(given), Box::new(Given::default().with(file("small", 3), b"abc"))];
        let filled =
            fill(&vfs, &mut sources, &FillOptions { single_thread, ..FillOptions::default() }).unwrap();
        assert_eq!((filled.entries, filled.data_bytes), (4, 6_000_003));
        let root = Credentials::root();
        assert_eq!(vfs.read(&root, "/whole").unwrap(), bytes);
        assert_eq!(vfs.read(&root, "/small").unwrap(), b"abc");
        let sparse = vfs.open(&root, "/sparse").unwrap();
        assert_eq!(sparse.size_bytes(), 1 << 30);
        assert!(sparse.node().attr().sectors < 8000);
        let mut end = vec![1; 3_000_001];
        assert_eq!(sparse.read_at(0, &mut end).unwrap(), end.len());
        assert_eq!(&end[..3_000_000], bytes);
        assert_eq!(end[3_000_000], 0);
        assert_eq!(node(&vfs, "/sparse").attr().modified.seconds, 1006);
    }
}
