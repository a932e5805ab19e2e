//! `mount` and `unmount`: the command returns when the files are there, and leaves when they are not.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::support::{PROGRAM, run, small, tool, undercroft};

#[test]
fn a_mount_serves_in_the_background_until_unmounted() {
    let image = small(&[("/dir/file", "through the kernel\n")]);
    let dir = tempfile::tempdir().unwrap();
    let point = dir.path().join("point");
    fs::create_dir(&point).unwrap();
    // Relative paths: the server has its working directory elsewhere.
    fs::copy(image.path(), dir.path().join("disk.img")).unwrap();
    let mut command = Command::new(PROGRAM);
    run(command.args(["mount", "disk.img", "point"]).current_dir(dir.path())).succeeded();
    // Other programs look inside: a file open here would be open for a moment in every child of every other test.
    assert_eq!(tool("cat point/dir/file", dir.path()), "through the kernel\n");
    let source = tool("findmnt -no SOURCE point", dir.path());
    assert_eq!(source.trim(), dir.path().join("disk.img").display().to_string());
    tool("test ! -w point/dir/file", dir.path());

    let mut guest = Command::new("sleep").arg("1000").current_dir(point.join("dir")).spawn().unwrap();
    let message = undercroft([OsStr::new("unmount"), point.as_os_str()]).failed(8);
    guest.kill().unwrap();
    guest.wait().unwrap();
    assert!(message.contains("is in use"), "{message}");
    undercroft([OsStr::new("unmount"), point.as_os_str()]).succeeded();
    assert_eq!(fs::read_dir(&point).unwrap().count(), 0);
    let message = undercroft([OsStr::new("unmount"), point.as_os_str()]).failed(8);
    assert!(message.starts_with("nothing is mounted on"), "{message}");
}

/// The image is free again when `unmount` returns: the server is gone, not only the mount.
#[test]
fn the_image_is_free_after_unmounting() {
    let image = small(&[]);
    let dir = tempfile::tempdir().unwrap();
    run(Command::new(PROGRAM).arg("mount").arg(image.path()).arg(dir.path())).succeeded();
    undercroft([OsStr::new("unmount"), dir.path().as_os_str()]).succeeded();
    tool(&format!("flock -xn {} true", image.path().display()), dir.path());
}

#[test]
fn the_foreground_ends_with_a_signal() {
    let image = small(&[("/file", "x")]);
    let dir = tempfile::tempdir().unwrap();
    let mut server = Command::new(PROGRAM)
        .args(["mount", "--foreground", "--announce"])
        .arg(image.path())
        .arg(dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut word = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut word).unwrap();
    assert_eq!(word, "ready\n");
    assert_eq!(tool("cat file", dir.path()), "x");
    tool(&format!("kill -TERM {}", server.id()), dir.path());
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// What goes wrong in the process in the background is told once, with its own exit code.
#[test]
fn a_mount_that_fails_says_why() {
    let image = small(&[]);
    let dir = tempfile::tempdir().unwrap();
    let at = |image: &std::path::Path, point: &std::path::Path, more: &[&str]| {
        run(Command::new(PROGRAM).arg("mount").args(more).arg(image).arg(point))
    };
    let missing = dir.path().join("missing");
    let shown = missing.display();
    assert_eq!(
        at(image.path(), &missing, &[]).failed(8),
        format!(
            "cannot mount on {shown}: No such file or directory; make the directory first: mkdir {shown}"
        )
    );
    let message = at(&missing, dir.path(), &[]).failed(3);
    assert_eq!(message, format!("cannot open {shown}: No such file or directory; check the path"));
    let message = at(image.path(), dir.path(), &["-o", "ro,allow_otter"]).failed(2);
    assert_eq!(message, "unknown mount option \"allow_otter\"");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
