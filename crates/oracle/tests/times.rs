//! Times that a program has seen stay as they were seen: when the kernel has dropped what it had cached, and when the
//! filesystem is mounted anew.
//!
//! The kernel keeps the times of regular files itself where it caches writes, and the server keeps them elsewhere, so
//! both are tried, over both transports.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use undercroft_fuse::{MountOptions, Mounted, mount};
use undercroft_oracle::{How, Image, Make, Mke2fs, MkfsXfs, MountMode, Scratch, unmount_when_idle};
use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::{FileSystem, Vfs, VfsOptions};

/// Ways to mount that differ in where the times are kept, and in how requests come.
const WAYS: [&str; 4] = ["", "no_io_uring", "no_writeback_cache", "no_writeback_cache,no_io_uring"];

/// Makes files and changes them in every way that moves a time, quickly enough for changes to share a tick of the
/// coarse clock.
const WORK: &str = r#"
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
def fallocate(fd, mode, offset, length):
    if libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), 'fallocate')
def make(name, data=b'some bytes' * 500):
    with open(name, 'wb') as f: f.write(data)
def rewrite(name):
    fd = os.open(name, os.O_WRONLY)
    os.pwrite(fd, b'over', 100); os.close(fd)
def twice(name):
    fd = os.open(name, os.O_WRONLY)
    os.pwrite(fd, b'over', 100); os.fsync(fd); os.pwrite(fd, b'again', 200); os.close(fd)
def synced(name):
    fd = os.open(name, os.O_WRONLY | os.O_SYNC)
    for at in range(4): os.pwrite(fd, b'synced', 100 * at)
    os.close(fd)
def direct(name):
    page = mmap.mmap(-1, 4096); page.write(b'd' * 4096)
    fd = os.open(name, os.O_WRONLY | os.O_DIRECT)
    for at in range(4): os.pwrite(fd, page, 4096 * at); os.fsync(fd)
    os.close(fd)
def mapped(name):
    fd = os.open(name, os.O_RDWR)
    map = mmap.mmap(fd, 4096); map[5:9] = b'mmap'; map.flush(); map[9:13] = b'more'; map.close(); os.close(fd)
def append(name):
    with open(name, 'ab') as f: f.write(b'more')
def copy(name):
    source = os.open('source', os.O_RDONLY); fd = os.open(name, os.O_WRONLY)
    os.copy_file_range(source, fd, 3000, 0, 100); os.close(fd); os.close(source)
def opened_to_cut(name):
    os.close(os.open(name, os.O_WRONLY | os.O_TRUNC))
def space(mode, offset, length):
    def change(name):
        fd = os.open(name, os.O_RDWR); fallocate(fd, mode, offset, length); os.close(fd)
    return change
def replace(name):
    make(name + '.new'); os.rename(name + '.new', name)
def exchange(name):
    make(name + '.other')
    if libc.renameat2(-100, name.encode(), -100, (name + '.other').encode(), 2) != 0:
        raise OSError(ctypes.get_errno(), 'renameat2')
def unnamed(name):
    fd = os.open('.', os.O_TMPFILE | os.O_RDWR); os.write(fd, b'x')
    if libc.linkat(-100, b'/proc/self/fd/%d' % fd, -100, (name + '.named').encode(), 0x400) != 0:
        raise OSError(ctypes.get_errno(), 'linkat')
    os.close(fd)
def while_open(name):
    fd = os.open(name, os.O_RDWR); os.pwrite(fd, b'a', 0); os.chmod(name, 0o600)
    os.pwrite(fd, b'b', 0); os.utime(name); os.pwrite(fd, b'c', 0); os.close(fd)
ways = [
    rewrite, twice, synced, direct, mapped, append, copy, opened_to_cut, replace, exchange, unnamed, while_open,
    space(0, 0, 100000), space(1, 0, 100000), space(3, 0, 4096), space(16, 0, 4096),
    lambda name: None,
    lambda name: os.utime(name),
    lambda name: os.utime(name, ns=(10**18 + 7, 10**18 + 9)),
    lambda name: os.utime(name, ns=(-10**17 + 7, -10**17 + 9)),
    lambda name: os.system('touch -a %s' % name),
    lambda name: os.system('touch -m %s' % name),
    lambda name: os.chmod(name, 0o640),
    lambda name: os.chown(name, 5, 6),
    lambda name: os.truncate(name, 100),
    lambda name: os.truncate(name, 100000),
    lambda name: os.truncate(name, 5000),
    lambda name: os.link(name, name + '.link'),
    lambda name: (os.link(name, name + '.gone'), os.unlink(name + '.gone')),
    lambda name: (os.rename(name, name + '.moved'), os.chmod(name + '.moved', 0o604)),
    lambda name: os.setxattr(name, 'user.name', b'value'),
    lambda name: (os.setxattr(name, 'user.name', b'value'), os.removexattr(name, 'user.name')),
    lambda name: (make(name), os.utime(name), rewrite(name), os.chmod(name, 0o644)),
]
make('source')
for round in range(8):
    directory = 'd%d' % round
    os.mkdir(directory); os.chdir(directory); make('source')
    for number, way in enumerate(ways):
        name = 'f%d' % number
        make(name); way(name)
    os.mkdir('empty'); os.mkdir('gone'); os.rmdir('gone'); os.mkdir('dir'); make('dir/file'); os.rename('dir', 'moved')
    os.symlink('target', 'link'); os.symlink('target', 'touched'); os.utime('touched', follow_symlinks=False)
    os.mkfifo('fifo'); os.chmod('fifo', 0o600); os.mknod('socket', 0o140644)
    os.chdir('..')
