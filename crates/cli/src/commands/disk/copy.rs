//! `image copy` and `disk extract`: what an image or a part of it holds, as another image.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use serde::Serialize;
use undercroft_block::{Copied, Device, Error, copy};

use super::compress::Compressor;
use super::output::NewImage;
use crate::exit::Kind;
use crate::failure::Failure;
use crate::file_id::FileId;
use crate::image::{self, FilesystemKind, ToOverwrite};
use crate::plan::{ArrayMembers, Compress, CopyPlan, CopyTarget, Format, ImageSpec};
use crate::text::bar::Bar;
use crate::text::human;
use crate::text::names::safe;
use crate::text::out::Out;

/// What is read at once for standard output, in bytes.
const PIECE_BYTES: usize = 1 << 20;

/// What was copied.
#[derive(Debug, Serialize)]
struct CopyReport {
    size_bytes: u64,
    /// What was not known to be zeroes.
    read_bytes: u64,
    written_bytes: u64,
}

pub(super) fn run(plan: &CopyPlan, format: Format) -> Result<(), Failure> {
    refuse_itself(plan)?;
    if matches!(plan.to, CopyTarget::Stdout) {
        refuse_terminal()?;
    }
    let (size_bytes, copied, shown) = match &plan.to {
        CopyTarget::Partition(target) if is_one_disk(&plan.from, target) => {
            let (from, to) = image::open_two_partitions(&plan.from, target)?;
            (from.size_bytes(), copy_onto(&from, to, target, plan)?, target.shown_as_typed())
        }
        target => {
            // A part of a disk, or all of it whatever it holds.
            let (from, _array) = image::open_whole(&plan.from)?;
            let Some((copied, shown)) = copy_to(&from, target, plan)? else { return Ok(()) };
            (from.size_bytes(), copied, shown)
        }
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

/// Copies to a target that is opened for it, which is named as users know it; `None` for standard output, where nothing is
/// told.
fn copy_to(from: &Device, target: &CopyTarget, plan: &CopyPlan) -> Result<Option<(Copied, String)>, Failure> {
    let onto = |target: &ImageSpec| {
        let to = image::open_to_overwrite(target)?;
        Ok(Some((copy_onto(from, to, target, plan)?, target.shown_as_typed())))
    };
    match target {
        CopyTarget::Stdout => to_stdout(from, None).map(|()| None),
        CopyTarget::Partition(target) => onto(target),
        CopyTarget::File(path) if is_device(path) => onto(&ImageSpec::plain(path.clone())),
        CopyTarget::File(path) => {
            let new = NewImage::make(path, from.size_bytes(), plan.format, plan.force)?;
            let to = new.open()?;
            let copied = copy_all(from, &to, true)?;
            drop(to);
            new.finish()?;
            Ok(Some((copied, safe(path.as_os_str().as_bytes()))))
        }
    }
}

/// Whether two partitions are named, of the same disk under whatever names.
fn is_one_disk(from: &ImageSpec, to: &ImageSpec) -> bool {
    let are_partitions =
        from.array.is_none() && to.array.is_none() && from.partition.is_some() && to.partition.is_some();
    let from = are_partitions.then(|| FileId::of_path(&from.path)).flatten();
    from.is_some() && from == FileId::of_path(&to.path)
}

fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

/// Refuses what is, or has in it, what is copied from, under whatever name.
fn refuse_itself(plan: &CopyPlan) -> Result<(), Failure> {
    let (to, shown) = match &plan.to {
        CopyTarget::Stdout => return Ok(()),
        // Which of its bytes they are is seen in its table.
        CopyTarget::Partition(target) if is_one_disk(&plan.from, target) => return Ok(()),
        CopyTarget::File(path) => (path, safe(path.as_os_str().as_bytes())),
        CopyTarget::Partition(target) => (&target.path, target.shown_as_typed()),
    };
    let Some(to) = FileId::of_path(to) else { return Ok(()) };
    let is_same = |image: &ImageSpec| FileId::of_path(&image.path) == Some(to);
    let refused = |what: String| Err(Failure::new(Kind::Usage, what).advise("copy it to another file"));
    match &plan.from.array {
        Some(array) => match &array.members {
            ArrayMembers::Listed(members) if members.iter().any(is_same) => {
                refused(format!("{shown} is a member of the array that is copied"))
            }
            _ => Ok(()),
        },
        None if !is_same(&plan.from) => Ok(()),
        None if plan.from.partition.is_none() && matches!(plan.to, CopyTarget::File(_)) => {
            refused(format!("{shown} is copied to itself"))
        }
        None => refused(format!("{shown} is the disk that is copied from, or a part of it")),
    }
}

/// Copies to what is as large as it is: a block device, or a partition.
fn copy_onto(from: &Device, to: ToOverwrite, target: &ImageSpec, plan: &CopyPlan) -> Result<Copied, Failure> {
    if !plan.force {
        image::refuse_present(&to.device)?;
    }
    let (room, size_bytes) = (to.device.size_bytes(), from.size_bytes());
    refuse_cut_short(from, target, plan)?;
    if room < size_bytes {
        let what = format!("{} has {room} bytes, too few for {size_bytes}", target.shown_as_typed());
        return Err(Failure::new(Kind::CannotOpen, what));
    }
    let copied = copy_all(from, &to.device, false)?;
    to.device.flush().map_err(|error| Failure::of(Kind::Io, &error))?;
    to.close()?;
    Ok(copied)
}

/// Refuses to overwrite a target with an image whose end is missing or cannot be read: a partition that reaches past the end
/// of its disk, a filesystem that was larger.
fn refuse_cut_short(from: &Device, target: &ImageSpec, plan: &CopyPlan) -> Result<(), Failure> {
    const WHOLE: &str = "take a whole copy of the image that is copied from";
    let (shown, target) = (plan.from.shown_as_typed(), target.shown_as_typed());
    let refused = |what: &str| Failure::new(Kind::Io, format!("{what}, so nothing is written to {target}"));
    let Some(last) = from.size_bytes().checked_sub(1) else { return Ok(()) };
    if let Err(error) = from.read_at(last, &mut [0]) {
        let is_missing =
            matches!(&error, Error::Io { source, .. } if source.kind() == io::ErrorKind::UnexpectedEof);
        let advice = if is_missing { WHOLE } else { "`ddrescue` copies what can be read" };
        return Err(refused(&format!("cannot read the end of {shown}")).because(&error).advise(advice));
    }
    // What a member of an array begins with may be larger than the member.
    if undercroft_md::examine(&**from).is_ok() {
        return Ok(());
    }
    let there = from.size_bytes();
    match FilesystemKind::declared_on(from).filter(|&declared| declared > there) {
        Some(declared) => {
            let (declared, there) = (human::size(declared), human::size(there));
            Err(refused(&format!("{shown} is cut short, of {declared} there are {there}")).advise(WHOLE))
        }
        None => Ok(()),
    }
}

/// Refuses to write an image to a terminal.
pub(super) fn refuse_terminal() -> Result<(), Failure> {
    if io::stdout().is_terminal() {
        return Err(Failure::new(Kind::Usage, "an image is not for a terminal")
            .advise("send it into a file or a pipe"));
    }
    Ok(())
}

/// Writes all bytes of a device to standard output, holes as zeroes.
pub(super) fn to_stdout(from: &Device, compress: Option<Compress>) -> Result<(), Failure> {
    let mut out = Compressor::new(io::stdout().lock(), compress)?;
    let all = from.size_bytes();
    let mut buf = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < all {
        let len = (all - at).min(buf.len() as u64) as usize;
        from.read_at(at, &mut buf[..len]).map_err(|error| Failure::of(Kind::Io, &error))?;
        out.write_all(&buf[..len])?;
        at += len as u64;
    }
    Ok(out.finish()?)
}

/// Copies with a bar.
pub(super) fn copy_all(from: &Device, to: &Device, is_zeroed: bool) -> Result<Copied, Failure> {
    let bar = Bar::new();
    let all = from.size_bytes();
    copy(&**from, &**to, is_zeroed, &mut |at| bar.show("copying", at, all))
        .map_err(|error| Failure::of(Kind::Io, &error))
}
