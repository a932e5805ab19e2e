//! Devices come and go, and background work is driven.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;

use undercroft_block::{BlockDevice as _, Device};
use undercroft_md::{Action, Array, ArrayOptions, CreateOptions, Duty, Level, MemberStatus};

use super::support::{
    LONG, assert_same, blank, check, create, fill, open, open_degraded, pattern, read_all, small,
};

const DATA: u64 = 256 << 10;

#[test]
fn a_new_array_is_made_consistent_in_the_background() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 4), (Level::Raid10, 4)] {
        let devices = blank(members, DATA);
        for (device, seed) in devices.iter().zip(0..) {
            device.write_at(0, &pattern(seed, device.size_bytes() as usize)).unwrap();
        }
        let new = CreateOptions { assume_clean: false, ..small(level) };
        let array = create(&devices, &new);
        assert!(array.wait_for_sync(LONG));
        let status = array.status();
        assert!(!status.needs_resync, "{level:?}");
        assert_eq!(status.finished.unwrap().action, Action::Resync);
        assert_eq!(check(&array), 0, "{level:?}");
        array.close().unwrap();
        assert!(!open(&devices).status().needs_resync, "{level:?}");
    }
}

#[test]
fn a_check_finds_what_differs_and_a_repair_makes_it_right() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10, 4)] {
        let devices = blank(members, DATA);
        let array = create(&devices, &small(level));
        fill(&array, 1);
        array.flush().unwrap();
        assert_eq!(check(&array), 0, "{level:?}");
        let at = super::support::DATA_OFFSET + 40_000;
        let mut byte = [0];
        devices[1].read_at(at, &mut byte).unwrap();
        devices[1].write_at(at, &[!byte[0]]).unwrap();
        assert!(check(&array) > 0, "{level:?}");
        array.repair().unwrap();
        assert!(array.wait_for_sync(LONG));
        assert_eq!(check(&array), 0, "{level:?}");
    }
}

#[test]
fn a_removed_member_comes_back_by_the_bitmap_alone() {
    let devices = blank(4, DATA);
    let new = CreateOptions { bitmap: true, bitmap_chunk_bytes: Some(16384), ..small(Level::Raid5) };
    let array = create(&devices, &new);
    let mut content = fill(&array, 1);
    array.flush().unwrap();
    array.close().unwrap();

    let array = open(&devices);
    array.fail(2).unwrap();
    array.remove(2).unwrap();
    content[70_000..75_000].copy_from_slice(&pattern(9, 5000));
    array.write_at(70_000, &content[70_000..75_000]).unwrap();
    array.flush().unwrap();
    // What the bitmap does not name must not be touched: it is spoilt here, and stays so.
    let spoilt = super::support::DATA_OFFSET + DATA - 4096;
    devices[2].write_at(spoilt, &[0x5a; 16]).unwrap();
    assert_eq!(array.re_add(devices[2].clone()).unwrap(), 2);
    assert!(array.wait_for_sync(LONG));
    assert_eq!(array.status().degraded, 0);
    let mut kept = [0; 16];
    devices[2].read_at(spoilt, &mut kept).unwrap();
    assert_eq!(kept, [0x5a; 16]);
    assert!(check(&array) > 0, "the spoilt bytes");
    array.repair().unwrap();
    assert!(array.wait_for_sync(LONG));
}

#[test]
fn a_member_comes_back_whole_after_it_missed_writes() {
    for level in [Level::Raid1, Level::Raid5, Level::Raid10] {
        let devices = blank(4, DATA);
        let new = CreateOptions { bitmap: true, bitmap_chunk_bytes: Some(16384), ..small(level) };
        let array = create(&devices, &new);
        let mut content = fill(&array, 1);
        array.close().unwrap();
        let array = open_degraded(&devices[1..]);
        for at in [0, 30_000, 100_000, 200_000] {
            content[at..at + 700].copy_from_slice(&pattern(at as u64, 700));
            array.write_at(at as u64, &content[at..at + 700]).unwrap();
        }
        array.close().unwrap();
        let array = open_degraded(&devices[1..]);
        array.re_add(devices[0].clone()).unwrap();
        assert!(array.wait_for_sync(LONG));
        assert_eq!((array.status().degraded, check(&array)), (0, 0), "{level:?}");
        assert_same(&read_all(&array), &content);
        array.close().unwrap();
        assert_same(&read_all(&open(&devices)), &content);
    }
}

