//! Parity compared and made right.

use super::harness::{DATA_OFFSET, Plan, Rig, Rng};
use crate::Level;
use crate::level::SyncWork;
use crate::member::Role;

fn filled(level: Level, members: u32, chunk_bytes: u32) -> Rig {
    let mut rig = Rig::new(Plan::new(level, members, chunk_bytes));
    let data = Rng::new(3).bytes(rig.model.len());
    rig.write(0, &data);
    rig
}

/// Changes one byte of a member behind the array's back.
fn spoil(rig: &Rig, role: Role, offset: u64) {
    let member = rig.member(role.0).unwrap();
    let mut byte = [0];
    member.device().read_at(DATA_OFFSET + offset, &mut byte).unwrap();
    member.device().write_at(DATA_OFFSET + offset, &[byte[0] ^ 0x40]).unwrap();
}

#[test]
fn what_differs_is_counted_in_pages_and_made_right() {
    for level in [Level::Raid4, Level::Raid5, Level::Raid6] {
        for what in [SyncWork::Repair, SyncWork::Resync] {
            let rig = filled(level, 5, 16384);
            assert_eq!(rig.sync(SyncWork::Check).unwrap(), 0);
            // Two bytes in one page of P, one in another row.
            spoil(&rig, rig.map.p_role(0), 5000);
            spoil(&rig, rig.map.p_role(0), 8191);
            spoil(&rig, rig.map.p_role(3), 3 * 16384);
            let mut pages = 2;
            if let Some(role) = rig.map.q_role(4) {
                // P and Q of one row are one row that differs.
                spoil(&rig, role, 4 * 16384 + 16383);
                spoil(&rig, rig.map.p_role(4), 4 * 16384 + 16000);
                pages += 1;
            }
            assert_eq!(rig.sync(SyncWork::Check).unwrap(), pages * 4096);
            assert_eq!(rig.sync(SyncWork::Check).unwrap(), pages * 4096, "a check changes nothing");
            assert_eq!(rig.sync(what).unwrap(), pages * 4096);
            assert_eq!(rig.sync(SyncWork::Check).unwrap(), 0);
            rig.check_members();
        }
    }
}

#[test]
fn parity_is_made_right_from_the_data_and_not_the_other_way_round() {
    let mut rig = filled(Level::Raid6, 4, 4096);
    let place = rig.map.locate(6 * 4096 + 17);
    spoil(&rig, place.role, place.member_offset);
    rig.model[6 * 4096 + 17] ^= 0x40;
    assert_eq!(rig.sync(SyncWork::Resync).unwrap(), 4096);
    rig.check_members();
}

#[test]
fn what_is_left_of_the_redundancy_is_compared() {
    // RAID6 without one member still has one parity more than it needs.
    for lost in 0..5 {
        let rig = filled(Level::Raid6, 5, 4096);
        let row = 2;
        rig.lose(lost);
        let q = rig.map.q_role(row).unwrap();
        let spoilt = if q.0 == lost { rig.map.p_role(row) } else { q };
        spoil(&rig, spoilt, row * 4096 + 9);
        assert_eq!(rig.sync(SyncWork::Repair).unwrap(), 4096, "without {lost}");
        rig.check_members();
    }
    // RAID5 has none.
    let rig = filled(Level::Raid5, 4, 4096);
    rig.lose(1);
    assert_eq!(rig.sync(SyncWork::Check).unwrap(), 0);
}
