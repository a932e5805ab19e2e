//! The tour: every statement it makes about its image is true.

use crate::support::undercroft;

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
}

#[test]
fn the_tour_fits_a_terminal_and_leaves_it_alone() {
    let text = undercroft(["tour"]).text();
    assert!(!text.contains('\u{1b}'), "no colours in a pipe, and no escapes from names");
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
}
