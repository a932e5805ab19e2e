//! Checksums of all metadata, switched on and off.

use std::fs::{self, File};
use std::path::Path;

use undercroft_block::Device;
use undercroft_ext4::{CheckOptions, OpenOptions, Tuning, check, tune};
use undercroft_oracle::populate::{Plan, populate};
use undercroft_oracle::{Differences, Image, Manifest, Mke2fs, MountMode, Scratch, Tool};
use undercroft_vfs::Error;

use super::{assert_sound, facts, tree, tuned};

pub(crate) fn switched(list: &str) -> Tuning {
    Tuning { features: list.into(), ..Tuning::default() }
}

/// Files, until the directory has so many blocks.
fn fill_to(directory: &Path, blocks: u64, block_bytes: u64, name_bytes: usize) {
    fs::create_dir(directory).unwrap();
    for number in 0.. {
        if directory.metadata().unwrap().len() >= blocks * block_bytes {
            break;
        }
        File::create(directory.join(format!("{number:0name_bytes$}"))).unwrap();
    }
}

/// Which directories there are beside one of everything.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Directories {
    /// In blocks of 1 KiB without room for checksums: in their only block, in the root of the index, in a block below the
    /// root, and in many leaves.
    Full,
    /// In one block without room.
    FullBlock(u32),
    /// With room everywhere, by e2fsck.
    Roomy,
}

pub(crate) fn fill(image: &Image, directories: Directories) {
    let features = image.features().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "noatime").unwrap();
    let plan = Plan { many: 1500, many_name_bytes: 20, subdirectories: 40, extent_depth: 1 };
    populate(mount.path(), &features, &plan).unwrap();
    let root = mount.path();
    // e2fsck -y changes some of them.
    fs::remove_dir_all(root.join("attributes/times")).unwrap();
    let one = root.join("one block");
    fs::create_dir(&one).unwrap();
    let files = match directories {
        Directories::Full => 50,
        Directories::FullBlock(files) => files,
        Directories::Roomy => 5,
    };
    (0..files).for_each(|number| drop(File::create(one.join(format!("{number:012}"))).unwrap()));
    if directories != Directories::FullBlock(files) {
        fill_to(&root.join("full root"), 125, 1024, 12);
        fill_to(&root.join("full node"), 129, 1024, 60);
    }
    mount.unmount().unwrap();
    if directories == Directories::Roomy {
        Tool::new("e2fsck").args(["-fyD"]).arg(image.path()).accept(&[0, 1]).run().unwrap();
    }
}

/// The features that ext3 and ext2 do not have, which the kernel mounts as such only without checksums.
pub(crate) const EXT3: &str =
    "^extent,^flex_bg,^huge_file,^64bit,^metadata_csum,^dir_nlink,^extra_isize,^uninit_bg";
pub(crate) const EXT2: &str =
    "^has_journal,^extent,^flex_bg,^huge_file,^64bit,^metadata_csum,^dir_nlink,^extra_isize,^uninit_bg";
const INDEXED: u32 = 0x1000;

/// The tree, but for what directories take, and whether they have an index.
pub(crate) fn names_and_files(image: &Image) -> Manifest {
    tree(image).map(|_, entry| {
        entry.sectors = 0;
        if entry.mode & 0o17_0000 == 0o4_0000 {
            entry.size = 0;
            entry.flags = entry.flags.map(|flags| flags & !INDEXED);
        }
    })
}

/// What the feature has to do with, of what dumpe2fs shows.
fn shown(image: &Path) -> [Option<String>; 4] {
    let facts = facts(image);
    ["Filesystem features", "Checksum type", "Checksum seed", "Inode count"]
        .map(|name| facts.get(name).cloned())
}

/// A copy that tune2fs tuned, which asks for e2fsck where directories have no room.
fn by_tune2fs(image: &Image, features: &str) -> Image {
    let copy = image.copy().unwrap();
    Tool::new("e2fsck").args(["-f", "-p"]).arg(copy.path()).run().unwrap();
    Tool::new("tune2fs").args(["-O", features]).arg(copy.path()).run().unwrap();
    Tool::new("e2fsck").args(["-fyD"]).arg(copy.path()).accept(&[0, 1]).run().unwrap();
    copy
}

