//! Trees of the host, as the source gives them.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use super::{DirectorySource, FileId};
use crate::{Entry, EntryKind, Source};

fn entries(source: &mut DirectorySource) -> Vec<(Entry, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(entry) = source.next_entry().unwrap() {
        let mut content = Vec::new();
        let mut buf = [0; 1000];
        while let Some(piece) = source.read_content(&mut buf).unwrap() {
            content.resize(piece.offset as usize, 0);
            content.extend_from_slice(&buf[..piece.len]);
        }
        all.push((entry, content));
    }
    all
}

fn paths(all: &[(Entry, Vec<u8>)]) -> Vec<String> {
    all.iter().map(|(entry, _)| String::from_utf8_lossy(entry.path.as_bytes()).into_owned()).collect()
}

#[test]
fn names_come_in_order_with_what_the_system_says() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("b/deep")).unwrap();
    fs::write(at("b/deep/file"), b"content").unwrap();
    fs::set_permissions(at("b/deep/file"), fs::Permissions::from_mode(0o4711)).unwrap();
    fs::hard_link(at("b/deep/file"), at("b/again")).unwrap();
    fs::hard_link(at("b/deep/file"), at("c")).unwrap();
    symlink("b/nowhere", at("a")).unwrap();
    let _socket = UnixListener::bind(at("z")).unwrap();
    fs::write(dir.path().join(std::ffi::OsStr::from_bytes(b"\xff")), b"").unwrap();
    fs::write(at("image"), b"left out").unwrap();
    let image = fs::metadata(at("image")).unwrap();
    let left_out = FileId { device: image.dev(), inode: image.ino() };
    let mut source = DirectorySource::open(dir.path(), [left_out]).unwrap();
    let all = entries(&mut source);
    assert_eq!(paths(&all), ["", "a", "b", "b/again", "b/deep", "b/deep/file", "c", "z", "\u{fffd}"]);
    let is_link =
        |at: usize| matches!(&all[at].0.kind, EntryKind::HardLink(to) if to.as_bytes() == b"b/again");
    assert!(matches!(&all[1].0.kind, EntryKind::Symlink(target) if **target == *b"b/nowhere"));
    assert_eq!((all[3].0.metadata.permissions, &all[3].1[..]), (0o4711, &b"content"[..]));
    assert!(is_link(5) && is_link(6));
    assert_eq!(all[7].0.kind, EntryKind::Socket);
    let stat = fs::metadata(at("c")).unwrap();
    let metadata = &all[3].0.metadata;
    assert_eq!((metadata.uid, metadata.gid), (stat.uid(), stat.gid()));
    assert_eq!(metadata.modified.seconds, stat.mtime());
    assert_eq!(i64::from(metadata.modified.nanoseconds), stat.mtime_nsec());
    source.rewind().unwrap();
    assert_eq!(entries(&mut source), all);
}

#[test]
fn holes_are_holes() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = fs::File::create(dir.path().join("sparse")).unwrap();
    file.write_all_at(b"here", 1 << 20).unwrap();
    file.set_len(1 << 32).unwrap();
    let mut source = DirectorySource::open(dir.path(), []).unwrap();
    source.next_entry().unwrap();
    let entry = source.next_entry().unwrap().unwrap();
    let EntryKind::Regular(content) = entry.kind else { panic!("{entry:?}") };
    assert_eq!(content.size_bytes, 1 << 32);
    let data = content.data.unwrap();
    assert!(data.len() == 1 && data[0].contains(&(1 << 20)) && data[0].end < 2 << 20, "{data:?}");
    let mut buf = vec![0; 1 << 20];
    let piece = source.read_content(&mut buf).unwrap().unwrap();
    let start = ((1 << 20) - piece.offset) as usize;
    assert_eq!(&buf[start..start + 4], b"here");
    assert_eq!(source.read_content(&mut buf).unwrap(), None);
}

#[test]
fn trees_of_any_depth_need_few_descriptors() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let depth = 1200;
    let mut at = rustix::fs::open(dir.path(), super::levels::flags(), rustix::fs::Mode::empty()).unwrap();
    for _ in 0..depth {
        rustix::fs::mkdirat(&at, "d", rustix::fs::Mode::RWXU).unwrap();
        rustix::fs::mkdirat(&at, "e", rustix::fs::Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "d", super::levels::flags(), rustix::fs::Mode::empty()).unwrap();
    }
    let mut source = DirectorySource::open(dir.path(), []).unwrap();
    let mut most = 0;
    let mut count = 0;
    while source.next_entry().unwrap().is_some() {
        count += 1;
        let levels = source.levels.as_ref().unwrap();
        most = most.max(levels.open_count());
    }
    assert_eq!(count, 1 + 2 * depth);
    assert!(most <= 66, "{most} descriptors");
}

#[test]
fn what_is_not_there_is_named() {
    let refused = DirectorySource::open(Path::new("/nowhere"), []).unwrap_err();
    assert!(refused.to_string().starts_with("/nowhere: No such file"), "{refused}");
}

#[test]
fn a_file_that_changes_while_it_is_read_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, [1; 5000]).unwrap();
    let read = |change: &dyn Fn()| {
        let mut source = DirectorySource::open(dir.path(), []).unwrap();
        source.next_entry().unwrap();
        source.next_entry().unwrap();
        let mut buf = [0; 4000];
        source.read_content(&mut buf).unwrap();
        change();
        source.read_content(&mut buf)?;
        source.read_content(&mut buf)
    };
    assert_eq!(read(&|| {}).unwrap(), None);
    let longer = read(&|| fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(6000).unwrap());
    assert!(longer.unwrap_err().to_string().contains("it changed while it was being read"));
    let other_time = || {
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    };
    assert!(read(&other_time).is_err());
}

#[test]
fn paths_that_are_too_long_are_refused_by_name() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let name = "n".repeat(250);
    let mut at = rustix::fs::open(dir.path(), super::levels::flags(), rustix::fs::Mode::empty()).unwrap();
    for _ in 0..140 {
        rustix::fs::mkdirat(&at, &*name, rustix::fs::Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, &*name, super::levels::flags(), rustix::fs::Mode::empty()).unwrap();
    }
    let mut source = DirectorySource::open(dir.path(), []).unwrap();
    let refused = std::iter::from_fn(|| source.next_entry().transpose()).find_map(Result::err).unwrap();
    assert!(refused.to_string().contains("the path has more than 32768 bytes"), "{refused}");
}
