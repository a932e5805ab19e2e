//! `md`: arrays are made, looked at, mended and checked.
//!
//! An array lives as long as a process has it open. So each command opens it, does its work, waits for what that brings
//! about (`wait`), and closes it clean; how it was left is told (`report`).

mod create;
mod devices;
mod examine;
mod manage;
mod report;
mod wait;

use undercroft_md::Array;

use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::md_failure;
use crate::plan::{Format, MdPlan};
use crate::text::out::Out;

use report::Report;

/// Does what is meant. `Ok(Some(kind))`: a check found something.
pub(crate) fn run(plan: MdPlan, format: Format) -> Result<Option<Kind>, Failure> {
    match plan {
        MdPlan::Create(new) => create::run(&new, format).map(|()| None),
        MdPlan::Examine(members) => examine::run(&members, format),
        MdPlan::Use { array, change, wait } => manage::run(&array, &change, wait, format),
    }
}

/// Closes an array, and tells how it was left.
fn close(array: &Array) -> Result<Report, Failure> {
    let mut status = array.status();
    array.close().map_err(|error| md_failure(&error))?;
    // A closed array is written to no more, and its superblocks say so.
    status.is_active = false;
    status.progress = None;
    Ok(Report::of(status))
}

fn print(report: &Report, title: &str, format: Format) -> Result<(), Failure> {
    let mut out = Out::stdout();
    match format {
        Format::Json => out.json(report)?,
        Format::Text => report.text(&mut out, title)?,
    }
    out.finish()
}
