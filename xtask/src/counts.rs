//! What one operation costs the processor: instructions, locked ones among them, allocations, and calls of the system.
//!
//! Counted by callgrind, which runs a program on a processor that it imitates, so that a busy machine counts the same as
//! an idle one. A workload runs with few operations and with more; what the additional ones took is theirs. One worker
//! does all: what it locks and what it writes for others to see is what many will contend for.
//!
//! `crates/bench/counts.json` has the budgets. A count that exceeds its own by more than [`TOLERANCE`] fails, so that the
//! change that costs something shows it: `cargo xtask counts --write` writes the new one down, to be read beside its reason.
//!
//! The budgets are for x86-64 and for the processors on which CI runs: libc takes other forms of its functions on others.
//!
//! Calls of the system: callgrind hides the memory through which programs read the clock without one, so each reading of
//! the clock is counted too.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::step::{Outcome, command};
use crate::system;
use crate::test::target_dir;

const BUDGETS: &str = "crates/bench/counts.json";

/// How many operations the two runs have.
const OPERATIONS: [u64; 2] = [1000, 4000];

/// A part of the budget, for what differs from run to run and from one release of a library to the next.
const TOLERANCE: f64 = 0.03;
/// What small counts may differ by, where a part of them is less than one now and then.
const SLACK: f64 = 0.2;

/// What is counted, as the budgets name it, and how the table heads it.
const COUNTS: [(&str, &str); 4] = [
    ("instructions", "instructions"),
    ("locked", "locked"),
    ("allocations", "allocations"),
    ("system_calls", "calls and clock"),
];

/// By which the system's allocator is asked for memory.
const ALLOCATORS: [&str; 5] = ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc"];

/// What one run, or one operation, took: one number for each of [`COUNTS`].
type Counts = [f64; COUNTS.len()];

/// Counts, and compares with the budgets or, with `write`, writes them down.
pub(crate) fn run(write: bool) -> Outcome {
    system::install_missing()?;
    if !cfg!(target_arch = "x86_64") {
        println!("the budgets are for x86-64: nothing is counted here");
        return Ok(());
    }
    let example = ["--package", "undercroft-bench", "--example", "counted"];
    command("cargo", &[&["build", "--locked", "--release"], &example[..]].concat(), &[])?;
    let mut rows = budgets()?;
    let (mut exceeded, mut unused) = (Vec::new(), Vec::new());
    println!("\n{:<28}{}", "", COUNTS.map(|(_, head)| format!("{head:>25}")).concat());
    for row in &mut rows {
        let (workload, target) = (word(row, "workload")?, word(row, "target")?);
        let counts = count(&workload, &target)?;
        let mut line = format!("{workload:<15}{target:<13}");
        for ((name, _), count) in COUNTS.iter().zip(counts) {
            let budget = row[*name].as_f64().unwrap_or_default();
            let _ = write!(line, "{:>25}", format!("{count:.1} of {budget:.1}"));
            if count > budget * (1.0 + TOLERANCE) + SLACK {
                exceeded.push(format!("{name} of {workload} on {target}"));
            }
            if count < budget * (1.0 - TOLERANCE) - SLACK {
                unused.push(format!("{name} of {workload} on {target}"));
            }
            row[*name] = Value::from((count * 10.0).round() / 10.0);
        }
        println!("{line}");
    }
    if write {
        let text = serde_json::to_string_pretty(&rows).map_err(|error| error.to_string())?;
        return fs::write(BUDGETS, text + "\n").map_err(|error| format!("cannot write {BUDGETS}: {error}"));
    }
    if !unused.is_empty() {
        let unused = unused.join(", ");
        println!("well below the budget: {unused}; `cargo xtask counts --write` keeps what was gained");
    }
    if exceeded.is_empty() {
        return Ok(());
    }
    Err(format!(
        "over the budget by more than {:.0} %: {}; where that is worth it, `cargo xtask counts --write` writes new budgets \
         into {BUDGETS}",
        TOLERANCE * 100.0,
        exceeded.join(", ")
    ))
}

