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
    for word in ["clear", "nil"] {
        assert_eq!(uuid(word), "\"00000000-0000-0000-0000-000000000000\"");
    }
    assert_ne!(uuid("generate"), uuid("GENERATE"));
    let args = ["mkfs", "-q", "-U", "restore", "ext4", "none.img", "--size", "8M"];
    let refused = run(Command::new(PROGRAM).args(args).current_dir(dir.path())).failed(2);
    assert!(refused.contains("has no UUID that could come back"), "{refused}");
    assert!(!dir.path().join("none.img").exists());
}

/// The configuration that `MKE2FS_CONFIG` names counts, unless it is left out; what is wrong with it is said with its line.
#[test]
fn a_mke2fs_conf_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let (image, conf) = (dir.path().join("image"), dir.path().join("mke2fs.conf"));
    let path = image.to_str().unwrap();
    let inode_bytes = |text: &str, options: &[&str]| {
        let _ = fs::remove_file(&image);
        fs::write(&conf, text).unwrap();
        let args = [&["mkfs", "ext4", path, "--size", "64M", "--json"], options].concat();
        let mut command = Command::new(PROGRAM);
        run(command.args(args).env("MKE2FS_CONFIG", &conf))
    };
    let text =
        "[fs_types]\next4 = {\nfeatures = extent\ninode_size = 512\n}\nnews = {\ninode_size = 1024\n}\n";
    assert_eq!(inode_bytes(text, &[]).json()["inode_bytes"], 512);
    assert_eq!(inode_bytes(text, &["-T", "news"]).json()["inode_bytes"], 1024);
    assert_eq!(inode_bytes(text, &["-I", "128"]).json()["inode_bytes"], 128);
    assert_eq!(inode_bytes(text, &["--no-conf"]).json()["inode_bytes"], 256);
    assert_eq!(inode_bytes("[fs_types\n", &["--no-conf"]).json()["inode_bytes"], 256);
    let message = inode_bytes("[fs_types]\n}\n", &[]).failed(2);
    let wrong = format!("{}, line 2: there is no {{ for this }}", conf.display());
    assert_eq!(message, format!("{wrong}; correct it, or leave it out with `--no-conf`"));
    assert!(inode_bytes(text, &["-T", "new"]).failed(2).contains("does not define the usage \"new\""));
    assert!(inode_bytes("", &[]).failed(2).contains("does not define ext4"));
    assert!(!image.exists(), "a refusal leaves no file");
    fs::remove_file(&conf).unwrap();
    let mut command = Command::new(PROGRAM);
    let args = ["mkfs", "ext4", path, "--size", "64M", "--json"];
    let built_in = run(command.args(args).env("MKE2FS_CONFIG", &conf)).json();
    assert!(built_in["features"].as_array().unwrap().contains(&"orphan_file".into()), "{built_in}");
}

/// Options of mke2fs that mean nothing here are taken, and those that ask for something else are refused with the reason.
#[test]
fn other_options_of_mke2fs_are_taken_or_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let path = image.to_str().unwrap();
    let make = |options: &[&str]| {
        undercroft([&["mkfs", "ext4", path, "--size", "64M", "--no-conf"], options].concat())
    };
    for (options, words) in [
        (&["-c"][..], "-c is not taken: disks map bad blocks away"),
        (&["-l", "list"], "-l is not taken"),
        (&["-o", "hurd"], "made for Linux"),
        (&["-r", "0"], "revision 0"),
        (&["-S"], "IMAGE?sb=BLOCK"),
        (&["-z", "undo"], "copy the image before"),
        (&["-E", "offset=4096"], "IMAGE?part=N"),
        (&["-E", "packed_meta_blocks=1"], "is not taken"),
        (&["-E", "quotatype=usrquota"], "tune2fs -O quota"),
        (&["-E", "nonesuch"], "there is no such option"),
        (&["-b", "0", "-E", "orphan_file_size=1M"], "take a power of two from 1024"),
        (&["-r", "2"], "no such revision"),
        (&["-E", "stride"], "it takes a value"),
        (&["-E", "root_owner=5"], "take UID:GID"),
        (&["-E", "resize=0"], "more than the filesystem's"),
        (&["-J", "device=/dev/null"], "journals on other devices are not made"),
        (&["-J", "\u{1b}=1"], "-J \\x1b=1: there is no such option"),
        (&["-G", "8", "-O", "^flex_bg"], "add it with -O flex_bg"),
        (&["-e", "ignore"], "take continue, remount-ro or panic"),
        (&["-E", "mmp_update_interval=5"], "add it with -O mmp"),
        (&["-E", "encoding=latin1"], "take utf8"),
    ] {
        let message = make(options).failed(2);
        assert!(message.contains(words) && !image.exists(), "{options:?}: {message}");
    }
    let plan = make(&["-n", "-v"]).text();
    assert!(plan.contains("ext4 of 64 MiB") && !image.exists(), "{plan}");
    let extended =
        "orphan_file_size=256k,test_fs,assume_storage_prezeroed=1,lazy_journal_init=1,num_backup_sb=2";
    make(&["-D", "-v", "-K", "-e", "panic", "-M", "/srv", "-b", "1024", "-E", extended]).succeeded();
    tool(&format!("e2fsck -fn {path}"), dir.path());
    let dump = tool(&format!("dumpe2fs -h {path}"), dir.path());
    for line in ["Last mounted on:          /srv", "Errors behavior:          Panic", "test_filesystem"] {
        assert!(dump.contains(line), "{line} in {dump}");
    }
    let owner = owner_of_new_files(dir.path());
    for (options, lines) in [
        (&["-r", "1", "-o", "LINUX", "-T", "news,", "-E", ""][..], &["Inode count:              16384"][..]),
        (
            &["-E", "resize=1G,stride=0x10,orphan_file_size=256k,mmp_update_interval=0,"],
            &["RAID stride:              16"],
        ),
        (&["-O", "mmp", "-E", "mmp_update_interval=0,root_owner"], &["MMP update interval:      5"]),
        (&["-U", "null"], &["Filesystem UUID:          <none>"]),
        (&["-J", "size=4", "-O", "-has_journal +Large_Dir"], &["has_journal", "large_dir"]),
        (&["-j", "-O", "none"], &["Filesystem features:      has_journal\n"]),
        (&["-J", "fast_commit_size=1024"], &["Total journal size:       4096k"]),
    ] {
        make(&[options, &["-F"]].concat()).succeeded();
        tool(&format!("e2fsck -fn {path}"), dir.path());
        let dump = tool(&format!("dumpe2fs -h {path}"), dir.path());
        for line in lines {
            assert!(dump.contains(line), "{options:?}: {line} in {dump}");
        }
        if options.iter().any(|option| option.ends_with("root_owner")) {
            let stat = undercroft(["stat", "--json", path, "/"]).json();
            assert_eq!((stat["uid"].as_u64(), stat["gid"].as_u64()), (Some(owner.0), Some(owner.1)));
        }
    }
    make(&["-F", "-U", "time"]).succeeded();
    let uuid = undercroft(["info", "--json", path]).json()["uuid"].as_str().unwrap().to_owned();
    assert_eq!(uuid.as_bytes()[14], b'1', "{uuid} is of the version that has the time");
}

