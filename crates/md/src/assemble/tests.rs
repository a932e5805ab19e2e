//! Assembly of arrays that Linux made, and of superblocks changed as failures leave them.

use std::sync::Arc;

use super::*;
use crate::fixtures;
use crate::superblock::Recovery;
use undercroft_block::{Access, MemoryDevice};

fn candidates(array: &str) -> Vec<Candidate> {
    fixtures::members(array).into_iter().map(|device| Candidate::read(device).unwrap()).collect()
}

/// `array` without its data: a device that is as large, and has just the superblock.
fn blank(superblock: &mut Superblock) -> Device {
    let device = MemoryDevice::new(8 << 20);
    undercroft_block::BlockDevice::write_at(&device, superblock.offset, superblock.encode("blank").unwrap())
        .unwrap();
    Arc::new(device)
}

#[test]
fn arrays_of_linux_are_whole() {
    for array in fixtures::ALL {
        let manifest = fixtures::manifest(array);
        let mut candidates = candidates(array);
        // The order in which they are given says nothing.
        candidates.reverse();
        let plan = plan(candidates, false).unwrap_or_else(|error| panic!("{array}: {error}"));
        let uuid = manifest["array_uuid"].replace(':', "");
        assert_eq!(plan.array_uuid.simple().to_string(), uuid, "{array}");
        assert_eq!(plan.name, format!("linuxvm:{}", array.trim_end_matches("-unclean")));
        assert_eq!(plan.degraded(), 0);
        assert!(plan.spares.is_empty() && plan.left_out.is_empty() && plan.absent().is_empty());
        let offset: u64 = manifest["data_offset_sectors"].parse().unwrap();
        for place in &plan.places {
            let member = place.member.as_ref().unwrap();
            assert_eq!(member.superblock.data.offset, offset * 512);
            assert_eq!(member.recovered, IN_SYNC);
        }
        let expected = match array {
            "raid5-bitmap-unclean" => Consistency::Bitmap,
            "raid5-ppl-unclean" => Consistency::Ppl,
            _ => Consistency::Clean,
        };
        assert_eq!(plan.consistency, expected, "{array}");
        let total: u64 = plan.geometry.member_bytes.iter().sum();
        let data_members = match plan.geometry.level {
            Level::Raid5 => 3,
            Level::Raid6 => 2,
            Level::Raid0 => 2,
            _ => 1,
        };
        assert_eq!(
            (total / u64::from(plan.geometry.members) * data_members).to_string(),
            manifest["md0_bytes"],
            "{array}"
        );
    }
}

#[test]
fn each_redundant_member_may_be_missing() {
    for (array, members, spare) in
        [("raid1", 2, 1), ("raid10", 2, 1), ("raid5-numbered", 4, 1), ("raid6", 4, 2)]
    {
        for missing in 0..members {
            let mut given = candidates(array);
            for _ in 0..spare {
                given.remove(missing % given.len());
            }
            let plan = plan(given, false).unwrap_or_else(|error| panic!("{array}: {error}"));
            assert_eq!(plan.degraded(), spare as u32);
            assert_eq!(plan.absent().len(), spare);
        }
        let given = candidates(array).into_iter().skip(spare + 1).collect::<Vec<_>>();
        if given.is_empty() {
            continue;
        }
        let error = plan(given, false).unwrap_err();
        assert!(matches!(&error, Error::TooFewMembers(text) if text.contains("role 0, ")), "{error}");
    }
    let error = plan(candidates("raid0").split_off(1), false).unwrap_err();
    assert!(matches!(error, Error::TooFewMembers(_)), "{error}");
}

#[test]
fn members_of_two_arrays_are_told_apart() {
    let mut given = candidates("raid1");
    given.push(candidates("raid10").remove(0));
    let error = plan(given, false).unwrap_err().to_string();
    assert!(error.contains("\"linuxvm:raid1\"") && error.contains("\"linuxvm:raid10\""), "{error}");
}

#[test]
fn a_copy_of_a_member_is_refused() {
    let mut given = candidates("raid5-numbered");
    given.push(given[1].clone());
    let error = plan(given, false).unwrap_err().to_string();
    assert!(error.contains("both claim role 1"), "{error}");
}

