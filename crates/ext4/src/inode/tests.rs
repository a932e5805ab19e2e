//! Inodes written: those of images that the kernel filled, and new ones.

#[cfg(feature = "oracle")]
use undercroft_oracle::Recipe;
use undercroft_vfs::{Announce, DeviceNumber, NewInode, NewKind};

use super::*;
use crate::testing::images::{Image, Mke2fs};
use crate::testing::writable::Writable;

/// Kinds of filesystems in which inodes differ. The journal must be empty, and is left out where it may be.
fn images() -> Vec<Mke2fs> {
    vec![
        Mke2fs::new("ext4", 256).features("^has_journal"),
        Mke2fs::new("ext4", 256).block_bytes(1024).features("^has_journal,^metadata_csum,^64bit,inline_data"),
        Mke2fs::new("ext4", 256).block_bytes(1024).inode_bytes(512).features("ea_inode"),
        Mke2fs::new("ext4", 256).inode_bytes(128).features("^has_journal,^huge_file"),
        Mke2fs::new("ext2", 256).block_bytes(1024).inode_bytes(128),
    ]
}

/// Enables projects on one of them after the kernel, which may not support them, has unmounted it.
#[cfg(feature = "oracle")]
fn with_projects(image: &Image) -> undercroft_oracle::Result<()> {
    if image.features()?.has("ea_inode") { image.tune2fs(&["-O", "project"]) } else { Ok(()) }
}

/// The others have none of the tools that could.
#[cfg(not(feature = "oracle"))]
fn with_projects(_: &Image) -> undercroft_oracle::Result<()> {
    Ok(())
}

/// All inodes in use, with their places.
#[cfg(feature = "oracle")]
fn in_use(volume: &Volume) -> Vec<(Inode, Location)> {
    (1..=volume.superblock().geometry().inodes())
        .filter_map(|number| {
            let location = locate(volume, number).unwrap();
            match Inode::read_linked_or_not(volume, number, location) {
                Ok(inode) => Some((inode, location)),
                Err(Error::Stale) => None,
                // Reserved ones that are unused have a time and nothing else.
                Err(Error::Corrupt(_)) if number < 11 => None,
                Err(error) => panic!("inode {number}: {error}"),
            }
        })
        .collect()
}

#[cfg(feature = "oracle")]
#[test]
fn what_linux_wrote_is_written_as_it_was() {
    for mke2fs in images() {
        let recipe =
            Recipe::new(mke2fs).plan(|plan| (plan.many, plan.extent_depth) = (2000, 1)).finish(with_projects);
        let writable = Writable::open(recipe.make().unwrap(), Default::default());
        let volume = &*writable.volume;
        let inodes = in_use(volume);
        assert!(inodes.len() > 100, "only {} inodes", inodes.len());
        let handle = volume.start(1000).unwrap();
        for (inode, location) in inodes {
            let before = InodeBytes::read(volume, inode.number).unwrap().to_vec();
            inode.store(&handle, location).unwrap();
            let after = InodeBytes::read(volume, inode.number).unwrap().to_vec();
            assert_eq!(after, before, "inode {}: {inode:?}", inode.number);
        }
    }
}

