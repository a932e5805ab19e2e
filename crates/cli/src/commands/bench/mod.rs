//! `bench`: measures filesystems, ours in this process and others by processes.
//!
//! A mounted filesystem's workers are this program again, with `--worker INDEX`; see `undercroft_bench`.

mod progress;
mod suite;
mod text;

use std::env;
use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use serde::Serialize;
use undercroft_bench::{
    BenchError, Job, Outcome, Part, Rounds, Series, Target, draw, measure, serve_worker, sweep,
};

use crate::failure::Failure;
use crate::plan::{BenchPlan, Format};
use crate::text::names::safe;
use crate::text::out::Out;
use progress::Progress;

/// What `--plot` prints.
#[derive(Debug, Serialize)]
struct Plotted<'a> {
    workload: &'a str,
    rounds: NonZeroU32,
    series: &'a [Series],
}

/// Measures and prints.
pub(crate) fn run(what: &BenchPlan, format: Format) -> Result<(), Failure> {
    match what {
        BenchPlan::Once(job) => {
            let progress = Progress::new(1);
            let outcome = measured(job, &progress)?;
            drop(progress);
            print(format, &outcome, |out| text::outcome(out, &outcome))
        }
        BenchPlan::Compare(rounds) => {
            let Rounds { rounds: count, .. } = rounds;
            let progress = Progress::new(2 * u64::from(count.get()));
            let comparison = rounds.run(|job| measured(job, &progress))?;
            drop(progress);
            print(format, &comparison, |out| text::comparison(out, &comparison))
        }
        BenchPlan::Plot { jobs, rounds, file } => plot(jobs, *rounds, file, format),
        BenchPlan::Suite(what) => suite::run(what, format),
        BenchPlan::Worker(part) => Ok(serve_worker(part)?),
    }
}

fn plot(jobs: &[Job], rounds: NonZeroU32, path: &Path, format: Format) -> Result<(), Failure> {
    let shown = safe(path.as_os_str().as_bytes());
    let host = |error: io::Error| Failure::host(format!("cannot write {shown}"), &error);
    // Before anything is measured, which may take long.
    let mut file = File::create(path).map_err(host)?;
    let runs = |job: &Job| u64::from(job.threads.get()) * u64::from(rounds.get());
    let progress = Progress::new(jobs.iter().map(runs).sum());
    let series = sweep(jobs, rounds, |job| measured(job, &progress))?;
    drop(progress);
    let workload = jobs.first().map_or("", |job| job.workload.name());
    let svg = draw(workload, &series)?;
    file.write_all(svg.as_bytes()).map_err(host)?;
    print(format, &Plotted { workload, rounds, series: &series }, |out| {
        text::series(out, workload, rounds, &series)?;
        writeln!(out, "\ndrawn into {shown}")
    })
}

fn measured(job: &Job, progress: &Progress) -> Result<Outcome, BenchError> {
    let workers = if job.threads.get() == 1 { "1 worker" } else { &format!("{} workers", job.threads) };
    progress.begin(format!("{} on {}, {workers}", job.workload, safe(job.target.to_typed().as_bytes())));
    let outcome = measure(job, &worker)?;
    progress.done();
    Ok(outcome)
}

/// This program again, for one worker's part.
fn worker(part: &Part) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["bench", part.workload.name(), "--on"]).arg(Target::Mounted(part.dir.clone()).to_typed());
    for (option, number) in [
        ("--threads", u64::from(part.threads.get())),
        ("--ops", part.ops.get()),
        ("--file-mib", part.file_bytes.get() >> 20),
        ("--worker", part.index.into()),
    ] {
        command.arg(option).arg(number.to_string());
    }
    if part.separate {
        command.arg("--separate");
    }
    Ok(command)
}

fn print(
    format: Format,
    value: &impl Serialize,
    text: impl FnOnce(&mut Out) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut out = Out::stdout();
    match format {
        Format::Json => out.json(value)?,
        Format::Text => text(&mut out)?,
    }
    out.finish()
}
