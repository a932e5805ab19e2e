//! Lazy times, when there are many.

use std::time::{Duration, Instant};

use undercroft_block::{Access, MemoryDevice};
use undercroft_vfs::{FileSystem, Ino, WriteKind};

use crate::testing::images::{Mke2fs, Scratch};
use crate::{Ext4, OpenOptions, WriteOptions};

/// The thread that commits is the one that stores them: it cannot wait for a commit to make room.
#[test]
fn more_late_times_than_a_transaction_has_room_for_are_stored_by_the_clock() {
    const FILES: u64 = 1400;
    let source = Scratch::new("tree").unwrap();
    for file in 0..FILES {
        std::fs::write(source.path().join(format!("f{file}")), "content").unwrap();
    }
    let source = source.path().to_str().unwrap().to_owned();
    // Four inodes in a block of the table, and a log that has room for 255 blocks in a transaction.
    let mke2fs = Mke2fs::new("ext4", 16).block_bytes(1024).inodes(4096).args(["-J", "size=1", "-d", &source]);
    let bytes = std::fs::read(mke2fs.make().unwrap().path()).unwrap();
    let device = MemoryDevice::from_bytes(bytes, Access::ReadWrite);
    let write_options = WriteOptions { commit_seconds: 1, ..WriteOptions::default() };
    let fs = Ext4::open(std::sync::Arc::new(device), OpenOptions::default(), write_options).unwrap();
    let inodes: Vec<_> = (12..12 + FILES).map(|ino| fs.read_inode(Ino(ino)).unwrap()).collect();
    let before = fs.write_stats();
    inodes.iter().for_each(|inode| inode.finish_write(0, 7, 7, WriteKind::Overwrite).unwrap());
    let began = Instant::now();
    while fs.write_stats().blocks_logged - before.blocks_logged < FILES / 4 {
        assert!(began.elapsed() < Duration::from_secs(20), "{before:?}, then {:?}", fs.write_stats());
        std::thread::sleep(Duration::from_millis(20));
    }
    fs.close().unwrap();
}
