//! What `mkfs --from` fills: image files that are replaced, and devices that are filled where they are.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use crate::support::{PROGRAM, run, tool, undercroft};

/// A directory with a file in it.
fn tree(dir: &Path) -> String {
    let tree = dir.join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("a/b/file"), b"content").unwrap();
    tree.to_str().unwrap().to_owned()
}

/// Directories at the top of an ext2 of several groups, which are spread over them.
#[test]
fn directories_are_spread_the_same_way_every_time() {
    let dir = tempfile::tempdir().unwrap();
    let from = tree(dir.path());
    for n in 0..12 {
        fs::create_dir(dir.path().join(format!("tree/top-{n}"))).unwrap();
        fs::write(dir.path().join(format!("tree/top-{n}/file")), vec![n; 5000]).unwrap();
    }
    let image = dir.path().join("image");
    let path = image.to_str().unwrap();
    let mut first: Option<Vec<u8>> = None;
    for _ in 0..3 {
        let options =
            ["mkfs", "ext2", path, "-q", "--force", "--size", "300M", "--seed", "one", "--from", &from];
        run(Command::new(PROGRAM).args(options).env("SOURCE_DATE_EPOCH", "1700000000")).succeeded();
        let made = fs::read(&image).unwrap();
        assert!(first.as_ref().is_none_or(|first| *first == made));
        first = Some(made);
    }
    tool("e2fsck -fn image", dir.path());
}

#[test]
fn a_replaced_image_keeps_its_size_format_owner_and_permissions() {
    let dir = tempfile::tempdir().unwrap();
    let from = tree(dir.path());
    let image = dir.path().join("d.img");
    let path = image.to_str().unwrap();
    tool("qemu-img create -q -f qcow2 d.img 64M", dir.path());
    chown(&image, Some(1234), Some(4321)).unwrap();
    fs::set_permissions(&image, Permissions::from_mode(0o640)).unwrap();
    let refused = undercroft(["mkfs", "ext4", path, "--format", "raw", "--from", &from]).failed(2);
    assert!(refused.contains("is a qcow2 image already"), "{refused}");
    undercroft(["mkfs", "ext4", path, "-q", "--from", &from]).succeeded();
    let now = fs::metadata(&image).unwrap();
    assert_eq!((now.uid(), now.gid(), now.mode() & 0o7777), (1234, 4321, 0o640));
    let mut magic = [0; 4];
    fs::File::open(&image).unwrap().read_exact_at(&mut magic, 0).unwrap();
    assert_eq!(&magic, b"QFI\xfb");
    tool("qemu-img convert -O raw d.img raw", dir.path());
    assert_eq!(fs::metadata(dir.path().join("raw")).unwrap().len(), 64 << 20);
    tool("e2fsck -fn raw", dir.path());
}

/// A disk with one partition, in its own source.
#[test]
fn a_partition_has_no_superblock_before_it_is_filled() {
    let dir = tempfile::tempdir().unwrap();
    let from = tree(dir.path());
    let disk = dir.path().join("tree/disk");
    fs::File::create(&disk).unwrap().set_len(402 << 20).unwrap();
    fs::write(dir.path().join("table"), "start=2048, size=819200\n").unwrap();
    let table =
        Command::new("sh").args(["-c", "sfdisk -q tree/disk < table"]).current_dir(dir.path()).status();
    assert!(table.unwrap().success());
    let path = format!("{}?part=1", disk.display());
    let broken = dir.path().join("broken.tar");
    tool("tar -cf broken.tar tree/a", dir.path());
    fs::File::options().write(true).open(&broken).unwrap().set_len(1200).unwrap();
    let superblock = || {
        let mut bytes = vec![0; 4096];
        fs::File::open(&disk).unwrap().read_exact_at(&mut bytes, 1 << 20).unwrap();
        bytes
    };
    for (kind, checker) in [("ext4", "e2fsck -fn part"), ("xfs", "xfs_repair -n part")] {
        let make = |source: &str| undercroft(["mkfs", kind, &path, "--force", "-q", "--from", source]);
        make(&from).succeeded();
        tool("dd if=tree/disk of=part bs=1M skip=1 count=400 status=none", dir.path());
        tool(checker, dir.path());
        assert!(superblock().iter().any(|&byte| byte != 0));
        let names = String::from_utf8(undercroft(["ls", &path, "/"]).succeeded()).unwrap();
        assert!(names.lines().any(|name| name == "a") && !names.contains("disk"), "{names}");
        make(broken.to_str().unwrap()).failed(5);
        assert!(superblock().iter().all(|&byte| byte == 0));
    }
    for option in [["--free", "10%"], ["--size", "auto"]] {
        let refused = undercroft(["mkfs", "ext4", &path, option[0], option[1], "--from", &from]).failed(2);
        assert!(refused.contains(option[0]) && refused.contains("for image files"), "{refused}");
    }
}

