//! What is replayed, and what is not.

use undercroft_block::BlockDevice;
use undercroft_vfs::{Error, Ino};
use zerocopy::IntoBytes;

use super::super::format::{Lsn, flags};
use super::super::intents::Unfinished;
use super::super::record::RecordHeader;
use super::builder::{LogImage, buffer_item, inode_core, inode_item, seal, transaction_header};
use crate::format::extent::{Extent, RawExtent};
use crate::format::{FileBlock, FsBlock, testing};
use crate::inode::ForkKind;

/// A buffer in the first group, away from everything.
const DADDR: u64 = 8000;
const CANCELLED: u16 = 1 << 1;

fn byte_at(device: &dyn BlockDevice, part: u64) -> u8 {
    let mut byte = [0];
    device.read_at(DADDR * 512 + part * 128, &mut byte).unwrap();
    byte[0]
}

#[test]
fn a_transaction_over_several_records_is_replayed_and_the_device_stays_as_it_is() {
    let mut image = LogImage::new();
    let item = buffer_item(DADDR, 0, &[(0, 7), (5, 8)]);
    let (header, data) = (transaction_header(1), &item);
    image.record(&[(1, flags::START, vec![]), (2, flags::START, vec![]), (1, 0, header[..12].to_vec())]);
    image.record(&[
        (1, flags::WAS_CONTINUED | flags::END, header[12..].to_vec()),
        (2, 0, transaction_header(1)),
        (1, 0, data[0].clone()),
        (1, flags::CONTINUE, data[1][..64].to_vec()),
    ]);
    image.record(&[(1, flags::WAS_CONTINUED | flags::CONTINUE, data[1][64..100].to_vec())]);
    image.record(&[
        (1, flags::WAS_CONTINUED | flags::END, data[1][100..].to_vec()),
        (1, 0, data[2].clone()),
        (1, flags::COMMIT, vec![]),
    ]);
    let recovered = image.recover().unwrap();
    let recovery = recovered.recovery.unwrap();
    assert_eq!((recovery.transactions, recovery.uncommitted, recovery.buffers), (1, 1, 1));
    let shown = [0, 1, 5].map(|part| byte_at(&*recovered.device, part));
    assert_eq!(shown, [7, 0, 8]);
    assert_eq!(byte_at(&*image.device, 0), 0);
}

/// A write that was cut short leaves a new position over old content.
#[test]
fn a_buffer_that_is_newer_than_the_log_stays_if_it_is_whole() {
    let lsn = |image: &LogImage| 1_u64 << 32 | u64::from(image.head);
    for (there, torn) in [(0, false), (1, false), (1, true)] {
        let newer = there == 1 && !torn;
        let expected = if newer { 0 } else { 9 };
        let mut image = LogImage::new();
        image.record(&[(5, 0, vec![1; 100])]);
        let mut block = vec![0; 4096];
        block[..4].copy_from_slice(b"XDB3");
        block[16..24].copy_from_slice(&(lsn(&image) - 1 + there).to_be_bytes());
        block[24..40].copy_from_slice(image.superblock.meta_uuid().as_bytes());
        crate::format::crc::seal(&mut block, 4);
        block[4000] = u8::from(torn);
        image.device.write_at(DADDR * 512, &block).unwrap();
        let expected_lsn = lsn(&image);
        image.transaction(1, &[buffer_item(DADDR, 10 << 11, &[(9, 9)])]);
        let recovered = image.recover().unwrap();
        assert_eq!(byte_at(&*recovered.device, 9), expected);
        assert_eq!(recovered.recovery.unwrap().newer, u64::from(newer));
        if !newer {
            let mut bytes = vec![0; 4096];
            recovered.device.read_at(DADDR * 512, &mut bytes).unwrap();
            crate::format::crc::verify(&bytes, 4).unwrap();
            assert_eq!(bytes[16..24], expected_lsn.to_be_bytes(), "the record's own position");
        }
    }
}

#[test]
fn an_inode_that_is_newer_than_the_log_stays_if_it_is_whole() {
    let ino = Ino(131);
    for torn in [false, true] {
        let mut image = LogImage::new();
        let mut inode = testing::dinode(&image.superblock, ino, |raw| {
            raw.di_size.set(7);
            raw.di_lsn.set(9 << 32);
        });
        crate::format::crc::seal(&mut inode, 100);
        inode[400] ^= u8::from(torn);
        let geometry = *image.superblock.geometry();
        let (block, at) = geometry.inode_place(ino).unwrap();
        let byte = geometry.byte(block).unwrap() + at as u64;
        image.device.write_at(byte, &inode).unwrap();
        let core = inode_core(3, |core| core[56..64].copy_from_slice(&5_u64.to_le_bytes()));
        let item = inode_item(&image.superblock, ino, 1, &[core]);
        image.transaction(1, &[item]);
        let recovered = image.recover().unwrap();
        recovered.device.read_at(byte, &mut inode).unwrap();
        assert_eq!(inode[63], if torn { 5 } else { 7 });
        assert_eq!(recovered.recovery.unwrap().newer, u64::from(!torn));
        crate::format::crc::verify(&inode, 100).unwrap();
    }
}

