//! Damaged images, mounted, walked, changed and unmounted, over /dev/fuse and over io_uring.
//!
//! Half of the images have damage of any kind (see `damage`), half have a tangled directory graph: entries that lead to
//! other directories, to the root and to the directory that holds them, with checksums recomputed. Three of four are mounted
//! for writing, over a snapshot that is thrown away. For each image: every request is answered, no thread of the server
//! panics or ends, and unmounting leaves no mount behind; in the end no process is left.
//!
//! A watchdog ends what hangs: it aborts the connection, so that nothing stays in the kernel that cannot be killed,
//! and fails with the seed. `UNDERCROFT_MOUNT_IMAGES` sets how many images there are (80), `UNDERCROFT_SEED` where
//! they begin (0): given without the former it replays one.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use undercroft_block::testing::Rng;
use undercroft_block::{Device, Overlay};
use undercroft_ext4::{Ext4, OpenOptions, WriteOptions};
use undercroft_fuse::{FaultSink, MountError, MountOptions, mount};
use undercroft_oracle::operations::{Done, Hand, KernelHand};
use undercroft_oracle::{Scratch, unmount_when_idle};
use undercroft_vfs::{FileSystem, Vfs, VfsOptions};

use crate::client::look_at;
use crate::damage::changes::{change_of_old, operations};
use crate::damage::{self, Extent, Victim, check_sentence, number_from_environment};

const IMAGES: u64 = 80;
const DAMAGE: Extent = Extent { structures: 30, one_in_is_first: 50 };
/// Changes to what is new, with some to what the image came with after each.
const OPERATIONS: usize = 12;

/// One image takes some tenths of a second; this only tells a hang from a slow machine.
const HANG: Duration = Duration::from_secs(120);

/// What became of the images.
#[derive(Debug, Default)]
struct Tally {
    refused: AtomicU64,
    mounted: AtomicU64,
    rings: AtomicU64,
    changed: AtomicU64,
    entries: AtomicU64,
    errors: AtomicU64,
    faults: AtomicU64,
}

#[test]
fn damaged_images_are_served_to_the_end() {
    let victims = damage::victims();
    let tally = Tally::default();
    let before = Leftovers::now();
    let images = number_from_environment("UNDERCROFT_MOUNT_IMAGES");
    let seeds = match number_from_environment("UNDERCROFT_SEED") {
        Some(seed) => seed..seed + images.unwrap_or(1),
        None => 0..images.unwrap_or(IMAGES),
    };
    let (next, end) = (AtomicU64::new(seeds.start), seeds.end);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&n| n < end) {
                    one(&victims, seed, &tally);
                }
            });
        }
    });
    eprintln!("{} damaged images: {tally:?}", end - seeds.start);
    before.come_back();
    if end - seeds.start > 1 {
        // The damage must have got through to something, or this test shows nothing.
        for (what, count) in [
            ("mounted", tally.mounted),
            ("served over io_uring", tally.rings),
            ("changed", tally.changed),
            ("answered with errors", tally.errors),
            ("told of", tally.faults),
        ] {
            assert!(count.into_inner() > 0, "no damage was {what}");
        }
    }
}

/// The image that belongs to a seed.
fn one(victims: &[Victim], seed: u64, tally: &Tally) {
    let mut random = Rng::new(seed);
    let victim = &victims[random.below(victims.len() as u64) as usize];
    let damaged: Device = match random.below(2) {
        0 => Arc::new(victim.tangled(&mut random)),
        _ => Arc::new(victim.damage(DAMAGE, &mut random)),
    };
    let writable = random.below(4) != 0;
    let io_uring = random.below(2) == 0;
    let what = format!("UNDERCROFT_SEED={seed} ({}, writable {writable}, io_uring {io_uring})", victim.name);
    let point = Scratch::new("hostile").unwrap();
    let dir = point.path().to_owned();
    let (done, watchdog) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let (hung, at) = (what.clone(), dir.clone());
        scope.spawn(move || watch(&watchdog, &hung, &at));
        serve(damaged, writable, io_uring, &dir, tally, |tally| {
            let seen = look_at(&dir);
            tally.entries.fetch_add(seen.entries as u64, Ordering::Relaxed);
            tally.errors.fetch_add(seen.errors as u64, Ordering::Relaxed);
            if writable {
                change(victim, &dir, &mut random, tally);
                look_at(&dir);
            }
        })
        .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(connection_at(&dir).is_none(), "{what}: the mount is still there");
        drop(done);
    });
}

