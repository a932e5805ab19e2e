//! What the commands of `md` mean, in the library's terms.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroU64;
use std::os::unix::ffi::OsStrExt;

use serde::{Deserialize, Serialize};
use undercroft_md::{CreateOptions, Layout, Level, ParityLayout, Raid10Copies, Version};
use uuid::Uuid;

use super::mkfs::size;
use super::{Format, ImageSpec};
use crate::args::{ArrayArgs, DangerArgs, MdCommand, MdCreateArgs, NewMemberArgs, WaitArgs};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::file_id::device_of_directory;
use crate::text::names::safe;

/// Stands for a member that is added later, as for mdadm.
const MISSING: &str = "missing";

/// What to do with arrays.
#[derive(Debug)]
pub(crate) enum MdPlan {
    Create(NewArrayPlan),
    Examine(Vec<ImageSpec>),
    /// An array that is there.
    Use {
        array: ImageSpec,
        change: Change,
        wait: Waiting,
    },
}

/// What becomes of an array that is there.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Change {
    /// Nothing: it is looked at.
    Status,
    Fail(Vec<ImageSpec>),
    Remove {
        members: Vec<ImageSpec>,
        /// Their superblocks go too.
        erase: bool,
    },
    Add(NewMembers),
    Replace {
        member: ImageSpec,
        /// What takes its place, if it is none of the spares.
        with: Option<NewMembers>,
    },
    Check,
    Repair,
    Stop,
}

/// Devices that are to become members.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewMembers {
    pub(crate) members: Vec<ImageSpec>,
    /// Of those that are not there.
    pub(crate) size_bytes: Option<u64>,
    /// Whatever is on them.
    pub(crate) overwrite: bool,
}

/// What happens to work that takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Waiting {
    /// It is waited for.
    pub(crate) wait: bool,
    /// It does no more than this.
    pub(crate) bytes_per_second: Option<NonZeroU64>,
}

/// An array to be made.
#[derive(Debug)]
pub(crate) struct NewArrayPlan {
    /// By role, then spares.
    pub(crate) members: NewMembers,
    pub(crate) options: CreateOptions,
    pub(crate) wait: Waiting,
}

impl Change {
    /// The same for a process with another working directory.
    pub(crate) fn absolute(mut self) -> Self {
        match &mut self {
            Self::Status | Self::Check | Self::Repair | Self::Stop => {}
            Self::Fail(members) | Self::Remove { members, .. } => {
                members.iter_mut().for_each(ImageSpec::make_absolute);
            }
            Self::Add(new) => new.members.iter_mut().for_each(ImageSpec::make_absolute),
            Self::Replace { member, with } => {
                member.make_absolute();
                with.iter_mut().flat_map(|new| &mut new.members).for_each(ImageSpec::make_absolute);
            }
        }
        self
    }
}

impl MdPlan {
    pub(super) fn from_typed(typed: MdCommand) -> Result<(Self, Format), Failure> {
        let in_use = |array: &ArrayArgs, change, wait, json| -> Result<(Self, Format), Failure> {
            Ok((Self::Use { array: array_spec(array)?, change, wait }, Format::of(json)))
        };
        match typed {
            MdCommand::Create(typed) => {
                let format = Format::of(typed.json.json);
                Ok((Self::Create(NewArrayPlan::from_typed(&typed)?), format))
            }
            MdCommand::Examine { members, no_lock, json } => {
                let members = specs(&members)?.into_iter();
                let members = members
                    .map(|member| ImageSpec { lock: !no_lock, may_skip_lock: true, ..member })
                    .collect();
                Ok((Self::Examine(members), Format::of(json.json)))
            }
            MdCommand::Status { array, json } => {
                in_use(&array, Change::Status, Waiting { wait: false, bytes_per_second: None }, json.json)
            }
            MdCommand::Fail { array, members, wait, json } => {
                in_use(&array, Change::Fail(specs(&members)?), waiting(&wait)?, json.json)
            }
            MdCommand::Remove { array, members, erase, json } => {
                let change = Change::Remove { members: specs(&members)?, erase };
                in_use(&array, change, Waiting { wait: false, bytes_per_second: None }, json.json)
            }
            MdCommand::Add { array, new, members, wait, json } => {
                let new = new_members(&members, &new, &array.danger)?;
                in_use(&array, Change::Add(new), waiting(&wait)?, json.json)
            }
            MdCommand::Replace { array, member, with, new, wait, json } => {
                let with = with.map(|with| new_members(&[with], &new, &array.danger)).transpose()?;
                let change = Change::Replace { member: ImageSpec::parse_one(&member)?, with };
                in_use(&array, change, waiting(&wait)?, json.json)
            }
            MdCommand::Check { array, speed, json } => {
                in_use(&array, Change::Check, to_the_end(speed.as_deref())?, json.json)
            }
            MdCommand::Repair { array, speed, json } => {
                in_use(&array, Change::Repair, to_the_end(speed.as_deref())?, json.json)
            }
            MdCommand::Stop { array, wait, json } => in_use(&array, Change::Stop, waiting(&wait)?, json.json),
        }
    }
}