fn budgets() -> Result<Vec<Value>, String> {
    let text = fs::read_to_string(BUDGETS).map_err(|error| format!("cannot read {BUDGETS}: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("{BUDGETS} is no list in JSON: {error}"))
}

fn word(row: &Value, name: &str) -> Result<String, String> {
    row[name].as_str().map(str::to_owned).ok_or_else(|| format!("a budget in {BUDGETS} has no {name}"))
}

/// What one operation takes.
fn count(workload: &str, target: &str) -> Result<Counts, String> {
    let [few, many] = OPERATIONS.map(|operations| count_run(workload, target, operations));
    let ((few_operations, few), (many_operations, many)) = (few?, many?);
    let operations = many_operations - few_operations;
    if operations <= 0.0 {
        return Err(format!("{workload} on {target} has no more operations when it is given more"));
    }
    // What does not depend on the operations differs a little from run to run.
    Ok(std::array::from_fn(|index| ((many[index] - few[index]) / operations).max(0.0)))
}

/// Runs a workload; tells how many operations it had, and what it took in all.
fn count_run(workload: &str, target: &str, operations: u64) -> Result<(f64, Counts), String> {
    let dir = target_dir()?;
    let profile = format!("{dir}/counts.callgrind");
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-bus=yes", "--collect-systime=yes"])
        .arg(format!("--callgrind-out-file={profile}"))
        .arg(format!("{dir}/release/examples/counted"))
        .args([workload, target, &operations.to_string()])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run valgrind: {error}"))?;
    let failed = |why: &str| {
        let said = String::from_utf8_lossy(&run.stderr);
        format!("counting {workload} on {target} failed: {why}\n{said}")
    };
    if !run.status.success() {
        return Err(failed(&run.status.to_string()));
    }
    let printed = String::from_utf8_lossy(&run.stdout);
    let operations = printed.trim().parse().map_err(|_| failed("it printed no number"))?;
    let text = fs::read_to_string(&profile).map_err(|error| format!("cannot read {profile}: {error}"))?;
    let counts = parse(&text).ok_or_else(|| failed("callgrind wrote no counts"))?;
    Ok((operations, counts))
}

/// Reads a profile: the totals, and how often the allocator was called.
///
/// Source: Valgrind's manual, "Callgrind Format Specification".
fn parse(profile: &str) -> Option<Counts> {
    let after = |key: &str| profile.lines().find_map(|line| line.strip_prefix(key));
    let totals: BTreeMap<&str, f64> = after("events:")?
        .split_whitespace()
        .zip(after("totals:")?.split_whitespace().map(|number| number.parse().unwrap_or_default()))
        .collect();
    let total = |event: &str| totals.get(event).copied();
    Some([total("Ir")?, total("Ge")?, allocations(profile), total("sysCount")?])
}

/// Calls of the allocator by others. A name is written out once, behind a number that stands for it later.
fn allocations(profile: &str) -> f64 {
    let mut allocators = Vec::new();
    let (mut is_inside, mut is_called, mut calls) = (false, false, 0.0);
    let mut is_allocator = |id_and_name: &str| {
        let (id, name) = id_and_name.split_once(' ').unwrap_or((id_and_name, ""));
        if ALLOCATORS.contains(&name) {
            allocators.push(id.to_owned());
        }
        allocators.iter().any(|known| known == id)
    };
    for line in profile.lines() {
        if let Some(function) = line.strip_prefix("fn=") {
            is_inside = is_allocator(function);
        } else if let Some(function) = line.strip_prefix("cfn=") {
            is_called = is_allocator(function);
        } else if let Some(call) = line.strip_prefix("calls=")
            && is_called
            && !is_inside
        {
            let count = call.split_whitespace().next();
            calls += count.and_then(|count| count.parse::<f64>().ok()).unwrap_or_default();
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_read() {
        let profile = "events: Ir Ge sysCount sysTime\nfn=(1) main\n3 4\ncfn=(2) malloc\ncalls=5 +1\n* 9\n\n\
                       fn=(2)\n1 2\ncfn=(3) realloc\ncalls=7 +1\n* 1\n\nfn=(4) other\ncfn=(2)\ncalls=2 0\n* 1\n\
                       cfn=(1)\ncalls=8 0\n* 1\ntotals: 100 20 3 4\n";
        assert_eq!(parse(profile), Some([100.0, 20.0, 7.0, 3.0]));
        assert_eq!(parse("events: Ir\ntotals: 100\n"), None);
    }
}
