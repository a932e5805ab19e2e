//! RAID1 and RAID10 against a plain array of bytes, with every member lost in turn, faults, and background work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use undercroft_block::testing::Rng;

use super::*;
use crate::level::testing::Members;
use crate::member::Place;
use crate::{Geometry, Layout, Level, Raid10Copies};

fn raid1(members: u32, size: u64) -> Geometry {
    Geometry {
        level: Level::Raid1,
        layout: Layout::None,
        members,
        chunk_bytes: 0,
        member_bytes: vec![size; members as usize],
    }
}

fn raid10(members: u32, near: u8, far: u8, offset: bool) -> Geometry {
    Geometry {
        level: Level::Raid10,
        layout: Layout::Copies(Raid10Copies { near, far, offset }),
        members,
        chunk_bytes: 8192,
        member_bytes: vec![20 * 8192 + 512; members as usize],
    }
}

fn shapes() -> Vec<Geometry> {
    vec![
        raid1(1, 100_352),
        raid1(2, 150_016),
        raid1(3, 200_000),
        raid10(2, 2, 1, false),
        raid10(3, 2, 1, false),
        raid10(4, 2, 1, false),
        raid10(5, 3, 1, false),
        raid10(2, 1, 2, false),
        raid10(4, 1, 2, false),
        raid10(3, 1, 2, true),
        raid10(5, 1, 3, true),
        raid10(5, 2, 2, false),
        raid10(4, 2, 2, true),
    ]
}

struct Ground {
    geometry: Geometry,
    members: Members,
    shared: Arc<Shared>,
    level: Mirrored,
}

impl Ground {
    fn new(geometry: Geometry) -> Self {
        geometry.check().unwrap();
        let members = Members::new(&geometry);
        let shared = members.share(geometry.clone());
        let level = Mirrored::new(Arc::clone(&shared));
        Self { geometry, members, shared, level }
    }

    fn size(&self) -> u64 {
        self.geometry.array_bytes()
    }

    /// Filled with something, which is returned.
    fn filled(geometry: Geometry, seed: u64) -> (Self, Vec<u8>) {
        let ground = Self::new(geometry);
        let data = Rng::new(seed).bytes(ground.size() as usize);
        ground.level.write(0, &data).unwrap();
        (ground, data)
    }

    fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let mut buf = vec![0; len as usize];
        self.level.read(offset, &mut buf).unwrap();
        buf
    }

    /// Every copy on every member whose role is filled is what it should be.
    fn check_copies(&self, model: &[u8]) {
        let lineup = self.shared.lineup();
        for begin in (0..model.len()).step_by(512) {
            let expected = &model[begin..model.len().min(begin + 512)];
            for number in 0..self.level.map.copies() {
                let copy = self.level.map.copy(begin as u64, number);
                if lineup.member(copy.role).is_some() {
                    let mut found = vec![0; expected.len()];
                    self.members.all[copy.role.0 as usize].peek(copy.member_offset, &mut found);
                    assert!(found == expected, "copy {number} of byte {begin}: {:?}", self.geometry);
                }
            }
        }
    }

    /// Does all of a kind of background work, and adds up what differed.
    fn sync_all(&self, work: SyncWork) -> u64 {
        let size = if work == SyncWork::Recover {
            self.geometry.recover_bytes()
        } else {
            self.geometry.sync_bytes()
        };
        let (mut position, mut mismatched) = (0, 0);
        while position < size {
            // Odd steps, which fit no chunk.
            let step = self.level.sync(position, (size - position).min(69_632), work).unwrap();
            assert!(step.done > 0 && step.done <= size - position);
            position += step.done;
            mismatched += step.mismatched;
        }
        mismatched
    }

    fn lose(&self, role: u32) {
        self.shared.change_lineup(|lineup| lineup.places[role as usize] = Place::default());
    }

    fn can_lose(&self, role: u32) -> bool {
        self.geometry.is_enough(|other| other != role)
    }
}

#[test]
fn random_requests_agree_with_a_plain_array_of_bytes() {
    for (number, geometry) in shapes().into_iter().enumerate() {
        let ground = Ground::new(geometry);
        let model = ground.members.exercise(&ground.level, &mut Rng::new(number as u64), 200, ground.size());
        ground.check_copies(&model);
        assert_eq!(ground.sync_all(SyncWork::Check), 0);
    }
}

