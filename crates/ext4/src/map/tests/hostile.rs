//! Damaged maps under changes: errors or good answers, and never a panic.

use std::sync::Arc;

use undercroft_block::testing::Rng;
use undercroft_block::{Access, Device, MemoryDevice};

use super::super::*;
use crate::alloc::Purpose;
use crate::dir;
use crate::inode::{self, Inode, ROOT_INODE};
use crate::options::WriteOptions;
use crate::superblock::Superblock;
use crate::testing::images::{Mke2fs, Scratch};
use crate::transaction::Tid;
use crate::volume::Volume;
use crate::writer::{Mounted, Transactions, Writer};

const ROUNDS: u64 = 400;
const SPAN: u64 = 4000;

fn open(bytes: Vec<u8>) -> (Arc<Mounted>, Inode) {
    let device: Device = Arc::new(MemoryDevice::from_bytes(bytes, Access::ReadWrite));
    let superblock = Superblock::read(&*device).unwrap();
    let volume = Arc::new(Mounted::new(Volume::new(device, superblock, 1 << 20)));
    let transactions = Transactions::unlogged(Tid(1), 10_000, Arc::default());
    volume.set_writer(Writer::new(&volume, transactions, WriteOptions::default()).unwrap());
    let root = Inode::read(&volume, ROOT_INODE).unwrap();
    let number = dir::lookup(&volume, &root, b"f").unwrap().unwrap();
    let inode = Inode::read(&volume, number).unwrap();
    (volume, inode)
}

/// Every block that the map itself occupies.
fn nodes(volume: &Volume, inode: &Inode) -> Vec<u64> {
    let mut found = Vec::new();
    // Each with the number of levels of map below it, which an extent tree's nodes know themselves.
    let mut pending = vec![(inode.i_block.to_vec(), None)];
    while let Some((bytes, levels)) = pending.pop() {
        let children: Vec<(u64, u32)> = if has_extents(inode) {
            let word = |at: usize| u64::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
            let indexes = if word(6) == 0 { 0 } else { word(2) as usize };
            (1..=indexes).map(|entry| (word(entry * 12 + 4) | word(entry * 12 + 6) << 16, 0)).collect()
        } else {
            let number =
                |slot: usize| u64::from(u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[slot * 4 + i])));
            match levels {
                None => (12..15).map(|slot| (number(slot), slot as u32 - 12)).collect(),
                Some(0) => Vec::new(),
                Some(levels) => (0..bytes.len() / 4).map(|slot| (number(slot), levels - 1)).collect(),
            }
        };
        for (child, levels) in children.into_iter().filter(|&(child, _)| child != 0) {
            found.push(child);
            pending.push((volume.read_block(FsBlock(child)).unwrap().to_vec(), Some(levels)));
        }
    }
    found
}

fn change_at_random(volume: &Mounted, inode: &mut Inode, random: &mut Rng) {
    let Ok(handle) = volume.start(50) else { return };
    for _ in 0..20 {
        let (at, len) = (random.below(SPAN), 1 + random.below(200));
        let _ = match random.below(8) {
            0 => remove(&handle, inode, at, at + len, Removed::Data).map(drop),
            1 => remove(&handle, inode, at, u64::MAX, Removed::Metadata).map(drop),
            2 => mark(&handle, inode, at, at + len, random.below(2) == 0).map(drop),
            3 => shift_down(&handle, inode, at, len).map(drop),
            4 => split_at(&handle, inode, at)
                .and_then(|()| shift_up(&handle, inode, at, FILE_BLOCKS, len).map(drop)),
            5 => grow(&handle, inode, FileBlock(at as u32)).map(drop),
            6 => lookup(volume, inode, FileBlock(at as u32)).map(drop),
            _ => {
                volume.writer().unwrap().allocator.allocate(&handle, FsBlock(0), len, Purpose::Data).and_then(
                    |(first, count)| {
                        let written = random.below(2) == 0;
                        insert(&handle, inode, FileBlock(at as u32), first, count, written)
                    },
                )
            }
        };
    }
}

/// Damages a good map in as many ways as there are rounds.
fn damage(kind: &'static str, features: &str) {
    let source = Scratch::new("tree").unwrap();
    std::fs::write(source.path().join("f"), "").unwrap();
    let mke2fs = Mke2fs::new(kind, 8).block_bytes(1024).inodes(32).features(features);
    let image = mke2fs.args(["-d", source.path().to_str().unwrap()]).make().unwrap();
    let (volume, mut inode) = open(std::fs::read(image.path()).unwrap());
    {
        let handle = volume.start(2000).unwrap();
        for at in (0..SPAN).step_by(3) {
            grow(&handle, &mut inode, FileBlock(at as u32)).unwrap();
        }
        inode.store(&handle, inode::locate(&volume, inode.number).unwrap()).unwrap();
    }
    volume.writer().unwrap().transactions.commit_running(&volume).unwrap();
    let mut good = vec![0; 8 << 20];
    volume.device().read_at(0, &mut good).unwrap();
    let nodes = nodes(&volume, &inode);
    assert!(nodes.len() > 5, "{} blocks of map", nodes.len());

    for seed in 0..ROUNDS {
        let mut random = Rng::new(seed);
        let mut bytes = good.clone();
        let node = nodes[random.below(nodes.len() as u64) as usize] as usize * 1024;
        for _ in 0..1 + random.below(3) {
            // The first entries matter most.
            let within = if random.below(2) == 0 { 48 } else { 1024 };
            bytes[node + random.below(within) as usize] = random.below(256) as u8;
        }
        let (volume, mut inode) = open(bytes);
        if random.below(4) == 0 {
            inode.i_block[random.below(60) as usize] = random.below(256) as u8;
        }
        change_at_random(&volume, &mut inode, &mut random);
        volume.writer().unwrap().transactions.commit_running(&volume).unwrap();
    }
}

#[test]
fn damaged_trees_are_changed_without_a_panic() {
    damage("ext4", "^has_journal,^metadata_csum");
}

#[test]
fn damaged_block_maps_are_changed_without_a_panic() {
    damage("ext2", "large_file");
}
