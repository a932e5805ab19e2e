//! `grow`: e2fsck checks what has grown, and what is refused stays as it was.

use std::fs::{self, File};
use std::process::Command;

use crate::support::{PROGRAM, make_filesystem, run, tool, undercroft};

#[test]
fn a_raw_image_is_made_longer_and_its_filesystem_larger() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a.img");
    make_filesystem(&image, "ext4", "64M");
    let path = image.to_str().unwrap();
    let text = undercroft(["grow", path, "1G"]).text();
    assert!(text.contains("has grown from 64 MiB to 1 GiB"), "{text}");
    assert_eq!(fs::metadata(&image).unwrap().len(), 1 << 30);
    tool(&format!("e2fsck -fn {path}"), dir.path());
    let text = undercroft(["grow", path]).text();
    assert!(text.contains("fills it already: 1 GiB"), "{text}");
    // A file that its user has made longer, and a size within it.
    File::options().write(true).open(&image).unwrap().set_len(3 << 30).unwrap();
    let report = undercroft(["grow", path, "2G", "--json"]).json();
    assert_eq!((&report["grown"], &report["size_bytes"]), (&true.into(), &(2_u64 << 30).into()));
    assert_eq!(report["size_bytes_before"], 1 << 30);
    assert_eq!(fs::metadata(&image).unwrap().len(), 3 << 30);
    tool(&format!("e2fsck -fn {path}"), dir.path());
}

#[test]
fn xfs_grows_too() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a.img");
    make_filesystem(&image, "xfs", "300M");
    let path = image.to_str().unwrap();
    let text = undercroft(["grow", path, "1G"]).text();
    assert!(text.contains("has grown from 300 MiB to 1 GiB"), "{text}");
    assert!(text.contains("262,144 blocks, 14 groups"), "{text}");
    tool(&format!("xfs_repair -n {path}"), dir.path());
    let refusal = undercroft(["grow", path, "500M"]).failed(2);
    assert!(refusal.contains("XFS cannot be made smaller"), "{refusal}");
    // A size between groups of which the last would be too short.
    let report = undercroft(["grow", path, "1075000000", "--json"]).json();
    assert_eq!((&report["grown"], &report["groups"]), (&true.into(), &14.into()), "{report}");
    assert!(report.get("inodes").is_none(), "{report}");
    undercroft(["check", path]).succeeded();
}

#[test]
fn what_cannot_grow_is_refused_and_its_file_stays_as_long_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a.img");
    make_filesystem(&image, "ext4", "64M");
    let path = image.to_str().unwrap();
    let refusal = undercroft(["grow", path, "32M"]).failed(2);
    assert!(refusal.contains("has 67108864 bytes") && refusal.contains("undercroft resize"), "{refusal}");
    let refusal = undercroft(["grow", path, "10Q"]).failed(2);
    assert!(refusal.contains("no size"), "{refusal}");
    assert_eq!(fs::metadata(&image).unwrap().len(), 64 << 20);
}

/// The rest is too short for a group of XFS.
#[test]
fn a_file_is_not_made_longer_where_the_filesystem_does_not_grow() {
    let dir = tempfile::tempdir().unwrap();
    let at = |args: &str| run(Command::new(PROGRAM).args(args.split(' ')).current_dir(dir.path()));
    let len = || fs::metadata(dir.path().join("disk.img")).unwrap().len();
    at("mkfs xfs disk.img --size 320M").succeeded();
    let nothing = (320 << 20) + 100_000;
    let report = at(&format!("grow --json disk.img {nothing}")).json();
    assert_eq!((&report["grown"], len()), (&false.into(), 320 << 20), "{report}");
    fs::create_dir(dir.path().join("point")).unwrap();
    at("mount disk.img point -o rw").succeeded();
    let report = at(&format!("grow --json disk.img {nothing}")).json();
    assert_eq!((&report["grown"], len()), (&false.into(), 320 << 20), "{report}");
    // The device does not remember the length that was given up.
    let report = at("grow --json disk.img").json();
    assert_eq!(report["grown"], false, "{report}");
    at("unmount point").succeeded();
    undercroft(["check", dir.path().join("disk.img").to_str().unwrap()]).succeeded();
}

