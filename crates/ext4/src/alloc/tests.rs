//! Allocation on images of mke2fs; e2fsck counts afterwards.

use std::sync::Arc;

use undercroft_block::testing::Rng;
use undercroft_sync::atomic::Ordering;
use undercroft_vfs::{Error, FileType};

use super::group::GroupCell;
use super::*;
use crate::inode::{Inode, ROOT_INODE};
use crate::numbers::{FsBlock, Group};
use crate::options::WriteOptions;
use crate::superblock::State;
use crate::testing::images::Mke2fs;
use crate::testing::writable::Writable;
use crate::transaction::Seal;
use crate::writer::Mounted;

/// Images of many shapes.
fn shapes() -> Vec<(&'static str, Mke2fs)> {
    let ext4 = |mib| Mke2fs::new("ext4", mib);
    vec![
        ("default", ext4(300).features("^has_journal")),
        ("1k", ext4(40).block_bytes(1024).features("^has_journal")),
        ("2k, journal", ext4(64).block_bytes(2048)),
        ("64k", ext4(512).block_bytes(65536).features("^has_journal,^orphan_file")),
        ("32-bit", ext4(64).block_bytes(1024).features("^has_journal,^64bit")),
        ("crc16", ext4(64).block_bytes(1024).features("^has_journal,^metadata_csum,uninit_bg")),
        ("no sums", ext4(64).block_bytes(1024).features("^has_journal,^metadata_csum,^uninit_bg")),
        ("no flex", ext4(64).block_bytes(1024).features("^has_journal,^flex_bg")),
        ("meta_bg", ext4(64).block_bytes(1024).features("^has_journal,meta_bg,^resize_inode")),
        ("sparse_super2", ext4(64).block_bytes(1024).features("^has_journal,sparse_super2,^resize_inode")),
        ("small inodes", ext4(64).block_bytes(1024).inode_bytes(128).features("^has_journal")),
        ("ext2", Mke2fs::new("ext2", 64).block_bytes(1024)),
        ("ext3", Mke2fs::new("ext3", 64)),
    ]
}

fn allocator(writable: &Writable) -> Arc<Allocator> {
    Arc::clone(&writable.volume.writer().unwrap().allocator)
}

/// Blocks and inodes come and go, and in the end none is lost.
#[test]
fn what_is_given_back_leaves_the_image_as_it_was() {
    for (name, mke2fs) in shapes() {
        let writable = Writable::make(&mke2fs);
        let (volume, allocator) = (&writable.volume, allocator(&writable));
        let (blocks, inodes) = (allocator.free_blocks(), allocator.free_inodes());
        let groups = volume.superblock().geometry().groups();
        let mut taken = Vec::new();
        for group in 0..groups {
            let handle = volume.start(20).unwrap();
            let goal = volume.superblock().geometry().group_start(Group(group));
            let (first, count) = allocator.allocate(&handle, goal, 77, Purpose::Data).unwrap();
            assert!((1..=77).contains(&count));
            taken.push((first, count));
            let mut reserved = allocator.reserve(volume, first, 10, 1).unwrap();
            let one = allocator.take(&handle, &mut reserved, 1).unwrap();
            taken.push((one, 1));
        }
        let handle = volume.start(1000).unwrap();
        let numbers: Vec<_> = (0..100)
            .map(|n| {
                let kind = if n % 2 == 0 { FileType::Directory } else { FileType::Regular };
                (allocator.new_inode(&handle, ROOT_INODE, kind).unwrap().number, n % 2 == 0)
            })
            .collect();
        drop(handle);
        let given: u64 = taken.iter().map(|(_, count)| count).sum();
        assert_eq!(allocator.free_blocks(), blocks - given, "{name}");
        assert_eq!(allocator.free_inodes(), inodes - 100, "{name}");
        writable.commit();
        let handle = volume.start(1000).unwrap();
        taken.iter().for_each(|(first, count)| allocator.free(&handle, *first, *count).unwrap());
        numbers.iter().for_each(|(number, dir)| allocator.free_inode(&handle, *number, *dir).unwrap());
        assert_eq!((allocator.free_blocks(), allocator.freed_pending()), (blocks, given), "{name}");
        drop(handle);
        writable.commit();
        assert_eq!((allocator.free_blocks(), allocator.freed_pending()), (blocks, 0), "{name}");
        assert_eq!(allocator.free_inodes(), inodes, "{name}");
        let image = writable.close();
        if let Err(error) = image.check() {
            panic!("{name}: {error}");
        }
    }
}