fn assert_used_by_the_kernel(image: &Image, what: &str) {
    let mount = image.mount(MountMode::ReadWrite, "noatime").unwrap();
    let new = mount.path().join("new");
    fs::create_dir(&new).unwrap();
    (0..300).for_each(|number| fs::write(new.join(format!("name {number}")), "content").unwrap());
    fs::remove_dir_all(new).unwrap();
    mount.unmount().unwrap();
    assert_sound(image, what);
}

fn shapes() -> Vec<(&'static str, Mke2fs, Directories)> {
    let kib = |features: &str| Mke2fs::new("ext4", 64).block_bytes(1024).inodes(12_000).features(features);
    let large = |features: &str| Mke2fs::new("ext4", 64).block_bytes(4096).inodes(12_000).features(features);
    vec![
        ("uninit_bg", kib("^metadata_csum,uninit_bg"), Directories::Full),
        ("plain", kib("^metadata_csum,^uninit_bg,^64bit"), Directories::Full),
        ("4k", large("^metadata_csum,uninit_bg,orphan_file"), Directories::FullBlock(203)),
        ("ext3", kib(EXT3), Directories::Full),
        ("ext2", kib(EXT2), Directories::Roomy),
        ("small inodes", kib(EXT3).inode_bytes(128), Directories::Full),
        ("no index", kib("^metadata_csum,^dir_index"), Directories::Full),
        ("inline", kib("^metadata_csum,inline_data,ea_inode,large_dir,uninit_bg"), Directories::Full),
        ("two copies", kib("^metadata_csum,sparse_super2,^resize_inode"), Directories::Full),
        ("meta_bg", kib("^metadata_csum,meta_bg,^resize_inode,uninit_bg"), Directories::Full),
    ]
}

#[test]
fn all_checksums_are_switched_on_and_off() {
    for (name, mke2fs, directories) in shapes() {
        let image = mke2fs.make().unwrap();
        fill(&image, directories);
        image.check().unwrap_or_else(|error| panic!("{name}: {error}"));
        let before = names_and_files(&image);
        let theirs = by_tune2fs(&image, "metadata_csum");
        tuned(&image, &switched("metadata_csum")).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_sound(&image, name);
        assert_eq!(shown(image.path()), shown(theirs.path()), "{name}");
        Differences::between(&before, &names_and_files(&image)).assert_none(name);
        assert_used_by_the_kernel(&image, name);

        let before = names_and_files(&image);
        let theirs = by_tune2fs(&image, "^metadata_csum");
        tuned(&image, &switched("^metadata_csum")).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_sound(&image, name);
        assert_eq!(shown(image.path()), shown(theirs.path()), "{name}");
        Differences::between(&before, &names_and_files(&image)).assert_none(name);
        assert_used_by_the_kernel(&image, name);

        let before = names_and_files(&image);
        // And once more, with a stored seed, where checksums have been.
        tuned(&image, &switched("metadata_csum,metadata_csum_seed")).unwrap();
        assert_sound(&image, name);
        assert!(facts(image.path())["Filesystem features"].contains("metadata_csum_seed"), "{name}");
        Differences::between(&before, &names_and_files(&image)).assert_none(name);
    }
}

#[test]
fn copies_of_the_superblock_have_the_checksums_too() {
    let image =
        Mke2fs::new("ext4", 64).block_bytes(1024).features("^metadata_csum,uninit_bg").make().unwrap();
    fill(&image, Directories::Full);
    let before = names_and_files(&image);
    for list in ["metadata_csum", "^metadata_csum"] {
        tuned(&image, &switched(list)).unwrap();
        let lost = image.copy().unwrap();
        let file = File::options().write(true).open(lost.path()).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[0; 8192], 1024).unwrap();
        let repaired =
            Tool::new("e2fsck").args(["-fy", "-b", "8193", "-B", "1024"]).arg(lost.path()).accept(&[0, 1]);
        repaired.run().unwrap();
        assert_sound(&lost, list);
        assert_eq!(shown(lost.path()), shown(image.path()), "{list}");
        Differences::between(&before, &names_and_files(&lost)).assert_none(list);
    }
}

