//! Space that runs out while the kernel caches writes: no byte is lost without a word.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::both::Ours;
use crate::support::until;

/// Far above what it takes, for a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// The kernel's write cache, over both transports.
const CACHED: [&str; 2] = ["", "no_io_uring"];

fn free_bytes(root: &Path) -> u64 {
    let found = rustix::fs::statvfs(root).unwrap();
    found.f_bavail * found.f_frsize
}

/// Leaves so much space.
fn fill_but(root: &Path, left: u64) {
    let file = File::create(root.join("filler")).unwrap();
    let len = free_bytes(root) - left;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len).unwrap();
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap()
}

fn is_out_of_space<T: std::fmt::Debug>(answer: &io::Result<T>) -> bool {
    answer.as_ref().is_err_and(|error| Errno::from_io_error(error) == Some(Errno::NOSPC))
}

#[test]
fn a_cached_write_that_finds_room_for_a_part_fails_with_fsync_or_before() {
    for options in CACHED {
        for room in [4096, 100_000, 1 << 19] {
            let ours = Ours::new(options);
            fill_but(ours.root(), room);
            let file = open(&ours.path("file"));
            let answer = file.write_all_at(&[7; 1 << 20], 0).and_then(|()| file.sync_all());
            assert!(is_out_of_space(&answer), "{answer:?}, {room} bytes left, with \"{options}\"");
            drop(file);
            fs::remove_file(ours.path("filler")).unwrap();
            // The kernel gives inodes back when it is done, which is after the call has returned.
            assert!(until(Duration::from_secs(20), || free_bytes(ours.root()) > 2 << 20));
            let file = open(&ours.path("file"));
            file.write_all_at(&[7; 1 << 20], 0).unwrap();
            file.sync_all().unwrap();
        }
    }
}

/// Writes pieces of this length until that fails, and returns how many bytes were taken.
fn write_until_full(file: &File, piece: usize) -> u64 {
    let piece = vec![7; piece];
    let mut taken = 0;
    loop {
        match file.write_at(&piece, taken) {
            Ok(len) => taken += len as u64,
            answer => {
                assert!(is_out_of_space(&answer), "{answer:?}");
                return taken;
            }
        }
        assert!(taken < 1 << 30, "much more was taken than there is room for");
    }
}

#[test]
fn write_fails_where_space_ends() {
    for options in CACHED {
        for piece in [100, 4096, 1 << 20] {
            let ours = Ours::new(options);
            fill_but(ours.root(), 24 << 20);
            let file = open(&ours.path("file"));
            let taken = write_until_full(&file, piece);
            let stored = file.metadata().unwrap().blocks() * 512;
            assert_eq!(free_bytes(ours.root()), 0);
            // What is on its way when there is no more room: never more than a quarter of what was free, and next to
            // nothing on a machine that has time.
            let most = stored + (8 << 20);
            assert!((stored..most).contains(&taken), "{taken} taken, {stored} stored, with \"{options}\"");
            assert!(is_out_of_space(&file.write_at(b"more", taken)));
            assert!(is_out_of_space(&file.sync_all()));
            // The kernel may tell the same failure twice: of the file, and of its inode.
            let _ = file.sync_all();
            // What has its place can be changed.
            let other = OpenOptions::new().write(true).open(ours.path("filler")).unwrap();
            other.write_all_at(&[8; 100_000], 0).unwrap();
            other.sync_all().unwrap();
            // A stat does not fail, nor does reading past the end.
            assert_eq!(file.read_at(&mut [0; 10], taken + 4096).unwrap(), 0);
            assert!(file.metadata().unwrap().len() > 0);
            // On from here.
            other.set_len(0).unwrap();
            let len = file.metadata().unwrap().len();
            file.write_all_at(b"there is room again", len).unwrap();
            file.sync_all().unwrap();
            drop(file);
            assert!(fs::read(ours.path("file")).unwrap().ends_with(b"there is room again"));
        }
    }
}

