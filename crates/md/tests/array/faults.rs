//! Members fail, and the array goes on as long as it can.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use undercroft_block::{BlockDevice as _, Device};
use undercroft_md::{Array, Duty, Level};

use super::support::{
    LONG, assert_same, blank, check, create, fill, open, pattern, read_all, small, switched,
};

const DATA: u64 = 256 << 10;

const REDUNDANT: [(Level, usize); 5] =
    [(Level::Raid1, 3), (Level::Raid4, 4), (Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10, 4)];

fn faulty(array: &Array) -> Vec<u32> {
    let members = array.status().members;
    members.iter().filter(|member| member.duty == Duty::Faulty).map(|member| member.number).collect()
}

/// Without the members of these numbers.
fn rest(devices: &[Device], gone: &[usize]) -> Vec<Device> {
    let left = devices.iter().enumerate().filter(|(at, _)| !gone.contains(at));
    left.map(|(_, device)| Arc::clone(device)).collect()
}

#[test]
fn a_member_lost_in_the_middle_of_writes_costs_nothing_that_was_answered() {
    for (level, members) in REDUNDANT {
        for lost in 0..members {
            let (switches, devices) = switched(members, DATA);
            let array = create(&devices, &small(level));
            let mut content = fill(&array, 1);
            for (round, chunk) in content.chunks_mut(5000).enumerate() {
                if round == 7 {
                    switches[lost].fails_writes.store(true, Ordering::SeqCst);
                }
                chunk.copy_from_slice(&pattern(round as u64 + 2, chunk.len()));
                array.write_at(round as u64 * 5000, chunk).unwrap();
            }
            assert_eq!(faulty(&array), [lost as u32], "{level:?}");
            assert_same(&read_all(&array), &content);
            array.flush().unwrap();
            drop(array);
            // The lost member is told apart, also when it is seen again.
            switches[lost].set_dead(false);
            let array = open(&devices);
            assert_eq!(array.status().degraded, 1, "{level:?}");
            assert_same(&read_all(&array), &content);
        }
    }
}

#[test]
fn a_member_that_cannot_be_flushed_has_failed() {
    let (switches, devices) = switched(4, DATA);
    let array = create(&devices, &small(Level::Raid5));
    let content = fill(&array, 1);
    switches[2].fails_flushes.store(true, Ordering::SeqCst);
    array.flush().unwrap();
    assert_eq!(faulty(&array), [2]);
    assert_same(&read_all(&array), &content);
}

#[test]
fn a_member_whose_superblock_cannot_be_written_has_failed() {
    let (switches, devices) = switched(4, DATA);
    let array = create(&devices, &small(Level::Raid5));
    switches[1].fails_writes.store(true, Ordering::SeqCst);
    // The first write has the superblocks say that the array is active.
    array.write_at(0, &[1; 512]).unwrap();
    assert_eq!(faulty(&array), [1]);
    drop(array);
    switches[1].set_dead(false);
    assert_eq!(open(&devices).status().degraded, 1);
}

#[test]
fn after_one_loss_too_many_nothing_is_written_and_the_rest_is_read() {
    for (level, members, losses) in
        [(Level::Raid5, 4, 2), (Level::Raid6, 5, 3), (Level::Raid1, 2, 2), (Level::Raid10, 4, 2)]
    {
        let (switches, devices) = switched(members, DATA);
        let array = create(&devices, &small(level));
        let content = fill(&array, 1);
        array.flush().unwrap();
        for switch in &switches[..losses] {
            switch.fails_writes.store(true, Ordering::SeqCst);
        }
        let size = array.size_bytes() as usize;
        let error = array.write_at(0, &pattern(2, size)).unwrap_err().to_string();
        let refused = array.write_at(0, &[0; 512]).unwrap_err().to_string();
        assert!(refused.contains("writes are refused since"), "{level:?}: {error}; {refused}");
        // What no failed write touched can still be read. A torn stripe may be old or new.
        let mut last = vec![0; 4096];
        for switch in &switches[..losses] {
            switch.fails_writes.store(false, Ordering::SeqCst);
        }
        array.read_at(0, &mut last).unwrap();
        let status = array.status();
        assert!(
            status.stopped.is_some() && status.state().contains("FAILED"),
            "{level:?}: {}",
            status.state()
        );
        drop(array);
        // The superblocks do not call for help that cannot be given: the array starts again with what is left.
        let array = open(&devices);
        let found = read_all(&array);
        let new = pattern(2, size);
        assert!((0..size).all(|at| found[at] == content[at] || found[at] == new[at]), "{level:?}");
    }
}

/// Of each member, the ranges on its list of bad blocks.
fn bad_blocks(array: &Array) -> Vec<usize> {
    array.status().members.iter().map(|member| member.bad_blocks).collect()
}

