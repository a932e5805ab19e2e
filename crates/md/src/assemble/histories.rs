//! Parts of one array that went on without each other.
//!
//! A member that leaves an array keeps a superblock that knows the members that stay, and lags behind theirs. A member that
//! was written to without them calls them out of the array, as they do it: it has a history of its own. What the two
//! histories wrote since they parted is in neither bitmap of the other, so they must never be put together. So also a
//! device that has more events than the array: the array given is then the older part.
//!
//! The table of roles tells: one with a history of its own knows none of the present members by its number and role.

use super::{Candidate, Joined, LeftOutReason, Plan};
use crate::superblock::{DeviceRole, Superblock};
use crate::{Error, Result};

/// What a superblock says of the history of the array, for messages.
pub(crate) fn tell(superblock: &Superblock) -> String {
    let mut active: Vec<u32> = superblock
        .roles
        .iter()
        .filter_map(|role| if let DeviceRole::Active(role) = role { Some(*role) } else { None })
        .collect();
    active.sort_unstable();
    active.dedup();
    let active: Vec<String> = active.iter().map(u32::to_string).collect();
    let noun = if active.len() == 1 { "role" } else { "roles" };
    format!(
        "{} events, last written {}, with members in {noun} {}",
        superblock.events,
        superblock.updated,
        active.join(", ")
    )
}

/// Whether a member was written to without the present members of its array, of which `present` gives the number and
/// the role.
pub(crate) fn is_apart(
    superblock: &Superblock,
    raid_disks: u32,
    present: impl Iterator<Item = (u32, u32)> + Clone,
) -> bool {
    if present.clone().next().is_none() || !matches!(superblock.role(), DeviceRole::Active(_)) {
        return false;
    }
    if present.clone().any(|(number, role)| superblock.role_of(number) == DeviceRole::Active(role)) {
        return false;
    }
    // None of the first members is left: it cannot know the numbers of those that came later.
    let are_all_new = present.clone().all(|(number, _)| number >= raid_disks);
    !are_all_new || !present.into_iter().any(|(_, role)| superblock.roles.contains(&DeviceRole::Active(role)))
}

/// The active members with the highest event count.
pub(super) fn freshest(candidates: &[Candidate]) -> impl Iterator<Item = &Candidate> + Clone {
    let is_active = |candidate: &&Candidate| matches!(candidate.superblock.role(), DeviceRole::Active(_));
    let most = candidates.iter().filter(is_active).map(|candidate| candidate.superblock.events).max();
    candidates.iter().filter(is_active).filter(move |candidate| Some(candidate.superblock.events) == most)
}

/// Whether the table of roles of `one` contradicts the role that `other` has.
pub(super) fn denies(one: &Candidate, other: &Candidate) -> bool {
    one.superblock.role_of(other.superblock.number) != other.superblock.role()
}

/// Members of the highest event count were written together and have one table of roles. Where one of them denies
/// another, they were not, and the order in which they are given must not decide which part is kept.
///
/// `mdadm --assemble --force` leaves such superblocks when it raises the event count of a member that lags behind and
/// the array is stopped before its first write. The members that went on then deny that one, and it denies none of
/// them. By force such members are taken again, each with a warning, which is returned. Two that deny each other, and
/// members that are all denied, are never taken.
pub(super) fn check_freshest(candidates: &[Candidate], force: bool) -> Result<Vec<String>> {
    let freshest = || freshest(candidates);
    let denier_of = |other: &Candidate| freshest().find(|one| denies(one, other));
    let Some((other, one)) = freshest().find_map(|other| Some((other, denier_of(other)?))) else {
        return Ok(Vec::new());
    };
    let are_mutual = freshest().any(|one| freshest().any(|other| denies(one, other) && denies(other, one)));
    let is_one_sided = !are_mutual && freshest().any(|other| denier_of(other).is_none());
    if force && is_one_sided {
        let warning = |other: &Candidate| {
            let one = denier_of(other)?;
            Some(format!(
                "{} was taken although {}, of the same {} events, does not have it as a member: what was written \
                 without it may be mixed with what was there before",
                other.name(),
                one.name(),
                other.superblock.events
            ))
        };
        return Ok(freshest().filter_map(warning).collect());
    }
    let by_force = if is_one_sided {
        format!(", or start the array by force, which takes {} as it is", other.name())
    } else {
        String::new()
    };
    Err(Error::Assembly(format!(
        "two parts of the array {:?} ({}) were written to without each other: {} has {}; {} has {}, which does not \
         agree: give only the members of the part to keep, then add the others to it as new ones (`undercroft md add \
         --force`){by_force}",
        one.superblock.display_name(),
        one.superblock.array_uuid,
        other.name(),
        tell(&other.superblock),
        one.name(),
        tell(&one.superblock)
    )))
}

/// Refuses members with a history of their own, and those that are older than a spare that was given with them.
pub(super) fn check(plan: &Plan) -> Result<()> {
    let joined = || plan.places.iter().flat_map(|place| place.member.iter().chain(&place.replacement));
    let present = || joined().filter_map(number_and_role);
    let Some(freshest) = joined().max_by_key(|joined| joined.superblock.events) else { return Ok(()) };
    let raid_disks = plan.geometry.members;
    for left in &plan.left_out {
        let superblock = &left.candidate.superblock;
        let lags =
            matches!(left.reason, LeftOutReason::Stale { .. } | LeftOutReason::Split | LeftOutReason::Faulty);
        if lags && is_apart(superblock, raid_disks, present()) {
            return Err(Error::Assembly(format!(
                "two parts of the array {:?} ({}) were written to without each other: {} has {}; {} has {}: give only \
                 the members of the part to keep, then add the others to it as new ones (`undercroft md add --force`)",
                plan.name,
                plan.array_uuid,
                freshest.device.name(),
                tell(&freshest.superblock),
                left.candidate.name(),
                tell(superblock)
            )));
        }
    }
    // A crash leaves a spare one ahead at most.
    let newer = plan.spares.iter().find(|spare| spare.superblock.events > plan.events.saturating_add(1));
    if let Some(newer) = newer {
        return Err(Error::Assembly(format!(
            "the members of the array {:?} ({}) that were given are older than its spare {}, which has {}; {} has {}: \
             give the members that went on, or leave the spare out",
            plan.name,
            plan.array_uuid,
            newer.device.name(),
            tell(&newer.superblock),
            freshest.device.name(),
            tell(&freshest.superblock)
        )));
    }
    Ok(())
}

fn number_and_role(joined: &Joined) -> Option<(u32, u32)> {
    match joined.superblock.role() {
        DeviceRole::Active(role) => Some((joined.superblock.number, role)),
        _ => None,
    }
}
