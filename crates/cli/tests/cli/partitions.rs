//! Partitioned disks: one Linux partition needs no hint, several are listed.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
            "{path}?part=1 holds no filesystem that this program knows; it opens ext2, ext3, ext4 and XFS, on a whole disk or in a partition"
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

/// Makes a file of this size in MiB, and has a command put something on it.
fn volume(dir: &Path, name: &str, mib: u64, command: &str) -> PathBuf {
    let path = dir.join(name);
    fs::File::create(&path).unwrap().set_len(mib << 20).unwrap();
    if !command.is_empty() {
        tool(&command.replace("FILE", name), dir);
    }
    path
}

/// What blkid says of a file or of a part of it, by name.
fn blkid(path: &Path, offset: u64, size: u64) -> BTreeMap<String, String> {
    let path = path.display();
    let told = tool(&format!("blkid -p -O {offset} -S {size} -o export {path}"), Path::new("/"));
    told.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

/// Each kind of content that Linux's own tools make, compared with blkid; places and types, with sfdisk.
#[test]
fn info_lists_partitions_with_what_they_hold_and_what_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let kinds = [
        ("vfat", 40, "mkfs.vfat -F 32 -n BOOT FILE"),
        ("fat16", 20, "mkfs.vfat -F 16 -n OLD FILE"),
        ("ext4", 20, "mke2fs -q -F -t ext4 -L root FILE"),
        ("ext3", 20, "mke2fs -q -F -t ext3 -L three FILE"),
        ("ext2", 20, "mke2fs -q -F -t ext2 FILE"),
        ("xfs", 310, "mkfs.xfs -q -L data FILE"),
        ("btrfs", 120, "mkfs.btrfs -q -L pool FILE"),
        ("swap", 10, "mkswap -q -L paging FILE"),
        ("luks1", 20, "cryptsetup luksFormat -q --type luks1 --pbkdf-force-iterations 1000 FILE key"),
        (
            "luks2",
            20,
            "cryptsetup luksFormat -q --type luks2 --label vault --pbkdf pbkdf2 --pbkdf-force-iterations 1000 FILE key",
        ),
        ("lvm", 20, ""),
        ("md", 20, ""),
        ("nothing", 20, ""),
    ];
    fs::write(dir.join("key"), "a secret").unwrap();
    let sizes: Vec<String> =
        kinds.iter().map(|(name, mib, _)| format!("size={mib}MiB, name={name}")).collect();
    // The third partition begins 50 MiB behind the second.
    let mut script = format!("label: gpt\n{}\n", sizes.join("\n"));
    script = script.replacen("size=20MiB, name=ext4", "start=111MiB, size=20MiB, name=ext4", 1);
    let disk = volume(dir, "disk.img", 1000, "");
    let mut sfdisk = Command::new("sfdisk")
        .args(["-q", "disk.img"])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    sfdisk.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(sfdisk.wait().unwrap().success());
    let table: serde_json::Value = serde_json::from_str(&tool("sfdisk --json disk.img", dir)).unwrap();
    let theirs = table["partitiontable"]["partitions"].as_array().unwrap();
    for ((name, mib, command), place) in kinds.iter().zip(theirs) {
        let file = volume(dir, name, *mib, command);
        match *name {
            "lvm" => {
                let device = tool(&format!("losetup -f --show {}", file.display()), dir);
                let device = device.trim();
                tool(&format!("pvcreate -q -y {device}"), dir);
                tool(&format!("losetup -d {device}"), dir);
            }
            "md" => {
                let made = undercroft([
                    "md",
                    "create",
                    "-l",
                    "1",
                    "--name",
                    "mirror",
                    file.to_str().unwrap(),
                    "missing",
                ]);
                assert_eq!(made.code, 0, "{}", made.stderr);
            }
            _ => {}
        }
        let start = place["start"].as_u64().unwrap() / 2048;
        tool(&format!("dd if={name} of=disk.img bs=1M seek={start} conv=notrunc,sparse status=none"), dir);
    }
    let path = disk.to_str().unwrap();
    let told = undercroft(["info", "--json", path]).json();
    assert_eq!(told["disk"]["table"], "gpt");
    assert_eq!(told["disk"]["id"].as_str().unwrap().to_uppercase(), table["partitiontable"]["id"]);
    let ours = told["disk"]["partitions"].as_array().unwrap();
    assert_eq!(ours.len(), theirs.len());
    for ((our, their), (name, ..)) in ours.iter().zip(theirs).zip(kinds) {
        let (start, size) = (our["start_bytes"].as_u64().unwrap(), our["size_bytes"].as_u64().unwrap());
        assert_eq!(Some(start), their["start"].as_u64().map(|sectors| sectors * 512), "{name}");
        assert_eq!(Some(size), their["size"].as_u64().map(|sectors| sectors * 512), "{name}");
        assert_eq!(our["type"].as_str().unwrap().to_uppercase(), their["type"].as_str().unwrap(), "{name}");
        assert_eq!(
            (&our["name"], our["uuid"].as_str().unwrap().to_uppercase()),
            (&name.into(), their["uuid"].as_str().unwrap().into())
        );
        if name == "nothing" {
            assert_eq!(our["holds"], serde_json::Value::Null);
            continue;
        }
        let found = blkid(&disk, start, size);
        let held = &our["holds"];
        assert_eq!(held["format"].as_str(), found.get("TYPE").map(String::as_str), "{name}");
        assert_eq!(held["uuid"].as_str(), found.get("UUID").map(String::as_str), "{name}: {held}");
        let label = held["label"].as_str().filter(|label| !label.is_empty());
        assert_eq!(label, found.get("LABEL").map(String::as_str), "{name}: {held}");
    }
    let free: Vec<u64> = told["disk"]["free"]
        .as_array()
        .unwrap()
        .iter()
        .map(|free| free["size_bytes"].as_u64().unwrap() >> 20)
        .collect();
    assert_eq!(free[0], 50);
    let text = undercroft(["info", path]).text();
    for part in [
        "disk of 1000 MiB, GPT",
        "an ext4 filesystem \"root\"",
        "a LUKS volume \"vault\"",
        "50 MiB",
        "free",
        "nothing that is known",
        "?part=N",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Logical partitions of an MBR, and an image that ends within a partition.
#[test]
fn info_lists_logical_partitions_and_says_what_is_cut_short() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let disk = volume(dir, "disk.img", 100, "");
    let script = "label: dos\ndisk.img1 : size=20MiB, bootable\ndisk.img2 : size=70MiB, type=5\n\
                  disk.img5 : size=10MiB\ndisk.img6 : size=12MiB, type=82\n";
    let mut sfdisk = Command::new("sfdisk")
        .args(["-q", "disk.img"])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    sfdisk.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(sfdisk.wait().unwrap().success());
    let path = disk.to_str().unwrap();
    undercroft(["mkfs", "ext2", &format!("{path}?part=1"), "-L", "first"]).succeeded();
    let told = undercroft(["info", "--json", path]).json();
    let numbers: Vec<u64> = told["disk"]["partitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["number"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, [1, 2, 5, 6]);
    let text = undercroft(["info", path]).text();
    assert!(text.contains("logical partitions") && text.contains("Linux swap"), "{text}");
    fs::File::options().write(true).open(&disk).unwrap().set_len(30 << 20).unwrap();
    let told = undercroft(["info", "--json", path]).json();
    let cut: Vec<bool> = told["disk"]["partitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["is_cut_short"].as_bool().unwrap())
        .collect();
    // Where the sixth would be told lies past the end.
    assert_eq!(cut, [false, true, true]);
    assert!(!told["disk"]["damage"].as_array().unwrap().is_empty(), "{told}");
    assert!(undercroft(["info", path]).text().contains("reaches past the end of the disk"));
    let first = undercroft(["info", "--json", &format!("{path}?part=1")]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    assert!(first.stderr.contains("should hold an extended boot record and does not"), "{}", first.stderr);
    let told: serde_json::Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!(told["label"], "first");
}
