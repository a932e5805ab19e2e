//! Bytes: writing, cutting, space, copies.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, FallocateFlags, OFlags};
use rustix::io::Errno;

use crate::both::{Answers, Ours, same_answers, same_answers_with};
use crate::support::until;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn size_and_blocks(file: &File) -> (u64, u64) {
    file.sync_all().unwrap();
    let found = file.metadata().unwrap();
    (found.len(), found.blocks())
}

/// A byte that tells where it is.
fn byte(at: usize) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)) as u8
}

#[test]
fn what_is_written_is_read() {
    same_answers(|dir, answers| {
        let content: Vec<u8> = (0..3_000_001).map(byte).collect();
        fs::write(dir.join("file"), &content).unwrap();
        assert!(fs::read(dir.join("file")).unwrap() == content);
        let file = open(&dir.join("file"));
        answers.note("in the middle", file.write_at(b"middle", 1_000_000));
        answers.note("past the end", file.write_at(b"far", 4_000_000));
        let mut bytes = [9; 12];
        answers.note("read", file.read_at(&mut bytes, 999_997));
        answers.tell("bytes", bytes);
        answers.note("between", file.read_at(&mut bytes, 3_500_000));
        answers.tell("zeroes", bytes);
        answers.note("at the end", file.read_at(&mut bytes, 3_999_998));
        answers.tell("end", bytes);
        answers.tell("size", file.metadata().unwrap().len());
        let again = File::open(dir.join("file")).unwrap();
        answers.tell("seen by others", again.metadata().unwrap().len());
    });
}

#[test]
fn appending_goes_to_the_end() {
    same_answers(|dir, answers| {
        let path = dir.join("log");
        let lines: Vec<String> = (0..4).map(|thread| format!("line of {thread}\n")).collect();
        thread::scope(|scope| {
            for line in &lines {
                scope.spawn(|| {
                    let mut log = OpenOptions::new().append(true).create(true).open(&path).unwrap();
                    for _ in 0..100 {
                        log.write_all(line.as_bytes()).unwrap();
                    }
                });
            }
        });
        let content = fs::read_to_string(&path).unwrap();
        answers.tell("size", content.len());
        for line in &lines {
            answers.tell(line, content.matches(line).count());
        }
    });
}

#[test]
fn files_are_cut_and_grown() {
    same_answers(|dir, answers| {
        let path = dir.join("file");
        fs::write(&path, [b'x'; 10_000]).unwrap();
        let file = open(&path);
        answers.note("cut", file.set_len(5_000));
        answers.note("grown", file.set_len(9_000));
        let mut bytes = [7; 20];
        answers.note("read", file.read_at(&mut bytes, 4_990));
        answers.tell("bytes", bytes);
        answers.call("by path", rustix::fs::ftruncate(open(&path), 123));
        answers.tell("size", fs::metadata(&path).unwrap().len());
        answers.note("truncated when opened", File::create(&path).map(|file| file.metadata().unwrap().len()));
        answers.note("too large", file.set_len(i64::MAX as u64));
        answers.tell("size", file.metadata().unwrap().len());
        answers.note("a directory", OpenOptions::new().write(true).open(dir).map(drop));
    });
}

#[test]
fn space_is_reserved_and_given_back() {
    same_answers(|dir, answers| {
        let file = open(&dir.join("file"));
        let allocate = |answers: &mut Answers, what: &str, flags: FallocateFlags, at: u64, len: u64| {
            answers.call(what, rustix::fs::fallocate(&file, flags, at, len));
            answers.tell(what, size_and_blocks(&file));
        };
        allocate(answers, "reserved", FallocateFlags::empty(), 0, 100_000);
        allocate(answers, "beyond the end", FallocateFlags::KEEP_SIZE, 200_000, 4096);
        file.write_all_at(&[b'x'; 50_000], 0).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        allocate(answers, "punched", punch, 8192, 20_000);
        let mut bytes = vec![0; 50_000];
        file.read_exact_at(&mut bytes, 0).unwrap();
        answers.tell("holes", bytes.iter().filter(|byte| **byte == 0).count());
        answers.call(
            "without keeping the size",
            rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE, 0, 10),
        );
        answers.call("collapse", rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096));
        answers.call("too much", rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 1 << 30));
    });
}

#[test]
fn a_full_filesystem_says_so() {
    let ours = Ours::new("no_writeback_cache");
    let mut file = File::create(ours.path("file")).unwrap();
    let piece = vec![1; 1 << 20];
    let error = (0..100).find_map(|_| file.write_all(&piece).err()).unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(file.metadata().unwrap().len(), 64 << 20);
    drop(file);
    fs::remove_file(ours.path("file")).unwrap();
    let empty = || {
        let space = rustix::fs::statvfs(ours.root()).unwrap();
        space.f_bfree == space.f_blocks
    };
    // The kernel gives inodes back when it is done, which is after the removal has returned.
    assert!(until(Duration::from_secs(10), empty));
    fs::write(ours.path("file"), piece).unwrap();
}

#[test]
fn data_and_holes_are_found_at_once() {
    same_answers_with(&["no_writeback_cache", "direct_io,no_writeback_cache"], |dir, answers| {
        let file = open(&dir.join("file"));
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[b'x'; 8192], 1 << 19).unwrap();
        for (what, seek) in [
            ("first data", rustix::fs::SeekFrom::Data(0)),
            ("hole after it", rustix::fs::SeekFrom::Hole(1 << 19)),
            ("hole", rustix::fs::SeekFrom::Hole(0)),
            ("no more data", rustix::fs::SeekFrom::Data((1 << 19) + 8192)),
            ("past the end", rustix::fs::SeekFrom::Data(1 << 21)),
        ] {
            answers.call(what, rustix::fs::seek(&file, seek));
        }
    });
}

