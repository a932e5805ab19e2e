//! Filesystems that are tuned: as before or as they become, with every file.

use std::cell::RefCell;
use std::path::Path;

use undercroft_oracle::{Scratch, Tool};

use super::images::{assert_same, copy, fill, recover, recovered, shown};
use super::{Victim, wait_until_free};
use crate::support::undercroft;

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// Label, UUID and features.
fn facts(raw: &Path, family: &str) -> String {
    if family == "xfs" {
        return Tool::new("xfs_admin").arg("-lu").arg(raw).run_text().unwrap();
    }
    let dump = Tool::new("dumpe2fs").arg("-h").arg(raw).run_text().unwrap();
    let lines = dump.lines().filter(|line| {
        ["Filesystem volume name", "Filesystem UUID", "Filesystem features"]
            .iter()
            .any(|name| line.starts_with(name))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_killed_tune_leaves_the_filesystem_as_before_or_tuned() {
    let scratch = Scratch::new("killed-tune").unwrap();
    let dir = scratch.path();
    let tree = dir.join("tree");
    fill(&tree, 60, 40_000, 0);
    for (family, features, change, has_journal) in [
        ("ext4", "orphan_file", "-O ^orphan_file", true),
        ("ext4", "^orphan_file", "-O orphan_file", true),
        ("ext4", "^orphan_file,^has_journal", "-O has_journal", false),
        ("ext4", "^orphan_file,^has_journal", "-O has_journal,orphan_file -L new", false),
        ("ext4", "^orphan_file", "-O ^has_journal", false),
        ("ext4", "orphan_file", "-O ^has_journal,^orphan_file", false),
        ("ext4", "orphan_file", "-U 01234567-89ab-cdef-0123-456789abcdef", true),
        ("ext4", "orphan_file", "-L new", true),
        ("xfs", "", "-U 01234567-89ab-cdef-0123-456789abcdef", true),
        ("xfs", "", "-L new", true),
    ] {
        let (base, target) = (dir.join("base.img"), dir.join("target.img"));
        let mut words =
            vec!["mkfs", family, base.to_str().unwrap(), "-q", "--force", "--size", "64M", "--from"];
        words.push(tree.to_str().unwrap());
        if !features.is_empty() {
            words.extend(["-O", features]);
        }
        if family == "xfs" {
            words.push("--small");
        }
        undercroft(words).succeeded();
        let args = format!("tune target.img {change}");
        let before = (shown(&base, family), facts(&base, family));
        let after = RefCell::new(String::new());
        let mut ended = || {
            assert_same(&before.0, &shown(&target, family), &args);
            after.replace(facts(&target, family));
        };
        let again = || {
            let words = format!("tune {} {change}", target.display());
            undercroft(words.split(' ')).succeeded();
        };
        let mut judge = |told: &str| {
            if family == "xfs" && change.contains("-U") {
                // Copies of the superblock may have another UUID until the command is given again, as with xfs_admin.
                wait_until_free(&target);
                recover(&target, told);
                again();
            }
            let (found, now) = recovered(&target, family, has_journal, &|raw| facts(raw, family), told);
            assert_same(&before.0, &found, told);
            let after = after.borrow();
            let is_tuned = now == *after;
            // With two changes, one of them may have been made.
            let is_one_change = !change.contains(" -L ") && !change.contains(",^");
            assert!(is_tuned || now == before.1 || !is_one_change, "{told}: {now}");
            // The same command goes on.
            again();
            recover(&target, told);
            assert_same(&before.0, &shown(&target, family), told);
            assert_eq!(facts(&target, family), *after, "{told}, and again");
            if is_tuned {
                "tuned"
            } else if now == before.1 {
                "as before"
            } else {
                "tuned in part"
            }
        };
        Victim { dir, args: &args }.kill(&mut || copy(&base, &target), &mut ended, &mut judge);
        assert!(family != "ext4" || !change.contains(UUID) || after.borrow().contains(UUID));
    }
}
