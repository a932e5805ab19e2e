//! Partitioned disks: one Linux partition needs no hint, several are listed.

use std::fs;
use std::path::{Path, PathBuf};

use undercroft_oracle::Image;

use crate::support::{small, tool, undercroft};

/// A disk of 64 MiB that sgdisk has partitioned like this.
fn disk(dir: &Path, sgdisk: &str) -> PathBuf {
    let path = dir.join("disk.img");
    fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
    tool(&format!("sgdisk {sgdisk} disk.img"), dir);
    path
}

/// Puts a filesystem at a place on the disk.
fn place(disk: &Path, image: &Image, mib: u64) {
    let (from, to) = (image.path().display(), disk.display());
    tool(&format!("dd if={from} of={to} bs=1M seek={mib} conv=notrunc status=none"), Path::new("/"));
}

#[test]
fn the_only_linux_partition_needs_no_hint() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "-n 1:2048:+8M -t 1:ef00 -n 2:0:+16M -t 2:8300 -n 3:0:+8M -t 3:8200");
    place(&disk, &small(&[("/here", "found\n")]), 9);
    let path = disk.display().to_string();
    assert_eq!(undercroft(["cat", &path, "/here"]).text(), "found\n");
    assert_eq!(undercroft(["cat", &format!("{path}?part=2"), "/here"]).text(), "found\n");
    assert_eq!(undercroft(["info", "--json", &path]).json()["partition"], 2);
    assert!(undercroft(["info", &path]).text().contains(", partition 2"));
}

#[test]
fn several_are_listed_with_number_size_type_and_label() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(
        dir.path(),
        "-n 1:2048:+8M -t 1:ef00 -c 1:boot -n 2:0:+16M -t 2:8300 -n 3:0:+16M -t 3:8300 -c 3:home",
    );
    place(&disk, &small(&[("/second", "2\n")]), 9);
    place(&disk, &small(&[("/third", "3\n")]), 25);
    let path = disk.display().to_string();
    assert_eq!(
        undercroft(["ls", &path]).failed(3),
        format!(
            "{path} has 3 partitions (1: 8 MiB EFI system \"boot\", 2: 16 MiB Linux filesystem, \
             3: 16 MiB Linux filesystem \"home\"); name one as {path}?part=N"
        )
    );
    assert_eq!(undercroft(["cat", &format!("{path}?part=3"), "/third"]).text(), "3\n");
    let message = undercroft(["ls", &format!("{path}?part=1")]).failed(4);
    assert_eq!(
        message,
        format!(
            "{path}?part=1 holds no filesystem that this program knows; it opens ext2, ext3 and ext4, on a whole disk or in a partition"
        )
    );
    let message = undercroft(["ls", &format!("{path}?part=7")]).failed(3);
    assert!(message.starts_with(&format!("{path} has no partition 7; it has 3 partitions (")), "{message}");
}

#[test]
fn a_disk_without_a_table_has_no_partitions() {
    let image = small(&[("/x", "")]);
    let path = image.path().display().to_string();
    let message = undercroft(["ls", &format!("{path}?part=1")]).failed(3);
    assert_eq!(message, format!("{path} has no partition 1; it has no partition table: leave `?part=` off"));
}

#[test]
fn a_disk_without_linux_says_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk(dir.path(), "-n 1:2048:+8M -t 1:ef00");
    let path = disk.display().to_string();
    assert_eq!(
        undercroft(["ls", &path]).failed(4),
        format!(
            "{path} has 1 partition (1: 8 MiB EFI system), none of which holds a Linux filesystem; \
             name one to see what it holds, as {path}?part=N"
        )
    );
}
