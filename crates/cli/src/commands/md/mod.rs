//! `md`: arrays are made, looked at, mended and checked.
//!
//! An array lives as long as a process has it open. So each command opens it, does its work, waits for the work that
//! follows (`wait`), and closes it clean; it reports the state at the end (`report`).

mod create;
mod devices;
mod examine;
mod manage;
mod report;
mod wait;

use undercroft_md::Array;

use crate::control::client::{self, Live};
use crate::control::protocol::{Answer, MdChange, Request, no_answer};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::md_failure;
use crate::plan::{Change, Format, ImageSpec, MdPlan, Waiting};
use crate::text::bar::Bar;
use crate::text::out::Out;

pub(crate) use manage::{Managed, erase_removed, verdict};
pub(crate) use report::{ArrayReport, Report, WorkProgress};
pub(crate) use wait::wait_with;

/// Does what is meant. `Ok(Some(kind))`: a check found something.
pub(crate) fn run(plan: MdPlan, format: Format) -> Result<Option<Kind>, Failure> {
    match plan {
        MdPlan::Create(new) => create::run(&new, format).map(|()| None),
        MdPlan::Examine(members) => examine::run(&members, format),
        MdPlan::Use { array, change, wait } => match client::find(&array)? {
            Some(live) => on_mount(&live, &array, change, wait, format),
            None => {
                client::refuse_directory(&array)?;
                manage::run(&array, &change, wait, format)
            }
        },
    }
}

/// Has the server of a mount do it.
fn on_mount(
    live: &Live,
    array: &ImageSpec,
    change: Change,
    wait: Waiting,
    format: Format,
) -> Result<Option<Kind>, Failure> {
    let request = match change {
        Change::Status => Request::MdStatus,
        change => Request::MdChange(MdChange { change: change.absolute(), wait }),
    };
    let bar = Bar::new();
    let answer = live.ask(&request, &mut |progress| {
        if let Answer::Progress(WorkProgress { action, position_bytes, total_bytes, .. }) = progress {
            bar.show(&action, position_bytes, total_bytes);
        }
    })?;
    drop(bar);
    let Answer::Array(answer) = answer else { return Err(no_answer()) };
    print(&answer.report, &array.shown(), format)?;
    Ok(answer.mismatched.then_some(Kind::Corrupt))
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
