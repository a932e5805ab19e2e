//! A whole block device that root mounts for writing is mounted as the kernel's own filesystems are: it belongs to the mount,
//! `sync` reaches it, and an unmount returns when it is closed. The other side is Linux's. Needs root.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use undercroft_oracle::{Image, Mke2fs, Served};

use crate::support::{PROGRAM, run};

const PATIENCE: Duration = Duration::from_secs(60);

/// Nothing is made durable by itself.
const WAYS: [&str; 2] = ["rw,commit=3600,commit_pause=0", "rw,commit=3600,commit_pause=0,no_io_uring"];

/// A loop device over an image.
struct Loop {
    path: PathBuf,
    image: Image,
}

impl Loop {
    fn new() -> Self {
        let image = Mke2fs::new("ext4", 64).make().unwrap();
        let output = Command::new("losetup").args(["-f", "--show"]).arg(image.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Self { path: String::from_utf8(output.stdout).unwrap().trim().into(), image }
    }

    fn served(&self, options: &str) -> Served {
        Served::undercroft(Path::new(PROGRAM), &self.path, options).unwrap()
    }

    /// What e2fsck says of the device, which it takes for itself.
    fn e2fsck(&self) -> Output {
        Command::new("e2fsck").args(["-f", "-n"]).arg(&self.path).output().unwrap()
    }

    fn is_claimed(&self) -> bool {
        let mkfs = Command::new("mke2fs").args(["-n", "-F"]).arg(&self.path).output().unwrap();
        !mkfs.status.success()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.path).status();
    }
}

/// The type of the mount, as the kernel has it.
fn fs_type(dir: &Path) -> String {
    let output = Command::new("findmnt").args(["-n", "-o", "FSTYPE"]).arg(dir).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn shell(dir: &Path, script: &str) {
    let status = Command::new("bash").args(["-ec", script]).current_dir(dir).status().unwrap();
    assert!(status.success(), "{script}");
}

#[test]
fn a_sync_by_any_program_makes_everything_durable() {
    for way in WAYS {
        for sync in ["sync", "sync -f .", "python3 -c 'import os; os.sync()'"] {
            let device = Loop::new();
            let mount = device.served(way);
            assert_eq!(fs_type(mount.path()), "fuseblk.undercroft.ext4");
            shell(mount.path(), &format!("mkdir d; echo one > d/f; mv d/f d/g; {sync}"));
            let copy = device.image.copy().unwrap();
            let found = run(Command::new(PROGRAM).arg("cat").arg(copy.path()).arg("/d/g"));
            assert_eq!(found.stdout, b"one\n", "{way} {sync}: {}", found.stderr);
            mount.kill().unwrap();
        }
    }
}

#[test]
fn an_unmount_by_any_program_returns_when_the_device_is_closed() {
    for way in WAYS {
        let device = Loop::new();
        let mount = device.served(way);
        assert!(device.is_claimed());
        assert_eq!(fs::metadata(mount.path()).unwrap().dev(), fs::metadata(&device.path).unwrap().rdev());
        shell(mount.path(), "for i in $(seq 500); do echo $i > f$i; done; exec 9>gone; rm gone; echo x >&9");
        shell(Path::new("/"), &format!("umount {}", mount.path().display()));
        // At once, and nothing is left to recover.
        let checked = device.e2fsck();
        assert!(checked.status.success(), "{checked:?}");
        let mut bytes = vec![0; 2048];
        fs::File::open(&device.path).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        const RECOVER: u8 = 4;
        assert_eq!((bytes[1024 + 0x60] & RECOVER, bytes[1024 + 0x3a] & 1), (0, 1), "{way}: not left clean");
        mount.wait().unwrap();
    }
}

#[test]
fn a_killed_server_leaves_the_device_to_others() {
    for way in WAYS {
        let device = Loop::new();
        let mount = device.served(way);
        shell(mount.path(), "echo one > f");
        mount.kill().unwrap();
        let end = Instant::now() + PATIENCE;
        while device.is_claimed() {
            assert!(Instant::now() < end, "{way}");
        }
        let again = device.served(way);
        assert_eq!(fs_type(again.path()), "fuseblk.undercroft.ext4");
        again.unmount().unwrap();
        assert!(device.e2fsck().status.success());
    }
}

#[test]
fn space_of_the_device_is_given_back() {
    for way in WAYS {
        let device = Loop::new();
        let blocks = || fs::metadata(device.image.path()).unwrap().blocks();
        let mount = device.served(way);
        shell(mount.path(), "head -c 20M /dev/urandom > f; sync");
        let full = blocks();
        shell(mount.path(), "rm f; sync; fstrim .");
        let trimmed = blocks();
        assert!(full > 40_000 && trimmed + 30_000 < full, "{way}: {full} {trimmed}");
        mount.unmount().unwrap();
        assert!(device.e2fsck().status.success());
    }
}

/// What is only read, and what is a part of a device, does not take it from others.
#[test]
fn what_does_not_have_the_device_is_mounted_as_before() {
    let device = Loop::new();
    let mount = device.served("ro");
    assert_eq!(fs_type(mount.path()), "fuse.undercroft.ext4");
    mount.unmount().unwrap();
    let image = Mke2fs::new("ext4", 32).make().unwrap();
    let mount = Served::undercroft(Path::new(PROGRAM), image.path(), "rw").unwrap();
    assert_eq!(fs_type(mount.path()), "fuse.undercroft.ext4");
    mount.unmount().unwrap();
}
