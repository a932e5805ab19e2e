//! The calls by path, and the cursor, against `std::fs` on a filesystem of Linux: the same answers, errno for errno, and
//! the same tree. By a filesystem in memory, which keeps its nodes, and by ext4, whose nodes and names the vfs caches.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use undercroft_block::MemoryDevice;
use undercroft_ext4::{Ext4, Family, MkfsOptions, OpenOptions, WriteOptions, mkfs};
use undercroft_oracle::Image;
use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::{Credentials, Error, FileType, Follow, NewObject, RenameFlags, Result, Vfs, VfsOptions};

const ROOT: Credentials = Credentials::root();

#[derive(Clone, Debug)]
enum Op {
    Read(String),
    Write(String, u8),
    CreateDir(String),
    CreateDirAll(String),
    ReadDir(String),
    RemoveFile(String),
    RemoveDir(String),
    RemoveDirAll(String),
    Rename(String, String),
    Symlink(String, String),
}

/// Few names, so that they meet; with `slashes` also in odd places.
fn path(slashes: bool) -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "c"]);
    let between = prop::sample::select(if slashes { vec!["/", "/", "/", "//", "/./"] } else { vec!["/"] });
    let last = prop::sample::select(if slashes { vec!["", "", "", "", "/", "//"] } else { vec![""] });
    (prop::collection::vec((name, between), 1..5), last).prop_map(|(parts, last)| {
        let count = parts.len();
        let parts = parts.into_iter().enumerate();
        parts.map(|(at, (name, slash))| [name, if at + 1 < count { slash } else { last }].concat()).collect()
    })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => path(true).prop_map(Op::Read),
        4 => (path(true), any::<u8>()).prop_map(|(path, byte)| Op::Write(path, byte)),
        2 => path(true).prop_map(Op::CreateDir),
        4 => path(false).prop_map(Op::CreateDirAll),
        2 => path(true).prop_map(Op::ReadDir),
        2 => path(true).prop_map(Op::RemoveFile),
        2 => path(true).prop_map(Op::RemoveDir),
        1 => path(false).prop_map(Op::RemoveDirAll),
        4 => (path(true), path(true)).prop_map(|(from, to)| Op::Rename(from, to)),
        2 => (path(false), path(true)).prop_map(|(target, path)| Op::Symlink(target, path)),
    ]
}

fn tmpfs() -> Arc<Vfs> {
    Vfs::new(Tmpfs::new(&TmpfsOptions::default()).unwrap(), VfsOptions::default())
}

fn ext4() -> Arc<Vfs> {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let options = MkfsOptions { device_is_zeroed: true, ..MkfsOptions::new(Family::Ext4) };
    mkfs(&*device, &options).unwrap();
    let ext4 = Ext4::open(device, OpenOptions::default(), WriteOptions::default()).unwrap();
    let vfs = Vfs::new(ext4, VfsOptions::default());
    // Linux's directory has no such entry.
    vfs.remove_dir(&ROOT, "lost+found").unwrap();
    vfs
}

fn ours(vfs: &Vfs, op: &Op) -> Result<Vec<u8>> {
    let nothing = |()| Vec::new();
    match op {
        Op::Read(path) => vfs.read(&ROOT, path),
        Op::Write(path, byte) => vfs.write(&ROOT, path, [*byte; 5000]).map(nothing),
        Op::CreateDir(path) => vfs.create_dir(&ROOT, path).map(nothing),
        Op::CreateDirAll(path) => vfs.create_dir_all(&ROOT, path).map(nothing),
        Op::ReadDir(path) => {
            let mut names = Vec::new();
            for entry in vfs.read_dir(&ROOT, path)? {
                names.push(entry?.name().to_vec());
            }
            names.sort();
            Ok(names.join(&b'\n'))
        }
        Op::RemoveFile(path) => vfs.remove_file(&ROOT, path).map(nothing),
        Op::RemoveDir(path) => vfs.remove_dir(&ROOT, path).map(nothing),
        Op::RemoveDirAll(path) => vfs.remove_dir_all(&ROOT, path).map(nothing),
        Op::Rename(from, to) => vfs.rename_path(&ROOT, from, to, RenameFlags::empty()).map(nothing),
        Op::Symlink(target, path) => {
            vfs.create_at(&ROOT, path, &NewObject::symlink(target.as_bytes())).map(|_| Vec::new())
        }
    }
}

