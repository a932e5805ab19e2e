//! XFS that we make larger: xfs_repair finds nothing wrong with it, it has the geometry that xfs_growfs gives a copy of the
//! same image, every file is as it was, and the kernel mounts and fills it.
//!
//! `UNDERCROFT_SEED` replays a seed.

use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use undercroft_block::testing::{Recorder, Rng};
use undercroft_block::{Device, FileDevice, FileOptions};
use undercroft_oracle::{Image, MkfsXfs, MountMode, Tool};
use undercroft_vfs::{Credentials, Error, FileSystem, NewObject, Result, Vfs, VfsOptions};
use undercroft_xfs::{CheckOptions, Grown, InodeTree, OpenOptions, WriteOptions, Xfs, check_with_log};

use super::{MIB, files, fill, lengthen, populate};

fn open(path: &Path) -> Arc<Xfs> {
    let device = FileDevice::open(path, FileOptions::read_write()).unwrap();
    Xfs::open(Arc::new(device), OpenOptions::default(), WriteOptions::default()).unwrap()
}

/// Grows an image file to `size_bytes`, as a user does.
fn grow(path: &Path, size_bytes: u64) -> Result<Grown> {
    lengthen(path, size_bytes);
    let xfs = open(path);
    let grown = xfs.grow(None, &mut |done, all| assert!(done <= all));
    xfs.close().unwrap();
    grown
}

/// What xfs_repair and our own check find.
fn assert_sound(image: &Image, what: &str) {
    image.xfs_repair_check().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_nothing_found(image, what);
}

/// What our own check finds, after a recovery in memory if one is needed.
fn assert_nothing_found(image: &Image, what: &str) {
    let device = FileDevice::open(image.path(), FileOptions::read_only()).unwrap();
    let device: Device = Arc::new(device);
    let report = check_with_log(&device, None, &CheckOptions::default()).unwrap();
    assert!(report.findings.is_empty(), "{what}: {:?}", report.findings);
}

/// The geometry, and the headers of all groups without the positions of their last changes, as xfs_db shows them.
fn facts(image: &Image) -> BTreeMap<String, String> {
    let groups = image.xfs_number(&["sb 0", "print agcount"], "agcount").unwrap();
    let mut facts = BTreeMap::new();
    for group in 0..groups {
        for (header, left_out) in [
            // What is counted while the filesystem is in use says nothing of its geometry.
            // Inodes may have attributes once a filesystem has been opened for writing here, and the version says so.
            (
                "sb",
                &[
                    "lsn",
                    "crc",
                    "versionnum",
                    "icount",
                    "ifree",
                    "fdblocks",
                    "inprogress",
                    "rootino",
                    "rbmino",
                    "rsumino",
                ][..],
            ),
            ("agf", &["lsn", "crc"]),
            ("agi", &["lsn", "crc"]),
        ] {
            let told = image.xfs_db(&[&format!("{header} {group}"), "print"]).unwrap();
            for line in told.lines() {
                if let Some((name, value)) = line.split_once(" = ")
                    && !left_out.contains(&name)
                {
                    facts.insert(format!("{header} {group} {name}"), value.to_owned());
                }
            }
        }
    }
    facts.insert("free blocks".into(), image.xfs_db(&["sb 0", "print fdblocks"]).unwrap());
    facts
}

/// Has xfs_growfs grow a copy.
fn grown_by_linux(image: &Image, size_bytes: u64) -> Image {
    let copy = image.copy().unwrap();
    lengthen(copy.path(), size_bytes);
    let mount = copy.mount(MountMode::ReadWrite, "").unwrap();
    Tool::new("xfs_growfs").arg("-d").arg(mount.path()).run().unwrap();
    mount.unmount().unwrap();
    copy
}

