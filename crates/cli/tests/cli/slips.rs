//! Slips of the hand: a mistyped hint or option, a wrong order, a type that is not made. Each is named with what was
//! probably meant, and leaves nothing behind.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{PROGRAM, Run, run, small, tool};

fn here(dir: &Path, args: &[&str]) -> Run {
    run(Command::new(PROGRAM).args(args).current_dir(dir))
}

/// A directory with `disk.img`, which has `/etc/file`, and `point`.
fn scene() -> tempfile::TempDir {
    let image = small(&[("/etc/file", "x")]);
    let dir = tempfile::tempdir().unwrap();
    fs::copy(image.path(), dir.path().join("disk.img")).unwrap();
    fs::create_dir(dir.path().join("point")).unwrap();
    dir
}

#[test]
fn a_mistyped_hint_names_no_file_and_makes_none() {
    let dir = scene();
    for (args, told) in [
        (&["ls", "disk.img?prt=1"][..], "there is no hint `?prt=1`; did you mean `?part=N`"),
        (&["info", "disk.img?part=1&part=2"], "`?part` is given twice; leave one out"),
        (&["info", "disk.img?part=1?part=1"], "`?part` is given twice; leave one out"),
        (&["info", "disk.img?log=disk.img"], "disk.img cannot be the device of its own log"),
        (&["info", "disk.img?log=./disk.img"], "cannot be the device of its own log; name the other device"),
        (&["info", "disk.img?log="], "what follows `?log=` is no path"),
        (&["info", "disk.img?sb"], "what follows `?sb=` is no block number"),
        (
            &["mkfs", "ext4", "x.img?sz=10M", "--size", "10M"],
            "there is no hint `?sz=10M`; did you mean `?sb=BLOCK`",
        ),
        (&["mkfs", "ext4", "x.img?part", "--size", "10M"], "is no number or name of a partition"),
        (&["mount", "disk.img?prat=2", "point"], "did you mean `?part=N`"),
        (&["md", "status", "md:a,b?degarded"], "did you mean `?degraded`"),
        (&["md", "status", "md:a,b?force?force"], "`?force` is given twice"),
    ] {
        let message = here(dir.path(), args).failed(2);
        assert!(message.contains(told), "{args:?}: {message}");
    }
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    // A file of such a name is a file.
    fs::rename(dir.path().join("disk.img"), dir.path().join("disk.img?sz=3")).unwrap();
    assert_eq!(here(dir.path(), &["cat", "disk.img?sz=3", "/etc/file"]).text(), "x");
}

#[test]
fn image_and_path_in_the_wrong_order_are_recognised() {
    let dir = scene();
    for (args, told) in [
        (&["ls", "/nowhere", "disk.img"][..], "undercroft ls disk.img /nowhere"),
        (&["ls", "/etc", "disk.img"], "undercroft ls disk.img /etc"),
        (&["tree", "/nowhere", "disk.img"], "undercroft tree disk.img /nowhere"),
        (&["stat", "etc/file", "disk.img"], "undercroft stat disk.img etc/file"),
        (&["cat", "etc/file", "disk.img"], "undercroft cat disk.img etc/file"),
        (&["get", "/etc/file", "disk.img", "copy"], "undercroft get disk.img /etc/file DEST"),
    ] {
        let message = here(dir.path(), args).failed(3);
        assert!(message.ends_with(&format!("; the image comes first: {told}")), "{args:?}: {message}");
    }
    assert!(!dir.path().join("copy").exists());
}

#[test]
fn mount_takes_the_image_first() {
    let dir = scene();
    let message = here(dir.path(), &["mount", "point", "disk.img"]).failed(8);
    assert_eq!(
        message,
        "cannot mount on disk.img: it is not a directory; the image comes first: undercroft mount disk.img point"
    );
}

/// `tmpfs:` is for `mount`, and is made into no file by mistake.
#[test]
fn a_filesystem_in_memory_is_no_image() {
    let dir = scene();
    let message = here(dir.path(), &["mkfs", "ext4", "tmpfs:", "--size", "10M"]).failed(2);
    assert!(message.contains("`undercroft mount tmpfs: DIR` makes it"), "{message}");
    assert!(!dir.path().join("tmpfs:").exists());
    let message = here(dir.path(), &["info", "tmpfs:"]).failed(3);
    assert!(message.contains("a filesystem in memory is there once it is mounted"), "{message}");
    let message = here(dir.path(), &["mount", "tmpfs", "point"]).failed(3);
    assert!(message.contains("`undercroft mount tmpfs: DIR`"), "{message}");
    here(dir.path(), &["mkfs", "-q", "ext4", "./tmpfs:", "--size", "10M"]).succeeded();
    assert!(here(dir.path(), &["ls", "tmpfs:"]).text().contains("lost+found"));
}