/// A short answer to one of the requests of a direct write is an I/O error to the kernel.
#[test]
fn direct_writes_are_told_that_space_ended() {
    for options in CACHED {
        for piece in ["4K", "192K", "1M"] {
            let ours = Ours::new(options);
            fill_but(ours.root(), (6 << 20) + 8192);
            let of = format!("of={}", ours.path("file").display());
            let args = ["if=/dev/zero", &of, &format!("bs={piece}"), "oflag=direct"];
            let dd = Command::new("dd").args(args).env("LC_ALL", "C").output().unwrap();
            let told = String::from_utf8_lossy(&dd.stderr).into_owned();
            assert!(
                !dd.status.success() && told.contains("No space left on device"),
                "{options} {piece}: {told}"
            );
        }
    }
}

#[test]
fn new_files_take_no_write_where_there_is_no_space() {
    for options in CACHED {
        let ours = Ours::new(options);
        let empty = open(&ours.path("empty"));
        fill_but(ours.root(), 1 << 20);
        write_until_full(&open(&ours.path("file")), 4096);
        drop(empty);
        let empty = OpenOptions::new().read(true).write(true).open(ours.path("empty")).unwrap();
        assert_eq!(empty.read_at(&mut [0; 10], 0).unwrap(), 0);
        assert!(is_out_of_space(&empty.write_at(b"x", 0)), "with \"{options}\"");
        let new = OpenOptions::new().write(true).create_new(true).open(ours.path("new")).unwrap();
        assert_eq!(new.metadata().unwrap().len(), 0);
        assert!(is_out_of_space(&new.write_at(b"x", 0)), "with \"{options}\"");
        OpenOptions::new().write(true).open(ours.path("filler")).unwrap().set_len(0).unwrap();
        for file in [new, empty] {
            file.write_all_at(b"x", 0).unwrap();
            file.sync_all().unwrap();
        }
    }
}

/// Only writing is refused: to files that were made where there was no space, and to one whose cached bytes were lost.
#[test]
fn everything_but_writing_goes_on_where_there_is_no_space() {
    for options in CACHED {
        let ours = Ours::new(options);
        fs::write(ours.path("was there"), "").unwrap();
        fill_but(ours.root(), 1 << 20);
        let full = open(&ours.path("full"));
        write_until_full(&full, 4096);
        let made: Vec<_> = [false, true]
            .map(|read| {
                let name = if read { "for both" } else { "for writing" };
                let how = OpenOptions::new().read(read).write(true).create_new(true).open(ours.path(name));
                (name, how.unwrap())
            })
            .into();
        let names = ["was there", "for writing", "for both", "full"];
        // Each several times, for what one of them brings about is not to be met by the next.
        for round in 0..3 {
            for name in names {
                let (what, path) = (format!("{name}, round {round}, \"{options}\""), ours.path(name));
                let found = fs::metadata(&path).unwrap_or_else(|error| panic!("stat of {what}: {error}"));
                let read = fs::read(&path).unwrap_or_else(|error| panic!("read of {what}: {error}"));
                assert_eq!(read.len() as u64, found.len(), "{what}");
                let mut both = OpenOptions::new().read(true).write(true).open(&path).unwrap();
                let mut found = Vec::new();
                both.read_to_end(&mut found)
                    .unwrap_or_else(|error| panic!("read of {what} by both: {error}"));
                assert_eq!(both.seek(SeekFrom::End(0)).unwrap(), read.len() as u64, "{what}");
                both.metadata().unwrap();
                fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
                both.set_modified(SystemTime::UNIX_EPOCH).unwrap();
                // What was told with these is not believed for longer than a write may take to fail.
                assert!(until(PATIENCE, || is_out_of_space(&both.write_at(b"x", 1 << 24))), "{what}");
            }
        }
        for (name, file) in made {
            assert!(until(PATIENCE, || is_out_of_space(&file.write_at(b"x", 1 << 24))), "{name}");
            fs::rename(ours.path(name), ours.path("moved")).unwrap();
            fs::remove_file(ours.path("moved")).unwrap();
        }
    }
}

