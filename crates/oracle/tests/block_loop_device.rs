//! What a file device adds to the contract on block devices, for which Linux's loop devices stand. Needs root.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;

use tempfile::{NamedTempFile, TempDir};
use undercroft_block::{
    Access, BlockDevice, ClaimedDevice, FileDevice, FileOptions, InUse, Locking, OpenError,
};

const MIB: u64 = 1024 * 1024;

fn image(size: u64) -> NamedTempFile {
    let file = NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.as_file().set_len(size).unwrap();
    file
}

fn open_error(path: &Path, options: FileOptions) -> OpenError {
    FileDevice::open(path, options).expect_err("must not open")
}

/// A loop device on a file, gone when dropped.
struct Loop {
    path: String,
}

impl Loop {
    fn new(file: &Path, sector_bytes: u32) -> Self {
        let output = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &sector_bytes.to_string()])
            .arg(file)
            .output()
            .unwrap();
        assert!(output.status.success(), "losetup (needs root): {}", String::from_utf8_lossy(&output.stderr));
        Self { path: String::from_utf8(output.stdout).unwrap().trim().to_owned() }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        Command::new("losetup").args(["--detach", &self.path]).status().unwrap();
    }
}

#[test]
fn a_block_device_tells_its_size_and_sectors() {
    for sector_bytes in [512, 4096] {
        let file = image(MIB);
        let device = Loop::new(file.path(), sector_bytes);
        for direct in [false, true] {
            let options = FileOptions { direct, ..FileOptions::read_write() };
            let device = FileDevice::open(&device.path, options).unwrap();
            assert_eq!(device.size_bytes(), MIB);
            assert_eq!(device.topology().logical_block_bytes, sector_bytes);
            assert!(device.topology().minimum_io_bytes >= sector_bytes);
            device.write_at(5, b"not aligned").unwrap();
            device.write_at(MIB - 11, b"not aligned").unwrap();
            device.write_zeroes(7, 100_000).unwrap();
            device.discard(200_000, 300_000).unwrap();
            device.flush().unwrap();
            let mut buf = [9; 12];
            device.read_at(0, &mut buf).unwrap();
            assert_eq!(&buf, b"\0\0\0\0\0no\0\0\0\0\0");
            let mut buf = [0; 11];
            device.read_at(MIB - 11, &mut buf).unwrap();
            assert_eq!(&buf, b"not aligned");
        }
    }
}

/// Whether a thread of this process sleeps.
fn sleeps(thread: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
}

