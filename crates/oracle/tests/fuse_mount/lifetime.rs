//! How mounts begin and end.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use undercroft_fuse::{MountError, MountOptions, OptionError, UnmountError, mount, unmount};
use undercroft_oracle::unmount_when_idle;
use undercroft_vfs::{Vfs, VfsOptions};

use crate::sample::{HELLO, NOBODY, sample};
use crate::support::{Fixture, ServerProcess, USERS, command, example, is_mounted, until};

/// A killed server's mount is gone far sooner, on a machine that is not busy.
const SOON: Duration = Duration::from_secs(60);

fn vfs() -> Arc<Vfs> {
    Vfs::new(Arc::new(sample(1, 1)), VfsOptions::default())
}

#[test]
fn a_mount_answers_from_its_first_moment_and_disappears_with_its_last() {
    let dir = tempfile::tempdir().unwrap();
    let mounted = mount(vfs(), dir.path(), MountOptions::default()).unwrap();
    assert!(is_mounted(dir.path()));
    assert_eq!(fs::read(mounted.dir().join("hello")).unwrap(), HELLO);
    drop(mounted);
    assert!(!is_mounted(dir.path()));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_filesystem_is_closed_when_a_wait_returns() {
    let dir = tempfile::tempdir().unwrap();
    let vfs = vfs();
    let filesystem = Arc::downgrade(vfs.filesystem());
    let mounted = mount(vfs, dir.path(), MountOptions::default()).unwrap();
    let inside = File::open(dir.path().join("hello")).unwrap();
    assert!(matches!(mounted.unmount(), Err(UnmountError::Busy(_))));
    assert!(filesystem.upgrade().is_some());
    drop(inside);
    unmount_when_idle(|| mounted.unmount()).unwrap();
    mounted.wait().unwrap();
    assert!(filesystem.upgrade().is_none());
}

#[test]
fn an_unmount_from_elsewhere_returns_when_the_server_has_ended() {
    for user in USERS {
        let mut server = ServerProcess::start(user, "");
        let status = command(user, example()).arg("--unmount").arg(server.dir()).status().unwrap();
        assert!(status.success());
        assert!(!is_mounted(server.dir()));
        assert!(server.ends_well());
    }
}

#[test]
fn an_unmount_leaves_alone_what_is_in_use_or_not_ours() {
    for user in USERS {
        let server = ServerProcess::start(user, "");
        // Held by the user that mounted: root may not look into another user's mount.
        let mut holder = command(user, "sleep").arg("1000").current_dir(server.dir()).spawn().unwrap();
        let refused = command(user, example()).arg("--unmount").arg(server.dir()).output().unwrap();
        assert!(!refused.status.success());
        assert!(String::from_utf8_lossy(&refused.stderr).contains("Busy"), "{refused:?}");
        assert!(is_mounted(server.dir()));
        holder.kill().unwrap();
        holder.wait().unwrap();
        unmount(server.dir()).unwrap();
    }
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(unmount(empty.path()), Err(UnmountError::NotMounted(_))));
    assert!(
        matches!(unmount(Path::new("/proc")), Err(UnmountError::Foreign { fs_type, .. }) if fs_type == "proc")
    );
}

#[test]
fn a_killed_server_leaves_no_mount() {
    for user in USERS {
        let mut server = ServerProcess::start(user, "");
        server.signal(Signal::KILL);
        assert!(until(SOON, || !is_mounted(server.dir())), "user {user}");
        assert!(!server.child.wait().unwrap().success());
        assert_eq!(fs::read_dir(server.dir()).unwrap().count(), 0);
    }
}

/// The table of mounts writes some bytes as octal numbers.
#[test]
fn the_guardian_knows_its_mount_whatever_the_directory_is_called() {
    for name in ["disk 1", "a\\7", "tab\t012", "100%d", "\\040", "line\n", "b\\1347 c"] {
        let mut server = ServerProcess::start_in(0, "", name);
        server.signal(Signal::KILL);
        assert!(until(SOON, || !is_mounted(server.dir())), "{name:?}");
        server.child.wait().unwrap();
    }
}

#[test]
fn a_signal_unmounts() {
    for user in USERS {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            let mut server = ServerProcess::start(user, "");
            server.signal(signal);
            assert!(server.ends_well());
            assert!(!is_mounted(server.dir()));
        }
    }
}

#[test]
fn after_a_signal_those_inside_may_finish() {
    let mut server = ServerProcess::start(0, "");
    let mut inside = File::open(server.dir().join("big")).unwrap();
    server.signal(Signal::TERM);
    assert!(until(SOON, || !is_mounted(server.dir())));
    let mut content = Vec::new();
    inside.read_to_end(&mut content).unwrap();
    assert_eq!(content.len(), 1_000_000);
    assert!(server.child.try_wait().unwrap().is_none());
    drop(inside);
    assert!(server.ends_well());
}

