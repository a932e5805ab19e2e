//! Images of which a part is missing: what is there is read, what is not is named, and copies stand in when they are named.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use undercroft_oracle::{Image, Mke2fs, MountMode};

use crate::support::{PROGRAM, Run, run, small, tool};

/// Of five groups, with blocks of 1 KiB: files `/first/N` that the first groups hold, and `/last` in the last one.
fn five_groups() -> Image {
    let image = Mke2fs::new("ext4", 40)
        .block_bytes(1024)
        .inodes(10_240)
        .args(["-E", "root_owner=0:0"])
        .make()
        .unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    fs::create_dir(mount.path().join("first")).unwrap();
    for number in 0..50 {
        fs::write(mount.path().join(format!("first/{number}")), format!("{number}\n")).unwrap();
    }
    mount.unmount().unwrap();
    image
}

fn on(image: &Path, args: &[&str]) -> Run {
    on_hinted(image, "", args)
}

fn on_hinted(image: &Path, hint: &str, args: &[&str]) -> Run {
    let mut named = image.as_os_str().to_owned();
    named.push(hint);
    run(Command::new(PROGRAM).arg(args[0]).arg(named).args(&args[1..]))
}

fn zero(image: &Path, from: u64, len: usize) {
    File::options().write(true).open(image).unwrap().write_all_at(&vec![0; len], from).unwrap();
}

fn assert_partly(run: &Run, code: i32, notes: &[&str]) {
    assert_eq!(run.code, code, "{}", run.stderr);
    let lines: Vec<&str> = run.stderr.lines().collect();
    assert_eq!(lines.len(), notes.len(), "{}", run.stderr);
    for (line, note) in lines.iter().zip(notes) {
        assert!(line.starts_with("undercroft: ") && line.contains(note), "{line}");
    }
}

#[test]
fn a_cut_image_is_read_as_far_as_it_goes_and_not_written() {
    let image = five_groups();
    let whole = fs::metadata(image.path()).unwrap().len();
    // The last file's content lies behind the cut.
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    fs::write(mount.path().join("last"), vec![b'x'; 20 << 20]).unwrap();
    mount.unmount().unwrap();
    let file = File::options().write(true).open(image.path()).unwrap();
    file.set_len(20 << 20).unwrap();
    let note = "is cut short: of 40 MiB there are 20 MiB; what lies behind cannot be read";
    let told = on(image.path(), &["info", "--json"]);
    assert_partly(&told, 0, &[note]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(told["size_bytes"], whole);
    let listed = on(image.path(), &["ls", "/first"]);
    assert_partly(&listed, 0, &[note]);
    assert_eq!(listed.stdout.split(|byte| *byte == b'\n').count(), 51);
    assert_eq!(on(image.path(), &["cat", "/first/7"]).stdout, b"7\n");
    // What is missing has a name and a place.
    let cat = on(image.path(), &["cat", "/last"]);
    assert_partly(&cat, 6, &[note, "/last: "]);
    assert!(cat.stderr.contains("cut short and ends at byte 20971520 of 41943040"), "{}", cat.stderr);
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy");
    let got = run(Command::new(PROGRAM).arg("get").arg(image.path()).arg("/").arg(&copy));
    assert_eq!(got.code, 1, "{}", got.stderr);
    assert!(got.stderr.contains("/last: "), "{}", got.stderr);
    assert_eq!(fs::read_dir(copy.join("first")).unwrap().count(), 50);
    // Never for writing.
    let point = dir.path().join("point");
    fs::create_dir(&point).unwrap();
    for how in [&["-o", "rw"][..], &["--snapshot"]] {
        let refused = run(Command::new(PROGRAM).arg("mount").args(how).arg(image.path()).arg(&point));
        let refused = refused.failed(5);
        assert!(
            refused.contains("cut short") && refused.contains("for reading it can be opened"),
            "{refused}"
        );
    }
    run(Command::new(PROGRAM).arg("mount").arg(image.path()).arg(&point));
    assert_eq!(fs::read(point.join("first/9")).unwrap(), b"9\n");
    assert!(fs::read(point.join("last")).is_err());
    run(Command::new(PROGRAM).arg("unmount").arg(&point)).succeeded();
}

/// The log of XFS lies in the middle: what is in front of it is read without it.
#[test]
fn a_cut_xfs_is_read_as_far_as_it_goes_and_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("xfs.img");
    File::create(&image).unwrap().set_len(400 << 20).unwrap();
    tool("mkfs.xfs -q xfs.img", dir.path());
    fs::write(dir.path().join("here"), "found\n").unwrap();
    fs::write(dir.path().join("large"), vec![b'x'; 150 << 20]).unwrap();
    run(Command::new(PROGRAM).args(["put", "xfs.img", "here", "large", "/"]).current_dir(dir.path()))
        .succeeded();
    let cut_to = |mib: u64| File::options().write(true).open(&image).unwrap().set_len(mib << 20).unwrap();
    cut_to(300);
    let cat = on(&image, &["cat", "/here"]);
    assert_partly(&cat, 0, &["is cut short: of 400 MiB there are 300 MiB"]);
    assert_eq!(cat.stdout, b"found\n");
    cut_to(50);
    let note = "is cut short: of 400 MiB there are 50 MiB";
    let unread = "the journal cannot be read, and changes in it are missing";
    let cat = on(&image, &["cat", "/here"]);
    assert_partly(&cat, 0, &[note, unread]);
    assert_eq!(cat.stdout, b"found\n");
    let cat = on(&image, &["cat", "/large"]);
    assert_partly(&cat, 6, &[note, unread, "/large: "]);
    let refused = on(&image, &["rm", "/here"]).failed(5);
    assert!(refused.contains("for reading it can be opened as far as it goes"), "{refused}");
}

