//! Filesystems that we make larger: e2fsck finds nothing wrong with them, they have what resize2fs gives a copy of the
//! same image, every file is as it was, and the kernel mounts and fills them.
//!
//! `UNDERCROFT_SEED` replays a seed.

use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use undercroft_block::testing::Recorder;
use undercroft_block::{Device, FileDevice, FileOptions};
use undercroft_ext4::{CheckOptions, Ext4, Grown, OpenOptions, WriteOptions, check};
use undercroft_oracle::{Image, Mke2fs, MountMode, Tool};
use undercroft_vfs::{Credentials, Error, FileSystem, NewObject, Result, Vfs, VfsOptions};

use super::{MIB, files, fill, lengthen, populate};

const GIB: u64 = 1 << 30;

/// Grows an image file to `size_bytes`, as a user does.
fn grow(path: &Path, size_bytes: u64) -> Result<Grown> {
    lengthen(path, size_bytes);
    let device = FileDevice::open(path, FileOptions::read_write()).unwrap();
    let ext4 = Ext4::open(Arc::new(device), OpenOptions::default(), WriteOptions::default())?;
    let grown = ext4.grow(None, &mut |_, _| ());
    ext4.close().unwrap();
    grown
}

/// What e2fsck and our own check find.
fn assert_sound(image: &Image, what: &str) {
    image.check().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_nothing_found(image, what);
}

/// What our own check finds, after a recovery in memory if one is needed.
fn assert_nothing_found(image: &Image, what: &str) {
    let device = FileDevice::open(image.path(), FileOptions::read_only()).unwrap();
    let report = check(Arc::new(device), &CheckOptions::default()).unwrap();
    assert!(report.findings.is_empty(), "{what}: {:?}", report.findings);
}

/// The fields of a superblock, and where copies of it lie, by dumpe2fs.
fn facts(image: &Path) -> BTreeMap<String, String> {
    const FIELDS: [&str; 10] = [
        "Block size",
        "Block count",
        "Inode count",
        "Reserved block count",
        "Free blocks",
        "Free inodes",
        "Reserved GDT blocks",
        "Blocks per group",
        "Inodes per group",
        "Filesystem features",
    ];
    let dump = Tool::new("dumpe2fs").arg(image).run_text().unwrap();
    let mut facts = BTreeMap::new();
    for line in dump.lines() {
        if let Some((name, value)) = line.split_once(':')
            && FIELDS.contains(&name)
        {
            facts.insert(name.to_owned(), value.trim().to_owned());
        }
        if let Some(at) = line.find("superblock at ") {
            let block = line[at + 14..].split([',', ' ']).next().unwrap();
            facts.insert(format!("superblock at {block}"), String::new());
        }
    }
    facts
}

/// Has resize2fs grow a copy.
fn resized(image: &Image, size_bytes: u64) -> Image {
    let copy = image.copy().unwrap();
    lengthen(copy.path(), size_bytes);
    // It wants to be sure that nothing is wrong, and has written it down.
    Tool::new("e2fsck").args(["-fp"]).arg(copy.path()).accept(&[0, 1]).run().unwrap();
    // With a number of blocks it does not round to whole pages.
    let block_bytes: u64 = facts(copy.path())["Block size"].parse().unwrap();
    let blocks = (size_bytes / block_bytes).to_string();
    Tool::new("resize2fs").arg(copy.path()).arg(blocks).run().unwrap();
    copy
}

struct Case {
    name: &'static str,
    mke2fs: Mke2fs,
    size_bytes: u64,
}

fn case(name: &'static str, mke2fs: Mke2fs, size_bytes: u64) -> Case {
    Case { name, mke2fs, size_bytes }
}