/// User and group that own what this process makes.
fn owner_of_new_files(dir: &std::path::Path) -> (u64, u64) {
    let file = dir.join("owner");
    fs::write(&file, "").unwrap();
    let found = fs::metadata(&file).unwrap();
    (found.uid().into(), found.gid().into())
}

/// What cannot be a configuration is neither waited for nor read to its end, and its names do not reach the terminal.
#[test]
fn what_is_no_mke2fs_conf_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (image, conf) = (dir.path().join("image"), dir.path().join("mke2fs.conf"));
    let make = |conf: &std::path::Path, kind: &str, options: &[&str]| {
        let _ = fs::remove_file(&image);
        let args = [&["mkfs", kind, image.to_str().unwrap(), "--size", "64M", "--json"], options].concat();
        let mut command = Command::new(PROGRAM);
        run(command.args(args).env("MKE2FS_CONFIG", conf))
    };
    let message = make("/dev/zero".as_ref(), "ext4", &[]).failed(2);
    assert!(message.contains("no regular file"), "{message}");
    tool("mkfifo fifo", dir.path());
    let message = make(&dir.path().join("fifo"), "ext4", &[]).failed(2);
    assert!(message.contains("no regular file"), "{message}");
    fs::write(&conf, vec![b'\n'; (1 << 20) + 1]).unwrap();
    assert!(make(&conf, "ext4", &[]).failed(2).contains("too many"));

    let many: String = (0..50_000).map(|n| format!("t{n} = {{\n}}\n")).collect();
    let text = format!("[fs_types]\next4 = {{\n}}\n\u{1b}]0x\u{7} = {{\n}}\n{many}");
    fs::write(&conf, text).unwrap();
    let message = make(&conf, "ext4", &["-T", "foo"]).failed(2);
    assert!(message.len() < 1000 && !message.contains(['\u{1b}', '\u{7}']), "{message}");
    assert!(message.contains("and 49982 more"), "{message}");

    let text = "[fs_types] # \u{fffd}\next4 =\n{\nfeatures = extent # all\ninode_size = 0x200\n";
    fs::write(&conf, [b"# \xff\n", text.as_bytes()].concat()).unwrap();
    assert_eq!(make(&conf, "ext4", &[]).json()["inode_bytes"], 512);

    // A directory stands for its files, but for those that have an extension.
    let files = dir.path().join("conf.d");
    fs::create_dir(&files).unwrap();
    assert_eq!(make(&files, "ext4", &[]).json()["inode_bytes"], 256);
    fs::write(files.join("b"), text).unwrap();
    fs::write(files.join("a.conf"), "[fs_types\n").unwrap();
    assert_eq!(make(&files, "ext4", &[]).json()["inode_bytes"], 512);
    fs::write(files.join("a-1"), text.replace("0x200", "1024")).unwrap();
    assert_eq!(make(&files, "ext4", &[]).json()["inode_bytes"], 1024);
}