/// What the groups behind the cut would tell is not counted, which is said; what is there is told.
#[test]
fn info_tells_of_a_cut_xfs_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("xfs.img");
    File::create(&image).unwrap().set_len(400 << 20).unwrap();
    tool("mkfs.xfs -q -d agcount=4 xfs.img", dir.path());
    fs::write(dir.path().join("large"), vec![b'x'; 10 << 20]).unwrap();
    run(Command::new(PROGRAM).args(["put", "xfs.img", "large", "/"]).current_dir(dir.path())).succeeded();
    let json = |run: &Run| serde_json::from_slice::<serde_json::Value>(&run.stdout).unwrap();
    let whole = json(&on(&image, &["info", "--json"]));
    assert_eq!((&whole["groups_unread"], &whole["log_clean"]), (&0.into(), &true.into()));
    let df = on(&image, &["df"]).text();
    let unread = "the journal cannot be read, and changes in it are missing";
    for (mib, groups, has_log) in
        [(350, 0, true), (290, 1, true), (250, 1, false), (150, 2, false), (50, 3, false)]
    {
        File::options().write(true).open(&image).unwrap().set_len(mib << 20).unwrap();
        let note = format!("is cut short: of 400 MiB there are {mib} MiB");
        let notes = [&note, unread];
        let notes = if has_log { &notes[..1] } else { &notes[..] };
        let told = on(&image, &["info", "--json"]);
        assert_partly(&told, 0, notes);
        let told = json(&told);
        assert_eq!(told["groups_unread"], groups, "{mib} MiB: {told}");
        assert_eq!(told["log_clean"], if has_log { true.into() } else { serde_json::Value::Null });
        for same in ["uuid", "size_bytes", "blocks_for_files", "blocks_free", "inodes", "geometry"] {
            assert_eq!(told[same], whole[same], "{mib} MiB: {same}");
        }
        let there = 4 - groups as usize;
        let map = told["group_map_percent"].as_array().unwrap();
        assert_eq!(map[..there], whole["group_map_percent"].as_array().unwrap()[..there]);
        assert!(map.len() == 4 && map[there..].iter().all(serde_json::Value::is_null), "{told}");
        let text = on(&image, &["info"]);
        assert_partly(&text, 0, notes);
        let text = String::from_utf8(text.stdout).unwrap();
        let sentence =
            format!("{groups} of 4 allocation groups cannot be read; free space there is not counted");
        assert_eq!(text.contains(&sentence), groups > 0, "{text}");
        assert_eq!(text.contains("not known: the log was not read"), !has_log, "{text}");
        assert_eq!(text.contains("state     clean"), groups == 0, "{text}");
        let counted = on(&image, &["df"]);
        assert_partly(&counted, 0, notes);
        assert_eq!(String::from_utf8(counted.stdout).unwrap(), df);
    }
}

