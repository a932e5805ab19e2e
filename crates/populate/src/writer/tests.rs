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
fn links_of_the_same_source_are_not_followed() {
    let vfs = memory();
    let own = || [entry("real", EntryKind::Directory), symlink("link", "real"), file("real/f", 0)];
    for (hostile, words) in [
        (file("link/below", 0), "link, which is a symbolic link that the same source has made"),
        (file("real/f/below", 0), "is no directory"),
        (link("x", "link/f"), "which is not there"),
        (link("x", "missing"), "which is not there"),
        (link("x", "real"), "which is a directory"),
        (file("", 0), "the root can only be a directory"),
    ] {
        let refused = put(&vfs, own().into_iter().chain([hostile])).unwrap_err();
        assert!(refused.to_string().contains(words), "{refused}");
    }
    put(&vfs, [link("x", "link")]).unwrap();
    assert_eq!(node(&vfs, "/x").kind(), FileType::Symlink);
    assert!(vfs.read_dir(&Credentials::root(), "/real").unwrap().count() == 1);
}

#[test]
fn links_of_earlier_sources_are_followed_within_the_filesystem() {
    let vfs = memory();
    let first = [
        entry("usr/lib", EntryKind::Directory),
        file("usr/lib/old", 0),
        symlink("lib", "usr/lib"),
        symlink("usr/up", "../../../lib/."),
        symlink("absolute", "/usr/up"),
        symlink("turning", "turning"),
        symlink("dangling", "usr/none"),
        symlink("to-file", "usr/lib/old"),
    ];
    put(&vfs, first).unwrap();
    let mut own_directory = entry("lib", EntryKind::Directory);
    own_directory.metadata.permissions = 0o711;
    let second = [
        own_directory,
        file("lib/a", 0),
        file("absolute/b", 0),
        link("usr/up/c", "lib/a"),
        file("lib/deep/d", 0),
        entry("dangling", EntryKind::Directory),
        entry("to-file", EntryKind::Directory),
    ];
    put(&vfs, second).unwrap();
    assert_eq!(node(&vfs, "/lib").kind(), FileType::Symlink);
    assert_eq!(node(&vfs, "/usr/lib").attr().permissions, 0o711);
    for path in ["/usr/lib/a", "/usr/lib/b", "/usr/lib/deep/d"] {
        assert_eq!(node(&vfs, path).kind(), FileType::Regular, "{path}");
    }
    assert_eq!(node(&vfs, "/usr/lib/c").ino(), node(&vfs, "/usr/lib/a").ino());
    assert_eq!(node(&vfs, "/dangling").kind(), FileType::Directory);
    assert_eq!(node(&vfs, "/to-file").kind(), FileType::Directory);

    put(&vfs, [symlink("dangling-again", "none"), symlink("to-old", "usr/lib/old")]).unwrap();
    for (refused, words) in [
        (vec![file("turning/x", 0)], "leads to no directory"),
        (vec![file("dangling-again/x", 0)], "leads to no directory"),
        (vec![file("to-old/x", 0)], "leads to no directory"),
        // The way through an older link leads over one of the same source.
        (vec![file("lib", 0), symlink("lib", "usr"), file("absolute/x", 0)], "the same source has made"),
        (vec![symlink("lib", "/usr"), file("usr/up/x", 0)], "the same source has made"),
    ] {
        let refused = put(&vfs, refused).unwrap_err();
        assert!(refused.to_string().contains(words), "{refused}");
    }
    assert!(vfs.resolve(&Credentials::root(), "/usr/x", undercroft_vfs::Follow::NoFollow).is_err());
}