/// The kernel forgets an inode after the call that removed its name has returned.
#[test]
fn a_file_finds_the_space_of_the_one_that_was_removed_before() {
    const LEN: usize = 40 << 20;
    for options in CACHED {
        let ours = Ours::new(options);
        for round in 0..60 {
            let file = open(&ours.path("file"));
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, LEN as u64)
                .unwrap_or_else(|error| panic!("round {round} with \"{options}\": {error}"));
            drop(file);
            fs::remove_file(ours.path("file")).unwrap();
        }
        let bytes = vec![7; LEN];
        for round in 0..5 {
            let file = open(&ours.path("file"));
            file.write_all_at(&bytes, 0)
                .and_then(|()| file.sync_all())
                .unwrap_or_else(|error| panic!("round {round} with \"{options}\": {error}"));
            drop(file);
            fs::remove_file(ours.path("file")).unwrap();
        }
    }
}

/// The kernel may still hold the inode when the next program writes, which it asks leave for: to a new file, or to one
/// that found no room before.
#[test]
fn a_cached_write_waits_for_the_space_of_the_one_that_was_removed_before() {
    const LEN: usize = 4 << 20;
    for options in CACHED {
        let ours = Ours::new(options);
        for name in ["new", "full"] {
            fs::write(ours.path(&format!("room for {name}")), vec![7; LEN]).unwrap();
        }
        let full = open(&ours.path("full"));
        write_until_full(&full, 4096);
        assert!(is_out_of_space(&full.sync_all()));
        // The kernel may tell the same failure twice.
        let _ = full.sync_all();
        drop(full);
        for name in ["new", "full"] {
            let room = ours.path(&format!("room for {name}"));
            // No opening that the server is told of.
            let held = rustix::fs::open(&room, OFlags::PATH, Mode::empty()).unwrap();
            fs::remove_file(room).unwrap();
            let written = thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(50));
                    drop(held);
                });
                let mut file = OpenOptions::new().append(true).create(true).open(ours.path(name)).unwrap();
                file.write_all(&vec![8; LEN / 2]).and_then(|()| file.sync_all())
            });
            written.unwrap_or_else(|error| panic!("{name} with \"{options}\": {error}"));
        }
    }
}

#[test]
fn the_free_space_has_what_was_removed_before() {
    for options in CACHED {
        let ours = Ours::new(options);
        let kept = open(&ours.path("kept"));
        rustix::fs::fallocate(&kept, FallocateFlags::empty(), 0, 1 << 20).unwrap();
        fs::remove_file(ours.path("kept")).unwrap();
        // Waited for in vain, once.
        let before = free_bytes(ours.root());
        for round in 0..100 {
            let names = ["one", "two", "three"].map(|name| ours.path(name));
            for name in &names {
                let file = open(name);
                rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
            }
            assert!(free_bytes(ours.root()) <= before - (3 << 20));
            names.iter().for_each(|name| fs::remove_file(name).unwrap());
            assert_eq!(free_bytes(ours.root()), before, "round {round} with \"{options}\"");
        }
    }
}

/// A file without a name that a program keeps open is waited for once, and again when it was closed.
#[test]
fn a_file_that_stays_open_without_a_name_holds_up_one_request_only() {
    for options in CACHED {
        let ours = Ours::new(options);
        let kept = open(&ours.path("kept"));
        rustix::fs::fallocate(&kept, FallocateFlags::empty(), 0, 40 << 20).unwrap();
        fs::remove_file(ours.path("kept")).unwrap();
        let file = open(&ours.path("file"));
        let attempt = || rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 40 << 20);
        assert_eq!(attempt(), Err(Errno::NOSPC));
        let began = Instant::now();
        for _ in 0..50 {
            assert_eq!(attempt(), Err(Errno::NOSPC));
        }
        // Each that waited would wait for 200 ms.
        assert!(began.elapsed() < Duration::from_secs(8), "{:?} with \"{options}\"", began.elapsed());
        drop(kept);
        assert_eq!(attempt(), Ok(()), "with \"{options}\"");
    }
}
