//! Mounts that are looked after while they are in use: `mounts`, `df`, `info`, `sync` and `md` reach the process that has
//! the image; other users, false servers and bad clients reach nothing.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::thread::{set_thread_gid, set_thread_uid};
use serde_json::{Value, json};

use crate::support::{PROGRAM, Run, run, tool};

/// Far above what it takes, for a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where root's servers listen.
const SOCKETS: &str = "/run/undercroft";

/// A directory in which everything runs. What is mounted in it is unmounted in the end.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir(place.path("point")).unwrap();
        place
    }

    /// With an ext4 of this size.
    fn with_image(size: &str) -> Self {
        let place = Self::new();
        place.run(&format!("mkfs ext4 disk.img --size {size}")).succeeded();
        place
    }

    /// With an ext4 on RAID5.
    fn with_array() -> Self {
        let place = Self::new();
        place.run("md create -l 5 --chunk 64K --member-size 16M a b c").succeeded();
        place.run("mkfs ext4 md:a,b,c").succeeded();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs the program there, its arguments separated by spaces.
    fn run(&self, args: &str) -> Run {
        run(self.command(args))
    }

    fn command(&self, args: &str) -> &mut Command {
        // As long as the test, which is short.
        let command = Box::leak(Box::new(Command::new(PROGRAM)));
        command.args(args.split(' ')).current_dir(self.0.path())
    }

    /// What `mounts` says of the mount on `point`.
    fn mounted(&self, point: &str) -> Option<Value> {
        let shown = self.path(point).canonicalize().unwrap_or_else(|_| self.path(point));
        mounts().into_iter().find(|mount| mount["mounted_on"] == shown.display().to_string())
    }

    fn process(&self, point: &str) -> u64 {
        self.mounted(point).expect("a mount")["process"].as_u64().unwrap()
    }

    /// The socket of the server of `point`.
    fn socket(&self, point: &str) -> PathBuf {
        Path::new(SOCKETS).join(format!("{}-0.sock", self.process(point)))
    }

    /// A program that makes, writes, syncs and removes files until it is stopped.
    fn writer(&self, point: &str) -> Writer {
        let script = "i=0; while [ ! -e ../stop ]; do i=$((i+1)); seq $i $((i+500)) > f$((i%50)); \
                      [ $((i%10)) != 0 ] || sync f$((i%50)); rm -f f$(((i+25)%50)); done; rm -f f*; echo last > last";
        let mut command = Command::new("bash");
        let command = command.args(["-ec", script]).current_dir(self.path(point)).stdin(Stdio::null());
        Writer { child: command.spawn().unwrap(), stop: self.path("stop") }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for point in fs::read_dir(self.0.path()).unwrap().flatten() {
            // Of a test that failed half way.
            let _ = rustix::mount::unmount(point.path(), rustix::mount::UnmountFlags::DETACH);
        }
    }
}

struct Writer {
    child: Child,
    stop: PathBuf,
}

impl Writer {
    /// It has met no error.
    fn stop(mut self) {
        fs::write(&self.stop, "").unwrap();
        assert!(self.child.wait().unwrap().success());
        fs::remove_file(&self.stop).unwrap();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        let _ = self.child.kill();
    }
}

fn mounts() -> Vec<Value> {
    match run(Command::new(PROGRAM).args(["mounts", "--json"])).json() {
        Value::Array(mounts) => mounts,
        other => panic!("no list: {other}"),
    }
}

/// A user that owns nothing else on this machine.
fn some_user(number: u32) -> u32 {
    2_000_000 + std::process::id() * 8 + number
}

/// Does something as another user, in a thread of its own.
fn as_user<T: Send>(user: u32, action: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            set_thread_gid(rustix::process::Gid::from_raw(user)).unwrap();
            set_thread_uid(rustix::process::Uid::from_raw(user)).unwrap();
            action()
        });
        thread.join().unwrap()
    })
}

/// A message and the line that answers it.
fn say(socket: &Path, message: &[u8]) -> Value {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(message).unwrap();
    let mut answer = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        answer.push(byte[0]);
    }
    serde_json::from_slice(&answer).unwrap()
}