#[test]
fn transactions_of_one_record_all_change_a_buffer() {
    let mut image = LogImage::new();
    let mut block = vec![0; 4096];
    block[..4].copy_from_slice(b"XDB3");
    block[24..40].copy_from_slice(image.superblock.meta_uuid().as_bytes());
    image.device.write_at(DADDR * 512, &block).unwrap();
    let mut operations = Vec::new();
    for id in [1, 2] {
        let item = buffer_item(DADDR, 10 << 11, &[(id + 3, id as u8)]);
        operations.push((id, flags::START, vec![]));
        operations.push((id, 0, transaction_header(1)));
        operations.extend(item.into_iter().map(|region| (id, 0, region)));
        operations.push((id, flags::COMMIT, vec![]));
    }
    image.record(&operations);
    let recovered = image.recover().unwrap();
    assert_eq!([4, 5].map(|part| byte_at(&*recovered.device, part)), [1, 2]);
}

#[test]
fn what_was_freed_later_is_left_out_and_what_follows_is_not() {
    let mut image = LogImage::new();
    image.transaction(1, &[buffer_item(DADDR, 0, &[(0, 1), (1, 1)])]);
    image.transaction(2, &[buffer_item(DADDR, CANCELLED, &[])]);
    image.transaction(3, &[buffer_item(DADDR, 0, &[(1, 3)])]);
    let recovered = image.recover().unwrap();
    assert_eq!([0, 1].map(|part| byte_at(&*recovered.device, part)), [0, 3]);
    assert_eq!(recovered.recovery.unwrap().freed, 1);
}

#[test]
fn a_log_of_version_1_is_replayed_without_checksums() {
    let mut image = LogImage::log_version_1();
    for round in 0..200 {
        // Until it has been filled twice.
        image.tail = Lsn(image.position());
        image.transaction(1, &[buffer_item(DADDR, 0, &[(round % 20, round as u8), (21, 1), (22, 1)])]);
    }
    let recovered = image.recover().unwrap();
    assert_eq!([19, 21].map(|part| byte_at(&*recovered.device, part)), [199, 1]);
    assert_eq!(recovered.recovery.unwrap().transactions, 1);
}

#[test]
fn interrupted_changes_of_a_map_show() {
    let mut image = LogImage::new();
    let ino = Ino(131);
    let extent = Extent { file: FileBlock(0), block: FsBlock(500), count: 8, unwritten: false };
    let geometry = *image.superblock.geometry();
    let mut inode = testing::dinode(&image.superblock, ino, |raw| {
        raw.di_nblocks.set(8);
        raw.di_nextents.set(1);
        raw.di_size.set(8 * 4096);
    });
    inode[176..192].copy_from_slice(RawExtent::pack(&extent).as_bytes());
    crate::format::crc::seal(&mut inode, 100);
    let (block, at) = geometry.inode_place(ino).unwrap();
    image.device.write_at(geometry.byte(block).unwrap() + at as u64, &inode).unwrap();
    let change = |id: u64, kind: u32, start: u64, at: u64, blocks: u32| {
        let mut bytes = [0x44, 0x12, 1, 0, 1, 0, 0, 0].to_vec();
        for word in [id, ino.0, start, at] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(blocks.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        vec![bytes]
    };
    image.transaction(1, &[change(7, 2, 502, 2, 3), change(8, 1, 700, 2, 3)]);
    let recovered = image.recover().unwrap();
    let remap = recovered.remapped.get(ino, ForkKind::Data).unwrap();
    let shown: Vec<_> =
        remap.extents.iter().map(|extent| (extent.file.0, extent.block.0, extent.count)).collect();
    assert_eq!(shown, [(0, 500, 2), (2, 700, 3), (5, 505, 3)]);
    assert_eq!(remap.more_blocks, 0);
    image.transaction(2, &[change(9, 1, 800, 1, 3)]);
    let refusal = image.recover().err().unwrap().to_string();
    assert!(refusal.contains("have a place on the disk already"), "{refusal}");
}

/// An intent, or a done item, of a kind with this number and a list.
fn intent(kind: u16, id: u64, list: &[u64]) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.extend(kind.to_le_bytes());
    bytes.extend(1_u16.to_le_bytes());
    bytes.extend((list.len() as u32 / 2).to_le_bytes());
    bytes.extend(id.to_le_bytes());
    bytes.extend(list.iter().flat_map(|word| word.to_le_bytes()));
    vec![bytes]
}

