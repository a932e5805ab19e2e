//! In a container: user and mount namespaces as CI runners, rootless containers and services have them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{PROGRAM, Run, run, small, tool};

/// Runs a script in new namespaces.
fn unshared(dir: &Path, flags: &[&str], script: &str) -> Run {
    let mut command = Command::new("unshare");
    command.args(flags).args(["bash", "-c", script]).current_dir(dir);
    run(command.env("UNDERCROFT", PROGRAM).env("LC_ALL", "C"))
}

/// A mount that also another mount namespace has, the server's, is gone from here only.
#[test]
fn a_mount_of_another_namespace_is_told_at_once() {
    let image = small(&[("/file", "x")]);
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("point")).unwrap();
    fs::copy(image.path(), dir.path().join("disk.img")).unwrap();
    run(Command::new(PROGRAM).args(["mount", "disk.img", "point"]).current_dir(dir.path())).succeeded();
    let began = Instant::now();
    let told = unshared(
        dir.path(),
        &["--mount", "--propagation", "private"],
        "\"$UNDERCROFT\" unmount point; code=$?; findmnt point; exit $code",
    );
    assert!(began.elapsed() < Duration::from_secs(60));
    assert_eq!(told.stdout, b"", "it is gone from there");
    let told = told.failed(8);
    assert!(
        told.contains("is unmounted here, and still mounted in the mount namespace of process"),
        "{told}"
    );
    assert!(told.contains("; unmount it there, as root: nsenter -t "), "{told}");
    assert_eq!(tool("cat point/file", dir.path()), "x");
    run(Command::new(PROGRAM).args(["unmount", "point"]).current_dir(dir.path())).succeeded();
}

/// A namespace that was made from the server's is neither the server's nor ours: its mount is looked for once the server has
/// had its time.
#[test]
fn a_mount_of_a_third_namespace_is_told_soon() {
    let image = small(&[("/file", "x")]);
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("point")).unwrap();
    fs::copy(image.path(), dir.path().join("disk.img")).unwrap();
    let began = Instant::now();
    let told = unshared(
        dir.path(),
        &["--mount", "--propagation", "private"],
        r#"
        "$UNDERCROFT" mount disk.img point
        mkfifo ready go
        unshare --mount --propagation private bash -c 'echo > ready; read < go; "$UNDERCROFT" unmount point; echo $?' &
        read < ready
        "$UNDERCROFT" unmount point
        code=$?
        echo > go
        wait
        exit $code
        "#,
    );
    assert!(began.elapsed() < Duration::from_secs(300), "not after the ten minutes that a server may take");
    assert_eq!(told.stdout, b"0\n", "the last one ends the server");
    let told = told.failed(8);
    assert!(told.contains("still mounted in the mount namespace of process"), "{told}");
}

/// A container without root: one user, which is called root inside.
#[test]
fn a_user_namespace_reads_makes_and_mounts() {
    let image = small(&[("/etc/file", "content\n"), ("/etc/other", "x")]);
    image.debugfs_write(&["sif /etc/file uid 1000", "sif /etc/file gid 100"]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("point")).unwrap();
    fs::copy(image.path(), dir.path().join("disk.img")).unwrap();
    tool("chown -R 65534:65534 .", dir.path());
    let mut command = Command::new("runuser");
    command.args(["-u", "nobody", "--", "unshare", "-Ur", "bash", "-ec"]).arg(
        r#"
        "$UNDERCROFT" info disk.img > info
        "$UNDERCROFT" get disk.img / copy
        cat copy/etc/file
        "$UNDERCROFT" get --tar disk.img /etc | tar -t | sort
        "$UNDERCROFT" mkfs -q ext4 new.img --size 8M
        "$UNDERCROFT" check disk.img > check
        "#,
    );
    tool(&format!("chmod 755 {}", dir.path().display()), Path::new("/"));
    let program = dir.path().join("undercroft");
    crate::support::copy_program(&program);
    let told = run(command.current_dir(dir.path()).env("UNDERCROFT", &program).env("LC_ALL", "C"));
    assert_eq!(told.code, 0, "{}", told.stderr);
    assert_eq!(String::from_utf8_lossy(&told.stdout), "content\netc/\netc/file\netc/other\n");
    // Owners that there are none of in the container are told once, and lost.
    assert!(told.stderr.lines().count() <= 1, "{}", told.stderr);
}