/// Arguments of mkfs.xfs, the size in MiB, and the size afterwards in bytes.
const CASES: [(&str, &str, u64, u64); 14] = [
    ("default", "", 300, 700 * MIB),
    (
        "no trees beside the usual ones",
        "-m finobt=0,reflink=0,rmapbt=0,bigtime=0 -i sparse=0",
        300,
        500 * MIB,
    ),
    ("finobt without counters", "-m finobt=1,inobtcount=0,reflink=0 -l size=8m", 64, 200 * MIB),
    (
        "all features",
        "-m rmapbt=1,reflink=1,inobtcount=1,bigtime=1 -i sparse=1,nrext64=1",
        64,
        333 * MIB + 4096,
    ),
    ("rmapbt without reflink", "-m rmapbt=1,reflink=0 -l size=8m", 64, 200 * MIB),
    ("sectors of 4096", "-s size=4096 -m rmapbt=1", 64, 200 * MIB),
    ("blocks of 16384", "-b size=16384 -m rmapbt=1", 300, 701 * MIB),
    ("blocks of 65536, sectors of 1024", "-b size=65536 -s size=1024", 1200, 3000 * MIB),
    ("stripes", "-d su=64k,sw=2 -l su=64k", 128, 1024 * MIB),
    ("a last group that is short", "-m rmapbt=1 -d agsize=24m", 64, 70 * MIB),
    ("a last group filled up", "-m rmapbt=1 -d agsize=24m", 64, 72 * MIB + 63 * 4096),
    (
        "a last group filled up, others, and a short one",
        "-m rmapbt=1 -d agsize=24m",
        64,
        144 * MIB + 64 * 4096,
    ),
    ("many small groups", "-d agsize=16m", 64, 3000 * MIB),
    ("inodes of 2048", "-i size=2048 -m rmapbt=1", 64, 190 * MIB),
];

