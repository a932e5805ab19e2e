//! XFS written to through the program: what a mount changed is there for Linux, and what is not written says why.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use undercroft_oracle::{Image, MkfsXfs, MountMode};

use crate::support::{PROGRAM, run, undercroft};

fn small(args: &str) -> Image {
    MkfsXfs::new(64, args).make().unwrap()
}

fn mount(options: &[&str], image: &Image, dir: &Path) {
    run(Command::new(PROGRAM).arg("mount").args(options).arg(image.path()).arg(dir)).succeeded();
}

fn unmount(dir: &Path) {
    undercroft([OsStr::new("unmount"), dir.as_os_str()]).succeeded();
}

fn shell(script: &str, dir: &Path) -> String {
    run(Command::new("bash").args(["-ec", script]).current_dir(dir)).text()
}

/// What is written to an image is there afterwards, for us and for the kernel, and xfs_repair finds nothing wrong.
#[test]
fn an_image_is_changed_through_a_mount() {
    let image = small("-m rmapbt=1");
    let dir = tempfile::tempdir().unwrap();
    for options in ["rw", "rw,sync,commit=1", "rw,finobt=off,overwrite=journaled,pdirops=off"] {
        mount(&["-o", options], &image, dir.path());
        shell(
            "echo new >> file; mkdir -p d/e; ln -f file d/e/link; truncate -s 1000 d/hole; rm -f gone; \
             setfattr -n user.note -v told file; for n in $(seq 300); do : > d/a-name-of-some-length-$n; done; \
             dd if=/dev/zero of=d/zeroes bs=64k count=20 status=none; rm -f d/*-1??",
            dir.path(),
        );
        shell("echo x > gone; chmod 640 file", dir.path());
        unmount(dir.path());
        image.xfs_repair_check().unwrap();
    }
    let shown = undercroft([OsStr::new("cat"), image.path().as_os_str(), OsStr::new("/d/e/link")]).text();
    assert_eq!(shown, "new\nnew\nnew\n");
    let kernels = image.mount(MountMode::ReadWrite, "noatime").unwrap();
    let told = shell(
        "cat file; stat -c %a file; ls d | wc -l; getfattr --only-values -n user.note file",
        kernels.path(),
    );
    assert_eq!(told, "new\nnew\nnew\n640\n203\ntold");
    kernels.unmount().unwrap();
}

#[test]
fn a_snapshot_leaves_the_image_as_it_is() {
    let image = small("");
    let before = image.sha256().unwrap();
    let dir = tempfile::tempdir().unwrap();
    mount(&["--snapshot"], &image, dir.path());
    assert_eq!(shell("echo new > file; mkdir d; sync -f .; cat file", dir.path()), "new\n");
    unmount(dir.path());
    assert_eq!(image.sha256().unwrap(), before);
}

/// Blocks that mkfs.xfs makes directory blocks of several of.
#[test]
fn what_mkfs_makes_with_small_blocks_is_written() {
    let scratch = tempfile::tempdir().unwrap();
    let (image, dir) = (scratch.path().join("image"), scratch.path().join("mounted"));
    std::fs::create_dir(&dir).unwrap();
    for options in [&["-b", "size=1024"][..], &["-b", "size=2k", "-n", "size=16k"]] {
        let path = image.to_str().unwrap();
        let mut command = Command::new(PROGRAM);
        run(command.args(["mkfs", "xfs", path, "--size", "320M", "--force"]).args(options)).succeeded();
        let mut command = Command::new(PROGRAM);
        run(command.args(["mount", "-o", "rw", path]).arg(&dir)).succeeded();
        let names = "mkdir d; for i in $(seq 900); do : > d/a-name-of-some-length-$i; done; rm d/*[13579]; ls d | wc -l";
        assert_eq!(shell(names, &dir).trim(), "450");
        unmount(&dir);
        let repair = Command::new("xfs_repair").args(["-n", path]).output().unwrap();
        assert!(repair.status.success(), "{}", String::from_utf8_lossy(&repair.stderr));
    }
}

#[test]
fn what_is_not_written_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |options: &str, image: &Image, code| {
        let mut command = Command::new(PROGRAM);
        run(command.args(["mount", "-o", options]).arg(image.path()).arg(dir.path())).failed(code)
    };
    let version4 = small("-m crc=0,finobt=0 -i nrext64=0");
    assert!(refused("rw", &version4, 4).contains("version 4"));
    let image = small("");
    for (options, code, says) in [
        ("rw,orphan=list", 4, "\"orphan=\" is one of ext4"),
        ("rw,finobt=perhaps", 2, "takes \"on\" or \"off\""),
    ] {
        let message = refused(options, &image, code);
        assert!(message.contains(says), "{message}");
    }
    // What cannot be written can be read.
    mount(&[], &version4, dir.path());
    unmount(dir.path());
}
