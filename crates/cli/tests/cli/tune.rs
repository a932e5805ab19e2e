//! `tune`: in tune2fs's words, and what is refused stays as it was.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::support::{make_filesystem, run, tool, undercroft};

#[test]
fn a_filesystem_is_tuned_in_the_words_of_tune2fs() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a.img");
    make_filesystem(&image, "ext4", "64M");
    let path = image.to_str().unwrap();
    let args = "-m 1 -e remount-ro -c 30 -i 6m -o ^acl,debug -E stride=4,stripe_width=8,mount_opts=discard -u 5 -g 6";
    let text = undercroft(["tune", path].into_iter().chain(args.split(' '))).text();
    assert!(text.contains("has been tuned"), "{text}");
    let dump = tool(&format!("dumpe2fs -h {path}"), dir.path());
    for fact in [
        "Reserved block count:     655",
        "Errors behavior:          Remount read-only",
        "Maximum mount count:      30",
        "(6 months)",
        "Default mount options:    debug user_xattr",
        "RAID stride:              4",
        "RAID stripe width:        8",
        "Mount options:            discard",
        "Reserved blocks uid:      5",
        "Reserved blocks gid:      6",
    ] {
        assert!(dump.contains(fact), "{fact}: {dump}");
    }
    let report =
        undercroft(["tune", path, "-L", "data", "-U", "random", "-O", "^has_journal,^orphan_file", "--json"])
            .json();
    assert_eq!((&report["tuned"], &report["label"]), (&true.into(), &"data".into()), "{report}");
    assert!(!report["features"].as_array().unwrap().contains(&"has_journal".into()), "{report}");
    assert_eq!(undercroft(["label", path]).text(), "data\n");
    undercroft(["tune", path, "-O", "has_journal", "-J", "size=4"]).succeeded();
    undercroft(["tune", path, "-O", "-has_journal +Large_Dir", "-o", "-debug,ACL"]).succeeded();
    let dump = tool(&format!("dumpe2fs -h {path}"), dir.path());
    assert!(dump.contains("large_dir") && !dump.contains("has_journal"), "{dump}");
    assert!(dump.contains("Default mount options:    user_xattr acl"), "{dump}");
    undercroft(["tune", path, "-O", "FEATURE_C2"]).succeeded();
    tool(&format!("e2fsck -fn {path}"), dir.path());
    assert!(undercroft(["tune", "-l", path]).text().contains("has_journal"));
}

