//! What the benchmarks of reading share: images with many files or a large one, and a contest of the kernel, ours in
//! process and mounted, and fuse2fs where it knows the filesystem, each measured once a round, in turn.
//!
//! Before a cold measurement the page cache is dropped, the image's pages with it. A walk asks every entry for its
//! attributes: `find -printf '%s %T@ %m\n'` through a mount, the parallel tree walk in process.
//!
//! `UNDERCROFT_BENCH_SMALL=N` divides the number of directories and the bytes by N, to see that everything works.

mod table;

use std::error::Error;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use undercroft_oracle::{Image, MountMode, Served, populate};
use undercroft_vfs::{Credentials, Vfs, WalkEvent, WalkFlow, WalkOptions};

pub(crate) use table::Table;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

pub(crate) const ROUNDS: usize = 3;
const FILES_EACH: usize = 100;
const CHUNK_BYTES: usize = 8 << 20;
const KERNEL: &str = "kernel";
const FUSE2FS: &str = "fuse2fs";

/// Directories that a tree of 200,000 files has.
pub(crate) const DIRECTORIES: usize = 2_000;

/// The number, or the part of it that `UNDERCROFT_BENCH_SMALL` asks for.
pub(crate) fn scaled(number: usize) -> Outcome<usize> {
    let divisor: usize = std::env::var("UNDERCROFT_BENCH_SMALL").map_or(Ok(1), |text| text.parse())?;
    Ok((number / divisor.max(1)).max(1))
}

/// The program as users build it, which is mounted.
pub(crate) fn program() -> Outcome<PathBuf> {
    let program = std::env::var_os("UNDERCROFT_PROGRAM")
        .ok_or("UNDERCROFT_PROGRAM names no undercroft program; run this by cargo xtask bench")?;
    Ok(program.into())
}

/// Fills an image with directories of 100 files each, a line in every file, and tells how many files there are.
pub(crate) fn fill_with_tree(image: &Image, directories: usize) -> Outcome<usize> {
    let files = directories * FILES_EACH;
    eprintln!("making {files} files ...");
    let mount = image.mount(MountMode::ReadWrite, "noatime")?;
    for d in 0..directories {
        let dir = mount.path().join(format!("group{:02}", d % 40)).join(format!("dir{d:04}"));
        fs::create_dir_all(&dir)?;
        for f in 0..FILES_EACH {
            fs::write(dir.join(format!("file{f:03}.txt")), format!("file {f} of directory {d}\n"))?;
        }
    }
    mount.unmount()?;
    Ok(files)
}

/// Puts a file of 2 GiB into an image, and tells its bytes.
pub(crate) fn fill_with_one(image: &Image) -> Outcome<u64> {
    let chunks = scaled((2 << 30) / CHUNK_BYTES)? as u64;
    let bytes = chunks * CHUNK_BYTES as u64;
    eprintln!("making a file of {} MiB ...", bytes >> 20);
    let mount = image.mount(MountMode::ReadWrite, "noatime")?;
    let mut file = File::create(mount.path().join("big"))?;
    let mut chunk = vec![0; CHUNK_BYTES];
    for n in 0..chunks {
        populate::noise(n, &mut chunk);
        file.write_all(&chunk)?;
    }
    file.sync_all()?;
    drop(file);
    mount.unmount()?;
    Ok(bytes)
}

/// The most memory that a process has used so far; `None` once it has ended.
pub(crate) fn peak_memory_kib(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Empties the page cache and the caches of inodes and names. What the images' own filesystem has not written
/// yet is written first, so that nothing of them stays.
pub(crate) fn drop_caches(image: &Image) -> Outcome<()> {
    rustix::fs::syncfs(File::open(image.path())?)?;
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    Ok(())
}

/// One filesystem, read in every way.
pub(crate) struct Contest<'a> {
    /// How titles call it.
    pub(crate) filesystem: &'a str,
    pub(crate) program: &'a Path,
    pub(crate) image: &'a Image,
    /// Opens it in process.
    pub(crate) open: fn(&Image) -> Outcome<Arc<Vfs>>,
    pub(crate) has_fuse2fs: bool,
}

