//! A tree of free space of two levels, made in memory: looked up, walked both ways, and damaged.

use undercroft_block::{BlockDevice, MemoryDevice};

use super::kinds::FreeExtent;
use super::*;
use crate::format::block_header::HeaderKind;
use crate::format::{Superblock, crc, testing};

const ROOT: u32 = 99;
const LEAVES: u32 = 3;
const IN_LEAF: u32 = 10;

/// The nth free extent: two blocks of every ten.
fn extent(n: u32) -> FreeExtent {
    FreeExtent { start: AgBlock(1000 + n * 10), count: 2 }
}

fn block(superblock: &Superblock, at: u32, level: u16, siblings: [u32; 2], records: &[[u32; 2]]) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &BySpace::MAGIC[1].to_be_bytes());
    put(4, &level.to_be_bytes());
    put(6, &(records.len() as u16).to_be_bytes());
    put(8, &siblings[0].to_be_bytes());
    put(12, &siblings[1].to_be_bytes());
    let group_start = u64::from(superblock.geometry().ag_blocks());
    put(16, &((group_start + u64::from(at)) * 8).to_be_bytes());
    put(32, superblock.meta_uuid().as_bytes());
    put(48, &1_u32.to_be_bytes());
    for (n, [start, count]) in records.iter().enumerate() {
        put(56 + n * 8, &start.to_be_bytes());
        put(60 + n * 8, &count.to_be_bytes());
        if level > 0 {
            // 336 keys of 8 bytes with pointers of 4 fit behind the header.
            put(56 + 336 * 8 + n * 4, &(ROOT + 1 + n as u32).to_be_bytes());
        }
    }
    bytes
}

/// A volume with the tree in group 1, each of whose blocks a test may change before its checksum is made.
fn volume(change: impl Fn(u32, &mut [u8])) -> Volume {
    let device = Arc::new(MemoryDevice::new(512 << 20));
    device.write_at(0, &testing::superblock_sector(|_| {})).unwrap();
    let superblock = Superblock::read(&*device).unwrap();
    let write = |at: u32, mut bytes: Vec<u8>| {
        change(at, &mut bytes);
        crc::seal(&mut bytes, HeaderKind::ShortBtree.crc_offset());
        device
            .write_at((u64::from(superblock.geometry().ag_blocks()) + u64::from(at)) * 4096, &bytes)
            .unwrap();
    };
    let mut keys = Vec::new();
    for leaf in 0..LEAVES {
        let records: Vec<_> =
            (0..IN_LEAF).map(|n| extent(leaf * IN_LEAF + n)).map(|e| [e.start.0, e.count]).collect();
        keys.push(records[0]);
        let at = ROOT + 1 + leaf;
        let left = if leaf == 0 { u32::MAX } else { at - 1 };
        let right = if leaf + 1 == LEAVES { u32::MAX } else { at + 1 };
        write(at, block(&superblock, at, 0, [left, right], &records));
    }
    write(ROOT, block(&superblock, ROOT, 1, [u32::MAX; 2], &keys));
    Volume::new(device, superblock, 1 << 20)
}

fn tree(volume: &Volume) -> Btree<'_, BySpace> {
    Btree::in_ag(volume, AgNumber(1), AgBlock(ROOT), 2).unwrap()
}

#[test]
fn lookups_find_the_neighbours_of_a_key() {
    let volume = volume(|_, _| {});
    let tree = tree(&volume);
    let mut cursor = tree.cursor();
    let last = LEAVES * IN_LEAF - 1;
    for n in 0..=last {
        let key = extent(n).start;
        let (before, after) = (AgBlock(key.0 - 1), AgBlock(key.0 + 1));
        assert_eq!(cursor.lookup_eq(&key).unwrap(), Some(extent(n)));
        assert_eq!(cursor.lookup_eq(&after).unwrap(), None);
        assert_eq!(cursor.lookup_ge(&key).unwrap(), Some(extent(n)));
        assert_eq!(cursor.lookup_ge(&before).unwrap(), Some(extent(n)));
        assert_eq!(cursor.lookup_ge(&after).unwrap(), (n < last).then(|| extent(n + 1)));
        assert_eq!(cursor.lookup_le(&key).unwrap(), Some(extent(n)));
        assert_eq!(cursor.lookup_le(&after).unwrap(), Some(extent(n)));
        assert_eq!(cursor.lookup_le(&before).unwrap(), n.checked_sub(1).map(extent));
    }
    assert_eq!(cursor.last().unwrap(), Some(extent(last)));
    assert_eq!(cursor.increment().unwrap(), None);
    assert_eq!(cursor.increment().unwrap(), None, "a cursor that stands nowhere stays there");
}

