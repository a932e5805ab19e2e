//! `mkfs`: e2fsck judges what it makes, and nothing is overwritten by mistake.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::support::{tool, undercroft};

#[test]
fn an_image_is_made_sparse_and_sound() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("new.img");
    let path = image.to_str().unwrap();
    let report = undercroft(["mkfs", "ext4", path, "--size", "10G", "-L", "new", "-m", "1", "--json"]).json();
    assert_eq!(report["filesystem"], "ext4");
    assert_eq!(report["blocks"], (10_u64 << 30) / 4096);
    assert_eq!(report["superblock_backups"][0], 32768);
    let metadata = fs::metadata(&image).unwrap();
    assert_eq!(metadata.len(), 10 << 30);
    assert!(metadata.blocks() * 512 < 64 << 20, "{} blocks are allocated", metadata.blocks());
    tool(&format!("e2fsck -fn {path}"), dir.path());
    let info = undercroft(["info", "--json", path]).json();
    assert_eq!((&info["label"], &info["uuid"]), (&"new".into(), &report["uuid"]));
}

#[test]
fn options_are_those_of_mke2fs() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("new.img");
    let path = image.to_str().unwrap();
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let options = "-b 1024 -I 512 -N 1000 -O ^resize_inode,meta_bg -J size=2 -E stride=4,root_owner=5:6";
    let mut args = vec!["mkfs", "ext4", path, "--size", "32M", "-U", uuid];
    args.extend(options.split(' '));
    let text = undercroft(args).text();
    assert!(
        text.contains("ext4 of 32 MiB") && text.contains(uuid) && text.contains("journal of 2 MiB"),
        "{text}"
    );
    let dump = tool(&format!("dumpe2fs -h {path}"), dir.path());
    for line in
        ["Inode size:\t          512", "RAID stride:              4", "Block size:               1024"]
    {
        assert!(dump.contains(line), "{line} in {dump}");
    }
    let stat = undercroft(["stat", "--json", path, "/"]).json();
    assert_eq!((&stat["uid"], &stat["gid"]), (&5.into(), &6.into()));
}

#[test]
fn what_is_there_is_overwritten_with_force_only() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    let path = image.to_str().unwrap();
    undercroft(["mkfs", "ext2", path, "--size", "4M"]).succeeded();
    let before = fs::read(&image).unwrap();
    let refusal = undercroft(["mkfs", "ext4", path]).failed(8);
    assert!(refusal.contains("ext2, ext3 or ext4 filesystem") && refusal.contains("--force"), "{refusal}");
    assert!(fs::read(&image).unwrap() == before, "a refusal wrote to the image");
    let text = undercroft(["mkfs", "ext4", path, "--force"]).text();
    assert!(text.contains("ext4 of 4 MiB"), "{text}");
    tool(&format!("e2fsck -fn {path}"), dir.path());
}

#[test]
fn what_makes_no_sense_is_refused_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("none.img");
    let path = image.to_str().unwrap();
    let refused = |args: &[&str], code: i32, word: &str| {
        let mut all = vec!["mkfs", "ext4", path];
        all.extend(args);
        let refusal = undercroft(all).failed(code);
        assert!(refusal.contains(word), "{word}: {refusal}");
        assert!(!image.exists(), "{args:?} left a file behind");
    };
    refused(&[], 3, "--size");
    refused(&["--size", "10Q"], 2, "no size");
    refused(&["--size", "1G", "-O", "quota"], 2, "quota");
    refused(&["--size", "1G", "-b", "3000"], 2, "power of two");
    refused(&["--size", "1G", "-E", "packed"], 2, "packed");
    refused(&["--size", "1G", "-U", "x"], 2, "UUID");
}

/// A file is not made larger unasked, and its user is told how.
#[test]
fn a_file_that_is_empty_or_too_small_has_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let path = image.to_str().unwrap();
    fs::write(&image, "").unwrap();
    let message = undercroft(["mkfs", "ext4", path]).failed(2);
    assert_eq!(message, format!("{path} is empty; `truncate -s 1G {path}` makes it larger"));
    let message = undercroft(["mkfs", "ext4", path, "--size", "8M"]).failed(2);
    let remedy = format!("truncate -s 8388608 {path}");
    assert_eq!(message, format!("{path} has 0 bytes, too few for 8388608; `{remedy}` makes it larger"));
    tool(&remedy, dir.path());
    undercroft(["mkfs", "ext4", path, "--size", "8M"]).text();
    let message = undercroft(["mkfs", "ext4", path, "--force", "--size", "9M"]).failed(2);
    assert!(message.contains(&format!("truncate -s 9437184 {path}")), "{message}");
    tool(&format!("e2fsck -fn {path}"), dir.path());
}
