//! The read side against the kernel and fuse2fs, on the same images, in one run: a tree of 200,000 files walked
//! cold, and a file of 2 GiB read cold and warm.
//!
//! `cargo xtask bench` builds the program and runs this. Each round measures every contender once, in turn, so
//! that a machine whose speed drifts slows them all; medians and the ratios of medians are printed as the table
//! that docs/PERFORMANCE.md shows. Before a cold measurement the page cache is dropped, the image's pages with
//! it. Needs root, loop devices and FUSE.
//!
//! A walk asks every entry for its attributes: `find -printf '%s %T@ %m\n'` through a mount, the parallel tree
//! walk in process.

use std::error::Error;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use undercroft_block::{FileDevice, FileOptions};
use undercroft_ext4::{Ext4, OpenOptions};
use undercroft_oracle::{Image, LoopMount, Mke2fs, MountMode, Served, populate};
use undercroft_vfs::{Credentials, Vfs, VfsOptions, WalkEvent, WalkFlow, WalkOptions};

type Outcome<T> = Result<T, Box<dyn Error>>;

const DIRECTORIES: usize = 2_000;
const FILES_EACH: usize = 100;
const BIG_BYTES: u64 = 2 << 30;
const ROUNDS: usize = 3;

fn main() -> Outcome<()> {
    let program = std::env::var_os("UNDERCROFT_PROGRAM")
        .map(PathBuf::from)
        .ok_or("UNDERCROFT_PROGRAM names no undercroft program; run this by cargo xtask bench")?;
    eprintln!("making the images (a tree of {} files, a file of 2 GiB) ...", DIRECTORIES * FILES_EACH);
    let tree = make_tree()?;
    let big = make_big()?;
    walk_table(&program, &tree)?;
    read_table(&program, &big)
}

// ---- images ----

fn make_tree() -> Outcome<Image> {
    let image = Mke2fs::new("ext4", 2048).inodes(230_000).make()?;
    let mount = image.mount(MountMode::ReadWrite, "noatime")?;
    for d in 0..DIRECTORIES {
        let dir = mount.path().join(format!("group{:02}", d % 40)).join(format!("dir{d:04}"));
        fs::create_dir_all(&dir)?;
        for f in 0..FILES_EACH {
            fs::write(dir.join(format!("file{f:03}.txt")), format!("file {f} of directory {d}\n"))?;
        }
    }
    mount.unmount()?;
    Ok(image)
}

fn make_big() -> Outcome<Image> {
    let image = Mke2fs::new("ext4", 3072).make()?;
    let mount = image.mount(MountMode::ReadWrite, "noatime")?;
    let mut file = File::create(mount.path().join("big"))?;
    let mut chunk = vec![0; 8 << 20];
    for n in 0..BIG_BYTES / chunk.len() as u64 {
        populate::noise(n, &mut chunk);
        std::io::Write::write_all(&mut file, &chunk)?;
    }
    file.sync_all()?;
    drop(file);
    mount.unmount()?;
    Ok(image)
}

// ---- contenders ----

/// The most memory that a server has used so far.
fn peak_memory_kib(served: &Served) -> Outcome<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", served.server_id()))?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.split_whitespace().nth(1).ok_or("no VmHWM")?.parse()?)
}

fn kernel(image: &Image) -> Outcome<LoopMount> {
    Ok(image.mount(MountMode::ReadOnly, "")?)
}

fn vfs(image: &Image) -> Outcome<Arc<Vfs>> {
    let device = FileDevice::open(image.path(), FileOptions::read_only())?;
    Ok(Vfs::new(Ext4::open_read_only(Arc::new(device), OpenOptions::default())?, VfsOptions::default()))
}

// ---- measurements ----

/// Empties the page cache and the caches of inodes and names. What the images' own filesystem has not written
/// yet is written first, so that nothing of them stays.
fn drop_caches(image: &Image) -> Outcome<()> {
    rustix::fs::syncfs(File::open(image.path())?)?;
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    Ok(())
}

fn seconds(run: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    let began = Instant::now();
    run()?;
    Ok(began.elapsed().as_secs_f64())
}

fn find(dir: &Path) -> Outcome<()> {
    let output = Command::new("find").arg(dir).args(["-printf", "%s %T@ %m\n"]).output()?;
    let lines = output.stdout.iter().filter(|&&byte| byte == b'\n').count();
    let files = DIRECTORIES * FILES_EACH;
    if !output.status.success() || lines < files {
        return Err(format!("find saw {lines} of {files} files").into());
    }
    Ok(())
}

fn walk_in_process(vfs: &Arc<Vfs>, threads: usize) -> Outcome<()> {
    let (files, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let root = vfs.root()?;
    vfs.walk(&root, WalkOptions { threads, inodes: true }, &|event| {
        if let WalkEvent::Entry(entry) = event
            && let Ok(attr) = entry.attr()
        {
            files.fetch_add(1, Ordering::Relaxed);
            bytes.fetch_add(attr.size_bytes, Ordering::Relaxed);
        }
        WalkFlow::Continue
    });
    let (files, expected) = (files.into_inner(), (DIRECTORIES * FILES_EACH) as u64);
    if files < expected { Err(format!("the walk saw {files} of {expected} files").into()) } else { Ok(()) }
}

fn read_through(dir: &Path) -> Outcome<()> {
    let mut file = File::open(dir.join("big"))?;
    let mut buf = vec![0; 1 << 20];
    let mut total = 0;
    loop {
        let n = file.read(&mut buf)? as u64;
        if n == 0 {
            break;
        }
        total += n;
    }
    if total == BIG_BYTES { Ok(()) } else { Err(format!("read {total} of {BIG_BYTES} bytes").into()) }
}

fn read_in_process(vfs: &Arc<Vfs>) -> Outcome<()> {
    let file = vfs.open(&Credentials::root(), b"/big")?;
    let mut buf = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let n = file.read_at(at, &mut buf)? as u64;
        if n == 0 {
            break;
        }
        at += n;
    }
    if at == BIG_BYTES { Ok(()) } else { Err(format!("read {at} of {BIG_BYTES} bytes").into()) }
}