/// A RAID5 under a mounted filesystem loses a member, gets another, and is checked, while a program writes.
#[test]
fn the_array_of_a_mount_is_managed_while_it_is_written_to() {
    let place = Place::with_array();
    let monitor = place.path("monitor");
    fs::write(&monitor, "#!/bin/sh\necho \"$1 $3\" >> \"$(dirname \"$0\")/events\"\n").unwrap();
    fs::set_permissions(&monitor, Permissions::from_mode(0o755)).unwrap();
    place.run("mount -o rw --monitor ./monitor md:a,b,c point").succeeded();
    let writer = place.writer("point");
    let status = |array: &str| place.run(&format!("md status --json {array}")).json();
    assert_eq!((&status("point")["degraded"], &status("md:.")["degraded"]), (&0.into(), &0.into()));

    let failed = place.run("md fail --json md:a,b,c b").json();
    assert_eq!((&failed["degraded"], &failed["missing_roles"]), (&1.into(), &json!([1])));
    assert_eq!(failed["members"][1]["state"], "faulty");
    let mounted = place.mounted("point").unwrap();
    assert_eq!((&mounted["state"], &mounted["degraded"]), (&"rw, degraded".into(), &1.into()));
    // What is still held cannot come back.
    let message = place.run("md add md:a,c b").failed(2);
    assert!(message.contains("is a member of") && message.contains("`md remove`"), "{message}");
    let removed = place.run("md remove --json point 1").json();
    assert_eq!(removed["members"].as_array().unwrap().len(), 2, "{removed}");
    let message = place.run("md fail point b").failed(2);
    assert!(message.contains("is no member of"), "{message}");

    let added = place.run("md add --json --member-size 16M md:a,c d").json();
    assert_eq!((&added["degraded"], &added["finished"]["action"]), (&0.into(), &"recovery".into()));
    let checked = place.run("md check --json md:a,c,d").json();
    assert_eq!(checked["finished"], json!({"action": "check", "mismatched_bytes": 0}));
    let replaced = place.run("md replace --json --with e --member-size 16M point d").json();
    assert_eq!((&replaced["degraded"], &replaced["finished"]["action"]), (&0.into(), &"replacement".into()));
    // A removed member that is known by its bitmap or not comes back as a new one.
    place.run("md fail point c").succeeded();
    place.run("md remove --erase point c").succeeded();
    assert!(place.run("md examine c").failed(4).contains("superblock"));
    place.run("md add --force point c").succeeded();
    let message = place.run("md stop md:a,c,e").failed(3);
    assert!(message.contains("is mounted on") && message.contains("undercroft unmount"), "{message}");

    writer.stop();
    place.run("unmount point").succeeded();
    let after = place.run("md check --json md:a,c,e").json();
    assert_eq!((&after["state"], &after["finished"]["mismatched_bytes"]), (&"clean".into(), &0.into()));
    place.run("check md:a,c,e").succeeded();
    assert_eq!(place.run("cat md:a,c,e /last").text(), "last\n");
    let events = fs::read_to_string(place.path("events")).unwrap();
    for event in ["Fail b", "RebuildStarted", "SpareActive"] {
        assert!(events.contains(event), "{event} in {events}");
    }
}

/// A rebuild that is held back is seen, goes on without its client, and does not keep an unmount.
#[test]
fn a_rebuild_is_seen_and_outlives_its_client() {
    let place = Place::with_array();
    place.run("mount -o rw md:a,b,c point").succeeded();
    place.run("md fail point a").succeeded();
    place.run("md remove point a").succeeded();
    let mut client = place.command("md add --speed 64K point a").stdin(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    let seen = loop {
        let status = place.run("md status --json point").json();
        if status["progress"].is_object() {
            break status;
        }
        assert!(began.elapsed() < PATIENCE, "{status}");
    };
    assert_eq!(seen["progress"]["action"], "recovery");
    assert!(seen["state"].as_str().unwrap().contains("recovering"), "{seen}");
    let text = place.run("mounts").text();
    assert!(text.contains("recovery, "), "{text}");
    client.kill().unwrap();
    client.wait().unwrap();
    assert!(place.run("md status --json point").json()["progress"].is_object());
    place.run("unmount point").succeeded();
    let status = place.run("md status --json md:b,c,a");
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["degraded"], 1);
}

