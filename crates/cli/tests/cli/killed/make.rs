//! Images and disks that are made: absent, as before, or byte for byte what a run makes that is not killed.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::Path;
use std::process::Command;

use undercroft_oracle::Scratch;

use super::images::{LoopDevice, as_raw, copy, fill, shown, take_unfinished, tree_of};
use super::{Victim, wait_until_free};
use crate::support::{tool, undercroft};

/// A scratch directory with a tree of files.
fn scene(purpose: &str) -> Scratch {
    let scratch = Scratch::new(purpose).unwrap();
    let tree = scratch.path().join("tree");
    fill(&tree, 160, 30_000, 0);
    fs::write(tree.join("large"), vec![b'l'; 6 << 20]).unwrap();
    let boot = scratch.path().join("boot");
    fs::create_dir(&boot).unwrap();
    fs::write(boot.join("kernel"), vec![b'k'; 1 << 20]).unwrap();
    tool("tar -cf tree.tar tree", scratch.path());
    scratch
}

/// Whether two images have the same bytes.
fn is_same(one: &Path, other: &Path) -> bool {
    Command::new("cmp").arg("-s").arg(one).arg(other).status().unwrap().success()
}

/// Kills a command that makes the file `image`, where nothing is or, every other time, another file.
fn file_is_whole_or_as_before(dir: &Path, image: &str, args: &str, check: &dyn Fn(&Path)) {
    let path = dir.join(image);
    let is_there = Cell::new(true);
    let whole = dir.join("whole");
    let old = dir.join("older").with_extension(path.extension().unwrap());
    if !old.exists() {
        let words = format!("mkfs ext4 {} -q --size 20M --from {}/boot", old.display(), dir.display());
        undercroft(words.split(' ')).succeeded();
    }
    let mut fresh = || {
        is_there.set(!is_there.get());
        let _ = fs::remove_file(&path);
        if is_there.get() {
            copy(&old, &path);
        }
    };
    let mut ended = || {
        check(&as_raw(&path));
        copy(&as_raw(&path), &whole);
        assert_eq!(take_unfinished(dir, image, args), 0);
    };
    let mut judge = |told: &str| {
        wait_until_free(&path);
        let left = take_unfinished(dir, image, told) > 0;
        let is_as_before = path.exists() == is_there.get() && (!is_there.get() || is_same(&path, &old));
        assert!(is_as_before || is_same(&as_raw(&path), &whole), "{told}: it is neither as before nor whole");
        match (is_as_before, left) {
            (true, true) => "as before, with an unfinished file beside it",
            (true, false) => "as before",
            (false, true) => panic!("{told}: whole, and an unfinished file"),
            (false, false) => "whole",
        }
    };
    Victim { dir, args }.kill(&mut fresh, &mut ended, &mut judge);
}

#[test]
fn an_image_file_of_a_killed_mkfs_is_whole_or_as_before() {
    let scene = scene("killed-mkfs");
    let dir = scene.path();
    for (family, image, size, source) in [
        ("ext4", "a.img", "auto", "tree"),
        ("ext4", "a.qcow2", "64M", "tree.tar"),
        ("xfs", "x.img", "64M --small", "tree.tar"),
        ("xfs", "x.qcow2", "64M --small", "tree"),
    ] {
        let args = format!("mkfs {family} {image} -q --force --size {size} --seed one --from {source}");
        let check = |raw: &Path| {
            let mut expected = tree_of(&dir.join("tree"));
            if source == "tree.tar" {
                expected =
                    expected.into_iter().map(|(name, node)| (Path::new("tree").join(name), node)).collect();
                expected.insert("tree".into(), super::images::Node::Directory);
            }
            super::images::assert_same(&expected, &shown(raw, family), &args);
        };
        file_is_whole_or_as_before(dir, image, &args, &check);
    }
}

