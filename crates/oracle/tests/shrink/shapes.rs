//! Filesystems of many shapes, as small as they can be.

use undercroft_ext4::{OpenOptions, minimum};
use undercroft_oracle::{Image, Mke2fs, MountMode, Tool};
use undercroft_vfs::Error;

use super::support::{
    MIB, Random, assert_sound, blocks, blocks_by_resize2fs, field, fill_at_random, fill_with_everything,
    open_device, shrink_file, tree,
};

/// Shapes with room for [everything](fill_with_everything).
fn shapes() -> Vec<(&'static str, Mke2fs)> {
    let ext4 = |mib| Mke2fs::new("ext4", mib);
    let kib = |mib| ext4(mib).block_bytes(1024);
    vec![
        ("default", ext4(300).block_bytes(4096)),
        ("1k", kib(200)),
        ("2k", ext4(200).block_bytes(2048)),
        ("no flex", kib(200).features("^flex_bg")),
        ("meta_bg", kib(200).features("meta_bg,^resize_inode")),
        ("no reserve", kib(200).features("^resize_inode")),
        ("32-bit", kib(200).features("^64bit")),
        ("crc16", kib(200).features("^metadata_csum,uninit_bg")),
        ("no sums", kib(200).features("^metadata_csum,^uninit_bg")),
        ("inline data", ext4(200).block_bytes(4096).features("inline_data")),
        ("small inodes, no journal", kib(200).inode_bytes(128).features("^has_journal")),
        ("small groups", kib(200).args(["-G", "4", "-g", "1024"])),
        ("copies everywhere", kib(200).features("^resize_inode,^sparse_super")),
        ("large values", ext4(200).block_bytes(4096).features("ea_inode")),
        ("ext2", Mke2fs::new("ext2", 200).block_bytes(1024)),
        ("ext3", Mke2fs::new("ext3", 200).block_bytes(1024)),
    ]
}

fn selected(name: &str) -> bool {
    std::env::var("UNDERCROFT_SHAPE").is_ok_and(|wanted| wanted != name)
}

#[test]
fn what_is_as_small_as_it_can_be_keeps_everything_and_needs_no_more_than_resize2fs() {
    for (name, mke2fs) in shapes() {
        if selected(name) {
            continue;
        }
        let image = mke2fs.make().unwrap();
        fill_with_everything(&image);
        let before = tree(&image);
        let theirs = blocks_by_resize2fs(&image).unwrap();
        let estimate = minimum(&open_device(image.path()), OpenOptions::default()).unwrap();
        let shrunk = shrink_file(image.path(), None).unwrap_or_else(|error| panic!("{name}: {error}"));
        println!(
            "{name}: {} blocks of {}, estimated {}, by resize2fs {theirs}",
            shrunk.blocks.1, shrunk.blocks.0, estimate.least
        );
        assert_sound(&image, name);
        assert_eq!(blocks(image.path()), shrunk.blocks.1, "{name}");
        undercroft_oracle::Differences::between(&before, &tree(&image)).assert_none(name);
        assert!(
            shrunk.blocks.1 <= theirs + theirs / 20,
            "{name}: {} blocks, resize2fs leaves {theirs}",
            shrunk.blocks.1
        );
        // Linux's tools and kernel go on with it.
        let copy = image.copy().unwrap();
        Tool::new("resize2fs").arg("-f").arg(copy.path()).arg(shrunk.blocks.0.to_string()).run().unwrap();
        assert_sound(&copy, name);
        undercroft_oracle::Differences::between(&before, &tree(&copy)).assert_none(name);
    }
}