/// The columns of coreutils' df, of the mount and of the image.
#[test]
fn df_shows_what_linux_shows() {
    let place = Place::with_image("64M");
    place.run("mount -o rw disk.img point").succeeded();
    fs::write(place.path("point/file"), vec![7; 5_000_000]).unwrap();
    place.run("sync disk.img").succeeded();
    let words = |text: &str| -> Vec<String> {
        let row = text.lines().nth(1).unwrap();
        row.split_whitespace().skip(1).take(4).map(str::to_owned).collect()
    };
    let linux = |options: &str| words(&tool(&format!("df {options} point"), place.0.path()));
    for (ours, theirs) in [("df", "-k"), ("df -i", "-i")] {
        for named in ["disk.img", "point", "point/lost+found"] {
            let ours = || words(&place.run(&format!("{ours} {named}")).text());
            let began = Instant::now();
            // The kernel releases the file when it likes, and with it space that was reserved for more of it.
            while ours() != linux(theirs) {
                assert!(began.elapsed() < PATIENCE, "{named}: {:?} and {:?}", ours(), linux(theirs));
            }
        }
    }
    let told = place.run("df --json disk.img point").json();
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0]["mounted_on"], place.path("point").display().to_string());
    place.run("unmount point").succeeded();
    let loop_mount = undercroft_oracle::LoopMount::new(
        &place.path("disk.img"),
        "ext4",
        undercroft_oracle::MountMode::ReadOnly,
        "",
    );
    let kernel = words(&tool("df -k .", loop_mount.as_ref().unwrap().path()));
    drop(loop_mount);
    assert_eq!(words(&place.run("df disk.img").text()), kernel);
    let message = place.run("df point").failed(3);
    assert!(message.contains("in no mount"), "{message}");
}

#[test]
fn info_of_a_mount_is_its_state_now() {
    let place = Place::with_image("64M");
    let before = place.run("info --json disk.img").json();
    place.run("mount -o rw disk.img point").succeeded();
    fs::write(place.path("point/file"), vec![7; 8 << 20]).unwrap();
    place.run("sync point").succeeded();
    for named in ["disk.img", "point"] {
        let now = place.run(&format!("info --json {named}")).json();
        let free = |info: &Value| info["blocks_free"].as_u64().unwrap();
        assert!(free(&now) + 1000 < free(&before), "{now}");
        assert_eq!((&now["uuid"], &now["state"]["clean"]), (&before["uuid"], &true.into()));
        assert_eq!(now["mount"]["state"], "rw");
        let text = place.run(&format!("info {named}")).text();
        assert!(text.contains("disk.img on /") && text.contains("state     rw"), "{text}");
    }
    // The image itself, for tests that want it.
    let noted = place.run("info --json --no-lock disk.img");
    assert!(noted.stderr.contains("is in use"), "{}", noted.stderr);
    assert!(serde_json::from_slice::<Value>(&noted.stdout).unwrap()["mount"].is_null());
    place.run("unmount point").succeeded();
    // On trial: the image is as it was, the mount is not.
    place.run("mount --snapshot disk.img point").succeeded();
    fs::remove_file(place.path("point/file")).unwrap();
    assert!(place.run("info --json disk.img").json()["mount"].is_null());
    assert_eq!(place.run("info --json point").json()["mount"]["mode"], "snapshot");
    place.run("unmount point").succeeded();
    place.run("mount -o size=1M tmpfs: point").succeeded();
    let memory = place.run("info --json point").json();
    assert_eq!((&memory["filesystem"], &memory["size_bytes"]), (&"tmpfs".into(), &(1 << 20).into()));
    assert!(place.run("info point").text().starts_with("tmpfs\n"));
    place.run("unmount point").succeeded();
}

/// Two mounts are two; a server that is killed is not listed, and its socket goes with the next one.
#[test]
fn mounts_are_listed_while_they_are_served() {
    let place = Place::with_image("16M");
    fs::create_dir(place.path("other")).unwrap();
    assert!(place.mounted("point").is_none());
    place.run("mount -o rw --log log disk.img point").succeeded();
    place.run("mount tmpfs: other").succeeded();
    let (one, two) = (place.mounted("point").unwrap(), place.mounted("other").unwrap());
    assert_eq!((&one["filesystem"], &two["filesystem"]), (&"ext4".into(), &"tmpfs".into()));
    assert_eq!(one["image"], place.path("disk.img").display().to_string());
    assert_eq!(one["log"], place.path("log").display().to_string());
    assert!(one["size_bytes"].as_u64().unwrap() > one["used_bytes"].as_u64().unwrap());
    let text = place.run("mounts").text();
    assert!(text.contains(&format!("tmpfs: on {}", place.path("other").display())), "{text}");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let socket = place.socket("point");
    assert_eq!((mode(&socket), mode(Path::new(SOCKETS))), (0o600, 0o700));

    // A server that another test starts would remove the dead socket. It needs this lock.
    let servers = File::open(SOCKETS).unwrap();
    rustix::fs::flock(&servers, FlockOperation::LockExclusive).unwrap();
    tool(&format!("kill -KILL {}", place.process("point")), place.0.path());
    let began = Instant::now();
    while place.mounted("point").is_some() {
        assert!(began.elapsed() < PATIENCE);
    }
    assert!(socket.exists() && place.mounted("other").is_some());
    drop(servers);
    // The image is not in use now, and is opened.
    assert!(place.run("info --json disk.img").json()["mount"].is_null());
    let began = Instant::now();
    while place.run("mount -o rw disk.img point").code != 0 {
        assert!(began.elapsed() < PATIENCE);
    }
    assert!(!socket.exists(), "a dead socket is left");
    let socket = place.socket("point");
    for point in ["point", "other"] {
        place.run(&format!("unmount {point}")).succeeded();
        assert!(place.mounted(point).is_none());
    }
    assert!(!socket.exists(), "the socket has outlived its mount");
}