/// What the first leaf of a file's extents tells comes out, although the second one is lost.
#[test]
fn a_file_with_a_damaged_leaf_is_copied_up_to_it() {
    let image =
        Mke2fs::new("ext4", 2).block_bytes(1024).inodes(2048).args(["-O", "^has_journal"]).make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    // Free blocks with others between them: each block of the file is an extent.
    let names = (0..2000).map(|number| mount.path().join(number.to_string()));
    let names: Vec<_> = names.take_while(|name| fs::write(name, [b'f'; 1024]).is_ok()).collect();
    assert!(names.len() > 500, "{}", names.len());
    tool("sync", mount.path());
    for name in names.iter().step_by(2) {
        fs::remove_file(name).unwrap();
    }
    tool("sync", mount.path());
    let content: Vec<u8> = (0..150 * 1024_u32).map(|at| (at / 1024 + 1) as u8).collect();
    fs::write(mount.path().join("file"), &content).unwrap();
    mount.unmount().unwrap();
    // `LEVEL/ LEVELS NUMBER/ COUNT FIRST - LAST BLOCK LENGTH`, of which the nodes above leaves are asked for.
    let nodes = image.debugfs("dump_extents -n /file").unwrap();
    let second: Vec<u64> = nodes
        .lines()
        .find(|line| line.trim_start().starts_with("0/ 1   2/"))
        .unwrap_or_else(|| panic!("{nodes}"))
        .split(|byte: char| !byte.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .collect();
    let (first, leaf) = (second[4] as usize, second[6]);
    zero(image.path(), leaf * 1024, 1024);

    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy");
    let outcome = run(Command::new(PROGRAM).arg("get").arg(image.path()).arg("/file").arg(&copy));
    assert!(outcome.code != 0 && outcome.stderr.contains("/file: corrupt extent"), "{}", outcome.stderr);
    let ends = format!("the copy ends after {} of {} bytes", first * 1024, content.len());
    assert!(first > 50 && outcome.stderr.contains(&ends), "{ends}: {}", outcome.stderr);
    let copied = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::read(copied).unwrap(), content[..first * 1024]);
}

/// A journal that lies behind the cut cannot be replayed, which is said.
#[test]
fn a_cut_image_that_was_not_unmounted_is_read_without_its_journal() {
    let image = five_groups();
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    fs::write(mount.path().join("later"), "x").unwrap();
    tool("sync", Path::new("/"));
    let dirty = image.copy_between_writes(&mount).unwrap();
    mount.unmount().unwrap();
    let at = dirty.debugfs("blocks <8>").unwrap();
    let first: u64 = at.split_whitespace().next().unwrap().parse().unwrap();
    File::options().write(true).open(dirty.path()).unwrap().set_len((first + 1) * 1024).unwrap();
    let listed = on(dirty.path(), &["ls", "/first"]);
    assert_partly(&listed, 0, &["is cut short", "the journal cannot be read, and changes in it are missing"]);
    assert_eq!(listed.stdout.split(|byte| *byte == b'\n').count(), 51);
}

