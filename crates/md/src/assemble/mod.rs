//! Assembly: which of the given devices take part in an array, as what, and whether it may be started.
//!
//! [`plan`] reads superblocks and writes nothing; the array carries the plan out. The rules are those of Linux:
//!
//! - The superblock with the highest event count is the one to believe. A member may lag behind by one, since a crash
//!   falls between the writes of two superblocks; then the freshest one's table of roles says what it is.
//! - Two parts of an array that went on without each other are never put together, not by force either: the user says
//!   which is to be kept ([`histories`]).
//! - A member that lags further is out. Where there is a write-intent bitmap in which nothing was cleared since the
//!   member left, it may come back and needs nothing but what the bitmap says ([`Plan::returning`]).
//! - An array that was not stopped cleanly and lacks a member cannot trust its parity: it is started only by force, or
//!   with a partial parity log.
//!
//! Source: `mdadm(8)` and `md(4)`; `drivers/md/md.c` (`super_1_validate`), `drivers/md/raid5.c` (`raid5_run`) and
//! mdadm's `Assemble.c`, read for facts.

pub(crate) mod histories;
mod roles;
#[cfg(test)]
mod tests;

use undercroft_block::Device;
use uuid::Uuid;

use crate::bitmap::{self, BitmapHeader};
use crate::superblock::{self, DeviceRole, IN_SYNC, Superblock, Timestamp, Version};
use crate::{Error, Geometry, Level, Result};

/// A device that has a superblock.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) device: Device,
    pub(crate) superblock: Superblock,
}

impl Candidate {
    /// Reads the device's superblock.
    ///
    /// # Errors
    /// When there is none, or it is corrupt or not supported.
    pub(crate) fn read(device: Device) -> Result<Self> {
        let superblock = superblock::read(&*device)?;
        Ok(Self { device, superblock })
    }

    fn name(&self) -> String {
        self.device.name()
    }
}

/// A device that takes part.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    pub(crate) device: Device,
    pub(crate) superblock: Superblock,
    /// So many bytes of its data area are right; [`IN_SYNC`]: all are.
    pub(crate) recovered: u64,
    /// What is not right lies in chunks whose bits are set in the bitmap.
    pub(crate) by_bitmap: bool,
}

/// The devices that fill a role.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlannedPlace {
    pub(crate) member: Option<Joined>,
    /// Is being made to take the member's place.
    pub(crate) replacement: Option<Joined>,
}

/// Why a device that belongs to the array does not take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOutReason {
    /// The others say that it failed or was removed.
    Faulty,
    /// It was out of the array while the others went on: it has so many events, the array more.
    Stale {
        /// Its own event count.
        events: u64,
    },
    /// It says of the others that they failed: two parts of the array went on without each other.
    Split,
    /// Another device has its role and is fresher.
    Superseded,
    /// Its data area is smaller than what the array uses of each.
    TooSmall,
}

impl std::fmt::Display for LeftOutReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Faulty => f.write_str("the others say that it failed or was removed"),
            Self::Stale { events } => write!(f, "it has {events} events, and the others went on"),
            Self::Split => f.write_str("it went on without the others"),
            Self::Superseded => f.write_str("another device has its role and is fresher"),
            Self::TooSmall => f.write_str("its data area is too small"),
        }
    }
}

/// A device that belongs to the array and does not take part.
#[derive(Clone, Debug)]
pub(crate) struct LeftOut {
    pub(crate) candidate: Candidate,
    pub(crate) reason: LeftOutReason,
}

/// What has to be done before the redundancy is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consistency {
    /// Nothing.
    Clean,
    /// Resync of what the bitmap says.
    Bitmap,
    /// Replay of the partial parity log.
    Ppl,
    /// Resync from this byte of the sync space on.
    Resync {
        /// All before it is known to be right.
        from: u64,
    },
}