#[test]
fn directories_that_no_entry_names_follow_the_rules() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    tool("tar -cf some.tar -C tree a/b/file", dir.path());
    let image = dir.path().join("image");
    let path = image.to_str().unwrap();
    let archive = dir.path().join("some.tar");
    for (kind, checker) in [("ext4", "e2fsck -fn image"), ("xfs", "xfs_repair -n image")] {
        // The size of one that is there would be kept.
        let _ = fs::remove_file(&image);
        let rules = ["--owner", "70:71", "--mode", "go-x", "--mtime", "@100"];
        let mut args = vec!["mkfs", kind, path, "-q", "--from", archive.to_str().unwrap()];
        args.extend(rules);
        undercroft(args).succeeded();
        tool(checker, dir.path());
        for name in ["/", "/a", "/a/b"] {
            let stat = undercroft(["stat", "--json", path, name]).json();
            assert_eq!((&stat["uid"], &stat["gid"]), (&70.into(), &71.into()), "{stat}");
            assert_eq!(
                (&stat["mode"], &stat["modified"]),
                (&"0744".into(), &"1970-01-01T00:01:40.000000000Z".into())
            );
        }
    }
}

/// As a build system does it each time.
#[test]
fn the_same_command_again_makes_the_same_image() {
    let dir = tempfile::tempdir().unwrap();
    let from = tree(dir.path());
    let image = dir.path().join("image");
    let path = image.to_str().unwrap();
    let make = || {
        let mut command = Command::new(PROGRAM);
        command.args(["mkfs", "ext4", path, "-q", "-F", "--seed", "one", "--from", &from]);
        run(command.env("SOURCE_DATE_EPOCH", "1700000000")).succeeded();
        fs::read(&image).unwrap()
    };
    assert!(make() == make());
    // What has grown meanwhile gets more room.
    fs::write(dir.path().join("tree/more"), vec![1; 1 << 20]).unwrap();
    make();
    tool("e2fsck -fn image", dir.path());
    // That an image becomes smaller is said.
    undercroft(["mkfs", "ext4", path, "-q", "-F", "--size", "1G"]).succeeded();
    let again = undercroft(["mkfs", "ext4", path, "-q", "-F", "--from", &from]);
    assert!(again.stderr.contains("was 1 GiB large"), "{}", again.stderr);
    assert!(fs::metadata(&image).unwrap().len() < 100 << 20);
    // A file that holds nothing has its size from its user.
    let blank = fs::File::create(&image).unwrap();
    blank.set_len(64 << 20).unwrap();
    drop(blank);
    assert_eq!(make().len(), 64 << 20);
}

#[test]
fn an_empty_pipe_is_no_archive_and_leaves_the_image() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("image"), b"kept").unwrap();
    for from in ["-", "/dev/null"] {
        let mut command = Command::new(PROGRAM);
        command.args(["mkfs", "ext4", "image", "-F", "--from", from]).current_dir(dir.path());
        let refused = run(command.stdin(std::process::Stdio::null()));
        assert_ne!(refused.code, 0, "{from}");
        assert!(refused.stderr.contains("the archive is empty"), "{}", refused.stderr);
        assert_eq!(fs::read(dir.path().join("image")).unwrap(), b"kept");
    }
}

#[test]
fn the_root_has_the_owner_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let from = tree(dir.path());
    chown(&from, Some(77), Some(88)).unwrap();
    let path = dir.path().join("image").to_str().unwrap().to_owned();
    undercroft(["mkfs", "ext4", &path, "-q", "-d", &from, "-E", "root_owner=5:6"]).succeeded();
    let stat = undercroft(["stat", "--json", &path, "/"]).json();
    assert_eq!((&stat["uid"], &stat["gid"]), (&5.into(), &6.into()), "{stat}");
    // No member of this archive is the root.
    let archive = dir.path().join("members.tar");
    let made = Command::new("tar").args(["-C", &from, "-cf"]).arg(&archive).arg("a/b/file").status().unwrap();
    assert!(made.success());
    let other = dir.path().join("other").to_str().unwrap().to_owned();
    let archive = archive.to_str().unwrap();
    undercroft(["mkfs", "ext4", &other, "-q", "-d", archive, "--owner", "0:0", "-E", "root_owner=5:6"])
        .succeeded();
    let stat = undercroft(["stat", "--json", &other, "/"]).json();
    assert_eq!((&stat["uid"], &stat["gid"]), (&5.into(), &6.into()), "{stat}");
}
