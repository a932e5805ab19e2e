//! Sorting devices into roles, spares, and those that are left out.

use undercroft_block::Device;

use super::{Candidate, Joined, LeftOut, LeftOutReason, PlannedPlace, histories};
use crate::superblock::{DeviceRole, IN_SYNC, Superblock};
use crate::{Error, Level, Result};

pub(super) struct Sorted {
    pub(super) places: Vec<PlannedPlace>,
    pub(super) spares: Vec<Joined>,
    pub(super) returning: Vec<(u32, Joined)>,
    pub(super) left_out: Vec<LeftOut>,
}

/// The member whose table of roles holds: of the active ones with the most events, one that no other denies (see
/// [`histories`]), and of those the one with the lowest number, so that the order in which they are given does not
/// matter.
pub(super) fn freshest(candidates: &[Candidate]) -> Result<&Candidate> {
    let freshest = || histories::freshest(candidates);
    let is_denied = |other: &Candidate| freshest().any(|one| histories::denies(one, other));
    freshest().min_by_key(|candidate| (is_denied(candidate), candidate.superblock.number)).ok_or_else(|| {
        let names: Vec<String> = candidates.iter().map(Candidate::name).collect();
        Error::Assembly(format!("{} are spares, and no member of their array was given", names.join(", ")))
    })
}

/// What to do with one device.
enum Verdict {
    Join(u32),
    Spare,
    LeaveOut(LeftOutReason),
}

fn compare(superblock: &Superblock, freshest: &Superblock) -> Verdict {
    if freshest.member_bytes > superblock.data.bytes {
        return Verdict::LeaveOut(LeftOutReason::TooSmall);
    }
    // What it says of itself while it was the freshest; what others say once they are.
    let own = superblock.role();
    let DeviceRole::Active(role) = own else {
        return match own {
            DeviceRole::Faulty => Verdict::LeaveOut(LeftOutReason::Faulty),
            _ if superblock.events < freshest.events
                && freshest.role_of(superblock.number) == DeviceRole::Faulty =>
            {
                Verdict::LeaveOut(LeftOutReason::Faulty)
            }
            // A spare is written to seldom, so that it may lag. One that was being given a role has nothing yet.
            _ => Verdict::Spare,
        };
    };
    let is_failed = freshest.role_of(superblock.number) == DeviceRole::Faulty;
    if superblock.events.saturating_add(1) < freshest.events {
        let stale = LeftOutReason::Stale { events: superblock.events };
        return Verdict::LeaveOut(if is_failed { LeftOutReason::Faulty } else { stale });
    }
    if superblock.events < freshest.events && freshest.role_of(superblock.number) != own {
        return Verdict::LeaveOut(LeftOutReason::Faulty);
    }
    if role >= freshest.raid_disks {
        return Verdict::LeaveOut(LeftOutReason::Stale { events: superblock.events });
    }
    if !superblock.roles.contains(&freshest.role()) {
        return Verdict::LeaveOut(LeftOutReason::Split);
    }
    Verdict::Join(role)
}

/// `events_cleared`: of the bitmap, if there is one that can be believed.
pub(super) fn sort(
    candidates: Vec<Candidate>,
    freshest: &Superblock,
    events_cleared: Option<u64>,
) -> Result<Sorted> {
    let mut places = vec![PlannedPlace::default(); freshest.raid_disks as usize];
    let (mut spares, mut left_out) = (Vec::new(), Vec::new());
    for candidate in candidates {
        match compare(&candidate.superblock, freshest) {
            Verdict::Spare => spares.push(join(candidate)),
            Verdict::LeaveOut(reason) => left_out.push(LeftOut { candidate, reason }),
            Verdict::Join(role) => {
                let place = &mut places[role as usize];
                let slot = if candidate.superblock.is_replacement {
                    &mut place.replacement
                } else {
                    &mut place.member
                };
                let joined = join(candidate);
                let Some(other) = slot.take() else {
                    *slot = Some(joined);
                    continue;
                };
                let (mine, theirs) = (joined.superblock.events, other.superblock.events);
                if mine == theirs {
                    return Err(claimed_twice(&other.device, &joined.device, &format!("role {role}")));
                }
                let (fresher, older) = if mine > theirs { (joined, other) } else { (other, joined) };
                *slot = Some(fresher);
                let candidate = Candidate { device: older.device, superblock: older.superblock };
                left_out.push(LeftOut { candidate, reason: LeftOutReason::Superseded });
            }
        }
    }
    for place in &mut places {
        // The one that it was to replace is gone: it is all there is.
        if place.member.is_none() {
            place.member = place.replacement.take().map(|mut joined| {
                joined.superblock.is_replacement = false;
                joined
            });
        }
    }
    let returning = returning(&left_out, &places, freshest, events_cleared);
    Ok(Sorted { places, spares, returning, left_out })
}

/// Those of whom the bitmap knows all that they missed.
fn returning(
    left_out: &[LeftOut],
    places: &[PlannedPlace],
    freshest: &Superblock,
    events_cleared: Option<u64>,
) -> Vec<(u32, Joined)> {
    let Some(events_cleared) = events_cleared.filter(|_| freshest.level != Level::Linear) else {
        return Vec::new();
    };
    let mut returning: Vec<(u32, Joined)> = Vec::new();
    for left in left_out {
        let superblock = &left.candidate.superblock;
        let DeviceRole::Active(role) = superblock.role() else { continue };
        let was_whole = superblock.recovery.is_none_or(|recovery| recovery.by_bitmap);
        let is_out = matches!(left.reason, LeftOutReason::Stale { .. } | LeftOutReason::Faulty);
        // Another member may have been given the number, or the role, meanwhile.
        let number_is_free =
            !matches!(freshest.role_of(superblock.number), DeviceRole::Active(other) if other != role);
        let place_is_free = places.get(role as usize).is_some_and(|place| place.member.is_none())
            && returning.iter().all(|(taken, _)| *taken != role);
        if is_out
            && was_whole
            && !superblock.is_replacement
            && superblock.events >= events_cleared
            && number_is_free
            && place_is_free
        {
            let joined = Joined { recovered: 0, by_bitmap: true, ..join(left.candidate.clone()) };
            returning.push((role, joined));
        }
    }
    returning
}

/// As its superblock has it.
pub(super) fn join(candidate: Candidate) -> Joined {
    let Candidate { device, superblock } = candidate;
    let used = if superblock.member_bytes == 0 { superblock.data.bytes } else { superblock.member_bytes };
    let recovery = superblock.recovery.filter(|recovery| recovery.done < used);
    Joined {
        device,
        recovered: recovery.map_or(IN_SYNC, |recovery| recovery.done),
        by_bitmap: recovery.is_some_and(|recovery| recovery.by_bitmap),
        superblock,
    }
}

pub(super) fn claimed_twice(one: &Device, other: &Device, what: &str) -> Error {
    Error::Assembly(format!(
        "{} and {} both claim {what}, and neither is fresher: one of them is a copy of the other, or was given twice; \
         give only one",
        one.name(),
        other.name()
    ))
}
