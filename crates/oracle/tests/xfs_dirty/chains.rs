//! Logs that end in the middle of work: threads share, unshare, move and free blocks of files in hundreds of pieces, each
//! of which Linux logs as a chain of transactions, while other threads make whatever there is durable at once. So most
//! images are copied with a log that announces work and does not finish it.
//!
//! Of each filesystem one such image is opened by us while power is lost, at any moment around a flush, with any part of
//! what was not flushed lost: what is left we recover and Linux recovers, both with the same outcome.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::FallocateFlags;
use undercroft_block::testing::{Event, Recorder, Rng};
use undercroft_block::{Device, FileDevice, FileOptions};
use undercroft_oracle::{
    Differences, Image, Manifest, MkfsXfs, MountMode, Result, Tool, kernel_manifest, open_xfs, our_manifest,
};
use undercroft_vfs::{FileSystem, Vfs, VfsOptions};
use undercroft_xfs::{OpenOptions, WriteOptions, Xfs};

use crate::Tally;
use crate::judge::{MAPS, Seen, grant_map_blocks, judge, open, repair_finds_nothing};
use crate::setup::{Bay, Dirty};
use crate::writing::Written;

/// Kinds of filesystem: the last ones have no shared blocks, or no reverse map.
const KINDS: &[&str] = &[
    "-m rmapbt=1",
    "-m rmapbt=1 -d agcount=1",
    "-m rmapbt=1 -i nrext64=1 -l su=32k",
    "-m rmapbt=1 -d agcount=8",
    "-m rmapbt=1,reflink=0 -l size=8m",
    "",
];

const SIZE_MIB: u64 = 200;

const BLOCK: u64 = 4096;

/// Pieces of a file, of one block each with a hole behind it.
const PIECES: u64 = 300;

const WORKERS: u64 = 4;

/// Threads that make durable what there is.
const PUSHERS: u64 = 2;

/// How long the threads work before an image is taken, in milliseconds, and how much longer at most.
const WORK_MS: (u64, u64) = (60, 100);

/// Images that are taken of one filesystem, and those of them that are looked at, beside what a shutdown leaves: the ones
/// with the most to finish.
const IMAGES: (usize, usize) = (12, 4);

fn in_pieces(path: &Path, pieces: u64, fill: u8) -> std::io::Result<File> {
    let file = File::options().create(true).truncate(true).read(true).write(true).open(path)?;
    file.set_len(2 * pieces * BLOCK)?;
    for piece in 0..pieces {
        file.write_all_at(&[fill; BLOCK as usize], 2 * piece * BLOCK)?;
    }
    file.sync_data()?;
    Ok(file)
}

/// Changes the maps of two files until it is told to stop, or the filesystem goes away.
fn change_maps(root: &Path, number: u64, seed: u64, stop: &AtomicBool) -> std::io::Result<()> {
    let mut random = Rng::new(seed << 8 ^ number);
    let [one, other] = ["one", "other"].map(|name| root.join(format!("{name}-{number}")));
    let mut files =
        [in_pieces(&one, PIECES, number as u8)?, in_pieces(&other, PIECES / 2, number as u8 ^ 0x80)?];
    while !stop.load(Ordering::Relaxed) {
        let at = random.index(2);
        let (file, source) = (&files[at], &files[1 - at]);
        let place = random.below(PIECES) * BLOCK;
        let allocate = |flags, blocks: u64| rustix::fs::fallocate(file, flags, place, blocks * BLOCK);
        // A range that cannot be moved or shared as it lies is of no matter.
        match random.below(11) {
            0..=2 => {
                let _ = rustix::fs::ioctl_ficlone(file, source);
            }
            3 | 4 => {
                for _ in 0..40 {
                    file.write_all_at(&[random.below(256) as u8; 5000], random.below(PIECES) * BLOCK)?;
                }
                file.sync_data()?;
            }
            5 => {
                let _ = allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 60);
            }
            6 => {
                let _ = allocate(FallocateFlags::COLLAPSE_RANGE, 3);
            }
            7 => {
                let _ = allocate(FallocateFlags::INSERT_RANGE, 3);
            }
            8 | 9 => {
                // Blocks that were never written become written ones.
                let _ = allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 40);
                let _ = allocate(FallocateFlags::empty(), 40);
                for piece in 0..10 {
                    file.write_all_at(&[piece as u8; BLOCK as usize], place + 4 * piece * BLOCK)?;
                    file.sync_data()?;
                }
            }
            _ => {
                let path = if at == 0 { &one } else { &other };
                std::fs::remove_file(path)?;
                files[at] = in_pieces(path, PIECES, random.below(256) as u8)?;
            }
        }
    }
    Ok(())
}