#[test]
fn a_zeroed_superblock_is_told_with_its_copies_and_read_through_one() {
    let image = five_groups();
    // The superblock and the first block of descriptors.
    zero(image.path(), 1024, 2048);
    let shown = image.path().display();
    for command in ["info", "ls"] {
        let message = on(image.path(), &[command]).failed(4);
        assert_eq!(
            message,
            format!(
                "{shown} holds no filesystem that this program knows; good copies of the superblock of an ext4 \
                 lie at block 8193, 24577: put `?sb=8193` behind its name to read it"
            )
        );
    }
    for hint in ["?sb=8193", "?sb=24577"] {
        assert_eq!(on_hinted(image.path(), hint, &["cat", "/first/33"]).text(), "33\n");
        let told = on_hinted(image.path(), hint, &["info", "--json"]).json();
        assert_eq!((&told["filesystem"], &told["blocks"]), (&"ext4".into(), &40_960.into()));
    }
    // What a copy does not tell is not made up.
    let told = on_hinted(image.path(), "?sb=8193", &["info"]).text();
    assert!(
        told.contains(
            "state     not known: a copy of the superblock does not tell; nothing is to be replayed"
        ),
        "{told}"
    );
    assert!(!told.contains("needs_recovery"), "{told}");
    let wrong = on_hinted(image.path(), "?sb=5", &["ls"]).failed(5);
    assert!(
        wrong.contains("through block 5") && wrong.ends_with("put `?sb=8193` behind its name to read it"),
        "{wrong}"
    );
    let before = image.sha256().unwrap();
    for refused in [
        on_hinted(image.path(), "?sb=8193", &["mount", "-o", "rw", "/mnt"]),
        on_hinted(image.path(), "?sb=8193", &["grow"]),
        run(Command::new(PROGRAM).args(["mkfs", "--force", "ext4"]).arg(format!("{shown}?sb=8193"))),
    ] {
        let refused = refused.failed(2);
        assert!(refused.contains("`?sb=` is for reading; `e2fsck -b` puts a copy"), "{refused}");
    }
    assert_eq!(image.sha256().unwrap(), before);
    // A superblock that is there and damaged.
    let damaged = five_groups();
    zero(damaged.path(), 1024 + 8, 4);
    let message = on(damaged.path(), &["info"]).failed(5);
    assert!(message.contains("checksum") && message.contains("`?sb=8193`"), "{message}");
    assert_eq!(on_hinted(damaged.path(), "?sb=8193", &["cat", "/first/1"]).text(), "1\n");
    // Cut short as well.
    File::options().write(true).open(image.path()).unwrap().set_len(20 << 20).unwrap();
    let cat = on_hinted(image.path(), "?sb=8193", &["cat", "/first/2"]);
    assert_partly(&cat, 0, &["is cut short"]);
    assert_eq!(cat.stdout, b"2\n");
}

