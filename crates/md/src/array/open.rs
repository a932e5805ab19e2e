//! From devices to a running array.
//!
//! The plan (`assemble`) says which member takes part as what, and what has to be done first. A partial parity log is replayed
//! here, before the array can be read or written, in memory if the array is read-only; a resync is left to the background. Nothing is written before that, and
//! nothing at all if the array is read-only.

use std::ops::Range;
use std::sync::Arc;

use undercroft_block::{Access, Device};

use super::core::{Core, Identity, Parts};
use super::intent::Intent;
use super::jobs::Jobs;
use super::options::ArrayOptions;
use super::records::{Disk, Duty, Raise, Records, State};
use super::replayed::InMemory;
use super::wake::WakeSignal;
use crate::assemble::{self, Candidate, Consistency, Joined, LeftOutReason, Plan};
use crate::bad_blocks::BadBlocks;
use crate::level::mirrored::Mirrored;
use crate::level::striped::Striped;
use crate::level::{Personality, Shared};
use crate::member::{Lineup, Member, Place, Role};
use crate::ppl::{self, Log, MemberLog};
use crate::stripe::{ParityRaid, StripeOptions};
use crate::superblock::{DeviceRole, IN_SYNC};
use crate::timeout::TimedDevice;
use crate::{Error, Geometry, Level, Result};

pub(super) fn open(devices: Vec<Device>, options: ArrayOptions) -> Result<Core> {
    let candidates = devices.into_iter().map(Candidate::read).collect::<Result<Vec<_>>>()?;
    let mut plan = assemble::plan(candidates, options.force)?;
    plan.geometry.check()?;
    check_missing(&plan, options)?;
    let read_only = read_only(&plan, options);
    if read_only.is_some() && plan.consistency == Consistency::Ppl {
        replay_in_memory(&mut plan);
    }

    if read_only.is_none() {
        check_room(&plan)?;
    }

    let wake = Arc::new(WakeSignal::default());
    let (disks, lineup) = disks(&plan, options, &wake)?;
    let has_log = plan.has_ppl && read_only.is_none();
    let is_replayed =
        (has_log || plan.consistency == Consistency::Ppl) && prepare_logs(&plan, &disks, &lineup)?;
    if has_log {
        for disk in &disks {
            if let Duty::Active(role) | Duty::Replacement(role) = disk.duty
                && let Some(log) = log_of(disk, role, &plan.geometry)
            {
                disk.member.set_log(log);
            }
        }
    }
    let resynced = match plan.consistency {
        Consistency::Clean => IN_SYNC,
        Consistency::Ppl if is_replayed => IN_SYNC,
        Consistency::Ppl | Consistency::Bitmap => 0,
        Consistency::Resync { from } => from,
    };
    let consistent = if plan.degraded() == 0 { resynced } else { 0 };
    let intent = Intent::open(&plan, &disks, consistent)?.map(Arc::new);
    let is_outdated = plan.roles.iter().zip(0..).any(|(role, number)| match role {
        DeviceRole::Active(role) => !disks.iter().any(|disk: &Disk| {
            disk.member.number() == number
                && (disk.duty == Duty::Active(*role) || disk.duty == Duty::Replacement(*role))
        }),
        _ => false,
    });
    let state = State::new(disks, &plan, resynced, is_outdated);
    let records = Arc::new(Records::new(
        plan.geometry.clone(),
        state,
        intent.clone(),
        read_only.is_some(),
        Arc::clone(&wake),
    ));
    let shared = Arc::new(Shared::new(plan.geometry.clone(), lineup, Box::new(Arc::clone(&records))));
    shared.set_resynced(resynced);
    if read_only.is_some() {
        shared.set_read_only();
    }
    if plan.consistency == Consistency::Ppl && is_replayed {
        // Parity is right now, and the next start need not find that out again.
        records.write(Raise::One, |_| ())?;
    }
    let personality = personality(&shared, options)?;
    Ok(Core::new(Parts {
        identity: Identity {
            uuid: plan.array_uuid,
            name: plan.name.clone(),
            version: plan.version,
            created: plan.created,
            has_ppl: plan.has_ppl,
            warnings: warnings(&plan),
        },
        read_only,
        shared,
        personality,
        records,
        intent,
        jobs: Jobs::new(options.sync_bytes_per_second),
        wake,
        member_timeout: options.member_timeout,
    }))
}

/// Members that should be there and were not given: by mistake, perhaps.
fn check_missing(plan: &Plan, options: ArrayOptions) -> Result<()> {
    let absent = plan.absent();
    if absent.is_empty() || options.start_degraded || options.force {
        return Ok(());
    }
    let roles: Vec<String> = absent.iter().map(u32::to_string).collect();
    let (what, whose) = if roles.len() == 1 {
        ("a member that the superblocks list as active is", "role")
    } else {
        ("members that the superblocks list as active are", "roles")
    };
    Err(Error::Assembly(format!(
        "{what} missing ({whose} {}): name all members, or start the array degraded",
        roles.join(", ")
    )))
}

/// The tables of roles of all devices must have room for all of their numbers.
fn check_room(plan: &Plan) -> Result<()> {
    for (numbered, _) in joined(plan) {
        let number = numbered.superblock.number;
        let has_no_room = |other: &&Joined| other.superblock.room_for_roles() <= number as usize;
        let other = joined(plan).map(|(other, _)| other).find(has_no_room);
        if let Some(other) = other {
            return Err(Error::Assembly(format!(
                "{} has device number {number}, and the superblock of {} has room for {} devices: leave one of the two \
                 out, or open the array read-only",
                numbered.device.name(),
                other.device.name(),
                other.superblock.room_for_roles()
            )));
        }
    }
    Ok(())
}

