//! Damaged directories: right answers or errors with checksums, nothing worse than misses without.

#[cfg(feature = "oracle")]
use std::io::Write;

use undercroft_block::testing::Rng;
use undercroft_vfs::{Credentials, Error, Vfs, VfsOptions};
#[cfg(feature = "oracle")]
use undercroft_vfs::{NewKind, NewObject};

use super::*;
use crate::{Ext4, OpenOptions, WriteOptions};

const NAMES: usize = 1500;

/// A directory whose index has an inner level, and its blocks.
fn indexed(features: &str) -> (Loaded, Vec<u64>) {
    let mke2fs = Mke2fs::new("ext4", 16).block_bytes(1024).inodes(2048).features(features);
    let image = image(mke2fs, |root| touch(&root.join("d"), long_names(NAMES)));
    index_directories(&image);
    let loaded = Loaded::new(&image);
    let blocks = loaded.blocks("/d");
    let mut levels = [0];
    loaded.base.read_at(loaded.byte(blocks[0], ROOT_LEVELS), &mut levels).unwrap();
    assert_eq!(levels, [1]);
    (loaded, blocks)
}

/// Changes one to four bytes of the block.
fn scribble(random: &mut Rng, device: &dyn BlockDevice, start: u64, len: u64) {
    for _ in 0..=random.below(4) {
        let at = start + random.below(len);
        let value = [0, 1, 0xff, random.below(256) as u8][random.below(4) as usize];
        device.write_at(at, &[value]).unwrap();
    }
}

#[test]
fn with_checksums_every_answer_is_right_or_corrupt() {
    let (loaded, blocks) = indexed("metadata_csum");
    let good = loaded.open();
    let truth = names(&good, &inode(&good, "d"));
    let all: Vec<_> = truth.iter().collect();
    let mut random = Rng::new(0x5EED);
    let mut refused = 0;
    for round in 0..2000 {
        // The root and the inner nodes are few: every third round is theirs.
        let block =
            if round % 3 == 0 { blocks[0] } else { blocks[random.below(blocks.len() as u64) as usize] };
        let volume = loaded.open_changed(|device| {
            scribble(&mut random, device, loaded.byte(block, 0), loaded.block_bytes);
        });
        let directory = inode(&volume, "d");
        let (listed, end) = list_some(&volume, &directory, 0, usize::MAX);
        for entry in &listed {
            assert_eq!(truth.get(&entry.name), Some(&entry.ino), "round {round}: a wrong entry was listed");
        }
        match end {
            Ok(()) => assert_eq!(listed.len(), truth.len(), "round {round}: entries are missing"),
            Err(error) => assert!(matches!(error, Error::Corrupt(_)), "round {round}: {error}"),
        }
        for _ in 0..20 {
            let (name, ino) = all[random.below(all.len() as u64) as usize];
            match lookup(&volume, &directory, name) {
                Ok(found) => assert_eq!(found, Some(*ino), "round {round}"),
                Err(Error::Corrupt(_)) => refused += 1,
                Err(error) => panic!("round {round}: {error}"),
            }
        }
    }
    assert!(refused > 1000, "only {refused} lookups met the damage");
}

#[test]
fn without_checksums_damage_ends_in_an_answer() {
    let (loaded, blocks) = indexed("^metadata_csum,^uninit_bg");
    let good = loaded.open();
    let truth = names(&good, &inode(&good, "d"));
    let all: Vec<_> = truth.iter().collect();
    let mut random = Rng::new(0xBAD);
    let (mut found, mut corrupt) = (0, 0);
    for round in 0..3000 {
        let volume = loaded.open_changed(|device| {
            for _ in 0..=random.below(3) {
                let among = if round % 3 == 0 { 1 } else { blocks.len() as u64 };
                let start = loaded.byte(blocks[random.below(among) as usize], 0);
                scribble(&mut random, device, start, loaded.block_bytes);
            }
        });
        let directory = inode(&volume, "d");
        let (_, end) = list_some(&volume, &directory, random.below(200_000), usize::MAX);
        corrupt += u32::from(matches!(end, Err(Error::Corrupt(_))));
        for _ in 0..5 {
            let (name, ino) = all[random.below(all.len() as u64) as usize];
            found += u32::from(lookup(&volume, &directory, name).is_ok_and(|found| found == Some(*ino)));
        }
    }
    assert!(found > 10_000, "only {found} of 15,000 lookups found their name");
    assert!(corrupt > 100, "only {corrupt} of 3,000 listings met the damage");
}

/// Offsets in the root block of what follows `.` and `..`.
const ROOT_RESERVED: u64 = 24;
const ROOT_HASH_VERSION: u64 = 28;
const ROOT_LEVELS: u64 = 30;
const ROOT_FLAGS: u64 = 31;
const ROOT_COUNT: u64 = 34;
const ROOT_FIRST_CHILD: u64 = 36;