#[test]
fn a_member_without_a_bitmap_is_added_as_a_new_one() {
    let devices = blank(4, DATA);
    let array = create(&devices, &small(Level::Raid5));
    let content = fill(&array, 1);
    array.fail(1).unwrap();
    assert!(array.re_add(devices[1].clone()).unwrap_err().to_string().contains("no write-intent bitmap"));
    array.remove(1).unwrap();
    let number = array.add(devices[1].clone()).unwrap();
    assert_eq!(number, 4);
    assert!(array.wait_for_sync(LONG));
    let status = array.status();
    assert_eq!(status.degraded, 0);
    assert!(status.members.iter().any(|member| member.number == 4 && member.duty == Duty::Active(1)));
    assert_eq!(check(&array), 0);
    array.close().unwrap();
    assert_same(&read_all(&open(&devices)), &content);
}

#[test]
fn a_member_is_replaced_while_it_stays() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid6, 4), (Level::Raid10, 4)] {
        let mut devices = blank(members + 1, DATA);
        let array = create(&devices[..members], &small(level));
        let mut content = fill(&array, 1);
        let number = array.add(devices[members].clone()).unwrap();
        assert!(array.wait_for_sync(LONG), "a spare has nothing to do");
        array.pause_sync(true);
        assert_eq!(array.replace(1).unwrap(), number);
        content[9000..30_000].copy_from_slice(&pattern(4, 21_000));
        array.write_at(9000, &content[9000..30_000]).unwrap();
        assert_eq!(array.status().degraded, 0, "{level:?}");
        array.pause_sync(false);
        assert!(array.wait_for_sync(LONG));
        let status = array.status();
        let duty = |number: u32| status.members.iter().find(|member| member.number == number).unwrap().duty;
        assert_eq!((duty(number), duty(1)), (Duty::Active(1), Duty::Faulty), "{level:?}");
        assert_eq!(check(&array), 0, "{level:?}");
        array.close().unwrap();
        // The one that was replaced is out, and is not taken for a member again.
        let again = open(&devices);
        assert_eq!(again.status().degraded, 0, "{level:?}");
        assert_same(&read_all(&again), &content);
        drop(again);
        devices.remove(1);
        assert_same(&read_all(&open(&devices)), &content);
    }
}

#[test]
fn a_replacement_goes_on_when_its_old_member_fails() {
    let devices = blank(4, DATA);
    let array = create(&devices[..3], &small(Level::Raid5));
    let content = fill(&array, 1);
    array.add(devices[3].clone()).unwrap();
    array.pause_sync(true);
    array.replace(0).unwrap();
    array.fail(0).unwrap();
    array.pause_sync(false);
    assert!(array.wait_for_sync(LONG));
    assert_eq!((array.status().degraded, check(&array)), (0, 0));
    assert_same(&read_all(&array), &content);
}

#[test]
fn a_rebuild_goes_on_where_it_stopped() {
    const LARGE: u64 = 24 << 20;
    let devices = blank(3, LARGE);
    let array = create(&devices[..2], &small(Level::Raid1));
    array.write_at(5 << 20, &pattern(1, 100_000)).unwrap();
    array.fail(1).unwrap();
    array.limit_sync(NonZeroU64::new(16 << 20));
    array.add(devices[2].clone()).unwrap();
    let is_under_way = || array.status().progress.is_some_and(|progress| progress.position_bytes >= 4 << 20);
    while !is_under_way() {
        std::thread::yield_now();
    }
    array.close().unwrap();

    let options = ArrayOptions { sync_bytes_per_second: NonZeroU64::new(1 << 20), ..ArrayOptions::default() };
    let rest = [devices[0].clone(), devices[2].clone()];
    let array = Array::open(rest.to_vec(), options).unwrap();
    let status = array.status();
    let filled = status.members.iter().find(|member| member.number == 2).unwrap();
    assert_eq!((filled.duty, filled.state()), (Duty::Active(1), "spare rebuilding"));
    assert!(filled.recovered_bytes.unwrap() >= 4 << 20, "{filled:?}");
    array.limit_sync(None);
    assert!(array.wait_for_sync(LONG));
    assert_eq!(check(&array), 0);
}