#[test]
fn a_filesystem_grows_as_linux_grows_it() {
    for (name, args, mib, size_bytes) in CASES {
        println!("{name}");
        let image = MkfsXfs::new(mib, args).make().unwrap();
        populate(&image);
        let before = files(&image);
        let theirs = grown_by_linux(&image, size_bytes);
        let grown = grow(image.path(), size_bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(grown.blocks.1 > grown.blocks.0, "{name}: {grown:?}");
        assert_sound(&image, name);
        let (ours, theirs) = (facts(&image), facts(&theirs));
        let differs: Vec<_> = theirs
            .iter()
            .filter(|(name, value)| ours.get(*name) != Some(value))
            .map(|(name, value)| (name, value, ours.get(name)))
            .collect();
        assert!(differs.is_empty(), "{name}: {differs:?}");
        assert_eq!(ours.len(), theirs.len(), "{name}");
        assert_eq!(files(&image), before, "{name}");
        // Once more: there is nothing to do.
        let again = grow(image.path(), size_bytes).unwrap();
        assert_eq!((again.blocks.0, again.blocks.1), (grown.blocks.1, grown.blocks.1), "{name}");
        if size_bytes < 800 * MIB {
            fill(&image);
        }
        assert_sound(&image, name);
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
    let mut rng = Rng::new(seed);
    for (name, args) in [("rmapbt", "-m rmapbt=1 -d agsize=16m"), ("8k", "-b size=8192 -d agsize=17m")] {
        let image = MkfsXfs::new(64, args).make().unwrap();
        populate(&image);
        let before = files(&image);
        let mut size = 64 * MIB;
        for step in 0..8 {
            size += 1 + rng.below([MIB, 50 * MIB][step % 2]);
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
    let image = MkfsXfs::new(64, "").make().unwrap();
    let before = facts(&image);
    for (size_bytes, word) in [(32 * MIB, "cannot be made smaller"), (65 * MIB, "make it larger first")] {
        let xfs = open(image.path());
        let error = xfs.grow(Some(size_bytes), &mut |_, _| ()).unwrap_err();
        xfs.close().unwrap();
        assert!(matches!(error, Error::Unsupported(_)), "{error}");
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
    // A rest that is no group.
    let grown = grow(image.path(), 64 * MIB + 63 * 4096).unwrap();
    assert_eq!(grown.blocks.0, grown.blocks.1);
    assert_eq!(facts(&image), before);
    assert_sound(&image, "after refusals");
    let device = FileDevice::open(image.path(), FileOptions::read_only()).unwrap();
    let xfs = Xfs::open_read_only(Arc::new(device), OpenOptions::default()).unwrap();
    assert!(matches!(xfs.grow(None, &mut |_, _| ()), Err(Error::ReadOnly)));
}

/// Power is lost after each request. The filesystem has the old size or the new one then, for us and for the kernel, and
/// xfs_repair finds nothing.
#[test]
fn a_power_cut_leaves_the_old_size_or_the_new_one() {
    for (name, args, size_bytes) in [
        ("short last group, and more", "-m rmapbt=1 -d agsize=20m", 133 * MIB),
        ("within the last group", "-d agsize=20m", 70 * MIB),
        ("sectors of 4096", "-s size=4096 -d agsize=20m", 100 * MIB),
    ] {
        let image = MkfsXfs::new(64, args).make().unwrap();
        populate(&image);
        let before = files(&image);
        let old_blocks = image.xfs_number(&["sb 0", "print dblocks"], "dblocks").unwrap();
        lengthen(image.path(), size_bytes);
        let sector_bytes = image.xfs_number(&["sb 0", "print sectsize"], "sectsize").unwrap() as u32;
        let device = FileDevice::open(image.path(), FileOptions::read_only()).unwrap();
        let recorder = Arc::new(Recorder::new(Arc::new(device)));
        let device = Arc::clone(&recorder) as Device;
        let xfs = Xfs::open(device, OpenOptions::default(), WriteOptions::default()).unwrap();
        let first = recorder.recording().events().len();
        let grown = xfs.grow(None, &mut |_, _| ()).unwrap();
        xfs.close().unwrap();
        let recording = recorder.recording();
        let sizes = [old_blocks, grown.blocks.1];
        assert!(recording.events().len() > first + 5);
        let mut seen = [0, 0];
        for cut in first..=recording.events().len() {
            let (device, crash) = recording.crash_in_sectors(cut, cut as u64, sector_bytes).unwrap();
            let what = format!("{name}, cut after {cut}: {crash}");
            let ours = Image::of_device("xfs", &*device).unwrap();
            let theirs = ours.copy().unwrap();
            assert_nothing_found(&ours, &what);
            open(ours.path()).close().unwrap();
            assert_sound(&ours, &what);
            let mounted =
                theirs.mount(MountMode::ReadWrite, "").unwrap_or_else(|error| panic!("{what}: {error}"));
            mounted.unmount().unwrap();
            theirs.xfs_repair_check().unwrap_or_else(|error| panic!("{what}: {error}"));
            let blocks = |image: &Image| image.xfs_number(&["sb 0", "print dblocks"], "dblocks").unwrap();
            let (ours_now, theirs_now) = (blocks(&ours), blocks(&theirs));
            assert_eq!(ours_now, theirs_now, "{what}");
            let which = sizes.iter().position(|size| *size == ours_now);
            seen[which.unwrap_or_else(|| panic!("{what}: {ours_now} blocks"))] += 1;
            if cut % 8 == 0 {
                assert_eq!(files(&ours), before, "{what}");
            }
        }
        assert!(seen[0] > 0 && seen[1] > 0, "{name}: {seen:?}");
    }
}

/// A filesystem grows twice in one mount, and new space is used: a log from which the growth is recovered has no change of
/// new space, and none of a header that says that a group in the middle is short.
#[test]
fn what_is_new_is_not_in_the_log_that_has_the_growth() {
    const OLD: u64 = 64 * MIB;
    const HEADERS: usize = 4096;
    let image = MkfsXfs::new(64, "-d agsize=24m").make().unwrap();
    populate(&image);
    lengthen(image.path(), 150 * MIB);
    let device = FileDevice::open(image.path(), FileOptions::read_only()).unwrap();
    let recorder = Arc::new(Recorder::new(Arc::new(device)));
    let device = Arc::clone(&recorder) as Device;
    let xfs = Xfs::open(device, OpenOptions::default(), WriteOptions::default()).unwrap();
    let vfs = Vfs::new(Arc::clone(&xfs) as Arc<dyn FileSystem>, VfsOptions::default());
    let root = Credentials::root();
    let top = vfs.root().unwrap();
    let use_groups = |prefix: &str| {
        for number in 0..8 {
            let directory = format!("{prefix}{number}");
            let directory =
                vfs.create(&root, &top, directory.as_bytes(), &NewObject::directory(0o755)).unwrap();
            vfs.create(&root, &directory, b"file", &NewObject::file(0o644)).unwrap();
        }
        xfs.sync().unwrap();
    };
    use_groups("a");
    let first = recorder.recording().events().len();
    assert_eq!(xfs.grow(Some(72 * MIB), &mut |_, _| ()).unwrap().groups, (3, 3));
    let twice = recorder.recording().events().len();
    assert_eq!(xfs.grow(None, &mut |_, _| ()).unwrap().groups, (3, 7));
    use_groups("b");
    let recording = recorder.recording();
    let mut recovered = 0;
    for cut in first..=recording.events().len() {
        let (left, crash) = recording.crash_in_sectors(cut, cut as u64, 512).unwrap();
        let what = format!("cut after {cut} (again from {twice}): {crash}");
        let left = Image::of_device("xfs", &*left).unwrap();
        let raw = |at: u64, len: usize| {
            let mut bytes = vec![0; len];
            std::os::unix::fs::FileExt::read_exact_at(&File::open(left.path()).unwrap(), &mut bytes, at)
                .unwrap();
            bytes
        };
        let blocks = || u64::from_be_bytes(raw(8, 8).try_into().unwrap());
        let headers = || [72, 96, 120, 144].map(|mib| raw(mib * MIB, HEADERS));
        let (blocks_before, headers_before) = (blocks(), headers());
        assert_nothing_found(&left, &what);
        let theirs = left.copy().unwrap();
        open(left.path()).close().unwrap();
        if blocks_before <= 72 * MIB / 4096 && blocks() > 72 * MIB / 4096 {
            recovered += 1;
            assert!(headers() == headers_before, "{what}: the log changes new groups");
        }
        assert!(blocks_before >= OLD / 4096, "{what}");
        theirs
            .mount(MountMode::ReadWrite, "")
            .unwrap_or_else(|error| panic!("{what}: {error}"))
            .unmount()
            .unwrap();
        theirs.xfs_repair_check().unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    assert!(recovered > 0);
    drop((top, vfs));
    xfs.close().unwrap();
}

/// Copies that a crash between two transactions of them, or an error, has left as they were.
#[test]
fn growing_again_replaces_old_copies_of_the_superblock() {
    use std::os::unix::fs::FileExt;
    let image = MkfsXfs::new(64, "-d agsize=16m").make().unwrap();
    let file = File::options().read(true).write(true).open(image.path()).unwrap();
    let places = [16 * MIB, 48 * MIB];
    let old = places.map(|place| {
        let mut sector = [0; 512];
        file.read_exact_at(&mut sector, place).unwrap();
        sector
    });
    grow(image.path(), 200 * MIB).unwrap();
    assert_sound(&image, "grown");
    for (place, sector) in places.iter().zip(&old) {
        file.write_all_at(sector, *place).unwrap();
    }
    image.xfs_repair_check().unwrap_err();
    let again = grow(image.path(), 200 * MIB).unwrap();
    assert_eq!(again.blocks.0, again.blocks.1);
    assert_sound(&image, "grown again");
}

/// What reads the headers and trees of groups, while the last one becomes longer.
#[test]
fn readers_of_groups_find_no_damage_while_a_filesystem_grows() {
    let image = MkfsXfs::new(64, "-d agsize=16m").make().unwrap();
    lengthen(image.path(), 400 * MIB);
    let xfs = open(image.path());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let usage = xfs.ag_usage().collect::<Result<Vec<_>>>();
                    let found = usage.map(drop).and_then(|()| {
                        let last = xfs.superblock().geometry().ag_count() - 1;
                        (0..=last).try_for_each(|group| xfs.free_extents(group).map(drop))?;
                        xfs.for_each_inode_chunk(last, InodeTree::All, |_| ())?;
                        xfs.for_each_free_extent(last, |_, _| ())
                    });
                    if found.is_err() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    found.unwrap();
                }
            });
        }
        for step in 1..=120 {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let grown = xfs.grow(Some(64 * MIB + step * 2 * MIB), &mut |_, _| ());
            if grown.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            grown.unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    xfs.close().unwrap();
    drop(xfs);
    assert_sound(&image, "grown");
}

/// A reader that walks through the last group keeps the filesystem from growing, also when the group is so new that nothing
/// is allocated from it yet.
#[test]
fn a_group_keeps_its_length_while_a_reader_walks_through_it() {
    let image = MkfsXfs::new(64, "-d agsize=16m").make().unwrap();
    lengthen(image.path(), 400 * MIB);
    let xfs = open(image.path());
    let (stop, visits) = (AtomicBool::new(false), AtomicU64::new(0));
    let size = || (xfs.superblock().geometry().ag_count(), xfs.superblock().geometry().blocks());
    // Asked before the first step: the reader may start after it, and must see the group that it adds.
    let first = size().0;
    let changed = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut groups, mut changed) = (first, Vec::new());
            while !stop.load(Ordering::Relaxed) {
                if size().0 == groups {
                    std::thread::yield_now();
                    continue;
                }
                groups = size().0;
                let found = xfs.for_each_free_extent(groups - 1, |_, _| {
                    let before = size();
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    if before.0 == groups && size() != before {
                        changed.push((before, size()));
                    }
                    visits.fetch_add(1, Ordering::Relaxed);
                });
                found.unwrap();
            }
            changed
        });
        // Each second step adds a group, which the reader visits; the others make it longer.
        let grown = (1..=20).try_for_each(|step| {
            let before = visits.load(Ordering::Relaxed);
            xfs.grow(Some(64 * MIB + step * 8 * MIB), &mut |_, _| ())?;
            while step % 4 == 1 && visits.load(Ordering::Relaxed) == before && !reader.is_finished() {
                std::thread::yield_now();
            }
            Ok::<_, Error>(())
        });
        stop.store(true, Ordering::Relaxed);
        grown.unwrap();
        reader.join().unwrap()
    });
    assert!(visits.load(Ordering::Relaxed) > 0 && changed.is_empty(), "{changed:?}");
    xfs.close().unwrap();
    drop(xfs);
    assert_sound(&image, "grown");
}