#[test]
fn every_member_is_lost_in_turn_and_rebuilt_while_the_array_is_written() {
    for geometry in shapes() {
        for role in 0..geometry.members {
            let mut ground = Ground::new(geometry.clone());
            if !ground.can_lose(role) {
                continue;
            }
            let mut rng = Rng::new(u64::from(role));
            ground.members.exercise(&ground.level, &mut rng, 40, ground.size());
            ground.lose(role);
            ground.members.exercise(&ground.level, &mut rng, 40, ground.size());

            let spare = ground.members.spare(Role(role), 0);
            ground
                .shared
                .change_lineup(|lineup| lineup.places[role as usize].member = Some(Arc::clone(&spare)));
            let is_done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_done.load(Ordering::SeqCst) {
                        ground.members.exercise(&ground.level, &mut rng, 5, ground.size());
                    }
                });
                let size = ground.geometry.recover_bytes();
                let mut position = 0;
                while position < size {
                    position += ground.level.sync(position, 20_480, SyncWork::Recover).unwrap().done;
                    spare.set_recovered(position);
                }
                spare.set_recovered(u64::MAX);
                is_done.store(true, Ordering::SeqCst);
            });
            let model = ground.read(0, ground.size());
            ground.check_copies(&model);
            assert_eq!(ground.sync_all(SyncWork::Check), 0, "{geometry:?} {role}");
        }
    }
}

#[test]
fn a_replacement_is_filled_and_written_beside_its_member() {
    for geometry in [raid1(2, 150_016), raid10(3, 2, 1, false), raid10(4, 1, 2, true)] {
        let (mut ground, mut model) = Ground::filled(geometry, 5);
        let replacement = ground.members.spare(Role(1), 0);
        ground.shared.change_lineup(|lineup| lineup.places[1].replacement = Some(Arc::clone(&replacement)));
        ground.sync_all(SyncWork::Recover);
        replacement.set_recovered(u64::MAX);
        let data = Rng::new(6).bytes(50_000);
        ground.level.write(10_000, &data).unwrap();
        model[10_000..60_000].copy_from_slice(&data);
        // It takes the member's place.
        ground.shared.change_lineup(|lineup| {
            lineup.places[1] = Place { member: Some(Arc::clone(&replacement)), replacement: None };
        });
        ground.check_copies(&model);
    }
}

#[test]
fn what_cannot_be_read_is_read_elsewhere_and_written_again() {
    for geometry in shapes() {
        let (ground, model) = Ground::filled(geometry, 1);
        for role in 0..ground.geometry.members {
            if !ground.can_lose(role) {
                continue;
            }
            let device = &ground.members.all[role as usize];
            device.spoil(512..1024);
            device.spoil(30_000..42_000);
            assert_ne!(device.bad_sectors(), 0);
            // Not all is read from this member, but comparing reads all.
            assert!(ground.read(0, ground.size()) == model);
            assert!(ground.read(30_001, 20_011) == model[30_001..50_012]);
            ground.sync_all(SyncWork::Check);
            assert_eq!(device.bad_sectors(), 0, "{:?} {role}", ground.geometry);
        }
        ground.check_copies(&model);
        assert!(ground.members.told.failed.lock().is_empty());
        assert_eq!(ground.members.told.bad_sectors(), 0);
    }
}

#[test]
fn a_single_read_heals_what_it_could_not_read() {
    let (ground, model) = Ground::filled(raid1(2, 150_016), 1);
    for role in 0..2 {
        ground.members.all[role].spoil(4096..4608);
    }
    ground.members.all[0].peek(0, &mut [0]);
    // One copy of these sectors is left to each block: none of a block that both have lost.
    assert!(ground.level.read(4096, &mut [0; 4096]).is_err());
    ground.members.all[1].poke(4096, &model[4096..4608]);
    let member = Arc::clone(ground.shared.lineup().member(Role(1)).unwrap());
    member.write_at(4096, &model[4096..4608]).unwrap();
    assert!(ground.read(4100, 5) == model[4100..4105]);
    assert_eq!(ground.members.all[0].bad_sectors(), 0);
    assert!(ground.members.told.failed.lock().is_empty());
}