fn array_spec(typed: &ArrayArgs) -> Result<ImageSpec, Failure> {
    let spec = ImageSpec::parse(&typed.array)?;
    let shown = spec.shown();
    if spec.array.is_none() && device_of_directory(&spec.path).is_none() {
        return Err(Failure::new(Kind::Usage, format!("{shown} is no array")).advise(
            "write it as md:MEMBER,MEMBER,..., as md:DIR, or name the directory that it is mounted on",
        ));
    }
    if spec.partition.is_some() {
        return Err(Failure::new(Kind::Usage, format!("{shown} is a partition of an array"))
            .advise("leave the partition off"));
    }
    let write_while_in_use = typed.danger.write_while_in_use;
    let lock = !typed.no_lock;
    Ok(ImageSpec { direct: typed.direct, lock, may_skip_lock: true, write_while_in_use, ..spec })
}

fn specs(typed: &[OsString]) -> Result<Vec<ImageSpec>, Failure> {
    typed.iter().map(|member| member_spec(member)).collect()
}

fn member_spec(typed: &OsStr) -> Result<ImageSpec, Failure> {
    let spec = ImageSpec::parse_one(typed)?;
    if typed.as_bytes().starts_with(b"md:") {
        return Err(Failure::new(Kind::Usage, format!("{} is an array", safe(typed.as_bytes())))
            .advise("name a member: a disk image, a block device or a partition"));
    }
    Ok(spec)
}

fn new_members(typed: &[OsString], how: &NewMemberArgs, danger: &DangerArgs) -> Result<NewMembers, Failure> {
    let write_while_in_use = danger.write_while_in_use;
    let members = specs(typed)?.into_iter().map(|member| ImageSpec { write_while_in_use, ..member });
    Ok(NewMembers {
        members: members.collect(),
        size_bytes: how.member_size.as_deref().map(size).transpose()?,
        overwrite: how.force,
    })
}

fn to_the_end(speed: Option<&str>) -> Result<Waiting, Failure> {
    let bytes_per_second = match speed {
        None => None,
        Some(typed) => Some(NonZeroU64::new(size(typed)?).ok_or_else(|| {
            Failure::new(Kind::Usage, "with a speed of 0 nothing is ever done").advise("leave `--speed` off")
        })?),
    };
    Ok(Waiting { wait: true, bytes_per_second })
}

fn waiting(typed: &WaitArgs) -> Result<Waiting, Failure> {
    Ok(Waiting { wait: !typed.no_wait, ..to_the_end(typed.speed.as_deref())? })
}

