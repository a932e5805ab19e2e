//! The tour: every statement it makes about its image is true.

use std::process::Command;

use crate::support::{PROGRAM, run, undercroft};

#[test]
fn the_tour_finds_everything_right() {
    let tour = undercroft(["tour", "--json"]).json();
    assert_eq!(tour["verified"]["wrong"], serde_json::json!([]));
    assert_eq!(tour["verified"]["files"], 164);
    assert_eq!(tour["condemned_exists"], false);
    assert!(tour["recovery"]["blocks_replayed"].as_u64().unwrap() > 0);
    assert!(tour["last_entry"]["value"].as_str().unwrap().contains("only the journal knows of it"));
    assert_eq!(tour["hard_links"].as_array().unwrap().len(), 2);
    assert_eq!(tour["odd_names"].as_array().unwrap().len(), 3);
    assert_eq!(tour["sparse"]["data"].as_array().unwrap().len(), 3);
    assert_eq!(tour["latest_time"]["modified"], "2301-05-01T12:00:00.123456789Z");
    let xfs = &tour["xfs"];
    assert!(xfs["last_entry"]["value"].as_str().unwrap().contains("Only the log knows"));
    assert!(xfs["recovery"]["transactions"].as_u64().unwrap() > 0);
    let groups = xfs["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 3);
    for group in groups {
        let chunks = |tree: &str| group[tree].as_array().unwrap().clone();
        let with_free: Vec<_> =
            chunks("inobt").into_iter().filter(|chunk| chunk["free"].as_u64() > Some(0)).collect();
        assert_eq!(chunks("finobt"), with_free, "the tree of free inodes has the chunks with free inodes");
    }
    let array = &tour["array"];
    for verified in [&array["without_it"], &array["without_another"]] {
        assert_eq!((&verified["files"], &verified["wrong"]), (&164.into(), &serde_json::json!([])));
    }
    assert_eq!(array["mismatched_bytes"], 0);
}

#[test]
fn the_tour_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    run(Command::new(PROGRAM).arg("tour").env("TMPDIR", dir.path())).succeeded();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    // Where no file can be made the array is in memory.
    let nowhere = dir.path().join("none");
    run(Command::new(PROGRAM).arg("tour").env("TMPDIR", nowhere)).succeeded();
}

#[test]
fn the_tour_fits_a_terminal_and_leaves_it_alone() {
    let text = undercroft(["tour"]).text();
    assert!(!text.contains('\u{1b}'), "no colours in a pipe, and no escapes from names");
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
}
