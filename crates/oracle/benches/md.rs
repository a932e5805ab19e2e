//! Arrays: stripes that are scarce, full speed beside what memory gives, reads, rebuilding, parity.
//!
//! `cargo xtask bench md` builds the program and runs this, or the groups of measurements that are named: stripes,
//! waiting, sequential, reads, rebuild, parity. Every contender of a group is measured once a round by `undercroft
//! bench`, in turn and each round by another one first, so that a machine whose speed drifts slows them all. Printed
//! are medians, and how many times as fast the first contender is; of the stripe cache, how often threads went to sleep
//! and were made to wait for an operation, and how many were woken, how many of them in vain. `$UNDERCROFT_RESULTS`
//! names a file for all that was measured, as JSON, and `$UNDERCROFT_ROUNDS` the number of rounds. All members are in
//! memory.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use undercroft_md::parity;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A cache of 16 stripes is scarce where 64 threads write. `all` sleeps at once, like Linux before it woke one by one;
/// `all-spinning` spins a little before, as exclusive waiters do when they are first in line.
const SCARCE: [Contender; 3] = [
    ("one waiter woken", "mem:md5:stripes=16"),
    ("all woken, spinning first", "mem:md5:stripe_wake=all-spinning,stripes=16"),
    ("all woken", "mem:md5:stripe_wake=all,stripes=16"),
];
/// The same where threads wait for stripes most of the time: a request takes as long as on a quick NVMe device, and
/// its thread polls for the end of it, as one does there, and yields between two polls. So an owner keeps its stripe
/// for a while, and its processor only as far as no other thread wants it.
const SCARCE_POLLED: [Contender; 3] = [
    ("one waiter woken, 10 us", "mem:md5:stripes=16,member_us=10,polled"),
    ("all woken, spinning first, 10 us", "mem:md5:stripe_wake=all-spinning,stripes=16,member_us=10,polled"),
    ("all woken, 10 us", "mem:md5:stripe_wake=all,stripes=16,member_us=10,polled"),
];
/// The same with fewer stripes.
const FEW_POLLED: [Contender; 3] = [
    ("one waiter woken, 10 us, 4 stripes", "mem:md5:stripes=4,member_us=10,polled"),
    (
        "all woken, spinning first, 10 us, 4 stripes",
        "mem:md5:stripe_wake=all-spinning,stripes=4,member_us=10,polled",
    ),
    ("all woken, 10 us, 4 stripes", "mem:md5:stripe_wake=all,stripes=4,member_us=10,polled"),
];
/// The same with requests that sleep.
const SCARCE_SLOW: [Contender; 3] = [
    ("one waiter woken, 0.1 ms", "mem:md5:stripes=16,member_us=100"),
    ("all woken, spinning first, 0.1 ms", "mem:md5:stripe_wake=all-spinning,stripes=16,member_us=100"),
    ("all woken, 0.1 ms", "mem:md5:stripe_wake=all,stripes=16,member_us=100"),
];

/// A workload that several contenders are measured with.
struct Group {
    workload: &'static str,
    workers: u32,
    /// Of each worker, where the workload's own number would take too long or be over too soon.
    ops: Option<u32>,
    contenders: Vec<Contender>,
}

/// A name, and a target as `undercroft bench --on` takes it.
type Contender = (&'static str, &'static str);

/// All measurements of one contender.
struct Row {
    name: &'static str,
    target: &'static str,
    outcomes: Vec<Value>,
}