#[test]
fn nothing_is_healed_on_an_array_that_was_opened_for_reading() {
    let (ground, model) = Ground::filled(raid1(2, 150_016), 1);
    ground.shared.set_read_only();
    ground.members.all[0].spoil(4096..20_480);
    ground.members.all[1].spoil(20_480..40_960);
    assert!(ground.read(0, 100_000) == model[..100_000]);
    assert_eq!(ground.members.all[0].bad_sectors() + ground.members.all[1].bad_sectors(), 72);
    assert!(ground.members.told.failed.lock().is_empty());
}

#[test]
fn copies_that_each_lack_something_make_up_the_whole() {
    let (ground, model) = Ground::filled(raid1(2, 150_016), 1);
    ground.members.all[0].spoil(4096..20_480);
    ground.members.all[1].spoil(20_480..40_960);
    assert!(ground.read(0, 100_000) == model[..100_000]);
    assert_eq!(ground.members.all[0].bad_sectors() + ground.members.all[1].bad_sectors(), 0);
}

#[test]
fn what_does_not_take_writing_is_recorded_and_not_read_until_it_does() {
    let (ground, mut model) = Ground::filled(raid1(2, 150_016), 1);
    let device = &ground.members.all[0];
    device.is_stubborn.store(true, Ordering::SeqCst);
    device.spoil(4096..4608);
    assert!(ground.read(0, 8192) == model[..8192]);
    assert_eq!(ground.members.told.bad_sectors(), 8, "the whole block");
    assert!(ground.members.told.failed.lock().is_empty());
    assert!(ground.read(4000, 500) == model[4000..4500]);
    // A write there takes it off the list.
    device.is_stubborn.store(false, Ordering::SeqCst);
    ground.level.write(4096, &[7; 4096]).unwrap();
    model[4096..8192].fill(7);
    assert_eq!(ground.members.told.bad_sectors(), 0);
    ground.check_copies(&model);
}

#[test]
fn a_member_that_can_record_nothing_fails() {
    let (ground, model) = Ground::filled(raid1(2, 150_016), 1);
    ground.members.told.has_lists.store(false, Ordering::SeqCst);
    ground.members.all[0].is_stubborn.store(true, Ordering::SeqCst);
    ground.members.all[0].spoil(4096..4608);
    assert!(ground.read(0, 8192) == model[..8192]);
    assert_eq!(*ground.members.told.failed.lock(), [0]);
    assert!(ground.read(0, 8192) == model[..8192]);
}

#[test]
fn a_member_that_takes_no_writes_and_has_no_list_fails_and_the_write_succeeds() {
    for geometry in shapes() {
        for role in 0..geometry.members {
            let (ground, mut model) = Ground::filled(geometry.clone(), 2);
            ground.members.told.has_lists.store(false, Ordering::SeqCst);
            ground.members.all[role as usize].is_dead.store(true, Ordering::SeqCst);
            let data = Rng::new(3).bytes(60_000);
            let outcome = ground.level.write(20_000, &data);
            if !ground.can_lose(role) {
                assert!(matches!(outcome, Err(Error::Stopped(_))));
                assert_eq!(ground.read(0, 20_000), model[..20_000]);
                continue;
            }
            outcome.unwrap();
            model[20_000..80_000].copy_from_slice(&data);
            assert_eq!(*ground.members.told.failed.lock(), [role]);
            assert!(ground.read(0, ground.size()) == model);
            ground.check_copies(&model);
        }
    }
}