#[test]
fn an_image_file_of_a_killed_disk_create_is_whole_or_as_before() {
    let scene = scene("killed-disk");
    let dir = scene.path();
    for image in ["disk.img", "disk.qcow2"] {
        let args = format!(
            "disk create {image} -q --force --seed one esp=vfat:40M:boot root=ext4:min:tree data=xfs:300M:tree.tar swap=swap:8M"
        );
        let check = |raw: &Path| {
            assert!(tool(&format!("sgdisk -v {}", raw.display()), dir).contains("No problems found"));
            for (name, family) in [("root", "ext4"), ("data", "xfs")] {
                let part = format!("{}?part={name}", raw.display());
                undercroft(["disk", "extract", &part, dir.join("part").to_str().unwrap()]).succeeded();
                shown(&dir.join("part"), family);
                fs::remove_file(dir.join("part")).unwrap();
            }
        };
        file_is_whole_or_as_before(dir, image, &args, &check);
    }
}

/// Kills a command that writes to a block device, which holds an older filesystem.
fn device_is_whole_or_holds_nothing(dir: &Path, size: &str, args: &str, check: &dyn Fn(&Path)) {
    let (base, file) = (dir.join("base"), dir.join("device"));
    let base_path = base.to_str().unwrap();
    undercroft(["mkfs", "ext4", base_path, "-q", "--force", "--size", size]).succeeded();
    undercroft(["put", base_path, dir.join("tree/large").to_str().unwrap(), "/old"]).succeeded();
    let device = RefCell::new(None::<LoopDevice>);
    let node = dir.join("node");
    let mut fresh = || {
        drop(device.take());
        let _ = fs::remove_file(&file);
        copy(&base, &file);
        let made = LoopDevice::new(&file);
        let _ = fs::remove_file(&node);
        std::os::unix::fs::symlink(&made.0, &node).unwrap();
        device.replace(Some(made));
    };
    let whole = dir.join("whole");
    let mut ended = || {
        device.take().unwrap().end();
        check(&file);
        copy(&file, &whole);
    };
    let mut judge = |told: &str| {
        wait_until_free(&node);
        device.take().unwrap().end();
        if is_same(&file, &whole) {
            return "whole";
        }
        if is_same(&file, &base) {
            return "as before";
        }
        let held = Command::new("blkid").args(["-p", "-o", "export"]).arg(&file).output().unwrap();
        // 2 says that it knows nothing in it.
        assert_eq!(held.status.code(), Some(2), "{told}: {}", String::from_utf8_lossy(&held.stdout));
        let refused = undercroft(["ls", file.to_str().unwrap(), "/"]);
        assert_eq!(refused.code, 4, "{told}: {}", refused.stderr);
        let listed = undercroft(["disk", "list", file.to_str().unwrap()]);
        assert_eq!(listed.code, 4, "{told}: {}{}", String::from_utf8_lossy(&listed.stdout), listed.stderr);
        "holds nothing"
    };
    Victim { dir, args }.kill(&mut fresh, &mut ended, &mut judge);
    drop(device.take());
}

#[test]
fn a_device_of_a_killed_mkfs_is_whole_or_holds_nothing() {
    let scene = scene("killed-mkfs-device");
    let dir = scene.path();
    for (family, small) in [("ext4", ""), ("xfs", " --small")] {
        let args = format!("mkfs {family} node -q --force --seed one --from tree{small}");
        device_is_whole_or_holds_nothing(dir, "64M", &args, &|raw| {
            super::images::assert_same(&tree_of(&dir.join("tree")), &shown(raw, family), &args);
        });
    }
}

#[test]
fn a_device_of_a_killed_disk_create_is_whole_or_holds_nothing() {
    let scene = scene("killed-disk-device");
    let dir = scene.path();
    let args =
        "disk create node -q --force --seed one root=ext4:40M:tree swap=swap:8M rest=ext4:rest:tree.tar";
    device_is_whole_or_holds_nothing(dir, "128M", args, &|raw| {
        assert!(tool(&format!("sgdisk -v {}", raw.display()), dir).contains("No problems found"));
    });
}