fn main() -> Outcome<()> {
    let program = std::env::var_os("UNDERCROFT_PROGRAM")
        .map(PathBuf::from)
        .ok_or("UNDERCROFT_PROGRAM names no undercroft program; run this by cargo xtask bench md")?;
    let rounds = match std::env::var("UNDERCROFT_ROUNDS") {
        Ok(rounds) => rounds.parse()?,
        Err(_) => 5,
    };
    // Cargo adds `--bench`.
    let named: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let is_named = |name| named.is_empty() || named.iter().any(|one| one == name);
    println!(
        "| workload | workers | on | a second | least | most | the first is so many times as fast | switches a second | \
         sleeps an operation | switches an operation | wake-ups a released stripe | in vain | stripes MiB |"
    );
    println!("|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    let mut measured = Vec::new();
    for (name, groups) in [
        ("stripes", stripes as fn() -> Vec<Group>),
        ("waiting", waiting),
        ("sequential", sequential),
        ("reads", reads),
        ("rebuild", rebuild),
    ] {
        if is_named(name) {
            for group in groups() {
                measured.push(group.measure(&program, rounds)?);
            }
        }
    }
    if is_named("parity") {
        measured.push(parity(rounds));
    }
    if let Some(file) = std::env::var_os("UNDERCROFT_RESULTS") {
        fs::write(&file, serde_json::to_vec_pretty(&json!({ "rounds": rounds, "groups": measured }))?)?;
        eprintln!("all that was measured is in {}", Path::new(&file).display());
    }
    Ok(())
}

// ---- groups ----

fn group(workload: &'static str, workers: u32, ops: Option<u32>, contenders: &[Contender]) -> Group {
    Group { workload, workers, ops, contenders: contenders.to_vec() }
}

/// Exclusive wake-ups against all together: through ext4, whole rows, and pieces of 4 KiB.
fn stripes() -> Vec<Group> {
    vec![
        group("raid5-write", 64, Some(4), &SCARCE),
        group("raid5-write", 1, Some(50), &SCARCE),
        group("raid5-write-rows", 64, Some(100), &SCARCE),
        group("raid5-write-rows", 1, Some(3_000), &SCARCE),
        group("overwrite", 64, Some(3_000), &SCARCE),
        group("overwrite", 1, Some(100_000), &SCARCE),
        group("raid5-write-rows", 64, Some(5), &SCARCE_SLOW),
        group("overwrite", 64, Some(40), &SCARCE_SLOW),
    ]
}

/// The same where threads wait for stripes most of the time.
fn waiting() -> Vec<Group> {
    vec![
        group("raid5-write", 64, Some(1), &SCARCE_POLLED),
        group("raid5-write", 64, Some(1), &FEW_POLLED),
        group("raid5-write-rows", 64, Some(10), &SCARCE_POLLED),
        group("raid5-write-rows", 64, Some(5), &FEW_POLLED),
        group("overwrite", 64, Some(200), &SCARCE_POLLED),
        group("overwrite", 64, Some(200), &FEW_POLLED),
        group("overwrite", 1, Some(5_000), &SCARCE_POLLED),
        group("overwrite", 1, Some(5_000), &FEW_POLLED),
    ]
}

/// Whole rows one after the other, beside copying and XOR, and beside one device.
fn sequential() -> Vec<Group> {
    let contenders = [("array", "mem:md5"), ("copy and XOR", "mem:xor"), ("one device", "mem:raw")];
    vec![
        group("raid5-sequential", 1, Some(1_000), &contenders),
        group("raid5-sequential", 2, Some(1_000), &contenders),
    ]
}

/// 4 KiB at random places.
fn reads() -> Vec<Group> {
    let contenders = [("array", "mem:md5"), ("one device", "mem:raw")];
    vec![group("raid5-read", 1, None, &contenders), group("raid5-read", 2, None, &contenders)]
}

/// Rebuilding beside reading and writing the same bytes.
fn rebuild() -> Vec<Group> {
    vec![
        group(
            "raid5-rebuild",
            1,
            Some(3),
            &[("files", "mem:md5:files"), ("reading and writing plainly", "mem:xor:files")],
        ),
        group(
            "raid5-rebuild",
            1,
            Some(3),
            &[("memory", "mem:md5"), ("reading and writing plainly", "mem:xor")],
        ),
    ]
}

/// Parity of a row of chunks in GB of data a second, beside a straight loop over the same memory.
fn parity(rounds: usize) -> Value {
    const CHUNK: usize = 64 << 10;
    const CHUNKS: usize = 3;
    let mut rows = Vec::new();
    for (place, total) in [("in the cache", CHUNKS * CHUNK), ("in memory", 768 << 20)] {
        let data: Vec<u8> = (0..total).map(|at| ((at * 7) >> 3) as u8).collect();
        let mut sum = vec![1_u8; CHUNK];
        let repeats = ((768 << 20) / total).max(1);
        let (mut ours, mut straight) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(speed(&data, repeats, CHUNK * CHUNKS, &mut |row| {
                let [a, b, c] = [0, 1, 2].map(|chunk| &row[chunk * CHUNK..(chunk + 1) * CHUNK]);
                parity::xor_of(&mut sum, &[a, b, c]);
                black_box(&sum);
            }));
            straight.push(speed(&data, repeats, CHUNK * CHUNKS, &mut |row| {
                let [a, b, c] =
                    [0, 1, 2].map(|chunk| row[chunk * CHUNK..(chunk + 1) * CHUNK].as_chunks::<8>().0);
                let words = sum.as_chunks_mut::<8>().0.iter_mut().zip(a).zip(b).zip(c);
                for (((sum, a), b), c) in words {
                    let [a, b, c] = [a, b, c].map(|word| u64::from_ne_bytes(*word));
                    *sum = (a ^ b ^ c).to_ne_bytes();
                }
                black_box(&sum);
            }));
        }
        let first = median(&mut ours);
        for (name, speeds) in [("parity", &mut ours), ("straight loop", &mut straight)] {
            let middle = median(speeds);
            println!(
                "| parity {place}, GB of data | 1 | {name} | {middle:.1} | {:.1} | {:.1} | {:.2} | | | | | | |",
                speeds[0],
                speeds[speeds.len() - 1],
                first / middle
            );
            rows.push(json!({ "name": name, "place": place, "gigabytes_per_second": speeds }));
        }
    }
    json!({ "workload": "parity", "workers": 1, "rows": rows })
}