#[test]
fn a_block_device_is_waited_for_while_udev_looks_at_it() {
    let file = image(MIB);
    let device = Loop::new(file.path(), 512);
    // It says that it has the lock, and keeps it until its input ends.
    let mut holder = Command::new("flock")
        .args(["--shared", &device.path, "sh", "-c", "echo held; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "held\n");
    let (number, numbered) = channel();
    let path = device.path.clone();
    let opener = thread::spawn(move || {
        number.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        FileDevice::open(path, FileOptions::read_write())
    });
    let opening = numbered.recv().unwrap();
    while !opener.is_finished() && !sleeps(opening) {
        thread::yield_now();
    }
    drop(holder.stdin.take());
    opener.join().unwrap().unwrap();
    // `read` found no line.
    assert_eq!(holder.wait().unwrap().code(), Some(1));
}

#[test]
fn a_block_device_that_the_kernel_has_mounted_is_not_opened_for_writing() {
    let file = image(8 * MIB);
    assert!(Command::new("mke2fs").args(["-q", "-F"]).arg(file.path()).status().unwrap().success());
    let device = Loop::new(file.path(), 512);
    let point = TempDir::new().unwrap();
    assert!(Command::new("mount").arg(&device.path).arg(point.path()).status().unwrap().success());
    let written = FileDevice::open(&device.path, FileOptions::read_write());
    let read =
        FileDevice::open(&device.path, FileOptions { locking: Locking::None, ..FileOptions::read_only() });
    assert!(Command::new("umount").arg(point.path()).status().unwrap().success());
    let refusal = written.unwrap_err();
    assert!(matches!(refusal, OpenError::InUse { wanted: Access::ReadWrite, .. }), "{refusal}");
    let point = point.path().display().to_string();
    assert!(refusal.to_string().contains(&format!("mounted on {point}")), "{refusal}");
    assert_eq!(read.unwrap().size_bytes(), 8 * MIB);
}

/// A tmpfs of one MiB, gone when dropped.
struct Tiny(TempDir);

impl Tiny {
    fn new() -> Self {
        let point = TempDir::new().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(point.path());
        assert!(mount.status().unwrap().success(), "mount (needs root)");
        Self(point)
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        Command::new("umount").arg("--lazy").arg(self.0.path()).status().unwrap();
    }
}

/// The disk has no room for what the kernel's cache took. The kernel tells that to one fsync, and lets the next succeed.
#[test]
fn a_write_back_error_that_the_kernel_tells_once_fails_every_later_flush() {
    let tiny = Tiny::new();
    let backing = tiny.0.path().join("disk");
    fs::File::create(&backing).unwrap().set_len(16 * MIB).unwrap();
    let disk = Loop::new(&backing, 512);
    let device = FileDevice::open(&disk.path, FileOptions::read_write()).unwrap();
    device.write_at(0, b"room for this").unwrap();
    device.flush().unwrap();
    device.write_at(MIB, &vec![7; 4 << 20]).unwrap();
    let first = device.flush().unwrap_err().to_string();
    for _ in 0..3 {
        device.write_at(0, b"and for this").unwrap();
        let later = device.flush().unwrap_err().to_string();
        assert!(later.contains("earlier flush failed") && later.contains(&first), "{later}");
    }
}

/// A mount of the caller's own takes the kernel's claim, and other writers are kept out as before.
#[test]
fn a_claim_is_shared_with_a_mount_of_the_callers_own() {
    let file = image(8 * MIB);
    assert!(Command::new("mke2fs").args(["-q", "-F"]).arg(file.path()).status().unwrap().success());
    let device = Loop::new(file.path(), 512);
    let point = TempDir::new().unwrap();
    let mount =
        || Command::new("mount").arg(&device.path).arg(point.path()).output().unwrap().status.success();
    let opened = FileDevice::open(&device.path, FileOptions::read_write()).unwrap();
    assert!(!mount(), "the kernel mounted what we have claimed");
    opened.share_claim();
    let is_mounted = mount();
    let second = FileDevice::open(&device.path, FileOptions::read_write());
    // The kernel refuses both while another has the claim, which is no failure.
    let zeroed = opened.write_zeroes(4 * MIB, MIB).and_then(|()| opened.discard(4 * MIB, MIB));
    assert!(Command::new("umount").arg(point.path()).status().unwrap().success());
    assert!(is_mounted && second.is_err());
    zeroed.unwrap();
}

/// The caller is warned of what an override writes to, and of content that changes under a reader.
#[test]
fn opening_what_is_in_use_gives_a_warning() {
    use std::sync::atomic::{AtomicU32, Ordering};
    static TOLD: AtomicU32 = AtomicU32::new(0);
    let told = |options: FileOptions, path: &Path| {
        let before = TOLD.load(Ordering::Relaxed);
        let on_use = |found: &InUse<'_>| {
            assert!(found.to_string().contains("is in use"), "{found}");
            TOLD.fetch_add(1, Ordering::Relaxed);
        };
        FileDevice::open(path, FileOptions { on_use, ..options }).unwrap();
        TOLD.load(Ordering::Relaxed) - before
    };
    let file = image(8 * MIB);
    let unlocked = |options| FileOptions { locking: Locking::None, ..options };
    for options in [FileOptions::read_only(), FileOptions::read_write(), unlocked(FileOptions::read_write())]
    {
        assert_eq!(told(options, file.path()), 0);
    }
    let device = Loop::new(file.path(), 512);
    assert_eq!(told(FileOptions::read_only(), file.path()), 0);
    assert_eq!(told(unlocked(FileOptions::read_write()), file.path()), 1);
    drop(device);
    let writer = FileDevice::open(file.path(), FileOptions::read_write()).unwrap();
    assert_eq!(told(unlocked(FileOptions::read_only()), file.path()), 1);
    let second = open_error(file.path(), unlocked(FileOptions::read_write()));
    assert!(second.to_string().contains("this program has it open for writing already"), "{second}");
    drop(writer);
}