#[test]
fn a_member_that_lags_by_one_takes_part_unless_it_failed() {
    let mut given = candidates("raid6");
    given[2].superblock.events -= 1;
    let plan_of = |given: &[Candidate]| plan(given.to_vec(), false).unwrap();
    assert_eq!(plan_of(&given).degraded(), 0);
    // The others say that it failed: a crash came before anything else was written.
    let number = given[2].superblock.number;
    for at in [0, 1, 3] {
        given[at].superblock.set_role(number, DeviceRole::Faulty, "member").unwrap();
    }
    let without = plan_of(&given);
    assert_eq!(without.degraded(), 1);
    assert_eq!(without.left_out[0].reason, LeftOutReason::Faulty);
    assert_eq!(without.absent(), []);
}

#[test]
fn a_member_that_lags_further_is_out_and_may_return_by_bitmap() {
    let events = |array: &str| {
        let mut given = candidates(array);
        given[1].superblock.events -= 2;
        given
    };
    let stale = plan(events("raid5-numbered"), false).unwrap();
    assert!(matches!(stale.left_out[0].reason, LeftOutReason::Stale { .. }));
    assert!(stale.returning.is_empty());

    // The bitmap was cleared at the array's events, so the member has to have as many.
    let late = plan(events("raid5-bitmap"), false).unwrap();
    assert!(late.returning.is_empty());
    let header = late.bitmap.unwrap();
    let mut given = candidates("raid5-bitmap");
    for (at, candidate) in given.iter_mut().enumerate() {
        candidate.superblock.events = header.events_cleared + if at == 1 { 0 } else { 2 };
        if at != 1 {
            let Some(area) = candidate.superblock.bitmap else { panic!("no bitmap") };
            let fixed = BitmapHeader { events: header.events_cleared + 2, ..header }.encode();
            candidate.device.write_at(area.offset, zerocopy::IntoBytes::as_bytes(&fixed)).unwrap();
        }
    }
    let plan = plan(given, false).unwrap();
    assert_eq!(plan.degraded(), 1);
    assert_eq!(plan.returning.len(), 1);
    assert_eq!(plan.returning[0].0, 1);
    assert!(plan.returning[0].1.by_bitmap);
}

#[test]
fn unclean_and_degraded_needs_force_or_a_log() {
    let mut given = candidates("raid5-bitmap-unclean");
    given.remove(2);
    let error = plan(given.clone(), false).unwrap_err().to_string();
    assert!(error.contains("not stopped cleanly") && error.contains("force"), "{error}");
    let forced = plan(given, true).unwrap();
    assert_eq!(forced.consistency, Consistency::Clean);
    assert_eq!(forced.warnings.len(), 1);

    let mut given = candidates("raid5-ppl-unclean");
    given.remove(2);
    assert_eq!(plan(given, false).unwrap().consistency, Consistency::Ppl);
    // Copies are as good as each other.
    let mut given = candidates("raid1");
    for candidate in &mut given {
        candidate.superblock.resynced = 4096;
    }
    given.pop();
    assert_eq!(plan(given, false).unwrap().consistency, Consistency::Resync { from: 4096 });
}

#[test]
fn force_takes_the_freshest_that_lag_behind() {
    let mut given = candidates("raid5-numbered");
    given[0].superblock.events -= 7;
    given[3].superblock.events -= 5;
    let error = plan(given.clone(), false).unwrap_err().to_string();
    assert!(error.contains("by force") && error.contains("role 0, 3"), "{error}");
    let forced = plan(given, true).unwrap();
    assert_eq!(forced.degraded(), 1);
    assert!(forced.places[3].member.is_some() && forced.places[0].member.is_none());
    assert_eq!(forced.left_out.len(), 1);
}

