//! Reading and checking XFS against the kernel and xfs_repair, on the same images, in one run: a tree of 200,000 files
//! walked cold, a file of 2 GiB read cold and warm, and a volume of a million inodes checked.
//!
//! `cargo xtask bench xfs-read` builds the program and runs this; `walk`, `read` and `check` after it choose groups. Each
//! round measures every contender once, in turn, so that a machine whose speed drifts slows them all; medians and the
//! ratios of medians are printed as the tables that docs/PERFORMANCE.md shows. Before a cold measurement the page cache is
//! dropped, the image's pages with it. Needs root, loop devices and FUSE.
//!
//! A walk asks every entry for its attributes: `find -printf '%s %T@ %m\n'` through a mount, the parallel tree walk in
//! process. Both checkers start on a cold image and have a process of their own, whose most memory is told.
//!
//! `UNDERCROFT_BENCH_SMALL=N` divides the tree, the file and the inodes by N, to see that everything works.

use std::error::Error;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use undercroft_block::{Device, FileDevice, FileOptions};
use undercroft_oracle::{Image, LoopMount, MkfsXfs, MountMode, Served, open_xfs, populate};
use undercroft_vfs::{Credentials, Vfs, WalkEvent, WalkFlow, WalkOptions};
use undercroft_xfs::CheckOptions;

type Outcome<T> = Result<T, Box<dyn Error>>;

const FILES_EACH: usize = 100;
const ROUNDS: usize = 3;
const KERNEL: &str = "kernel";
const REPAIR: &str = "xfs_repair -n";

/// The argument that makes this program check an image with so many threads, and end.
const CHECK: &str = "--check-only";

/// How much there is of everything.
struct Scale {
    directories: usize,
    big_bytes: u64,
    million_directories: usize,
}

impl Scale {
    fn new() -> Outcome<Self> {
        let divisor: usize = match std::env::var("UNDERCROFT_BENCH_SMALL") {
            Ok(text) => text.parse()?,
            Err(_) => 1,
        };
        let whole = |number: usize| (number / divisor.max(1)).max(1);
        Ok(Self {
            directories: whole(2_000),
            big_bytes: (whole(256) as u64) << 23,
            million_directories: whole(10_000),
        })
    }

    fn files(&self) -> usize {
        self.directories * FILES_EACH
    }
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [flag, image, threads] = &args[..]
        && flag == CHECK
    {
        return check_only(Path::new(image), threads.parse()?);
    }
    if let Some(unknown) = args.iter().find(|arg| !["walk", "read", "check"].contains(&arg.as_str())) {
        return Err(format!("{unknown} is no group of measurements: walk, read, check").into());
    }
    let wants = |group: &str| args.is_empty() || args.iter().any(|arg| arg == group);
    let program = std::env::var_os("UNDERCROFT_PROGRAM")
        .map(PathBuf::from)
        .ok_or("UNDERCROFT_PROGRAM names no undercroft program; run this by cargo xtask bench xfs-read")?;
    let scale = Scale::new()?;
    if wants("walk") {
        walk_table(&program, &scale)?;
    }
    if wants("read") {
        read_table(&program, &scale)?;
    }
    if wants("check") {
        check_table(&scale)?;
    }
    Ok(())
}

// ---- images ----

/// Directories of so many files each, with a line in every file.
fn make_tree(size_mib: u64, directories: usize) -> Outcome<Image> {
    eprintln!("making an image of {} files ...", directories * FILES_EACH);
    let image = MkfsXfs::new(size_mib, "").make()?;
    let mount = image.mount(MountMode::ReadWrite, "noatime")?;
    for d in 0..directories {
        let dir = mount.path().join(format!("group{:02}", d % 40)).join(format!("dir{d:04}"));
        fs::create_dir_all(&dir)?;
        for f in 0..FILES_EACH {
            fs::write(dir.join(format!("file{f:03}.txt")), format!("file {f} of directory {d}\n"))?;
        }
    }
    mount.unmount()?;
    Ok(image)
}