/// The owner of each block: none is given out that has an owner, or that is the filesystem's own.
struct Owners(Vec<std::sync::atomic::AtomicBool>);

impl Owners {
    fn take(&self, first: FsBlock, count: u64) {
        for block in first.0..first.0 + count {
            assert!(!self.0[block as usize].swap(true, Ordering::SeqCst), "block {block} is given out twice");
        }
    }

    fn give(&self, first: FsBlock, count: u64) {
        for block in first.0..first.0 + count {
            assert!(self.0[block as usize].swap(false, Ordering::SeqCst));
        }
    }
}

/// Threads allocate, reserve, take and free at random while transactions are committed. In the end all is given back,
/// and e2fsck finds the image as it was.
#[test]
fn threads_never_get_the_same_block() {
    for (name, mke2fs) in shapes().into_iter().filter(|(name, _)| ["1k", "crc16", "no flex"].contains(name)) {
        let writable = Writable::make(&mke2fs);
        let (volume, allocator) = (&writable.volume, allocator(&writable));
        let blocks = volume.superblock().geometry().blocks();
        let before = allocator.free_blocks();
        let owners = Owners((0..blocks).map(|_| Default::default()).collect());
        for range in allocator.cells.iter().flat_map(GroupCell::own_blocks) {
            owners.take(FsBlock(range.start), range.end - range.start);
        }
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (allocator, owners) = (&allocator, &owners);
                scope.spawn(move || work(volume, allocator, owners, &mut Rng::new(0x9E37 + thread), blocks));
            }
            for _ in 0..20 {
                std::thread::sleep(std::time::Duration::from_millis(5));
                writable.commit();
            }
        });
        writable.commit();
        assert_eq!((allocator.free_blocks(), allocator.freed_pending()), (before, 0), "{name}");
        if let Err(error) = writable.close().check() {
            panic!("{name}: {error}");
        }
    }
}

fn work(volume: &Mounted, allocator: &Arc<Allocator>, owners: &Owners, random: &mut Rng, blocks: u64) {
    let mut mine: Vec<(FsBlock, u64)> = Vec::new();
    for step in 0..3000 {
        let handle = volume.start(ALLOCATE_CREDITS * 2).unwrap();
        let goal = FsBlock(random.below(blocks + 100));
        let most = 1 << random.below(10);
        let want = 1 + random.below(most);
        match random.below(if step < 2000 { 4 } else { 8 }) {
            0 | 1 => {
                if let Ok((first, count)) = allocator.allocate(&handle, goal, want, Purpose::Data) {
                    owners.take(first, count);
                    mine.push((first, count));
                }
            }
            2 => {
                if let Ok(mut reserved) = allocator.reserve(volume, goal, want, 1) {
                    owners.take(reserved.first(), reserved.len());
                    let count = random.below(reserved.len() + 1);
                    if count > 0 {
                        let first = allocator.take(&handle, &mut reserved, count).unwrap();
                        mine.push((first, count));
                    }
                    owners.give(reserved.first(), reserved.len());
                }
            }
            _ if !mine.is_empty() => {
                let (first, count) = mine.swap_remove(random.below(mine.len() as u64) as usize);
                // What is freed is not given out before the commit, so the owner is gone before.
                owners.give(first, count);
                allocator.free(&handle, first, count).unwrap();
            }
            _ => {}
        }
    }
    for (first, count) in mine {
        let handle = volume.start(ALLOCATE_CREDITS * 2).unwrap();
        owners.give(first, count);
        allocator.free(&handle, first, count).unwrap();
    }
}