#[test]
fn checksums_are_switched_together_with_a_journal() {
    let image = Mke2fs::new("ext4", 64).block_bytes(1024).features(EXT2).make().unwrap();
    fill(&image, Directories::Full);
    for list in ["metadata_csum,has_journal,orphan_file", "^has_journal,^orphan_file,^metadata_csum"] {
        let before = names_and_files(&image);
        tuned(&image, &switched(list)).unwrap();
        assert_sound(&image, list);
        Differences::between(&before, &names_and_files(&image)).assert_none(list);
        assert_used_by_the_kernel(&image, list);
    }
}

#[test]
fn entries_do_not_move_without_a_journal() {
    let image = Mke2fs::new("ext4", 32).block_bytes(1024).features(EXT2).make().unwrap();
    fill(&image, Directories::FullBlock(50));
    let before = image.sha256().unwrap();
    let error = tuned(&image, &switched("metadata_csum")).unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)) && error.to_string().contains("has_journal"), "{error}");
    assert_eq!(image.sha256().unwrap(), before);
}

#[test]
fn a_damaged_filesystem_keeps_its_checksums_as_they_are() {
    let image =
        Mke2fs::new("ext4", 32).block_bytes(1024).features("^metadata_csum,uninit_bg").make().unwrap();
    fill(&image, Directories::FullBlock(50));
    image.debugfs_write(&["set_inode_field \"/one block\" links_count 7"]).unwrap();
    let before = image.sha256().unwrap();
    let error = tuned(&image, &switched("metadata_csum")).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)) && error.to_string().contains("e2fsck"), "{error}");
    assert_eq!(image.sha256().unwrap(), before);
}

#[test]
fn a_full_filesystem_says_so_before_anything_has_changed() {
    let image = Mke2fs::new("ext4", 32)
        .block_bytes(1024)
        .inodes(12_000)
        .features("^metadata_csum")
        .args(["-m", "0"])
        .make()
        .unwrap();
    fill(&image, Directories::Full);
    let free: u64 = facts(image.path())["Free blocks"].parse().unwrap();
    let scratch = Scratch::new("filler").unwrap();
    let filler = scratch.path().join("filler");
    fs::write(&filler, vec![7; (free as usize - 4) * 1024]).unwrap();
    image.debugfs_write(&[&format!("write {} filler", filler.display())]).unwrap();
    image.check().unwrap();
    let before = image.sha256().unwrap();
    let error = tuned(&image, &switched("metadata_csum")).unwrap_err();
    assert!(matches!(error, Error::NoSpace), "{error}");
    assert_eq!(image.sha256().unwrap(), before);
}

/// Bytes that are wrong in random places: refused, or tuned to something that a check accepts.
#[test]
fn hostile_images_are_refused_or_tuned_to_what_is_sound() {
    let image =
        Mke2fs::new("ext4", 16).block_bytes(1024).features("^metadata_csum,uninit_bg").make().unwrap();
    fill(&image, Directories::FullBlock(50));
    let good = fs::read(image.path()).unwrap();
    let used: Vec<usize> =
        (0..good.len() / 1024).filter(|at| good[at * 1024..][..1024].iter().any(|&b| b != 0)).collect();
    let mut random = undercroft_block::testing::Rng::new(20);
    let (mut refused, mut done) = (0, 0);
    for list in ["metadata_csum", "^metadata_csum"] {
        if list.starts_with('^') {
            tuned(&image, &switched("metadata_csum")).unwrap();
        }
        let good = fs::read(image.path()).unwrap();
        for _ in 0..60 {
            let mut bytes = good.clone();
            for _ in 0..3 {
                let at = used[random.index(used.len())] * 1024 + random.index(1024);
                bytes[at] ^= 1 << random.index(8);
            }
            let device = std::sync::Arc::new(undercroft_block::MemoryDevice::new(bytes.len() as u64));
            undercroft_block::BlockDevice::write_at(&*device, 0, &bytes).unwrap();
            let device = device as Device;
            match tune(&device, OpenOptions::default(), &switched(list)) {
                Err(_) => refused += 1,
                Ok(()) => {
                    let report = check(device, &CheckOptions::default()).unwrap();
                    assert!(report.findings.is_empty(), "{list}: {:?}", report.findings);
                    done += 1;
                }
            }
        }
    }
    assert!(refused > 10 && done > 10, "{refused} refused, {done} done");
}
