//! Logs made to harm their reader: each is refused in one sentence or replayed within its bounds.

use undercroft_block::{BlockDevice, Device};
use undercroft_vfs::{Error, Ino};
use zerocopy::IntoBytes;

use super::super::area::LogArea;
use super::super::counters;
use super::super::ends::{LogEnds, reach};
use super::super::format::{Lsn, flags};
use super::super::freed_by_recovery::{FreedByRecovery, freed_by_recovery};
use super::super::intents::{IntentKind, Intents, Unfinished};
use super::super::replay;
use super::super::report::Recovery;
use super::super::target::Target;
use super::super::transactions::{Assembler, TakeError, Transaction};
use super::builder::{
    LogImage, Operation, buffer_item, inode_core, inode_item, superblock_sector, transaction_header,
};
use crate::format::dinode::{self, DiFlags2};
use crate::format::extent::{Extent, RawExtent};
use crate::format::{FileBlock, FsBlock, crc, testing};
use crate::inode::Inode;
use crate::volume::Volume;

/// An inode in the first group.
const INO: Ino = Ino(4096);

/// A buffer in the first group, away from everything.
const DADDR: u64 = 8000;

const DATA_ROOT: u32 = 0x008;
const ATTRIBUTE_ROOT: u32 = 0x100;

/// The refusal of a log with one change of `INO`.
fn refusal_of_inode(mut image: LogImage, fields: u32, regions: &[Vec<u8>]) -> String {
    image.put_inode(INO, b"IN");
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
    image.put_inode(INO, b"IN");
    let item = inode_item(&image.superblock, INO, 1, &[inode_core(2, |_| {})]);
    image.transaction(1, &[item]);
    assert_eq!(image.recover().unwrap().recovery.unwrap().inodes, 1);
}

/// An image with one change in its log.
fn dirty_image() -> LogImage {
    let mut image = LogImage::new();
    image.transaction(1, &[buffer_item(DADDR, 0, &[(0, 1)])]);
    image
}

/// Has a bucket of the first group's unlinked inodes begin with `INO`.
fn unlink(image: &LogImage, bucket: usize, count: u32) {
    image.put_agi(0, |agi| {
        agi[16..20].copy_from_slice(&count.to_be_bytes());
        agi[40 + bucket * 4..][..4].copy_from_slice(&(INO.0 as u32).to_be_bytes());
    });
}

#[test]
fn lists_of_unlinked_inodes_end_where_they_break() {
    let mut inode = vec![0; 100];
    inode[..2].copy_from_slice(b"IN");
    // The inode itself, one in a group that does not exist, one where no inode is.
    for next in [INO.0 as u32, 0x8000_1000, 8192] {
        let image = dirty_image();
        unlink(&image, 0, 64);
        inode[96..].copy_from_slice(&next.to_be_bytes());
        image.put_inode(INO, &inode);
        let recovery = image.recover().unwrap().recovery.unwrap();
        assert_eq!((recovery.unlinked_inodes(), recovery.broken_lists), (1, 1), "next is {next}");
    }
    let image = dirty_image();
    unlink(&image, 0, u32::MAX);
    let recovery = image.recover().unwrap().recovery.unwrap();
    assert_eq!((recovery.unlinked_inodes(), recovery.broken_lists), (0, 1));
}