#[test]
fn walks_meet_each_record_once_in_order() {
    let volume = volume(|_, _| {});
    let tree = tree(&volume);
    let mut forward = Vec::new();
    tree.for_each(|record| {
        forward.push(record);
        Ok(())
    })
    .unwrap();
    assert_eq!(forward, (0..LEAVES * IN_LEAF).map(extent).collect::<Vec<_>>());
    let mut cursor = tree.cursor();
    let mut backward: Vec<_> = cursor.last().unwrap().into_iter().collect();
    while let Some(record) = cursor.decrement().unwrap() {
        backward.push(record);
    }
    backward.reverse();
    assert_eq!(backward, forward);
    let mut blocks = Vec::new();
    tree.for_each_block(|block, level| {
        blocks.push((volume.geometry().split(block).unwrap().1.0, level));
        Ok(())
    })
    .unwrap();
    assert_eq!(blocks, [(ROOT, 1), (ROOT + 1, 0), (ROOT + 2, 0), (ROOT + 3, 0)]);
}

/// What a walk through a damaged tree says.
fn refusal(change: impl Fn(u32, &mut [u8])) -> String {
    let volume = volume(change);
    tree(&volume).for_each(|_| Ok(())).unwrap_err().to_string()
}

#[test]
fn damage_is_reported_where_a_walk_reads_it() {
    /// A change of a block, by its number.
    type Change = fn(u32, &mut [u8]);
    let cases: [(&str, Change); 11] = [
        ("magic number", |at, bytes| bytes[3] ^= u8::from(at == ROOT + 1)),
        ("in the place of one of level 0", |at, bytes| bytes[5] ^= u8::from(at == ROOT + 1)),
        ("holds 0 records", |at, bytes| bytes[7] = if at == ROOT + 2 { 0 } else { bytes[7] }),
        ("it has room for", |at, bytes| bytes[6] |= u8::from(at == ROOT) << 7),
        ("is not the sibling of", |at, bytes| bytes[11] ^= u8::from(at == ROOT + 2)),
        ("has siblings", |at, bytes| bytes[15] ^= u8::from(at == ROOT)),
        ("lies at sector", |at, bytes| bytes[23] ^= u8::from(at == ROOT + 3)),
        ("belongs to 0", |at, bytes| bytes[51] ^= u8::from(at == ROOT + 3)),
        ("out of order", |at, bytes| bytes[58] ^= u8::from(at == ROOT + 1) << 7),
        ("of its parent", |at, bytes| bytes[59] ^= u8::from(at == ROOT + 2)),
        ("leads out of the filesystem", |at, bytes| {
            if at == ROOT {
                bytes[56 + 336 * 8] = 0xff;
            }
        }),
    ];
    for (word, change) in cases {
        let refusal = refusal(change);
        assert!(refusal.contains(word), "{word}: {refusal}");
    }
    let end = 56 + (IN_LEAF as usize - 1) * 8;
    let overlap = refusal(|at, bytes| {
        if at == ROOT + 1 {
            bytes[end..end + 4].copy_from_slice(&5000_u32.to_be_bytes());
        }
    });
    assert!(overlap.contains("the key of the block after it"), "{overlap}");
    let beyond = refusal(|at, bytes| {
        if at == ROOT + 3 {
            bytes[12..16].copy_from_slice(&(ROOT + 4).to_be_bytes());
        }
    });
    assert!(beyond.contains("no parent leads"), "{beyond}");
    // The last extent of a leaf ends where the second of the next leaf begins.
    let long = refusal(|at, bytes| {
        if at == ROOT + 1 {
            bytes[end + 4..end + 8].copy_from_slice(&20_u32.to_be_bytes());
        }
    });
    assert!(long.contains("the end of the leaf before it"), "{long}");
    let outside = refusal(|at, bytes| {
        if at == ROOT + 3 {
            bytes[end + 4..end + 8].copy_from_slice(&0x7000_0000_u32.to_be_bytes());
        }
    });
    assert!(outside.contains("does not lie in group 1"), "{outside}");
}

#[test]
fn a_root_that_cannot_be_is_refused() {
    let volume = volume(|_, _| {});
    let open = |root, levels| Btree::<BySpace>::in_ag(&volume, AgNumber(1), AgBlock(root), levels);
    assert!(open(40_000, 2).is_err());
    assert!(open(ROOT, 0).is_err());
    assert!(open(ROOT, 40).is_err());
    let fork: Arc<[u8]> = [0xff; 8].into();
    assert!(Btree::<Bmbt>::in_fork(&volume, Ino(128), &fork).is_err());
    let fork: Arc<[u8]> = [].into();
    assert!(Btree::<Bmbt>::in_fork(&volume, Ino(128), &fork).is_err());
}