/// An array as it can be started.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) array_uuid: Uuid,
    pub(crate) name: String,
    pub(crate) created: Timestamp,
    pub(crate) updated: Timestamp,
    pub(crate) version: Version,
    pub(crate) geometry: Geometry,
    /// The freshest event count.
    pub(crate) events: u64,
    /// The freshest table of roles, by device number.
    pub(crate) roles: Vec<DeviceRole>,
    /// By role.
    pub(crate) places: Vec<PlannedPlace>,
    pub(crate) spares: Vec<Joined>,
    /// Out of the array and could be let in again by the bitmap, with the role they had.
    pub(crate) returning: Vec<(u32, Joined)>,
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) consistency: Consistency,
    /// The freshest superblock says that the array was stopped, or idle, with its redundancy right.
    pub(crate) is_clean: bool,
    /// The bitmap, as the freshest member has it.
    pub(crate) bitmap: Option<BitmapHeader>,
    pub(crate) has_ppl: bool,
    /// Why nothing may be written, if so.
    pub(crate) read_only: Option<String>,
    /// What was done against caution, by force: one sentence each.
    pub(crate) warnings: Vec<String>,
}

impl Plan {
    /// Roles without a member that is in sync.
    pub(crate) fn degraded(&self) -> u32 {
        self.places.iter().filter(|place| !is_in_sync(place)).count() as u32
    }

    fn is_enough(&self) -> bool {
        self.geometry.is_enough(|role| is_in_sync(&self.places[role as usize]))
    }

    /// Roles that the freshest superblock believes to be filled, and whose device was not given. A user that starts the array
    /// without it will find it out of the array later. A spare that was being given the role when a crash came is there.
    pub(crate) fn absent(&self) -> Vec<u32> {
        let is_spare = |number| {
            let mut spares = self.spares.iter().map(|spare| &spare.superblock);
            spares.any(|spare| spare.number == number && is_prepared(spare, self.events))
        };
        let filled = |role: u32| {
            let mut roles = self.roles.iter().zip(0..);
            roles.any(|(other, number)| *other == DeviceRole::Active(role) && !is_spare(number))
        };
        let places = self.places.iter().zip(0..);
        places.filter(|(place, role)| place.member.is_none() && filled(*role)).map(|(_, role)| role).collect()
    }
}

/// Whether the freshest superblock, of so many events, means this spare where it calls its number active: the spare was
/// prepared for the role just before that was written. A spare that was not there may have the number of a member.
fn is_prepared(spare: &Superblock, events: u64) -> bool {
    spare.recovery.is_some() && spare.events.saturating_add(1) >= events
}

fn is_in_sync(place: &PlannedPlace) -> bool {
    place.member.as_ref().is_some_and(|member| member.recovered == IN_SYNC)
}

/// Decides what the given devices are. `force`: start with members that lag behind, and although parity may not match,
/// if it cannot be had otherwise.
///
/// # Errors
/// When the devices do not belong together, are too few, or may not be started without force; the sentence names them.
pub(crate) fn plan(candidates: Vec<Candidate>, force: bool) -> Result<Plan> {
    check_one_array(&candidates)?;
    let warnings = histories::check_freshest(&candidates, force)?;
    let freshest = roles::freshest(&candidates)?.superblock.clone();
    let bitmap = {
        let candidate = roles::freshest(&candidates)?;
        read_bitmap(candidate, force)?
    };
    let events_cleared =
        bitmap.filter(|header| !header.is_stale(freshest.events)).map(|header| header.events_cleared);
    let sorted = roles::sort(candidates, &freshest, events_cleared)?;

    let mut plan = Plan {
        array_uuid: freshest.array_uuid,
        name: freshest.display_name(),
        created: freshest.created,
        updated: freshest.updated,
        version: freshest.version,
        geometry: geometry(&freshest, &sorted.places),
        events: freshest.events,
        places: sorted.places,
        spares: sorted.spares,
        returning: sorted.returning,
        left_out: sorted.left_out,
        consistency: Consistency::Clean,
        is_clean: freshest.is_clean(),
        bitmap,
        has_ppl: freshest.ppl.is_some(),
        read_only: (freshest.version == Version::V0_90)
            .then(|| "superblocks of version 0.90 are read and never written".to_owned()),
        warnings,
        roles: freshest.roles.clone(),
    };
    check_copies(&plan)?;
    renumber_spares(&mut plan);
    check_numbers(&plan)?;
    histories::check(&plan)?;
    if force {
        add_stale_until_startable(&mut plan);
        plan.geometry = geometry(&freshest, &plan.places);
    }
    check_enough(&plan)?;
    plan.geometry.check()?;
    plan.consistency = consistency(&freshest, &mut plan, force)?;
    Ok(plan)
}

