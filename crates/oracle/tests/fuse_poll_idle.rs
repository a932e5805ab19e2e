//! While requests come quickly the kernel is asked to let idle processors poll, and no longer. Alone in its process,
//! whose descriptors it looks at. Needs root.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use undercroft_fuse::{MountOptions, Mounted, mount};
use undercroft_oracle::unmount_when_idle;
use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::{Vfs, VfsOptions};

/// Requests one after the other, some times as many as make a server ask.
const REQUESTS: u32 = 20_000;

const DEVICE: &str = "/dev/cpu_dma_latency";

/// Whether the kernel offers rings to servers that ask for them.
const RINGS_OFFERED: &str = "/sys/module/fuse/parameters/enable_uring";

/// A tmpfs, served by this process over rings where there are any, or over the device. The kernel asks for attributes
/// each time.
fn serve(dir: &Path, rings: bool, poll_idle: &str) -> Mounted {
    let transport = if rings { "io_uring" } else { "no_io_uring" };
    let options = format!("rw,attr_timeout=0,{transport},{poll_idle}");
    let vfs = Vfs::new(Tmpfs::new(&TmpfsOptions::default()).unwrap(), VfsOptions::default());
    let offered = fs::read_to_string(RINGS_OFFERED).ok();
    offered.iter().for_each(|_| fs::write(RINGS_OFFERED, "1").unwrap());
    let mounted = mount(vfs, dir, MountOptions::parse(&options).unwrap()).unwrap();
    offered.iter().for_each(|before| fs::write(RINGS_OFFERED, before).unwrap());
    mounted
}

/// How late a processor may come back from idling, in µs, by all that is asked for on this machine.
fn latency() -> i32 {
    let mut bytes = [0; 4];
    File::open(DEVICE).unwrap().read_exact(&mut bytes).unwrap();
    i32::from_ne_bytes(bytes)
}

/// Whether this comes true while a thread asks for attributes again and again.
fn comes_true_while_busy(root: &Path, limit: Duration, is_true: impl Fn() -> bool) -> bool {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs::metadata(root).unwrap();
            }
        });
        let came = comes_true(limit, is_true);
        done.store(true, Ordering::Relaxed);
        came
    })
}

fn comes_true(limit: Duration, is_true: impl Fn() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !is_true() && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    is_true()
}

fn is_open_here() -> bool {
    let open = fs::read_dir("/proc/self/fd").unwrap().map(|fd| fs::read_link(fd.unwrap().path()));
    open.into_iter().any(|target| target.is_ok_and(|target| target == Path::new(DEVICE)))
}

#[test]
fn processors_poll_while_requests_come() {
    const PATIENCE: Duration = Duration::from_secs(20);
    let dir = tempfile::tempdir().unwrap();
    assert!(
        comes_true(PATIENCE, || latency() > 0),
        "something else keeps this machine's processors from halting"
    );
    let before = latency();

    for rings in [true, false] {
        let mounted = serve(dir.path(), rings, "poll_idle");
        for _ in 0..2 {
            assert!(comes_true_while_busy(dir.path(), PATIENCE, || latency() == 0));
            assert!(comes_true(PATIENCE, || latency() == before));
        }
        assert!(is_open_here());
        unmount_when_idle(|| mounted.unmount()).unwrap();
        assert!(comes_true(PATIENCE, || !is_open_here()));

        let mounted = serve(dir.path(), rings, "no_poll_idle");
        for _ in 0..REQUESTS {
            fs::metadata(dir.path()).unwrap();
            assert_ne!(latency(), 0);
        }
        assert!(!is_open_here());
        unmount_when_idle(|| mounted.unmount()).unwrap();
    }
}