/// Other users than its own and root get nothing from a server, even if they get at its socket.
#[test]
fn a_server_answers_its_user_and_root_only() {
    // fusermount3 asks for the name of a user.
    let (user, stranger) = (65534, some_user(1));
    let place = Place::new();
    fs::set_permissions(place.0.path(), Permissions::from_mode(0o755)).unwrap();
    let runtime = place.path("runtime");
    fs::create_dir(&runtime).unwrap();
    for path in [&runtime, &place.path("point")] {
        chown(path, Some(user), Some(user)).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
    }
    let by = |user: u32, args: &str| {
        let mut command = Command::new(PROGRAM);
        let command = command.args(args.split(' ')).current_dir("/").uid(user).gid(user);
        run(command.env("XDG_RUNTIME_DIR", &runtime).env("HOME", &runtime))
    };
    let point = place.path("point").display().to_string();
    by(user, &format!("mount tmpfs: {point}")).succeeded();
    assert_eq!(by(user, "mounts --json").json().as_array().unwrap().len(), 1);
    // A runtime directory of another user's is not looked into.
    assert_eq!(by(stranger, "mounts --json").json(), json!([]));

    let sockets = runtime.join("undercroft");
    let socket = fs::read_dir(&sockets).unwrap().next().unwrap().unwrap().path();
    for path in [&runtime, &sockets, &socket] {
        fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }
    let heard = as_user(stranger, || {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let _ = stream.write_all(b"{\"version\":1,\"request\":\"describe\"}\n");
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard);
        heard
    });
    assert!(heard.is_empty(), "{}", String::from_utf8_lossy(&heard));
    let describe = b"{\"version\":1,\"request\":\"describe\"}\n";
    assert_eq!(say(&socket, describe)["answer"], "served", "root");
    assert_eq!(as_user(user, || say(&socket, describe))["answer"], "served");
    // The directory is open to others now: its own user does not trust it any more.
    assert_eq!(by(user, "mounts --json").json(), json!([]));
    by(user, &format!("unmount {point}")).succeeded();
}

/// What a false server may try: root's commands look at the image itself, end, and say nothing raw to the terminal.
#[test]
fn root_is_not_deceived_by_servers_of_other_users() {
    let user = some_user(2);
    let place = Place::with_image("16M");
    let id = tool("stat -c %d:%i disk.img", place.0.path());
    let (dev, ino) = id.trim().split_once(':').unwrap();
    let sockets = PathBuf::from(format!("/tmp/undercroft-{user}"));
    fs::create_dir(&sockets).unwrap();
    fs::set_permissions(&sockets, Permissions::from_mode(0o700)).unwrap();
    chown(&sockets, Some(user), Some(user)).unwrap();
    let number = |text: &str| text.parse::<u64>().unwrap();
    let lie = json!({"version": 1, "answer": "served", "with": {
        "image": "disk.img\u{1b}[2J", "filesystem": "ext4", "point": "2f6d6e74", "device": 1, "process": 1,
        "mode": "read_write", "files": [{"dev": number(dev), "ino": number(ino), "partition": null}],
        "is_array": false, "array_uuid": null, "partition": null, "array_state": null, "degraded": 0,
        "progress": null, "failure": null, "log": null,
        "space": {"block_bytes": 1024, "blocks": 1, "blocks_free": 1, "blocks_available": 1, "inodes": 1, "inodes_free": 1},
    }});
    let lie = format!("{lie}\n").into_bytes();
    // One lies, one is silent, one never ends, one does not even accept.
    let listen = |name: &str| as_user(user, || UnixListener::bind(sockets.join(name)).unwrap());
    let answers: [(&str, Option<Vec<u8>>); 3] =
        [("lies", Some(lie)), ("silent", None), ("endless", Some(vec![b'x'; 32 << 20]))];
    for (name, answer) in answers {
        let listener = listen(&format!("{name}.sock"));
        thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if let Some(answer) = &answer {
                    let _ = stream.write_all(answer);
                }
                held.push(stream);
            }
        });
    }
    let _deaf = listen("deaf.sock");
    as_user(user, || std::os::unix::fs::symlink("/run/undercroft", sockets.join("link.sock")).unwrap());

    let info = place.run("info --json disk.img").json();
    assert!(info["mount"].is_null() && info["size_bytes"] == 16 << 20, "{info}");
    let message = place.run("sync disk.img").failed(3);
    assert!(message.contains("is not mounted for writing"), "{message}");
    let text = place.run("mounts").text();
    assert!(!text.contains('\u{1b}') && !text.contains("on /mnt"), "{text}");
    fs::remove_dir_all(&sockets).unwrap();
}

