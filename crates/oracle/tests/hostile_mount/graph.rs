//! Directories that are no tree: entries to ancestors, to the root and to the directory that holds them, directories
//! with two names. debugfs makes them. A look-up refuses such an entry as corruption, a listing shows its name and no
//! attributes, what is sound beside it stays usable, and no operation goes on for ever.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use undercroft_block::{Access, Device, MemoryDevice};
use undercroft_ext4::{Ext4, OpenOptions, WriteOptions};
use undercroft_fuse::{MountOptions, Mounted, mount};
use undercroft_oracle::{Image, Mke2fs, Scratch, unmount_when_idle};
use undercroft_vfs::{
    Credentials, Error, FileSystem, Follow, RenameFlags, Vfs, VfsOptions, WalkEvent, WalkFlow, WalkOptions,
};

/// Only tells a hang from a slow machine.
const HANG: Duration = Duration::from_secs(120);

/// Entries that lead where no entry may, in directories whose other entry is sound.
const WRONG: [&str; 5] = ["a/b/up", "o/second", "twice2", "self/self", "o/root"];

/// What is sound beside them.
const SOUND: [&str; 9] = ["a", "a/b", "a/b/d", "p1", "p1/x", "p1/x/in", "o", "twice", "self"];

/// Whether directories have an index, or lie in their inodes, makes no difference.
const FEATURES: [&str; 2] = ["^inline_data", "inline_data"];

const UNCLEAN: i32 = rustix::io::Errno::UCLEAN.raw_os_error();

fn graph(features: &str) -> Image {
    let image = Mke2fs::new("ext4", 8).block_bytes(1024).features(features).make().unwrap();
    let made = ["a", "a/b", "a/b/d", "p1", "p1/x", "p1/x/in", "o", "twice", "self"]
        .map(|dir| format!("mkdir {dir}"));
    let linked = ["ln a a/b/up", "ln p1/x o/second", "ln twice twice2", "ln self self/self", "ln <2> o/root"];
    let commands: Vec<&str> = made.iter().map(String::as_str).chain(linked).collect();
    image.debugfs_write(&commands).unwrap();
    image
}

fn open(image: &Image, writable: bool) -> (Arc<Ext4>, Arc<Vfs>) {
    let access = if writable { Access::ReadWrite } else { Access::ReadOnly };
    let device: Device = Arc::new(MemoryDevice::from_bytes(fs::read(image.path()).unwrap(), access));
    let fs = if writable {
        Ext4::open(device, OpenOptions::default(), WriteOptions::default()).unwrap()
    } else {
        Ext4::open_read_only(device, OpenOptions::default()).unwrap()
    };
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
    (fs, vfs)
}

fn find(vfs: &Vfs, path: &str) -> Result<Arc<undercroft_vfs::Node>, Error> {
    vfs.resolve(&Credentials::root(), path.as_bytes(), Follow::NoFollow)
}

/// Ends the process, and so the test, if `work` does not end.
fn in_time<T>(work: impl FnOnce() -> T) -> T {
    let (done, watchdog) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if watchdog.recv_timeout(HANG) == Err(mpsc::RecvTimeoutError::Timeout) {
                // Past the test's own output, which is lost with the process.
                let _ = writeln!(io::stderr(), "it did not end within {HANG:?}");
                std::process::abort();
            }
        });
        let outcome = work();
        drop(done);
        outcome
    })
}

#[test]
fn entries_to_misplaced_directories_are_refused() {
    for features in FEATURES {
        let image = graph(features);
        for writable in [false, true] {
            let (fs, vfs) = open(&image, writable);
            // The wrong ones first, so that no other look-up has shown what is right.
            for path in WRONG.into_iter().filter(|path| *path != "twice2").chain(SOUND).chain(["twice2"]) {
                let found = find(&vfs, path);
                let is_wrong = WRONG.contains(&path);
                let as_expected = match &found {
                    Ok(_) => !is_wrong,
                    Err(Error::Corrupt(corruption)) => is_wrong && corruption.ino.is_some(),
                    Err(_) => false,
                };
                assert!(as_expected, "{features}, writable {writable}, {path}: {:?}", found.err());
            }
            let refusal = find(&vfs, "a/b/up").unwrap_err().to_string();
            assert!(
                refusal.contains("\"up\" leads to directory 12, whose \"..\" leads to inode 2"),
                "{refusal}"
            );
            drop(vfs);
            if writable {
                fs.close().unwrap();
            }
        }
    }
}

#[test]
fn walks_go_round_misplaced_directories() {
    for features in FEATURES {
        let image = graph(features);
        let (_, vfs) = open(&image, false);
        let (mut entered, mut refused) = (BTreeSet::new(), BTreeSet::new());
        let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        in_time(|| {
            vfs.walk_sorted(&vfs.root().unwrap(), WalkOptions::default(), &mut |event| {
                match event {
                    WalkEvent::Entry(entry) => drop(entered.insert(text(entry.path()))),
                    WalkEvent::Failure { path, error } => {
                        assert!(matches!(error, Error::Corrupt(_)), "{error}");
                        refused.insert(text(path));
                    }
                }
                WalkFlow::Continue
            });
        });
        assert_eq!(refused, WRONG.iter().map(|path| (*path).to_owned()).collect(), "{features}");
        assert!(SOUND.iter().all(|path| entered.contains(*path)), "{features}: {entered:?}");
        assert!(!entered.contains("a/b/up/b") && !entered.contains("o/root/a"), "{features}: {entered:?}");
    }
}