/// Facts of the superblock that resize2fs decides too.
#[test]
fn an_empty_end_is_cut_as_resize2fs_cuts_it() {
    for (name, mke2fs) in shapes() {
        if selected(name) {
            continue;
        }
        let image = mke2fs.make().unwrap();
        let wanted = 150 * MIB + 77 * 4096;
        let copy = image.copy().unwrap();
        let block_bytes: u64 = field(image.path(), "Block size").parse().unwrap();
        Tool::new("e2fsck").args(["-fp"]).arg(copy.path()).accept(&[0, 1]).run().unwrap();
        Tool::new("resize2fs").arg(copy.path()).arg((wanted / block_bytes).to_string()).run().unwrap();
        shrink_file(image.path(), Some(wanted)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_sound(&image, name);
        for fact in [
            "Block count",
            "Inode count",
            "Reserved block count",
            "Free inodes",
            "Filesystem features",
            "Free blocks",
        ] {
            assert_eq!(field(image.path(), fact), field(copy.path(), fact), "{name}: {fact}");
        }
    }
}

#[test]
fn files_in_pieces_move_and_stay_whole() {
    for (name, mke2fs) in [
        ("1k", Mke2fs::new("ext4", 60).block_bytes(1024)),
        ("ext3", Mke2fs::new("ext3", 60).block_bytes(1024)),
        ("4k", Mke2fs::new("ext4", 60).block_bytes(4096)),
    ] {
        let image = mke2fs.make().unwrap();
        fill_at_random(&image, &mut Random::new(7), 120, 400_000);
        let before = tree(&image);
        shrink_file(image.path(), None).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_sound(&image, name);
        undercroft_oracle::Differences::between(&before, &tree(&image)).assert_none(name);
    }
}

/// Attributes' values in inodes of their own, named by inodes and by blocks of attributes, in all groups.
#[test]
fn values_in_inodes_of_their_own_get_other_numbers() {
    let mke2fs = Mke2fs::new("ext4", 60).block_bytes(1024).features("ea_inode").args(["-g", "2048"]);
    let image = mke2fs.make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    for directory in 0..30_u8 {
        let path = mount.path().join(format!("d{directory}"));
        std::fs::create_dir(&path).unwrap();
        for file in 0..10_u8 {
            let path = path.join(format!("f{file}"));
            std::fs::write(&path, [directory; 100]).unwrap();
            for (name, length) in [("user.large", 3000 + usize::from(file)), ("user.shared", 5000)] {
                let value = vec![directory.min(length as u8); length];
                rustix::fs::setxattr(&path, name, &value, rustix::fs::XattrFlags::empty()).unwrap();
            }
        }
    }
    mount.unmount().unwrap();
    let before = tree(&image);
    let shrunk = shrink_file(image.path(), None).unwrap();
    assert!(shrunk.groups.1 < shrunk.groups.0 / 2, "{shrunk:?}");
    assert_sound(&image, "values in inodes");
    undercroft_oracle::Differences::between(&before, &tree(&image)).assert_none("values in inodes");
}

/// An orphan file, whose blocks' checksums depend on their place, behind a large file that is deleted afterwards.
#[test]
fn an_orphan_file_past_the_end_moves() {
    for features in ["^orphan_file", "^orphan_file,^metadata_csum"] {
        let image = Mke2fs::new("ext4", 200).block_bytes(1024).features(features).make().unwrap();
        let mount = image.mount(MountMode::ReadWrite, "").unwrap();
        let large = mount.path().join("large").display().to_string();
        Tool::new("fallocate").args(["-l", "150M", &large]).run().unwrap();
        mount.unmount().unwrap();
        Tool::new("tune2fs").args(["-O", "orphan_file"]).arg(image.path()).run().unwrap();
        let mount = image.mount(MountMode::ReadWrite, "").unwrap();
        std::fs::remove_file(mount.path().join("large")).unwrap();
        std::fs::write(mount.path().join("small"), "small").unwrap();
        mount.unmount().unwrap();
        let first = image.debugfs("bmap <13> 0").unwrap();
        let shrunk = shrink_file(image.path(), None).unwrap();
        println!("{features}: the orphan file began at {} of {:?}", first.trim(), shrunk.blocks);
        assert_sound(&image, features);
        let mount = image.mount(MountMode::ReadWrite, "").unwrap();
        std::fs::remove_file(mount.path().join("small")).unwrap();
        mount.unmount().unwrap();
        assert_sound(&image, features);
    }
}

fn refused(image: &Image, size_bytes: Option<u64>, word: &str) {
    let before = image.sha256().unwrap();
    let error = shrink_file(image.path(), size_bytes).unwrap_err();
    assert!(error.to_string().contains(word), "{word}: {error}");
    assert!(matches!(error, Error::Unsupported(_) | Error::Corrupt(_)), "{error}");
    assert_eq!(image.sha256().unwrap(), before, "{word}");
}

#[test]
fn what_cannot_become_smaller_is_refused_by_name_and_stays_as_it_is() {
    let image = Mke2fs::new("ext4", 64).block_bytes(1024).make().unwrap();
    refused(&image, Some(MIB), "at least");
    refused(&image, Some(64 * MIB), "no more than is asked for");
    for feature in ["sparse_super2", "bigalloc", "quota", "mmp"] {
        let image = Mke2fs::new("ext4", 64).features(feature).make().unwrap();
        refused(&image, None, feature);
    }
    let list = image.path().with_extension("bad");
    std::fs::write(&list, "30000\n").unwrap();
    Tool::new("e2fsck").arg("-fy").arg("-l").arg(&list).arg(image.path()).accept(&[0, 1]).run().unwrap();
    refused(&image, None, "bad blocks");
    let image = Mke2fs::new("ext4", 64).block_bytes(1024).make().unwrap();
    image.debugfs_write(&["set_inode_field <2> links_count 9"]).unwrap();
    refused(&image, None, "e2fsck");
}