/// Damage that makes an index useless: what it is, the block, where in it, and the bytes.
fn useless_indexes(loaded: &Loaded, blocks: &[u64]) -> [(&'static str, u64, u64, &'static [u8]); 9] {
    // The block of an inner node, in the place that the root's first entry leads to.
    let mut child = [0; 4];
    loaded.base.read_at(loaded.byte(blocks[0], ROOT_FIRST_CHILD), &mut child).unwrap();
    let inner = blocks[u32::from_le_bytes(child) as usize];
    [
        ("a root of an unknown kind", blocks[0], ROOT_RESERVED, &[1]),
        ("an unknown hash", blocks[0], ROOT_HASH_VERSION, &[200]),
        ("too many levels", blocks[0], ROOT_LEVELS, &[2]),
        ("unknown flags", blocks[0], ROOT_FLAGS, &[1]),
        ("no entries", blocks[0], ROOT_COUNT, &[0, 0]),
        ("more entries than fit", blocks[0], ROOT_COUNT, &[0xff, 0xff]),
        ("a child past the end", blocks[0], ROOT_FIRST_CHILD, &[0xff, 0xff, 0xff, 0x0f]),
        ("a child that is a leaf", blocks[0], ROOT_FIRST_CHILD, &[1, 0, 0, 0]),
        ("an inner node without entries", inner, 10, &[0, 0]),
    ]
}

#[test]
fn an_unusable_index_is_ignored_by_lookups() {
    let (loaded, blocks) = indexed("^metadata_csum,^uninit_bg");
    let good = loaded.open();
    let truth = names(&good, &inode(&good, "d"));
    for (what, block, at, bytes) in useless_indexes(&loaded, &blocks) {
        let volume = loaded.open_changed(|device| {
            device.write_at(loaded.byte(block, at), bytes).unwrap();
        });
        let directory = inode(&volume, "d");
        for (name, ino) in truth.iter().step_by(7) {
            assert_eq!(lookup(&volume, &directory, name).unwrap(), Some(*ino), "{what}");
        }
        assert_eq!(names(&volume, &directory), truth, "{what}");
    }
}

