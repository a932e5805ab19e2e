//! Files whose blocks cannot be read: they lose their names, what is left of them stays on the list of unlinked inodes, and
//! the filesystem goes on.

use std::sync::Arc;

use undercroft_block::{Access, BlockDevice, Device, MemoryDevice};
use undercroft_oracle::MkfsXfs;
use undercroft_vfs::{Credentials, FileSystem, NewKind, NewObject, Vfs, VfsOptions};

use crate::format::block_header::HeaderKind;
use crate::format::crc;
use crate::{OpenOptions, WriteOptions, Xfs};

const BLOCK: u64 = 4096;
/// More extents than an inode of 512 bytes has room for.
const EXTENTS: u64 = 60;
const NEW_FILE: NewObject<'_> = NewObject { kind: NewKind::Regular, permissions: 0o644, umask: 0 };

fn open(device: &Device) -> (Arc<Xfs>, Arc<Vfs>) {
    let fs = Xfs::open(Arc::clone(device), OpenOptions::default(), WriteOptions::default()).unwrap();
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
    (fs, vfs)
}

/// A file in every second of whose blocks something was written.
fn make(vfs: &Arc<Vfs>, name: &[u8]) {
    let (root, caller) = (vfs.root().unwrap(), Credentials::root());
    let node = vfs.create(&caller, &root, name, &NEW_FILE).unwrap();
    let file = vfs.open_node_for_writing(&node).unwrap();
    for number in 0..EXTENTS {
        file.write_at(2 * number * BLOCK, name).unwrap();
    }
}

/// Spoils the blocks of maps, and returns how many.
fn spoil_maps(device: &dyn BlockDevice) -> usize {
    let mut block = vec![0; BLOCK as usize];
    let mut spoilt = 0;
    for at in (0..device.size_bytes()).step_by(BLOCK as usize) {
        device.read_at(at, &mut block).unwrap();
        if block.starts_with(b"BMA3") {
            block[100] ^= 1;
            device.write_at(at, &block).unwrap();
            spoilt += 1;
        }
    }
    spoilt
}

#[test]
fn a_file_whose_map_cannot_be_read_is_removed_and_changes_go_on() {
    let image = MkfsXfs::new(64, "").make().unwrap();
    let bytes = std::fs::read(image.path()).unwrap();
    let device: Device = Arc::new(MemoryDevice::from_bytes(bytes, Access::ReadWrite));
    let (fs, vfs) = open(&device);
    make(&vfs, b"damaged");
    make(&vfs, b"damaged and in use");
    fs.close().unwrap();
    drop(vfs);
    assert_eq!(spoil_maps(&*device), 2);

    let (fs, vfs) = open(&device);
    let (root, caller) = (vfs.root().unwrap(), Credentials::root());
    let held = vfs.lookup(&root, b"damaged and in use").unwrap();
    for name in [&b"damaged"[..], b"damaged and in use"] {
        vfs.unlink(&caller, &root, name).unwrap();
    }
    drop(held);
    make(&vfs, b"made afterwards");
    drop((root, vfs));
    fs.close().unwrap();
    assert_eq!(fs.write_stats().inodes_left, 2);
    drop(fs);

    // They are met again by each opening, which does its work all the same.
    let (fs, vfs) = open(&device);
    let root = vfs.root().unwrap();
    assert_eq!(fs.write_stats().inodes_left, 2);
    assert!(vfs.lookup(&root, b"damaged").is_err());
    make(&vfs, b"and then");
    drop((root, vfs));
    fs.close().unwrap();
    assert!(Xfs::open_read_only(device, OpenOptions::default()).unwrap().recovery().is_none());
}

/// Gives the blocks of an inode another owner in the reverse map, and returns how many records that were.
fn spoil_owners(device: &dyn BlockDevice, ino: u64) -> usize {
    const RECORD: usize = 24;
    let mut block = vec![0; BLOCK as usize];
    let mut spoilt = 0;
    for at in (0..device.size_bytes()).step_by(BLOCK as usize) {
        device.read_at(at, &mut block).unwrap();
        if !block.starts_with(b"RMB3\0\0") {
            continue;
        }
        let count = usize::from(u16::from_be_bytes([block[6], block[7]]));
        for record in block[HeaderKind::ShortBtree.bytes()..].chunks_exact_mut(RECORD).take(count) {
            if record[8..16] == ino.to_be_bytes() {
                record[8..16].copy_from_slice(&(ino + 32).to_be_bytes());
                spoilt += 1;
            }
        }
        crc::seal(&mut block, HeaderKind::ShortBtree.crc_offset());
        device.write_at(at, &block).unwrap();
    }
    spoilt
}

#[test]
fn a_file_whose_blocks_belong_to_another_is_removed_and_changes_go_on() {
    let image = MkfsXfs::new(64, "-m rmapbt=1").make().unwrap();
    let bytes = std::fs::read(image.path()).unwrap();
    let device: Device = Arc::new(MemoryDevice::from_bytes(bytes, Access::ReadWrite));
    let names = [&b"unused"[..], b"in use"];
    let inos = {
        let (fs, vfs) = open(&device);
        let root = vfs.root().unwrap();
        let inos = names.map(|name| {
            let node = vfs.create(&Credentials::root(), &root, name, &NEW_FILE).unwrap();
            vfs.open_node_for_writing(&node).unwrap().write_all_at(0, &[5; 20_000]).unwrap();
            node.ino().0
        });
        drop((root, vfs));
        fs.close().unwrap();
        inos
    };
    for ino in inos {
        assert_eq!(spoil_owners(&*device, ino), 1);
    }

    let (fs, vfs) = open(&device);
    let (root, caller) = (vfs.root().unwrap(), Credentials::root());
    let held = vfs.lookup(&root, b"in use").unwrap();
    let file = vfs.open_node_for_writing(&held).unwrap();
    let refused = file.truncate(0).unwrap_err().to_string();
    assert!(refused.contains("rmapbt"), "{refused}");
    for name in names {
        vfs.unlink(&caller, &root, name).unwrap();
    }
    drop((file, held));
    make(&vfs, b"made afterwards");
    drop((root, vfs));
    fs.close().unwrap();
    assert_eq!(fs.write_stats().inodes_left, 2);
}