/// What moves takes its place along, and what is removed leaves none.
#[test]
fn directories_keep_their_place_through_moves() {
    for features in FEATURES {
        let image = graph(features);
        let (fs, vfs) = open(&image, true);
        let caller = Credentials::root();
        let dir = |path: &str| find(&vfs, path).unwrap();
        let rename = |from: (&str, &str), to: (&str, &str), flags| {
            vfs.rename(&caller, (&dir(from.0), from.1.as_bytes()), (&dir(to.0), to.1.as_bytes()), flags)
        };
        rename(("/a/b", "d"), ("/p1", "moved"), RenameFlags::empty()).unwrap();
        rename(("/p1", "moved"), ("/p1", "named"), RenameFlags::empty()).unwrap();
        rename(("/p1", "x"), ("/a", "b"), RenameFlags::EXCHANGE).unwrap();
        for path in ["p1/named", "a/b/in", "p1/x"] {
            dir(path);
        }
        // It is known under its own name, so the other one is wrong, before and after it is gone.
        dir("twice");
        vfs.rmdir(&caller, &vfs.root().unwrap(), b"twice").unwrap();
        drop(vfs);
        fs.close().unwrap();
    }
}

#[test]
fn a_directory_with_two_names_is_removed_once_and_no_operation_spins() {
    for features in FEATURES {
        let image = graph(features);
        let (fs, vfs) = open(&image, true);
        let (caller, root) = (Credentials::root(), vfs.root().unwrap());
        let held = find(&vfs, "twice").unwrap();
        in_time(|| {
            vfs.rmdir(&caller, &root, b"twice").unwrap();
            let again = vfs.rmdir(&caller, &root, b"twice2").unwrap_err();
            assert!(matches!(again, Error::Corrupt(_)), "{features}: {again}");
            let onto =
                vfs.rename(&caller, (&root, b"o"), (&root, b"twice2"), RenameFlags::empty()).unwrap_err();
            assert!(matches!(onto, Error::Corrupt(_)), "{features}: {onto}");
            let holder = find(&vfs, "self").unwrap();
            let other = find(&vfs, "p1/x").unwrap();
            let p1 = find(&vfs, "p1").unwrap();
            let onto_itself =
                vfs.rename(&caller, (&p1, b"x"), (&holder, b"self"), RenameFlags::empty()).unwrap_err();
            assert!(matches!(onto_itself, Error::Corrupt(_)), "{features}: {onto_itself}");
            drop((holder, other));
        });
        drop((held, root, vfs));
        fs.close().unwrap();
    }
}

struct Mount {
    mounted: Mounted,
    point: Scratch,
}

fn mounted(image: &Image, writable: bool, io_uring: bool) -> Mount {
    let (_, vfs) = open(image, writable);
    let point = Scratch::new("graph").unwrap();
    let options = MountOptions { read_only: !writable, io_uring, ..MountOptions::default() };
    Mount { mounted: mount(vfs, point.path(), options).unwrap(), point }
}

fn error_of(path: &Path) -> Option<i32> {
    fs::symlink_metadata(path).err().map(|error| error.raw_os_error().unwrap())
}

#[test]
fn a_mount_lists_misplaced_directories_by_name_and_looks_none_up() {
    let image = graph("^inline_data");
    for (writable, io_uring) in [(false, false), (false, true), (true, false), (true, true)] {
        in_time(|| {
            let mount = mounted(&image, writable, io_uring);
            let root = mount.point.path();
            let what = format!("writable {writable}, io_uring {io_uring}");
            let listed = Command::new("ls").arg("-lR").arg(root).env("LC_ALL", "C").output().unwrap();
            assert_eq!(listed.status.code(), Some(1), "{what}: {listed:?}");
            // Of two names in one directory, the first that was listed is right.
            let twice = ["twice", "twice2"].map(|path| error_of(&root.join(path)));
            assert!(twice == [None, Some(UNCLEAN)] || twice == [Some(UNCLEAN), None], "{what}: {twice:?}");
            let is_one_of_two = |path: &&str| !path.starts_with("twice");
            for path in WRONG.into_iter().filter(is_one_of_two) {
                assert_eq!(error_of(&root.join(path)), Some(UNCLEAN), "{what}: {path}");
                let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
                let names: Vec<_> =
                    fs::read_dir(root.join(dir)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
                assert!(names.iter().any(|listed| listed == name), "{what}: {dir} lists {names:?}");
            }
            for path in SOUND.into_iter().filter(is_one_of_two) {
                let attr = fs::symlink_metadata(root.join(path)).unwrap();
                assert!(attr.is_dir() && attr.ino() > 0, "{what}: {path}");
            }
            if writable {
                fs::create_dir(root.join("o/new")).unwrap();
                fs::rename(root.join("o/new"), root.join("a/b/new")).unwrap();
                assert_eq!(error_of(&root.join("a/b/new")), None);
                fs::remove_dir(root.join("a/b/new")).unwrap();
            }
            unmount_when_idle(|| mount.mounted.unmount()).unwrap();
        });
    }
}