#[test]
fn a_link_that_is_replaced_leads_nowhere_any_more() {
    let vfs = memory();
    put(&vfs, [entry("old", EntryKind::Directory), symlink("link", "old")]).unwrap();
    let entries =
        [file("link/a", 0), file("link", 0), entry("link", EntryKind::Directory), file("link/b", 0)];
    put(&vfs, entries).unwrap();
    assert_eq!(node(&vfs, "/old/a").kind(), FileType::Regular);
    assert_eq!(node(&vfs, "/link/b").kind(), FileType::Regular);
    assert_eq!(vfs.read_dir(&Credentials::root(), "/old").unwrap().count(), 1);
}

#[test]
fn sources_follow_the_links_of_sources_before_them() {
    let vfs = memory();
    let first = Given::default()
        .with(entry("usr/lib", EntryKind::Directory), &[])
        .with(symlink("lib", "usr/lib"), &[]);
    let second = Given::default().with(file("lib/a", 3), b"abc");
    fill(&vfs, &mut [Box::new(first), Box::new(second)], &FillOptions::default()).unwrap();
    assert_eq!(vfs.read(&Credentials::root(), "/usr/lib/a").unwrap(), b"abc");
}

#[test]
fn the_source_of_what_is_refused_is_named() {
    let vfs = memory();
    let wrong = || Box::new(Given::default().with(file("a/b/c", 0), &[]).with(file("a/b", 0), &[]));
    let refused = fill(&vfs, &mut [wrong()], &FillOptions::default()).unwrap_err();
    assert!(refused.to_string().starts_with("given: /a/b: there is a directory"), "{refused}");
    let right = Box::new(Given::default().with(file("x", 0), &[]));
    let refused = fill(&vfs, &mut [right, wrong()], &FillOptions::default()).unwrap_err();
    assert!(refused.to_string().starts_with("given: /a/b: there is a directory"), "{refused}");
}

#[test]
fn attributes_that_linux_does_not_keep_are_left_out_and_counted() {
    let vfs = memory();
    let with = |mut entry: Entry, names: &[&str]| {
        entry.metadata.xattrs = names.iter().map(|name| xattr(name, b"1")).collect();
        entry
    };
    let entries = [
        with(file("f", 0), &["com.apple.quarantine", "user.a", "system.nfs4_acl", "user.", "trusted.a"]),
        with(symlink("l", "f"), &["user.a", "trusted.b", "system.posix_acl_access"]),
        with(entry("p", EntryKind::Fifo), &["user.a", "security.c", "system.posix_acl_default"]),
    ];
    let mut writer = Writer::new(Arc::clone(&vfs), vfs.root().unwrap(), WriterOptions::default());
    entries.into_iter().for_each(|entry| writer.put(entry).unwrap());
    let unkept = writer.finish().unwrap().unkept_xattrs;
    assert_eq!(
        unkept.to_string(),
        "7 extended attributes that Linux does not keep were left out (first: com.apple.quarantine of /f)"
    );
    for (path, names) in
        [("/f", &[&b"trusted.a"[..], b"user.a"][..]), ("/l", &[b"trusted.b"]), ("/p", &[b"security.c"])]
    {
        let mut listed = node(&vfs, path).list_xattrs().unwrap();
        listed.sort();
        assert_eq!(listed, names, "{path}");
    }
    let refused = put(&vfs, [with(file("f", 0), &["system.posix_acl_access"])]).unwrap_err();
    assert!(
        refused.to_string().starts_with("/f: its extended attribute system.posix_acl_access: "),
        "{refused}"
    );
}