/// Shapes of which resize2fs makes the same, number for number: descriptors find room in the blocks reserved for them.
fn cases() -> Vec<Case> {
    let ext4 = |mib| Mke2fs::new("ext4", mib);
    let kib = |mib| ext4(mib).block_bytes(1024);
    vec![
        case("default", ext4(300).block_bytes(4096), 700 * MIB),
        case("1k", kib(40), 900 * MIB),
        case("within the last group", kib(43), 47 * MIB),
        case("the last group filled up", kib(43), 48 * MIB + 1024),
        case("a last group that is too small", kib(64), 64 * MIB + 300 * 1024),
        case("2k", ext4(64).block_bytes(2048), 5 * GIB),
        case("64k", ext4(600).block_bytes(65536).features("^orphan_file"), 70 * GIB),
        case("32-bit", kib(64).features("^64bit"), 600 * MIB),
        case("crc16", kib(64).features("^metadata_csum,uninit_bg"), 600 * MIB),
        case("no sums", kib(64).features("^metadata_csum,^uninit_bg"), 600 * MIB),
        case("no flex", kib(64).features("^flex_bg"), 600 * MIB),
        case("meta_bg", kib(64).features("meta_bg,^resize_inode"), 600 * MIB),
        case("small inodes, no journal", kib(64).inode_bytes(128).features("^has_journal"), 600 * MIB),
        case("checksum seed", kib(64).features("metadata_csum_seed"), 100 * MIB),
        case("flex of 4", kib(64).args(["-G", "4"]), 300 * MIB),
        case("small groups", kib(64).args(["-g", "1024"]), 500 * MIB),
        case("ext2", Mke2fs::new("ext2", 40).block_bytes(1024), 300 * MIB),
        case("ext3", Mke2fs::new("ext3", 300).block_bytes(4096), 3 * GIB),
    ]
}

#[test]
fn what_has_grown_is_what_resize2fs_makes_of_it_and_keeps_every_file() {
    for Case { name, mke2fs, size_bytes } in cases() {
        let image = mke2fs.make().unwrap();
        // The kernel has no blocks larger than its pages.
        let is_mountable = name != "64k";
        if is_mountable {
            populate(&image);
        }
        let before = if is_mountable { files(&image) } else { BTreeMap::new() };
        let theirs = resized(&image, size_bytes);
        grow(image.path(), size_bytes).unwrap();
        assert_sound(&image, name);
        assert_eq!(facts(image.path()), facts(theirs.path()), "{name}");
        if is_mountable {
            assert_eq!(files(&image), before, "{name}");
        }
        if size_bytes <= GIB / 2 {
            fill(&image);
            assert_sound(&image, name);
        }
    }
}

/// Shapes that resize2fs grows by moving what is in the way, or not at all; Linux's own way is ours.
#[test]
fn descriptors_without_a_reserved_block_lie_in_their_own_groups() {
    let kib = |mib| Mke2fs::new("ext4", mib).block_bytes(1024);
    let cases = [
        case("no reserve", kib(64).features("^resize_inode"), 600 * MIB),
        case("no reserve, no flex", kib(64).features("^resize_inode,^flex_bg"), 600 * MIB),
        case("the reserve used up", kib(64).extended("resize=200000"), 3 * GIB),
        case("the same, no flex", kib(64).extended("resize=200000").features("^flex_bg"), 3 * GIB),
        case("the same, no journal", kib(64).extended("resize=200000").features("^has_journal"), GIB),
        case("copies everywhere", kib(64).features("^resize_inode,^sparse_super"), 600 * MIB),
        case("two copies", kib(64).features("^resize_inode,sparse_super2"), 600 * MIB),
        case("two copies, with a reserve", kib(64).features("sparse_super2"), 600 * MIB),
    ];
    for Case { name, mke2fs, size_bytes } in cases {
        let image = mke2fs.make().unwrap();
        populate(&image);
        let before = files(&image);
        let grown = grow(image.path(), size_bytes).unwrap();
        assert_eq!(grown.got_meta_bg, name != "two copies, with a reserve", "{name}");
        assert_sound(&image, name);
        assert_eq!(files(&image), before, "{name}");
        // Once more, into groups that have meta groups around them.
        grow(image.path(), size_bytes + 333 * MIB).unwrap();
        assert_sound(&image, name);
        assert_eq!(files(&image), before, "{name}");
        if size_bytes <= GIB / 2 {
            fill(&image);
            assert_sound(&image, name);
        }
    }
}