/// All belong to one array and agree on its shape.
fn check_one_array(candidates: &[Candidate]) -> Result<()> {
    let Some(first) = candidates.first() else {
        return Err(Error::Assembly("no members were given".to_owned()));
    };
    for other in &candidates[1..] {
        let (a, b) = (&first.superblock, &other.superblock);
        if a.array_uuid != b.array_uuid {
            return Err(Error::Assembly(format!(
                "{} belongs to the array {:?} ({}), {} to {:?} ({}): give the members of one array",
                first.name(),
                a.display_name(),
                a.array_uuid,
                other.name(),
                b.display_name(),
                b.array_uuid
            )));
        }
        let shape = |superblock: &Superblock| {
            (superblock.level, superblock.layout, superblock.chunk_bytes, superblock.rounding_bytes)
        };
        if shape(a) != shape(b) || a.version != b.version {
            return Err(Error::Assembly(format!(
                "{} and {} belong to one array and do not agree on its level, layout, chunk size or version of \
                 superblocks",
                first.name(),
                other.name()
            )));
        }
    }
    // Those of one event count were written together, and must say the same.
    for (at, one) in candidates.iter().enumerate() {
        let a = &one.superblock;
        let differs = |other: &&Candidate| {
            let b = &other.superblock;
            let is_of_one_size = !a.level.is_redundant() || a.member_bytes == b.member_bytes;
            b.events == a.events && !(a.raid_disks == b.raid_disks && is_of_one_size)
        };
        if let Some(other) = candidates[at + 1..].iter().find(differs) {
            return Err(Error::Assembly(format!(
                "{} and {} were written together and do not agree on the number or size of the array's members: one of \
                 them is damaged, leave it out",
                one.name(),
                other.name()
            )));
        }
    }
    Ok(())
}

fn read_bitmap(candidate: &Candidate, force: bool) -> Result<Option<BitmapHeader>> {
    let read = bitmap::read_header(&*candidate.device, &candidate.superblock);
    match read {
        Ok(Some((area, header))) if header.array_uuid != candidate.superblock.array_uuid => {
            if force {
                return Ok(None);
            }
            Err(Error::Corrupt {
                structure: "write-intent bitmap",
                member: candidate.name(),
                offset: area.offset,
                detail: format!("it belongs to the array {}", header.array_uuid),
            })
        }
        Ok(found) => Ok(found.map(|(_, header)| header)),
        Err(Error::Corrupt { .. }) if force => Ok(None),
        Err(error) => Err(error),
    }
}

fn geometry(freshest: &Superblock, places: &[PlannedPlace]) -> Geometry {
    let bytes_of = |place: &PlannedPlace| match freshest.level {
        Level::Linear | Level::Raid0 => {
            let unit = u64::from(freshest.chunk_bytes.max(freshest.rounding_bytes)).max(1);
            let data = place.member.as_ref().map_or(0, |member| member.superblock.data.bytes);
            data - data % unit
        }
        _ => freshest.member_bytes,
    };
    Geometry {
        level: freshest.level,
        layout: freshest.layout,
        members: freshest.raid_disks,
        chunk_bytes: freshest.chunk_bytes,
        member_bytes: places.iter().map(bytes_of).collect(),
    }
}

