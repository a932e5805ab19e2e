//! What a file device adds to the contract: how it is opened, which other users exclude it, and what becomes of space.
//! Block devices have tests of their own in `crates/oracle/tests/block_loop_device.rs`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, FlockOperation, Mode};
use tempfile::{NamedTempFile, TempDir};
use undercroft_block::{Access, BlockDevice, Error, FileDevice, FileOptions, Locking, OpenError, Request};

const MIB: u64 = 1024 * 1024;

fn image(size: u64) -> NamedTempFile {
    let file = NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.as_file().set_len(size).unwrap();
    file
}

fn open_error(path: &Path, options: FileOptions) -> OpenError {
    FileDevice::open(path, options).expect_err("must not open")
}

#[test]
fn what_is_no_device_is_refused_by_kind() {
    let dir = TempDir::new().unwrap();
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    for (path, kind) in
        [(dir.path(), "directory"), (Path::new("/dev/zero"), "character device"), (&pipe, "pipe")]
    {
        let error = open_error(path, FileOptions::read_only());
        assert!(matches!(error, OpenError::NotADevice { kind: k, .. } if k == kind), "{error}");
    }
    let error = open_error(&dir.path().join("missing"), FileOptions::read_only());
    assert!(error.to_string().starts_with("cannot open"), "{error}");
}

#[test]
fn writers_are_exclusive_and_readers_share() {
    let file = image(MIB);
    let path = file.path();
    let in_use = |options, wanted: Access| {
        let error = open_error(path, options);
        assert!(matches!(error, OpenError::InUse { wanted: w, .. } if w == wanted), "{error}");
        error.to_string()
    };
    let writer = FileDevice::open(path, FileOptions::read_write()).unwrap();
    assert!(in_use(FileOptions::read_write(), Access::ReadWrite).contains("two writers would destroy"));
    assert!(in_use(FileOptions::read_only(), Access::ReadOnly).contains("open without locking"));
    FileDevice::open(path, FileOptions { locking: Locking::None, ..FileOptions::read_only() }).unwrap();
    drop(writer);

    let reader = FileDevice::open(path, FileOptions::read_only()).unwrap();
    let second = FileDevice::open(path, FileOptions::read_only()).unwrap();
    in_use(FileOptions::read_write(), Access::ReadWrite);
    drop((reader, second));
    FileDevice::open(path, FileOptions::read_write()).unwrap();
}

#[test]
fn other_programs_see_the_lock() {
    let file = image(MIB);
    // Locks of this kind belong to an open file, not to a process.
    let try_lock = || {
        let other = fs::File::open(file.path()).unwrap();
        rustix::fs::flock(&other, FlockOperation::NonBlockingLockShared).is_ok()
    };
    let writer = FileDevice::open(file.path(), FileOptions::read_write()).unwrap();
    assert!(!try_lock());
    drop(writer);
    assert!(try_lock());
}

#[test]
fn discards_and_zeroes_give_space_back_and_keep_the_size() {
    let file = image(8 * MIB);
    let device = FileDevice::open(file.path(), FileOptions::read_write()).unwrap();
    let blocks = || fs::metadata(file.path()).unwrap().blocks() * 512;
    device.write_at(0, &vec![1; 8 * MIB as usize]).unwrap();
    device.flush().unwrap();
    assert!(blocks() >= 8 * MIB);
    device.discard(100, 8 * MIB - 200).unwrap();
    assert!(blocks() <= MIB, "{} bytes left", blocks());
    device.write_zeroes(0, 8 * MIB).unwrap();
    let mut buf = vec![1; 8 * MIB as usize];
    device.read_at(0, &mut buf).unwrap();
    assert!(buf.iter().all(|&byte| byte == 0));
    assert_eq!(fs::metadata(file.path()).unwrap().len(), 8 * MIB);
}

#[test]
fn the_size_follows_a_file_when_it_is_looked_at_again() {
    let file = image(MIB);
    let device = FileDevice::open(file.path(), FileOptions::read_only()).unwrap();
    for size in [3 * MIB, 2 * MIB] {
        let before = device.size_bytes();
        file.as_file().set_len(size).unwrap();
        assert_eq!(device.size_bytes(), before);
        assert_eq!((device.refresh_size().unwrap(), device.size_bytes()), (size, size));
    }
}

#[test]
fn a_file_that_shrank_reports_an_early_end() {
    for io_uring in [true, false] {
        for direct in [true, false] {
            let file = image(MIB);
            let options = FileOptions { io_uring, direct, ..FileOptions::read_only() };
            let device = FileDevice::open(file.path(), options).unwrap();
            file.as_file().set_len(1000).unwrap();
            let mut bufs = [[1; 600]; 2];
            let [first, second] = &mut bufs;
            device.read_at(0, first).unwrap();
            let single = device.read_at(700, second);
            let batch = device.run_batch(&mut [
                Request::Read { offset: 300, buf: first },
                Request::Read { offset: 700, buf: second },
            ]);
            for result in [single, batch] {
                match result {
                    Err(Error::Io { offset: 700, len: 600, source, .. }) => {
                        assert_eq!(source.kind(), std::io::ErrorKind::UnexpectedEof);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

#[test]
fn direct_reads_reach_an_odd_end_and_direct_writes_refuse_one() {
    let file = image(10_000);
    std::os::unix::fs::FileExt::write_all_at(file.as_file(), b"the end", 9993).unwrap();
    let direct = FileOptions { direct: true, ..FileOptions::read_only() };
    let device = FileDevice::open(file.path(), direct).unwrap();
    let mut buf = [0; 7];
    device.read_at(9993, &mut buf).unwrap();
    assert_eq!(&buf, b"the end");
    let mut all = vec![1; 10_000];
    device.read_at(0, &mut all).unwrap();
    assert_eq!((all[0], &all[9993..]), (0, &b"the end"[..]));
    drop(device);
    let error = open_error(file.path(), FileOptions { direct: true, ..FileOptions::read_write() });
    assert!(matches!(error, OpenError::DirectSize { size: 10_000, .. }), "{error}");
}

#[test]
fn io_uring_is_used_where_asked_for() {
    let file = image(MIB);
    for io_uring in [true, false] {
        let options = FileOptions { io_uring, ..FileOptions::read_only() };
        let device = FileDevice::open(file.path(), options).unwrap();
        let (mut left, mut right) = ([1; 100], [1; 100]);
        device
            .run_batch(&mut [
                Request::Read { offset: 0, buf: &mut left },
                Request::Read { offset: 5000, buf: &mut right },
            ])
            .unwrap();
        assert_eq!((left, right), ([0; 100], [0; 100]));
        assert_eq!(device.uses_io_uring(), io_uring);
    }
}