/// Odd amounts, from a seed.
#[test]
fn a_filesystem_grows_again_and_again_by_odd_amounts() {
    let seed = env::var("UNDERCROFT_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64);
    println!("UNDERCROFT_SEED={seed}");
    let mut state = seed | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for (name, mke2fs) in [
        ("1k", Mke2fs::new("ext4", 20).block_bytes(1024)),
        (
            "1k, flex of 2, small groups",
            Mke2fs::new("ext4", 20).block_bytes(1024).args(["-G", "2", "-g", "2048"]),
        ),
        ("ext3", Mke2fs::new("ext3", 20).block_bytes(1024)),
        ("ext2 without a reserve", Mke2fs::new("ext2", 20).block_bytes(1024).features("^resize_inode")),
    ] {
        let image = mke2fs.make().unwrap();
        populate(&image);
        let before = files(&image);
        let mut size = 20 * MIB;
        for step in 0..8 {
            size += 1 + random([3 * MIB, 100 * MIB][step % 2]);
            let what = format!("{name}, seed {seed}, step {step}: {size} bytes");
            grow(image.path(), size).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_sound(&image, &what);
        }
        assert_eq!(files(&image), before, "{name}");
        fill(&image);
        assert_sound(&image, name);
    }
}

#[test]
fn what_cannot_grow_is_refused_by_name_and_stays_as_it_is() {
    let refused = |image: &Image, size_bytes: Option<u64>, word: &str| {
        let before = image.sha256().unwrap();
        let device = FileDevice::open(image.path(), FileOptions::read_write()).unwrap();
        let ext4 = Ext4::open(Arc::new(device), OpenOptions::default(), WriteOptions::default());
        let error = match ext4 {
            Err(error) => error,
            Ok(ext4) => {
                let answer = ext4.grow(size_bytes, &mut |_, _| ()).unwrap_err();
                ext4.close().unwrap();
                answer
            }
        };
        assert!(error.to_string().contains(word), "{word}: {error}");
        if word != "resize inode" {
            assert!(matches!(error, Error::Unsupported(_)), "{error}");
        }
        image.check().ok();
        before
    };
    let image = Mke2fs::new("ext4", 64).block_bytes(1024).make().unwrap();
    refused(&image, Some(32 * MIB), "undercroft resize");
    refused(&image, Some(65 * MIB), "make it larger first");
    assert_sound(&image, "after refusals");
    let bigalloc = Mke2fs::new("ext4", 64).features("bigalloc").make().unwrap();
    refused(&bigalloc, None, "bigalloc");
}

/// A resize inode whose map names other blocks than the superblock says are reserved.
#[test]
fn a_resize_inode_that_lies_is_corrupt() {
    for lies in [
        // Its double-indirect block, then a reserved block's own list, then what the superblock says.
        vec!["set_inode_field <7> block[DIND] 5000"],
        vec!["set_inode_field <7> block[DIND] 4000000000"],
        vec!["set_inode_field <7> block[0] 700"],
        vec!["set_super_value reserved_gdt_blocks 300"],
        vec!["set_super_value reserved_gdt_blocks 200"],
        vec!["clri <7>"],
    ] {
        let image = Mke2fs::new("ext4", 64).block_bytes(1024).make().unwrap();
        image.debugfs_write(&lies).unwrap();
        let Err(error) = grow(image.path(), 400 * MIB) else { panic!("{lies:?}") };
        assert!(matches!(error, Error::Corrupt(_)), "{lies:?}: {error}");
        assert_eq!(facts(image.path())["Block count"], "65536", "{lies:?}");
    }
}

/// What a disk writes at once: a superblock that is torn opens nowhere.
const WHOLE_BYTES: u32 = 1024;

/// Power is lost after each request. The filesystem has the old size or the new one then, for us and for the kernel, and
/// e2fsck finds nothing.
#[test]
fn a_power_cut_leaves_the_old_size_or_the_new_one() {
    for (name, features, size_bytes) in
        [("within the reserve", "", 100 * MIB), ("past it", "^resize_inode", 300 * MIB)]
    {
        let image = Mke2fs::new("ext4", 20).block_bytes(1024).features(features).make().unwrap();
        populate(&image);
        let before = files(&image);
        lengthen(image.path(), size_bytes);
        let device = FileDevice::open(image.path(), FileOptions::read_only()).unwrap();
        let recorder = Arc::new(Recorder::new(Arc::new(device)));
        let device = Arc::clone(&recorder) as Device;
        let ext4 = Ext4::open(device, OpenOptions::default(), WriteOptions::default()).unwrap();
        let first = recorder.recording().events().len();
        ext4.grow(None, &mut |_, _| ()).unwrap();
        ext4.close().unwrap();
        let recording = recorder.recording();
        let sizes = [20 * MIB / 1024, size_bytes / 1024].map(|blocks| blocks.to_string());
        for cut in first..=recording.events().len() {
            let (device, crash) = recording.crash_in_sectors(cut, cut as u64, WHOLE_BYTES).unwrap();
            let what = format!("{name}, cut after {cut}: {crash}");
            let ours = Image::of_device("ext4", &*device).unwrap();
            let theirs = ours.copy().unwrap();
            assert_nothing_found(&ours, &what);
            let device = FileDevice::open(ours.path(), FileOptions::read_write()).unwrap();
            let ext4 = Ext4::open(Arc::new(device), OpenOptions::default(), WriteOptions::default());
            ext4.unwrap_or_else(|error| panic!("{what}: {error}")).close().unwrap();
            assert_sound(&ours, &what);
            theirs.mount(MountMode::ReadWrite, "").unwrap().unmount().unwrap();
            theirs.check().unwrap_or_else(|error| panic!("{what}: {error}"));
            let [ours_now, theirs_now] =
                [&ours, &theirs].map(|image| facts(image.path())["Block count"].clone());
            assert_eq!(ours_now, theirs_now, "{what}");
            assert!(sizes.contains(&ours_now), "{what}: {ours_now} blocks");
            if cut % 16 == 0 {
                assert_eq!(files(&ours), before, "{what}");
            }
        }
    }
}

/// Without a journal a power cut leaves what e2fsck mends, with every file as it was.
#[test]
fn a_power_cut_without_a_journal_leaves_what_e2fsck_mends() {
    for (name, features, size_bytes) in [
        ("within the reserve", "^has_journal", 100 * MIB),
        ("past it", "^has_journal,^resize_inode", 300 * MIB),
        ("without checksums", "^has_journal,^metadata_csum,^uninit_bg", 100 * MIB),
    ] {
        let image = Mke2fs::new("ext4", 20).block_bytes(1024).features(features).make().unwrap();
        populate(&image);
        let before = files(&image);
        lengthen(image.path(), size_bytes);
        let device = FileDevice::open(image.path(), FileOptions::read_only()).unwrap();
        let recorder = Arc::new(Recorder::new(Arc::new(device)));
        let device = Arc::clone(&recorder) as Device;
        let ext4 = Ext4::open(device, OpenOptions::default(), WriteOptions::default()).unwrap();
        let first = recorder.recording().events().len();
        ext4.grow(None, &mut |_, _| ()).unwrap();
        ext4.close().unwrap();
        let recording = recorder.recording();
        for cut in first..=recording.events().len() {
            let (device, crash) = recording.crash_in_sectors(cut, cut as u64, WHOLE_BYTES).unwrap();
            let what = format!("{name}, cut after {cut}: {crash}");
            let cut = Image::of_device("ext4", &*device).unwrap();
            // What leads to new blocks may be durable before the superblock that has them: `-p` asks for a person then.
            Tool::new("e2fsck").arg("-fy").arg(cut.path()).accept(&[0, 1]).run().unwrap();
            assert_sound(&cut, &what);
            assert_eq!(files(&cut), before, "{what}");
        }
    }
}

/// Threads make and remove files while the filesystem grows, ten times; e2fsck finds nothing, and what they wrote is there.
#[test]
fn a_filesystem_grows_while_threads_work_in_it() {
    for features in ["", "^has_journal", "^resize_inode"] {
        let image = Mke2fs::new("ext4", 20).block_bytes(1024).features(features).make().unwrap();
        let device = FileDevice::open(image.path(), FileOptions::read_write()).unwrap();
        let ext4 = Ext4::open(Arc::new(device), OpenOptions::default(), WriteOptions::default()).unwrap();
        let vfs = Vfs::new(Arc::clone(&ext4) as Arc<dyn FileSystem>, VfsOptions::default());
        let root = Credentials::root();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3_u32 {
                let (vfs, stop, root) = (&vfs, &stop, &root);
                scope.spawn(move || {
                    let mut number = 0_u32;
                    while !stop.load(Ordering::Relaxed) {
                        let name = format!("{thread}-{}", number % 500);
                        let top = vfs.root().unwrap();
                        let _ = vfs.unlink(root, &top, name.as_bytes());
                        match vfs.create(root, &top, name.as_bytes(), &NewObject::file(0o644)) {
                            Ok(node) => {
                                let file = vfs.open_node_for_writing(&node).unwrap();
                                let _ = file.write_at(0, &vec![thread as u8; 30_000]);
                            }
                            Err(Error::NoSpace) => {}
                            Err(error) => panic!("{name}: {error}"),
                        }
                        number += 1;
                    }
                });
            }
            for step in 1..=10 {
                lengthen(image.path(), 20 * MIB + step * 17 * MIB + step * 4096);
                let grown = ext4.grow(None, &mut |_, _| ());
                if grown.is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
                let space = ext4.statfs().unwrap();
                assert!(space.blocks_free <= space.blocks);
                assert_eq!(grown.unwrap().blocks.1, ext4.superblock().geometry().blocks());
            }
            stop.store(true, Ordering::Relaxed);
        });
        drop(vfs);
        ext4.close().unwrap();
        drop(ext4);
        assert_sound(&image, features);
    }
}
