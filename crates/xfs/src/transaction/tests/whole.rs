//! A whole filesystem, opened for writing, changed through the vfs, and closed or left by a crash.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

use undercroft_block::testing::Recorder;
use undercroft_oracle::operations::{Abilities, Hand, OurHand, Worker};
use undercroft_oracle::{MountMode, Tool};
use undercroft_vfs::{Credentials, FileSystem, Vfs, VfsOptions};

use super::*;
use crate::fs::Xfs;

fn open(device: Device) -> (Arc<Xfs>, Arc<Vfs>) {
    let options = WriteOptions { commit_seconds: 3600, ..WriteOptions::default() };
    let fs = Xfs::open(device, OpenOptions::default(), options).unwrap();
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
    (fs, vfs)
}

/// Makes files and directories, and deletes some.
fn work(vfs: &Vfs, name: &str) {
    let root = Credentials::root();
    let dir = format!("/{name}");
    vfs.create_dir(&root, dir.as_bytes()).unwrap();
    for n in 0..300 {
        let path = format!("{dir}/file-with-a-name-{n}");
        vfs.write(&root, path.as_bytes(), vec![n as u8; n * 100]).unwrap();
    }
    for n in (0..300).step_by(3) {
        vfs.remove_file(&root, format!("{dir}/file-with-a-name-{n}").as_bytes()).unwrap();
    }
}

/// Compares what the kernel shows.
fn check(image: &Image, name: &str) {
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    let dir = mount.path().join(name);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 200);
    for n in (0..300).filter(|n| n % 3 > 0) {
        let content = fs::read(dir.join(format!("file-with-a-name-{n}"))).unwrap();
        assert!(content == vec![n as u8; n * 100], "{name}, file {n}");
    }
    mount.unmount().unwrap();
    image.xfs_repair_check().unwrap();
}

#[test]
fn what_is_written_is_there_after_a_close_and_after_a_crash() {
    for args in ["", "-s size=4096", "-m rmapbt=1,reflink=1", "-m finobt=0,reflink=0,inobtcount=0"] {
        let image = image(64, args);
        let device = in_memory(&image);
        let (fs, vfs) = open(Arc::clone(&device));
        work(&vfs, "closed");
        let counted = fs.statfs().unwrap();
        drop(vfs);
        fs.close().unwrap();
        fs::write(image.path(), bytes_of(&device)).unwrap();
        image.xfs_repair_check().unwrap_or_else(|error| panic!("{args}: {error}"));
        check(&image, "closed");

        let device = in_memory(&image);
        let (fs, vfs) = open(Arc::clone(&device));
        assert_eq!(fs.statfs().unwrap().blocks_free, counted.blocks_free, "{args}");
        work(&vfs, "synced");
        fs.sync().unwrap();
        let crashed = bytes_of(&device);
        fs::write(image.path(), &crashed).unwrap();
        check(&image, "synced");
        drop(vfs);
        drop(fs);

        let device: Device = Arc::new(MemoryDevice::from_bytes(crashed, Access::ReadWrite));
        let (fs, vfs) = open(Arc::clone(&device));
        assert!(fs.recovery().unwrap().transactions > 0);
        work(&vfs, "recovered");
        drop(vfs);
        fs.close().unwrap();
        fs::write(image.path(), bytes_of(&device)).unwrap();
        image.xfs_repair_check().unwrap_or_else(|error| panic!("{args}: {error}"));
        for name in ["closed", "synced", "recovered"] {
            check(&image, name);
        }
    }
}

#[test]
fn what_cannot_be_written_is_named() {
    for (args, word) in [("-m crc=0", "version 4"), ("-n version=ci", "ascii-ci")] {
        let image = image(64, args);
        let before = image.sha256().unwrap();
        let device =
            undercroft_block::FileDevice::open(image.path(), undercroft_block::FileOptions::read_write())
                .unwrap();
        let refused = Xfs::open(Arc::new(device), OpenOptions::default(), WriteOptions::default());
        let error = refused.err().unwrap().to_string();
        assert!(error.contains(word), "{error}");
        assert_eq!(image.sha256().unwrap(), before);
    }
}

/// Everything that programs do, with a power cut at any moment, while deleted files are still open. Two threads of
/// programs, so that transactions have handles of both.
#[test]
fn a_crash_at_any_moment_leaves_a_filesystem_in_order() {
    for (args, seed) in [("", 1), ("-m rmapbt=1,reflink=1", 2)] {
        crash(args, seed, 24);
    }
}