"#;

/// Every object with its times to the nanosecond. Looking does not change them.
const LOOK: &str = r#"
import os
def tell(path):
    s = os.lstat(path)
    print(path, s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns)
for directory, directories, files in os.walk('.'):
    tell(directory)
    for name in sorted(files): tell(os.path.join(directory, name))
    for name in directories:
        if os.path.islink(os.path.join(directory, name)): tell(os.path.join(directory, name))
    directories.sort()
"#;

fn python(dir: &Path, program: &str) -> Vec<String> {
    let output = Command::new("python3").args(["-c", program]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut lines: Vec<String> =
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn served(fs: Arc<dyn FileSystem>, point: &Path, options: &str) -> Mounted {
    let options = MountOptions::parse(&format!("rw,{options}")).unwrap();
    mount(Vfs::new(fs, VfsOptions::default()), point, options).unwrap()
}

fn open(image: &Image) -> Arc<dyn FileSystem> {
    How::of(image).open_file(image.path()).unwrap()
}

/// The kernel forgets all that it can of every filesystem, this one too.
fn drop_caches(mounted: &Mounted) {
    let began = Instant::now();
    while mounted.inodes_in_kernel() > 10 {
        assert!(began.elapsed() < Duration::from_secs(60), "{} inodes stay", mounted.inodes_in_kernel());
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn assert_same(seen: &[String], found: &[String], when: &str) {
    let differing: Vec<_> = seen.iter().zip(found).filter(|(seen, found)| seen != found).collect();
    let some = &differing[..differing.len().min(12)];
    assert!(
        differing.is_empty() && seen.len() == found.len(),
        "{when}: {} differ: {some:#?}",
        differing.len()
    );
}

fn unmounted(mounted: Mounted) {
    unmount_when_idle(|| mounted.unmount()).unwrap();
    mounted.wait().unwrap();
}

fn times_stay_on(make: &Make) {
    for way in WAYS {
        let image = make.make().unwrap();
        let point = Scratch::new("times").unwrap();
        let mounted = served(open(&image), point.path(), way);
        python(point.path(), WORK);
        let seen = python(point.path(), LOOK);
        assert!(seen.len() > 300);
        drop_caches(&mounted);
        assert_same(&seen, &python(point.path(), LOOK), &format!("\"{way}\", caches dropped"));
        unmounted(mounted);

        let mounted = served(open(&image), point.path(), way);
        assert_same(&seen, &python(point.path(), LOOK), &format!("\"{way}\", mounted anew"));
        unmounted(mounted);
        let by_kernel = image.mount(MountMode::ReadOnly, "").unwrap();
        assert_same(&seen, &python(by_kernel.path(), LOOK), &format!("\"{way}\", mounted by the kernel"));
    }
}

#[test]
fn times_that_were_seen_stay_on_ext4() {
    times_stay_on(&Make::Ext4(Mke2fs::new("ext4", 64)));
}

/// Inodes of 128 bytes have whole seconds, and nothing else is shown while a file is in the kernel's cache.
#[test]
fn times_that_were_seen_stay_where_inodes_have_whole_seconds() {
    times_stay_on(&Make::Ext4(Mke2fs::new("ext4", 64).args(["-I", "128"])));
}

#[test]
fn times_that_were_seen_stay_on_xfs() {
    times_stay_on(&Make::Xfs(MkfsXfs::new(64, "")));
}

/// Seconds and nanoseconds in 32 bits each, instead of one number of 64.
#[test]
fn times_that_were_seen_stay_on_xfs_without_bigtime() {
    times_stay_on(&Make::Xfs(MkfsXfs::new(64, "-m bigtime=0,rmapbt=1")));
}

#[test]
fn times_that_were_seen_stay_in_memory() {
    for way in WAYS {
        let fs = Tmpfs::new(&TmpfsOptions::default()).unwrap();
        let point = Scratch::new("times").unwrap();
        let mounted = served(fs, point.path(), way);
        python(point.path(), WORK);
        let seen = python(point.path(), LOOK);
        drop_caches(&mounted);
        assert_same(&seen, &python(point.path(), LOOK), &format!("\"{way}\", caches dropped"));
        unmounted(mounted);
    }
}

/// `touch` sets three times to one moment, whichever clock it was read from.
#[test]
fn a_touched_file_has_one_time() {
    for way in WAYS {
        let image = Mke2fs::new("ext4", 16).make().unwrap();
        let point = Scratch::new("times").unwrap();
        let mounted = served(open(&image), point.path(), way);
        let script = "for f in $(seq 300); do echo x > $f; done; touch *; stat -c '%.9X %.9Y %.9Z' *";
        let output = Command::new("bash").args(["-ec", script]).current_dir(point.path()).output().unwrap();
        assert!(output.status.success());
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let times: Vec<&str> = line.split(' ').collect();
            assert!(times[0] == times[1] && times[1] == times[2], "\"{way}\": {line}");
        }
        unmounted(mounted);
    }
}
