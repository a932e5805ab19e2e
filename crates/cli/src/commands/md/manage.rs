//! What happens to an array that is there: `status`, `fail`, `remove`, `add`, `replace`, `check`, `repair`, `stop`.

use std::sync::Arc;

use undercroft_block::Device;
use undercroft_md::{Array, DeviceRole, Duty, Error, Finished, Status, examine};

use super::devices::NewDevices;
use super::report::Report;
use super::wait::wait;
use super::{close, print};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::{self, OpenArray, identity, md_failure, open_array};
use crate::plan::{Change, Format, ImageSpec, NewMembers, Waiting};
use crate::text::human;

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
    // Former members come back as new ones, and are not opened twice. A spare is one of the array.
    let coming = match change {
        Change::Add(new) => new.members.clone(),
        Change::Replace { with: Some(new), .. } => {
            new.members.iter().filter(|member| !is_spare(member)).cloned().collect()
        }
        _ => Vec::new(),
    };
    let open = open_array(spec, true, &coming)?;
    let array = &*open.array;
    array.limit_sync(waiting.bytes_per_second);
    let mut managed = Managed { array, members: open.members.clone(), shown: &title };
    let found = managed.apply(change, &mut || wait(array))?;
    if waiting.wait {
        wait(array)?;
    }
    let report = close(array)?;
    let OpenArray { array, members } = open;
    drop(array);
    erase_removed(change, &members)?;
    print(&report, &title, format)?;
    Ok(verdict(found.as_ref()))
}

/// An array that is open, and what became of its members since.
#[derive(Debug)]
pub(crate) struct Managed<'a> {
    pub(crate) array: &'a Array,
    /// With the names of their devices.
    pub(crate) members: Vec<(ImageSpec, String)>,
    pub(crate) shown: &'a str,
}

