//! Members lost, written without, and brought back.

use std::sync::Arc;

use undercroft_block::MemoryDevice;

use super::harness::{LAYOUTS, Plan, Rig, Rng, member};
use crate::level::{Personality as _, SyncWork};
use crate::{Error, Level};

/// Every set of members that the array can do without.
fn losses(plan: &Plan) -> Vec<Vec<u32>> {
    let mut losses: Vec<Vec<u32>> = (0..plan.members).map(|role| vec![role]).collect();
    if plan.parities() == 2 {
        for one in 0..plan.members {
            losses.extend((0..one).map(|two| vec![two, one]));
        }
    }
    losses
}

fn fill(rig: &mut Rig, rng: &mut Rng) {
    let data = rng.bytes(rig.model.len());
    rig.write(0, &data);
}

#[test]
fn without_any_members_that_can_be_spared_all_is_read_and_written_and_rebuilt() {
    for level in [Level::Raid4, Level::Raid5, Level::Raid6] {
        for (number, layout) in LAYOUTS.into_iter().enumerate() {
            for chunk_bytes in [4096, 16384] {
                let plan = Plan { layout, rows: 6, ..Plan::new(level, 5, chunk_bytes) };
                for lost in losses(&plan) {
                    // Small, so that little is known from before.
                    let cache_bytes = if number % 2 == 0 { 0 } else { 1 << 20 };
                    let mut rig = Rig::new(Plan { cache_bytes, ..plan });
                    let mut rng = Rng::new(number as u64 + 100 * u64::from(lost[0]));
                    fill(&mut rig, &mut rng);
                    lost.iter().for_each(|&role| rig.lose(role));
                    rig.check_reads();
                    for _ in 0..25 {
                        let longest = [3000, 20_000, 2 * rig.row_bytes()][rng.below(3)];
                        let (start, len) = rng.range(rig.model.len(), longest);
                        rig.write(start, &rng.bytes(len));
                    }
                    rig.check_members();
                    rig.check_reads();
                    lost.iter().for_each(|&role| rig.rebuild(role));
                    rig.check_members();
                    rig.check_reads();
                    assert_eq!(rig.sync(SyncWork::Check).unwrap(), 0);
                }
            }
        }
    }
}

#[test]
fn one_too_many_is_refused_and_what_is_left_is_read() {
    for level in [Level::Raid5, Level::Raid6] {
        let mut rig = Rig::new(Plan::new(level, 5, 4096));
        let mut rng = Rng::new(1);
        fill(&mut rig, &mut rng);
        (0..=rig.plan.parities()).for_each(|role| rig.lose(role));
        rig.forget();
        let (mut read, mut refused) = (0, 0);
        for page in (0..rig.model.len()).step_by(4096) {
            match rig.read(page, 4096) {
                Ok(bytes) => {
                    assert_eq!(bytes, &rig.model[page..page + 4096]);
                    read += 1;
                }
                Err(Error::TooFewMembers(_)) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(read > 0 && refused > 0);
        assert!(matches!(rig.raid.write(0, &[1; 512]), Err(Error::TooFewMembers(_))));
        let row = vec![1; rig.row_bytes()];
        assert!(matches!(rig.raid.write(0, &row), Err(Error::TooFewMembers(_))));
        rig.raid.sets.assert_quiet();
    }
}

#[test]
fn a_member_that_is_being_rebuilt_is_read_where_it_is_right_and_written_everywhere() {
    for level in [Level::Raid5, Level::Raid6] {
        for role in 0..5 {
            let mut rig = Rig::new(Plan { rows: 10, ..Plan::new(level, 5, 4096) });
            let mut rng = Rng::new(u64::from(role));
            fill(&mut rig, &mut rng);
            rig.lose(role);
            let new = rig.join(role);
            rig.raid.sync(0, 5 * 4096, SyncWork::Recover).unwrap();
            // The first rows are done and the mark is on its way behind them.
            for mark in [3 * 4096, 5 * 4096] {
                new.set_recovered(mark);
                for _ in 0..20 {
                    let (start, len) = rng.range(rig.model.len(), 30_000);
                    rig.write(start, &rng.bytes(len));
                }
                rig.check_reads();
                rig.check_rows(0..5);
            }
            rig.raid.sync(5 * 4096, u64::MAX, SyncWork::Recover).unwrap();
            new.set_recovered(u64::MAX);
            rig.check_members();
            rig.check_reads();
        }
    }
}

#[test]
fn a_replacement_is_written_beside_the_member_and_copied() {
    for role in 0..4u32 {
        let mut rig = Rig::new(Plan::new(Level::Raid5, 4, 8192));
        let mut rng = Rng::new(u64::from(role));
        fill(&mut rig, &mut rng);
        let new = member(Arc::new(MemoryDevice::new(rig.plan.device_bytes())), 99, 0);
        rig.shared.change_lineup(|lineup| lineup.places[role as usize].replacement = Some(Arc::clone(&new)));
        rig.raid.sync(0, 3 * 8192, SyncWork::Recover).unwrap();
        for _ in 0..30 {
            let (start, len) = rng.range(rig.model.len(), 30_000);
            rig.write(start, &rng.bytes(len));
        }
        rig.raid.sync(3 * 8192, u64::MAX, SyncWork::Recover).unwrap();
        rig.check_members();
        // The replacement takes the place.
        new.set_recovered(u64::MAX);
        rig.shared.change_lineup(|lineup| {
            let place = &mut lineup.places[role as usize];
            place.member = place.replacement.take();
        });
        rig.check_members();
        rig.check_reads();
    }
}

#[test]
fn parity_without_a_member_is_not_cached() {
    let mut rig = Rig::new(Plan::new(Level::Raid5, 4, 4096));
    let parity = rig.map.p_role(0);
    rig.lose(parity.0);
    // Two of three columns: with parity to keep, the third would be read.
    rig.write(0, &[1; 2 * 4096]);
    let owner = rig.raid.sets.own(0);
    assert!(owner.columns[3].valid.is_empty());
    assert!(!owner.columns[0].valid.is_empty());
}
