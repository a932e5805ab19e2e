//! Changing ext4: ours in process, its plain forms, the kernel's, and what FUSE servers make of it.
//!
//! `cargo xtask bench ext4-write` builds the program and runs this, or the groups of measurements that are named:
//! orphan, overwrite, names, mount. Every contender of a group is measured once a round by `undercroft bench`, in
//! turn, so that a machine whose speed drifts slows them all. Printed are medians, and how many times as fast the
//! first contender is; `$UNDERCROFT_RESULTS` names a file for all that was measured, as JSON. Needs root, loop
//! devices and FUSE; images lie where `$UNDERCROFT_SCRATCH` says, which should be in memory, as our device is.
//!
//! Mounts and loop devices belong to values and go with them, whatever fails.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use undercroft_oracle::{Image, LoopMount, Mke2fs, MountMode, Served};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 5;
const IMAGE_MIB: u64 = 16 << 10;

/// A workload that several contenders are measured with.
struct Group {
    workload: &'static str,
    workers: u32,
    /// By each worker; the bench's own choice if none.
    ops: Option<u32>,
    contenders: Vec<Contender>,
}

struct Contender {
    name: &'static str,
    /// As `undercroft bench --on` takes it.
    target: String,
}

/// All measurements of one contender.
struct Row {
    contender: Contender,
    outcomes: Vec<Value>,
}

fn main() -> Outcome<()> {
    let program = std::env::var_os("UNDERCROFT_PROGRAM")
        .map(PathBuf::from)
        .ok_or("UNDERCROFT_PROGRAM names no undercroft program; run this by cargo xtask bench ext4-write")?;
    // Cargo adds `--bench`.
    let named: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let is_named = |name| named.is_empty() || named.iter().any(|one| one == name);
    println!("| workload | workers | on | a second | least | most | the first is so many times as fast |");
    println!("|---|---:|---|---:|---:|---:|---:|");
    let mut groups = Vec::new();
    for (name, measure) in [
        ("orphan", orphan as fn(&Path) -> Outcome<Vec<Value>>),
        ("overwrite", overwrite),
        ("names", names),
        ("mount", mount),
    ] {
        if is_named(name) {
            groups.extend(measure(&program)?);
        }
    }
    if let Some(file) = std::env::var_os("UNDERCROFT_RESULTS") {
        fs::write(&file, serde_json::to_vec_pretty(&json!({ "rounds": ROUNDS, "groups": groups }))?)?;
        eprintln!("all that was measured is in {}", Path::new(&file).display());
    }
    Ok(())
}

// ---- groups ----

/// The program that the kernel's orphan list was measured with: ten workers.
fn orphan(program: &Path) -> Outcome<Vec<Value>> {
    let (with_file, with_list) = (image("orphan_file")?, image("^orphan_file")?);
    let (with_file, with_list) = (kernel(&with_file)?, kernel(&with_list)?);
    let contenders = vec![
        ours("ours, orphan file", "mem:ext4"),
        ours("ours, list", "mem:ext4:orphan=list"),
        ours("ours, list and its lock", "mem:ext4:orphan=locked"),
        mounted("kernel, orphan file", with_file.path()),
        mounted("kernel, list", with_list.path()),
    ];
    let measured = Group { workload: "orphan", workers: 10, ops: None, contenders }.measure(program)?;
    with_file.unmount()?;
    with_list.unmount()?;
    Ok(vec![measured])
}

/// Overwriting without a handle beside overwriting with one, and the device's own limit.
fn overwrite(program: &Path) -> Outcome<Vec<Value>> {
    let group = |workers| {
        let contenders = vec![
            ours("ours", "mem:ext4"),
            ours("ours, journaled", "mem:ext4:overwrite=journaled"),
            ours("the device", "mem:raw"),
        ];
        Group { workload: "overwrite", workers, ops: None, contenders }.measure(program)
    };
    [1, 2, 4, 8, 16].into_iter().map(group).collect()
}

/// Changes of names in one directory.
fn names(program: &Path) -> Outcome<Vec<Value>> {
    let image = image("orphan_file")?;
    let kernel = kernel(&image)?;
    let mut measured = Vec::new();
    for workload in ["create-unlink", "rename"] {
        for workers in [1, 2] {
            let contenders = vec![
                ours("ours", "mem:ext4"),
                ours("ours, one lock a directory", "mem:ext4:plain"),
                mounted("kernel", kernel.path()),
            ];
            measured.push(Group { workload, workers, ops: None, contenders }.measure(program)?);
        }
    }
    kernel.unmount()?;
    Ok(measured)
}