/// Whatever can be set is listed, as tune2fs lists it.
#[test]
fn what_was_set_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a.img");
    make_filesystem(&image, "ext4", "16M");
    let path = image.to_str().unwrap();
    let args = "-r 77 -u 5 -g 6 -o ^acl,debug,journal_data_writeback -E stride=4,stripe_width=8,mount_opts=nobh,hash_alg=tea";
    for set in [&[][..], &args.split(' ').collect::<Vec<_>>()] {
        if !set.is_empty() {
            undercroft(["tune", path].iter().chain(set)).succeeded();
        }
        let dump = tool(&format!("tune2fs -l {path}"), dir.path());
        let fact = |label: &str| {
            let line = dump.lines().find_map(|line| line.strip_prefix(label)?.strip_prefix(':'));
            line.unwrap_or_default().trim().to_owned()
        };
        let word = |label: &str| fact(label).split(' ').next().unwrap_or_default().to_owned();
        let report = undercroft(["tune", "-l", "--json", path]).json();
        let number = |label: &str| serde_json::Value::from(word(label).parse::<u64>().unwrap_or(0));
        assert_eq!(report["reserved_blocks"], number("Reserved block count"));
        assert_eq!(report["reserved_uid"], number("Reserved blocks uid"));
        assert_eq!(report["reserved_gid"], number("Reserved blocks gid"));
        assert_eq!(report["raid_stride"], number("RAID stride"));
        assert_eq!(report["raid_stripe_width"], number("RAID stripe width"));
        assert_eq!(report["mount_options"], fact("Mount options"));
        assert_eq!(report["directory_hash"], fact("Default directory hash"));
        assert_eq!(report["directory_hash_seed"], fact("Directory Hash Seed"));
        let options = report["default_mount_options"].as_array().unwrap().iter();
        let mut options: Vec<_> = options.map(|option| option.as_str().unwrap().to_owned()).collect();
        let mut expected: Vec<_> = fact("Default mount options").split(' ').map(str::to_owned).collect();
        options.sort();
        expected.sort();
        assert_eq!(options, expected);
    }
    let text = undercroft(["tune", "-l", path]).text();
    for line in [
        "  reserved  77 blocks, for uid 5 and gid 6\n",
        "  options   debug user_xattr journal_data_writeback nobh\n",
        "  raid      stride 4, stripe width 8\n",
        "  hash      tea, seed ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

/// As tune2fs lists it.
#[test]
fn when_a_filesystem_is_to_be_checked_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a.img");
    make_filesystem(&image, "ext4", "16M");
    let path = image.to_str().unwrap();
    let listed = || undercroft(["tune", "-l", path]).text();
    let text = listed();
    assert!(text.contains("0 mounts since; never due") && text.contains("on error  continue"), "{text}");
    tool(&format!("tune2fs -c 30 -C 1 -i 180d -e remount-ro {path}"), dir.path());
    let text = listed();
    assert!(text.contains("1 mount since; due after 30 mounts or 180 days"), "{text}");
    assert!(text.contains("on error  remount-ro"), "{text}");
    let report = undercroft(["tune", "-l", "--json", path]).json();
    for (name, value) in [
        ("mounts_since_check", 1.into()),
        ("mounts_most", 30.into()),
        ("check_interval_seconds", (180 * 86_400).into()),
        ("on_error", serde_json::Value::from("remount-ro")),
    ] {
        assert_eq!(report[name], value, "{report}");
    }
    tool(&format!("tune2fs -c -1 -i 90s -e panic {path}"), dir.path());
    let text = listed();
    assert!(text.contains("due after 90 seconds") && text.contains("on error  panic"), "{text}");
}

#[test]
fn what_cannot_be_tuned_is_refused_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a.img");
    make_filesystem(&image, "ext4", "64M");
    let path = image.to_str().unwrap();
    let before = fs::read(&image).unwrap();
    for (args, code, word) in [
        ("-O uninit_bg", 4, "tune2fs"),
        ("-O bigalloc", 4, "when the filesystem is made"),
        ("-m 60", 2, "0 to 50"),
        ("-r 60000", 2, "at most half"),
        ("-O nonsense", 2, "there is no feature nonsense"),
        ("-O ^has_journal", 2, "switch off orphan_file too"),
        ("-J size=4", 2, "where there is none yet"),
        ("-e nothing", 2, "remount-ro"),
        ("-i 3y", 2, "d, w, m or s"),
        ("-o nothing", 2, "user_xattr"),
        ("-E nothing=1", 2, "stripe_width"),
        ("-L a-label-that-is-too-long", 2, "16 bytes"),
    ] {
        let refusal = undercroft(["tune", path].into_iter().chain(args.split(' '))).failed(code);
        assert!(refusal.contains(word), "{args}: {refusal}");
        assert_eq!(refusal.contains("unsupported"), code == 4, "{args}: {refusal}");
    }
    assert!(undercroft(["tune", path]).failed(2).contains("nothing to change"));
    assert!(fs::read(&image).unwrap() == before, "the image has changed");
    let xfs = dir.path().join("x.img");
    make_filesystem(&xfs, "xfs", "300M");
    let path = xfs.to_str().unwrap();
    assert!(undercroft(["tune", path, "-m", "1"]).failed(4).contains("(-L)"));
    undercroft(["tune", path, "-L", "data"]).succeeded();
    assert_eq!(undercroft(["label", path]).text(), "data\n");
    tool(&format!("xfs_repair -n {path}"), dir.path());
}