/// One that does not grow the filesystem makes the file shorter again, and never by what another one has added.
#[test]
fn commands_that_grow_a_mounted_filesystem_take_turns() {
    let dir = tempfile::tempdir().unwrap();
    let at = |args: &str| run(Command::new(PROGRAM).args(args.split(' ')).current_dir(dir.path()));
    let image = dir.path().join("disk.img");
    at("mkfs xfs disk.img --size 320M").succeeded();
    fs::create_dir(dir.path().join("point")).unwrap();
    at("mount disk.img point -o rw").succeeded();
    for round in 0..8_u64 {
        let before = (320 << 20) + round * (80 << 20);
        let sizes = [before + 100_000, before + (80 << 20)];
        std::thread::scope(|scope| {
            for size in sizes.into_iter().chain([sizes[0]; 2]) {
                let at = &at;
                scope.spawn(move || at(&format!("grow disk.img {size}")));
            }
        });
        assert!(fs::metadata(&image).unwrap().len() >= sizes[1], "round {round}");
    }
    at("unmount point").succeeded();
    tool("xfs_repair -n disk.img", dir.path());
}

#[test]
fn the_end_of_a_partition_is_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    File::create(&image).unwrap().set_len(200 << 20).unwrap();
    let path = image.to_str().unwrap();
    fs::write(dir.path().join("table"), "label: gpt\nstart=2048, size=204800\nsize=100000\n").unwrap();
    let table = File::open(dir.path().join("table")).unwrap();
    let made = std::process::Command::new("sfdisk").args(["-q", path]).stdin(table).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let part = format!("{path}?part=1");
    undercroft(["mkfs", "ext4", &part, "--size", "20M"]).succeeded();
    let refusal = undercroft(["grow", &part, "150M"]).failed(4);
    assert!(refusal.contains("make it larger first"), "{refusal}");
    assert_eq!(fs::metadata(&image).unwrap().len(), 200 << 20);
    let report = undercroft(["grow", &part, "--json"]).json();
    assert_eq!(report["size_bytes"], 100 << 20);
    undercroft(["check", &part]).succeeded();
}

#[test]
fn a_qcow2_image_grows_within_its_size() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a.qcow2");
    let path = image.to_str().unwrap();
    tool(&format!("qemu-img create -q -f qcow2 {path} 500M"), dir.path());
    undercroft(["mkfs", "ext4", path, "--size", "50M"]).succeeded();
    let refusal = undercroft(["grow", path, "1G"]).failed(4);
    assert!(refusal.contains("qemu-img resize"), "{refusal}");
    let report = undercroft(["grow", path, "--json"]).json();
    assert_eq!(report["size_bytes"], 500 << 20);
    let raw = dir.path().join("raw");
    tool(&format!("qemu-img convert -O raw {path} {}", raw.display()), dir.path());
    tool(&format!("e2fsck -fn {}", raw.display()), dir.path());
}

/// In an array its size is the limit, and a missing member is no hindrance. What the members then hold is checked as
/// one image, put together by `md`.
#[test]
fn a_filesystem_in_an_array_grows_within_it() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &str| run(Command::new(PROGRAM).args(args.split(' ')).current_dir(dir.path()));
    run("md create -l 5 --chunk 64K --member-size 40M a b c d").succeeded();
    run("mkfs ext4 md:a,b,c,d --size 30M").succeeded();
    let refusal = run("grow md:a,b,c,d 1G").failed(4);
    assert!(refusal.contains("make it larger first"), "{refusal}");
    let report = run("grow --json md:a,b,c,d 60M").json();
    assert_eq!(report["size_bytes"], 60 << 20);
    fs::remove_file(dir.path().join("b")).unwrap();
    let degraded = run("grow --json md:a,c,d?degraded");
    assert_eq!(degraded.code, 0, "{}", degraded.stderr);
    assert!(degraded.stderr.contains("the array is degraded: it lacks 1 member"), "{}", degraded.stderr);
    let report: serde_json::Value = serde_json::from_slice(&degraded.stdout).unwrap();
    // Each member keeps 1 MiB for md.
    assert_eq!(report["size_bytes"], 117 << 20, "{report}");
    assert_eq!(run("check md:a,c,d?degraded").code, 0);
    File::create(dir.path().join("new")).unwrap().set_len(40 << 20).unwrap();
    assert_eq!(run("md add md:a,c,d?degraded new").code, 0);
    run("check md:a,c,d,new").succeeded();
}