impl Contest<'_> {
    /// Walks the whole tree, which has so many files.
    pub(crate) fn walk(&self, files: usize) -> Outcome<()> {
        let mut table = Table::new(format!("Walking {files} files of {}, cold", self.filesystem));
        let mut peak_kib = 0;
        for round in 1..=ROUNDS {
            eprintln!("walk, round {round} of {ROUNDS} ...");
            self.mounted(&mut table, &mut peak_kib, || drop_caches(self.image), |dir| find(dir, files))?;
            for (name, threads) in
                [("undercroft in process, 1 thread", 1), ("undercroft in process, 2 threads", 2)]
            {
                drop_caches(self.image)?;
                // Opening is part of it, as the kernel's mount is not: a program that walks has to open.
                table.add(name, seconds(|| walk_in_process(&(self.open)(self.image)?, threads, files))?);
            }
        }
        self.print(&table);
        println!("\nMost memory of the undercroft server during the walk: {} MiB.", peak_kib / 1024);
        Ok(())
    }

    /// Reads the one file, which has so many bytes.
    pub(crate) fn read(&self, bytes: u64) -> Outcome<()> {
        let title = format!("Reading {} MiB from {}", bytes >> 20, self.filesystem);
        let mut cold = Table::new(format!("{title}, cold"));
        let mut warm =
            Table::new(format!("{title}, the image in the page cache and the mount's own cache empty"));
        let mut peak_kib = 0;
        for round in 1..=ROUNDS {
            eprintln!("read, round {round} of {ROUNDS} ...");
            for (table, is_cold) in [(&mut cold, true), (&mut warm, false)] {
                let prepare = || {
                    drop_caches(self.image)?;
                    if is_cold { Ok(()) } else { load(self.image.path()) }
                };
                self.mounted(table, &mut peak_kib, prepare, |dir| read_through(dir, bytes))?;
                prepare()?;
                let in_process = seconds(|| read_in_process(&(self.open)(self.image)?, bytes))?;
                table.add("undercroft in process", in_process);
            }
        }
        self.print(&cold);
        self.print(&warm);
        println!("\nMost memory of the undercroft server while it reads: {} MiB.", peak_kib / 1024);
        Ok(())
    }

    /// Measures the same through every mount.
    fn mounted(
        &self,
        table: &mut Table,
        peak_kib: &mut u64,
        prepare: impl Fn() -> Outcome<()>,
        work: impl Fn(&Path) -> Outcome<()>,
    ) -> Outcome<()> {
        prepare()?;
        let mount = self.image.mount(MountMode::ReadOnly, "")?;
        table.add(KERNEL, seconds(|| work(mount.path()))?);
        mount.unmount()?;

        prepare()?;
        let served = Served::undercroft(self.program, self.image.path(), "ro")?;
        table.add("undercroft mount", seconds(|| work(served.path()))?);
        *peak_kib = (*peak_kib).max(peak_memory_kib(served.server_id()).ok_or("the server has ended")?);
        served.unmount()?;

        if self.has_fuse2fs {
            prepare()?;
            let served = Served::fuse2fs(self.image.path(), "ro,default_permissions")?;
            table.add(FUSE2FS, seconds(|| work(served.path()))?);
            served.unmount()?;
        }
        Ok(())
    }

    fn print(&self, table: &Table) {
        table.print(if self.has_fuse2fs { &[KERNEL, FUSE2FS] } else { &[KERNEL] });
    }
}

fn seconds(run: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    let began = Instant::now();
    run()?;
    Ok(began.elapsed().as_secs_f64())
}

fn find(dir: &Path, files: usize) -> Outcome<()> {
    let output = Command::new("find").arg(dir).args(["-printf", "%s %T@ %m\n"]).output()?;
    let lines = output.stdout.iter().filter(|&&byte| byte == b'\n').count();
    if !output.status.success() || lines < files {
        return Err(format!("find saw {lines} of {files} files").into());
    }
    Ok(())
}

fn walk_in_process(vfs: &Arc<Vfs>, threads: usize, expected: usize) -> Outcome<()> {
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
    let files = files.into_inner();
    if files < expected as u64 {
        return Err(format!("the walk saw {files} of {expected} files").into());
    }
    Ok(())
}

fn read_through(dir: &Path, expected: u64) -> Outcome<()> {
    let mut file = File::open(dir.join("big"))?;
    read_all(expected, |_, buf| Ok(file.read(buf)?))
}

fn read_in_process(vfs: &Arc<Vfs>, expected: u64) -> Outcome<()> {
    let file = vfs.open(&Credentials::root(), b"/big")?;
    read_all(expected, |at, buf| Ok(file.read_at(at, buf)?))
}

fn read_all(expected: u64, mut read: impl FnMut(u64, &mut [u8]) -> Outcome<usize>) -> Outcome<()> {
    let mut buf = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let n = read(at, &mut buf)? as u64;
        if n == 0 {
            break;
        }
        at += n;
    }
    if at == expected { Ok(()) } else { Err(format!("read {at} of {expected} bytes").into()) }
}

/// Brings a whole file into the page cache.
fn load(path: &Path) -> Outcome<()> {
    let mut file = File::open(path)?;
    let mut buf = vec![0; 1 << 20];
    while file.read(&mut buf)? > 0 {}
    Ok(())
}
