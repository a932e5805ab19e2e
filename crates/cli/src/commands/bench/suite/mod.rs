//! `bench suite`: mounts what is to be mounted, measures everything, and writes the page and the figures.
//!
//! Ctrl-C (SIGINT), and SIGTERM, end the measurement that is being made and then the suite: what is mounted is unmounted, and
//! nothing is written.

mod interruption;
mod mounts;
mod report;
mod summary;

use std::time::Instant;

use undercroft_bench::machine::{Machine, ProcessorTime, line_transfers};
use undercroft_bench::suite::{self, Gap, Hooks, Results};

use super::progress::Progress;
use super::{measured, print};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::plan::{Format, SuitePlan};
use crate::text::human;
use interruption::Interruption;
use mounts::Mounts;
use report::Report;

/// Measures, writes and prints.
pub(super) fn run(what: &SuitePlan, format: Format) -> Result<(), Failure> {
    let interruption = Interruption::catch();
    // Before anything is measured, which takes long.
    let report = Report::prepare(&what.report)?;
    let (begun, time_before) = (Instant::now(), ProcessorTime::now());
    let machine = Machine::this();
    let line_transfers = line_transfers(&machine.topology);
    let mounts = Mounts::make(what.against, what.scale.size);
    let charts = suite::charts(&what.workloads, mounts.contenders(), &what.scale)?;

    let progress = Progress::new(suite::planned(&charts, &what.scale));
    let mut measure = |job: &_| measured(job, &progress);
    let hooks = Hooks {
        measure: &mut measure,
        elapsed: &|| begun.elapsed(),
        is_interrupted: &|| interruption.has_come(),
    };
    let measurements = suite::run(&charts, &what.scale, hooks);
    drop(progress);
    let Some(measurements) = measurements else {
        return Err(Failure::new(Kind::Host, "the suite was interrupted, and nothing is written"));
    };

    let mut gaps: Vec<Gap> = mounts.gaps().to_vec();
    gaps.extend(measurements.gaps);
    drop(mounts);
    let results = Results {
        program: concat!("undercroft ", env!("CARGO_PKG_VERSION")).to_owned(),
        size: what.scale.size.name(),
        ended: human::now(),
        seconds: begun.elapsed().as_secs_f64(),
        rounds: what.scale.rounds,
        machine,
        line_transfers,
        processor_time: time_before.zip(ProcessorTime::now()).and_then(|(before, now)| now.since(before)),
        gaps,
        charts: measurements.charts,
    };
    let page = report.write(&results)?;
    print(format, &results, |out| summary::print(out, &results, &page))
}
