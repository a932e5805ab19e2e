//! What an unmounting process believes of a server that any user may have written.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use undercroft_fuse::UnmountError;
use undercroft_oracle::unmount_when_idle;

use crate::sample::{HELLO, NOBODY};
use crate::support::{ServerProcess, command, is_mounted, until};

/// A FUSE server of our type that answers every question for an attribute with what it is told to.
const LIAR: &str = r#"
import os, socket, struct, subprocess, sys
ours, theirs = socket.socketpair()
told = sys.argv[2].encode()
helper = subprocess.Popen(
    ["fusermount3", "-o", "rw,fsname=liar,subtype=undercroft.ext4", "--", sys.argv[1]],
    stdin=theirs, env=dict(os.environ, _FUSE_COMMFD="0"))
_, (device, *_), _, _ = socket.recv_fds(ours, 1, 1)
helper.wait()
print("ready", flush=True)
while True:
    try:
        request = os.read(device, 1 << 20)
    except OSError:
        sys.exit()
    _, opcode, unique = struct.unpack_from("IIQ", request)
    error, body = -38, b""
    if opcode == 26:
        error, body = 0, struct.pack("IIIIHHI", 7, 31, 65536, 0, 12, 9, 65536) + bytes(40)
    elif opcode == 3:
        attributes = (0, 0, 0, 1) + (0,) * 8 + (0o40755, 2, 0, 0, 0, 4096, 0)
        error, body = 0, struct.pack("QIIQQQQQQIIIIIIIIII", *attributes)
    elif opcode == 22:
        size = struct.unpack_from("I", request, 40)[0]
        error, body = 0, told if size else struct.pack("II", len(told), 0)
    if opcode not in (2, 42):
        os.write(device, struct.pack("IiQ", 16 + len(body), error, unique) + body)
"#;

/// A liar of an ordinary user's.
struct Liar {
    child: Child,
    dir: PathBuf,
    _home: TempDir,
}

impl Liar {
    fn start(told: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let dir = home.path().join("dir");
        fs::create_dir(&dir).unwrap();
        std::os::unix::fs::chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
        let mut python = command(NOBODY, "python3");
        python.args(["-c", LIAR]).arg(&dir).arg(told);
        let mut child = python.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child, dir, _home: home }
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = command(0, "umount").args(["-q", "-l"]).arg(&self.dir).status();
    }
}

fn unmount(dir: &Path) -> Result<(), UnmountError> {
    unmount_when_idle(|| undercroft_fuse::unmount(dir))
}

/// What a user's mount answers that is asked for its server.
fn told_by(user: u32, dir: &Path) -> String {
    let mut getfattr = command(user, "getfattr");
    getfattr.args(["--only-values", "--absolute-names", "-n", "system.undercroft.server"]);
    let output = getfattr.arg(dir).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_mount_that_names_the_server_of_another_takes_nothing_with_it() {
    let mut trusting = ServerProcess::start(0, "");
    let liar = Liar::start(&told_by(0, trusting.dir()));
    let answer = unmount(&liar.dir);
    assert!(matches!(answer, Err(UnmountError::ServerUnseen(_))), "{answer:?}");
    assert!(!is_mounted(&liar.dir));
    assert_eq!(fs::read(trusting.dir().join("hello")).unwrap(), HELLO);
    unmount(trusting.dir()).unwrap();
    assert!(trusting.ends_well());
}

#[test]
fn a_mount_whose_server_is_gone_is_not_said_to_have_ended_well() {
    let mut server = ServerProcess::start(0, "");
    // With its guardian, which would take the mount away.
    let children = format!("/proc/{0}/task/{0}/children", server.child.id());
    let guardians = fs::read_to_string(children).unwrap();
    for guardian in guardians.split_whitespace() {
        let pid = rustix::process::Pid::from_raw(guardian.parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
    }
    server.signal(Signal::KILL);
    server.child.wait().unwrap();
    assert!(is_mounted(server.dir()));
    let answer = unmount(server.dir());
    assert!(matches!(answer, Err(UnmountError::ServerDied(_))), "{answer:?}");
    assert!(!is_mounted(server.dir()));
}

/// Also of a mount that is for its user alone: for this attribute the kernel lets root ask.
#[test]
fn root_waits_for_the_server_of_another_user_too() {
    let mut server = ServerProcess::start(NOBODY, "");
    unmount(server.dir()).unwrap();
    assert!(!is_mounted(server.dir()));
    assert!(server.ends_well());
}

/// Any user may mount on the root of a mount that all users may look into.
#[test]
fn a_server_ends_though_another_mount_lies_on_its_own() {
    let mut server = ServerProcess::start(0, "allow_other");
    let mut cover = command(0, "mount");
    assert!(cover.args(["-t", "tmpfs", "cover"]).arg(server.dir()).status().unwrap().success());
    server.signal(Signal::TERM);
    server.signal(Signal::HUP);
    let ended = until(Duration::from_secs(60), || server.child.try_wait().unwrap().is_some());
    assert!(command(0, "umount").arg(server.dir()).status().unwrap().success());
    assert!(ended);
    assert!(until(Duration::from_secs(60), || !is_mounted(server.dir())));
}