#[test]
fn recovering_members_spares_and_replacements_have_their_places() {
    let mut given = candidates("raid6");
    given[1].superblock.recovery = Some(Recovery { done: 4096, by_bitmap: false });
    let spare = |like: &Superblock, number: u32| {
        let mut superblock = crate::create::new_member(like, number, 8 << 20, "spare").unwrap();
        let device = blank(&mut superblock);
        Candidate::read(device).unwrap()
    };
    let like = given[0].superblock.clone();
    given.push(spare(&like, 7));
    let mut replacement = spare(&like, 8);
    replacement.superblock.is_replacement = true;
    replacement.superblock.recovery = Some(Recovery { done: 0, by_bitmap: false });
    for candidate in given.iter_mut().chain([&mut replacement]) {
        candidate.superblock.set_role(8, DeviceRole::Active(3), "member").unwrap();
    }
    given.push(replacement);

    let made = plan(given.clone(), false).unwrap();
    assert_eq!(made.degraded(), 1);
    assert_eq!(made.places[1].member.as_ref().unwrap().recovered, 4096);
    assert_eq!(made.spares.len(), 1);
    assert_eq!(made.places[3].replacement.as_ref().unwrap().superblock.number, 8);

    // The one that was being replaced is gone, and all was copied.
    given.remove(3);
    given.last_mut().unwrap().superblock.recovery = None;
    let made = plan(given, false).unwrap();
    assert_eq!(made.places[3].member.as_ref().unwrap().superblock.number, 8);
    assert!(made.places[3].replacement.is_none());

    let error = plan(vec![spare(&like, 7)], false).unwrap_err().to_string();
    assert!(error.contains("are spares"), "{error}");
}

#[test]
fn halves_that_went_on_without_each_other_do_not_mix() {
    let mut given = candidates("raid1");
    let numbers = [given[0].superblock.number, given[1].superblock.number];
    given[0].superblock.set_role(numbers[1], DeviceRole::Faulty, "member").unwrap();
    given[1].superblock.set_role(numbers[0], DeviceRole::Faulty, "member").unwrap();
    for (first, second) in [(0, 0), (1, 0), (0, 1), (7, 0), (2, 9)] {
        let mut given = given.clone();
        given[0].superblock.events += first;
        given[1].superblock.events += second;
        for force in [false, true] {
            let error = plan(given.clone(), force).unwrap_err().to_string();
            let events = given.iter().map(|one| format!("{} events", one.superblock.events));
            assert!(events.into_iter().all(|events| error.contains(&events)), "{error}");
            assert!(error.contains("give only the members of the part to keep"), "{error}");
        }
        assert_eq!(plan(given.split_off(1), false).unwrap().degraded(), 1);
    }
}

#[test]
fn a_spare_that_is_fresher_than_the_members_shows_that_they_are_old() {
    let mut given = candidates("raid5-numbered");
    let mut spare = crate::create::new_member(&given[0].superblock, 7, 8 << 20, "spare").unwrap();
    for (ahead, is_refused) in [(0, false), (1, false), (2, true)] {
        spare.events = given[0].superblock.events + ahead;
        given.truncate(4);
        given.push(Candidate::read(blank(&mut spare)).unwrap());
        let planned = plan(given.clone(), false);
        assert_eq!(
            planned.as_ref().err().map(ToString::to_string).unwrap_or_default().contains("older"),
            is_refused
        );
    }
}

/// A spare that is not the device that the members call active may have its number.
#[test]
fn a_spare_fills_a_role_only_if_it_was_prepared_for_it() {
    let mut given = candidates("raid1");
    let absent = given.pop().unwrap().superblock.number;
    let member = &mut given[0].superblock;
    let spare = crate::create::new_member(member, 2, 8 << 20, "spare").unwrap();
    member.set_role(absent, DeviceRole::Faulty, "member").unwrap();
    member.set_role(2, DeviceRole::Active(1), "member").unwrap();
    let prepared = Some(Recovery { done: 0, by_bitmap: false });
    for (recovery, ahead, is_there) in
        [(prepared, 1, true), (prepared, 0, true), (prepared, 2, false), (None, 0, false), (None, 1, false)]
    {
        let mut spare = spare.clone();
        (spare.recovery, spare.events) = (recovery, given[0].superblock.events - ahead);
        let spare = Candidate::read(blank(&mut spare)).unwrap();
        let found = plan(vec![given[0].clone(), spare], false).unwrap();
        assert_eq!(found.absent().is_empty(), is_there, "{recovery:?}, {ahead}");
        assert_eq!(found.spares[0].superblock.number, if is_there { 2 } else { 3 });
    }
}