#[test]
fn a_member_goes_on_without_the_blocks_that_it_does_not_take() {
    for (level, members) in REDUNDANT {
        for bad in 0..members {
            let (switches, devices) = switched(members, DATA);
            let array = create(&devices, &small(level));
            fill(&array, 1);
            switches[bad].spoil(8192..40_960, 2);
            let mut content = fill(&array, 2);
            let expected: Vec<usize> = (0..members).map(|member| if member == bad { 4 } else { 0 }).collect();
            assert_eq!((faulty(&array), bad_blocks(&array)), (vec![], expected.clone()), "{level:?} {bad}");
            assert_same(&read_all(&array), &content);
            // The members know it before they are told to end.
            let found = undercroft_md::examine(&*devices[bad]).unwrap();
            assert_eq!(found.bad_blocks.unwrap().ranges.len(), 4, "{level:?}");
            array.close().unwrap();
            drop(array);
            let array = open(&devices);
            assert_eq!(bad_blocks(&array), expected);
            assert_same(&read_all(&array), &content);
            // Another member may still be lost where the redundancy allows for it: where it does not, the array says
            // so.
            if level == Level::Raid6 || level == Level::Raid1 {
                array.fail((bad as u32 + 1) % members as u32).unwrap();
                assert_same(&read_all(&array), &content);
            }
            // What is written well is good again, first in memory, then on the member.
            switches[bad].mend();
            content = fill(&array, 3);
            assert_eq!(bad_blocks(&array)[bad], 0);
            array.close().unwrap();
            assert_eq!(undercroft_md::examine(&*devices[bad]).unwrap().bad_blocks.unwrap().ranges.len(), 0);
            assert_same(&read_all(&array), &content);
        }
    }
}

#[test]
fn a_member_whose_list_is_full_has_failed() {
    let (switches, devices) = switched(3, 8 << 20);
    let array = create(&devices, &small(Level::Raid5));
    switches[1].spoil(0..8 << 20, 2);
    let content = fill(&array, 2);
    assert_eq!((faulty(&array), array.status().degraded), (vec![1], 1));
    assert_same(&read_all(&array), &content);
}

#[test]
fn a_spare_replaces_a_member_that_does_not_take_everything() {
    for (level, members) in REDUNDANT {
        let (switches, mut devices) = switched(members, DATA);
        devices.extend(blank(1, DATA));
        let mut new = small(level);
        new.spares = 1;
        let array = create(&devices, &new);
        let content = fill(&array, 1);
        switches[1].spoil(8192..12_288, 1);
        array.write_at(0, &content).unwrap();
        assert!(array.wait_for_sync(LONG));
        assert_eq!((array.status().degraded, faulty(&array)), (0, vec![1]), "{level:?}");
        assert_same(&read_all(&array), &content);
        assert_eq!(check(&array), 0, "{level:?}");
    }
}

#[test]
fn a_spare_takes_the_place_of_a_failed_member() {
    for (level, members) in REDUNDANT {
        let (switches, mut devices) = switched(members, DATA);
        devices.extend(blank(1, DATA));
        let mut new = small(level);
        new.spares = 1;
        let array = create(&devices, &new);
        let content = fill(&array, 1);
        switches[1].set_dead(true);
        array.write_at(100, &content[100..60_000]).unwrap();
        array.flush().unwrap();
        assert!(array.wait_for_sync(LONG));
        let status = array.status();
        assert_eq!((status.degraded, faulty(&array)), (0, vec![1]), "{level:?}: {status:?}");
        assert_same(&read_all(&array), &content);
        assert_eq!(check(&array), 0, "{level:?}");
        array.close().unwrap();
        // Now the spare is as good as the others.
        let array = super::support::open_degraded(&rest(&devices, &[0, 1]));
        assert_same(&read_all(&array), &content);
    }
}

#[test]
fn a_member_that_is_being_filled_may_fail_and_the_next_one_is_taken() {
    let (switches, mut devices) = switched(3, DATA);
    let (spare_switches, spares) = switched(2, DATA);
    devices.extend(spares);
    let mut new = small(Level::Raid5);
    new.spares = 2;
    let array = create(&devices, &new);
    let content = fill(&array, 1);
    array.limit_sync(std::num::NonZeroU64::new(64 << 10));
    switches[0].set_dead(true);
    array.write_at(0, &content[..4096]).unwrap();
    // Whichever comes first fills the place; its writes fail as soon as it is written to.
    spare_switches[0].fails_writes.store(true, Ordering::SeqCst);
    array.limit_sync(None);
    assert!(array.wait_for_sync(LONG));
    assert_eq!(array.status().degraded, 0, "{:?}", array.status());
    assert_same(&read_all(&array), &content);
    assert_eq!(check(&array), 0);
}

#[test]
fn a_second_loss_during_a_rebuild_keeps_what_can_be_read() {
    let (switches, mut devices) = switched(4, DATA);
    devices.extend(blank(1, DATA));
    let mut new = small(Level::Raid5);
    new.spares = 1;
    let array = create(&devices, &new);
    let content = fill(&array, 1);
    array.pause_sync(true);
    array.fail(0).unwrap();
    switches[1].fails_writes.store(true, Ordering::SeqCst);
    assert!(array.write_at(0, &pattern(2, array.size_bytes() as usize)).is_err());
    switches[1].fails_writes.store(false, Ordering::SeqCst);
    assert!(array.write_at(0, &[0]).unwrap_err().to_string().contains("switched device"));
    let mut end = vec![0; 8192];
    let at = content.len() - end.len();
    array.read_at(at as u64, &mut end).unwrap();
}