#[test]
fn intents_without_their_done_items_are_reported() {
    let mut image = LogImage::new();
    image.transaction(1, &[intent(0x1236, 11, &[500, 3]), intent(0x1236, 12, &[600, 4, 700, 5])]);
    image.transaction(2, &[intent(0x1237, 11, &[500, 3])]);
    let recovered = image.recover().unwrap();
    let free = |start, blocks| Unfinished::Free { start: FsBlock(start), blocks };
    assert_eq!(recovered.recovery.unwrap().unfinished, [free(600, 4), free(700, 5)]);
}

#[test]
fn what_cannot_be_carried_out_is_refused_by_name() {
    let refusal = |item: Vec<Vec<u8>>| {
        let mut image = LogImage::new();
        image.transaction(1, &[item]);
        match image.recover() {
            Err(Error::Unsupported(what)) => what.into_owned(),
            other => panic!("{:?}", other.map(|recovered| recovered.recovery)),
        }
    };
    assert!(refusal(intent(0x1246, 1, &[])).contains("extended attribute"));
    assert!(refusal(intent(0x1248, 1, &[])).contains("exchange of file ranges"));
    assert!(refusal(intent(0x124A, 1, &[])).contains("real-time"));
    assert!(refusal(intent(0x1299, 1, &[])).contains("0x1299"));
    let mut image = LogImage::new();
    image.transaction(1, &[buffer_item(DADDR, 0, &[(0, 1)])]);
    image.change(0, |header| {
        header[300..304].copy_from_slice(&2_u32.to_be_bytes());
        header[32..36].fill(0);
    });
    let refusal = image.recover().err().unwrap().to_string();
    assert!(refusal.contains("checksum"), "{refusal}");
}

#[test]
fn a_host_of_another_byte_order_is_named() {
    let mut image = LogImage::new();
    let begin = image.transaction(1, &[buffer_item(DADDR, 0, &[(0, 1)])]);
    let blocks = image.head - begin - 1;
    let mut header = image.read_block(begin);
    let data: Vec<u8> = (0..blocks).flat_map(|block| image.read_block(begin + 1 + block)).collect();
    header[300..304].copy_from_slice(&2_u32.to_be_bytes());
    let bytes = RecordHeader::of(&header).data_bytes() as usize;
    seal(&mut header, &data[..bytes]);
    image.write_block(begin, &header);
    let refusal = image.recover().err().unwrap().to_string();
    assert!(refusal.contains("another byte order"), "{refusal}");
}

/// Each byte of a log in turn takes some other values, its checksum recomputed: the answer is data or one sentence.
#[test]
fn damage_with_right_checksums_does_no_harm() {
    let mut image = LogImage::new();
    image.transaction(
        1,
        &[buffer_item(DADDR, 10 << 11, &[(0, 1), (1, 1), (3, 4)]), intent(0x1236, 5, &[500, 3])],
    );
    let mut inode = vec![0; 56];
    inode[..8].copy_from_slice(&[0x3B, 0x12, 3, 0, 3, 0, 0, 0]);
    image.transaction(2, &[vec![inode, vec![0; 176], vec![0; 16]], vec![vec![0x3F, 0x12, 1, 0, 0, 0, 0, 0]]]);
    image.tail = Lsn(1 << 32);
    let ends = [0, image.head];
    let mut blocks: Vec<_> = (ends[0]..ends[1]).map(|block| image.read_block(block)).collect();
    let clean = blocks.clone();
    let headers: Vec<usize> =
        (0..blocks.len()).filter(|block| super::super::format::begins_record(&clean[*block])).collect();
    for (block, at) in (0..blocks.len()).flat_map(|block| (0..512).map(move |at| (block, at))) {
        for value in [0, 1, 0x7F, 0xFF] {
            blocks.clone_from(&clean);
            blocks[block][at] = value;
            for (index, &header) in headers.iter().enumerate() {
                let end = headers.get(index + 1).copied().unwrap_or(blocks.len());
                let bytes = RecordHeader::of(&clean[header]).data_bytes() as usize;
                let data: Vec<u8> = blocks[header + 1..end].concat();
                seal(&mut blocks[header], &data[..bytes]);
            }
            for (index, bytes) in blocks.iter().enumerate() {
                image.write_block(index as u32, bytes);
            }
            let _answer = image.recover().map(|recovered| recovered.recovery);
        }
    }
}