fn linux(top: &Path, op: &Op) -> io::Result<Vec<u8>> {
    let at = |path: &String| PathBuf::from(format!("{}/{path}", top.display()));
    let nothing = |()| Vec::new();
    match op {
        Op::Read(path) => fs::read(at(path)),
        Op::Write(path, byte) => fs::write(at(path), [*byte; 5000]).map(nothing),
        Op::CreateDir(path) => fs::create_dir(at(path)).map(nothing),
        Op::CreateDirAll(path) => fs::create_dir_all(at(path)).map(nothing),
        Op::ReadDir(path) => {
            let mut names = Vec::new();
            for entry in fs::read_dir(at(path))? {
                names.push(entry?.file_name().into_encoded_bytes());
            }
            names.sort();
            Ok(names.join(&b'\n'))
        }
        Op::RemoveFile(path) => fs::remove_file(at(path)).map(nothing),
        Op::RemoveDir(path) => fs::remove_dir(at(path)).map(nothing),
        Op::RemoveDirAll(path) => fs::remove_dir_all(at(path)).map(nothing),
        Op::Rename(from, to) => fs::rename(at(from), at(to)).map(nothing),
        Op::Symlink(target, path) => symlink(target, at(path)).map(nothing),
    }
}

/// Whether a write would make a file through a link, which only Linux does.
fn leads_nowhere(top: &Path, op: &Op) -> bool {
    let Op::Write(path, _) = op else { return false };
    let path = top.join(path);
    path.symlink_metadata().is_ok() && !path.exists()
}

fn tree_of_linux(dir: &Path, below: &str, tree: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{below}/{}", entry.file_name().display());
        let kind = entry.file_type().unwrap();
        let content = if kind.is_dir() {
            tree_of_linux(&entry.path(), &path, tree);
            b"directory".to_vec()
        } else if kind.is_symlink() {
            fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes()
        } else {
            fs::read(entry.path()).unwrap()
        };
        tree.insert(path, content);
    }
}

fn our_tree(vfs: &Vfs, dir: &str, tree: &mut BTreeMap<String, Vec<u8>>) {
    for entry in vfs.read_dir(&ROOT, if dir.is_empty() { "/" } else { dir }).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{dir}/{}", str::from_utf8(entry.name()).unwrap());
        let content = match entry.kind().unwrap() {
            FileType::Directory => {
                our_tree(vfs, &path, tree);
                b"directory".to_vec()
            }
            FileType::Symlink => entry.node().unwrap().read_link().unwrap(),
            _ => vfs.read(&ROOT, &path).unwrap(),
        };
        tree.insert(path, content);
    }
}

fn paths_answer_as_std_fs(vfs: &Vfs, ops: &[Op]) -> std::result::Result<(), TestCaseError> {
    let top = tempfile::tempdir().unwrap();
    for op in ops {
        if leads_nowhere(top.path(), op) {
            continue;
        }
        let expected = linux(top.path(), op).map_err(|error| error.raw_os_error());
        let got = ours(vfs, op).map_err(|error| Some(error.raw_os_error()));
        prop_assert_eq!(got, expected, "{:?}", op);
    }
    let (mut expected, mut got) = (BTreeMap::new(), BTreeMap::new());
    tree_of_linux(top.path(), "", &mut expected);
    our_tree(vfs, "", &mut got);
    prop_assert_eq!(got, expected);
    Ok(())
}

proptest! {
    #[test]
    fn tmpfs_answers_by_path_as_std_fs(ops in prop::collection::vec(op(), 1..60)) {
        paths_answer_as_std_fs(&tmpfs(), &ops)?;
    }

    #[test]
    fn ext4_answers_by_path_as_std_fs(ops in prop::collection::vec(op(), 1..60)) {
        let vfs = ext4();
        paths_answer_as_std_fs(&vfs, &ops)?;
        vfs.close().unwrap();
    }

    #[test]
    fn a_cursor_does_as_a_file(steps in prop::collection::vec((0..4u8, -6000..6000i64, 0..5000usize), 1..40)) {
        let vfs = tmpfs();
        let mut ours = vfs.create_file(&ROOT, "file").unwrap().into_cursor();
        let mut theirs = tempfile::tempfile().unwrap();
        for (step, (what, by, len)) in steps.into_iter().enumerate() {
            match what {
                0 => {
                    let data = vec![step as u8 + 1; len];
                    ours.write_all(&data).unwrap();
                    theirs.write_all(&data).unwrap();
                }
                1 => {
                    let (mut got, mut expected) = (vec![0; len], vec![0; len]);
                    prop_assert_eq!(ours.read(&mut got).unwrap(), theirs.read(&mut expected).unwrap());
                    prop_assert_eq!(got, expected);
                }
                _ => {
                    let to = if what == 2 { SeekFrom::Current(by) } else { SeekFrom::End(by) };
                    let (got, expected) = (ours.seek(to), theirs.seek(to));
                    prop_assert_eq!(got.ok(), expected.ok(), "{:?}", to);
                }
            }
        }
        let (mut got, mut expected) = (Vec::new(), Vec::new());
        ours.rewind().unwrap();
        theirs.rewind().unwrap();
        ours.read_to_end(&mut got).unwrap();
        theirs.read_to_end(&mut expected).unwrap();
        prop_assert_eq!(got, expected);
    }
}

