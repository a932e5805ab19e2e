//! A thread of the server that cannot go on ends the mount: no request waits for it. Alone in its process, whose
//! descriptors it breaks. Needs root.

use std::fs;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, socket};
use undercroft_fuse::{FaultSink, MountError, MountOptions, mount};
use undercroft_tmpfs::{Tmpfs, TmpfsOptions};
use undercroft_vfs::{Vfs, VfsOptions};

/// Open descriptors of this process for files of this name.
fn descriptors(name: &str) -> Vec<RawFd> {
    let entries = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let named =
        entries.filter(|path| fs::read_link(path).is_ok_and(|link| link.to_string_lossy().contains(name)));
    named.map(|path| path.file_name().unwrap().to_str().unwrap().parse().unwrap()).collect()
}

/// Puts something in the place of descriptors with which nothing that the server does can succeed.
#[expect(unsafe_code, reason = "the descriptors are the server's, and are broken on purpose")]
fn break_all(descriptors: &[RawFd]) {
    let broken = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    for &descriptor in descriptors {
        // SAFETY: it is open, and its owner goes on as if it were what it was.
        let mut target = unsafe { OwnedFd::from_raw_fd(descriptor) };
        rustix::io::dup2(&broken, &mut target).unwrap();
        std::mem::forget(target);
    }
}

/// Whether a request is answered in time, with whatever.
fn is_answered(path: &Path) -> bool {
    let mut child =
        Command::new("stat").arg(path).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

#[test]
fn a_thread_that_cannot_go_on_ends_the_mount() {
    for (transport, name) in [("", "[io_uring]"), ("no_io_uring", "/dev/fuse")] {
        let dir = tempfile::tempdir().unwrap();
        let (tell, told) = channel();
        let mut options = MountOptions::parse(&format!("rw,{transport}")).unwrap();
        options.faults = FaultSink::new(move |fault| tell.send(fault.to_string()).unwrap());
        let vfs = Vfs::new(Tmpfs::new(&TmpfsOptions::default()).unwrap(), VfsOptions::default());
        let mounted = mount(vfs, dir.path(), options).unwrap();
        fs::write(dir.path().join("file"), "content").unwrap();
        let broken = descriptors(name);
        if broken.is_empty() && name == "[io_uring]" {
            eprintln!("this kernel has no FUSE over io_uring");
            continue;
        }
        assert!(!broken.is_empty(), "{name}");
        break_all(&broken);
        assert!(is_answered(&dir.path().join("nothing")), "with \"{transport}\"");
        let error = mounted.wait().unwrap_err();
        assert!(matches!(error, MountError::Serve { .. }), "{error}");
        let told: Vec<String> = told.iter().collect();
        assert!(told.iter().any(|line| line.contains("the mount ends")), "{told:?}");
        // Taken away by the guardian, and not left behind without a server.
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
