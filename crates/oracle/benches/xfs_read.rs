//! Reading and checking XFS against the kernel and xfs_repair, on the same images, in one run: a tree of 200,000 files
//! walked cold, a file of 2 GiB read cold and warm, and a volume of a million inodes checked.
//!
//! `cargo xtask bench xfs-read` builds the program and runs this; `walk`, `read` and `check` after it choose groups.
//! Needs root, loop devices and FUSE. How reading is measured stands in `reading/mod.rs`. Both checkers start on a cold
//! image, run once more on what that left in the page cache, and have a process of their own, whose most memory is told.

mod reading;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use undercroft_block::{Device, FileDevice, FileOptions};
use undercroft_oracle::{Image, MkfsXfs, open_xfs};
use undercroft_vfs::Vfs;
use undercroft_xfs::CheckOptions;

use reading::{
    Contest, DIRECTORIES, Outcome, ROUNDS, Table, drop_caches, fill_with_one, fill_with_tree,
    peak_memory_kib, program, scaled,
};

/// The argument that makes this program check an image with so many threads, and end.
const CHECK: &str = "--check-only";

/// Directories that a tree of a million files has.
const MILLION_DIRECTORIES: usize = 10_000;

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
    let program = program()?;
    if wants("walk") {
        let image = MkfsXfs::new(2048, "").make()?;
        let files = fill_with_tree(&image, scaled(DIRECTORIES)?)?;
        contest(&program, &image).walk(files)?;
    }
    if wants("read") {
        let image = MkfsXfs::new(3072, "").make()?;
        let bytes = fill_with_one(&image)?;
        contest(&program, &image).read(bytes)?;
    }
    if wants("check") {
        check_table()?;
    }
    Ok(())
}

fn contest<'a>(program: &'a Path, image: &'a Image) -> Contest<'a> {
    Contest { filesystem: "XFS", program, image, open, has_fuse2fs: false }
}

fn open(image: &Image) -> Outcome<Arc<Vfs>> {
    Ok(open_xfs(image.path())?.1)
}

/// Checks an image, and prints how many inodes it has.
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
        peak_kib = peak_memory_kib(child.id()).unwrap_or(peak_kib);
        std::thread::sleep(Duration::from_millis(2));
    };
    let seconds = began.elapsed().as_secs_f64();
    if status.success() { Ok((seconds, peak_kib)) } else { Err(format!("{command:?}: {status}").into()) }
}

fn check_table() -> Outcome<()> {
    const REPAIR: &str = "xfs_repair -n";
    const ONE: &str = "undercroft's check, 1 thread";
    const TWO: &str = "undercroft's check, 2 threads";
    let image = MkfsXfs::new(10 << 10, "").make()?;
    let files = fill_with_tree(&image, scaled(MILLION_DIRECTORIES)?)?;
    let myself = std::env::current_exe()?;
    let mut cold = Table::new(format!("Checking an XFS with {files} files, cold"));
    let mut warm = Table::new(format!("Checking an XFS with {files} files, once more"));
    let mut peaks: Vec<(&str, u64)> = vec![(REPAIR, 0), (ONE, 0), (TWO, 0)];
    for round in 1..=ROUNDS {
        eprintln!("check, round {round} of {ROUNDS} ...");
        for (name, peak) in &mut peaks {
            drop_caches(&image)?;
            for table in [&mut cold, &mut warm] {
                let mut command = match *name {
                    REPAIR => Command::new("xfs_repair"),
                    _ => Command::new(&myself),
                };
                match *name {
                    REPAIR => command.arg("-n").arg(image.path()),
                    ONE => command.arg(CHECK).arg(image.path()).arg("1"),
                    _ => command.arg(CHECK).arg(image.path()).arg("2"),
                };
                let (seconds, kib) = check_in_a_process(&mut command)?;
                table.add(name, seconds);
                *peak = (*peak).max(kib);
            }
        }
    }
    cold.print(&[REPAIR, ONE]);
    warm.print(&[REPAIR, ONE]);
    println!();
    for (name, kib) in peaks {
        println!("Most memory of {name}: {} MiB.", kib / 1024);
    }
    Ok(())
}
