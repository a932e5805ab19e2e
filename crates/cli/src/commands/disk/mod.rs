//! Commands about whole disks and image files: what is in their tables, made, changed and copied.

mod add;
mod compact;
mod compress;
mod content;
mod copy;
mod create;
mod output;
mod parts;
mod report;
mod resize;

pub(crate) use report::DiskReport;

use undercroft_block::Device;
use undercroft_block::partition::EditError;

use crate::exit::Kind;
use crate::failure::Failure;
use crate::image;
use crate::lost_gpt::advice_on_change;
use crate::plan::{DiskPlan, Format, ImageSpec};
use crate::text::out::Out;

/// Does one thing.
pub(crate) fn run(what: &DiskPlan, format: Format) -> Result<(), Failure> {
    match what {
        DiskPlan::Create(plan) => create::run(plan, format),
        DiskPlan::List { image } => list(image, format),
        DiskPlan::Add(plan) => add::run(plan, format),
        DiskPlan::Copy(plan) => copy::run(plan, format),
        DiskPlan::Resize { image, size_bytes, grow } => resize::run(image, *size_bytes, *grow, format),
        DiskPlan::Compact { image } => compact::run(image, format),
    }
}

fn list(spec: &ImageSpec, format: Format) -> Result<(), Failure> {
    let report = DiskReport::of(spec, image::disk(spec)?)?;
    let mut out = Out::stdout();
    match format {
        Format::Json => out.json(&report)?,
        Format::Text => report.text(&mut out)?,
    }
    out.finish()
}

/// Why a table is not changed.
fn table_failure(spec: &ImageSpec, device: &Device, error: &EditError) -> Failure {
    let what = format!("cannot change the partition table of {}", spec.shown());
    match error {
        EditError::NoTable { .. } => {
            Failure::new(Kind::Unsupported, format!("{} has no partition table", spec.shown())).advise(
                advice_on_change(&**device).unwrap_or_else(|| {
                    "`undercroft grow` is for a filesystem that fills its image".to_owned()
                }),
            )
        }
        EditError::Device(_) => Failure::new(Kind::Io, what).because(error),
        EditError::Table(_) | EditError::Damaged { .. } => {
            Failure::new(Kind::Corrupt, what).because(error).advise("repair it first, with sgdisk or sfdisk")
        }
        EditError::Refused(_) => Failure::new(Kind::Usage, what).because(error),
    }
}