#[test]
fn an_idle_array_is_marked_clean_and_an_active_one_is_not() {
    let devices = blank(3, DATA);
    let array = create(&devices, &small(Level::Raid5));
    assert_eq!(array.status().state(), "clean");
    array.write_at(0, &[1; 4096]).unwrap();
    assert_eq!(array.status().state(), "active");
    while array.status().is_active {
        std::thread::yield_now();
    }
    array.write_at(0, &[2; 4096]).unwrap();
    assert!(array.status().is_active);
}

#[test]
fn states_are_named_as_mdadm_names_them() {
    let devices = blank(4, DATA);
    let array = create(&devices[..3], &small(Level::Raid5));
    array.pause_sync(true);
    array.fail(1).unwrap();
    assert_eq!(array.status().state(), "clean, degraded");
    array.add(devices[3].clone()).unwrap();
    while array.status().progress.is_none() {
        std::thread::yield_now();
    }
    let status = array.status();
    assert_eq!(status.state(), "clean, degraded, recovering");
    assert!(status.progress.unwrap().is_paused);
    let states: Vec<_> = status.members.iter().map(MemberStatus::state).collect();
    assert_eq!(states, ["active sync", "faulty", "active sync", "spare rebuilding"]);
    array.pause_sync(false);
    assert!(array.wait_for_sync(LONG));
    assert_eq!(array.status().state(), "clean");
}

#[test]
fn a_closed_array_takes_no_writes_and_can_be_read() {
    let devices = blank(3, DATA);
    let array = create(&devices, &small(Level::Raid5));
    let content = fill(&array, 1);
    array.close().unwrap();
    array.close().unwrap();
    assert!(array.write_at(0, &[0]).unwrap_err().to_string().contains("the array was closed"));
    assert_same(&read_all(&array), &content);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let devices = blank(4, DATA);
    let array = create(&devices[..3], &small(Level::Raid5));
    assert!(array.fail(7).is_err());
    assert!(array.remove(0).unwrap_err().to_string().contains("in use"));
    assert!(array.replace(0).unwrap_err().to_string().contains("no spare"));
    assert!(array.replace(3).is_err());
    assert!(array.add(devices[0].clone()).unwrap_err().to_string().contains("already"));
    assert!(array.add(blank(1, DATA / 2).remove(0)).is_err());
    array.fail(0).unwrap();
    assert!(array.fail(1).unwrap_err().to_string().contains("cannot do without"));
    assert!(array.write_at(0, &[1]).is_ok());
    let striped = create(&blank(2, DATA), &small(Level::Raid0));
    assert!(striped.check().is_err() && striped.add(blank(1, DATA).remove(0)).is_err());
    drop(array);
    let read_only = ArrayOptions { read_only: true, ..ArrayOptions::default() };
    let array = Array::open(devices[1..3].to_vec(), read_only).unwrap();
    assert!(array.add(devices[3].clone()).is_err() && array.check().is_err());
    assert!(array.status().state().contains("read-only"));
}

