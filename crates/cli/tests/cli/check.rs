//! `check`: what it says, as text and JSON, and e2fsck's exit codes.

use undercroft_oracle::Image;

use crate::support::{small, undercroft};

fn image() -> Image {
    small(&[("/a/file", "content"), ("/b", "more")])
}

fn args(image: &Image) -> [&str; 3] {
    ["check", "--json", image.path().to_str().unwrap()]
}

#[test]
fn a_clean_image_ends_in_zero() {
    let image = image();
    let text = undercroft(["check", image.path().to_str().unwrap()]).text();
    assert!(text.contains(": clean; ") && text.lines().count() == 1, "{text}");
    let report = undercroft(args(&image)).json();
    assert_eq!(report["clean"], true);
    assert_eq!(report["directories"], 3);
}

#[test]
fn damage_is_told_by_inode_and_code_and_ends_in_four() {
    let image = image();
    image.debugfs_write(&["set_inode_field /b links_count 5"]).unwrap();
    let run = undercroft(args(&image));
    assert_eq!((run.code, run.stderr.as_str()), (4, ""));
    let report: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let finding = &report["findings"][0];
    assert_eq!(finding["code"], "link-count");
    assert!(finding["inode"].is_u64() && finding["detail"].as_str().unwrap().contains('5'), "{finding}");
    let run = undercroft(["check", image.path().to_str().unwrap()]);
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(text.contains("(link-count)") && text.contains("1 finding;"), "{text}");
}

#[test]
fn what_cannot_be_checked_ends_in_eight_and_nonsense_in_sixteen() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("zeroes");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let refusal = undercroft(["check", path.to_str().unwrap()]).failed(8);
    assert!(refusal.contains("no filesystem"), "{refusal}");
    undercroft(["check", "/nonexistent"]).failed(8);
    undercroft(["check", "/nonexistent?part=x"]).failed(16);
    assert_eq!(undercroft(["check", "--nonsense"]).code, 16);
    assert_eq!(undercroft(["info", "--nonsense"]).code, 2);
}