#[test]
fn a_destroyed_partition_table_is_told_and_read_from_its_copy() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk.img");
    File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    tool("sgdisk -n 1:2048:+8M -t 1:ef00 -n 2:0:+16M -t 2:8300 disk.img", dir.path());
    let image = small(&[("/here", "found\n")]);
    tool(
        &format!("dd if={} of=disk.img bs=1M seek=9 conv=notrunc status=none", image.path().display()),
        dir.path(),
    );
    // The first header alone: the copy is used, as Linux does.
    zero(&disk, 512, 512);
    let cat = on(&disk, &["cat", "/here"]);
    assert_partly(
        &cat,
        0,
        &["the first copy of the table is damaged (there is no header); the backup was used"],
    );
    assert_eq!(cat.stdout, b"found\n");
    // All that lies in front of the first partition: only the hint finds it.
    zero(&disk, 0, 1 << 20);
    let message = on(&disk, &["info"]).failed(4);
    assert!(message.ends_with("a GPT with 2 partitions is left on it: put `?gpt=backup` behind its name to read these, as in `undercroft info`"), "{message}");
    let told = on_hinted(&disk, "?gpt=backup", &["info", "--json"]);
    assert_eq!(told.code, 0, "{}", told.stderr);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(told["disk"]["partitions"].as_array().unwrap().len(), 2);
    for hint in ["?gpt=backup", "?gpt=backup&part=2", "?part=2?gpt=backup"] {
        assert_eq!(on_hinted(&disk, hint, &["cat", "/here"]).stdout, b"found\n", "{hint}");
    }
    let point = dir.path().join("point");
    fs::create_dir(&point).unwrap();
    let refused = on_hinted(&disk, "?gpt=backup", &["mount", "-o", "rw", point.to_str().unwrap()]).failed(2);
    assert!(refused.contains("`?gpt=backup` is for reading"), "{refused}");
    // A partition that reaches past the end of what is left.
    let cut = dir.path().join("cut.img");
    File::create(&cut).unwrap().set_len(64 << 20).unwrap();
    tool("sgdisk -n 2:2048:+40M -t 2:8300 cut.img", dir.path());
    tool(
        &format!("dd if={} of=cut.img bs=1M seek=1 conv=notrunc status=none", image.path().display()),
        dir.path(),
    );
    File::options().write(true).open(&cut).unwrap().set_len(16 << 20).unwrap();
    let cat = on(&cut, &["cat", "/here"]);
    assert_eq!((cat.code, cat.stdout.as_slice()), (0, &b"found\n"[..]), "{}", cat.stderr);
    let note = "is cut short: of 40 MiB there are 15 MiB";
    assert!(cat.stderr.contains("partition 2 of") && cat.stderr.contains(note), "{}", cat.stderr);
}

/// Of a partition behind the end of what is left nothing is there to be read.
#[test]
fn a_partition_that_begins_behind_the_cut_is_told_to_be_gone() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk.img");
    File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    tool("sgdisk -n 1:2048:+16M -n 2:0:+16M disk.img", dir.path());
    let cut_to = |mib: u64| File::options().write(true).open(&disk).unwrap().set_len(mib << 20).unwrap();
    cut_to(20);
    let told = on_hinted(&disk, "?part=2", &["ls"]);
    assert!(
        told.stderr.contains("partition 2 of") && told.stderr.contains("is cut short"),
        "{}",
        told.stderr
    );
    for mib in [17, 10] {
        cut_to(mib);
        for args in [&["ls"][..], &["cat", "/x"], &["rm", "/x"]] {
            let told = on_hinted(&disk, "?part=2", args);
            let line = told.stderr.lines().last().unwrap();
            assert_eq!(told.code, 3, "{line}");
            assert!(line.contains("cannot use partition 2 of") && !line.contains("can be read"), "{line}");
            assert!(
                line.ends_with(
                    "it begins behind the end of the image: the image is cut short, or the table is wrong"
                ),
                "{line}"
            );
        }
    }
}

/// What an older use of a disk left at its end is no advice for what the disk is now.
#[test]
fn nothing_is_told_of_a_stale_gpt_where_the_disk_is_something_else() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk.img");
    let here = |args: &[&str]| run(Command::new(PROGRAM).args(args).current_dir(dir.path()));
    fs::write(dir.path().join("key"), "secret").unwrap();
    for make in [
        "cryptsetup luksFormat -q --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 disk.img key",
        "mkswap disk.img",
        "mkfs.btrfs -q disk.img",
        "mke2fs -q -t ext4 disk.img",
    ] {
        let _ = fs::remove_file(&disk);
        File::create(&disk).unwrap().set_len(128 << 20).unwrap();
        tool("sgdisk -n 1:2048:+16M disk.img", dir.path());
        zero(&disk, 0, 1 << 20);
        let message = here(&["disk", "list", "disk.img"]).failed(4);
        assert!(message.contains("a GPT with 1 partition is left on it"), "{message}");
        // Some of them wipe it, and others did not.
        let file = File::options().read(true).write(true).open(&disk).unwrap();
        let (mut backup, at) = ([0; 33 * 512], (128 << 20) - 33 * 512);
        file.read_exact_at(&mut backup, at).unwrap();
        tool(make, dir.path());
        file.write_all_at(&backup, at).unwrap();
        let there = on_hinted(&disk, "?gpt=backup", &["info"]);
        assert!(there.stderr.contains("the backup was used"), "{make}: {}", there.stderr);
        for (args, code) in [
            (&["disk", "list", "disk.img"][..], 4),
            (&["disk", "add", "disk.img", "more=ext4:8M"], 4),
            (&["ls", "disk.img?part=1"], 3),
            (&["ls", "disk.img?part=root"], 3),
        ] {
            let message = here(args).failed(code);
            assert!(!message.contains("GPT"), "{make} {args:?}: {message}");
        }
    }
}

