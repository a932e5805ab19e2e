//! What happens to an array that is there: `status`, `fail`, `remove`, `add`, `replace`, `check`, `repair`, `stop`.

use std::sync::Arc;

use undercroft_block::Device;
use undercroft_md::{Array, Duty, Error, Finished, Status, examine};

use super::devices::NewDevices;
use super::report::Report;
use super::wait::wait;
use super::{close, print};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::{self, OpenArray, identity, md_failure, open_array};
use crate::plan::{Change, Format, ImageSpec, NewMembers, Waiting};

/// A superblock takes no more.
const SUPERBLOCK_BYTES: u64 = 4096;

/// Does it, and tells how the array was left. `Ok(Some(kind))`: a check found something.
pub(super) fn run(
    spec: &ImageSpec,
    change: &Change,
    waiting: Waiting,
    format: Format,
) -> Result<Option<Kind>, Failure> {
    let title = spec.shown();
    if let Change::Status = change {
        let open = open_array(spec, false, &[])?;
        print(&Report::of(open.array.status()), &title, format)?;
        return Ok(None);
    }
    // Former members come back as new ones, and are not opened twice.
    let coming = match change {
        Change::Add(new) | Change::Replace { with: Some(new), .. } => &new.members[..],
        _ => &[],
    };
    let open = open_array(spec, true, coming)?;
    let array = &*open.array;
    array.limit_sync(waiting.bytes_per_second);
    let mut found = None;
    match change {
        Change::Status | Change::Stop => {}
        Change::Fail(members) => {
            for (at, member) in members.iter().enumerate() {
                let failed = in_use(&open, spec, member)
                    .and_then(|number| array.fail(number).map_err(|error| md_failure(&error)));
                failed.map_err(|failure| {
                    with_rest(failure, "declared failed", &members[..at], &members[at + 1..])
                })?;
            }
        }
        Change::Remove { members, .. } => {
            for (at, member) in members.iter().enumerate() {
                let removed = number(&open, spec, member).and_then(|number| {
                    number.map_or(Ok(()), |number| array.remove(number)).map_err(|error| md_failure(&error))
                });
                removed
                    .map_err(|failure| with_rest(failure, "removed", &members[..at], &members[at + 1..]))?;
            }
        }
        Change::Add(new) => add(array, new).map(drop)?,
        Change::Replace { member, with } => replace(&open, spec, member, with.as_ref())?,
        Change::Check | Change::Repair => {
            // What is due comes first: redundancy that is known to be wrong need not be compared.
            wait(array)?;
            let is_check = matches!(change, Change::Check);
            let begun = if is_check { array.check() } else { array.repair() };
            begun.map_err(|error| md_failure(&error))?;
            found = wait(array)?.filter(|_| is_check);
        }
    }
    if waiting.wait {
        wait(array)?;
    }
    let report = close(array)?;
    let OpenArray { array, members } = open;
    drop(array);
    if let Change::Remove { members: removed, erase: true } = change {
        for member in removed {
            erase(&members, member)?;
        }
    }
    print(&report, &title, format)?;
    Ok(found.filter(|Finished { mismatched_bytes, .. }| *mismatched_bytes > 0).map(|_| Kind::Corrupt))
}

/// Adds devices; answers their numbers.
fn add(array: &Array, new: &NewMembers) -> Result<Vec<u32>, Failure> {
    let Status { uuid, bitmap, .. } = array.status();
    let mut devices = NewDevices::open(new, Some(uuid))?;
    let mut numbers = Vec::new();
    for device in devices.devices.clone() {
        let is_former = examine(&*device).is_ok_and(|found| found.array_uuid == uuid);
        if is_former && new.overwrite {
            erase_superblocks(&device)?;
        }
        let may_return = is_former && !new.overwrite && bitmap.is_some();
        let number = match may_return.then(|| array.re_add(Arc::clone(&device))) {
            Some(Ok(number)) => Ok(number),
            // It cannot be known what it missed: it is given everything.
            None | Some(Err(Error::Invalid(_))) => array.add(device),
            Some(Err(error)) => Err(error),
        };
        numbers.push(number.map_err(|error| md_failure(&error))?);
    }
    devices.keep();
    Ok(numbers)
}