/// What is reconstructed must be right also where nothing may be written.
fn replay_in_memory(plan: &mut Plan) {
    for joined in plan.places.iter_mut().filter_map(|place| place.member.as_mut()) {
        joined.device = Arc::new(InMemory::new(Arc::clone(&joined.device)));
    }
}

fn read_only(plan: &Plan, options: ArrayOptions) -> Option<String> {
    if options.read_only {
        return Some("it was opened read-only".to_owned());
    }
    if let Some(reason) = &plan.read_only {
        return Some(reason.clone());
    }
    joined(plan)
        .find(|(joined, _)| joined.device.access() == Access::ReadOnly)
        .map(|(joined, _)| format!("its member {} is open read-only", joined.device.name()))
}

/// All that take part.
fn joined(plan: &Plan) -> impl Iterator<Item = (&Joined, Duty)> {
    let in_places = plan.places.iter().zip(0..).flat_map(|(place, role)| {
        let member = place.member.iter().map(move |joined| (joined, Duty::Active(role)));
        let replacement = place.replacement.iter().map(move |joined| (joined, Duty::Replacement(role)));
        member.chain(replacement)
    });
    in_places.chain(plan.spares.iter().map(|joined| (joined, Duty::Spare)))
}

fn disks(plan: &Plan, options: ArrayOptions, wake: &Arc<WakeSignal>) -> Result<(Vec<Disk>, Lineup)> {
    let mut lineup = Lineup { places: vec![Place::default(); plan.places.len()] };
    let mut disks = Vec::new();
    for (joined, duty) in joined(plan) {
        let superblock = joined.superblock.clone();
        let recovered = if duty == Duty::Spare { 0 } else { joined.recovered };
        let device = Arc::clone(&joined.device);
        let timed = TimedDevice::new(&device, options.member_timeout, wake);
        let member = Member::new(device, superblock.number, superblock.data.offset, recovered);
        let member = Arc::new(member.with_timeout(timed));
        match duty {
            Duty::Active(role) => lineup.places[role as usize].member = Some(Arc::clone(&member)),
            Duty::Replacement(role) => lineup.places[role as usize].replacement = Some(Arc::clone(&member)),
            Duty::Spare | Duty::Faulty => {}
        }
        let bad_blocks = BadBlocks::read(&*joined.device, &superblock)?;
        let mut disk = Disk::new(member, duty, superblock, recovered, bad_blocks);
        disk.by_bitmap = joined.by_bitmap;
        disks.push(disk);
    }
    Ok((disks, lineup))
}

fn warnings(plan: &Plan) -> Vec<String> {
    let left_out = plan.left_out.iter().map(|left| {
        let name = left.candidate.device.name();
        // Another device may have got the number of a spare that was not there, and failed.
        let is_spare =
            left.reason == LeftOutReason::Faulty && left.candidate.superblock.role() == DeviceRole::Spare;
        let advice = if is_spare { "; if it is in order, add it again (`undercroft md add`)" } else { "" };
        format!("{name} was left out: {}{advice}", left.reason)
    });
    plan.warnings.iter().cloned().chain(left_out).collect()
}

/// Has the logs ready for what will be written: replayed where the array was not stopped cleanly, empty after that.
/// Tells whether all parity is right.
fn prepare_logs(plan: &Plan, disks: &[Disk], lineup: &Lineup) -> Result<bool> {
    let logs: Vec<MemberLog> = disks
        .iter()
        .filter_map(|disk| match disk.duty {
            Duty::Active(role) => {
                let area = disk.superblock.ppl?;
                Some(MemberLog { role: Role(role), member: Arc::clone(&disk.member), area })
            }
            _ => None,
        })
        .collect();
    if plan.consistency == Consistency::Ppl {
        let is_bad = |member: &Member, range| {
            let mut disks = disks.iter().filter(|disk| std::ptr::eq(&raw const *disk.member, member));
            disks.any(|disk| disk.bad_blocks.overlaps(Range::clone(&range)))
        };
        let replayed = ppl::replay(&plan.geometry, lineup, &logs, plan.array_uuid, &is_bad)?;
        return Ok(replayed.is_consistent());
    }
    ppl::empty(&logs, plan.array_uuid)?;
    Ok(true)
}

/// The log of a member that has this role now.
pub(super) fn log_of(disk: &Disk, role: u32, geometry: &Geometry) -> Option<Log> {
    let area = disk.superblock.ppl?;
    let device = Arc::clone(disk.member.device());
    Some(Log::new(device, area, role, disk.superblock.array_uuid, geometry.chunk_bytes))
}

fn personality(shared: &Arc<Shared>, options: ArrayOptions) -> Result<Box<dyn Personality>> {
    let shared = Arc::clone(shared);
    let stripes = StripeOptions { cache_bytes: options.stripe_cache_bytes, wake: options.stripe_wake };
    Ok(match shared.geometry.level {
        Level::Raid4 | Level::Raid5 | Level::Raid6 => Box::new(ParityRaid::new(shared, stripes)?),
        Level::Raid1 | Level::Raid10 => Box::new(Mirrored::new(shared)),
        Level::Linear | Level::Raid0 => Box::new(Striped::new(shared)),
    })
}