fn make_big(bytes: u64) -> Outcome<Image> {
    eprintln!("making an image with a file of {} MiB ...", bytes >> 20);
    let image = MkfsXfs::new((bytes >> 20) + 1024, "").make()?;
    let mount = image.mount(MountMode::ReadWrite, "noatime")?;
    let mut file = File::create(mount.path().join("big"))?;
    let mut chunk = vec![0; 8 << 20];
    for n in 0..bytes / chunk.len() as u64 {
        populate::noise(n, &mut chunk);
        file.write_all(&chunk)?;
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
    Ok(open_xfs(image.path())?.1)
}

// ---- measurements ----

/// Empties the page cache and the caches of inodes and names. What the images' own filesystem has not written yet is
/// written first, so that nothing of them stays.
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

/// Checks an image, and tells the most memory that this process has had.
fn check_only(image: &Path, threads: usize) -> Outcome<()> {
    let device: Device = Arc::new(FileDevice::open(image, FileOptions::read_only())?);
    let report = undercroft_xfs::check(&device, &CheckOptions { threads, ..CheckOptions::default() })?;
    if !report.is_clean() {
        return Err(format!("{} findings, the first: {}", report.findings.len(), report.findings[0]).into());
    }
    println!("{}", report.inodes);
    Ok(())
}

/// Runs a checker in a process of its own: how long it takes, and its most memory in KiB.
fn check_in_a_process(command: &mut Command) -> Outcome<(f64, u64)> {
    let began = Instant::now();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let mut peak_kib = 0;
    // The kernel tells the peak only while the process is there; it is asked often, so that little is missed.
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if let Ok(text) = fs::read_to_string(format!("/proc/{}/status", child.id()))
            && let Some(line) = text.lines().find(|line| line.starts_with("VmHWM:"))
            && let Some(Ok(kib)) = line.split_whitespace().nth(1).map(str::parse)
        {
            peak_kib = kib;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    };
    let seconds = began.elapsed().as_secs_f64();
    if status.success() { Ok((seconds, peak_kib)) } else { Err(format!("{command:?}: {status}").into()) }
}

// ---- tables ----

/// Seconds of every round, by contender.
struct Table {
    title: String,
    rows: Vec<(&'static str, Vec<f64>)>,
}

impl Table {
    fn new(title: String) -> Self {
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

fn walk_table(program: &Path, scale: &Scale) -> Outcome<()> {
    let (image, files) = (make_tree(2048, scale.directories)?, scale.files());
    let mut table = Table::new(format!("Walking {files} files of an XFS, cold"));
    let mut peak_kib = 0;
    for round in 1..=ROUNDS {
        eprintln!("walk, round {round} of {ROUNDS} ...");
        drop_caches(&image)?;
        let mount = kernel(&image)?;
        table.add(KERNEL, seconds(|| find(mount.path(), files))?);
        mount.unmount()?;

        for (name, threads) in
            [("undercroft in process, 1 thread", 1), ("undercroft in process, 2 threads", 2)]
        {
            drop_caches(&image)?;
            // Opening is part of it, as the kernel's mount is not: a program that walks has to open.
            table.add(name, seconds(|| walk_in_process(&vfs(&image)?, threads, files))?);
        }

        drop_caches(&image)?;
        let served = Served::undercroft(program, image.path(), "ro")?;
        table.add("undercroft mount", seconds(|| find(served.path(), files))?);
        peak_kib = peak_kib.max(peak_memory_kib(&served)?);
        served.unmount()?;
    }
    table.print(&[KERNEL]);
    println!("\nMost memory of the undercroft server during the walk: {} MiB.", peak_kib / 1024);
    Ok(())
}

fn read_table(program: &Path, scale: &Scale) -> Outcome<()> {
    let (image, bytes) = (make_big(scale.big_bytes)?, scale.big_bytes);
    let mut cold = Table::new(format!("Reading {} MiB from an XFS, cold", bytes >> 20));
    let mut warm = Table::new(format!(
        "Reading {} MiB from an XFS, the image in the page cache and the mount's own cache empty",
        bytes >> 20
    ));
    let mut peak_kib = 0;
    for round in 1..=ROUNDS {
        eprintln!("read, round {round} of {ROUNDS} ...");
        for (table, is_cold) in [(&mut cold, true), (&mut warm, false)] {
            let prepare = || {
                drop_caches(&image)?;
                if is_cold { Ok(()) } else { load(image.path()) }
            };
            prepare()?;
            let mount = kernel(&image)?;
            table.add(KERNEL, seconds(|| read_through(mount.path(), bytes))?);
            mount.unmount()?;

            prepare()?;
            table.add("undercroft in process", seconds(|| read_in_process(&vfs(&image)?, bytes))?);

            prepare()?;
            let served = Served::undercroft(program, image.path(), "ro")?;
            table.add("undercroft mount", seconds(|| read_through(served.path(), bytes))?);
            peak_kib = peak_kib.max(peak_memory_kib(&served)?);
            served.unmount()?;
        }
    }
    cold.print(&[KERNEL]);
    warm.print(&[KERNEL]);
    println!("\nMost memory of the undercroft server while it reads: {} MiB.", peak_kib / 1024);
    Ok(())
}

fn check_table(scale: &Scale) -> Outcome<()> {
    const ONE: &str = "undercroft's check, 1 thread";
    const TWO: &str = "undercroft's check, 2 threads";
    let files = scale.million_directories * FILES_EACH;
    let image = make_tree(10 << 10, scale.million_directories)?;
    let myself = std::env::current_exe()?;
    let mut table = Table::new(format!("Checking an XFS with {files} files, cold"));
    let mut peaks: Vec<(&str, u64)> = vec![(REPAIR, 0), (ONE, 0), (TWO, 0)];
    for round in 1..=ROUNDS {
        eprintln!("check, round {round} of {ROUNDS} ...");
        for (name, peak) in &mut peaks {
            let mut command = match *name {
                REPAIR => Command::new("xfs_repair"),
                _ => Command::new(&myself),
            };
            match *name {
                REPAIR => command.arg("-n").arg(image.path()),
                ONE => command.arg(CHECK).arg(image.path()).arg("1"),
                _ => command.arg(CHECK).arg(image.path()).arg("2"),
            };
            drop_caches(&image)?;
            let (seconds, kib) = check_in_a_process(&mut command)?;
            table.add(name, seconds);
            *peak = (*peak).max(kib);
        }
    }
    table.print(&[REPAIR, ONE]);
    println!();
    for (name, kib) in peaks {
        println!("Most memory of {name}: {} MiB.", kib / 1024);
    }
    Ok(())
}

/// Brings a whole file into the page cache.
fn load(path: &Path) -> Outcome<()> {
    let mut file = File::open(path)?;
    let mut buf = vec![0; 1 << 20];
    while file.read(&mut buf)? > 0 {}
    Ok(())
}