/// Has the log written out again and again.
fn push(root: &Path, number: u64, stop: &AtomicBool) -> std::io::Result<()> {
    let file = File::create(root.join(format!("pushed-{number}")))?;
    let mut size = 0;
    while !stop.load(Ordering::Relaxed) {
        size ^= 1;
        file.set_len(size)?;
        file.sync_all()?;
    }
    Ok(())
}

fn images(bay: &Bay, kind: &str, seed: u64) -> Result<Vec<Dirty>> {
    let image = MkfsXfs::new(SIZE_MIB, kind).make_in(bay.scratch()?)?;
    let mount = image.mount(MountMode::ReadWrite, "noatime")?;
    let root = mount.path();
    let stop = AtomicBool::new(false);
    let mut random = Rng::new(seed);
    let mut taken = Vec::new();
    std::thread::scope(|scope| -> Result<()> {
        let stop = &stop;
        for number in 0..WORKERS {
            scope.spawn(move || change_maps(root, number, seed, stop));
        }
        for number in 0..PUSHERS {
            scope.spawn(move || push(root, number, stop));
        }
        let mut take = || -> Result<()> {
            for _ in 0..IMAGES.0 {
                std::thread::sleep(Duration::from_millis(WORK_MS.0 + random.below(WORK_MS.1)));
                taken.push(image.reflink()?);
            }
            let flush = if seed.is_multiple_of(2) { "shutdown -f" } else { "shutdown" };
            Tool::new("xfs_io").args(["-x", "-c", flush]).arg(root).run().map(drop)
        };
        let outcome = take();
        stop.store(true, Ordering::Relaxed);
        outcome
    })?;
    mount.unmount()?;
    let mut taken: Vec<Dirty> = taken.into_iter().map(dirty).collect();
    taken.sort_by_cached_key(|dirty| std::cmp::Reverse(left_to_finish(dirty)));
    taken.truncate(IMAGES.1);
    taken.push(dirty(image));
    Ok(taken)
}

/// Changes of maps and of users of blocks that the log announces, then steps of all kinds.
fn left_to_finish(dirty: &Dirty) -> (bool, bool, usize) {
    let fs = open(dirty).unwrap();
    let kinds = fs.recovery().map_or([0; 4], undercroft_xfs::Recovery::unfinished_by_kind);
    (kinds[MAPS] > 0, kinds[MAPS - 1] > 0, kinds.iter().sum())
}

fn dirty(image: Image) -> Dirty {
    Dirty { image, log: None, live: None, small_blocks: false }
}

/// Blocks of metadata that are written home are not torn; see `writing::crash`.
const WHOLE_BYTES: u32 = 4096;

/// Moments of one opening at which power is lost.
const CUTS: usize = 10;

fn open_for_writing(device: Device) -> Arc<Xfs> {
    Xfs::open(device, OpenOptions::default(), WriteOptions::default()).unwrap()
}

fn manifest_of(fs: &Arc<Xfs>) -> Manifest {
    let vfs = Vfs::new(Arc::clone(fs) as Arc<dyn FileSystem>, VfsOptions::default());
    Manifest { space: None, ..our_manifest(&vfs).unwrap() }
}

