//! A disk that loses what the kernel's cache took, under a mount of ours: the kernel tells that to one fsync, and no other
//! succeeds after it, over both transports.
//!
//! The disk is a loop device over a file in a small tmpfs. Needs root.

use std::fs::{File, OpenOptions as FileOpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use undercroft_block::{FileDevice, FileOptions};
use undercroft_ext4::{Ext4, OpenOptions, WriteOptions};
use undercroft_fuse::{MountOptions, mount};
use undercroft_oracle::{Scratch, Tool};
use undercroft_vfs::{FileSystem, Vfs, VfsOptions};

const DISK_BYTES: u64 = 16 << 20;
const BLOCK: usize = 4096;
const FILE_BYTES: usize = 64 * BLOCK;

/// A disk whose backing has a bounded number of pages.
struct Disk {
    scratch: Scratch,
    device: PathBuf,
}

impl Disk {
    fn new(features: &str) -> Self {
        let scratch = Scratch::new("disk").unwrap();
        let mount = ["-t", "tmpfs", "-o", "size=8m", "tmpfs"];
        Tool::new("mount").args(mount).arg(scratch.path()).run().unwrap();
        let backing = scratch.path().join("disk");
        File::create(&backing).unwrap().set_len(DISK_BYTES).unwrap();
        let found = Tool::new("losetup").args(["--find", "--show"]).arg(&backing).run_text().unwrap();
        let device = PathBuf::from(found.trim());
        let this = Self { scratch, device };
        let mke2fs = ["-q", "-F", "-b", "4096", "-O", features];
        Tool::new("mke2fs").args(mke2fs).arg(&this.device).run().unwrap();
        this
    }

    fn backing(&self) -> PathBuf {
        self.scratch.path().join("disk")
    }

    /// From now on no block takes bytes that has `content` now, or that has never been written.
    fn lose(&self, content: &[u8; BLOCK]) {
        let backing = FileOpenOptions::new().read(true).write(true).open(self.backing()).unwrap();
        let mut block = [0; BLOCK];
        for at in (0..DISK_BYTES).step_by(BLOCK) {
            backing.read_exact_at(&mut block, at).unwrap();
            if block == *content {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&backing, punch, at, BLOCK as u64).unwrap();
            }
        }
        let mut ballast = File::create(self.scratch.path().join("ballast")).unwrap();
        while ballast.write_all(&[1; BLOCK]).is_ok() {}
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Tool::new("losetup").arg("--detach").arg(&self.device).run();
        let _ = Tool::new("umount").arg("--lazy").arg(self.scratch.path()).run();
    }
}

fn open(path: &Path) -> File {
    FileOpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn no_fsync_succeeds_after_the_one_that_failed(features: &str, options: &str) {
    let what = format!("{features}, \"{options}\"");
    let disk = Disk::new(features);
    let device = FileDevice::open(&disk.device, FileOptions::read_write()).unwrap();
    let how = WriteOptions { commit_seconds: 3600, ..WriteOptions::default() };
    let fs = Ext4::open(Arc::new(device), OpenOptions::default(), how).unwrap();
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
    let point = Scratch::new("point").unwrap();
    let mut settings = MountOptions::parse("rw").unwrap();
    settings.apply(options).unwrap();
    let mounted = mount(vfs, point.path(), settings).unwrap();
    let (lost, kept) = (open(&point.path().join("lost")), open(&point.path().join("kept")));
    lost.write_all_at(&[0xAA; FILE_BYTES], 0).unwrap();
    kept.write_all_at(&[0xCC; FILE_BYTES], 0).unwrap();
    lost.sync_all().unwrap();
    kept.sync_all().unwrap();
    disk.lose(&[0xAA; BLOCK]);

    // Over bytes that are there, so that nothing but the data has to become durable.
    kept.write_all_at(&[0xCD; FILE_BYTES], 0).unwrap();
    kept.sync_data().unwrap();
    lost.write_all_at(&[0xAB; FILE_BYTES], 0).unwrap();
    assert!(lost.sync_data().is_err(), "{what}: the disk took it");
    for round in 0..3 {
        let written = kept.write_all_at(&[round; FILE_BYTES], 0);
        let synced = written.and_then(|()| kept.sync_data());
        assert!(synced.is_err(), "{what}: another file was called durable");
    }
    assert!(lost.sync_all().is_err(), "{what}: the file itself was called durable");
    let made = File::create(point.path().join("new")).and_then(|file| file.sync_all());
    assert!(made.is_err(), "{what}: a change was taken");
    drop((lost, kept, mounted));
    let closed = fs.close().unwrap_err().to_string();
    assert!(closed.contains("flush"), "{what}: {closed}");
}

#[test]
fn no_fsync_succeeds_after_one_reported_lost_writes() {
    for features in ["has_journal", "^has_journal"] {
        for options in ["", "no_io_uring"] {
            no_fsync_succeeds_after_the_one_that_failed(features, options);
        }
    }
}