/// What a program has just written is in the kernel's cache and nowhere else, so the server cannot know what is
/// data: a copy that leaves holes out would lose it.
#[test]
fn what_is_only_cached_is_no_hole() {
    let ours = Ours::new("");
    let file = open(&ours.path("file"));
    file.set_len(1 << 20).unwrap();
    file.write_all_at(&[b'x'; 8192], 1 << 19).unwrap();
    for at in [0, 1 << 19, (1 << 20) - 1] {
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)), Ok(at));
    }
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)), Ok(1 << 20));
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(1 << 20)), Err(Errno::NXIO));
}

#[test]
fn ranges_are_copied_between_files() {
    same_answers(|dir, answers| {
        let content: Vec<u8> = (0..300_000).map(byte).collect();
        fs::write(dir.join("from"), &content).unwrap();
        let (from, to) = (open(&dir.join("from")), open(&dir.join("to")));
        let (mut at, mut to_at) = (1000, 5000);
        let copied = rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut to_at), 250_000);
        answers.call("copied", copied);
        let copy = fs::read(dir.join("to")).unwrap();
        assert!(copy[..5000].iter().all(|byte| *byte == 0) && copy[5000..] == content[1000..251_000]);
        let (mut at, mut to_at) = (290_000, 0);
        answers.call(
            "to the end",
            rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut to_at), 250_000),
        );
        answers.tell("size", fs::metadata(dir.join("to")).unwrap().len());
        answers.note("by the library", fs::copy(dir.join("from"), dir.join("whole")));
        assert!(fs::read(dir.join("whole")).unwrap() == content);
    });
}

#[test]
fn unlinked_files_live_until_they_are_closed() {
    let ours = Ours::new("");
    let free = || rustix::fs::statvfs(ours.root()).unwrap();
    let before = free();
    let mut file = open(&ours.path("file"));
    file.write_all(&vec![b'x'; 10 << 20]).unwrap();
    file.sync_all().unwrap();
    fs::remove_file(ours.path("file")).unwrap();
    let mut other = open(&ours.path("other"));
    other.write_all(b"other").unwrap();
    open(&ours.path("new")).write_all(b"new").unwrap();
    fs::rename(ours.path("new"), ours.path("other")).unwrap();
    assert_eq!((file.metadata().unwrap().nlink(), other.metadata().unwrap().nlink()), (0, 0));
    file.write_all(b"more").unwrap();
    file.seek(SeekFrom::Start((10 << 20) - 1)).unwrap();
    let mut end = Vec::new();
    file.read_to_end(&mut end).unwrap();
    assert_eq!(end, b"xmore");
    other.rewind().unwrap();
    other.read_to_end(&mut end).unwrap();
    assert_eq!(end, b"xmoreother");
    assert!(free().f_bfree + (10 << 20) / 4096 <= before.f_bfree);
    drop((file, other));
    fs::remove_file(ours.path("other")).unwrap();
    // The kernel gives inodes back when it is done, which is after the close has returned.
    assert!(until(Duration::from_secs(10), || free().f_bfree == before.f_bfree));
    assert_eq!(free().f_ffree, before.f_ffree);
}

#[test]
fn a_file_without_a_name_gets_one() {
    same_answers(|dir, answers| {
        let unnamed = rustix::fs::open(dir, OFlags::TMPFILE | OFlags::RDWR, 0o640.into());
        let Ok(unnamed) = unnamed else {
            answers.call("unnamed", unnamed);
            return;
        };
        let mut file = File::from(unnamed);
        answers.note("write", file.write_all(b"content"));
        answers.tell("links", file.metadata().unwrap().nlink());
        let place = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
        answers.call("link", rustix::fs::linkat(CWD, place, CWD, dir.join("name"), follow));
        answers.note("read", fs::read(dir.join("name")));
        answers.tell("links", file.metadata().unwrap().nlink());
        let never =
            rustix::fs::open(dir, OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR, 0o640.into()).unwrap();
        let place = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&never));
        answers.call("link never", rustix::fs::linkat(CWD, place, CWD, dir.join("never"), follow));
    });
}

#[test]
fn syncing_succeeds() {
    same_answers(|dir, answers| {
        let file = open(&dir.join("file"));
        file.write_all_at(b"x", 0).unwrap();
        answers.note("everything", file.sync_all());
        answers.note("data", file.sync_data());
        let dir = File::open(dir).unwrap();
        answers.note("directory", dir.sync_all());
        answers.call("filesystem", rustix::fs::syncfs(&dir));
    });
}

#[test]
fn what_is_written_by_mapping_is_read_by_others() {
    let ours = Ours::new("");
    fs::write(ours.path("file"), vec![0; 8192]).unwrap();
    let program = "import mmap,sys\nf=open(sys.argv[1],'r+b')\nm=mmap.mmap(f.fileno(),0)\nm[4090:4100]=b'0123456789'\nm.flush()\n";
    let status =
        std::process::Command::new("python3").args(["-c", program]).arg(ours.path("file")).status().unwrap();
    assert!(status.success());
    assert_eq!(&fs::read(ours.path("file")).unwrap()[4090..4100], b"0123456789");
}
