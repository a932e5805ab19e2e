//! Refusals say what to do, and what they say works.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{PROGRAM, Run, run, tool, undercroft};

fn at(dir: &Path, args: &str) -> Run {
    run(Command::new(PROGRAM).args(args.split(' ')).current_dir(dir))
}

fn with_image(size: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    undercroft(["mkfs", "ext4", dir.path().join("i").to_str().unwrap(), "--size", size]).succeeded();
    fs::write(dir.path().join("f"), "text").unwrap();
    dir
}

#[test]
fn an_image_that_needs_another_file_is_copied_where_it_cannot_be_allowed() {
    let dir = with_image("8M");
    let at = |args: &str| at(dir.path(), args);
    at("put i f /f").succeeded();
    tool("qemu-img create -q -f qcow2 -b i -F raw over.qcow2", dir.path());
    assert!(at("cat over.qcow2 /f").failed(3).ends_with("; `--allow-backing` allows it"));
    assert_eq!(at("cat --allow-backing over.qcow2 /f").text(), "text");
    for edit in ["put over.qcow2 f /g", "rm over.qcow2 /f", "shell over.qcow2 -c ls", "resize over.qcow2 16M"]
    {
        let refusal = at(edit).failed(3);
        let words = "; `undercroft image copy --allow-backing over.qcow2 NEW` makes an image that needs no other file";
        assert!(refusal.ends_with(words), "{edit}: {refusal}");
    }
    at("image copy --allow-backing over.qcow2 new.qcow2").succeeded();
    at("put new.qcow2 f /g").succeeded();
    assert_eq!(at("cat new.qcow2 /f").text(), "text");
}

#[test]
fn features_that_files_cannot_be_put_with_are_named() {
    let dir = with_image("8M");
    fs::create_dir(dir.path().join("d")).unwrap();
    for feature in ["bigalloc", "mmp"] {
        let refusal = at(dir.path(), &format!("mkfs ext4 new -O {feature} --size 64M --from d")).failed(4);
        assert_eq!(
            refusal,
            format!(
                "unsupported: the filesystem uses {feature}, with which this program can only read it; leave that feature off, or \
                 make the filesystem without `--from`"
            )
        );
        assert!(!dir.path().join("new").exists());
    }
}

#[test]
fn a_partition_that_is_too_small_for_xfs_is_to_be_larger() {
    let dir = with_image("8M");
    let refusal = at(dir.path(), "disk create d.img x=xfs:100M").failed(2);
    assert_eq!(
        refusal,
        "partition \"x\": an XFS of less than 300 MiB is not supported; make the partition larger, or its format ext4"
    );
    at(dir.path(), "disk create d.img x=xfs:300M").succeeded();
}

#[test]
fn users_of_reserved_blocks_are_numbers() {
    let dir = with_image("8M");
    for option in ["-u", "-g"] {
        let refused = at(dir.path(), &format!("tune i {option} www-data"));
        assert_eq!(refused.code, 2);
        assert!(refused.stderr.contains("give a number up to 65535"), "{}", refused.stderr);
        at(dir.path(), &format!("tune i {option} 33")).succeeded();
    }
    at(dir.path(), "tune i -u root").succeeded();
    let listed = tool("dumpe2fs -h i", dir.path());
    assert!(listed.contains("Reserved blocks uid:      0 "), "{listed}");
    assert!(listed.contains("Reserved blocks gid:      33 "), "{listed}");
}

#[test]
fn the_image_comes_first() {
    let dir = with_image("8M");
    let at = |args: &str| at(dir.path(), args);
    at("put i f /f").succeeded();
    let refusal = at("chmod 644 i /f").failed(2);
    assert_eq!(refusal, "there is no image 644; the image comes first: undercroft chmod i 644 PATH");
    let refusal = at("chown -R root:root i /f").failed(2);
    assert_eq!(
        refusal,
        "there is no image root:root; the image comes first: undercroft chown i root:root PATH"
    );
    at("chmod i 600 /f").succeeded();
    assert!(at("chmod i 6u0 /f").failed(2).contains("6u0 is no mode"));
}

#[test]
fn a_full_filesystem_can_become_larger() {
    let dir = with_image("8M");
    let at = |args: &str| at(dir.path(), args);
    fs::write(dir.path().join("large"), vec![7; 10 << 20]).unwrap();
    tool("tar -cf t.tar large", dir.path());
    for edit in ["put i large /large", "tar-in i t.tar /"] {
        let refusal = at(edit).failed(7);
        assert!(refusal.ends_with("; `undercroft resize` makes the filesystem larger"), "{refusal}");
    }
    at("resize i 32M").succeeded();
    at("put i large /large").succeeded();
}

#[test]
fn input_that_is_not_there_is_one_kind_of_failure() {
    let dir = with_image("8M");
    for args in [
        "mkfs ext4 new --from missing",
        "mkfs ext4 new --from f --owner-map missing",
        "disk create new --config missing",
        "disk create new --definitions missing",
        "disk create new a=raw:missing",
        "disk create new a=ext4:8M:missing",
        "put i missing /",
        "tar-in i missing /",
    ] {
        let refusal = at(dir.path(), args).failed(8);
        assert!(
            refusal.contains("missing") && refusal.ends_with("No such file or directory"),
            "{args}: {refusal}"
        );
        assert!(!dir.path().join("new").exists(), "{args}");
    }
    fs::write(dir.path().join("wrong.toml"), "[partition").unwrap();
    at(dir.path(), "disk create new --config wrong.toml").failed(2);
}

#[test]
fn what_is_mounted_is_in_use_for_every_command() {
    let dir = with_image("64M");
    let at = |args: &str| at(dir.path(), args);
    fs::create_dir(dir.path().join("point")).unwrap();
    at("mount -o rw i point").succeeded();
    let refusals = ["put i f /f", "uuid i random", "tune i -m 1", "resize i 16M", "resize i --minimum"]
        .map(|args| (args, at(args)));
    at("unmount point").succeeded();
    for (args, refused) in refusals {
        let refusal = refused.failed(3);
        assert!(
            refusal.contains("i is mounted on") && refusal.contains("undercroft unmount"),
            "{args}: {refusal}"
        );
    }
    at("resize i 16M").succeeded();
}