fn cut_while_it_is_finished(dirty: &Dirty, seed: u64, name: &str) {
    let as_it_is = open(dirty).unwrap();
    let (shown, recovery) = (manifest_of(&as_it_is), as_it_is.recovery().cloned());
    drop(as_it_is);
    let base = FileDevice::open(dirty.image.path(), FileOptions::read_only()).unwrap();
    let recorder = Arc::new(Recorder::new(Arc::new(base)));
    let fs = open_for_writing(Arc::clone(&recorder) as Device);
    let recording = recorder.recording();
    fs.close().unwrap();
    let events = recording.events();
    let flushes = (0..events.len()).filter(|&at| matches!(events[at], Event::Flush { .. }));
    let mut cuts: Vec<usize> = flushes.flat_map(|at| [at, at + 1]).collect();
    cuts.push(events.len());
    let step = cuts.len().div_ceil(CUTS);
    for cut in cuts.into_iter().skip(seed as usize % step).step_by(step) {
        let (device, outcome) =
            recording.crash_in_sectors(cut, seed << 20 | cut as u64, WHOLE_BYTES).unwrap();
        let what = format!("{name}, cut after {cut} of {} events: {outcome}", events.len());
        let kernels = Image::of_device("xfs", &*device).unwrap();
        open_for_writing(Arc::clone(&device)).close().unwrap_or_else(|error| panic!("{what}: {error}"));
        let ours = Image::of_device("xfs", &*device).unwrap();
        repair_finds_nothing(ours.path(), None).unwrap_or_else(|error| panic!("{what}: {error}"));
        let (fs, _) = open_xfs(ours.path()).unwrap();
        let found = grant_map_blocks(manifest_of(&fs), &shown, recovery.as_ref());
        Differences::between(&shown, &found).assert_none(&format!("{what}: ours"));
        let mount =
            kernels.mount(MountMode::Recovering, "").unwrap_or_else(|error| panic!("{what}: {error}"));
        let theirs = kernel_manifest(mount.path()).unwrap();
        mount.unmount().unwrap();
        repair_finds_nothing(kernels.path(), None).unwrap_or_else(|error| panic!("{what}: Linux's: {error}"));
        let theirs = grant_map_blocks(Manifest { space: None, ..theirs }, &shown, recovery.as_ref());
        Differences::between(&theirs, &shown).assert_none(&format!("{what}: the kernel's"));
    }
}

#[test]
fn work_that_was_interrupted_is_finished() {
    let bay = Bay::new().unwrap();
    let seen = crate::each_seed(KINDS.len() as u64, |seed| {
        let kind = KINDS[(seed % KINDS.len() as u64) as usize];
        let images = images(&bay, kind, seed).unwrap_or_else(|error| panic!("seed {seed} ({kind}): {error}"));
        let name = |part| format!("seed {seed}, image {part} ({kind})");
        let seen: Vec<Seen> =
            images.iter().enumerate().map(|(part, dirty)| judge(dirty, &name(part))).collect();
        let is_wanted = |seen: &Seen| match seen {
            Seen::Shown { recovery: Some(recovery), .. } => recovery.unfinished_by_kind()[MAPS] > 0,
            _ => false,
        };
        if let Some(part) = seen.iter().position(is_wanted) {
            cut_while_it_is_finished(&images[part], seed, &name(part));
        }
        seen
    });
    let mut tally = Tally::default();
    for seen in seen.into_iter().flatten() {
        if let Seen::Shown { recovery, written: Some(Written::Refused(what)) } = &seen {
            panic!("not written to: {what}, {recovery:?}");
        }
        tally.add(seen);
    }
    println!("{tally:?}");
    assert!(tally.refused.is_empty(), "{tally:?}");
    assert!(tally.finished.iter().all(|&count| count > 0), "a kind of work was not met: {tally:?}");
}