#[test]
fn members_may_be_arrays_with_bitmaps_of_their_own() {
    let with_bitmap = |level| CreateOptions { bitmap: true, bitmap_chunk_bytes: Some(8192), ..small(level) };
    let inner: Vec<Arc<Array>> =
        (0..2).map(|_| Arc::new(create(&blank(3, 1 << 20), &with_bitmap(Level::Raid5)))).collect();
    let devices: Vec<Device> = inner.iter().map(|array| Arc::clone(array) as Device).collect();
    let outer = create(&devices, &with_bitmap(Level::Raid1));
    let content = fill(&outer, 1);
    std::thread::scope(|scope| {
        for (part, at) in content.chunks(100_000).zip((0..).step_by(100_000)) {
            let outer = &outer;
            scope.spawn(move || outer.write_at(at, part).unwrap());
        }
    });
    assert!(outer.status().bitmap.unwrap().set > 0 && inner[1].status().bitmap.unwrap().set > 0);
    inner[1].fail(0).unwrap();
    assert_same(&read_all(&outer), &content);
    assert_eq!(check(&outer), 0);
    outer.close().unwrap();
    assert_eq!(outer.status().bitmap.unwrap().set, 0, "cleared when it is closed");
    assert_eq!(check(&inner[0]), 0);
}

/// A device that is added while a spare is not there may get the spare's number: the tables of roles do not tell it.
#[test]
fn a_spare_that_was_not_there_gets_another_number() {
    let devices = blank(5, DATA);
    let new = CreateOptions { spares: 2, ..small(Level::Raid1) };
    create(&devices[..4], &new).close().unwrap();
    let array = open(&devices[..2]);
    array.add(devices[4].clone()).unwrap();
    array.close().unwrap();

    let numbers = |devices: &[Device]| -> Vec<u32> {
        let array = open(devices);
        let members = array.status().members;
        assert!(members.iter().all(|member| member.failure.is_none()));
        // Writing marks the array as active, so that all superblocks are written.
        fill(&array, 1);
        assert!(array.wait_for_sync(LONG));
        array.close().unwrap();
        let mut numbers: Vec<u32> = members.iter().map(|member| member.number).collect();
        numbers.sort_unstable();
        numbers
    };
    assert_eq!(numbers(&devices), [0, 1, 2, 3, 4]);
    let stored: BTreeSet<u32> = devices.iter().map(stored_number).collect();
    assert_eq!(stored, BTreeSet::from([0, 1, 2, 3, 4]));

    // As well where the new device has got a role.
    create(&devices[..4], &new).close().unwrap();
    let array = open(&devices[..2]);
    array.fail(1).unwrap();
    array.remove(1).unwrap();
    array.add(devices[4].clone()).unwrap();
    assert!(array.wait_for_sync(LONG));
    array.close().unwrap();
    let left = [devices[0].clone(), devices[4].clone(), devices[2].clone(), devices[3].clone()];
    assert_eq!(numbers(&left), [0, 2, 3, 4]);
    let numbers: BTreeSet<u32> = left.iter().map(stored_number).collect();
    assert_eq!(numbers, BTreeSet::from([0, 2, 3, 4]));

    // A copy of a spare is still no device of its own.
    let copy = blank(1, DATA).remove(0);
    let mut bytes = vec![0; usize::try_from(devices[3].size_bytes()).unwrap()];
    devices[3].read_at(0, &mut bytes).unwrap();
    copy.write_at(0, &bytes).unwrap();
    let both: Vec<Device> = left.iter().cloned().chain([copy]).collect();
    let error = Array::open(both, ArrayOptions::default()).unwrap_err().to_string();
    assert!(error.contains("both claim device number"), "{error}");
}

/// The copy was made before the spare got another number.
#[test]
fn an_older_copy_of_a_spare_is_refused_in_any_order() {
    let devices = blank(5, DATA);
    create(&devices[..3], &CreateOptions { spares: 1, ..small(Level::Raid1) }).close().unwrap();
    let mut bytes = vec![0; usize::try_from(devices[2].size_bytes()).unwrap()];
    devices[2].read_at(0, &mut bytes).unwrap();
    devices[4].write_at(0, &bytes).unwrap();
    let array = open(&devices[..2]);
    assert_eq!(array.add(devices[3].clone()).unwrap(), 2);
    array.close().unwrap();
    let array = open(&devices[..4]);
    fill(&array, 1);
    array.close().unwrap();
    assert_eq!([stored_number(&devices[2]), stored_number(&devices[4])], [3, 2]);

    for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [0, 4, 3, 2, 1]] {
        let given = order.map(|at: usize| devices[at].clone()).to_vec();
        let error = Array::open(given, ArrayOptions::default()).unwrap_err().to_string();
        assert!(error.contains("one of them is a copy of the other; give only one"), "{error}");
    }
}