/// What a look-up finds is listed, and can be removed.
#[test]
fn an_unusable_index_is_ignored_by_changes() {
    let (loaded, blocks) = indexed("^metadata_csum,^uninit_bg");
    let good = loaded.open();
    let truth: Vec<_> = names(&good, &inode(&good, "d")).into_keys().collect();
    for (what, block, at, bytes) in useless_indexes(&loaded, &blocks) {
        let mut image = vec![0; loaded.base.size_bytes() as usize];
        loaded.base.read_at(0, &mut image).unwrap();
        let device = MemoryDevice::from_bytes(image, Access::ReadWrite);
        device.write_at(loaded.byte(block, at), bytes).unwrap();
        let fs = Ext4::open(Arc::new(device), OpenOptions::default(), WriteOptions::default()).unwrap();
        let vfs = Vfs::new(fs, VfsOptions::default());
        let dir = vfs.lookup(&vfs.root().unwrap(), b"d").unwrap();
        let listed = || {
            let mut listed = Vec::new();
            let mut next = DirOffset(0);
            // A few at a time, as programs read directories.
            loop {
                let before = listed.len();
                dir.read_dir(next, &mut |entry| {
                    next = entry.next;
                    listed.push(entry.name.to_vec());
                    if listed.len() == before + 50 {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                })
                .unwrap_or_else(|error| panic!("{what}: {error}"));
                if listed.len() == before {
                    listed.sort_unstable();
                    return listed;
                }
            }
        };
        assert_eq!(listed(), truth, "{what}");
        let (gone, stays): (Vec<_>, Vec<_>) =
            truth.iter().cloned().enumerate().partition(|(at, name)| at % 50 == 0 && !name.starts_with(b"."));
        for (_, name) in &gone {
            let removed = vfs.unlink(&Credentials::root(), &dir, name);
            removed.unwrap_or_else(|error| panic!("{what}, {}: {error}", name.escape_ascii()));
        }
        assert!(gone.len() > 10);
        assert!(listed().iter().eq(stays.iter().map(|(_, name)| name)), "{what}");
    }
}

/// A bitmap that calls the root of a directory's index free, and nothing else.
#[cfg(feature = "oracle")]
#[test]
fn an_index_whose_root_is_allocated_again_is_an_error_or_correct() {
    let name = |number: usize| format!("{number:0>200}").replace('0', "x").into_bytes();
    let mke2fs =
        Mke2fs::new("ext2", 4).block_bytes(1024).features("dir_index").inodes(1024).args(["-m", "0"]);
    let image = mke2fs.make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    let dir = mount.path().join("d");
    std::fs::create_dir(&dir).unwrap();
    touch(&dir, (0..40).map(|number| String::from_utf8(name(number)).unwrap()));
    let mut filling = std::fs::File::create(mount.path().join("filling")).unwrap();
    // A block at a time, or the last ones stay free.
    while filling.write_all(&[1; 1024]).is_ok() {}
    drop(filling);
    mount.unmount().unwrap();
    let root = image.debugfs("bmap /d 0").unwrap();
    let free = ["set_bg 0 free_blocks_count 1", "set_super_value free_blocks_count 1"];
    image.debugfs_write(&[&format!("freeb {}", root.trim()), free[0], free[1]]).unwrap();
    let device = MemoryDevice::from_bytes(std::fs::read(image.path()).unwrap(), Access::ReadWrite);
    let fs = Ext4::open(Arc::new(device), OpenOptions::default(), WriteOptions::default()).unwrap();
    let vfs = Vfs::new(fs, VfsOptions::default());
    let (who, dir) = (Credentials::root(), vfs.lookup(&vfs.root().unwrap(), b"d").unwrap());
    let object = NewObject { kind: NewKind::Regular, permissions: 0o644, umask: 0 };
    let refusal = (40..200).find_map(|number| vfs.create(&who, &dir, &name(number), &object).err());
    let refusal = refusal.unwrap().to_string();
    assert!(refusal.contains("in use for something else as well"), "{refusal}");
    let next = vfs.create(&who, &vfs.root().unwrap(), b"more", &object).map(drop);
    assert!(matches!(next, Err(Error::TurnedReadOnly(_))), "{next:?}");
}

#[test]
fn names_before_the_damage_are_found() {
    let mke2fs = Mke2fs::new("ext2", 4).block_bytes(1024);
    let image = image(mke2fs, |root| touch(&root.join("d"), ["aa", "bb", "cc", "dd"]));
    let loaded = Loaded::new(&image);
    let block = loaded.blocks("/d")[0];
    // `.`, `..`, then entries of 12 bytes; the third one's length now leads past the block.
    let third = loaded.byte(block, 24 + 2 * 12);
    let volume = loaded.open_changed(|device| device.write_at(third + 4, &[0, 0x70]).unwrap());
    let directory = inode(&volume, "d");
    let (listed, end) = list_some(&volume, &directory, 0, usize::MAX);
    assert_eq!(listed.len(), 4);
    let before = listed.last().unwrap();
    assert_eq!(lookup(&volume, &directory, &before.name).unwrap(), Some(before.ino));
    for error in [end.unwrap_err(), lookup(&volume, &directory, b"no such name").unwrap_err()] {
        let Error::Corrupt(corruption) = error else { panic!("{error}") };
        assert_eq!(corruption.ino.map(|ino| ino.0), Some(u64::from(directory.number)));
        assert_eq!(corruption.block, Some(block));
        assert!(corruption.detail.contains("byte 48"), "{corruption}");
    }
}

#[test]
fn entries_that_no_file_can_have_are_refused() {
    let mke2fs = Mke2fs::new("ext2", 4).block_bytes(1024);
    let image = image(mke2fs, |root| touch(&root.join("d"), ["aa"]));
    let loaded = Loaded::new(&image);
    let entry = loaded.byte(loaded.blocks("/d")[0], 24);
    let cases: [(&str, u64, &[u8]); 6] = [
        ("reserved inode", 0, &8_u32.to_le_bytes()),
        ("inode past the last", 0, &u32::MAX.to_le_bytes()),
        ("no name", 6, &[0]),
        ("a slash", 8, b"/"),
        ("NUL", 9, &[0]),
        ("shorter than its header and name", 4, &[8, 0]),
    ];
    for (what, at, bytes) in cases {
        let volume = loaded.open_changed(|device| device.write_at(entry + at, bytes).unwrap());
        let (listed, end) = list_some(&volume, &inode(&volume, "d"), 0, usize::MAX);
        assert_eq!(listed.len(), 2, "{what}");
        assert!(matches!(end, Err(Error::Corrupt(_))), "{what}");
    }
}

#[cfg(feature = "oracle")]
#[test]
fn a_hole_has_no_names() {
    let mke2fs = Mke2fs::new("ext2", 4).block_bytes(1024);
    let image = image(mke2fs, |root| touch(&root.join("d"), long_names(60)));
    let before = Loaded::new(&image);
    let good = before.open();
    let truth = names(&good, &inode(&good, "d"));
    // The block map's second number.
    image.debugfs_write(&["set_inode_field /d block[1] 0"]).unwrap();
    let volume = Loaded::new(&image).open();
    let directory = inode(&volume, "d");
    let left = names(&volume, &directory);
    assert!(left.len() < truth.len() && left.len() > truth.len() / 2, "{} names left", left.len());
    for (name, ino) in &truth {
        let expected = left.contains_key(name).then_some(*ino);
        assert_eq!(lookup(&volume, &directory, name).unwrap(), expected);
    }
}

#[cfg(feature = "oracle")]
#[test]
fn sizes_that_no_directory_has_are_refused() {
    let image = image(Mke2fs::new("ext2", 4).block_bytes(1024), |root| touch(&root.join("d"), ["a"]));
    for size in [1023, 1025, 5 << 20, 0xffff_fc00_u32] {
        image.debugfs_write(&[&format!("set_inode_field /d size {size}")]).unwrap();
        let volume = Loaded::new(&image).open();
        let directory = inode(&volume, "d");
        assert!(matches!(lookup(&volume, &directory, b"a"), Err(Error::Corrupt(_))), "{size}");
        assert!(matches!(list_some(&volume, &directory, 0, 9).1, Err(Error::Corrupt(_))), "{size}");
    }
}
