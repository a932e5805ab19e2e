//! `label` and `uuid`: blkid and the filesystems' own tools show what was set, and their checks find nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{PROGRAM, make_filesystem, run, tool, undercroft};

const UUID: &str = "c1b9d5a2-f162-11cf-9ece-0020afc76f16";

fn blkid(image: &Path, tag: &str) -> String {
    let output = Command::new("blkid").args(["-p", "-o", "value", "-s", tag]).arg(image).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn assert_sound(family: &str, image: &Path) {
    let dir = image.parent().unwrap();
    match family {
        "xfs" => tool(&format!("xfs_repair -n {}", image.display()), dir),
        _ => tool(&format!("e2fsck -fn {}", image.display()), dir),
    };
    undercroft(["check", image.to_str().unwrap()]).succeeded();
}

#[test]
fn labels_are_shown_and_changed() {
    let dir = tempfile::tempdir().unwrap();
    for (family, size, longest) in [("ext4", "64M", 16), ("ext2", "20M", 16), ("xfs", "300M", 12)] {
        let image = dir.path().join(family);
        let path = image.to_str().unwrap();
        undercroft(["mkfs", family, path, "--size", size]).succeeded();
        assert_eq!(undercroft(["label", path]).text(), "\n");
        let text = undercroft(["label", path, "data"]).text();
        assert!(text.contains("has the label data now"), "{text}");
        assert_eq!(
            (undercroft(["label", path]).text().as_str(), blkid(&image, "LABEL").as_str()),
            ("data\n", "data")
        );
        let long = "x".repeat(longest);
        let report = undercroft(["label", path, &long, "--json"]).json();
        assert_eq!((&report["label"], &report["changed"]), (&long.as_str().into(), &true.into()));
        assert_eq!(blkid(&image, "LABEL"), long);
        let report = undercroft(["label", path, &long, "--json"]).json();
        assert_eq!((&report["label"], &report["changed"]), (&long.as_str().into(), &false.into()));
        let before = fs::read(&image).unwrap();
        let refusal = undercroft(["label", path, &format!("{long}y")]).failed(2);
        assert!(refusal.contains(&format!("at most {longest} bytes")), "{refusal}");
        assert!(fs::read(&image).unwrap() == before, "{family}: the image has changed");
        assert_eq!(undercroft(["label", path, "--json"]).json()["label"], long.as_str());
        assert_sound(family, &image);
        undercroft(["label", path, ""]).succeeded();
        assert_eq!(blkid(&image, "LABEL"), "");
        assert_sound(family, &image);
    }
    // All copies have it.
    let path = dir.path().join("xfs");
    undercroft(["label", path.to_str().unwrap(), "copied"]).succeeded();
    for group in 0..4 {
        let output = Command::new("xfs_db")
            .args(["-r", "-c", &format!("sb {group}"), "-c", "print fname"])
            .arg(&path)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(told.contains("copied"), "group {group}: {told}");
    }
    assert!(tool(&format!("xfs_admin -l {}", path.display()), dir.path()).contains("copied"));
}

#[test]
fn a_uuid_is_shown_and_changed() {
    let dir = tempfile::tempdir().unwrap();
    for (family, size) in [("ext4", "64M"), ("ext2", "20M"), ("xfs", "300M")] {
        let image = dir.path().join(family);
        let path = image.to_str().unwrap();
        make_filesystem(&image, family, size);
        let first = undercroft(["uuid", path]).text().trim().to_owned();
        assert_eq!(blkid(&image, "UUID"), first);
        let report = undercroft(["uuid", path, UUID, "--json"]).json();
        assert_eq!(report["uuid"], UUID, "{report}");
        assert_eq!((&report["uuid_before"], &report["changed"]), (&first.as_str().into(), &true.into()));
        let feature = (family == "xfs").then_some("META_UUID");
        assert_eq!(report["got_feature"].as_str(), feature, "{report}");
        assert_eq!(blkid(&image, "UUID"), UUID);
        assert_sound(family, &image);
        undercroft(["uuid", path, "random"]).succeeded();
        let random = undercroft(["uuid", path]).text().trim().to_owned();
        assert!(random != UUID && random != first, "{random}");
        assert_sound(family, &image);
        // By mke2fs's and tune2fs's word, and by xfs_admin's.
        undercroft(["uuid", path, "time"]).succeeded();
        let of_time = blkid(&image, "UUID");
        assert_eq!(of_time.as_bytes()[14], b'1', "{of_time} is of the version that has the time");
        assert_sound(family, &image);
        undercroft(["tune", path, "-U", "TIME"]).succeeded();
        let again = blkid(&image, "UUID");
        assert!(again != of_time && again.as_bytes()[14] == b'1', "{again}");
        undercroft(["tune", path, "-U", "generate"]).succeeded();
        assert_eq!(blkid(&image, "UUID").as_bytes()[14], b'4');
        assert_sound(family, &image);
        // It takes changes as before.
        undercroft(["label", path, "again"]).succeeded();
        assert_sound(family, &image);
        if family == "xfs" {
            undercroft(["uuid", path, "restore"]).succeeded();
            assert_eq!(blkid(&image, "UUID"), first);
            assert!(tool(&format!("xfs_admin -u {path}"), dir.path()).contains(&first));
        } else {
            let refusal = undercroft(["uuid", path, "restore"]).failed(4);
            assert!(refusal.contains("holds no XFS"), "{refusal}");
            undercroft(["uuid", path, "clear"]).succeeded();
            assert_eq!(undercroft(["uuid", path]).text().trim(), "00000000-0000-0000-0000-000000000000");
            undercroft(["uuid", path, "random"]).succeeded();
        }
        assert_sound(family, &image);
        let refusal = undercroft(["uuid", path, "5"]).failed(2);
        assert!(refusal.contains("is no UUID") && refusal.contains("random, clear or restore"), "{refusal}");
    }
}

#[test]
fn the_feature_that_comes_with_a_uuid_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let path = image.to_str().unwrap();
    tool(&format!("mke2fs -q -F -t ext4 -O metadata_csum,^metadata_csum_seed {path} 20M"), dir.path());
    let text = undercroft(["uuid", path, "random"]).text();
    assert!(text.contains("it has the feature metadata_csum_seed now"), "{text}");
    let report = undercroft(["uuid", path, "random", "--json"]).json();
    assert!(report.get("got_feature").is_none(), "{report}");
    // The same one again.
    let report = undercroft(["uuid", path, report["uuid"].as_str().unwrap(), "--json"]).json();
    assert_eq!(report["changed"], false, "{report}");
    assert_sound("ext4", &image);
}