/// An old filesystem's mark is no reason to be silent about the table: which of the two is older is not known where the
/// filesystem does not reach the table's place.
#[test]
fn a_lost_gpt_is_told_beside_a_filesystem_that_ends_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk.img");
    let here = |args: &[&str]| run(Command::new(PROGRAM).args(args).current_dir(dir.path()));
    for (make, what) in [
        ("mkfs.btrfs -q -b 120M disk.img", "a btrfs filesystem"),
        ("mke2fs -q -t ext4 disk.img 100M", "an ext4 filesystem"),
        ("tar --record-size=256M -cf disk.img /etc/hostname", "a tar archive"),
    ] {
        let _ = fs::remove_file(&disk);
        File::create(&disk).unwrap().set_len(256 << 20).unwrap();
        tool(make, dir.path());
        let file = File::options().read(true).write(true).open(&disk).unwrap();
        let mut front = vec![0; 1 << 20];
        file.read_exact_at(&mut front, 0).unwrap();
        tool("sgdisk -n 1:2048:+16M -c 1:root -n 2:0:+16M disk.img", dir.path());
        file.write_all_at(&front, 0).unwrap();
        let told = format!(
            "it holds {what}, and a GPT with 2 partitions is left on it, of an older or a later use: put `?gpt=backup` behind"
        );
        for (args, code) in [
            (&["disk", "list", "disk.img"][..], 4),
            (&["ls", "disk.img?part=1"], 3),
            (&["ls", "disk.img?part=root"], 3),
        ] {
            let message = here(args).failed(code);
            assert!(message.contains(&told), "{make} {args:?}: {message}");
        }
        let message = here(&["disk", "add", "disk.img", "more=ext4:8M"]).failed(4);
        assert!(!message.contains("GPT"), "{message}");
        let listed = here(&["disk", "list", "disk.img?gpt=backup"]).text();
        assert!(listed.contains("root"), "{listed}");
    }
}