impl Managed<'_> {
    /// Begins what is to become of the array; `wait` waits until no background work is under way. Tells what a check found.
    pub(crate) fn apply(
        &mut self,
        change: &Change,
        wait: &mut dyn FnMut() -> Result<Option<Finished>, Failure>,
    ) -> Result<Option<Finished>, Failure> {
        match change {
            Change::Status | Change::Stop => {}
            Change::Fail(members) => {
                for (at, member) in members.iter().enumerate() {
                    let failed = self
                        .in_use(member)
                        .and_then(|number| self.array.fail(number).map_err(|error| md_failure(&error)));
                    failed.map_err(|failure| {
                        with_rest(failure, "declared failed", &members[..at], &members[at + 1..])
                    })?;
                }
            }
            Change::Remove { members, .. } => {
                for (at, member) in members.iter().enumerate() {
                    self.remove(member).map_err(|failure| {
                        with_rest(failure, "removed", &members[..at], &members[at + 1..])
                    })?;
                }
            }
            Change::Add(new) => self.add(new)?,
            Change::Replace { member, with } => self.replace(member, with.as_ref())?,
            Change::Check | Change::Repair => {
                // Pending work comes first: redundancy that is known to be wrong need not be compared.
                wait()?;
                let is_check = matches!(change, Change::Check);
                let begun = if is_check { self.array.check() } else { self.array.repair() };
                begun.map_err(|error| md_failure(&error))?;
                return Ok(wait()?.filter(|_| is_check));
            }
        }
        Ok(None)
    }

    fn remove(&mut self, member: &ImageSpec) -> Result<(), Failure> {
        if let Some((number, device)) = self.number(member)? {
            self.array.remove(number).map_err(|error| md_failure(&error))?;
            self.members.retain(|(_, name)| *name != device);
        }
        Ok(())
    }

    /// Adds devices.
    fn add(&mut self, new: &NewMembers) -> Result<(), Failure> {
        let Status { uuid, bitmap, members, .. } = self.array.status();
        // Those that were left out are not open any more.
        self.members.retain(|(_, name)| members.iter().any(|member| member.device == *name));
        if let Some(member) = new.members.iter().find(|member| find(&self.members, member).is_some()) {
            return Err(Failure::new(
                Kind::Usage,
                format!("{} is a member of {} already", member.shown(), self.shown),
            )
            .advise("if it has failed, `md remove` lets go of it first"));
        }
        let mut devices = NewDevices::open(new, Some(uuid))?;
        for (at, (device, spec)) in devices.devices.clone().into_iter().zip(&new.members).enumerate() {
            let is_former = examine(&*device).is_ok_and(|found| found.array_uuid == uuid);
            if is_former && new.overwrite {
                erase_superblocks(&device)?;
            }
            let may_return = is_former && !new.overwrite && bitmap.is_some();
            let name = device.name();
            let number = match may_return.then(|| self.array.re_add(Arc::clone(&device))) {
                Some(Ok(number)) => Ok(number),
                // It cannot be known what it missed: it is given everything.
                None | Some(Err(Error::Invalid(_))) => self.array.add(device),
                Some(Err(error)) => Err(error),
            };
            number.map_err(|error| {
                with_rest(md_failure(&error), "added", &new.members[..at], &new.members[at + 1..])
            })?;
            devices.keep(spec);
            self.members.push((spec.clone(), name));
        }
        Ok(())
    }

    fn replace(&mut self, member: &ImageSpec, with: Option<&NewMembers>) -> Result<(), Failure> {
        let number = self.in_use(member)?;
        let status = self.array.status();
        let duty = status.members.iter().find(|one| one.number == number).map(|one| one.duty);
        if duty == Some(Duty::Faulty) {
            return Err(self
                .faulty(member)
                .advise("`md remove` it, and `md add` a device, which gets its role"));
        }
        let Some(Duty::Active(role)) = duty else {
            return Err(Failure::new(
                Kind::Usage,
                format!("{} has no role in {}", member.shown(), self.shown),
            )
            .advise("only a member that has one can be replaced; `md remove` lets go of others"));
        };
        let Some((new, with)) = with.and_then(|new| Some((new, new.members.first()?))) else {
            return self
                .array
                .replace(role)
                .map(drop)
                .map_err(|error| md_failure(&error).advise("`--with NEW` brings one"));
        };
        let spare = match self.spare(with)? {
            Some(spare) => spare,
            None => {
                // What is added takes an empty role at once.
                if status.degraded > 0 {
                    let lacking = human::counted(u64::from(status.degraded), "member");
                    return Err(Failure::new(
                        Kind::Usage,
                        format!(
                            "{} lacks {lacking}, and {} would be given that role, and not {}'s",
                            self.shown,
                            with.shown(),
                            member.shown()
                        ),
                    )
                    .advise("`md add` a device, and replace the member once the array is whole"));
                }
                self.add(new)?;
                let added = self.number(with)?.map(|(number, _)| number);
                added.ok_or_else(|| Failure::new(Kind::Host, format!("{} has failed", with.shown())))?
            }
        };
        self.array.replace_with(role, spare).map_err(|error| md_failure(&error))?;
        Ok(())
    }

    /// The number of the spare that was named; none of a device that is to be added first.
    fn spare(&self, named: &ImageSpec) -> Result<Option<u32>, Failure> {
        let Some((_, device)) = find(&self.members, named) else { return Ok(None) };
        let status = self.array.status();
        let Some(member) = status.members.iter().find(|member| member.device == *device) else {
            return Ok(None);
        };
        match member.duty {
            Duty::Spare | Duty::Replacement(_) => Ok(Some(member.number)),
            Duty::Active(_) => Err(Failure::new(
                Kind::Usage,
                format!("{} has a role in {} already", named.shown(), self.shown),
            )
            .advise("name a spare or another device in `--with`")),
            Duty::Faulty => {
                let advice = "name another device in `--with`, or `md remove` this one and `md add` it anew";
                Err(self.faulty(named).advise(advice))
            }
        }
    }

    fn faulty(&self, member: &ImageSpec) -> Failure {
        Failure::new(Kind::Usage, format!("{} has failed in {}", member.shown(), self.shown))
    }

    /// The number of a member that takes part.
    fn in_use(&self, member: &ImageSpec) -> Result<u32, Failure> {
        self.number(member)?.map(|(number, _)| number).ok_or_else(|| {
            Failure::new(Kind::Usage, format!("{} is out of the array already", member.shown()))
                .advise("`md add` brings it back")
        })
    }

    /// The number and the device of a member that was named by its file or its number; none if it takes no part any more.
    fn number(&self, member: &ImageSpec) -> Result<Option<(u32, String)>, Failure> {
        let status = self.array.status();
        let by_name = find(&self.members, member);
        let by_number: Option<u32> =
            member.path.to_str().filter(|_| by_name.is_none()).and_then(|typed| typed.parse().ok());
        let mut members = status.members.iter();
        let found = match (by_name, by_number) {
            (Some((_, name)), _) => members.find(|one| one.device == *name),
            (None, Some(number)) => members.find(|one| one.number == number),
            (None, None) => None,
        };
        if found.is_none() && by_name.is_none() {
            let names: Vec<String> = self.members.iter().map(|(member, _)| member.shown()).collect();
            return Err(Failure::new(
                Kind::Usage,
                format!("{} is no member of {}", member.shown(), self.shown),
            )
            .advise(format!("its members are {}", names.join(", "))));
        }
        Ok(found.map(|one| (one.number, one.device.clone())))
    }
}

/// What a check came to.
pub(crate) fn verdict(found: Option<&Finished>) -> Option<Kind> {
    found.filter(|found| found.mismatched_bytes > 0).map(|_| Kind::Corrupt)
}

/// Erases the superblocks of members that were removed, if that is wanted.
pub(crate) fn erase_removed(change: &Change, members: &[(ImageSpec, String)]) -> Result<(), Failure> {
    if let Change::Remove { members: removed, erase: true } = change {
        for member in removed {
            erase(members, member)?;
        }
    }
    Ok(())
}

/// A failure at one of several members, with what was done before and what was not tried. If some was done, the work is
/// done in part.
fn with_rest(failure: Failure, what: &str, done: &[ImageSpec], rest: &[ImageSpec]) -> Failure {
    let say = |members: &[ImageSpec], not: &str| {
        let names: Vec<String> = members.iter().map(ImageSpec::shown).collect();
        let verb = if members.len() == 1 { "was" } else { "were" };
        format!("{} {verb} {not}{what}", names.join(", "))
    };
    let failure =
        if done.is_empty() { failure } else { failure.counted_as(Kind::Partial).noting(say(done, "")) };
    if rest.is_empty() { failure } else { failure.noting(say(rest, "not ")) }
}

/// Whether a device is a spare of an array, by its own superblock.
fn is_spare(member: &ImageSpec) -> bool {
    // It is only looked at: what else uses it is told when it is opened for the array.
    let looked_at = ImageSpec { lock: false, quiet: true, direct: false, ..member.clone() };
    let found = image::open_member(&looked_at, false).ok().and_then(|device| examine(&*device).ok());
    found.is_some_and(|found| found.role == DeviceRole::Spare)
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
