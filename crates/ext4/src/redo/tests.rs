//! Fast commits that nobody wrote: operations at random, over inodes and names that are there and that are not. Real ones
//! are redone in `crates/oracle/tests/dirty`.

use std::sync::Arc;

use undercroft_block::testing::Rng;
use undercroft_block::{Access, BlockDevice, Device, MemoryDevice, Overlay};
use undercroft_oracle::{Image, Mke2fs, Scratch};

use super::redo;
use crate::inode::{InodeBytes, ROOT_INODE, incarnation_on_disk};
use crate::journal::{FastCommitOp, FastCommitView};
use crate::numbers::{FileBlock, FsBlock};
use crate::superblock::Superblock;
use crate::transaction::{Tid, Transactions};
use crate::volume::Volume;
use crate::writer::{WriteOptions, Writer};

const BLOCKS: u64 = 2048;
/// Numbers that operations are about: some more than there are inodes in use.
const INODES: u64 = 40;
const LISTS: u64 = 2000;

fn image() -> Image {
    let source = Scratch::new("tree").unwrap();
    for number in 0..12 {
        std::fs::write(source.path().join(format!("n{number}")), vec![number; 700 * usize::from(number)])
            .unwrap();
    }
    for number in 12..16 {
        let dir = source.path().join(format!("n{number}"));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("n1"), "in a directory").unwrap();
    }
    let source = source.path().to_str().unwrap().to_owned();
    Mke2fs::new("ext4", 2)
        .block_bytes(1024)
        .inodes(128)
        .features("^has_journal")
        .args(["-d", &source])
        .make()
        .unwrap()
}

/// An operation as a log with right checksums may have it.
fn operation(random: &mut Rng, volume: &Volume) -> FastCommitOp {
    let number = |random: &mut Rng| match random.below(6) {
        0 => ROOT_INODE,
        1 => 1 + random.below(11) as u32,
        _ => 11 + random.below(INODES) as u32,
    };
    let ino = number(random);
    let name: Box<[u8]> = format!("n{}", random.below(24)).into_bytes().into();
    let (lblk, len) = (FileBlock(random.below(40) as u32), 1 + random.below(12) as u32);
    match random.below(8) {
        0 => FastCommitOp::AddRange {
            ino,
            lblk,
            len,
            pblk: FsBlock(random.below(BLOCKS - u64::from(len))),
            unwritten: random.below(2) == 0,
        },
        1 => {
            FastCommitOp::DelRange { ino, lblk, len: if random.below(3) == 0 { u32::MAX - 50 } else { len } }
        }
        2 => FastCommitOp::Create { parent: number(random), ino, name },
        3 => FastCommitOp::Link { parent: number(random), ino, name },
        4 => FastCommitOp::Unlink { parent: number(random), ino, name },
        _ => {
            let like = number(random);
            let mut raw: Vec<u8> =
                InodeBytes::read(volume, like).map_or_else(|_| vec![0; 256], |bytes| bytes.to_vec());
            match random.below(3) {
                0 => raw[0x64] ^= 1 + random.below(3) as u8,
                1 => raw[random.below(160) as usize] = random.below(256) as u8,
                _ => {}
            }
            raw.truncate(if random.below(2) == 0 { 160 } else { 256 });
            FastCommitOp::Inode { ino, raw: raw.into() }
        }
    }
}

fn bytes_of(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn operations_at_random_are_redone_or_refused_and_then_nothing_changes() {
    let image = image();
    let bytes = std::fs::read(image.path()).unwrap();
    let base: Device = Arc::new(MemoryDevice::from_bytes(bytes.clone(), Access::ReadOnly));
    let (mut redone, mut refused) = (0, 0);
    for seed in 0..LISTS {
        let device: Device = Arc::new(Overlay::new(Arc::clone(&base)));
        let superblock = Superblock::read(&*device).unwrap();
        let volume = &Arc::new(Volume::new(Arc::clone(&device), superblock.clone(), 1 << 20));
        let transactions = Transactions::new(Tid(1), 1000);
        volume.set_writer(Writer::new(volume, transactions, WriteOptions::default()).unwrap());
        let mut random = Rng::new(seed);
        let count = 1 + random.below(6);
        let operations: Vec<_> = (0..count).map(|_| operation(&mut random, volume)).collect();
        let view = FastCommitView::fold(&operations, |ino| incarnation_on_disk(volume, ino)).unwrap();
        let shown = Volume::new(Arc::clone(&device), superblock, 1 << 20);
        match redo(volume, &shown.with_fast_commits(view)) {
            Ok(()) => redone += 1,
            Err(_) => {
                refused += 1;
                assert!(bytes_of(&*device) == bytes, "seed {seed}: {operations:?}");
            }
        }
    }
    assert!(redone > LISTS / 20 && refused > LISTS / 20, "{redone} redone, {refused} refused");
}