fn replace(
    open: &OpenArray,
    spec: &ImageSpec,
    member: &ImageSpec,
    with: Option<&NewMembers>,
) -> Result<(), Failure> {
    let number = in_use(open, spec, member)?;
    let role =
        open.array.status().members.iter().find(|one| one.number == number).and_then(|one| match one.duty {
            Duty::Active(role) => Some(role),
            _ => None,
        });
    let Some(role) = role else {
        return Err(Failure::new(Kind::Usage, format!("{} has no role in {}", member.shown(), spec.shown()))
            .advise("only a member that has one can be replaced; `md remove` lets go of others"));
    };
    if let Some(new) = with {
        add(&open.array, new)?;
    }
    open.array.replace(role).map(drop).map_err(|error| {
        let failure = md_failure(&error);
        if with.is_none() { failure.advise("`--with NEW` brings one") } else { failure }
    })
}

/// A failure at one of several members, with what was done before and what was not tried.
fn with_rest(failure: Failure, what: &str, done: &[ImageSpec], rest: &[ImageSpec]) -> Failure {
    let say = |members: &[ImageSpec], not: &str| {
        let names: Vec<String> = members.iter().map(ImageSpec::shown).collect();
        let verb = if members.len() == 1 { "was" } else { "were" };
        format!("{} {verb} {not}{what}", names.join(", "))
    };
    let failure = if done.is_empty() { failure } else { failure.noting(say(done, "")) };
    if rest.is_empty() { failure } else { failure.noting(say(rest, "not ")) }
}

/// The number of a member that takes part.
fn in_use(open: &OpenArray, spec: &ImageSpec, member: &ImageSpec) -> Result<u32, Failure> {
    number(open, spec, member)?.ok_or_else(|| {
        Failure::new(Kind::Usage, format!("{} is out of the array already", member.shown()))
            .advise("`md add` brings it back")
    })
}

/// The number of a member that was named by its file or its number; none if it takes no part any more.
fn number(open: &OpenArray, spec: &ImageSpec, member: &ImageSpec) -> Result<Option<u32>, Failure> {
    let status = open.array.status();
    let by_name = find(&open.members, member);
    let by_number: Option<u32> =
        member.path.to_str().filter(|_| by_name.is_none()).and_then(|typed| typed.parse().ok());
    let mut members = status.members.iter();
    let found = match (by_name, by_number) {
        (Some((_, name)), _) => members.find(|one| one.device == *name),
        (None, Some(number)) => members.find(|one| one.number == number),
        (None, None) => None,
    };
    if found.is_none() && by_name.is_none() {
        let names: Vec<String> = open.members.iter().map(|(member, _)| member.shown()).collect();
        return Err(Failure::new(
            Kind::Usage,
            format!("{} is no member of {}", member.shown(), spec.shown()),
        )
        .advise(format!("its members are {}", names.join(", "))));
    }
    Ok(found.map(|one| one.number))
}

fn find<'a>(members: &'a [(ImageSpec, String)], member: &ImageSpec) -> Option<&'a (ImageSpec, String)> {
    members.iter().find(|(spec, _)| identity(spec) == identity(member))
}

/// Erases all superblocks of a device that was a member.
fn erase(members: &[(ImageSpec, String)], member: &ImageSpec) -> Result<(), Failure> {
    let spec = find(members, member).map_or(member, |(spec, _)| spec);
    let device: Device = image::open_member(spec, true)?;
    erase_superblocks(&device)
}

fn erase_superblocks(device: &Device) -> Result<(), Failure> {
    let fail = |error: Error| Err(md_failure(&error));
    // One of each version at most.
    for _ in 0..4 {
        let found = match examine(&**device) {
            Ok(found) => found,
            Err(Error::NoSuperblock { .. }) => return Ok(()),
            Err(error) => return fail(error),
        };
        let len = SUPERBLOCK_BYTES.min(device.size_bytes().saturating_sub(found.superblock_offset));
        let erased = device.write_zeroes(found.superblock_offset, len).and_then(|()| device.flush());
        erased.map_err(Error::from).or_else(fail)?;
    }
    Ok(())
}
