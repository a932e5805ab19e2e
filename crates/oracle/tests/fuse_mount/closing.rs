//! The end of a mount whose filesystem fails: what is told of it, and that telling keeps nothing from being closed.

use std::fs;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use undercroft_block::Device;
use undercroft_fuse::{FaultSink, MountError, MountOptions, UnmountError, mount, mount_above};
use undercroft_oracle::unmount_when_idle;
use undercroft_sync::{Mutex, order};
use undercroft_vfs::{Error, FileSystem, Ino, Inode, Limits, Result, StatFs, Vfs, VfsOptions};

use crate::memory::Memory;
use crate::sample::{HELLO, sample};
use crate::support::is_mounted;

type Tell = Box<dyn Fn(&Error) + Send + Sync>;

/// A filesystem that fails when the test says so: as one whose threads outlive the last request does.
struct Failing {
    base: Memory,
    /// It cannot be closed.
    stays_dirty: bool,
    tell: Arc<Mutex<Option<Tell>>>,
    _closing: Option<Closing>,
}

/// Closing waits until the test says so.
struct Closing(Mutex<Receiver<()>>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.lock().recv().unwrap();
    }
}

impl Failing {
    fn new() -> Self {
        let tell = Arc::new(Mutex::new(&order::DEVICE, None));
        Self { base: sample(1, 1), stays_dirty: false, tell, _closing: None }
    }
}

impl FileSystem for Failing {
    fn kind(&self) -> &'static str {
        self.base.kind()
    }

    fn root(&self) -> Ino {
        self.base.root()
    }

    fn read_inode(&self, ino: Ino) -> Result<Arc<dyn Inode>> {
        self.base.read_inode(ino)
    }

    fn data_device(&self) -> Option<&Device> {
        self.base.data_device()
    }

    fn statfs(&self) -> Result<StatFs> {
        self.base.statfs()
    }

    fn limits(&self) -> Limits {
        self.base.limits()
    }

    fn close(&self) -> Result<()> {
        if self.stays_dirty { Err(failure()) } else { Ok(()) }
    }

    fn when_failed(&self, tell: Tell) {
        *self.tell.lock() = Some(tell);
    }
}

fn failure() -> Error {
    Error::TurnedReadOnly("the disk is gone".into())
}

#[test]
fn a_failure_is_told_however_late_it_comes() {
    let dir = tempfile::tempdir().unwrap();
    let fs = Failing::new();
    let tell = Arc::clone(&fs.tell);
    let (say, said) = channel();
    let faults = FaultSink::new(move |fault| say.send(fault.to_string()).unwrap());
    let vfs = Vfs::new(Arc::new(fs), VfsOptions::default());
    let mounted = mount(vfs, dir.path(), MountOptions { faults, ..MountOptions::default() }).unwrap();
    unmount_when_idle(|| mounted.unmount()).unwrap();
    mounted.wait().unwrap();
    let tell = tell.lock().take().unwrap();
    tell(&failure());
    assert!(said.try_recv().unwrap().contains("the disk is gone"));
}

#[test]
fn failure_listener_does_not_keep_the_filesystem_open() {
    let dir = tempfile::tempdir().unwrap();
    let fs = Arc::new(Failing::new());
    let (tell, open) = (Arc::clone(&fs.tell), Arc::downgrade(&fs));
    let (is_telling, telling) = channel();
    let (go, gone) = channel();
    let gone = Mutex::new(&order::DEVICE, gone);
    let faults = FaultSink::new(move |_| {
        is_telling.send(()).unwrap();
        gone.lock().recv().unwrap();
    });
    let mounted = {
        let vfs = Vfs::new(fs, VfsOptions::default());
        mount(vfs, dir.path(), MountOptions { faults, ..MountOptions::default() }).unwrap()
    };
    let tell = tell.lock().take().unwrap();
    let teller = thread::spawn(move || tell(&failure()));
    telling.recv().unwrap();
    unmount_when_idle(|| mounted.unmount()).unwrap();
    let _ = mounted.wait();
    let is_open = open.upgrade().is_some();
    go.send(()).unwrap();
    teller.join().unwrap();
    assert!(!is_open, "the thread that tells would have been the one to close it");
}

/// It gets the same numbers from the kernel.
#[test]
fn a_mount_that_follows_another_at_once_is_not_taken_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (close, closing) = channel();
    let slow = Failing { _closing: Some(Closing(Mutex::new(&order::DEVICE, closing))), ..Failing::new() };
    let first = Vfs::new(Arc::new(slow), VfsOptions::default());
    let first = mount(first, dir.path(), MountOptions::default()).unwrap();
    unmount_when_idle(|| first.unmount()).unwrap();
    assert!(!is_mounted(dir.path()));
    let second = Vfs::new(Arc::new(Failing::new()), VfsOptions::default());
    let second = mount(second, dir.path(), MountOptions::default()).unwrap();
    close.send(()).unwrap();
    first.wait().unwrap();
    assert!(is_mounted(dir.path()));
    assert_eq!(fs::read(dir.path().join("hello")).unwrap(), HELLO);
    unmount_when_idle(|| second.unmount()).unwrap();
    second.wait().unwrap();
}

/// The process that unmounts hears of it, and so does the one that serves.
#[test]
fn what_fails_while_closing_is_told_to_both_ends() {
    for (stays_dirty, below_fails) in [(false, false), (true, false), (false, true), (true, true)] {
        let dir = tempfile::tempdir().unwrap();
        let vfs = Vfs::new(Arc::new(Failing { stays_dirty, ..Failing::new() }), VfsOptions::default());
        let (say, said) = channel();
        let below = Box::new(move || {
            say.send(()).unwrap();
            if below_fails { Err("the array is gone".into()) } else { Ok(()) }
        });
        let mounted = mount_above(vfs, below, dir.path(), MountOptions::default()).unwrap();
        assert!(said.try_recv().is_err(), "closed too early");
        let heard = unmount_when_idle(|| undercroft_fuse::unmount(dir.path()));
        let ended = mounted.wait();
        said.recv().unwrap();
        let Err(error) = ended else {
            assert!(!stays_dirty && !below_fails);
            heard.unwrap();
            continue;
        };
        let cause = if stays_dirty { "the disk is gone" } else { "the array is gone" };
        assert!(error.to_string().contains(cause), "{error}");
        assert_eq!(matches!(error, MountError::Sync { .. }), stays_dirty);
        assert!(matches!(heard, Err(UnmountError::ServerFailed(what)) if what == error.to_string()));
    }
}