// ---- tables ----

/// Seconds of every round, by contender.
struct Table {
    title: &'static str,
    rows: Vec<(&'static str, Vec<f64>)>,
}

impl Table {
    fn new(title: &'static str) -> Self {
        Self { title, rows: Vec::new() }
    }

    fn add(&mut self, contender: &'static str, seconds: f64) {
        match self.rows.iter_mut().find(|(name, _)| *name == contender) {
            Some((_, all)) => all.push(seconds),
            None => self.rows.push((contender, vec![seconds])),
        }
    }

    fn median(&self, contender: &str) -> f64 {
        let Some((_, all)) = self.rows.iter().find(|(name, _)| *name == contender) else { return f64::NAN };
        let mut sorted = all.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }

    /// Prints medians, spreads, and how many times as fast as each reference a contender is.
    fn print(&self, references: &[&str]) {
        print!("\n### {}\n\n| contender | median s | min s | max s |", self.title);
        references.iter().for_each(|reference| print!(" times {reference} |"));
        print!("\n|---|---:|---:|---:|");
        references.iter().for_each(|_| print!("---:|"));
        println!();
        for (name, all) in &self.rows {
            let median = self.median(name);
            let (min, max) = all.iter().fold((f64::MAX, 0.0f64), |(lo, hi), &s| (lo.min(s), hi.max(s)));
            print!("| {name} | {median:.3} | {min:.3} | {max:.3} |");
            references.iter().for_each(|reference| print!(" {:.2} |", self.median(reference) / median));
            println!();
        }
    }
}

const KERNEL: &str = "kernel";
const FUSE2FS: &str = "fuse2fs";

fn walk_table(program: &Path, image: &Image) -> Outcome<()> {
    let mut table = Table::new("Walking 200,000 files, cold");
    let mut peak_kib = 0;
    for round in 1..=ROUNDS {
        eprintln!("walk, round {round} of {ROUNDS} ...");
        drop_caches(image)?;
        let mount = kernel(image)?;
        table.add(KERNEL, seconds(|| find(mount.path()))?);
        mount.unmount()?;

        for (name, threads) in
            [("undercroft in process, 1 thread", 1), ("undercroft in process, 2 threads", 2)]
        {
            drop_caches(image)?;
            // Opening is part of it, as the kernel's mount is not: a program that walks has to open.
            table.add(name, seconds(|| walk_in_process(&vfs(image)?, threads))?);
        }

        drop_caches(image)?;
        let served = Served::undercroft(program, image.path(), "ro")?;
        table.add("undercroft mount", seconds(|| find(served.path()))?);
        peak_kib = peak_kib.max(peak_memory_kib(&served)?);
        served.unmount()?;

        drop_caches(image)?;
        let served = Served::fuse2fs(image.path(), "ro,default_permissions")?;
        table.add(FUSE2FS, seconds(|| find(served.path()))?);
        served.unmount()?;
    }
    table.print(&[KERNEL, FUSE2FS]);
    println!("\nMost memory of the undercroft server during the walk: {} MiB.", peak_kib / 1024);
    Ok(())
}

fn read_table(program: &Path, image: &Image) -> Outcome<()> {
    let mut cold = Table::new("Reading 2 GiB, cold");
    let mut warm = Table::new("Reading 2 GiB, the image in the page cache and the mount's own cache empty");
    for round in 1..=ROUNDS {
        eprintln!("read, round {round} of {ROUNDS} ...");
        for (table, is_cold) in [(&mut cold, true), (&mut warm, false)] {
            let prepare = || {
                drop_caches(image)?;
                if is_cold { Ok(()) } else { load(image.path()) }
            };
            prepare()?;
            let mount = kernel(image)?;
            table.add(KERNEL, seconds(|| read_through(mount.path()))?);
            mount.unmount()?;

            prepare()?;
            table.add("undercroft in process", seconds(|| read_in_process(&vfs(image)?))?);

            prepare()?;
            let served = Served::undercroft(program, image.path(), "ro")?;
            table.add("undercroft mount", seconds(|| read_through(served.path()))?);
            served.unmount()?;

            prepare()?;
            let served = Served::fuse2fs(image.path(), "ro,default_permissions")?;
            table.add(FUSE2FS, seconds(|| read_through(served.path()))?);
            served.unmount()?;
        }
    }
    cold.print(&[KERNEL, FUSE2FS]);
    warm.print(&[KERNEL, FUSE2FS]);
    Ok(())
}

/// Brings a whole file into the page cache.
fn load(path: &Path) -> Outcome<()> {
    let mut file = File::open(path)?;
    let mut buf = vec![0; 1 << 20];
    while file.read(&mut buf)? > 0 {}
    Ok(())
}