/// The name that a message gives for a partition is one that can be typed, with the hint that found it.
#[test]
fn a_partition_of_a_lost_table_is_named_with_the_hint() {
    let dir = tempfile::tempdir().unwrap();
    File::create(dir.path().join("disk.img")).unwrap().set_len(64 << 20).unwrap();
    tool("sgdisk -n 1:2048:+16M -n 2:0:+16M disk.img", dir.path());
    let image = small(&[("/here", "found\n")]);
    tool(
        &format!("dd if={} of=disk.img bs=1M seek=17 conv=notrunc status=none", image.path().display()),
        dir.path(),
    );
    zero(&dir.path().join("disk.img"), 0, 1 << 20);
    let here = |args: &[&str]| run(Command::new(PROGRAM).args(args).current_dir(dir.path()));
    // Whatever is asked of the disk, its user hears where the table still is.
    for (args, code) in [
        (&["ls", "disk.img?part=root"][..], 3),
        (&["ls", "disk.img?part=2"], 3),
        (&["disk", "list", "disk.img"], 4),
        (&["disk", "add", "disk.img", "more=ext4:8M"], 4),
        (&["disk", "resize", "disk.img", "80M"], 4),
        (&["compact", "disk.img"], 4),
        (&["mkfs", "ext4", "disk.img"], 8),
    ] {
        let message = here(args).failed(code);
        let advice = "a GPT with 2 partitions is left on it: put `?gpt=backup` behind its name";
        assert!(message.contains(advice) && !message.contains("no partition table:"), "{args:?}: {message}");
    }
    let told = here(&["ls", "disk.img?gpt=backup"]);
    assert_eq!(told.code, 3, "{}", told.stderr);
    assert!(told.stderr.contains("; name one as disk.img?gpt=backup&part=N\n"), "{}", told.stderr);
    let told = String::from_utf8(here(&["info", "disk.img?gpt=backup"]).stdout).unwrap();
    assert!(told.ends_with("name one as disk.img?gpt=backup&part=N\n"), "{told}");
    let empty = here(&["ls", "disk.img?gpt=backup&part=1"]);
    assert!(empty.stderr.contains("disk.img?gpt=backup&part=1 holds no filesystem"), "{}", empty.stderr);
    assert_eq!(here(&["cat", "disk.img?gpt=backup&part=2", "/here"]).stdout, b"found\n");
    fs::copy(dir.path().join("disk.img"), dir.path().join("again.img")).unwrap();
    let message = here(&["disk", "add", "again.img", "more=ext4:8M"]).failed(4);
    assert!(message.contains("`gdisk` writes the partition table anew from it: answer 1"), "{message}");
    fs::write(dir.path().join("answers"), "1\nw\ny\n").unwrap();
    fs::write(dir.path().join("anew"), "gdisk again.img < answers").unwrap();
    tool("sh anew", dir.path());
    assert_eq!(here(&["cat", "again.img?part=2", "/here"]).stdout, b"found\n");
    fs::create_dir(dir.path().join("point")).unwrap();
    here(&["mount", "disk.img?gpt=backup&part=2", "point"]);
    let source = tool("findmnt -no SOURCE point", dir.path());
    here(&["unmount", "point"]).succeeded();
    let source = source.trim();
    assert!(source.ends_with("disk.img?part=2?gpt=backup"), "{source}");
    assert_eq!(here(&["cat", source, "/here"]).stdout, b"found\n");
}

/// Where not even the superblock is whole, there is nothing to open, and the kind of filesystem is not the reason.
#[test]
fn the_stump_of_a_filesystem_is_told_to_be_cut_off() {
    let image = small(&[]);
    File::options().write(true).open(image.path()).unwrap().set_len(1500).unwrap();
    for (command, code) in [("ls", 5), ("info", 5), ("check", 8), ("grow", 5)] {
        let message = on(image.path(), &[command]).failed(code);
        assert!(message.contains("cut off behind byte 1500") && !message.contains("it opens"), "{message}");
    }
}

/// The work does not depend on a word about it.
#[test]
fn a_note_that_cannot_be_written_stops_nothing() {
    let image = five_groups();
    File::options().write(true).open(image.path()).unwrap().set_len(20 << 20).unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("point")).unwrap();
    let path = image.path().to_str().unwrap();
    for args in [
        &["ls", path][..],
        &["info", path],
        &["get", path, "/", "copy"],
        &["mount", path, "point"],
        &["unmount", "point"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let status = Command::new(PROGRAM)
            .args(args)
            .current_dir(dir.path())
            .stdout(std::process::Stdio::null())
            .stderr(full)
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(0), "{args:?}");
    }
    assert_eq!(fs::read(dir.path().join("copy/first/7")).unwrap(), b"7\n");
}

