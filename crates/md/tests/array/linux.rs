//! What Linux would start of given members: the rules of mdadm's assembly and of the kernel's, as far as event counts
//! and roles go.
//!
//! Source: `Assemble.c` of mdadm (`load_devices`, `Assemble`), `drivers/md/md.c` (`analyze_sbs`, `super_1_load`,
//! `super_1_validate`) and `drivers/md/raid5.c` (`raid5_run`), read for facts.

use undercroft_block::Device;
use undercroft_md::{DeviceRole, Examined, Level, examine};

/// `RECOVERY_OFFSET` of the feature map.
const RECOVERY_OFFSET: u32 = 2;

/// The devices in one line each, for messages.
pub(crate) fn tell(devices: &[Device]) -> String {
    let line = |device: &Device| match examine(&**device) {
        Ok(one) => format!(
            "number {} events {} role {:?}{} recovered {:?} resynced {:?} roles {:?}",
            one.number,
            one.events,
            one.role,
            if one.is_replacement { " (replacement)" } else { "" },
            one.recovered_bytes,
            one.resynced_bytes,
            &one.roles[..one.roles.len().min(8)],
        ),
        Err(error) => error.to_string(),
    };
    devices.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Numbers of the devices that are taken for in sync; or why the array does not start without force.
pub(crate) fn start(devices: &[Device]) -> Result<Vec<u32>, String> {
    let all: Vec<Examined> = devices.iter().filter_map(|device| examine(&**device).ok()).collect();
    let taken = by_mdadm(&all)?;
    by_kernel(&taken)
}

fn active(one: &Examined) -> Option<u32> {
    match one.role {
        DeviceRole::Active(role) => Some(role),
        _ => None,
    }
}

/// The devices that mdadm gives to the kernel.
fn by_mdadm(all: &[Examined]) -> Result<Vec<&Examined>, String> {
    let mut recent: Option<&Examined> = None;
    for one in all.iter().filter(|one| active(one).is_some() && !one.is_replacement) {
        if recent.is_none_or(|recent| one.events > recent.events) {
            recent = Some(one);
        }
    }
    let recent = recent.ok_or("no active member")?;
    // The freshest of each slot.
    let mut best: Vec<&Examined> = Vec::new();
    for one in all {
        let slot = |one: &Examined| active(one).map(|role| (role, one.is_replacement));
        match best.iter_mut().find(|other| slot(one).is_some() && slot(other) == slot(one)) {
            Some(other) if other.events < one.events => *other = one,
            Some(_) => {}
            None => best.push(one),
        }
    }
    best.retain(|one| {
        if active(one).is_none() {
            return one.role != DeviceRole::Faulty;
        }
        let knows_recent = std::ptr::eq(*one, recent) || one.roles.contains(&recent.role);
        knows_recent && one.events + 1 >= recent.events && one.events <= recent.events
    });
    Ok(best)
}

fn by_kernel(taken: &[&Examined]) -> Result<Vec<u32>, String> {
    let most = taken.iter().filter(|one| active(one).is_some()).map(|one| one.events).max();
    let freshest = taken
        .iter()
        .find(|one| active(one).is_some() && Some(one.events) == most)
        .ok_or("no device with a role")?;
    let mut in_sync: Vec<(u32, bool, u32)> = Vec::new();
    for one in taken {
        if active(one).is_some() && one.events + 1 < freshest.events {
            continue;
        }
        let role = if one.events < freshest.events {
            freshest.roles.get(one.number as usize).copied().unwrap_or(DeviceRole::Spare)
        } else {
            one.role
        };
        if let DeviceRole::Active(role) = role
            && one.features & RECOVERY_OFFSET == 0
        {
            in_sync.push((role, one.is_replacement, one.number));
        }
    }
    let twice = in_sync
        .iter()
        .find(|one| in_sync.iter().any(|other| (other.0, other.1) == (one.0, one.1) && other.2 != one.2));
    if let Some(twice) = twice {
        return Err(format!("two members of role {}", twice.0));
    }
    let has = |role: u32| in_sync.iter().any(|(other, ..)| *other == role);
    let missing = (0..freshest.raid_disks).filter(|&role| !has(role)).count();
    let (level, _) = freshest.shape.ok_or("no shape")?;
    let is_enough = match level {
        Level::Raid1 => missing < freshest.raid_disks as usize,
        // Two near copies.
        Level::Raid10 => (0..freshest.raid_disks / 2).all(|pair| has(2 * pair) || has(2 * pair + 1)),
        Level::Raid4 | Level::Raid5 => missing <= 1,
        Level::Raid6 => missing <= 2,
        Level::Linear | Level::Raid0 => missing == 0,
    };
    if !is_enough {
        return Err(format!("{missing} members are missing"));
    }
    let has_parity = matches!(level, Level::Raid4 | Level::Raid5 | Level::Raid6);
    if has_parity && missing > 0 && freshest.resynced_bytes.is_some() && freshest.ppl.is_none() {
        return Err("dirty and degraded".to_owned());
    }
    Ok(in_sync.into_iter().map(|(.., number)| number).collect())
}