/// Data gets every block but those held back, metadata gets these too, and what is freed comes back after a commit.
#[test]
fn the_last_block_is_found_and_then_there_is_none() {
    let writable =
        Writable::make(&Mke2fs::new("ext4", 16).block_bytes(1024).features("^has_journal").args(["-m", "2"]));
    let (volume, allocator) = (&writable.volume, allocator(&writable));
    let free = allocator.free_blocks();
    let held = allocator.held_back();
    assert!(held > volume.superblock().geometry().reserved_blocks());
    let fill = |want, purpose| {
        let mut taken = Vec::new();
        loop {
            let handle = volume.start(ALLOCATE_CREDITS).unwrap();
            match allocator.allocate(&handle, FsBlock(5000), want, purpose) {
                Ok(run) => taken.push(run),
                Err(Error::NoSpace) => return taken,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let count = |runs: &[(FsBlock, u64)]| runs.iter().map(|(_, count)| count).sum::<u64>();
    let data = fill(300, Purpose::Data);
    assert_eq!(count(&data), free - held);
    assert!(matches!(allocator.reserve(volume, FsBlock(1), 1, 1), Err(Error::NoSpace)));
    let metadata = fill(7, Purpose::Metadata);
    assert_eq!((count(&metadata), allocator.free_blocks()), (held, 0));
    let handle = volume.start(100).unwrap();
    let (first, freed) = data[0];
    allocator.free(&handle, first, freed).unwrap();
    assert_eq!((allocator.freed_pending(), allocator.free_blocks()), (freed, freed));
    assert!(matches!(allocator.allocate(&handle, first, 1, Purpose::Metadata), Err(Error::NoSpace)));
    drop(handle);
    writable.commit();
    let handle = volume.start(100).unwrap();
    assert_eq!(allocator.allocate(&handle, first, freed, Purpose::Metadata).unwrap(), (first, freed));
    for (first, count) in data.into_iter().chain(metadata) {
        allocator.free(&handle, first, count).unwrap();
    }
    drop(handle);
    writable.finish();
}

#[test]
fn the_last_inode_is_found_and_then_there_is_none() {
    let writable =
        Writable::make(&Mke2fs::new("ext4", 16).block_bytes(1024).inodes(256).features("^has_journal"));
    let (volume, allocator) = (&writable.volume, allocator(&writable));
    let free = allocator.free_inodes();
    let mut numbers = std::collections::BTreeSet::new();
    loop {
        let handle = volume.start(NEW_INODE_CREDITS).unwrap();
        match allocator.new_inode(&handle, ROOT_INODE, FileType::Regular) {
            Ok(new) => assert!(numbers.insert(new.number), "{} is given out twice", new.number),
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((numbers.len() as u64, allocator.free_inodes()), (free, 0));
    assert!(*numbers.first().unwrap() >= volume.superblock().geometry().first_inode());
    for number in numbers {
        let handle = volume.start(FREE_INODE_CREDITS).unwrap();
        allocator.free_inode(&handle, number, false).unwrap();
        assert!(
            matches!(allocator.free_inode(&handle, number, false), Err(Error::Corrupt(_))),
            "freed twice"
        );
    }
    writable.finish();
}

#[test]
fn what_is_no_files_is_not_freed() {
    let writable = Writable::make(&Mke2fs::new("ext4", 64).block_bytes(1024));
    let (volume, allocator) = (&writable.volume, allocator(&writable));
    let handle = volume.start(100).unwrap();
    let journal = Inode::read(volume, volume.superblock().journal_inode().unwrap()).unwrap();
    let (_, in_journal, _) = crate::map::collect_whole(volume, &journal, 1).unwrap()[0];
    let cell = &allocator.cells[1];
    let unused = allocator.reserve(volume, FsBlock(20_000), 1, 1).unwrap();
    for wrong in [
        FsBlock(0),
        FsBlock(1),
        cell.block_bitmap,
        cell.inode_table,
        in_journal,
        unused.first(),
        FsBlock(1 << 40),
    ] {
        assert!(matches!(allocator.free(&handle, wrong, 1), Err(Error::Corrupt(_))), "{wrong}");
    }
    assert!(matches!(allocator.free(&handle, FsBlock(20_000), u64::MAX), Err(Error::Corrupt(_))));
    for wrong in [0, 1, 2, 8, 10, u32::MAX] {
        assert!(matches!(allocator.free_inode(&handle, wrong, true), Err(Error::Corrupt(_))), "{wrong}");
    }
    drop((handle, unused));
    writable.finish();
}

/// A group with a damaged bitmap is passed over, takes nothing back, and the superblock asks for e2fsck.
#[test]
fn a_damaged_group_is_passed_over() {
    let writable = Writable::make(&Mke2fs::new("ext4", 64).block_bytes(1024).features("^has_journal"));
    let bitmap = allocator(&writable).cells[0].block_bitmap.0;
    let image = writable.close();
    {
        use std::os::unix::fs::FileExt;
        let file = std::fs::OpenOptions::new().write(true).open(image.path()).unwrap();
        file.write_all_at(&[0xff], bitmap * 1024 + 1000).unwrap();
    }
    let writable = Writable::open(image, WriteOptions::default());
    let (volume, allocator) = (&writable.volume, allocator(&writable));
    let start = volume.superblock().geometry().group_start(Group(0));
    let free = allocator.free_blocks();
    let handle = volume.start(100).unwrap();
    let (first, _) = allocator.allocate(&handle, start, 1, Purpose::Data).unwrap();
    assert_ne!(allocator.cell_of(first).number, Group(0));
    let not_counted = u64::from(allocator.descriptor(Group(0)).free_clusters);
    assert_eq!(allocator.free_blocks(), free - not_counted - 1);
    allocator.free(&handle, first, 1).unwrap();
    allocator.free(&handle, FsBlock(start.0 + 6000), 1).unwrap();
    drop(handle);
    writable.commit();
    let superblock = crate::superblock::Superblock::read(&**volume.device()).unwrap();
    assert!(superblock.state().contains(State::ERRORS));
}

/// A bitmap that turns out wrong when a number is taken costs its group, for files as for directories.
#[test]
fn damage_that_shows_late_costs_the_group_and_no_more() {
    for kind in [FileType::Regular, FileType::Directory] {
        let writable = Writable::make(&Mke2fs::new("ext4", 64).block_bytes(1024).features("^has_journal"));
        let (volume, allocator) = (&writable.volume, allocator(&writable));
        let handle = volume.start(1000).unwrap();
        let group_of = |number: u32| (number - 1) / allocator.inodes_per_group;
        let parent = allocator.new_inode(&handle, ROOT_INODE, FileType::Regular).unwrap().number;
        let cell = &allocator.cells[group_of(parent) as usize];
        handle.change(cell.inode_bitmap, Seal::Plain, |bitmap| bitmap.fill(0xff)).unwrap();
        for _ in 0..3 {
            let number = allocator.new_inode(&handle, parent, kind).unwrap().number;
            assert_ne!(group_of(number), group_of(parent));
        }
        assert!(allocator.damaged.load(Ordering::Relaxed));
    }
}

/// Free blocks are discarded and stay free; blocks in use keep their content.
#[test]
fn trimming_discards_free_blocks_only() {
    let writable = Writable::make(&Mke2fs::new("ext4", 64).block_bytes(1024));
    let (volume, allocator) = (&writable.volume, allocator(&writable));
    let handle = volume.start(100).unwrap();
    let (first, count) = allocator.allocate(&handle, FsBlock(30_000), 100, Purpose::Data).unwrap();
    let data = vec![7; count as usize * 1024];
    volume.device().write_at(first.0 * 1024, &data).unwrap();
    drop(handle);
    let free = allocator.free_blocks();
    assert_eq!(allocator.trim(volume, 0..u64::MAX, 0).unwrap(), free * 1024);
    assert_eq!(allocator.trim(volume, first.0 * 1024..(first.0 + count) * 1024, 0).unwrap(), 0);
    assert!(allocator.trim(volume, 0..u64::MAX, 8 << 20).unwrap() < free * 1024);
    assert_eq!(allocator.free_blocks(), free);
    let mut found = vec![0; data.len()];
    volume.device().read_at(first.0 * 1024, &mut found).unwrap();
    assert!(found == data);
    allocator.free(&volume.start(100).unwrap(), first, count).unwrap();
    writable.finish();
}

/// Directories at the top are spread, and what is in them stays with them.
#[test]
fn directories_at_the_top_are_spread() {
    let writable = Writable::make(&Mke2fs::new("ext4", 256).block_bytes(1024).features("^has_journal"));
    let (volume, allocator) = (&writable.volume, allocator(&writable));
    let per_group = volume.superblock().geometry().inodes_per_group();
    let flex = |number: u32| (number - 1) / per_group / allocator.flex_groups;
    let handle = volume.start(1000).unwrap();
    let mut made = Vec::new();
    let mut new = |parent, kind| {
        let number = allocator.new_inode(&handle, parent, kind).unwrap().number;
        made.push((number, kind == FileType::Directory));
        number
    };
    let top: Vec<u32> = (0..8).map(|_| new(ROOT_INODE, FileType::Directory)).collect();
    let places: std::collections::BTreeSet<u32> = top.iter().map(|number| flex(*number)).collect();
    assert!(places.len() >= 2, "{top:?}");
    for dir in top {
        let inner = new(dir, FileType::Directory);
        assert_eq!(flex(inner), flex(dir));
        let file = new(inner, FileType::Regular);
        assert_eq!((file - 1) / per_group, (inner - 1) / per_group);
    }
    made.into_iter()
        .for_each(|(number, directory)| allocator.free_inode(&handle, number, directory).unwrap());
    drop(handle);
    writable.finish();
}