impl NewArrayPlan {
    fn from_typed(typed: &MdCreateArgs) -> Result<Self, Failure> {
        let level = level(&typed.level)?;
        let policy = typed.consistency_policy.as_deref();
        if typed.bitmap == "internal" && matches!(policy, Some("ppl" | "resync")) {
            return Err(Failure::new(
                Kind::Usage,
                format!(
                    "--bitmap internal and --consistency-policy {} exclude each other",
                    policy.unwrap_or("")
                ),
            ));
        }
        no_device_of_the_array(&typed.members)?;
        let (members, spares) = members_and_spares(typed)?;
        let chunk_bytes = typed.chunk.as_deref().map(|typed| mdadm_size("--chunk", typed)).transpose()?;
        let chunk_bytes = chunk_bytes.map(u32::try_from).transpose().map_err(|_| {
            Failure::new(Kind::Usage, format!("--chunk {}: too large", typed.chunk.as_deref().unwrap_or("")))
        })?;
        let uuid = typed.uuid.as_deref().map(|typed| {
            Uuid::parse_str(&typed.replace(':', ""))
                .map_err(|_| Failure::new(Kind::Usage, format!("{typed:?} is no UUID")))
        });
        let is_missing = |member: &OsString| member == MISSING;
        let missing = (0..).zip(&members).filter(|(_, member)| is_missing(member));
        let options = CreateOptions {
            missing: missing.map(|(role, _)| role).collect(),
            layout: typed.layout.as_deref().map(|typed| layout(level, typed)).transpose()?,
            chunk_bytes,
            name: typed.name.clone().unwrap_or_default(),
            host: typed.homehost.clone(),
            uuid: uuid.transpose()?,
            version: version(&typed.metadata)?,
            member_bytes: match typed.size.as_deref() {
                None | Some("max") => None,
                Some(typed) => Some(mdadm_size("--size", typed)?),
            },
            bitmap: typed.bitmap == "internal" || policy == Some("bitmap"),
            ppl: policy == Some("ppl"),
            assume_clean: typed.assume_clean,
            spares: spares.len() as u32,
            ..CreateOptions::new(level)
        };
        if let Some(missing) = spares.iter().find(|&spare| is_missing(spare)) {
            let what = format!("{} stands for a spare", safe(missing.as_bytes()));
            return Err(Failure::new(Kind::Usage, what).advise("ask for one spare less"));
        }
        let members = members.into_iter().filter(|member| !is_missing(member));
        let all: Vec<OsString> = members.chain(spares).collect();
        if let Some(twice) = all.iter().enumerate().find(|(at, member)| all[..*at].contains(member)) {
            let what = format!("{} is named twice", safe(twice.1.as_bytes()));
            return Err(Failure::new(Kind::Usage, what).advise("each member is another file or device"));
        }
        let members = new_members(&all, &typed.new, &typed.danger)?;
        Ok(Self {
            members: NewMembers { overwrite: members.overwrite || typed.run, ..members },
            options,
            wait: waiting(&typed.wait)?,
        })
    }
}

/// mdadm has a device of the array before the members.
fn no_device_of_the_array(members: &[OsString]) -> Result<(), Failure> {
    let Some(first) = members.first().map(|first| first.as_bytes()) else { return Ok(()) };
    let name = first.strip_prefix(b"/dev/md").unwrap_or_default();
    let is_array = name.starts_with(b"/") || name.first().is_some_and(|byte| b"_0123456789".contains(byte));
    if !is_array || members.len() == 1 || ImageSpec::parse_one(&members[0])?.path.exists() {
        return Ok(());
    }
    Err(Failure::new(
        Kind::Usage,
        format!("{} is no member: an array has no device of its own here", safe(first)),
    )
    .advise("leave it off, and name the array by its members: md:MEMBER,MEMBER,..."))
}

/// Which of what was typed have roles, and which are spares. With mdadm's counts of them, all are in one list.
fn members_and_spares(typed: &MdCreateArgs) -> Result<(Vec<OsString>, Vec<OsString>), Failure> {
    let counted = match typed.spare_devices.as_deref() {
        None => 0,
        Some(count) => count.parse::<usize>().map_err(|_| {
            Failure::new(Kind::Usage, format!("--spare-devices {count}: it counts spares, as for mdadm"))
                .advise("`--spare MEMBER` names one")
        })?,
    };
    let mut members = typed.members.clone();
    let found = members.len();
    let roles = typed.raid_devices.map_or(found.saturating_sub(counted), |count| count as usize);
    if roles.checked_add(counted) != Some(found) || roles == 0 {
        let spares = if counted > 0 { format!(" and {counted} as spares") } else { String::new() };
        let named = match found {
            1 => "1 member is".to_owned(),
            many => format!("{many} members are"),
        };
        let what = format!("{named} named, and {roles} asked for{spares}");
        return Err(Failure::new(Kind::Usage, what)
            .advise("name as many; `missing` stands for one that is added later"));
    }
    let mut spares = members.split_off(roles);
    spares.extend(typed.spare.iter().cloned());
    Ok((members, spares))
}

/// A size as mdadm takes it: in KiB, unless it has a unit; `s` is for sectors.
fn mdadm_size(option: &str, typed: &str) -> Result<u64, Failure> {
    let (digits, unit) = match typed.strip_suffix('s') {
        Some(sectors) => (sectors, 512),
        None => (typed, 1024),
    };
    let bytes = if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit))
    } else {
        size(typed).ok()
    };
    bytes.filter(|&bytes| bytes > 0 && bytes <= i64::MAX as u64).ok_or_else(|| {
        Failure::new(Kind::Usage, format!("{option} {typed}: that is no size"))
            .advise("write it as 64K or 10G, or in KiB")
    })
}