/// Threads make and remove files while the filesystem grows, ten times; xfs_repair finds nothing.
#[test]
fn a_filesystem_grows_while_threads_work_in_it() {
    for args in ["-d agsize=20m -m rmapbt=1", "-b size=8192 -d agsize=16m"] {
        let image = MkfsXfs::new(50, args).make().unwrap();
        let xfs = open(image.path());
        let vfs = Vfs::new(Arc::clone(&xfs) as Arc<dyn FileSystem>, VfsOptions::default());
        let root = Credentials::root();
        let (stop, full) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..3_u32 {
                let (vfs, stop, root, full) = (&vfs, &stop, &root, &full);
                scope.spawn(move || {
                    let mut number = 0_u32;
                    while !stop.load(Ordering::Relaxed) {
                        let name = format!("{thread}-{}", number % 1500);
                        let top = vfs.root().unwrap();
                        let _ = vfs.unlink(root, &top, name.as_bytes());
                        match vfs.create(root, &top, name.as_bytes(), &NewObject::file(0o644)) {
                            Ok(node) => {
                                let file = vfs.open_node_for_writing(&node).unwrap();
                                match file.write_at(0, &vec![thread as u8; 60_000]) {
                                    Ok(_) => {}
                                    Err(Error::NoSpace) => drop(full.fetch_add(1, Ordering::Relaxed)),
                                    Err(error) => panic!("{name}: {error}"),
                                }
                            }
                            Err(Error::NoSpace) => drop(full.fetch_add(1, Ordering::Relaxed)),
                            Err(error) => panic!("{name}: {error}"),
                        }
                        number += 1;
                    }
                });
            }
            for step in 1..=10 {
                lengthen(image.path(), 50 * MIB + step * 23 * MIB + step * 4096);
                std::thread::sleep(std::time::Duration::from_millis(100));
                let grown = xfs.grow(None, &mut |_, _| ());
                if grown.is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
                let space = xfs.statfs().unwrap();
                assert!(space.blocks_free <= space.blocks);
                assert_eq!(grown.unwrap().blocks.1, xfs.superblock().geometry().blocks());
            }
            stop.store(true, Ordering::Relaxed);
        });
        println!("{args}: no space {} times", full.load(Ordering::Relaxed));
        drop(vfs);
        xfs.close().unwrap();
        drop(xfs);
        assert_sound(&image, args);
        files(&image);
        fill(&image);
        assert_sound(&image, args);
    }
}

