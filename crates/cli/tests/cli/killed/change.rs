//! Images that are changed: every file that was there has its bytes, and new ones are whole.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use undercroft_oracle::{Scratch, Tool};

use super::images::{Node, Tree, as_raw, assert_same, copy, fill, recovered, shown, take_unfinished};
use super::{Victim, wait_until_free};
use crate::support::{tool, undercroft};

/// An image with files all over it, some of them in pieces, and holes where others were.
fn image(dir: &Path, name: &str, family: &str, size: &str) -> PathBuf {
    let path = dir.join(name);
    let tree = dir.join("old");
    if !tree.exists() {
        fill(&tree, 160, 60_000, 0);
    }
    let blocks = if family == "ext4" { "-b 1024 " } else { "--small " };
    let words = format!("mkfs {family} {blocks}{} -q --size {size}", path.display());
    undercroft(words.split(' ')).succeeded();
    let shown = path.to_str().unwrap();
    undercroft(["put", shown, tree.to_str().unwrap(), "/first"]).succeeded();
    undercroft(["put", shown, &format!("{}/.", tree.display()), "/"]).succeeded();
    undercroft(["rm", "-r", shown, "/first"]).succeeded();
    path
}

/// How large the filesystem in a raw image is.
fn size_of(raw: &Path, family: &str) -> u64 {
    let field = |text: &str, name: &str| -> u64 {
        let value = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        value.trim_start_matches([':', ' ', '=']).trim().parse().unwrap()
    };
    if family == "ext4" {
        let dump = Tool::new("dumpe2fs").arg("-h").arg(raw).run_text().unwrap();
        return field(&dump, "Block count") * field(&dump, "Block size");
    }
    let dump = Tool::new("xfs_db").args(["-r", "-c", "sb 0", "-c", "print dblocks blocksize"]).arg(raw);
    let dump = dump.run_text().unwrap();
    field(&dump, "dblocks") * field(&dump, "blocksize")
}

#[test]
fn a_killed_put_leaves_each_name_old_or_new() {
    let scratch = Scratch::new("killed-put").unwrap();
    let dir = scratch.path();
    fill(&dir.join("new"), 220, 60_000, 1);
    for (family, base, size) in
        [("ext4", "e.img", "64M"), ("xfs", "x.img", "64M"), ("ext4", "e.qcow2", "64M")]
    {
        let base = image(dir, base, family, size);
        let target = dir.join("target").with_extension(base.extension().unwrap());
        let args = format!("put {} new/. /", target.file_name().unwrap().to_str().unwrap());
        let before = shown(&as_raw(&base), family);
        let after = RefCell::new(Tree::new());
        let mut ended = || drop(after.replace(shown(&as_raw(&target), family)));
        let mut judge = |told: &str| {
            let (found, _) = recovered(&target, family, true, &|_| String::new(), told);
            let after = after.borrow();
            let known = |name: &Path| before.get(name).into_iter().chain(after.get(name));
            for (name, node) in &found {
                let is_between = name.file_name().is_some_and(|name| name == ".undercroft-0.new");
                assert!(is_between || known(name).any(|known| known == node), "{told}: {}", name.display());
            }
            for name in before.keys() {
                assert!(found.contains_key(name), "{told}: {} is gone", name.display());
            }
            // What was put first is there again.
            let again =
                undercroft(["put", target.to_str().unwrap(), &format!("{}/new/.", dir.display()), "/"]);
            again.succeeded();
            let mut whole = shown(&as_raw(&target), family);
            whole.retain(|name, _| name.file_name().is_some_and(|name| name != ".undercroft-0.new"));
            assert_same(&after, &whole, told);
            if found == before {
                "as before"
            } else if found == *after {
                "whole"
            } else {
                "a part"
            }
        };
        Victim { dir, args: &args }.kill(&mut || copy(&base, &target), &mut ended, &mut judge);
        assert!(after.borrow().values().any(|node| matches!(node, Node::Link(_))));
    }
}

#[test]
fn a_killed_resize_leaves_the_old_or_the_new_size_and_every_file() {
    let scratch = Scratch::new("killed-resize").unwrap();
    let dir = scratch.path();
    for (family, base, size, new) in [
        ("ext4", "e.img", "96M", "24M"),
        ("ext4", "e.qcow2", "96M", "24M"),
        ("ext4", "g.img", "64M", "64M"),
        ("xfs", "x.img", "64M", "200M"),
    ] {
        let base = image(dir, base, family, size);
        let target = dir.join("target").with_extension(base.extension().unwrap());
        let path = target.to_str().unwrap();
        let args = format!("resize {} {new}", target.file_name().unwrap().to_str().unwrap());
        let before = shown(&as_raw(&base), family);
        let size_before = size_of(&as_raw(&base), family);
        let after = RefCell::new((0, 0));
        let length = || fs::metadata(&target).unwrap().len();
        let mut ended = || {
            let raw = as_raw(&target);
            assert_same(&before, &shown(&raw, family), &args);
            after.replace((size_of(&raw, family), length()));
        };
        let mut judge = |told: &str| {
            let size = |raw: &Path| size_of(raw, family).to_string();
            let (found, size) = recovered(&target, family, true, &size, told);
            assert_same(&before, &found, told);
            let (size_after, length_after) = *after.borrow();
            let size: u64 = size.parse().unwrap();
            assert!([size_before, size_after].contains(&size), "{told}: {size} bytes");
            // The same command goes on.
            undercroft(["resize", path, new]).succeeded();
            let raw = as_raw(&target);
            assert_same(&before, &shown(&raw, family), told);
            assert_eq!(size_of(&raw, family), size_after, "{told}, and again");
            if raw == target {
                assert_eq!(length(), length_after, "{told}, and again");
            }
            if size == size_before { "the old size" } else { "the new size" }
        };
        Victim { dir, args: &args }.kill(&mut || copy(&base, &target), &mut ended, &mut judge);
    }
}

#[test]
fn a_killed_compact_keeps_every_file() {
    let scratch = Scratch::new("killed-compact").unwrap();
    let dir = scratch.path();
    for (family, base, size) in [
        ("ext4", "e.img", "64M"),
        ("xfs", "x.img", "64M"),
        ("ext4", "e.qcow2", "64M"),
        ("xfs", "x.qcow2", "64M"),
    ] {
        let base = image(dir, base, family, size);
        let target = dir.join("target").with_extension(base.extension().unwrap());
        let name = target.file_name().unwrap().to_str().unwrap();
        let args = format!("compact {name}");
        let before = shown(&as_raw(&base), family);
        let mut ended = || {
            assert_same(&before, &shown(&as_raw(&target), family), &args);
            assert_eq!(take_unfinished(dir, name, &args), 0);
        };
        let mut judge = |told: &str| {
            wait_until_free(&target);
            let left = take_unfinished(dir, name, told);
            assert!(left == 0 || name.ends_with("qcow2"), "{told}");
            let (found, _) = recovered(&target, family, true, &|_| String::new(), told);
            assert_same(&before, &found, told);
            undercroft(["compact", target.to_str().unwrap()]).succeeded();
            assert_same(&before, &shown(&as_raw(&target), family), told);
            if left > 0 { "every file, with an unfinished file beside it" } else { "every file" }
        };
        Victim { dir, args: &args }.kill(&mut || copy(&base, &target), &mut ended, &mut judge);
    }
    tool("sync -f .", dir);
}
