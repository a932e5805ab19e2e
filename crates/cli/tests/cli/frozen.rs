//! `freeze` and `thaw`: what is written waits, the image stays as it is and is what a power cut would leave.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

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

/// A server that was stopped. It goes on, or is killed when a test fails before.
struct Stopped(Pid);

impl Stopped {
    fn goes_on(self) {
        kill_process(self.0, Signal::CONT).unwrap();
        std::mem::forget(self);
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

/// Takes the mount on `point` away without a word to its server.
fn detach(point: &Path) {
    rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH).unwrap();
}

/// The kernel gives the number of a mount's device to the next mount while the first server still closes its image.
#[test]
fn a_mount_with_the_number_of_one_that_was_frozen_is_another() {
    for _ in 0..40 {
        let (old, new) = (scene(), scene());
        here(new.path(), "unmount point").succeeded();
        let number = fs::metadata(old.path().join("point")).unwrap().dev();
        fs::write(old.path().join("point/file"), "x").unwrap();
        here(old.path(), "freeze point").succeeded();
        let mounts = here(old.path(), "mounts --json").json();
        let point = old.path().join("point").canonicalize().unwrap();
        let mount =
            mounts.as_array().unwrap().iter().find(|mount| mount["mounted_on"] == point.to_str().unwrap());
        let process = mount.unwrap()["process"].as_i64().unwrap();
        let server = Pid::from_raw(process.try_into().unwrap()).unwrap();
        kill_process(server, Signal::STOP).unwrap();
        let stopped = Stopped(server);
        detach(&point);
        here(new.path(), "mount -o rw disk.img point").succeeded();
        let is_same = fs::metadata(new.path().join("point")).unwrap().dev() == number;
        stopped.goes_on();
        if is_same {
            here(new.path(), "freeze point").succeeded();
            assert_eq!(state(new.path()), "rw, frozen");
            // The first server does not wait for the second mount's end.
            let gone = || {
                let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
                stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
            };
            let end = Instant::now() + Duration::from_secs(60);
            while !gone() && Instant::now() < end {
                sleep(Duration::from_millis(10));
            }
            assert!(gone(), "the server of a frozen mount waits for another mount");
            tool("e2fsck -fp disk.img", old.path());
            here(new.path(), "thaw point").succeeded();
        }
        here(new.path(), "unmount point").succeeded();
        if is_same {
            return;
        }
    }
    panic!("no mount got the number of another");
}