/// What FUSE servers make of images of one kind: ours, and fuse2fs as it is started without options, with the kernel's
/// checks of permissions as ours has them, and, both of them, without any checks.
fn mount(program: &Path) -> Outcome<Vec<Value>> {
    // libfuse renames what goes while its RELEASE is on its way, and fuse2fs falls behind with those: the directory
    // grows all the time, and fuse2fs reads it from the beginning for each name. So it gets a short run.
    let names = ("create-unlink", 2, Some(10_000));
    let fuse2fs = [("fuse2fs", "rw"), ("fuse2fs, default_permissions", "rw,default_permissions")];
    let mut measured = served(program, &[names], ("our mount", "rw"), &fuse2fs)?;
    let writes = [("write", 1, None), ("write-small", 1, None)];
    measured.extend(served(program, &writes, ("our mount", "rw"), &fuse2fs[..1])?);
    let fuse2fs = [("fuse2fs, fakeroot", "rw,fakeroot")];
    measured.extend(served(program, &[names], ("our mount, fakeroot", "rw,fakeroot"), &fuse2fs)?);
    Ok(measured)
}

/// Workloads, on our mount and on others by fuse2fs, each with its name and its options.
fn served(
    program: &Path,
    workloads: &[(&'static str, u32, Option<u32>)],
    ours: (&'static str, &str),
    others: &[(&'static str, &str)],
) -> Outcome<Vec<Value>> {
    let images = (0..=others.len()).map(|_| image("^orphan_file")).collect::<Outcome<Vec<_>>>()?;
    let mut mounts = vec![(ours.0, Served::undercroft(program, images[0].path(), ours.1)?)];
    for ((name, options), image) in others.iter().zip(&images[1..]) {
        mounts.push((name, Served::fuse2fs(image.path(), options)?));
    }
    let mut measured = Vec::new();
    for &(workload, workers, ops) in workloads {
        let contenders = mounts.iter().map(|(name, served)| mounted(name, served.path())).collect();
        measured.push(Group { workload, workers, ops, contenders }.measure(program)?);
    }
    mounts.into_iter().try_for_each(|(_, served)| served.unmount())?;
    Ok(measured)
}

// ---- contenders ----

fn image(features: &str) -> Outcome<Image> {
    Ok(Mke2fs::new("ext4", IMAGE_MIB).features(features).make()?)
}

/// Without the thread that zeroes inode tables in the background: our filesystem has none.
fn kernel(image: &Image) -> Outcome<LoopMount> {
    Ok(image.mount(MountMode::ReadWrite, "noatime,noinit_itable")?)
}

fn ours(name: &'static str, target: &str) -> Contender {
    Contender { name, target: target.to_owned() }
}

fn mounted(name: &'static str, dir: &Path) -> Contender {
    Contender { name, target: format!("dir:{}", dir.display()) }
}

// ---- measurements ----

impl Group {
    /// Measures all in turn, prints the group's rows, and returns all there is.
    fn measure(self, program: &Path) -> Outcome<Value> {
        let Self { workload, workers, ops, contenders } = self;
        let mut rows: Vec<Row> =
            contenders.into_iter().map(|contender| Row { contender, outcomes: Vec::new() }).collect();
        for round in 1..=ROUNDS {
            eprintln!("{workload}, {workers} workers, round {round} of {ROUNDS} ...");
            for row in &mut rows {
                row.outcomes.push(bench(program, workload, workers, ops, &row.contender.target)?);
            }
        }
        let first = rows.first().map_or(f64::NAN, |row| row.rate(0.5));
        for row in &rows {
            let [least, median, most] = [0.0, 0.5, 1.0].map(|share| row.rate(share));
            println!(
                "| {workload} | {workers} | {} | {median:.0} | {least:.0} | {most:.0} | {:.2} |",
                row.contender.name,
                first / median
            );
        }
        let rows: Vec<Value> = rows
            .into_iter()
            .map(|row| json!({ "name": row.contender.name, "outcomes": row.outcomes }))
            .collect();
        Ok(json!({ "workload": workload, "workers": workers, "rows": rows }))
    }
}

impl Row {
    /// Operations a second: 0.0 for the slowest round, 1.0 for the fastest.
    fn rate(&self, share: f64) -> f64 {
        let mut rates: Vec<f64> =
            self.outcomes.iter().filter_map(|outcome| outcome["ops_per_second"].as_f64()).collect();
        rates.sort_by(f64::total_cmp);
        rates[((rates.len() - 1) as f64 * share) as usize]
    }
}

/// One measurement by the program.
fn bench(program: &Path, workload: &str, workers: u32, ops: Option<u32>, target: &str) -> Outcome<Value> {
    let output = Command::new(program)
        .args(["bench", workload, "--threads", &workers.to_string(), "--json", "--on", target])
        .args(ops.iter().flat_map(|ops| ["--ops".to_owned(), ops.to_string()]))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(
            format!("`undercroft bench {workload} --on {target}` ended with {}", output.status).into()
        );
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
