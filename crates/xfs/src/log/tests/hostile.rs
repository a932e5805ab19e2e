//! Logs made to harm their reader: each is refused in one sentence or replayed within its bounds.

use undercroft_block::BlockDevice;
use undercroft_vfs::Ino;

use super::builder::{LogImage, inode_core, inode_item};

/// An inode in the first group.
const INO: Ino = Ino(4096);

const DATA_ROOT: u32 = 0x008;
const ATTRIBUTE_ROOT: u32 = 0x100;

/// Writes a free inode where `INO` belongs.
fn put_inode(image: &LogImage) {
    let geometry = image.superblock.geometry();
    let (block, at) = geometry.inode_place(INO).unwrap();
    image.device.write_at(geometry.byte(block).unwrap() + at as u64, b"IN").unwrap();
}

/// What is said of a log with one change of `INO`.
fn refusal_of_inode(mut image: LogImage, fields: u32, regions: &[Vec<u8>]) -> String {
    put_inode(&image);
    let item = inode_item(&image.superblock, INO, fields | 1, regions);
    image.transaction(1, &[item]);
    image.recover().err().expect("the change is refused").to_string()
}

#[test]
fn roots_too_short_for_their_headers_are_refused() {
    let btree = inode_core(3, |core| core[5] = 3);
    for len in [4, 8, 40, 71] {
        let refusal = refusal_of_inode(LogImage::new(), DATA_ROOT, &[btree.clone(), vec![0; len]]);
        assert!(refusal.contains(&format!("root of {len} bytes")), "{refusal}");
    }
    let attributes = inode_core(3, |core| core[83] = 3);
    let refusal = refusal_of_inode(LogImage::new(), ATTRIBUTE_ROOT, &[attributes, vec![0; 100]]);
    assert!(refusal.contains("for a fork of 0"), "{refusal}");
}

#[test]
fn roots_are_refused_for_forks_without_trees() {
    for fields in [DATA_ROOT, ATTRIBUTE_ROOT] {
        let core = inode_core(3, |core| core[82] = 10);
        let refusal = refusal_of_inode(LogImage::new(), fields, &[core, vec![0; 100]]);
        assert!(refusal.contains("root of a tree for a fork of format 2"), "{refusal}");
    }
}

#[test]
fn cores_have_the_version_of_their_filesystem() {
    for version in [0, 3, 4, 255] {
        let mut core = inode_core(2, |_| {});
        core[4] = version;
        let refusal = refusal_of_inode(LogImage::version_4(), 0, &[core]);
        assert!(refusal.contains(&format!("core of version {version}")), "{refusal}");
    }
    for version in [0, 2, 4] {
        let mut core = inode_core(3, |_| {});
        core[4] = version;
        let refusal = refusal_of_inode(LogImage::new(), 0, &[core]);
        assert!(refusal.contains(&format!("core of version {version}")), "{refusal}");
    }
    let mut image = LogImage::version_4();
    put_inode(&image);
    let item = inode_item(&image.superblock, INO, 1, &[inode_core(2, |_| {})]);
    image.transaction(1, &[item]);
    assert_eq!(image.recover().unwrap().recovery.unwrap().inodes, 1);
}
