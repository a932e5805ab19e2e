//! Requests over io_uring, where the kernel has that: they are answered as those over the device are, by threads that
//! are there for nothing else. Alone in its process, whose threads it counts. Needs root.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use undercroft_fuse::{MountOptions, Mounted, mount};
use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::{Vfs, VfsOptions};

/// Whether the kernel offers it to servers that ask for it; others notice nothing.
const OFFERED: &str = "/sys/module/fuse/parameters/enable_uring";

/// A tmpfs, served by this process.
fn serve(dir: &Path, options: &str) -> Mounted {
    let vfs = Vfs::new(Tmpfs::new(&TmpfsOptions::default()).unwrap(), VfsOptions::default());
    mount(vfs, dir, MountOptions::parse(&format!("rw,{options}")).unwrap()).unwrap()
}

/// How many threads of this process serve queues.
fn ring_threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path().join("comm"));
    // One that ends meanwhile has no name any more.
    tasks
        .filter_map(|name| fs::read_to_string(name).ok())
        .filter(|name| name.starts_with("fuse-cpu-"))
        .count()
}

/// Requests of every form: with a structure, names, both, or content, and replies of every length.
fn work(root: &Path) {
    let dir = root.join("directory");
    fs::create_dir(&dir).unwrap();
    let content: Vec<u8> = (0..5_000_001_u32).map(|at| (at / 3) as u8).collect();
    let mut file = File::create_new(dir.join("file")).unwrap();
    file.write_all(&content).unwrap();
    file.sync_all().unwrap();
    drop(file);
    symlink("directory/file", root.join("link")).unwrap();
    fs::rename(dir.join("file"), root.join("moved")).unwrap();
    fs::hard_link(root.join("moved"), dir.join("file")).unwrap();
    rustix::fs::setxattr(root.join("moved"), "user.a", &[7; 60_000], rustix::fs::XattrFlags::empty())
        .unwrap();
    let mut value = vec![0; 65_536];
    let len = rustix::fs::getxattr(root.join("link"), "user.a", &mut value).unwrap();
    assert_eq!(value[..len], [7; 60_000]);
    {
        let mut file = File::options().read(true).write(true).open(root.join("link")).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        assert_eq!(read, content);
        file.set_len(4_999_999).unwrap();
        file.set_len(5_000_001).unwrap();
        file.seek(SeekFrom::Start(4_999_998)).unwrap();
        let mut end = [9; 3];
        file.read_exact(&mut end).unwrap();
        assert_eq!(end, [content[4_999_998], 0, 0]);
    }
    for index in 0..2_000 {
        File::create_new(dir.join(format!("{index}"))).unwrap();
    }
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 2_001);
    assert_eq!(fs::create_dir(&dir).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read(root.join("nothing")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    fs::remove_dir_all(&dir).unwrap();
    assert_eq!(fs::read_dir(root).unwrap().count(), 2);
}

/// What the kernel forgets is released soon, though no caller waits for it: two names are left of the work.
fn forgets(mounted: &Mounted) -> bool {
    let end = Instant::now() + Duration::from_secs(20);
    while mounted.inodes_in_kernel() > 2 && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    mounted.inodes_in_kernel() <= 2
}

#[test]
fn requests_over_io_uring_are_answered_as_others_are() {
    let dir = tempfile::tempdir().unwrap();
    let mounted = serve(dir.path(), "no_io_uring");
    work(dir.path());
    assert!(forgets(&mounted));
    assert_eq!(ring_threads(), 0);
    drop(mounted);
    if !Path::new(OFFERED).exists() {
        // Linux has it since 6.14. Without it there is nothing to compare.
        eprintln!("this kernel has no FUSE over io_uring");
        return;
    }
    let before = fs::read_to_string(OFFERED).unwrap();
    fs::write(OFFERED, "1").unwrap();
    let mounted = serve(dir.path(), "");
    fs::write(OFFERED, before).unwrap();
    work(dir.path());
    assert!(forgets(&mounted));
    assert!(ring_threads() >= 2);
    thread::scope(|scope| {
        for name in ["one", "two", "three", "four"] {
            let dir = dir.path().join(name);
            fs::create_dir(&dir).unwrap();
            scope.spawn(move || work(&dir));
        }
    });
    drop(mounted);
    assert_eq!(ring_threads(), 0);
}