/// Copies that a crash left on the other side of a switch are written again by the same command.
#[test]
fn checksums_that_are_switched_already_get_their_copies() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a.img");
    let path = image.to_str().unwrap();
    undercroft(["mkfs", "ext4", path, "--size", "200M", "-b", "4096"]).succeeded();
    let refused = undercroft(["tune", path, "-O", "^metadata_csum", "-U", "random"]).failed(2);
    assert!(refused.contains("change it first"), "{refused}");
    // What is switched back on stays as it is.
    undercroft(["tune", path, "-O", "^metadata_csum,metadata_csum", "-U", "random"]).succeeded();
    // The copy in group 1: its superblock and descriptors.
    let copy = || fs::read(&image).unwrap()[32768 * 4096..][..2 * 4096].to_vec();
    let before = copy();
    undercroft(["tune", path, "-O", "^metadata_csum"]).succeeded();
    let switched = copy();
    assert!(before != switched);
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&before, 32768 * 4096).unwrap();
    drop(file);
    undercroft(["tune", path, "-O", "^metadata_csum"]).succeeded();
    assert!(copy()[4096..] == switched[4096..], "descriptors");
    tool(&format!("e2fsck -fn {path}"), dir.path());
}

/// What lies behind a filesystem, and was never its own, stays.
#[test]
fn the_size_that_it_has_cuts_nothing_but_what_was_the_filesystem() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a.img");
    make_filesystem(&image, "ext4", "16M");
    let path = image.to_str().unwrap();
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(b"a signature", 16 << 20).unwrap();
    undercroft(["resize", path, "16M"]).succeeded();
    assert_eq!(fs::metadata(&image).unwrap().len(), (16 << 20) + 11);
    tool(&format!("e2fsck -fn {path}"), dir.path());
}

/// As by tune2fs: a label and a UUID that are changed while the filesystem is not mounted count as no mount.
#[test]
fn a_label_and_a_uuid_count_as_no_mount() {
    let dir = tempfile::tempdir().unwrap();
    tool("truncate -s 64M image", dir.path());
    tool("mke2fs -q -t ext4 image", dir.path());
    tool("tune2fs -C 3 image", dir.path());
    let image = dir.path().join("image");
    let path = image.to_str().unwrap();
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    for args in [
        &["tune", "-L", "one", path][..],
        &["label", path, "two"],
        &["tune", "-U", uuid, path],
        &["uuid", path, "random"],
        &["tune", "-L", "three", "-o", "^acl", path],
    ] {
        undercroft(args).text();
        let dump = tool("dumpe2fs -h image", dir.path());
        for line in ["Mount count:              3", "Last mount time:          n/a"] {
            assert!(dump.contains(line), "{args:?}: {line} in {dump}");
        }
    }
    tool("e2fsck -fn image", dir.path());
}