/// A valid list of 9,000 users. Without it, the group would get what its mask lets others have.
#[test]
fn a_list_that_is_too_long_is_refused_and_not_left_out() {
    let numbered = (0..9000_u32).map(|user| (2_u16, 7_u16, user));
    let entries = [(1, 6, u32::MAX)].into_iter().chain(numbered);
    let entries = entries.chain([(4, 0, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)]);
    let mut list = vec![2, 0, 0, 0];
    for (tag, permissions, id) in entries {
        list.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    let mut entry = file("f", 0);
    entry.metadata.permissions = 0o670;
    entry.metadata.xattrs = vec![xattr("system.posix_acl_access", &list)];
    let refused = put(&memory(), [entry]).unwrap_err();
    assert!(
        refused.to_string().starts_with("/f: its extended attribute system.posix_acl_access: "),
        "{refused}"
    );
}

#[test]
fn a_failure_leaves_directories_as_they_are_to_be() {
    let vfs = memory();
    let directory = |path, permissions| {
        let mut entry = entry(path, EntryKind::Directory);
        entry.metadata.permissions = permissions;
        entry
    };
    put(&vfs, [directory("shared", 0o2775), directory("plain", 0o755), file("plain/f", 0)]).unwrap();
    let mut cut_off = Writer::new(Arc::clone(&vfs), vfs.root().unwrap(), WriterOptions::default());
    cut_off.put(directory("shared", 0o2750)).unwrap();
    assert_eq!(node(&vfs, "/shared").attr().permissions, 0o2750);
    drop(cut_off);
    let given = Given::default()
        .with(directory("new", 0o2700), &[])
        .with(directory("shared", 0o2770), &[])
        .with(file("shared/f", 0), &[])
        .with(file("plain", 0), &[]);
    fill(&vfs, &mut [Box::new(given)], &FillOptions::default()).unwrap_err();
    assert_eq!(node(&vfs, "/new").attr().permissions, 0o2700);
    let shared = node(&vfs, "/shared").attr();
    assert_eq!((shared.permissions, shared.modified.seconds), (0o2770, 1006));
    assert_eq!(node(&vfs, "/shared/f").attr().permissions, 0o640);
}

#[test]
fn what_makes_way_does_not_change_what_is_handed_on() {
    let vfs = memory();
    let mut shared = entry("d", EntryKind::Directory);
    (shared.metadata.permissions, shared.metadata.gid) = (0o2775, 99);
    put(&vfs, [shared, entry("d/x", EntryKind::Directory)]).unwrap();
    put(&vfs, [file("d/x", 0)]).unwrap();
    assert_eq!(node(&vfs, "/d/x").attr().gid, 8);
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

#[test]
fn names_change_in_one_step_where_that_is_asked_for() {
    let vfs = memory();
    put(&vfs, [file("f", 0), file("g", 0), entry("d", EntryKind::Directory), symlink("l", "f")]).unwrap();
    let root = Credentials::root();
    vfs.write(&root, "/f", "old").unwrap();
    let writer = || {
        let top = vfs.root().unwrap();
        Writer::new(Arc::clone(&vfs), top, WriterOptions::default()).in_one_step()
    };
    let mut cut_off = writer();
    cut_off.put(file("f", 6)).unwrap();
    cut_off.write(0, b"new").unwrap();
    assert_eq!(vfs.read(&root, "/f").unwrap(), b"old");
    drop(cut_off);
    assert_eq!(vfs.read(&root, "/f").unwrap(), b"old");
    let mut whole = writer();
    whole.put(file("f", 3)).unwrap();
    whole.write(0, b"new").unwrap();
    for entry in [symlink("g", "x"), link("l", "f"), file("d", 0), file("made/here", 0), link("again", "f")] {
        whole.put(entry).unwrap();
    }
    whole.finish().unwrap();
    assert_eq!(vfs.read(&root, "/f").unwrap(), b"new");
    assert_eq!(node(&vfs, "/g").read_link().unwrap(), b"x");
    assert_eq!(node(&vfs, "/l").ino(), node(&vfs, "/f").ino());
    assert_eq!((node(&vfs, "/f").attr().links, node(&vfs, "/f").attr().uid), (3, 7));
    assert_eq!(node(&vfs, "/d").kind(), FileType::Regular);
    let mut names: Vec<_> =
        vfs.read_dir(&root, "/").unwrap().map(|entry| entry.unwrap().name().to_vec()).collect();
    names.sort();
    assert_eq!(names, [&b"again"[..], b"d", b"f", b"g", b"l", b"made"]);
}