/// Whatever a client sends or does not send, the next one is served.
#[test]
fn a_server_stands_bad_clients() {
    let place = Place::with_image("16M");
    place.run("mount -o rw disk.img point").succeeded();
    let socket = place.socket("point");
    let refused = |message: &[u8]| {
        let answer = say(&socket, message);
        assert_eq!(answer["answer"], "refused", "{answer}");
        answer["with"]["sentence"].as_str().unwrap().to_owned()
    };
    assert!(refused(b"GET / HTTP/1.1\r\n").contains("something else than a message"));
    assert!(refused(b"{\"version\":2,\"request\":\"describe\"}\n").contains("and the other side 2"));
    assert!(refused(b"{\"version\":1,\"request\":\"melt\"}\n").contains("`melt`"));
    assert!(refused(b"{\"version\":1,\"request\":\"md_status\"}\n").contains("is no array"));
    assert!(refused(&[&b"[".repeat(100_000)[..], b"\n"].concat()).contains("something else"));
    // Megabytes without a line end: it is closed.
    let mut endless = UnixStream::connect(&socket).unwrap();
    endless.set_write_timeout(Some(PATIENCE)).unwrap();
    let piece = vec![b'x'; 1 << 20];
    assert!((0..64).any(|_| endless.write_all(&piece).is_err()), "it takes all that is sent");
    // Nothing at all, from some; and one that asks and never listens.
    let silent: Vec<UnixStream> = (0..20).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let mut deaf = UnixStream::connect(&socket).unwrap();
    deaf.set_nonblocking(true).unwrap();
    for _ in 0..2000 {
        let _ = deaf.write(b"{\"version\":1,\"request\":\"info\"}\n");
    }
    assert_eq!(place.run("info --json disk.img").json()["mount"]["state"], "rw");
    // They do not keep the mount, either.
    place.run("unmount point").succeeded();
    drop((silent, deaf));
    place.run("check disk.img").succeeded();
}

/// A mounted filesystem grows twice while a program writes; the kernel sees it, and e2fsck finds nothing.
#[test]
fn what_is_mounted_grows_while_it_is_written_to() {
    let place = Place::with_image("40M");
    let (image, point) = (place.path("disk.img"), place.path("point"));
    place.run("mount disk.img point -o rw").succeeded();
    let writer = place.writer("point");
    let blocks = || rustix::fs::statvfs(&point).unwrap().f_blocks;
    let before = blocks();
    let text = place.run("grow disk.img 200M").text();
    assert!(text.contains("has grown from 40 MiB to 200 MiB"), "{text}");
    assert!(blocks() > before * 4);
    // By the directory, to the end of a file that its user has made longer.
    File::options().write(true).open(&image).unwrap().set_len(400 << 20).unwrap();
    assert_eq!(place.run("grow --json point").json()["size_bytes"], 400 << 20);
    writer.stop();
    // Past the old end.
    tool("dd if=/dev/zero of=point/large bs=1M count=300 status=none", &place.path(""));
    let refusal = place.run("grow disk.img 30M").failed(2);
    assert!(refusal.contains("`undercroft resize`"), "{refusal}");
    assert_eq!(fs::metadata(&image).unwrap().len(), 400 << 20);
    place.run("unmount point").succeeded();
    tool("e2fsck -fn disk.img", &place.path(""));
}