#[test]
fn a_second_signal_does_not_wait_for_those_inside() {
    let mut server = ServerProcess::start(0, "");
    let _inside = File::open(server.dir().join("big")).unwrap();
    server.signal(Signal::TERM);
    assert!(until(SOON, || !is_mounted(server.dir())));
    server.signal(Signal::TERM);
    assert!(server.ends_well());
}

#[test]
fn mounts_that_make_no_sense_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    let refused = |path: &Path, list| mount(vfs(), path, MountOptions::parse(list).unwrap()).err();
    assert!(matches!(refused(&file, ""), Some(MountError::Point { .. })));
    assert!(matches!(refused(&dir.path().join("nowhere"), ""), Some(MountError::Point { .. })));
    let write = refused(dir.path(), "rw");
    assert!(matches!(write, Some(MountError::Options(OptionError::ReadWrite))));
    assert!(!is_mounted(dir.path()));
}

#[test]
fn a_user_cannot_mount_on_somebody_elses_directory() {
    let dir = tempfile::tempdir().unwrap();
    let output = command(NOBODY, example()).arg(dir.path()).output().unwrap();
    assert!(!output.status.success());
    assert!(!is_mounted(dir.path()));
}

#[test]
fn mounts_may_be_stacked_and_go_from_the_top() {
    let lower = Fixture::new("");
    let upper = mount(vfs(), lower.root(), MountOptions::parse("fsname=upper").unwrap()).unwrap();
    assert_eq!(fs::read_dir(lower.path("many")).unwrap().count(), 1);
    let upper = thread::spawn(|| upper.wait());
    unmount(lower.root()).unwrap();
    upper.join().unwrap().unwrap();
    assert!(fs::read_dir(lower.path("many")).unwrap().count() > 1);
}

/// Whether the guardian of a mount has looked at the table of mounts and waits before it looks again, which it does by
/// `sleep`.
fn guardian_waits(dir: &Path) -> bool {
    let end = [b"undercroft-guardian\0", dir.as_os_str().as_encoded_bytes(), b"\0"].concat();
    let processes = || fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let is_guardian = |dir: &PathBuf| fs::read(dir.join("cmdline")).is_ok_and(|line| line.ends_with(&end));
    let guardians: Vec<_> = processes().filter(is_guardian).collect();
    let sleeps = |stat: &str| {
        let (name, rest) = stat.rsplit_once(')').unwrap();
        let parent = rest.split_whitespace().nth(1);
        name.ends_with("(sleep")
            && guardians.iter().any(|dir| parent == dir.file_name().and_then(|id| id.to_str()))
    };
    processes().any(|dir| fs::read_to_string(dir.join("stat")).is_ok_and(|stat| sleeps(&stat)))
}

#[test]
fn a_killed_server_takes_nothing_with_it_that_was_mounted_above() {
    let mut server = ServerProcess::start(0, "");
    let upper = mount(vfs(), server.dir(), MountOptions::default()).unwrap();
    server.signal(Signal::KILL);
    server.child.wait().unwrap();
    assert!(until(SOON, || guardian_waits(server.dir())));
    assert_eq!(fs::read(server.dir().join("hello")).unwrap(), HELLO);
    drop(upper);
    assert!(until(SOON, || !is_mounted(server.dir())));
}

/// The mount's own number and its device's: both may come again.
fn numbers(dir: &Path) -> (u64, u64) {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    let held = rustix::fs::open(dir, flags, rustix::fs::Mode::empty()).unwrap();
    let told = fs::read_to_string(format!("/proc/self/fdinfo/{}", held.as_raw_fd())).unwrap();
    let id = told.lines().find_map(|line| line.strip_prefix("mnt_id:")).unwrap();
    (id.trim().parse().unwrap(), fs::metadata(dir).unwrap().dev())
}

fn detach(dir: &Path) {
    rustix::mount::unmount(dir, rustix::mount::UnmountFlags::DETACH).unwrap();
}

#[test]
fn what_was_mounted_on_the_directory_since_is_not_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    let before = mount(vfs(), dir.path(), MountOptions::default()).unwrap();
    detach(dir.path());
    let now = mount(vfs(), dir.path(), MountOptions::default()).unwrap();
    before.unmount().unwrap();
    drop(before);
    assert_eq!(fs::read(dir.path().join("hello")).unwrap(), HELLO);
    unmount_when_idle(|| now.unmount()).unwrap();
    now.wait().unwrap();
    assert!(!is_mounted(dir.path()));
}

/// The server is killed after its mount has gone and another has got the mount's numbers, on the same directory.
#[test]
fn the_guardian_of_a_mount_leaves_the_next_one_alone() {
    for _ in 0..50 {
        let mut server = ServerProcess::start(0, "");
        let before = numbers(server.dir());
        server.signal(Signal::STOP);
        detach(server.dir());
        let next = mount(vfs(), server.dir(), MountOptions::default()).unwrap();
        let has_its_numbers = numbers(server.dir()) == before;
        server.signal(Signal::KILL);
        server.child.wait().unwrap();
        if has_its_numbers {
            assert!(until(SOON, || guardian_waits(server.dir())));
            assert_eq!(fs::read(server.dir().join("hello")).unwrap(), HELLO);
        }
        unmount_when_idle(|| next.unmount()).unwrap();
        next.wait().unwrap();
        if has_its_numbers {
            return;
        }
    }
    panic!("no mount got the numbers of another");
}

