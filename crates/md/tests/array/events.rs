//! What happens to an array is told to its listener.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};

use undercroft_block::BlockDevice as _;
use undercroft_md::{Array, Event, Level};

use super::support::{LONG, blank, create, fill, open_degraded, small, switched};

const DATA: u64 = 256 << 10;

fn watch(array: &Array) -> Receiver<Event> {
    let (send, told) = channel();
    array
        .watch(move |event| {
            // The test may have seen enough.
            let _ = send.send(event.clone());
        })
        .unwrap();
    told
}

/// Waits for an event of this name; others that come before it are given as well.
fn until(told: &Receiver<Event>, name: &str) -> Vec<Event> {
    let mut events = Vec::new();
    while events.last().is_none_or(|event: &Event| event.name() != name) {
        events.push(told.recv_timeout(LONG).unwrap_or_else(|_| panic!("no {name} after {events:?}")));
    }
    events
}

#[test]
fn a_lost_member_and_the_spare_that_takes_its_place_are_told() {
    let (switches, devices) = switched(4, DATA);
    let array = create(&devices[..3], &small(Level::Raid5));
    let told = watch(&array);
    fill(&array, 1);
    switches[1].fails_writes.store(true, Ordering::SeqCst);
    fill(&array, 2);
    let failed = until(&told, "Fail").pop().unwrap();
    assert!(failed.is_trouble());
    assert_eq!(failed.member(), Some("switched device"));
    assert!(failed.to_string().contains("switched off"), "the reason: {failed}");
    array.add(devices[3].clone()).unwrap();
    assert!(array.wait_for_sync(LONG));
    array.close().unwrap();
    let events: Vec<_> = told.iter().collect();
    let names: Vec<_> = events.iter().map(Event::name).collect();
    for name in ["SpareTaken", "SpareActive", "RebuildStarted", "RebuildFinished"] {
        assert_eq!(names.iter().filter(|found| **found == name).count(), 1, "{name} in {names:?}");
    }
    assert!(!names.contains(&"Stopped"), "closing is no trouble: {names:?}");
}

#[test]
fn what_is_wrong_at_the_start_is_told_and_bad_blocks_and_the_end_of_writing() {
    let (switches, devices) = switched(3, DATA);
    drop(create(&devices, &small(Level::Raid5)));
    let array = open_degraded(&devices[..2]);
    let told = watch(&array);
    assert_eq!(told.recv_timeout(LONG).unwrap(), Event::Degraded { missing: 1 });
    switches[0].set_dead(true);
    let _ = array.write_at(0, &[1; 8192]);
    let _ = array.write_at(65536, &[1; 8192]);
    let _ = array.flush();
    let stopped = until(&told, "Stopped").pop().unwrap();
    assert!(stopped.is_trouble(), "{stopped}");
}

#[test]
fn bad_blocks_are_told() {
    let (switches, devices) = switched(3, DATA);
    let array = create(&devices, &small(Level::Raid1));
    let told = watch(&array);
    switches[2].spoil(0..8192, 1);
    fill(&array, 1);
    let bad = until(&told, "BadBlocks").pop().unwrap();
    assert_eq!((bad.member(), bad.is_trouble()), (Some("switched device"), true));
}

#[test]
fn a_listener_of_a_healthy_array_hears_nothing() {
    let devices = blank(3, DATA);
    let array = create(&devices, &small(Level::Raid5));
    let told = watch(&array);
    fill(&array, 1);
    array.flush().unwrap();
    array.close().unwrap();
    assert_eq!(told.iter().collect::<Vec<_>>(), []);
}
