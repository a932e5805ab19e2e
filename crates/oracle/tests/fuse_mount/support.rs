//! Mounts for the tests: served by the test itself, or by a process of its own that may be killed.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use undercroft_fuse::{MountOptions, Mounted, mount};
use undercroft_vfs::{Vfs, VfsOptions};

use crate::sample::{NOBODY, sample};

/// Size of the file `big`: enough for many requests, and not a whole number of them.
pub(crate) const BIG_BYTES: u64 = (20 << 20) + 12_345;

/// Far above what it takes, for a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Number of files in `many`.
pub(crate) const FILES: usize = 10_000;

/// The sample, served by this process. Unmounted when dropped.
pub(crate) struct Fixture {
    pub(crate) mounted: Mounted,
    dir: TempDir,
}

impl Fixture {
    pub(crate) fn new(options: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        set_mode(dir.path(), 0o755);
        let vfs = Vfs::new(Arc::new(sample(FILES, BIG_BYTES)), VfsOptions::default());
        let mounted = mount(vfs, dir.path(), MountOptions::parse(options).unwrap()).unwrap();
        Self { mounted, dir }
    }

    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.dir.path().join(name.as_ref())
    }
}

/// The sample, served by a process of its own.
pub(crate) struct ServerProcess {
    pub(crate) child: Child,
    dir: PathBuf,
    _home: TempDir,
}

impl ServerProcess {
    /// Starts a server as root, or as a user for whom only `fusermount3` can mount. The mount point's name has
    /// everything in it that a table or a shell might stumble over.
    pub(crate) fn start(user: u32, options: &str) -> Self {
        Self::start_in(user, options, "it's a \"$(dir)\",\n\\with\ttricks")
    }

    /// The same on a directory of this name.
    pub(crate) fn start_in(user: u32, options: &str, name: &str) -> Self {
        // Where no udev has run, only root may use FUSE at all.
        set_mode(Path::new("/dev/fuse"), 0o666);
        let home = tempfile::tempdir().unwrap();
        set_mode(home.path(), 0o755);
        let dir = home.path().join(name);
        fs::create_dir(&dir).unwrap();
        std::os::unix::fs::chown(&dir, Some(user), Some(user)).unwrap();
        let mut child = command(user, example())
            .arg(&dir)
            .args(["--files", "10", "--big", "1000000", "-o"])
            .arg(format!("fsname=test image\\,{options}"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "the server did not start");
        assert!(is_mounted(&dir));
        Self { child, dir, _home: home }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Whether the process ends in time, and well.
    pub(crate) fn ends_well(&mut self) -> bool {
        let mut status = None;
        until(PATIENCE, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.is_some_and(|status| status.success())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The guardian takes the mount away; the directory can only be removed afterwards.
        until(PATIENCE, || !is_mounted(&self.dir));
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A program run by `user`.
pub(crate) fn command(user: u32, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    if user != 0 {
        command.uid(user).gid(user);
    }
    command
}

/// What `cat` prints for a user, or what it complains about.
pub(crate) fn cat(user: u32, path: &Path) -> Result<Vec<u8>, String> {
    let output = command(user, "cat").arg(path).output().unwrap();
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// The program of the example of `undercroft-fuse`.
pub(crate) fn example() -> &'static str {
    env!("CARGO_BIN_EXE_serve_memory")
}

/// Whether the mount table knows a mount of ours at this place.
pub(crate) fn is_mounted(dir: &Path) -> bool {
    let escaped = dir.to_str().unwrap().replace('\\', "\\134").replace(' ', "\\040");
    let escaped = escaped.replace('\n', "\\012").replace('\t', "\\011");
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == Some(&escaped))
}

/// Waits until the clock that times of files are taken from has moved on.
pub(crate) fn wait_for_tick() {
    let now = || {
        let time = clock_gettime(ClockId::RealtimeCoarse);
        (time.tv_sec, time.tv_nsec)
    };
    let before = now();
    while now() == before {
        std::thread::yield_now();
    }
}

/// Whether it becomes true in time.
pub(crate) fn until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        sleep(Duration::from_millis(5));
    }
    true
}

/// The users that mount: root by system call, and one that needs the helper.
pub(crate) const USERS: [u32; 2] = [0, NOBODY];