#[test]
fn a_type_that_is_not_made_is_refused_by_name() {
    let dir = scene();
    for (typed, told) in [
        ("XFS", "it is written in small letters"),
        ("btrfs", "use `mkfs.btrfs`"),
        ("vfat", "use `mkfs.vfat`"),
        ("ntfs", "use `mkfs.ntfs`"),
        ("swap", "use `mkswap`"),
        ("tmpfs", "a tmpfs needs none: `undercroft mount tmpfs: DIR` makes it"),
        ("disk.img", "the type comes first: undercroft mkfs ext4 disk.img"),
        ("ext5", "`undercroft mkfs --help` tells about them"),
    ] {
        for args in [&["mkfs", typed, "new.img"][..], &["mkfs", "-t", typed, "new.img", "--size", "10M"]] {
            let message = here(dir.path(), args).failed(2);
            assert_eq!(
                message,
                format!("`mkfs` makes ext2, ext3, ext4 and xfs, and no \"{typed}\"; {told}"),
                "{args:?}"
            );
        }
    }
    assert!(!dir.path().join("new.img").exists());
}

#[test]
fn an_option_that_is_not_known_comes_with_the_nearest() {
    let dir = scene();
    for (source, options, told) in [
        ("disk.img", "comit=5", "mount option \"comit=5\" is unknown; did you mean \"commit=5\""),
        ("disk.img", "rw,noatim", "mount option \"noatim\" is unknown; did you mean \"noatime\""),
        ("disk.img", "frobnicate", "is unknown; `undercroft mount --help` lists the options"),
        ("disk.img", "size=1M", "is not one of this mount; it is for `tmpfs:`"),
        ("tmpfs:", "discard", "is not one of this mount; it is for images"),
        ("tmpfs:", "sise=1M", "is unknown; did you mean \"size=1M\""),
        ("disk.img", "data=journal", "is not supported; data is written as with \"data=ordered\""),
        ("disk.img", "sb=32768", "is not supported; name the copy of the superblock behind the image"),
        ("disk.img", "usrquota", "is not supported; no quota is kept"),
        ("disk.img", "remount,ro", "is not supported; unmount it and mount it again"),
    ] {
        let message = here(dir.path(), &["mount", "-o", options, source, "point"]).failed(2);
        assert!(message.contains(told), "{options}: {message}");
    }
    // Linux's own options are taken where they change nothing, with a word if they do nothing.
    let options =
        "rw,noatime,discard,commit=7,errors=remount-ro,acl,user_xattr,defaults,data=ordered,stripe=4";
    let mounted = here(dir.path(), &["mount", "-o", options, "disk.img", "point"]);
    assert_eq!(
        (mounted.code, mounted.stderr.as_str()),
        (0, "undercroft: note: mount option \"stripe=4\" has no effect here\n")
    );
    let shown = tool("findmnt -no OPTIONS point", dir.path());
    here(dir.path(), &["unmount", "point"]).succeeded();
    assert!(shown.contains("rw") && shown.contains("noatime"), "{shown}");
}

/// An XFS whose log lies on a device of its own needs that named, and not itself.
#[test]
fn a_log_on_another_device_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for (name, mib) in [("xfs.img", 320), ("log.img", 64)] {
        fs::File::create(dir.path().join(name)).unwrap().set_len(mib << 20).unwrap();
    }
    tool("mkfs.xfs -q -l logdev=log.img xfs.img", dir.path());
    here(dir.path(), &["ls", "xfs.img?log=log.img"]).succeeded();
    // Its type may be named as for mount(8).
    fs::create_dir(dir.path().join("point")).unwrap();
    here(dir.path(), &["mount", "-t", "xfs", "xfs.img?log=log.img", "point"]).succeeded();
    here(dir.path(), &["unmount", "point"]).succeeded();
    let message = here(dir.path(), &["ls", "xfs.img?log=xfs.img"]).failed(2);
    assert!(message.contains("xfs.img cannot be the device of its own log"), "{message}");
    assert_eq!(here(dir.path(), &["ls", "xfs.img?log=none.img"]).code, 3);
}