fn version(typed: &str) -> Result<Version, Failure> {
    Ok(match typed {
        "1.0" => Version::V1_0,
        "1.1" => Version::V1_1,
        "1" | "1.2" | "default" => Version::V1_2,
        _ => {
            return Err(Failure::new(
                Kind::Usage,
                format!("--metadata {typed}: such superblocks are not made"),
            )
            .advise("there are 1.0, 1.1 and 1.2"));
        }
    })
}

fn level(typed: &str) -> Result<Level, Failure> {
    Ok(match typed.strip_prefix("raid").unwrap_or(typed) {
        "linear" => Level::Linear,
        "0" => Level::Raid0,
        "stripe" if typed == "stripe" => Level::Raid0,
        "1" => Level::Raid1,
        "mirror" if typed == "mirror" => Level::Raid1,
        "4" => Level::Raid4,
        "5" => Level::Raid5,
        "6" => Level::Raid6,
        "10" => Level::Raid10,
        _ => {
            return Err(Failure::new(Kind::Usage, format!("{typed:?} is no level"))
                .advise("there are linear, 0, 1, 4, 5, 6 and 10"));
        }
    })
}

/// A layout as mdadm writes it: `left-symmetric` or `ls`, `n2`, `f2`, `o2`, `original`.
fn layout(level: Level, typed: &str) -> Result<Layout, Failure> {
    let known = match level {
        Level::Raid5 | Level::Raid6 => match typed {
            "left-symmetric" | "ls" | "default" => Some(ParityLayout::LeftSymmetric),
            "left-asymmetric" | "la" => Some(ParityLayout::LeftAsymmetric),
            "right-symmetric" | "rs" => Some(ParityLayout::RightSymmetric),
            "right-asymmetric" | "ra" => Some(ParityLayout::RightAsymmetric),
            "parity-first" => Some(ParityLayout::ParityFirst),
            "parity-last" => Some(ParityLayout::ParityLast),
            _ => None,
        }
        .map(Layout::Parity),
        Level::Raid10 => copies(typed).map(Layout::Copies),
        Level::Raid0 => match typed {
            "original" | "1" => Some(Layout::Zones(1)),
            "alternate" | "2" => Some(Layout::Zones(2)),
            _ => None,
        },
        Level::Linear | Level::Raid1 | Level::Raid4 => None,
    };
    known.ok_or_else(|| {
        Failure::new(Kind::Usage, format!("{typed:?} is no layout of this level"))
            .advise("`undercroft md create --help` lists them")
    })
}

fn copies(typed: &str) -> Option<Raid10Copies> {
    let (kind, number) = typed.split_at_checked(1)?;
    let number: u8 = number.parse().ok()?;
    match kind {
        "n" => Some(Raid10Copies { near: number, far: 1, offset: false }),
        "f" => Some(Raid10Copies { near: 1, far: number, offset: false }),
        "o" => Some(Raid10Copies { near: 1, far: number, offset: true }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_layouts_are_those_of_mdadm() {
        for (typed, expected) in [
            ("5", Level::Raid5),
            ("stripe", Level::Raid0),
            ("mirror", Level::Raid1),
            ("raid10", Level::Raid10),
            ("linear", Level::Linear),
        ] {
            assert_eq!(level(typed).unwrap(), expected);
        }
        let symmetric = Layout::Parity(ParityLayout::LeftSymmetric);
        assert_eq!(layout(Level::Raid6, "ls").unwrap(), symmetric);
        let offset = Layout::Copies(Raid10Copies { near: 1, far: 2, offset: true });
        assert_eq!(layout(Level::Raid10, "o2").unwrap(), offset);
        assert_eq!(layout(Level::Raid0, "alternate").unwrap(), Layout::Zones(2));
        for (of, wrong) in
            [(Level::Raid10, "x2"), (Level::Raid10, ""), (Level::Raid5, "n2"), (Level::Raid1, "ls")]
        {
            assert_eq!(layout(of, wrong).unwrap_err().kind(), Kind::Usage, "{wrong}");
        }
        for wrong in ["7", "raid", "", "raidraid5", "raidmirror"] {
            assert_eq!(level(wrong).unwrap_err().kind(), Kind::Usage, "{wrong}");
        }
    }
}