fn speed(data: &[u8], repeats: usize, row_bytes: usize, run: &mut dyn FnMut(&[u8])) -> f64 {
    let begun = Instant::now();
    for _ in 0..repeats {
        data.chunks_exact(row_bytes).for_each(&mut *run);
    }
    (data.len() / row_bytes * row_bytes * repeats) as f64 / begun.elapsed().as_secs_f64() / 1e9
}

/// Sorts them, too.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}

// ---- measurements ----

impl Group {
    /// Measures all in turn, prints the group's rows, and returns all there is.
    fn measure(self, program: &Path, rounds: usize) -> Outcome<Value> {
        let Self { workload, workers, ops, contenders } = self;
        let row = |(name, target)| Row { name, target, outcomes: Vec::new() };
        let mut rows: Vec<Row> = contenders.into_iter().map(row).collect();
        for round in 0..rounds {
            eprintln!("{workload}, {workers} workers, round {} of {rounds} ...", round + 1);
            let count = rows.len();
            for turn in 0..count {
                let row = &mut rows[(round + turn) % count];
                row.outcomes.push(bench(program, workload, workers, ops, row.target)?);
            }
        }
        let first = rows.first().and_then(|row| row.median("/ops_per_second")).unwrap_or(0.0);
        for row in &rows {
            let mut rates = row.all("/ops_per_second");
            let middle = median(&mut rates);
            let operations = row.median_of(|outcome| {
                Some(figure(outcome, "/ops_per_second")? * figure(outcome, "/seconds")?)
            });
            let of = |dividend: Option<f64>, divisor: Option<f64>| {
                Some(dividend? / divisor.filter(|&divisor| divisor > 0.0)?)
            };
            let sleeps = row.median("/voluntary_switches");
            let switches = row.median_of(|outcome| {
                Some(figure(outcome, "/voluntary_switches")? + figure(outcome, "/involuntary_switches")?)
            });
            let woken = row.median("/stripes/wake_ups");
            println!(
                "| {workload} | {workers} | {} | {middle:.1} | {:.1} | {:.1} | {:.2} | {} | {} | {} | {} | {} | {} |",
                row.name,
                rates[0],
                rates[rates.len() - 1],
                first / middle,
                shown(of(switches, row.median("/seconds")), 0),
                shown(of(sleeps, operations), 2),
                shown(of(switches, operations), 2),
                shown(of(woken, row.median("/stripes/released")), 3),
                shown(of(row.median("/stripes/vain_wake_ups"), woken), 3),
                shown(row.median("/stripes/cache_bytes").map(|bytes| bytes / f64::from(1 << 20)), 2),
            );
        }
        let rows: Vec<Value> = (rows.into_iter())
            .map(|row| json!({ "name": row.name, "target": row.target, "outcomes": row.outcomes }))
            .collect();
        Ok(json!({ "workload": workload, "workers": workers, "rows": rows }))
    }
}

impl Row {
    /// A figure of all rounds; what an outcome does not have is left out.
    fn all(&self, pointer: &str) -> Vec<f64> {
        self.outcomes.iter().filter_map(|outcome| figure(outcome, pointer)).collect()
    }

    fn median(&self, pointer: &str) -> Option<f64> {
        self.median_of(|outcome| figure(outcome, pointer))
    }

    /// `None` if no outcome has it.
    fn median_of(&self, value: impl Fn(&Value) -> Option<f64>) -> Option<f64> {
        let mut all: Vec<f64> = self.outcomes.iter().filter_map(value).collect();
        if all.is_empty() { None } else { Some(median(&mut all)) }
    }
}

fn figure(outcome: &Value, pointer: &str) -> Option<f64> {
    outcome.pointer(pointer)?.as_f64()
}

/// With so many decimals; nothing where there is nothing to tell.
fn shown(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(String::new, |value| format!("{value:.decimals$}"))
}

/// One measurement by the program.
fn bench(program: &Path, workload: &str, workers: u32, ops: Option<u32>, target: &str) -> Outcome<Value> {
    let mut command = Command::new(program);
    command.args(["bench", workload, "--threads", &workers.to_string(), "--json", "--on", target]);
    if let Some(ops) = ops {
        command.args(["--ops", &ops.to_string()]);
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(
            format!("`undercroft bench {workload} --on {target}` ended with {}", output.status).into()
        );
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