#[test]
fn a_cursor_is_sent_to_another_thread_and_errors_keep_their_errno() {
    let vfs = tmpfs();
    let mut cursor = vfs.create_file(&ROOT, "a").unwrap().into_cursor();
    std::thread::spawn(move || cursor.write_all(b"sent")).join().unwrap().unwrap();
    let mut reading = vfs.open(&ROOT, "a").unwrap().into_cursor();
    assert_eq!(io::read_to_string(&mut reading).unwrap(), "sent");
    assert_eq!(reading.write(b"no").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    let missing: io::Error = vfs.read(&ROOT, "b").unwrap_err().into();
    assert_eq!(missing.raw_os_error(), Some(2));
}

/// As std's, which has nothing to make for it.
#[test]
fn no_directory_is_made_of_an_empty_path() {
    let vfs = tmpfs();
    vfs.create_dir_all(&ROOT, "").unwrap();
    fs::create_dir_all("").unwrap();
    assert_eq!(vfs.read_dir(&ROOT, "/").unwrap().count(), 0);
    assert!(matches!(vfs.create_dir(&ROOT, ""), Err(Error::NotFound)));
}

#[test]
fn a_file_is_not_made_through_a_link() {
    let vfs = tmpfs();
    vfs.create_at(&ROOT, "link", &NewObject::symlink(b"nowhere")).unwrap();
    assert!(matches!(vfs.write(&ROOT, "link", "text"), Err(Error::Exists)));
    vfs.write(&ROOT, "nowhere", "text").unwrap();
    vfs.write(&ROOT, "link", "other").unwrap();
    assert_eq!(vfs.read(&ROOT, "nowhere").unwrap(), b"other");
}

#[test]
fn a_size_that_only_holes_make_is_not_read_into_memory() {
    let vfs = tmpfs();
    vfs.create_file(&ROOT, "sparse").unwrap().truncate(1 << 40).unwrap();
    assert!(matches!(vfs.read(&ROOT, "sparse"), Err(Error::InvalidArgument(_))));
}

#[test]
fn ordinary_users_are_bound_by_permissions_and_take_privilege_bits_off() {
    let vfs = tmpfs();
    let user = Credentials::user(1000, 1000, Vec::new());
    vfs.create_at(&ROOT, "open", &NewObject::directory(0o777)).unwrap();
    vfs.create_at(&ROOT, "closed", &NewObject::directory(0o700)).unwrap();
    vfs.write(&ROOT, "closed/file", "secret").unwrap();
    assert!(matches!(vfs.read(&user, "closed/file"), Err(Error::PermissionDenied)));
    assert!(matches!(vfs.read_dir(&user, "closed"), Err(Error::PermissionDenied)));
    assert!(matches!(vfs.remove_dir_all(&user, "closed"), Err(Error::PermissionDenied)));
    vfs.create_at(&ROOT, "open/program", &NewObject::file(0o6777)).unwrap();
    vfs.write(&user, "open/program", "new").unwrap();
    let node = vfs.resolve(&ROOT, "open/program", Follow::Last).unwrap();
    assert_eq!(node.attr().permissions, 0o777);
}

/// Deeper than a recursion would go.
#[test]
fn deep_and_wide_trees_are_removed_from_tmpfs() {
    deep_and_wide_trees_are_removed(&tmpfs(), 20_000);
}

/// As many directories as it has inodes for, less the others.
#[test]
fn deep_and_wide_trees_are_removed_from_ext4() {
    let vfs = ext4();
    deep_and_wide_trees_are_removed(&vfs, 2500);
    vfs.close().unwrap();
    let device = vfs.filesystem().data_device().unwrap();
    Image::of_device("ext4", &**device).unwrap().check().unwrap();
}

/// With more names in the last directory than one batch holds.
fn deep_and_wide_trees_are_removed(vfs: &Vfs, depth: u32) {
    let before = vfs.filesystem().statfs().unwrap().inodes_free;
    let top = vfs.root().unwrap();
    let mut dir = vfs.create(&ROOT, &top, b"deep", &NewObject::directory(0o755)).unwrap();
    for _ in 0..depth {
        dir = vfs.create(&ROOT, &dir, b"d", &NewObject::directory(0o755)).unwrap();
    }
    for number in 0..1000 {
        let object = if number % 3 == 0 { NewObject::directory(0o755) } else { NewObject::file(0o644) };
        vfs.create(&ROOT, &dir, format!("{number}").as_bytes(), &object).unwrap();
    }
    drop(dir);
    vfs.remove_dir_all(&ROOT, "/deep").unwrap();
    assert_eq!(vfs.read_dir(&ROOT, "/").unwrap().count(), 0);
    assert_eq!(vfs.filesystem().statfs().unwrap().inodes_free, before);
}