/// Gives spares new numbers where theirs cannot stay:
/// - another device, given or not, has the number: it was added while the spare was not there. Linux leaves one of the two
///   out;
/// - a superblock has no room for the number;
/// - the number makes the members' tables of roles grow out of their sectors, and a lower one is free.
fn renumber_spares(plan: &mut Plan) {
    let in_places = plan.places.iter().flat_map(|place| place.member.iter().chain(&place.replacement));
    let returning = plan.returning.iter().map(|(_, joined)| joined);
    let mut taken: Vec<(u32, Uuid)> = in_places
        .chain(returning)
        .map(|joined| &joined.superblock)
        .chain(plan.left_out.iter().map(|left| &left.candidate.superblock))
        .map(|superblock| (superblock.number, superblock.device_uuid))
        .collect();
    let room_of = |joined: &Joined| joined.superblock.room_for_roles();
    let in_places = plan.places.iter().flat_map(|place| place.member.iter().chain(&place.replacement));
    let room = in_places.clone().chain(&plan.spares).map(room_of).min().unwrap_or(0) as u32;
    // A crash may tear a table of a member that grows out of its sectors.
    let within_of = |joined: &Joined| joined.superblock.roles_within_sectors();
    let within = in_places.map(within_of).min().map_or(room, |within| room.min(within as u32));
    let is_named = |number: u32| matches!(plan.roles.get(number as usize), Some(DeviceRole::Active(_)));
    // Whatever the order in which they are given, the same ones keep their numbers.
    let mut spares: Vec<&mut Joined> = plan.spares.iter_mut().collect();
    spares.sort_by_key(|spare| (std::cmp::Reverse(spare.superblock.events), spare.superblock.device_uuid));
    let all: Vec<u32> = spares.iter().map(|spare| spare.superblock.number).collect();
    for spare in spares {
        let superblock = &mut spare.superblock;
        let is_held = |other: &(u32, Uuid)| other.0 == superblock.number && other.1 != superblock.device_uuid;
        let is_of_a_member = is_named(superblock.number) && !is_prepared(superblock, plan.events);
        let must_change = superblock.number >= room || is_of_a_member || taken.iter().any(is_held);
        if must_change || superblock.number >= within {
            let is_free = |number: &u32| {
                !is_named(*number) && !all.contains(number) && taken.iter().all(|other| other.0 != *number)
            };
            let end = if must_change { room } else { within };
            if let Some(number) = (plan.geometry.members..end).find(is_free) {
                superblock.number = number;
            }
        }
        taken.push((superblock.number, superblock.device_uuid));
    }
}

/// No device that takes part is a copy of another one, whatever number each has by now.
fn check_copies(plan: &Plan) -> Result<()> {
    let in_places = plan.places.iter().flat_map(|place| place.member.iter().chain(&place.replacement));
    let mut by_uuid: Vec<&Joined> = in_places.chain(&plan.spares).collect();
    by_uuid.sort_by_key(|joined| (joined.superblock.device_uuid, joined.superblock.number));
    let is_one_device = |pair: &&[&Joined]| pair[0].superblock.device_uuid == pair[1].superblock.device_uuid;
    let Some(pair) = by_uuid.windows(2).find(is_one_device) else { return Ok(()) };
    let (one, other) = (pair[0], pair[1]);
    if one.superblock.number == other.superblock.number {
        let what = format!("device number {}", one.superblock.number);
        return Err(roles::claimed_twice(&one.device, &other.device, &what));
    }
    Err(Error::Assembly(format!(
        "{} and {} have the device UUID {}: one of them is a copy of the other; give only one",
        one.device.name(),
        other.device.name(),
        one.superblock.device_uuid
    )))
}

/// No two devices that take part have the same number.
fn check_numbers(plan: &Plan) -> Result<()> {
    let in_places = plan.places.iter().flat_map(|place| place.member.iter().chain(&place.replacement));
    let mut by_number: Vec<&Joined> = in_places.chain(&plan.spares).collect();
    by_number.sort_by_key(|joined| joined.superblock.number);
    let twice = by_number.windows(2).find(|pair| pair[0].superblock.number == pair[1].superblock.number);
    match twice {
        None => Ok(()),
        Some(pair) => Err(roles::claimed_twice(
            &pair[0].device,
            &pair[1].device,
            &format!("device number {}", pair[0].superblock.number),
        )),
    }
}