fn crash(args: &str, seed: u64, crashes: u64) {
    let image = image(32, args);
    let recorder = Arc::new(Recorder::new(in_memory(&image)));
    let (fs, vfs) = open(recorder.clone());
    let root = Credentials::root();
    vfs.create_dir(&root, b"/shared").unwrap();
    let abilities = Abilities {
        extents: true,
        shares: false,
        block_bytes: 4096,
        value_max_bytes: 3000,
        reach_bytes: 100_000,
    };
    let hand = OurHand::new(&vfs);
    let mut workers: Vec<Worker> = (0..2).map(|number| Worker::new(seed, number, abilities)).collect();
    for number in 0..2 {
        hand.act(&Worker::ground(number)).unwrap();
    }
    let mut open_files = Vec::new();
    // Events that had been recorded when each marker was durable.
    let mut durable = Vec::new();
    for round in 0..25 {
        std::thread::scope(|scope| {
            for worker in &mut workers {
                let hand = hand.clone();
                scope.spawn(move || {
                    for operation in worker.by_ref().take(12) {
                        hand.act(&operation).unwrap();
                    }
                });
            }
        });
        let path = format!("/shared/kept-{round}");
        vfs.write(&root, path.as_bytes(), vec![7; 30_000]).unwrap();
        open_files.push(vfs.open(&root, path.as_bytes()).unwrap());
        vfs.remove_file(&root, path.as_bytes()).unwrap();
        vfs.write(&root, format!("/marker-{round}").as_bytes(), round.to_string()).unwrap();
        fs.sync().unwrap();
        durable.push(recorder.recording().events().len());
        if round % 5 == 4 {
            open_files.clear();
        }
    }
    drop(hand);
    drop(open_files);
    drop(vfs);
    fs.close().unwrap();

    let recording = recorder.recording();
    let events = recording.events().len();
    let mut random = Rng::new(seed);
    for crash in 0..crashes {
        let cut = durable[0] + random.below((events - durable[0]) as u64 + 1) as usize;
        let (device, outcome) = recording.crash_in_sectors(cut, seed ^ crash, 512).unwrap();
        let what = format!("{args}, crash {crash}, cut {cut} of {events}, {outcome}");
        let markers = durable.partition_point(|&events| events <= cut);
        fs::write(image.path(), bytes_of(&device)).unwrap();
        let kernels = image.copy().unwrap();
        let mount = kernels.mount(MountMode::ReadWrite, "").unwrap_or_else(|error| panic!("{what}: {error}"));
        for n in 0..markers {
            let content = fs::read_to_string(mount.path().join(format!("marker-{n}"))).unwrap();
            assert_eq!(content, n.to_string(), "{what}");
        }
        mount.unmount().unwrap();
        kernels.xfs_repair_check().unwrap_or_else(|error| panic!("the kernel, {what}: {error}"));

        let fs = Xfs::open(Arc::clone(&device), OpenOptions::default(), WriteOptions::default());
        let fs = fs.unwrap_or_else(|error| panic!("{what}: {error}"));
        let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
        for n in 0..markers {
            let content = vfs.read(&root, format!("/marker-{n}").as_bytes()).unwrap();
            assert_eq!(content, n.to_string().as_bytes(), "{what}");
        }
        drop(vfs);
        fs.close().unwrap();
        fs::write(image.path(), bytes_of(&device)).unwrap();
        image.xfs_repair_check().unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

#[test]
fn a_log_left_by_the_kernel_is_replayed_onto_the_device() {
    let image = image(64, "");
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    for n in 0..500 {
        fs::write(mount.path().join(format!("file-{n}")), vec![n as u8; 5000]).unwrap();
    }
    for n in (0..500).step_by(2) {
        fs::remove_file(mount.path().join(format!("file-{n}"))).unwrap();
    }
    // Without names and in use when it ends.
    let kept = fs::File::create(mount.path().join("kept")).unwrap();
    fs::remove_file(mount.path().join("kept")).unwrap();
    Tool::new("sync").arg("-f").arg(mount.path()).run().unwrap();
    let crashed = image.copy_between_writes(&mount).unwrap();
    drop(kept);
    mount.unmount().unwrap();
    let device = in_memory(&crashed);
    let (fs, vfs) = open(Arc::clone(&device));
    let recovery = fs.recovery().unwrap();
    assert_eq!((recovery.unlinked_inodes(), recovery.transactions > 0), (1, true));
    work(&vfs, "behind");
    drop(vfs);
    fs.close().unwrap();
    fs::write(crashed.path(), bytes_of(&device)).unwrap();
    crashed.xfs_repair_check().unwrap();
    check(&crashed, "behind");
    let mount = crashed.mount(MountMode::ReadOnly, "").unwrap();
    for n in (1..500).step_by(2) {
        assert!(fs::read(mount.path().join(format!("file-{n}"))).unwrap() == vec![n as u8; 5000], "{n}");
    }
    mount.unmount().unwrap();
}

/// An intent as Linux logs it, to do something with one run of blocks: its kind, and what follows the length.
fn intent(kind: u16, (first, count): (FsBlock, u64), flags: u32) -> Vec<u8> {
    let mut bytes = [kind, 1].map(u16::to_le_bytes).concat();
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(u64::from(kind).to_le_bytes());
    bytes.extend(first.0.to_le_bytes());
    bytes.extend((count as u32).to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes
}

#[test]
fn work_that_the_log_announces_is_finished() {
    const FREE: (u16, u32) = (0x1236, 0);
    const DECREASE: (u16, u32) = (0x1242, 2);
    let image = image(64, "");
    let device = in_memory(&image);
    let (fs, _vfs) = open(Arc::clone(&device));
    let before = fs.statfs().unwrap().blocks_free;
    let runs = {
        let volume = fs.volume();
        let allocator = &volume.writer().unwrap().allocator;
        let handle = volume.start_with_space(100, 50).unwrap();
        let goal = volume.geometry().block_at_linear(100).unwrap();
        [allocator.take(&handle, goal, 20).unwrap(), allocator.take(&handle, goal, 30).unwrap()]
    };
    fs.sync().unwrap();
    let crashed: Device = Arc::new(MemoryDevice::from_bytes(bytes_of(&device), Access::ReadWrite));
    let replayed = crate::log::recover_onto_device(&crashed, fs.superblock(), |_| Ok(())).unwrap();
    let mut log = replayed.begin(&crashed).unwrap();
    log.checkpoint(None, 2, |checkpoint| {
        checkpoint.region(&intent(FREE.0, runs[0], FREE.1))?;
        checkpoint.region(&intent(DECREASE.0, runs[1], DECREASE.1))
    })
    .unwrap();

    fs::write(image.path(), bytes_of(&crashed)).unwrap();
    let kernels = image.copy().unwrap();
    kernels.mount(MountMode::ReadWrite, "").unwrap().unmount().unwrap();
    kernels.xfs_repair_check().unwrap();

    // A crash before the work is durable, and at the end.
    let recorder = Arc::new(Recorder::new(crashed));
    let (fs, vfs) = open(recorder.clone());
    assert_eq!(fs.recovery().unwrap().unfinished_steps(), 2);
    assert_eq!(fs.statfs().unwrap().blocks_free, before);
    drop(vfs);
    fs.close().unwrap();
    let recording = recorder.recording();
    let events = recording.events().len();
    for cut in 0..=events {
        let (device, outcome) = recording.crash_in_sectors(cut, cut as u64, 512).unwrap();
        let what = format!("cut {cut} of {events}, {outcome}");
        let (fs, vfs) = open(Arc::clone(&device));
        assert_eq!(fs.statfs().unwrap().blocks_free, before, "{what}");
        drop(vfs);
        fs.close().unwrap();
        fs::write(image.path(), bytes_of(&device)).unwrap();
        image.xfs_repair_check().unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

/// The same to do something with a run of blocks of a file: its kind, the inode, and what follows its length.
fn file_intent(kind: u16, ino: u64, at: u64, (first, count): (FsBlock, u32), flags: u32) -> Vec<u8> {
    let mut bytes = [kind, 1].map(u16::to_le_bytes).concat();
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend((at << 16 | u64::from(flags)).to_le_bytes());
    for word in [ino, first.0, at] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(count.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes
}

/// The map of the file is a tree, and there is no block for it to grow into but what is set aside.
#[test]
fn blocks_of_a_file_are_moved_as_the_log_announces_where_space_has_run_out() {
    const MAP: u16 = 0x1244;
    const PIECES: u64 = 60;
    let root = Credentials::root();
    for args in ["-m rmapbt=1,reflink=1", "-m reflink=1"] {
        let image = image(64, args);
        let mount = image.mount(MountMode::ReadWrite, "").unwrap();
        let path = mount.path().join("file");
        let mut content = Vec::new();
        for piece in 0..PIECES {
            content.extend([vec![piece as u8 + 1; 3 * 4096], vec![0; 4096]].concat());
        }
        let file = fs::File::create(&path).unwrap();
        // Linux allocates nothing ahead then.
        file.set_len(content.len() as u64).unwrap();
        for (piece, bytes) in content.chunks(4 * 4096).enumerate() {
            file.write_all_at(&bytes[..3 * 4096], piece as u64 * 4 * 4096).unwrap();
        }
        let ino = file.metadata().unwrap().ino();
        drop(file);
        mount.unmount().unwrap();

        let device = in_memory(&image);
        let (fs, vfs) = open(Arc::clone(&device));
        for bytes in [1 << 20, 4096] {
            let mut n = 0;
            while vfs.write(&root, format!("/fill-{bytes}-{n}").as_bytes(), vec![7; bytes]).is_ok() {
                n += 1;
            }
        }
        assert!(fs.statfs().unwrap().blocks_free < 8, "{:?}", fs.statfs());
        // The second block of every second piece is to become the fourth.
        let mut moves = Vec::new();
        let inode = crate::inode::Inode::read(fs.volume(), undercroft_vfs::Ino(ino)).unwrap();
        for piece in (0..PIECES as usize).step_by(2) {
            let at = piece as u64 * 4 + 1;
            let found = crate::map::lookup(fs.volume(), inode.ino, &inode.data, crate::format::FileBlock(at))
                .unwrap();
            let crate::map::Run::Extent(extent) = found else { panic!("{found:?}") };
            let blocks = (extent.block_of(at), 1);
            moves.push(file_intent(MAP, ino, at, blocks, 2));
            moves.push(file_intent(MAP, ino, at + 2, blocks, 1));
            let bytes = &mut content[piece * 4 * 4096..][..4 * 4096];
            bytes[4096..2 * 4096].fill(0);
            bytes[3 * 4096..].fill(piece as u8 + 1);
        }
        drop(vfs);
        fs.close().unwrap();
        let superblock = crate::format::Superblock::read(&*device).unwrap();
        let replayed = crate::log::recover_onto_device(&device, &superblock, |_| Ok(())).unwrap();
        let mut log = replayed.begin(&device).unwrap();
        log.checkpoint(None, moves.len() as u32, |checkpoint| {
            moves.iter().try_for_each(|intent| checkpoint.region(intent))
        })
        .unwrap();

        fs::write(image.path(), bytes_of(&device)).unwrap();
        let kernels = image.copy().unwrap();
        let (fs, vfs) = open(Arc::clone(&device));
        assert_eq!(fs.recovery().unwrap().unfinished_by_kind(), [0, 0, 0, PIECES as usize]);
        assert!(vfs.read(&root, b"/file").unwrap() == content, "{args}");
        vfs.remove_file(&root, b"/fill-1048576-0").unwrap();
        drop(vfs);
        fs.close().unwrap();
        fs::write(image.path(), bytes_of(&device)).unwrap();
        image.xfs_repair_check().unwrap_or_else(|error| panic!("{args}: {error}"));
        for image in [image, kernels] {
            let mount = image.mount(MountMode::ReadWrite, "").unwrap();
            assert!(fs::read(mount.path().join("file")).unwrap() == content, "{args}");
            mount.unmount().unwrap();
            image.xfs_repair_check().unwrap();
        }
    }
}

#[test]
fn copies_that_were_being_made_are_freed() {
    let image = image(64, "-m reflink=1");
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    let path = mount.path().join("file");
    fs::write(&path, vec![1; 2 << 20]).unwrap();
    Tool::new("cp").args(["--reflink=always"]).arg(&path).arg(mount.path().join("copy")).run().unwrap();
    Tool::new("xfs_io")
        .args(["-c", "cowextsize 512k", "-c", "pwrite 100k 4k", "-c", "pwrite 1m 4k", "-c", "fsync"])
        .arg(&path)
        .run()
        .unwrap();
    let crashed = image.copy_between_writes(&mount).unwrap();
    mount.unmount().unwrap();
    let device = in_memory(&crashed);
    let superblock = crate::format::Superblock::read(&*device).unwrap();
    let recovered = crate::log::recover(&device, None, &superblock).unwrap();
    let volume = crate::volume::Volume::new(recovered.device, recovered.superblock, 1 << 20);
    assert!(crate::log::copies(&volume).unwrap() > 0);
    let (fs, vfs) = open(Arc::clone(&device));
    work(&vfs, "behind");
    drop(vfs);
    fs.close().unwrap();
    fs::write(crashed.path(), bytes_of(&device)).unwrap();
    crashed.xfs_repair_check().unwrap();
    check(&crashed, "behind");
}