/// Mounts, lets `work` go on below the mount, and unmounts.
fn serve(
    damaged: Device,
    writable: bool,
    io_uring: bool,
    dir: &Path,
    tally: &Tally,
    work: impl FnOnce(&Tally),
) -> Result<(), String> {
    let options = OpenOptions { buffer_bytes: 4 << 20, ..OpenOptions::default() };
    let device: Device = Arc::new(Overlay::new(damaged));
    let fs = if writable {
        Ext4::open(device, options, WriteOptions::default())
    } else {
        Ext4::open_read_only(device, options)
    };
    let refused = |error: String| {
        check_sentence(&error);
        tally.refused.fetch_add(1, Ordering::Relaxed);
    };
    let fs = match fs {
        Ok(fs) => fs,
        Err(error) => {
            refused(error.to_string());
            return Ok(());
        }
    };
    let vfs = Vfs::new(fs as Arc<dyn FileSystem>, VfsOptions::default());
    let (tell, told) = mpsc::channel();
    let options = MountOptions {
        read_only: !writable,
        io_uring,
        faults: FaultSink::new(move |fault| drop(tell.send(fault.to_string()))),
        ..MountOptions::default()
    };
    let mounted = match mount(vfs, dir, options) {
        Ok(mounted) => mounted,
        Err(error @ MountError::Root(_)) => {
            refused(error.to_string());
            return Ok(());
        }
        Err(error) => return Err(format!("cannot be mounted: {error}")),
    };
    tally.mounted.fetch_add(1, Ordering::Relaxed);
    tally.rings.fetch_add(u64::from(io_uring), Ordering::Relaxed);
    work(tally);
    unmount_when_idle(|| mounted.unmount()).map_err(|error| format!("cannot be unmounted: {error}"))?;
    let ended = mounted.wait();
    let faults: Vec<String> = told.try_iter().collect();
    faults.iter().for_each(|fault| check_sentence(fault));
    tally.faults.fetch_add(faults.len() as u64, Ordering::Relaxed);
    match ended {
        Ok(()) => Ok(()),
        // Damage that turned up in the middle of a change.
        Err(error @ MountError::Sync { .. }) => {
            check_sentence(&error.to_string());
            Ok(())
        }
        Err(error) => Err(format!("the server ended ill: {error}")),
    }
}

/// Changes to what the damaged tree has, between changes that make and use something new.
fn change(victim: &Victim, dir: &Path, random: &mut Rng, tally: &Tally) {
    let hand = KernelHand::new(dir);
    for operation in operations(&victim.paths, random, OPERATIONS) {
        if let Ok(Done::Yes) = hand.act(&operation) {
            tally.changed.fetch_add(1, Ordering::Relaxed);
        }
    }
    for _ in 0..OPERATIONS {
        let _ = hand.act(&change_of_old(&victim.paths, random));
    }
}

/// Aborts a connection on which work hangs, and ends the process.
fn watch(watchdog: &mpsc::Receiver<()>, what: &str, dir: &Path) {
    if watchdog.recv_timeout(HANG) == Err(mpsc::RecvTimeoutError::Timeout) {
        // Past the test's own output, which is lost with the process.
        let _ = writeln!(io::stderr(), "{what} did not end within {HANG:?}; {}", threads_now());
        if let Some(connection) = connection_at(dir) {
            let aborted = abort_connection(connection);
            let _ = writeln!(io::stderr(), "its connection {connection} is aborted: {aborted:?}");
        }
        std::process::abort();
    }
}

/// Ends a connection, so that what waits for its server does not wait for ever, through a `fusectl` of our own.
fn abort_connection(connection: u64) -> rustix::io::Result<()> {
    let filesystem = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&filesystem)?;
    let control = fsmount(&filesystem, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let file =
        openat(&control, format!("{connection}/abort"), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, b"1").map(drop)
}

/// The names of this process's threads, and what each waits for in the kernel.
fn threads_now() -> String {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let tell = |task: std::fs::DirEntry| {
        let read = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        format!("{} in {}", read("comm").trim(), read("wchan").trim())
    };
    tasks.map(tell).collect::<Vec<_>>().join(", ")
}

/// The number of the FUSE connection that is mounted on a directory.
fn connection_at(dir: &Path) -> Option<u64> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut fields = table
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|fields| fields.get(4).is_some_and(|point| Path::new(point) == dir))?
        .into_iter();
    let (_major, minor) = fields.nth(2)?.split_once(':')?;
    minor.parse().ok()
}

/// Processes and threads that a server needs beside its callers.
struct Leftovers {
    children: Vec<PathBuf>,
    threads: usize,
}

impl Leftovers {
    fn now() -> Self {
        Self { children: children(), threads: server_threads() }
    }

    /// Waits until there are no more than before.
    fn come_back(&self) {
        let end = Instant::now() + HANG;
        while children().len() > self.children.len() || server_threads() > self.threads {
            assert!(
                Instant::now() < end,
                "left behind: processes {:?} and {} threads",
                children(),
                server_threads()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// What the threads of this process have started.
fn children() -> Vec<PathBuf> {
    let own = std::process::id().to_string();
    let is_ours = |process: &PathBuf| {
        let Ok(stat) = std::fs::read_to_string(process.join("stat")) else { return false };
        let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        let mut fields = after_name.split(' ');
        fields.nth(1) == Some(&own)
    };
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    processes.filter(is_ours).collect()
}

/// Threads of this process that serve mounts.
fn server_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("undercroft") || name.starts_with("fuse-")).count()
}