/// Other blocks of a directory are shown when one is damaged, which is named.
#[test]
fn a_bad_block_does_not_hide_the_rest_of_its_directory() {
    for kind in ["ext4", "ext2"] {
        let image = Mke2fs::new(kind, 16).block_bytes(1024).args(["-E", "root_owner=0:0"]).make().unwrap();
        let mount = image.mount(MountMode::ReadWrite, "").unwrap();
        let names: Vec<String> = (0..200).map(|number| format!("some-long-name-{number:04}")).collect();
        fs::create_dir(mount.path().join("many")).unwrap();
        for name in &names {
            fs::write(mount.path().join("many").join(name), name).unwrap();
        }
        mount.unmount().unwrap();
        let blocks = image.debugfs("blocks /many").unwrap();
        let blocks: Vec<u64> = blocks.split_whitespace().map(|block| block.parse().unwrap()).collect();
        let bad = blocks[blocks.len() / 2];
        let file = File::options().write(true).open(image.path()).unwrap();
        file.write_all_at(&[0xff; 1024], bad * 1024).unwrap();
        let listed = on(image.path(), &["ls", "/many"]);
        assert_partly(&listed, 1, &[&format!("block {bad}")]);
        let shown = String::from_utf8(listed.stdout).unwrap();
        let missing = names.iter().filter(|name| !shown.contains(*name)).count();
        assert!((1..100).contains(&missing), "{kind}: {missing} of 200 are missing");
        let tree = on(image.path(), &["tree", "/many"]);
        assert_partly(&tree, 1, &[&format!("block {bad}")]);
        let tree = String::from_utf8(tree.stdout).unwrap();
        assert_eq!(names.iter().filter(|name| !tree.contains(*name)).count(), missing);
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("copy");
        let got = run(Command::new(PROGRAM)
            .arg("get")
            .arg(image.path())
            .args([OsStr::new("/many"), copy.as_os_str()]));
        assert_eq!(got.code, 1, "{}", got.stderr);
        assert!(got.stderr.contains(&format!("block {bad}")), "{}", got.stderr);
        assert_eq!(fs::read_dir(&copy).unwrap().count(), names.len() - missing);
    }
}

/// What is recorded of errors is told by `info`, and when the filesystem is mounted.
#[test]
fn recorded_errors_are_told() {
    let image = small(&[("/file", "x")]);
    let dir = tempfile::tempdir().unwrap();
    let text = |image: &Image| on(image.path(), &["info"]).text();
    assert!(text(&image).contains("state     clean\n"));
    for (state, count, told) in [
        (1, 0, None),
        (3, 0, Some("is marked as having errors; run e2fsck")),
        (1, 1, Some("Linux has recorded 1 error; run e2fsck")),
        (3, 3, Some("Linux has recorded 3 errors; run e2fsck")),
    ] {
        image.debugfs_write(&[&format!("ssv state {state}"), &format!("ssv error_count {count}")]).unwrap();
        let shown = text(&image);
        assert_eq!(shown.contains("errors") || shown.contains("1 error"), told.is_some(), "{shown}");
        let json = on(image.path(), &["info", "--json"]).json();
        assert_eq!(
            (&json["state"]["errors"], &json["state"]["error_count"]),
            (&told.is_some().into(), &count.into())
        );
        if let Some(told) = told {
            assert!(shown.contains(told), "{shown}");
        }
        let point = dir.path().join("point");
        fs::create_dir_all(&point).unwrap();
        let mounted = run(Command::new(PROGRAM).args(["mount", "-o", "rw"]).arg(image.path()).arg(&point));
        let state = run(Command::new(PROGRAM).args(["info", "--json"]).arg(&point)).json();
        run(Command::new(PROGRAM).arg("unmount").arg(&point)).succeeded();
        assert_partly(&mounted, 0, &told.into_iter().collect::<Vec<_>>());
        let state = state["mount"]["state"].as_str().unwrap().to_owned();
        assert_eq!(state, if told.is_some() { "rw, has errors, run e2fsck" } else { "rw" });
    }
}
