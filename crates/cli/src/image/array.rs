//! Opens an array as an image: finds its members, opens them, assembles them.
//!
//! For reading, all members that can be opened are taken, and none is written to. For writing, members that the others
//! list as active must be given, since writing without them puts them out of the array.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use undercroft_block::Device;
use undercroft_md::{Array, ArrayOptions, Error, examine};
use uuid::Uuid;

use super::{open_device, partition};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::plan::{ArrayMembers, ArraySpec, ImageSpec};
use crate::text::human;
use crate::text::names::safe;
use crate::text::note::note;

/// An array that is open.
#[derive(Debug)]
pub(crate) struct OpenArray {
    pub(crate) array: Arc<Array>,
    /// Those that were opened for it, with the names of their devices.
    pub(crate) members: Vec<(ImageSpec, String)>,
}

/// Opens the array that the user named, without these members of it.
///
/// # Errors
/// When there is no such array, or too little of it.
pub(crate) fn open_array(
    spec: &ImageSpec,
    to_write: bool,
    without: &[ImageSpec],
) -> Result<OpenArray, Failure> {
    let Some(array) = &spec.array else {
        return Err(Failure::new(Kind::Usage, format!("{} is no array", spec.shown())));
    };
    let mut members = match &array.members {
        ArrayMembers::Listed(members) => members.iter().map(|member| spec.member(member)).collect(),
        ArrayMembers::In(dir) => find(spec, array, dir)?,
    };
    let left_out: Vec<_> = without.iter().map(identity).collect();
    members.retain(|member| !left_out.contains(&identity(member)));
    let mut open = Vec::new();
    let mut devices = Vec::new();
    for member in members {
        let device = open_member(&member, to_write)?;
        open.push((member, device.name()));
        devices.push(device);
    }
    let usual = ArrayOptions::default();
    let options = ArrayOptions {
        read_only: !to_write,
        force: array.force,
        start_degraded: array.degraded || !to_write,
        member_timeout: array
            .member_timeout
            .map_or(usual.member_timeout, |time| (!time.is_zero()).then_some(time)),
        ..usual
    };
    let array = Array::open(devices, options).map_err(|error| failure(&error))?;
    tell(spec, &array);
    Ok(OpenArray { array: Arc::new(array), members: open })
}

/// Opens one file, device or partition that is to become a member: what is on it is to be overwritten.
pub(crate) fn open_new_member(spec: &ImageSpec) -> Result<Device, Failure> {
    partition::to_overwrite(spec, open_device(spec, true)?)
}

/// Opens one file, device or partition that is a member.
pub(crate) fn open_member(spec: &ImageSpec, to_write: bool) -> Result<Device, Failure> {
    let device = open_device(spec, to_write)?;
    if spec.partition.is_none() {
        return Ok(device);
    }
    partition::choose(spec, device, to_write).map(|(device, _)| device)
}

/// A refusal of the library, with what to do about it here.
pub(crate) fn failure(error: &Error) -> Failure {
    let failure = Failure::of(Kind::of_md(error), error);
    match error {
        Error::Assembly(sentence) if sentence.ends_with("degraded") => {
            failure.advise("`?degraded` behind the last member does the latter")
        }
        Error::Assembly(sentence) | Error::TooFewMembers(sentence) if sentence.contains("by force") => {
            failure.advise("`?force` behind the last member is by force")
        }
        Error::Corrupt { .. } => failure.advise("leave it out, if the array can do without it"),
        _ => failure,
    }
}

/// Which file it is, whatever it is called.
pub(crate) fn identity(spec: &ImageSpec) -> (PathBuf, Option<u32>) {
    let path = spec.path.canonicalize().unwrap_or_else(|_| spec.path.clone());
    (path, spec.partition.map(u32::from))
}

/// A user of an array should know what is wrong with it.
fn tell(spec: &ImageSpec, array: &Array) {
    let status = array.status();
    for warning in &status.warnings {
        note(format_args!("{}: {}", spec.shown(), safe(warning.as_bytes())));
    }
    if status.degraded > 0 {
        let members = human::counted(status.degraded.into(), "member");
        note(format_args!("{}: the array is degraded: it lacks {members}", spec.shown()));
    }
}

/// The members of an array in a directory, by their superblocks.
fn find(spec: &ImageSpec, array: &ArraySpec, dir: &Path) -> Result<Vec<ImageSpec>, Failure> {
    let shown = spec.shown();
    let mut arrays: BTreeMap<Uuid, (String, Vec<ImageSpec>)> = BTreeMap::new();
    let cannot_read = |error: &std::io::Error| {
        Failure::new(Kind::CannotOpen, format!("cannot read the directory of {shown}")).because(error)
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| cannot_read(&error))? {
        let entry = entry.map_err(|error| cannot_read(&error))?;
        // What lies here is called as one would type it.
        paths.push(if dir == Path::new(".") { entry.file_name().into() } else { entry.path() });
    }
    paths.sort();
    let mut seen = Vec::new();
    for path in paths {
        let is_device =
            fs::metadata(&path).is_ok_and(|found| found.is_file() || found.file_type().is_block_device());
        let member = spec.member(&ImageSpec::plain(path));
        if !is_device || seen.contains(&identity(&member)) {
            continue;
        }
        seen.push(identity(&member));
        // What cannot be opened or read is no member that could be used; locks are taken at the real opening, which
        // also tells what else uses it.
        let looked_at = ImageSpec { lock: false, quiet: true, direct: false, ..member.clone() };
        let Ok(device) = open_member(&looked_at, false) else { continue };
        let Ok(found) = examine(&*device) else { continue };
        if let Some(problem) = &found.problem {
            note(format_args!("{shown}: {} was left out: {}", member.shown(), safe(problem.as_bytes())));
            continue;
        }
        let known = arrays.entry(found.array_uuid).or_insert_with(|| (found.name.clone(), Vec::new()));
        known.1.push(member);
    }
    if let Some(uuid) = array.uuid {
        return arrays.remove(&uuid).map(|(_, members)| members).ok_or_else(|| {
            Failure::new(Kind::CannotOpen, format!("{shown}: no member of this array is in the directory"))
        });
    }
    if arrays.len() > 1 {
        let list: Vec<String> = arrays
            .iter()
            .map(|(uuid, (name, members))| {
                format!(
                    "{uuid} (\"{}\", {})",
                    safe(name.as_bytes()),
                    human::counted(members.len() as u64, "member")
                )
            })
            .collect();
        return Err(Failure::new(
            Kind::CannotOpen,
            format!("{shown}: members of several arrays are in the directory: {}", list.join(", ")),
        )
        .advise(format!("name one of them, as {shown}?uuid=UUID")));
    }
    arrays.pop_first().map(|(_, (_, members))| members).ok_or_else(|| {
        Failure::new(Kind::CannotOpen, format!("{shown}: no member of an array is in the directory"))
            .advise("`undercroft md examine FILE` tells what a file is")
    })
}