/// Bytes of the superblock, which lies 4 KiB into the device.
const SUPERBLOCK: u64 = 4096;

fn stored_number(device: &Device) -> u32 {
    let mut number = [0; 4];
    device.read_at(SUPERBLOCK + 160, &mut number).unwrap();
    u32::from_le_bytes(number)
}

/// Changes a superblock, and seals it.
fn change_superblock(device: &Device, change: impl FnOnce(&mut [u8])) {
    let mut bytes = vec![0; 4096];
    device.read_at(SUPERBLOCK, &mut bytes).unwrap();
    change(&mut bytes);
    bytes[216..220].fill(0);
    let roles = u32::from_le_bytes(bytes[220..224].try_into().unwrap()) as usize;
    let sum: u64 = bytes[..256 + 2 * roles]
        .chunks(4)
        .map(|word| {
            let mut padded = [0; 4];
            padded[..word.len()].copy_from_slice(word);
            u64::from(u32::from_le_bytes(padded))
        })
        .sum();
    bytes[216..220].copy_from_slice(&((sum & 0xffff_ffff) as u32 + (sum >> 32) as u32).to_le_bytes());
    device.write_at(SUPERBLOCK, &bytes).unwrap();
}

#[test]
fn a_spare_whose_number_does_not_fit_the_tables_gets_another_one() {
    let devices = blank(3, DATA);
    create(&devices, &CreateOptions { spares: 1, ..small(Level::Raid1) }).close().unwrap();
    // The list of bad blocks of the members follows the first KiB of the superblock, so that tables have 384 entries.
    for device in &devices[..2] {
        change_superblock(device, |bytes| bytes[188..192].copy_from_slice(&2_i32.to_le_bytes()));
        device.write_at(SUPERBLOCK + 1024, &[0xff; 3072]).unwrap();
    }
    change_superblock(&devices[2], |bytes| {
        bytes[160..164].copy_from_slice(&500_u32.to_le_bytes());
        bytes[220..224].copy_from_slice(&501_u32.to_le_bytes());
        bytes[256 + 256..256 + 2 * 501].fill(0xff);
    });
    let array = open(&devices[..2]);
    assert_eq!(array.add(devices[2].clone()).unwrap(), 2);
    array.close().unwrap();
    assert_eq!(open(&devices).status().members.len(), 3);
}

/// What lies behind the table of roles was overwritten, or the superblocks became unreadable.
#[test]
fn a_spare_whose_number_no_table_has_room_for_is_opened_with_another_one() {
    for (number, list_is_near) in [(500, true), (1920, false), (2500, false), (u32::MAX, false)] {
        let devices = blank(3, DATA);
        create(&devices, &CreateOptions { spares: 1, ..small(Level::Raid1) }).close().unwrap();
        for device in devices[..2].iter().filter(|_| list_is_near) {
            change_superblock(device, |bytes| bytes[188..192].copy_from_slice(&2_i32.to_le_bytes()));
            device.write_at(SUPERBLOCK + 1024, &[0xff; 3072]).unwrap();
        }
        change_superblock(&devices[2], |bytes| bytes[160..164].copy_from_slice(&number.to_le_bytes()));
        let behind = |device: &Device| {
            let mut bytes = vec![0; 8192 - 1024];
            device.read_at(SUPERBLOCK + 1024, &mut bytes).unwrap();
            bytes
        };
        let before: Vec<_> = devices.iter().map(behind).collect();
        let array = open(&devices);
        let content = fill(&array, 1);
        array.close().unwrap();
        assert_eq!(devices.iter().map(behind).collect::<Vec<_>>(), before, "{number}");
        let array = open(&devices);
        let members = array.status().members;
        assert_eq!(members.iter().map(|member| member.number).collect::<Vec<_>>(), [0, 1, 2], "{number}");
        assert_eq!(stored_number(&devices[2]), 2, "{number}");
        assert_same(&read_all(&array), &content);
    }
}