/// Every field at its extremes comes back, as far as the inode has room for it.
#[test]
fn what_is_written_is_read() {
    for mke2fs in images() {
        let image = mke2fs.make().unwrap();
        with_projects(&image).unwrap();
        let writable = Writable::open(image, Default::default());
        let volume = &*writable.volume;
        let features = volume.superblock().features();
        let wide = volume.superblock().geometry().inode_bytes() > 128;
        let handle = volume.start(10).unwrap();
        let allocator = &volume.writer().unwrap().allocator;
        let place = allocator.new_inode(&handle, ROOT_INODE, FileType::Regular).unwrap();
        let (number, location) = (place.number, place.location);
        let root = Inode::read(volume, ROOT_INODE).unwrap();
        let new = NewInode {
            kind: NewKind::Regular,
            permissions: 0o6751,
            uid: 0x1234_5678,
            gid: 0xfedc_ba98,
            xattrs: &[],
            announce: Announce::default(),
        };
        let mut inode = Inode::fresh(volume, root.inheritance(), number, &new, 65_000);
        inode.size_bytes = 0x7fff_1234_5678;
        inode.version = if wide { u64::MAX } else { u64::from(u32::MAX) };
        inode.created = wide.then_some(Timestamp { seconds: -1, nanoseconds: 999_999_999 });
        inode.accessed = inode.nearest_time(Timestamp { seconds: 0x3_7fff_ffff, nanoseconds: 1 });
        inode.modified = inode.nearest_time(Timestamp { seconds: i64::MIN, nanoseconds: 1 });
        inode.changed = inode.nearest_time(Timestamp { seconds: 0x8000_0000, nanoseconds: 5 });
        inode.project = if features.ro_compat.contains(RoCompat::PROJECT) { 0xffff_fff0 } else { 0 };
        inode.xattr_block =
            FsBlock(if features.incompat.contains(Incompat::SIXTY_FOUR_BIT) { 0xfedc_ba98_7654 } else { 9 });
        let huge = features.ro_compat.contains(RoCompat::HUGE_FILE);
        for sectors in
            [8, u64::from(u32::MAX), 1 << 32, (1 << 48) - 8, 1 << 48, (1 << 48) + (1 << 20), 1 << 58]
        {
            inode.sectors = sectors;
            let stored = inode.store_new(&handle, location);
            if sectors > u64::from(u32::MAX) && !huge || sectors == 1 << 58 {
                assert!(matches!(stored, Err(Error::FileTooLarge)), "{sectors}: {stored:?}");
                continue;
            }
            stored.unwrap();
            let read = Inode::read_located(volume, number, location).unwrap();
            let mut expected = inode.clone();
            expected.flags.set(InodeFlags::HUGE_FILE, sectors >= 1 << 48);
            assert_eq!(format!("{read:?}"), format!("{expected:?}"));
        }
    }
}

#[test]
fn a_new_inode_has_nothing_of_what_was_there() {
    let writable = Writable::make(&Mke2fs::new("ext4", 8).features("^has_journal"));
    let volume = &*writable.volume;
    let handle = volume.start(10).unwrap();
    let allocator = &volume.writer().unwrap().allocator;
    let place = allocator.new_inode(&handle, ROOT_INODE, FileType::Regular).unwrap();
    let (number, location) = (place.number, place.location);
    handle
        .change(location.block, crate::transaction::Seal::Plain, |bytes| {
            bytes[location.range(volume)].fill(0xa5);
        })
        .unwrap();
    let root = Inode::read(volume, ROOT_INODE).unwrap();
    let device = DeviceNumber { major: 259, minor: 0x12345 };
    for kind in [NewKind::Regular, NewKind::Fifo, NewKind::BlockDevice(device)] {
        let new =
            NewInode { kind, permissions: 0o644, uid: 1, gid: 2, xattrs: &[], announce: Announce::default() };
        let inode = Inode::fresh(volume, root.inheritance(), number, &new, 1);
        inode.store_new(&handle, location).unwrap();
        let read = Inode::read_located(volume, number, location).unwrap();
        assert_eq!(format!("{read:?}"), format!("{inode:?}"));
        assert!(read.read_inline_xattrs(volume).unwrap().iter().all(|&byte| byte == 0));
        let is_device = matches!(kind, NewKind::BlockDevice(_));
        assert_eq!(read.device_number(), if is_device { device } else { DeviceNumber::default() });
    }
}

#[test]
fn devices_have_two_forms() {
    for (major, minor, form) in
        [(1, 3, [3, 1, 0, 0, 0, 0, 0, 0]), (8, 256, [0, 0, 0, 0, 0, 8, 0x10, 0]), (0, 0, [0; 8])]
    {
        assert_eq!(fresh::encode_device(DeviceNumber { major, minor }), form, "{major}:{minor}");
    }
    for (major, minor, holds) in [(4095, (1 << 20) - 1, true), (4096, 0, false), (0, 1 << 20, false)] {
        assert_eq!(fresh::holds_device(DeviceNumber { major, minor }), holds, "{major}:{minor}");
    }
}
