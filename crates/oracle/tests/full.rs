//! Space that comes back when a file is removed is there for the next one, as with Linux's own ext4: through the mount
//! the kernel forgets a removed file's inode after the call that removed it, and its blocks are free when the
//! transaction that freed them is durable.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use undercroft_block::{FileDevice, FileOptions};
use undercroft_ext4::{Ext4, OpenOptions, WriteOptions};
use undercroft_fuse::{MountOptions, mount};
use undercroft_oracle::{Mke2fs, Scratch};
use undercroft_vfs::{Vfs, VfsOptions};

const IMAGE_MIB: u64 = 64;
const FILE_BYTES: usize = 40 << 20;

/// Makes files and removes them in turn; tells how many were refused.
fn refused(path: &Path, rounds: u32, fill: impl Fn(&File) -> std::io::Result<()>) -> u32 {
    let round = |_| {
        let file = File::create(path).unwrap();
        let outcome = fill(&file);
        drop(file);
        std::fs::remove_file(path).unwrap();
        u32::from(outcome.is_err())
    };
    (0..rounds).map(round).sum()
}

fn files_in_turn(options: &str) {
    let image = Mke2fs::new("ext4", IMAGE_MIB).make().unwrap();
    let device = FileDevice::open(image.path(), FileOptions::read_write()).unwrap();
    let fs = Ext4::open(Arc::new(device), OpenOptions::default(), WriteOptions::default()).unwrap();
    let point = Scratch::new("ours").unwrap();
    let mut settings = MountOptions::parse("rw").unwrap();
    settings.apply(options).unwrap();
    let mounted =
        mount(Vfs::new(Arc::clone(&fs) as _, VfsOptions::default()), point.path(), settings).unwrap();
    let path = mounted.dir().join("file");
    let allocated = refused(&path, 300, |file| {
        Ok(rustix::fs::fallocate(file, FallocateFlags::empty(), 0, FILE_BYTES as u64)?)
    });
    let bytes = vec![7; FILE_BYTES];
    let written = refused(&path, 20, |file| {
        file.write_all_at(&bytes, 0)?;
        file.sync_all()
    });
    mounted.unmount().unwrap();
    mounted.wait().unwrap();
    fs.close().unwrap();
    assert_eq!((allocated, written), (0, 0), "of 300 allocations and 20 writes were refused");
    image.check().unwrap();
}

#[test]
fn files_made_and_removed_in_turn_find_space_over_io_uring() {
    files_in_turn("");
}

#[test]
fn files_made_and_removed_in_turn_find_space_over_the_device() {
    files_in_turn("no_io_uring");
}