/// Superblocks of one event count were written together: where they differ in the array's shape, one is damaged, and the
/// order in which they are given must not decide which.
#[test]
fn members_that_disagree_on_the_shape_are_refused_in_any_order() {
    let damages: [fn(&mut Superblock); 2] = [|one| one.raid_disks = 1, |one| one.member_bytes /= 2];
    for damage in damages {
        let mut given = candidates("raid1");
        damage(&mut given[0].superblock);
        for _ in 0..2 {
            given.reverse();
            for force in [false, true] {
                let error = plan(given.clone(), force).unwrap_err().to_string();
                assert!(error.contains("do not agree on the number or size"), "{error}");
            }
        }
        // What an older superblock says does not count.
        given.sort_by_key(|one| one.superblock.number);
        given[0].superblock.events -= 5;
        assert!(plan(given, false).is_ok());
    }
}

#[test]
fn a_read_only_device_can_be_planned_with() {
    let device = |member| -> Device {
        Arc::new(MemoryDevice::from_bytes(fixtures::bytes("raid1", member), Access::ReadOnly))
    };
    let given = (0..2).map(|member| Candidate::read(device(member)).unwrap()).collect();
    assert_eq!(plan(given, false).unwrap().degraded(), 0);
}

/// A mirror of three at one event count, whose members all know each other.
fn mirror_of_three() -> Vec<Candidate> {
    let mut given = candidates("raid1");
    let mut third = given[1].clone();
    third.superblock.number = 2;
    third.superblock.device_uuid = Uuid::from_u128(3);
    third.device = Arc::new(MemoryDevice::new(8 << 20));
    given.push(third);
    for (number, candidate) in (0..).zip(&mut given) {
        candidate.superblock.raid_disks = 3;
        candidate.superblock.number = number;
        for other in 0..3 {
            candidate.superblock.set_role(other, DeviceRole::Active(other), "member").unwrap();
        }
    }
    given
}

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

fn with_denials(given: &[Candidate], denied: &[(usize, u32)]) -> Vec<Candidate> {
    let mut split = given.to_vec();
    for &(at, number) in denied {
        split[at].superblock.set_role(number, DeviceRole::Faulty, "member").unwrap();
    }
    split
}

/// The order in which they were given decided which part was dropped.
#[test]
fn members_of_one_event_count_that_deny_each_other_are_refused() {
    let given = mirror_of_three();
    assert_eq!(plan(given.clone(), false).unwrap().degraded(), 0);
    let mutual: [&[(usize, u32)]; 2] = [&[(0, 1), (1, 0)], &[(0, 1), (1, 2), (2, 0)]];
    let one_sided: [&[(usize, u32)]; 3] = [&[(0, 1)], &[(2, 0), (0, 1)], &[(0, 2), (1, 2)]];
    let refused = mutual.iter().flat_map(|denied| [(denied, false), (denied, true)]);
    for (denied, force) in refused.chain(one_sided.iter().map(|denied| (denied, false))) {
        let split = with_denials(&given, denied);
        for order in ORDERS {
            let error = plan(order.map(|at| split[at].clone()).to_vec(), force).unwrap_err().to_string();
            assert!(error.contains("were written to without each other"), "{denied:?}, {order:?}: {error}");
            assert_eq!(error.matches(" events, last written").count(), 2, "{error}");
            assert_eq!(error.contains("by force"), one_sided.contains(denied), "{denied:?}: {error}");
        }
    }
}

/// As `mdadm --assemble --force` leaves it when the array is stopped before its first write.
#[test]
fn a_member_that_others_deny_and_that_denies_none_is_taken_by_force() {
    let given = mirror_of_three();
    for (denied, kept, warnings) in [
        (&[(0, 1)][..], DeviceRole::Faulty, 1),
        (&[(2, 0), (0, 1)], DeviceRole::Active(1), 2),
        (&[(0, 2), (1, 2)], DeviceRole::Active(1), 1),
    ] {
        let split = with_denials(&given, denied);
        for order in ORDERS {
            let forced = plan(order.map(|at| split[at].clone()).to_vec(), true).unwrap();
            assert_eq!(forced.degraded(), 0, "{denied:?}, {order:?}");
            assert_eq!(forced.roles[1], kept, "{denied:?}, {order:?}");
            assert_eq!(forced.warnings.len(), warnings, "{:?}", forced.warnings);
            assert!(forced.warnings.iter().all(|warning| warning.contains("was taken although")));
        }
    }
}