/// The spare has the number of the member that took the role while the spare was not there.
#[test]
fn a_missing_member_is_noticed_where_a_spare_has_its_number() {
    let devices = blank(4, DATA);
    create(&devices[..3], &CreateOptions { spares: 1, ..small(Level::Raid1) }).close().unwrap();
    let array = open(&devices[..2]);
    array.fail(1).unwrap();
    array.remove(1).unwrap();
    assert_eq!(array.add(devices[3].clone()).unwrap(), 2);
    assert!(array.wait_for_sync(LONG));
    let content = fill(&array, 1);
    array.close().unwrap();

    let given = [devices[0].clone(), devices[2].clone()];
    let error = Array::open(given.to_vec(), ArrayOptions::default()).unwrap_err().to_string();
    assert!(error.contains("list as active is missing (role 1)"), "{error}");
    let array = open_degraded(&given);
    assert!(array.wait_for_sync(LONG));
    assert_same(&read_all(&array), &content);
    assert_eq!(check(&array), 0);
    array.close().unwrap();
    assert_eq!(stored_number(&devices[2]), 3);
}

/// Tables of 128 entries fill the first sector of a superblock.
#[test]
fn a_number_that_makes_the_tables_grow_is_given_only_where_no_other_is_free() {
    let devices = blank(129, 64 << 10);
    let number_200 = |device: &Device| {
        change_superblock(device, |bytes| {
            bytes[160..164].copy_from_slice(&200_u32.to_le_bytes());
            bytes[220..224].copy_from_slice(&201_u32.to_le_bytes());
            bytes[256 + 256..256 + 2 * 201].fill(0xff);
        });
    };
    let entries = |device: &Device| {
        let mut entries = [0; 4];
        device.read_at(SUPERBLOCK + 220, &mut entries).unwrap();
        u32::from_le_bytes(entries)
    };
    create(&devices[..3], &CreateOptions { spares: 1, ..small(Level::Raid1) }).close().unwrap();
    number_200(&devices[2]);
    let array = open(&devices[..3]);
    fill(&array, 1);
    array.close().unwrap();
    assert_eq!((stored_number(&devices[2]), entries(&devices[0])), (2, 128));
    number_200(&devices[2]);
    let array = open(&devices[..2]);
    assert_eq!(array.add(devices[2].clone()).unwrap(), 2);
    array.close().unwrap();
    assert_eq!(entries(&devices[0]), 128);

    create(&devices[..128], &CreateOptions { spares: 126, ..small(Level::Raid1) }).close().unwrap();
    let array = open(&devices[..128]);
    assert_eq!(array.add(devices[128].clone()).unwrap(), 128);
    array.close().unwrap();
    assert_eq!(entries(&devices[0]), 129);
    assert_eq!(open(&devices).status().members.len(), 129);
}

#[test]
fn a_spare_whose_number_a_failed_device_got_is_left_out_with_advice() {
    let devices = blank(4, DATA);
    create(&devices[..3], &CreateOptions { spares: 1, ..small(Level::Raid1) }).close().unwrap();
    let array = open(&devices[..2]);
    assert_eq!(array.add(devices[3].clone()).unwrap(), 2);
    array.fail(2).unwrap();
    array.close().unwrap();
    let array = open(&devices[..3]);
    let status = array.status();
    assert_eq!((status.members.len(), status.warnings.len()), (2, 1));
    assert!(status.warnings[0].ends_with("add it again (`undercroft md add`)"), "{:?}", status.warnings);
    array.add(devices[2].clone()).unwrap();
    array.close().unwrap();
    assert_eq!(open(&devices[..3]).status().members.len(), 3);
}