#[test]
fn blocks_that_do_not_take_a_write_are_recorded_and_the_member_stays() {
    for geometry in shapes() {
        for role in 0..geometry.members {
            let (ground, mut model) = Ground::filled(geometry.clone(), 2);
            if !ground.can_lose(role) {
                continue;
            }
            let device = &ground.members.all[role as usize];
            device.is_stubborn.store(true, Ordering::SeqCst);
            device.spoil(12_800..13_312);
            device.spoil(20_480..30_720);
            for (seed, offset, len) in [(3, 0, ground.size() as usize), (4, 0, 200), (5, 25_000, 3)] {
                let data = Rng::new(seed).bytes(len);
                ground.level.write(offset, &data).unwrap();
                model[offset as usize..offset as usize + len].copy_from_slice(&data);
            }
            let told = &ground.members.told;
            assert!(told.failed.lock().is_empty() && told.bad_sectors() > 0, "{geometry:?} {role}");
            assert!(ground.shared.lineup().member(Role(role)).unwrap().wants_replacement());
            assert!(ground.read(0, ground.size()) == model, "{geometry:?} {role}");
            // It would not be asked for what it does not have, even if it answered.
            device.is_stubborn.store(false, Ordering::SeqCst);
            assert_eq!(ground.sync_all(SyncWork::Check), 0);
            assert!(ground.read(0, ground.size()) == model);
            assert!(told.bad_sectors() > 0);
            // A repair writes it anew.
            ground.sync_all(SyncWork::Repair);
            assert_eq!(told.bad_sectors(), 0, "{geometry:?} {role}");
            ground.check_copies(&model);
        }
    }
}

#[test]
fn what_no_copy_takes_is_an_error_and_is_not_read_any_more() {
    let (ground, model) = Ground::filled(raid1(2, 150_016), 1);
    for device in &ground.members.all {
        device.is_stubborn.store(true, Ordering::SeqCst);
        device.spoil(8192..8704);
    }
    assert!(matches!(ground.level.write(4096, &[7; 12_288]), Err(Error::TooFewMembers(_))));
    assert!(ground.members.told.failed.lock().is_empty() && ground.shared.stopped().is_none());
    assert!(ground.level.read(8192, &mut [0; 512]).is_err(), "neither old nor new");
    assert!(ground.read(16_384, 50_000) == model[16_384..66_384]);
    assert_eq!(ground.read(12_288, 4096), [7; 4096]);
    // Half of a block that is bad everywhere is not enough; all of it is.
    for device in &ground.members.all {
        device.is_stubborn.store(false, Ordering::SeqCst);
    }
    assert!(ground.level.write(8192, &[8; 100]).is_err());
    ground.level.write(8192, &[9; 4096]).unwrap();
    assert_eq!(ground.read(8192, 4096), [9; 4096]);
}

#[test]
fn copies_that_each_did_not_take_a_sector_of_a_block_make_up_the_whole() {
    let (ground, mut model) = Ground::filled(raid1(2, 150_016), 1);
    for (role, at) in [(0, 4096), (1, 5120)] {
        let device = &ground.members.all[role];
        device.is_stubborn.store(true, Ordering::SeqCst);
        device.spoil(at..at + 512);
        ground.level.write(at, &[role as u8; 512]).unwrap();
        model[at as usize..at as usize + 512].fill(role as u8);
    }
    assert_eq!(ground.members.told.bad_sectors(), 2);
    assert!(ground.read(0, 16_384) == model[..16_384]);
    ground.members.all.iter().for_each(|device| device.is_stubborn.store(false, Ordering::SeqCst));
    // Reading bytes of one of them is no trouble either.
    assert!(ground.read(4090, 600) == model[4090..4690]);
}

#[test]
fn what_differs_is_counted_and_repaired_as_linux_does() {
    for geometry in [raid1(2, 300_032), raid1(3, 300_032), raid10(4, 2, 1, false), raid10(3, 1, 2, false)] {
        let (ground, model) = Ground::filled(geometry, 4);
        let scribble = |role: usize, at: u64| ground.members.all[role].poke(at, &[0xaa, 0x55, 0xaa]);
        // Copies other than the first of their bytes, so that what was written stays.
        let map = &ground.level.map;
        let second = |offset: u64| map.copy(offset, map.copies() - 1);
        let mut units = std::collections::BTreeMap::new();
        for offset in [100, 9_000, 70_000, 70_500, 130_000] {
            let copy = second(offset);
            scribble(copy.role.0 as usize, copy.member_offset);
            let unit = if ground.geometry.level == Level::Raid1 { 65_536 } else { 8192 };
            let begin = offset / unit * unit;
            units.insert(begin, unit.min(ground.size() - begin));
        }
        let expected: u64 = units.values().sum();
        let count = |work| {
            let (mut position, mut mismatched) = (0, 0);
            while position < ground.size() {
                let step = ground.level.sync(position, 1 << 30, work).unwrap();
                position += step.done;
                mismatched += step.mismatched;
            }
            mismatched
        };
        assert_eq!(count(SyncWork::Check), expected, "{:?}", ground.geometry);
        assert_eq!(count(SyncWork::Repair), expected);
        assert_eq!(count(SyncWork::Check), 0);
        ground.check_copies(&model);
        scribble(second(100).role.0 as usize, second(100).member_offset);
        count(SyncWork::Resync);
        ground.check_copies(&model);
    }
}

