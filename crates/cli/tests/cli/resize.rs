//! `resize`: smaller and larger again, and what is refused stays as it was.

use std::fs;

use crate::support::{make_filesystem, tool, undercroft};

#[test]
fn a_raw_image_becomes_as_small_as_it_can_be_and_larger_again() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a.img");
    make_filesystem(&image, "ext4", "256M");
    let path = image.to_str().unwrap();
    let told = undercroft(["resize", path, "--print-minimum", "--json"]).json();
    assert_eq!(fs::metadata(&image).unwrap().len(), 256 << 20);
    let text = undercroft(["resize", path, "100M"]).text();
    assert!(text.contains("has become smaller, from 256 MiB to 100 MiB"), "{text}");
    assert_eq!(fs::metadata(&image).unwrap().len(), 100 << 20);
    tool(&format!("e2fsck -fn {path}"), dir.path());
    let report = undercroft(["resize", path, "-M", "--json"]).json();
    let now = fs::metadata(&image).unwrap().len();
    assert_eq!((&report["shrunk"], &report["size_bytes"]), (&true.into(), &now.into()), "{report}");
    assert_eq!(report["file_cut"], true);
    let estimate = told["minimum_bytes"].as_u64().unwrap();
    assert!(now <= estimate + estimate / 50, "{told} {now}");
    tool(&format!("e2fsck -fn {path}"), dir.path());
    let text = undercroft(["resize", path, "--minimum"]).text();
    assert!(text.contains("as small as it can be"), "{text}");
    let text = undercroft(["resize", path, "200M"]).text();
    assert!(text.contains("has grown from"), "{text}");
    tool(&format!("e2fsck -fn {path}"), dir.path());
}

#[test]
fn what_cannot_become_smaller_is_refused_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a.img");
    make_filesystem(&image, "ext4", "64M");
    let path = image.to_str().unwrap();
    let before = fs::read(&image).unwrap();
    let least = undercroft(["resize", path, "-P", "--json"]).json()["minimum_bytes"].clone();
    let refusal = undercroft(["resize", path, "1M"]).failed(2);
    assert!(refusal.contains(&format!("needs {least} bytes")) && refusal.contains("at least"), "{refusal}");
    assert!(undercroft(["resize", path, "1M", "-M"]).failed(2).contains("one of SIZE"));
    assert!(fs::read(&image).unwrap() == before, "the image has changed");
    let xfs = dir.path().join("x.img");
    make_filesystem(&xfs, "xfs", "300M");
    let path = xfs.to_str().unwrap();
    let before = fs::read(&xfs).unwrap();
    for size in ["200M", "-M", "-P"] {
        let refusal = undercroft(["resize", path, size]).failed(4);
        assert!(refusal.contains("XFS, which cannot be made smaller"), "{refusal}");
    }
    assert!(fs::read(&xfs).unwrap() == before, "the image has changed");
    let text = undercroft(["resize", path, "400M"]).text();
    assert!(text.contains("has grown from 300 MiB to 400 MiB"), "{text}");
}

#[test]
fn a_qcow2_image_and_a_partition_keep_their_length() {
    let dir = tempfile::tempdir().unwrap();
    tool("qemu-img create -q -f qcow2 a.qcow2 100M", dir.path());
    let image = dir.path().join("a.qcow2");
    let path = image.to_str().unwrap();
    undercroft(["mkfs", "ext4", path]).succeeded();
    let text = undercroft(["resize", path, "50M"]).text();
    assert!(text.contains("from 100 MiB to 50 MiB") && text.contains("qemu-img resize --shrink"), "{text}");
    undercroft(["check", path]).succeeded();
    let disk = dir.path().join("disk.img");
    fs::File::create(&disk).unwrap().set_len(200 << 20).unwrap();
    fs::write(dir.path().join("table"), "label: gpt\nstart=2048, size=204800\n").unwrap();
    let table = fs::File::open(dir.path().join("table")).unwrap();
    let made = std::process::Command::new("sfdisk").arg("-q").arg(&disk).stdin(table).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let part = format!("{}?part=1", disk.display());
    undercroft(["mkfs", "ext4", &part]).succeeded();
    let report = undercroft(["resize", &part, "40M", "--json"]).json();
    assert_eq!((&report["size_bytes"], &report["file_cut"]), (&(40 << 20).into(), &false.into()), "{report}");
    assert_eq!(fs::metadata(&disk).unwrap().len(), 200 << 20);
    undercroft(["check", &part]).succeeded();
    assert!(undercroft(["resize", &part]).text().contains("has grown from 40 MiB to 100 MiB"));
}
