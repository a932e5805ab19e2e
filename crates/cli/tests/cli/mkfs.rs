//! `mkfs`: e2fsck checks what it makes, and nothing is overwritten by mistake.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::support::{PROGRAM, run, tool, undercroft};

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
    assert!(refusal.contains("an ext2 filesystem") && refusal.contains("--force"), "{refusal}");
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

/// As with mke2fs: an empty file gets its size, and a raw image that is too small becomes larger.
#[test]
fn a_file_that_is_empty_or_too_small_becomes_as_large_as_was_asked() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let path = image.to_str().unwrap();
    let len = || fs::metadata(&image).unwrap().len();
    fs::write(&image, "").unwrap();
    let message = undercroft(["mkfs", "ext4", path]).failed(2);
    assert_eq!(message, format!("{path} is empty; `--size 10G` makes it 10 GiB large"));
    undercroft(["mkfs", "ext4", path, "--size", "8M", "-O", "quota"]).failed(2);
    assert_eq!(len(), 0, "what could not become a filesystem is as before");
    undercroft(["mkfs", "ext4", path, "--size", "8M"]).text();
    assert_eq!(len(), 8 << 20);
    let message = undercroft(["mkfs", "ext4", path, "--size", "9M"]).failed(8);
    assert!(message.ends_with("; `--force` overwrites it"), "{message}");
    undercroft(["mkfs", "ext4", path, "--force", "--size", "9M", "-b", "3000"]).failed(2);
    assert_eq!(len(), 8 << 20);
    undercroft(["mkfs", "ext4", path, "--force", "--size", "9M"]).text();
    assert_eq!(len(), 9 << 20);
    tool(&format!("e2fsck -fn {path}"), dir.path());
}

/// The size behind the image, as mke2fs counts it.
#[test]
fn a_size_may_stand_where_mke2fs_has_it() {
    let dir = tempfile::tempdir().unwrap();
    for options in [&["9000"][..], &["12M"], &["3000", "-b", "4096"], &["9000", "-b", "1024"]] {
        tool(&format!("mke2fs -q -F -t ext4 theirs {}", options.join(" ")), dir.path());
        let ours = dir.path().join("ours");
        let _ = fs::remove_file(&ours);
        undercroft([&["mkfs", "-t", "ext4", ours.to_str().unwrap()], options].concat()).text();
        let count = |name: &str| {
            let dump = tool(&format!("dumpe2fs -h {name}"), dir.path());
            let line = |label| dump.lines().find(|line| line.starts_with(label)).unwrap().to_owned();
            (line("Block count:"), line("Block size:"))
        };
        assert_eq!(count("ours"), count("theirs"), "{options:?}");
        fs::remove_file(dir.path().join("theirs")).unwrap();
    }
    let twice = undercroft(["mkfs", "ext4", "none.img", "1G", "--size", "1G"]).failed(2);
    assert_eq!(twice, "the size is given twice; leave one out: `--size` or what stands behind the image");
}

/// QEMU's tool finds an image of the format, the size and the soundness that the name promises.
#[test]
fn a_name_that_ends_in_qcow2_makes_one() {
    let dir = tempfile::tempdir().unwrap();
    let info = |name: &str| -> serde_json::Value {
        serde_json::from_str(&tool(&format!("qemu-img info --output=json {name}"), dir.path())).unwrap()
    };
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(dir.path().join("empty.qcow2"), "").unwrap();
    let cases = [("a.qcow2", None), ("empty.qcow2", None), ("b.img", Some("qcow2"))];
    for (name, format) in cases {
        let image = path(name);
        let mut args = vec!["mkfs", "ext4", &image, "--size", "100M"];
        args.extend(format.iter().flat_map(|format| ["--format", format]));
        undercroft(args).text();
        let found = info(name);
        assert_eq!((&found["format"], &found["virtual-size"]), (&"qcow2".into(), &(100 << 20).into()));
        assert!(found["actual-size"].as_u64().unwrap() < 20 << 20, "{found}");
        tool(&format!("qemu-img check -q {name}"), dir.path());
        tool(&format!("qemu-img convert -O raw {name} {name}.raw"), dir.path());
        tool(&format!("e2fsck -fn {name}.raw"), dir.path());
        undercroft(["check", &image]).text();
    }
    undercroft(["mkfs", "ext4", &path("raw.qcow2"), "--size", "8M", "--format", "raw"]).text();
    assert_eq!(info("raw.qcow2")["format"], "raw");
    assert_eq!(fs::metadata(path("raw.qcow2")).unwrap().len(), 8 << 20);

    let a = path("a.qcow2");
    let message = undercroft(["mkfs", "ext4", &a, "--force", "--size", "200M"]).failed(2);
    let has = format!("{a} has 104857600 bytes, too few for 209715200");
    assert_eq!(message, format!("{has}; `qemu-img resize {a} 209715200` makes it larger"));
    let message = undercroft(["mkfs", "ext4", &a, "--force", "--format", "raw"]).failed(2);
    assert_eq!(message, format!("{a} is a qcow2 image already; leave `--format` off, or remove the file"));
    let message = undercroft(["mkfs", "ext4", &path("c.vmdk"), "--size", "8M"]).failed(4);
    assert!(message.contains("images of the format vmdk are not made"), "{message}");
    undercroft(["mkfs", "ext4", &path("c.qcow2"), "--size", "8M", "-O", "quota"]).failed(2);
    assert!(!dir.path().join("c.vmdk").exists() && !dir.path().join("c.qcow2").exists());
}

#[test]
fn an_identifier_may_be_asked_for_by_mke2fs_words() {
    let dir = tempfile::tempdir().unwrap();
    let uuid = |word: &str| {
        let args = ["mkfs", "-F", "-q", "-U", word, "ext4", "new.img", "--size", "8M"];
        run(Command::new(PROGRAM).args(args).current_dir(dir.path())).succeeded();
        tool("e2fsck -fn new.img", dir.path());
        run(Command::new(PROGRAM).args(["info", "--json", "new.img"]).current_dir(dir.path())).json()["uuid"]
            .to_string()
    };
    assert_ne!(uuid("random"), uuid("random"));
    assert_eq!(uuid("clear"), "\"00000000-0000-0000-0000-000000000000\"");
}