#[test]
fn blocks_of_unlinked_inodes_do_not_overflow_the_counters() {
    let mut image = LogImage::new();
    let mut intent = vec![0x36, 0x12, 1, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
    intent.extend([500_u64, 3].iter().flat_map(|word| word.to_le_bytes()));
    image.transaction(1, &[vec![intent]]);
    unlink(&image, 0, 64);
    let mut inode = testing::dinode(&image.superblock, INO, |raw| {
        raw.di_nlink.set(0);
        raw.di_nblocks.set(u64::MAX);
        raw.di_nextents.set(1);
        raw.di_flags2.set((DiFlags2::BIGTIME | DiFlags2::REFLINK).bits());
    });
    let extent = Extent { file: FileBlock(0), block: FsBlock(50), count: 1, unwritten: false };
    inode[dinode::CORE_V3_BYTES..][..16].copy_from_slice(RawExtent::pack(&extent).as_bytes());
    crc::seal(&mut inode, dinode::CRC_OFFSET);
    image.put_inode(INO, &inode);
    let volume = Volume::new(image.device.clone(), image.superblock.clone(), 1 << 20);
    assert_eq!(Inode::read(&volume, INO).unwrap().core.blocks, u64::MAX);
    assert_eq!(image.recover().unwrap().recovery.unwrap().unlinked_inodes(), 1);
}

#[test]
fn estimates_that_cannot_be_are_left_out() {
    let image = LogImage::new();
    let volume = Volume::new(image.device.clone(), image.superblock.clone(), 1 << 20);
    for given in [
        FreedByRecovery { blocks: u64::MAX, ..FreedByRecovery::default() },
        FreedByRecovery { inodes: 1, ..FreedByRecovery::default() },
        FreedByRecovery { blocks: 7, inodes: u64::MAX, chunk_inodes: 0 },
    ] {
        let superblock = counters::count(&volume, given).unwrap();
        assert_eq!((superblock.free_blocks(), superblock.free_inodes()), (0, 0), "{given:?}");
    }
    let given = FreedByRecovery { blocks: 7, ..FreedByRecovery::default() };
    assert_eq!(counters::count(&volume, given).unwrap().free_blocks(), 7);
}

#[test]
fn estimates_end_after_so_many_steps() {
    let image = LogImage::new();
    let volume = Volume::new(image.device.clone(), image.superblock.clone(), 1 << 20);
    let recovery = |unlinked| Recovery { unlinked: vec![Ino(u64::MAX); unlinked], ..Recovery::default() };
    let refusal = freed_by_recovery(&volume, &recovery((1 << 20) + 1)).unwrap_err().to_string();
    assert!(refusal.contains("more than 1048576 extents"), "{refusal}");
    image.put_agf(0, |agf| agf[0] = 0);
    let refusal = freed_by_recovery(&volume, &recovery(1 << 20)).unwrap_err().to_string();
    assert!(refusal.contains("AGF"), "{refusal}");
}

#[test]
fn maps_longer_than_the_largest_buffer_are_refused() {
    for (words, taken) in [(17_u32, true), (18, false), (u32::MAX, false)] {
        let mut item = buffer_item(DADDR, 0, &[(0, 1)]);
        item[0][16..20].copy_from_slice(&words.to_le_bytes());
        item[0].resize(20 + 20 * 4, 0);
        let mut image = LogImage::new();
        image.transaction(1, &[item]);
        match image.recover() {
            Ok(_) => assert!(taken, "{words} words"),
            Err(error) => assert!(!taken && error.to_string().contains("words"), "{words} words: {error}"),
        }
    }
}

#[test]
fn records_reach_no_further_than_the_longest_ones() {
    assert_eq!([32 << 10, 256 << 10, u32::MAX].map(reach), [512, 4096, 4096]);
}

/// Replays into a target that keeps all of it in memory.
fn replayed(image: &LogImage) -> Target {
    let device: Device = image.device.clone();
    let area = LogArea::locate(&device, None, &image.superblock).unwrap();
    let ends = LogEnds::find(&area).unwrap();
    let mut target = Target::new(&device, &image.superblock, u64::MAX);
    replay::replay(&area, ends, &mut target).unwrap();
    target
}

#[test]
fn only_what_differs_is_written() {
    let with_sectors = |mut item: Vec<Vec<u8>>| {
        item[0][6..8].copy_from_slice(&128_u16.to_le_bytes());
        item
    };
    let mut image = LogImage::new();
    let unchanged = (0..50).map(|n| with_sectors(buffer_item(8000 + n * 128, 0, &[]))).collect::<Vec<_>>();
    image.transaction(1, &unchanged);
    assert_eq!(replayed(&image).changed_bytes(), 0);
    let mut image = LogImage::new();
    image.put_inode(INO, b"IN");
    image.transaction(
        1,
        &[
            with_sectors(buffer_item(DADDR, 0, &[(30, 1)])),
            inode_item(&image.superblock, INO, 1, &[inode_core(3, |_| {})]),
        ],
    );
    assert_eq!(replayed(&image).changed_bytes(), 2 * 4096);
}

#[test]
fn changes_beyond_the_bound_of_memory_lie_in_a_file() {
    let image = LogImage::new();
    let device: Device = image.device.clone();
    let mut target = Target::new(&device, &image.superblock, 8192);
    let mut changed = Vec::new();
    for n in 0..6_u8 {
        target.write(u64::from(n) * 4096 + (1 << 20), &[n + 1; 512]).unwrap();
        changed.push(target.changed_bytes());
    }
    // The third chunk is the one too many.
    assert_eq!(changed, [4096, 8192, 0, 4096, 8192, 3 * 4096]);
    target.write(1 << 20, &[9; 256]).unwrap();
    let (device, _) = target.into_device();
    for (n, expected) in [9, 2, 3, 4, 5, 6].into_iter().enumerate() {
        let mut bytes = [0; 512];
        device.read_at(n as u64 * 4096 + (1 << 20), &mut bytes).unwrap();
        assert_eq!((bytes[0], bytes[511]), (expected, if n == 0 { 1 } else { expected }));
    }
}

/// The bytes of a record's operations.
fn record_data(operations: &[Operation]) -> Vec<u8> {
    let mut data = Vec::new();
    for (id, flags, bytes) in operations {
        data.extend(id.to_be_bytes());
        data.extend((bytes.len() as u32).to_be_bytes());
        data.extend([0x69, *flags, 0, 0]);
        data.extend(bytes);
    }
    data
}

#[test]
fn transactions_without_content_count_too() {
    let operations: Vec<Operation> = (0..600_000).map(|id| (id, flags::START, Vec::new())).collect();
    let data = record_data(&operations);
    let taken = Assembler::default().take(Lsn(1), operations.len() as u32, &data, |_| Ok(()));
    let Err(TakeError::Bad(what)) = taken else { panic!("the record is taken") };
    assert!(what.contains("not committed"), "{what}");
}

#[test]
fn intents_without_extents_count_too() {
    let count = 600_000;
    let mut operations = vec![(1, flags::START, Vec::new()), (1, 0, transaction_header(count))];
    operations.extend((0..count as u64).map(|id| {
        let mut intent = vec![0x36, 0x12, 1, 0, 0, 0, 0, 0];
        intent.extend(id.to_le_bytes());
        (1, 0, intent)
    }));
    operations.push((1, flags::COMMIT, Vec::new()));
    let data = record_data(&operations);
    let mut committed = Transaction::default();
    let taken = Assembler::default().take(Lsn(1), operations.len() as u32, &data, |transaction| {
        committed = transaction;
        Ok(())
    });
    assert!(taken.is_ok());
    let image = LogImage::new();
    let mut intents = Intents::default();
    let mut announced =
        committed.items().map(|item| intents.announce(IntentKind::Free, item, &image.superblock));
    let refusal = announced.find_map(Result::err);
    assert!(matches!(refusal, Some(Error::Unsupported(what)) if what.contains("interrupted work")));
    drop(announced);
    // What is done makes room.
    let mut intents = Intents::default();
    for item in committed.items() {
        intents.announce(IntentKind::Free, item, &image.superblock).unwrap();
        intents.done(IntentKind::Free, item);
    }
    assert_eq!(intents.unfinished().unwrap(), Vec::<Unfinished>::new());
}

/// An item that changes the first part of the superblock.
fn superblock_item(sector: &[u8]) -> Vec<Vec<u8>> {
    let mut item = buffer_item(0, 18 << 11, &[(0, 0)]);
    item[0][6..8].copy_from_slice(&1_u16.to_le_bytes());
    item[1].copy_from_slice(&sector[..128]);
    item
}

#[test]
fn a_filesystem_that_was_growing_has_its_new_groups() {
    let mut image = LogImage::with(|raw| {
        raw.sb_agcount.set(3);
        raw.sb_dblocks.set(3 * 32_768);
        raw.sb_fdblocks.set(1);
    });
    let grown = superblock_sector(|_| {});
    // 64 inodes of 512 bytes from block 100 of the fourth group on.
    let mut chunk = vec![0x3F, 0x12, 1, 0];
    chunk.extend([3_u32, 100, 64, 512, 8, 1].iter().flat_map(|word| word.to_be_bytes()));
    let mut intent = vec![0x36, 0x12, 1, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
    intent.extend([3 << 15 | 500_u64, 3].iter().flat_map(|word| word.to_le_bytes()));
    image.transaction(1, &[superblock_item(&grown)]);
    image.transaction(2, &[vec![chunk], vec![intent]]);
    let recovered = image.recover().unwrap();
    let recovery = recovered.recovery.unwrap();
    assert_eq!((recovery.buffers, recovery.chunks), (1, 1));
    assert_eq!(recovery.unfinished, [Unfinished::Free { start: FsBlock(3 << 15 | 500), blocks: 3 }]);
    assert_eq!(recovered.superblock.geometry().ag_count(), 4);
    let mut inode = [0; 2];
    let place = recovered.superblock.geometry().daddr(FsBlock(3 << 15 | 100)).unwrap();
    recovered.device.read_at(place.byte(), &mut inode).unwrap();
    assert_eq!(inode, *b"IN");
}

#[test]
fn a_log_that_takes_groups_away_is_refused() {
    let mut image = LogImage::new();
    let fewer = superblock_sector(|raw| {
        raw.sb_agcount.set(3);
        raw.sb_dblocks.set(3 * 32_768);
    });
    image.transaction(1, &[superblock_item(&fewer)]);
    let refusal = image.recover().err().unwrap().to_string();
    assert!(refusal.contains("takes allocation groups away"), "{refusal}");
    let mut image = LogImage::new();
    let larger = superblock_sector(|raw| {
        raw.sb_agcount.set(5);
        raw.sb_dblocks.set(5 * 32_768);
    });
    image.transaction(1, &[superblock_item(&larger)]);
    let refusal = image.recover().err().unwrap().to_string();
    assert!(refusal.contains("the device only"), "{refusal}");
}

#[test]
fn counters_are_counted_where_no_record_says_unmounted() {
    let free = |image: &LogImage| image.recover().unwrap().superblock.free_blocks();
    let mut image = LogImage::new();
    image.put_agf(0, |agf| agf[52..56].copy_from_slice(&77_u32.to_be_bytes()));
    assert_eq!(free(&image), 77);
    assert!(image.recover().unwrap().recovery.is_none());
    // A damaged header keeps nothing else from being read.
    image.device.write_at(512, b"XAGX").unwrap();
    assert_eq!(free(&image), image.superblock.free_blocks());
    image.unmount();
    assert_eq!(free(&image), image.superblock.free_blocks());
}
