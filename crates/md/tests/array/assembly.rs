//! Arrays that Linux made are opened, whole and with each member missing, and hold what Linux read from them.

use sha2::{Digest as _, Sha256};
use undercroft_block::{BlockDevice as _, Device};
use undercroft_md::{Array, ArrayOptions};

use super::fixtures;
use super::support::{LONG, assert_same, check, fill, open, open_degraded, pattern, read_all};

fn sum(array: &Array) -> String {
    Sha256::digest(read_all(array)).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[track_caller]
fn assert_holds(array: &Array, manifest: &std::collections::BTreeMap<String, String>, what: &str) {
    assert_eq!(array.size_bytes().to_string(), manifest["md0_bytes"], "{what}");
    assert_eq!(sum(array), manifest["md0_sha256"], "{what}");
}

fn without(members: &[Device], missing: usize) -> Vec<Device> {
    members.iter().enumerate().filter(|(at, _)| *at != missing).map(|(_, member)| member.clone()).collect()
}

#[test]
fn arrays_of_linux_hold_what_linux_read() {
    for name in fixtures::ALL {
        let options = ArrayOptions { read_only: true, ..ArrayOptions::default() };
        let array =
            Array::open(fixtures::members(name), options).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_holds(&array, &fixtures::manifest(name), name);
    }
}

#[test]
fn arrays_of_linux_do_without_any_member() {
    for name in ["raid1", "raid10", "raid5-numbered", "raid6", "raid5-bitmap", "raid5-ppl"] {
        let count = fixtures::members(name).len();
        for missing in 0..count {
            let members = without(&fixtures::members(name), missing);
            let refused = Array::open(members.clone(), ArrayOptions::default()).unwrap_err().to_string();
            assert!(refused.contains("start the array degraded"), "{name}: {refused}");
            let array = open_degraded(&members);
            assert_eq!(array.status().degraded, 1, "{name}");
            assert_holds(&array, &fixtures::manifest(name), &format!("{name} without d{missing}"));
        }
    }
}

#[test]
fn raid6_of_linux_does_without_any_two_members() {
    for (first, second) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
        let members = without(&without(&fixtures::members("raid6"), second), first);
        assert_holds(&open_degraded(&members), &fixtures::manifest("raid6"), "two missing");
    }
}

#[test]
fn what_linux_left_unclean_is_made_consistent() {
    for name in ["raid5-bitmap-unclean", "raid5-ppl-unclean"] {
        let members = fixtures::members(name);
        let manifest = fixtures::manifest(name);
        let array = open(&members);
        assert!(array.wait_for_sync(LONG));
        assert_holds(&array, &manifest, name);
        assert_eq!(check(&array), 0, "{name}");
        array.close().unwrap();
        // Each member alone is what the others make of it.
        for missing in 0..members.len() {
            assert_holds(&open_degraded(&without(&members, missing)), &manifest, name);
            // It was only read: no member is out.
            assert_eq!(open(&members).status().degraded, 0, "{name}");
        }
    }
}

#[test]
fn arrays_of_linux_take_writes_and_keep_them() {
    for name in ["raid0", "raid1", "raid10", "raid5-numbered", "raid6"] {
        let members = fixtures::members(name);
        let array = open(&members);
        let content = fill(&array, 7);
        array.flush().unwrap();
        if array.status().geometry.level.is_redundant() {
            assert_eq!(check(&array), 0, "{name}");
        }
        array.close().unwrap();
        let again = open(&members);
        assert_same(&read_all(&again), &content);
        assert!(!again.status().needs_resync, "{name}");
    }
}

#[test]
fn a_member_that_missed_writes_is_left_out() {
    let members = fixtures::members("raid5-numbered");
    let array = open_degraded(&members[1..]);
    array.write_at(0, &pattern(3, 4096)).unwrap();
    array.close().unwrap();
    let array = open(&members);
    let status = array.status();
    assert_eq!((status.degraded, status.members.len()), (1, 3), "{status:?}");
    assert!(status.warnings.iter().any(|warning| warning.contains("left out")), "{:?}", status.warnings);
    let mut block = [0; 4096];
    array.read_at(0, &mut block).unwrap();
    assert_same(&block, &pattern(3, 4096));
}