/// As by debugfs, tune2fs and resize2fs: only a mount counts as one.
#[test]
fn tools_count_no_mount() {
    let dir = tempfile::tempdir().unwrap();
    tool("truncate -s 64M image", dir.path());
    tool("mke2fs -q -t ext4 image 32M", dir.path());
    tool("tune2fs -C 3 image", dir.path());
    let image = dir.path().join("image");
    let path = image.to_str().unwrap();
    fs::write(dir.path().join("file"), [7; 5000]).unwrap();
    let file = dir.path().join("file");
    let counted = |what: &dyn std::fmt::Debug, mounts: u16| {
        let dump = tool("dumpe2fs -h image", dir.path());
        let line = format!("Mount count:              {mounts}");
        assert!(dump.contains(&line), "{what:?}: {line} in {dump}");
        dump
    };
    for args in [
        vec!["grow", path],
        vec!["mkdir", path, "/dir"],
        vec!["put", path, file.to_str().unwrap(), "/dir/file"],
        vec!["mv", path, "/dir/file", "/file"],
        vec!["chmod", path, "600", "/file"],
        vec!["rm", path, "/file"],
        vec!["tune", "-m", "1", path],
        vec!["tune", "-O", "^has_journal,^orphan_file", path],
        vec!["tune", "-O", "has_journal,^metadata_csum", path],
        vec!["resize", path, "48M"],
        vec!["compact", path],
    ] {
        undercroft(&args).succeeded();
        let dump = counted(&args, 3);
        assert!(dump.contains("Last mount time:          n/a"), "{args:?}: {dump}");
    }
    undercroft(["tune", "-O", "^has_journal", path]).succeeded();
    fs::write(&file, vec![7; 32 << 20]).unwrap();
    undercroft(["put", path, file.to_str().unwrap(), "/large"]).succeeded();
    // There is no room for such a journal, which the filesystem says only when it is open.
    let refused = undercroft(["tune", "-O", "has_journal", "-J", "size=20", path]);
    assert!(refused.code != 0 && refused.stderr.contains("no space left"), "{refused:?}");
    counted(&"-J", 3);
    assert_ne!(undercroft(["grow", path, "1M"]).code, 0);
    counted(&"grow", 3);
    undercroft(["tune", "-C", "5", "-O", "has_journal", path]).succeeded();
    counted(&"-C", 5);
    undercroft(["tune", "-C", "6", "-O", "^has_journal", path]).succeeded();
    counted(&"-C", 6);
    tool("e2fsck -fn image", dir.path());
    fs::create_dir(dir.path().join("tree")).unwrap();
    fs::copy(&file, dir.path().join("tree/file")).unwrap();
    let made = dir.path().join("made");
    let source = dir.path().join("tree");
    undercroft(["mkfs", "ext4", made.to_str().unwrap(), "--from", source.to_str().unwrap()]).succeeded();
    let dump = tool("dumpe2fs -h made", dir.path());
    assert!(dump.contains("Mount count:              0"), "{dump}");
}

/// Linux reads such a size of flex groups as 1, and e2fsck takes the superblock for damaged.
#[test]
fn flex_groups_that_cannot_be_are_found_and_nothing_is_tuned_or_resized() {
    let dir = tempfile::tempdir().unwrap();
    tool("truncate -s 64M image", dir.path());
    tool("mke2fs -q -t ext4 image 32M", dir.path());
    let image = dir.path().join("image");
    let path = image.to_str().unwrap();
    let set = ["-w", "-R", "set_super_value log_groups_per_flex 32", path];
    assert_eq!(run(Command::new("debugfs").args(set)).code, 0);
    let before = fs::read(&image).unwrap();
    let words = "flex groups have 2^32 groups";
    let check = undercroft(["check", path]);
    assert_ne!(check.code, 0);
    assert!(String::from_utf8_lossy(&check.stdout).contains(words), "{check:?}");
    let refused = |args: &[&str]| {
        let refused = undercroft(args);
        assert!(refused.code != 0 && refused.stderr.contains(words), "{args:?}: {refused:?}");
    };
    refused(&["tune", "-m", "1", path]);
    refused(&["tune", "-U", "random", path]);
    refused(&["resize", path, "16M"]);
    assert!(fs::read(&image).unwrap() == before, "nothing has changed");
    refused(&["grow", path]);
    refused(&["label", path, "new"]);
    assert_eq!(fs::read(&image).unwrap()[1024 + 0x34..][..2], [0, 0], "the count of mounts");
    assert_eq!(run(Command::new("e2fsck").args(["-fy", path])).code, 1);
    undercroft(["tune", "-m", "1", path]).text();
}

/// As e2fsck has it: the resize inode of blocks of 4 KiB is larger than a file may be without the feature.
#[test]
fn a_resize_inode_without_large_file_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a.img");
    fs::File::create(&image).unwrap().set_len(600 << 20).unwrap();
    tool("mke2fs -q -F -t ext4 -b 4096 -O ^metadata_csum a.img", dir.path());
    let path = image.to_str().unwrap();
    assert_eq!(undercroft(["check", path]).code, 0);
    assert_eq!(run(Command::new("debugfs").args(["-w", "-R", "feature -large_file", path])).code, 0);
    assert_eq!(run(Command::new("e2fsck").args(["-fn", path])).code, 4);
    let found = undercroft(["check", path]);
    assert_eq!(found.code, 4, "{}", found.stderr);
    assert!(String::from_utf8(found.stdout).unwrap().contains("take the feature large_file"));
}