#[test]
fn a_mount_point_may_be_named_through_a_link() {
    let home = tempfile::tempdir().unwrap();
    let (dir, link) = (home.path().join("dir"), home.path().join("link"));
    fs::create_dir(&dir).unwrap();
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    let mounted = mount(vfs(), &link, MountOptions::default()).unwrap();
    assert_eq!(mounted.dir(), dir.canonicalize().unwrap());
    assert!(is_mounted(mounted.dir()));
    let served = thread::spawn(|| mounted.wait());
    unmount(&link).unwrap();
    served.join().unwrap().unwrap();
    assert!(!is_mounted(&dir));
}

/// Connects to every socket that a server might listen on, as often as it can be, and holds on.
const CROWD: &str = r#"
import resource, socket, sys, time
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
held = []
names = {line.split()[-1] for line in open("/proc/net/unix") if "undercroft" in line}
for name in names:
    try:
        for _ in range(6000):
            one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            one.setblocking(False)
            one.connect(b"\0" + name[1:].encode())
            held.append(one)
    except OSError:
        pass
print("there", flush=True)
time.sleep(1000)
"#;

#[test]
fn an_unmount_waits_for_no_other_user() {
    let mut server = ServerProcess::start(0, "allow_other");
    let mut crowd = command(NOBODY, "python3");
    crowd.args(["-c", CROWD]);
    let mut crowd = crowd.stdout(Stdio::piped()).spawn().unwrap();
    let mut word = String::new();
    BufReader::new(crowd.stdout.as_mut().unwrap()).read_line(&mut word).unwrap();
    assert_eq!(word, "there\n");
    let mut unmounting = command(0, example()).arg("--unmount").arg(server.dir()).spawn().unwrap();
    let ended = until(Duration::from_secs(60), || unmounting.try_wait().unwrap().is_some());
    crowd.kill().unwrap();
    crowd.wait().unwrap();
    assert!(ended);
    assert!(unmounting.wait().unwrap().success());
    assert!(server.ends_well());
}

/// Another user cannot learn from the mount what would let it wait, or make others wait.
#[test]
fn the_pipe_of_a_server_is_for_its_user() {
    let server = ServerProcess::start(0, "allow_other");
    let mut value = [0; 256];
    let len = rustix::fs::getxattr(server.dir(), "system.undercroft.server", &mut value).unwrap();
    let told = String::from_utf8(value[..len].to_vec()).unwrap();
    let words: Vec<&str> = told.split(' ').collect();
    assert_eq!(words[0], server.child.id().to_string());
    let pipe = format!("/proc/{}/fd/{}", words[0], words[1]);
    let read = |user| {
        let output = command(user, "dd").args([&format!("if={pipe}"), "iflag=nonblock"]).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(read(NOBODY).contains("Permission denied"), "{}", read(NOBODY));
    assert!(read(0).contains("temporarily unavailable"), "{}", read(0));
    let names = command(0, "getfattr").args(["-d", "-m", "-"]).arg(server.dir()).output().unwrap();
    assert!(!String::from_utf8_lossy(&names.stdout).contains("undercroft"), "{names:?}");
}

/// A path that leads elsewhere by the time a mount is taken away, which the owner of a directory on the way can bring
/// about from a mount namespace of its own.
#[test]
fn only_its_own_mount_is_taken_away_whatever_becomes_of_the_path() {
    for signal in [Signal::KILL, Signal::TERM] {
        let mut server = ServerProcess::start(0, "");
        let other = server.dir().with_file_name("other");
        fs::create_dir(&other).unwrap();
        let upper = mount(vfs(), &other, MountOptions::default()).unwrap();
        let script = "umount \"$1\" && umount \"$2\" && mv \"$1\" \"$1.moved\" && mv \"$2\" \"$1\"";
        let mut swap = Command::new("unshare");
        swap.args(["-m", "--propagation", "private", "sh", "-c", script, "sh"]);
        assert!(swap.arg(server.dir()).arg(&other).status().unwrap().success());
        assert_eq!(fs::read(server.dir().join("hello")).unwrap(), HELLO);
        server.signal(signal);
        let moved = format!("{}.moved", server.dir().display());
        assert!(until(SOON, || !is_mounted(Path::new(&moved))));
        server.child.wait().unwrap();
        assert_eq!(fs::read(server.dir().join("hello")).unwrap(), HELLO);
        unmount_when_idle(|| upper.unmount()).unwrap();
        upper.wait().unwrap();
        assert!(!is_mounted(server.dir()));
    }
}