/// A filesystem that is full goes on once it has grown: with data, and with inodes.
#[test]
fn a_full_filesystem_goes_on_when_it_has_grown() {
    for args in ["-m rmapbt=1", "-d agsize=20m"] {
        let image = MkfsXfs::new(50, args).make().unwrap();
        let xfs = open(image.path());
        let vfs = Vfs::new(Arc::clone(&xfs) as Arc<dyn FileSystem>, VfsOptions::default());
        let root = Credentials::root();
        let top = vfs.root().unwrap();
        let fill = |prefix: &str| {
            for number in 0.. {
                let name = format!("{prefix}{number}");
                let made =
                    vfs.create(&root, &top, name.as_bytes(), &NewObject::file(0o644)).and_then(|node| {
                        let file = vfs.open_node_for_writing(&node)?;
                        let len = if number % 2 == 0 { 200_000 } else { 3_000 };
                        file.write_at(0, &vec![number as u8; len])
                    });
                match made {
                    Ok(_) => {}
                    Err(Error::NoSpace) => return number,
                    Err(error) => panic!("{name}: {error}"),
                }
            }
            0
        };
        assert!(fill("a") > 100);
        lengthen(image.path(), 120 * MIB);
        xfs.grow(None, &mut |_, _| ()).unwrap();
        assert!(fill("b") > 200, "{args}");
        drop((top, vfs));
        xfs.close().unwrap();
        drop(xfs);
        assert_sound(&image, args);
        files(&image);
    }
}