/// What `mismatch_cnt` was after a check by Linux 6.1 of arrays like these, whose second member had been written to.
#[test]
fn what_differs_is_counted_as_linux_counted_it() {
    let raid10 = |members, near, far, chunk_bytes| Geometry {
        chunk_bytes,
        member_bytes: vec![1 << 20; members as usize],
        ..raid10(members, near, far, false)
    };
    for (geometry, sectors) in [
        (raid1(2, 1 << 20), 256),
        (raid1(3, 1 << 20), 256),
        (raid10(4, 2, 1, 8 << 10), 64),
        (raid10(2, 2, 1, 8 << 10), 256),
        (raid10(3, 1, 2, 8 << 10), 64),
        (raid10(4, 2, 1, 128 << 10), 256),
    ] {
        let ground = Ground::new(geometry);
        for offset in [100, 9000, 70_000, 70_500, 130_000] {
            ground.members.all[1].poke(offset, b"abc");
        }
        let (mut position, mut mismatched) = (0, 0);
        while position < ground.size() {
            let step = ground.level.sync(position, 1 << 30, SyncWork::Check).unwrap();
            (position, mismatched) = (position + step.done, mismatched + step.mismatched);
        }
        assert_eq!(mismatched / 512, sectors, "{:?}", ground.geometry);
    }
}

#[test]
fn copies_that_may_differ_are_read_from_one_member() {
    let (ground, _) = Ground::filled(raid1(3, 1 << 20), 4);
    for role in 0..3 {
        ground.members.all[role].poke(0, &vec![role as u8; 1 << 20]);
    }
    let distinct = || {
        let read = (0..1 << 20).step_by(4096).map(|offset| ground.read(offset, 1)[0]);
        read.collect::<std::collections::BTreeSet<u8>>().len()
    };
    assert_eq!(distinct(), 3, "reads spread over the members");
    ground.shared.set_resynced(0);
    assert_eq!(distinct(), 1);
}

#[test]
fn writers_of_the_same_bytes_leave_the_same_copies() {
    for geometry in [raid1(3, 65_536), raid10(3, 2, 1, false)] {
        let ground = Ground::new(geometry);
        std::thread::scope(|scope| {
            for thread in 0..6_u64 {
                let level = &ground.level;
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    for _ in 0..300 {
                        let offset = rng.below(30_000);
                        level.write(offset, &vec![thread as u8; 1 + rng.below(9000) as usize]).unwrap();
                    }
                });
            }
            scope.spawn(|| (0..20).for_each(|_| assert_eq!(ground.sync_all(SyncWork::Check), 0)));
        });
        let model = ground.read(0, ground.size());
        ground.check_copies(&model);
    }
}

#[test]
fn unreadable_blocks_are_recorded_on_the_rebuilt_member() {
    let (mut ground, model) = Ground::filled(raid1(2, 150_016), 8);
    ground.lose(1);
    let spare = ground.members.spare(Role(1), 0);
    ground.shared.change_lineup(|lineup| lineup.places[1].member = Some(Arc::clone(&spare)));
    ground.members.all[0].spoil(8192..8704);
    ground.sync_all(SyncWork::Recover);
    spare.set_recovered(u64::MAX);
    assert_eq!(ground.members.told.bad_sectors(), 8);
    assert!(ground.level.read(8192, &mut [0; 512]).is_err());
    assert!(ground.read(0, 8192) == model[..8192]);
    assert!(ground.read(12_288, 100_000) == model[12_288..112_288]);
    // Without room on a list the rebuilding cannot go on.
    ground.members.told.has_lists.store(false, Ordering::SeqCst);
    spare.set_recovered(0);
    assert!(ground.level.sync(0, 1 << 20, SyncWork::Recover).is_err());
}