#[test]
fn what_depends_on_a_uuid_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let path = image.to_str().unwrap();
    for features in ["^metadata_csum,uninit_bg", "stable_inodes"] {
        tool(&format!("mke2fs -q -F -t ext4 -O {features} {path} 20M"), dir.path());
        let before = fs::read(&image).unwrap();
        let refusal = undercroft(["uuid", path, "random"]).failed(4);
        assert!(refusal.contains(features.rsplit(',').next().unwrap()), "{refusal}");
        assert_eq!(undercroft(["uuid", path]).text().trim(), blkid(&image, "UUID"));
        assert!(fs::read(&image).unwrap() == before, "the image has changed");
        assert_sound("ext4", &image);
    }
}

/// By the process that has it mounted.
#[test]
fn a_label_changes_while_the_filesystem_is_mounted() {
    let dir = tempfile::tempdir().unwrap();
    let at = |args: &str| run(Command::new(PROGRAM).args(args.split(' ')).current_dir(dir.path()));
    fs::create_dir(dir.path().join("point")).unwrap();
    for (family, size) in [("ext4", "64M"), ("xfs", "300M")] {
        at(&format!("mkfs {family} disk.img --size {size}")).succeeded();
        at("mount disk.img point -o rw").succeeded();
        tool("touch point/file", dir.path());
        at("label disk.img mounted").succeeded();
        assert_eq!(at("label point").text(), "mounted\n");
        let uuid = at("uuid point").text();
        let refusal = at("uuid disk.img random").failed(3);
        assert!(refusal.contains("disk.img is mounted on"), "{refusal}");
        let refusal = at("uuid point random").failed(3);
        assert!(refusal.contains("disk.img is mounted on"), "{refusal}");
        at("unmount point").succeeded();
        assert_eq!((at("label disk.img").text(), at("uuid disk.img").text()), ("mounted\n".to_owned(), uuid));
        assert_sound(family, &dir.path().join("disk.img"));
        at("mount disk.img point").succeeded();
        let refusal = at("label point other").failed(7);
        assert!(refusal.contains("cannot change the label"), "{refusal}");
        at("unmount point").succeeded();
        fs::remove_file(dir.path().join("disk.img")).unwrap();
    }
}