/// Takes members that lag behind until the array can be started, the freshest first: those that the freshest table of
/// roles calls active. Those that it says failed are taken only if it calls so many failed that the array could not run
/// any more, which is how Linux leaves an array that lost one member too many: the last to fail is then the freshest.
fn add_stale_until_startable(plan: &mut Plan) {
    let called_active = |plan: &Plan, superblock: &Superblock| {
        plan.roles.get(superblock.number as usize).copied() == Some(superblock.role())
    };
    let is_runnable = plan.geometry.is_enough(|role| plan.roles.contains(&DeviceRole::Active(role)));
    let mut stale: Vec<usize> = (0..plan.left_out.len())
        .filter(|&at| {
            let left = &plan.left_out[at];
            let lags = matches!(left.reason, LeftOutReason::Stale { .. } | LeftOutReason::Faulty);
            lags && (!is_runnable || called_active(plan, &left.candidate.superblock))
        })
        .collect();
    stale.sort_by_key(|&at| {
        let superblock = &plan.left_out[at].candidate.superblock;
        std::cmp::Reverse((called_active(plan, superblock), superblock.events))
    });
    let mut taken = Vec::new();
    for at in stale {
        if plan.is_enough() {
            break;
        }
        let candidate = &plan.left_out[at].candidate;
        let DeviceRole::Active(role) = candidate.superblock.role() else { continue };
        let Some(place) = plan.places.get_mut(role as usize).filter(|place| place.member.is_none()) else {
            continue;
        };
        if candidate.superblock.recovery.is_some() || candidate.superblock.is_replacement {
            continue;
        }
        plan.warnings.push(format!(
            "{} was taken although it has {} events and the array {}: what was written meanwhile may be mixed with \
             what was there before",
            candidate.name(),
            candidate.superblock.events,
            plan.events
        ));
        place.member = Some(roles::join(candidate.clone()));
        taken.push(at);
    }
    taken.sort_unstable();
    for at in taken.into_iter().rev() {
        let left = plan.left_out.remove(at);
        let uuid = left.candidate.superblock.device_uuid;
        plan.returning.retain(|(_, joined)| joined.superblock.device_uuid != uuid);
    }
}

fn check_enough(plan: &Plan) -> Result<()> {
    if plan.is_enough() {
        return Ok(());
    }
    let places = plan.places.iter().enumerate();
    let missing: Vec<String> =
        places.filter(|(_, place)| !is_in_sync(place)).map(|(role, _)| role.to_string()).collect();
    let mut sentence = format!(
        "of the {} members of the array {:?} ({}), those of role {} are missing, failed or not recovered",
        plan.places.len(),
        plan.name,
        plan.array_uuid,
        missing.join(", ")
    );
    for left in &plan.left_out {
        sentence += &format!("; {}: {}", left.candidate.name(), left.reason);
    }
    let lags = |left: &LeftOut| matches!(left.reason, LeftOutReason::Stale { .. } | LeftOutReason::Faulty);
    if plan.left_out.iter().any(lags) {
        sentence += "; by force the freshest of those that lag behind are taken, which may lose what was written last";
    }
    Err(Error::TooFewMembers(sentence))
}

fn consistency(freshest: &Superblock, plan: &mut Plan, force: bool) -> Result<Consistency> {
    if freshest.is_clean() || matches!(freshest.level, Level::Linear | Level::Raid0) {
        return Ok(Consistency::Clean);
    }
    if plan.has_ppl {
        return Ok(Consistency::Ppl);
    }
    let has_parity = matches!(freshest.level, Level::Raid4 | Level::Raid5 | Level::Raid6);
    let missing = plan.degraded();
    if has_parity && missing > 0 {
        if !force {
            return Err(Error::Assembly(format!(
                "the array {:?} ({}) was not stopped cleanly and {missing} of its {} members are missing, failed or \
                 not recovered, so that data reconstructed from parity may be wrong: give the missing members as \
                 well, or start it by force",
                plan.name,
                plan.array_uuid,
                plan.places.len()
            )));
        }
        plan.warnings.push(
            "the array was not stopped cleanly and lacks a member: what was being written, and what is \
             reconstructed next to it, may be wrong"
                .to_owned(),
        );
        return Ok(Consistency::Clean);
    }
    match plan.bitmap {
        Some(header) if !header.is_stale(freshest.events) => Ok(Consistency::Bitmap),
        _ => Ok(Consistency::Resync { from: freshest.resynced }),
    }
}
