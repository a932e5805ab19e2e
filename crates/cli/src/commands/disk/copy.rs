//! `image copy` and `disk extract`: what an image or a part of it holds, as another image.

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;

use serde::Serialize;
use undercroft_block::{Copied, Device, copy};

use super::output::NewImage;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image;
use crate::plan::{CopyPlan, Format, ImageSpec};
use crate::text::bar::Bar;
use crate::text::human;
use crate::text::names::safe;
use crate::text::out::Out;

/// What was copied.
#[derive(Debug, Serialize)]
struct CopyReport {
    size_bytes: u64,
    /// What was not known to be zeroes.
    read_bytes: u64,
    written_bytes: u64,
}

pub(super) fn run(plan: &CopyPlan, format: Format) -> Result<(), Failure> {
    // A part of a disk, or all of it whatever it holds.
    let (from, _array) = image::open_whole(&plan.from)?;
    let size_bytes = from.size_bytes();
    let shown = safe(plan.to.as_os_str().as_bytes());
    let is_device = fs::metadata(&plan.to).is_ok_and(|found| found.file_type().is_block_device());
    if plan.from.array.is_none() && plan.from.path == plan.to {
        return Err(Failure::new(Kind::Usage, format!("{shown} is copied to itself")));
    }
    let copied = if is_device {
        let target = ImageSpec::plain(plan.to.clone());
        let to = image::open_to_overwrite(&target)?;
        if !plan.force {
            image::refuse_present(&to.device)?;
        }
        let room = to.device.size_bytes();
        if room < size_bytes {
            let what = format!("{shown} has {room} bytes, too few for {size_bytes}");
            return Err(Failure::new(Kind::CannotOpen, what));
        }
        let copied = copy_all(&from, &to.device, false)?;
        to.close()?;
        copied
    } else {
        let new = NewImage::make(&plan.to, size_bytes, plan.format, plan.force)?;
        let to = new.open()?;
        let copied = copy_all(&from, &to, true)?;
        drop(to);
        new.finish()?;
        copied
    };
    let Copied { read_bytes, written_bytes } = copied;
    let report = CopyReport { size_bytes, read_bytes, written_bytes };
    let mut out = Out::stdout();
    match format {
        Format::Json => out.json(&report)?,
        Format::Text => {
            let (size, written) = (human::size(size_bytes), human::size(written_bytes));
            writeln!(out, "{shown}: {size}, of which {written} are not zeroes")?;
        }
    }
    out.finish()
}

/// Copies with a bar.
pub(super) fn copy_all(from: &Device, to: &Device, is_zeroed: bool) -> Result<Copied, Failure> {
    let bar = Bar::new();
    let all = from.size_bytes();
    copy(&**from, &**to, is_zeroed, &mut |at| bar.show("copying", at, all))
        .map_err(|error| Failure::of(Kind::Io, &error))
}
