//! Made-up fast commits: operations at random, over inodes and names that are there and that are not. Real
//! ones are redone in `crates/oracle/tests/dirty`.

use std::sync::Arc;

use undercroft_block::testing::Rng;
use undercroft_block::{Access, BlockDevice, Device, MemoryDevice, Overlay};
use undercroft_vfs::Error;

use super::redo;
use crate::check::{CheckOptions, check};
use crate::fast_commit::{FastCommitOp, FastCommitView};
use crate::inode::{InodeBytes, ROOT_INODE, incarnation_on_disk};
use crate::numbers::{FileBlock, FsBlock};
use crate::options::WriteOptions;
use crate::superblock::Superblock;
use crate::testing::images::{Image, Mke2fs, Scratch};
use crate::transaction::Tid;
use crate::volume::Volume;
use crate::writer::{Mounted, Transactions, Writer};

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
            match random.below(5) {
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

/// Lays operations over the image and redoes them; what is on the device then.
fn redone(base: &Device, operations: &[FastCommitOp]) -> (Device, undercroft_vfs::Result<()>) {
    let device: Device = Arc::new(Overlay::new(Arc::clone(base)));
    let superblock = Superblock::read(&*device).unwrap();
    let volume = &Arc::new(Mounted::new(Volume::new(Arc::clone(&device), superblock.clone(), 1 << 20)));
    let transactions = Transactions::unlogged(Tid(1), 1000, Arc::default());
    volume.set_writer(Writer::new(volume, transactions, WriteOptions::default()).unwrap());
    let view = FastCommitView::fold(operations, |ino| incarnation_on_disk(volume, ino)).unwrap();
    let shown = Volume::new(Arc::clone(&device), superblock, 1 << 20);
    let result = redo(volume, &shown.with_fast_commits(view));
    (device, result)
}

fn base_of(image: &Image) -> (Vec<u8>, Device) {
    let bytes = std::fs::read(image.path()).unwrap();
    let device = MemoryDevice::from_bytes(bytes.clone(), Access::ReadOnly);
    (bytes, Arc::new(device))
}

/// The fields of a new inode.
fn raw(mode: u16, generation: u32) -> Box<[u8]> {
    let mut raw = vec![0; 160];
    raw[..2].copy_from_slice(&mode.to_le_bytes());
    raw[0x1A] = 1;
    raw[0x64..0x68].copy_from_slice(&generation.to_le_bytes());
    raw.into()
}

/// As where a name was given again while a full transaction was committed: that is on the disk, and the removal before
/// it in the log.
#[test]
fn a_name_that_leads_elsewhere_by_now_stays() {
    let (bytes, base) = base_of(&image());
    let unlink = FastCommitOp::Unlink { parent: ROOT_INODE, ino: 40, name: Box::from(*b"n8") };
    let (device, result) = redone(&base, &[unlink]);
    result.unwrap();
    let report = check(Arc::clone(&device), &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    let before = check(Arc::new(MemoryDevice::from_bytes(bytes, Access::ReadOnly)), &CheckOptions::default());
    assert_eq!(report.inodes, before.unwrap().inodes);
}

#[test]
fn names_in_what_is_no_directory_and_another_root_are_refused() {
    const FILE: u16 = 0o100_644;
    const DIRECTORY: u16 = 0o040_755;
    let (bytes, base) = base_of(&image());
    let create = |parent, ino| FastCommitOp::Create { parent, ino, name: Box::from(*b"new") };
    let fields = |ino, mode| FastCommitOp::Inode { ino, raw: raw(mode, 77) };
    let lists = [
        // A file that would lie in itself, or in another new file.
        vec![fields(40, FILE), create(40, 40)],
        vec![fields(40, FILE), create(ROOT_INODE, 40), fields(41, FILE), create(40, 41)],
        // A file in a directory that comes to nothing.
        vec![fields(40, DIRECTORY), fields(41, FILE), create(40, 41)],
        // Another root.
        vec![fields(ROOT_INODE, FILE)],
        vec![fields(ROOT_INODE, DIRECTORY), create(ROOT_INODE, ROOT_INODE)],
        // Another inode where one still has its name; and a name put over one that is not empty.
        vec![fields(12, FILE), create(ROOT_INODE, 12)],
        vec![FastCommitOp::Link { parent: ROOT_INODE, ino: 12, name: Box::from(*b"n12") }],
    ];
    for operations in lists {
        let (device, result) = redone(&base, &operations);
        assert!(matches!(result, Err(Error::Corrupt(_))), "{result:?} of {operations:?}");
        assert!(bytes_of(&*device) == bytes, "{operations:?}");
    }
}

#[test]
fn operations_at_random_are_redone_or_refused_and_then_nothing_changes() {
    let (bytes, base) = base_of(&image());
    let superblock = Superblock::read(&*base).unwrap();
    let volume = &Volume::new(Arc::clone(&base), superblock, 1 << 20);
    let (mut done, mut refused) = (0, 0);
    for seed in 0..LISTS {
        let mut random = Rng::new(seed);
        let count = 1 + random.below(4);
        let operations: Vec<_> = (0..count).map(|_| operation(&mut random, volume)).collect();
        let (device, result) = redone(&base, &operations);
        if result.is_err() {
            refused += 1;
            assert!(bytes_of(&*device) == bytes, "seed {seed}: {operations:?}");
            continue;
        }
        done += 1;
        let mut report = check(device, &CheckOptions::default()).unwrap();
        // Sizes are copied as they were logged, blocks or no blocks.
        report.findings.retain(|finding| finding.code != "inode-size");
        assert!(report.is_clean(), "seed {seed}: {operations:?}: {:#?}", report.findings);
    }
    assert!(done > LISTS / 20 && refused > LISTS / 20, "{done} redone, {refused} refused");
}
