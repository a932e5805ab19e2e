//! `freeze` and `thaw`: what is written waits, the image stays as it is and is what a power cut would leave.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::{PROGRAM, Run, run, tool};

fn here(dir: &Path, args: &str) -> Run {
    run(Command::new(PROGRAM).args(args.split(' ')).current_dir(dir))
}

/// A directory with an ext4 in `disk.img`, mounted on `point`.
fn scene() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("point")).unwrap();
    here(dir.path(), "mkfs -q ext4 disk.img --size 32M").succeeded();
    here(dir.path(), "mount -o rw disk.img point").succeeded();
    dir
}

fn state(dir: &Path) -> String {
    here(dir, "info --json point").json()["mount"]["state"].as_str().unwrap().to_owned()
}

#[test]
fn a_frozen_image_stays_as_it_is_and_can_be_copied() {
    let dir = scene();
    fs::write(dir.path().join("point/before"), "before\n").unwrap();
    here(dir.path(), "freeze point").succeeded();
    assert_eq!(state(dir.path()), "rw, frozen");
    let script = "for i in $(seq 200); do echo $i > point/$i; done; sync point/200; echo done > finished";
    let mut writer = Command::new("bash")
        .args(["-c", script])
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let before = fs::read(dir.path().join("disk.img")).unwrap();
    sleep(Duration::from_secs(1));
    assert!(!dir.path().join("finished").exists());
    assert!(fs::read(dir.path().join("disk.img")).unwrap() == before, "the image has changed");
    // The copy is one that a journal makes good.
    fs::write(dir.path().join("copy.img"), &before).unwrap();
    assert_eq!(here(dir.path(), "cat copy.img /before").text(), "before\n");
    let checked = run(Command::new("e2fsck").args(["-fy", "copy.img"]).current_dir(dir.path()));
    assert!(checked.code <= 1, "{}", String::from_utf8_lossy(&checked.stdout));
    let again = here(dir.path(), "freeze disk.img").failed(8);
    assert!(again.contains("is frozen already; `undercroft thaw` lets it go on"), "{again}");
    here(dir.path(), "thaw disk.img").succeeded();
    assert!(writer.wait().unwrap().success() && dir.path().join("finished").exists());
    assert_eq!(state(dir.path()), "rw");
    let again = here(dir.path(), "thaw point").failed(8);
    assert!(again.contains("is not frozen"), "{again}");
    here(dir.path(), "unmount point").succeeded();
    tool("e2fsck -fn disk.img", dir.path());
    assert_eq!(here(dir.path(), "cat disk.img /200").text(), "200\n");
}

#[test]
fn unmounting_thaws() {
    let dir = scene();
    fs::write(dir.path().join("point/file"), "x").unwrap();
    here(dir.path(), "freeze point").succeeded();
    let began = Instant::now();
    here(dir.path(), "unmount point").succeeded();
    assert!(began.elapsed() < Duration::from_secs(60));
    tool("e2fsck -fn disk.img", dir.path());
}

#[test]
fn what_is_not_written_to_cannot_be_frozen() {
    let dir = scene();
    here(dir.path(), "unmount point").succeeded();
    let refused = here(dir.path(), "freeze disk.img").failed(3);
    assert!(refused.contains("is not mounted for writing"), "{refused}");
    for source in ["disk.img", "tmpfs:", "--snapshot disk.img"] {
        here(dir.path(), &format!("mount {source} point")).succeeded();
        let refused = here(dir.path(), "freeze point").failed(2);
        here(dir.path(), "unmount point").succeeded();
        assert!(refused.contains("it cannot be frozen"), "{refused}");
    }
}