/// The same of XFS.
#[test]
fn a_mounted_xfs_grows_while_it_is_written_to() {
    let place = Place::new();
    place.run("mkfs xfs disk.img --size 300M").succeeded();
    place.run("mount disk.img point -o rw").succeeded();
    let writer = place.writer("point");
    let text = place.run("grow disk.img 500M").text();
    assert!(text.contains("has grown from 300 MiB to 500 MiB"), "{text}");
    assert_eq!(place.run("grow --json point 900M").json()["size_bytes"], 900 << 20);
    writer.stop();
    // Past the old end.
    tool("dd if=/dev/zero of=point/large bs=1M count=600 status=none", &place.path(""));
    place.run("unmount point").succeeded();
    tool("xfs_repair -n disk.img", &place.path(""));
    place.run("check disk.img").succeeded();
}

/// What cannot grow while it is mounted is refused, and its file stays as long as it was.
#[test]
fn what_cannot_grow_while_it_is_mounted_is_refused() {
    let place = Place::with_image("40M");
    let image = place.path("disk.img");
    for (mount, word) in [
        ("mount disk.img point", "read-only"),
        ("mount disk.img point --snapshot", "kept beside it"),
        ("mount tmpfs: point", "its size is given when it is mounted"),
    ] {
        place.run(mount).succeeded();
        let refusal = place.run("grow point 100M").failed(4);
        assert!(refusal.contains(word), "{refusal}");
        place.run("unmount point").succeeded();
        assert_eq!(fs::metadata(&image).unwrap().len(), 40 << 20);
    }
    // Another file has its name now.
    place.run("mount disk.img point -o rw").succeeded();
    fs::rename(&image, place.path("moved")).unwrap();
    File::create(&image).unwrap();
    let refusal = place.run("grow point 100M").failed(3);
    assert!(refusal.contains("is another file than the one that is mounted"), "{refusal}");
    assert_eq!(fs::metadata(&image).unwrap().len(), 0);
    place.run("unmount point").succeeded();
}

#[test]
fn what_is_mounted_is_unmounted_by_its_image_too() {
    let place = Place::with_image("16M");
    fs::copy(place.path("disk.img"), place.path("other.img")).unwrap();
    fs::create_dir(place.path("second")).unwrap();
    for (options, image) in [("-o ro", "disk.img"), ("-o rw", "disk.img"), ("--snapshot", "./disk.img")] {
        place.run(&format!("mount {options} disk.img point")).succeeded();
        let message = place.run("unmount other.img").failed(8);
        assert!(message.contains("nothing is mounted on other.img"), "{message}");
        place.run(&format!("unmount {image}")).succeeded();
        assert!(place.mounted("point").is_none());
    }
    place.run("mount disk.img point").succeeded();
    place.run("mount disk.img second").succeeded();
    let message = place.run("unmount disk.img").failed(2);
    assert!(
        message.contains("is mounted more than once") && message.contains("name the directory"),
        "{message}"
    );
    place.run("unmount point").succeeded();
    place.run("umount disk.img").succeeded();
    let place = Place::with_array();
    place.run("mount -o rw md:a,b,c point").succeeded();
    place.run("unmount md:a,b,c").succeeded();
    assert!(place.mounted("point").is_none());
}

/// The kernel keeps root out of a user's mount; its server does not.
#[test]
fn root_asks_the_mount_of_a_user_by_its_directory() {
    let place = Place::with_image("16M");
    fs::set_permissions(place.0.path(), Permissions::from_mode(0o755)).unwrap();
    for name in ["disk.img", "point"] {
        chown(place.path(name), Some(65534), Some(65534)).unwrap();
    }
    let program = place.path("undercroft");
    crate::support::copy_program(&program);
    let as_user = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program).args(args);
        run(command.current_dir(place.0.path()))
    };
    as_user(&["mount", "-o", "rw", "disk.img", "point"]).succeeded();
    assert!(fs::metadata(place.path("point")).is_err(), "root is kept out");
    let told = ["info --json point", "df --json point", "grow point 20M", "freeze point", "thaw point"]
        .map(|command| place.run(command));
    as_user(&["unmount", "point"]).succeeded();
    for run in &told {
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    }
    assert!(String::from_utf8_lossy(&told[0].stdout).contains("\"state\":\"rw\""));
}
