//! Two writers: what the kernel, QEMU or another program is using is not written to, whatever is asked for, unless an
//! option says that; and what is read then is said to be in use.
//!
//! QEMU's own tools and the kernel's loop devices are on the other side. Needs root.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use undercroft_oracle::{LoopMount, MountMode};

use crate::support::{PROGRAM, Run, copy_program, run, tool, undercroft};

/// A busy machine starts programs slowly.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory with an ext4 image in it, in which everything runs.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        tool("truncate -s 32M disk.img", place.dir());
        tool("mke2fs -q -t ext4 -E root_owner=0:0 disk.img", place.dir());
        fs::create_dir(place.dir().join("point")).unwrap();
        place
    }

    fn dir(&self) -> &Path {
        self.0.path()
    }

    fn image(&self) -> PathBuf {
        self.dir().join("disk.img")
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.image()).unwrap()
    }

    /// Runs the program there, its arguments separated by spaces.
    fn run(&self, args: &str) -> Run {
        run(Command::new(PROGRAM).args(args.split(' ')).current_dir(self.dir()))
    }

    /// Every command that writes is refused, force or not, with all of these words; and nothing is written.
    fn refuses_writers(&self, image: &str, words: &[&str]) {
        let before = self.bytes();
        for args in [
            format!("mkfs ext4 {image}"),
            format!("mkfs ext4 -F {image}"),
            format!("mount -o rw {image} point"),
            format!("md create --level 1 --force {image} missing"),
        ] {
            let message = self.run(&args).failed(3);
            for word in words {
                assert!(message.contains(word), "{args}: {word}: {message}");
            }
            assert!(!message.contains("--no-lock"), "{args}: {message}");
        }
        assert!(self.bytes() == before, "a refusal wrote to the image");
    }

    /// A reader is served, and told of the same.
    fn tells_readers(&self, image: &str, word: &str) {
        for args in [format!("ls {image}"), format!("info --json {image}"), format!("check --json {image}")] {
            let run = self.run(&args);
            assert!(!run.stdout.is_empty(), "{args}: {}", run.stderr);
            let notes: Vec<&str> = run.stderr.lines().collect();
            let [note] = notes[..] else { panic!("{args}: not one line: {notes:?}") };
            assert!(note.starts_with("undercroft: note: ") && note.contains("is in use"), "{args}: {note}");
            assert!(note.contains(word), "{args}: {word}: {note}");
            if args.contains("--json") {
                serde_json::from_slice::<serde_json::Value>(&run.stdout).unwrap();
            }
        }
    }
}

/// A loop device, detached when dropped.
struct Loop(String);

impl Loop {
    fn new(image: &Path, options: &[&str]) -> Self {
        let output = Command::new("losetup").args(["--find", "--show"]).args(options).arg(image).output();
        let output = output.unwrap();
        assert!(output.status.success(), "losetup (needs root): {}", String::from_utf8_lossy(&output.stderr));
        Self(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        Command::new("losetup").args(["--detach", &self.0]).status().unwrap();
    }
}

/// A program of QEMU's that has the image open until it is dropped: `qemu-io`, told what to do on its standard input.
struct Qemu(Child);

impl Qemu {
    fn io(image: &Path, options: &[&str]) -> Self {
        let mut child = Command::new("qemu-io");
        let child = child.args(options).arg(image);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // The answer to the first command says that the image is open.
        writeln!(child.stdin.as_mut().unwrap(), "read 0 512").unwrap();
        let mut answer = String::new();
        let mut stdout = BufReader::new(child.stdout.as_mut().unwrap());
        while !answer.contains("512/512") {
            assert!(stdout.read_line(&mut answer).unwrap() > 0, "qemu-io ended: {answer}");
        }
        Self(child)
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

/// What a program of QEMU's says when it is refused.
fn qemu_refused(dir: &Path, command: &str) -> String {
    let mut words = command.split(' ');
    let output =
        Command::new(words.next().unwrap()).args(words).current_dir(dir).stdin(Stdio::null()).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{command} was not refused: {said}");
    said
}

#[test]
fn what_the_kernel_has_mounted_through_a_loop_device_is_not_written_to() {
    let place = Place::new();
    let mount = LoopMount::new(&place.image(), "ext4", MountMode::ReadWrite, "").unwrap();
    fs::write(mount.path().join("file"), "content").unwrap();
    rustix::fs::syncfs(File::open(mount.path()).unwrap()).unwrap();
    let point = mount.path().display().to_string();
    let words = [".img", "is in use", "/dev/loop", "mounted on", &point];
    place.refuses_writers("disk.img", &words);
    // Under another name it is the same file.
    fs::hard_link(place.image(), place.dir().join("other.img")).unwrap();
    place.refuses_writers("other.img", &words);
    place.tells_readers("disk.img", &point);
    mount.unmount().unwrap();
    tool("e2fsck -fn disk.img", place.dir());
    place.run("ls disk.img").succeeded();
    place.run("mount -o rw disk.img point").succeeded();
    place.run("unmount point").succeeded();
    tool("e2fsck -fn disk.img", place.dir());
}

#[test]
fn a_read_only_mount_keeps_writers_out_and_is_no_news_to_readers() {
    let place = Place::new();
    let mount = LoopMount::new(&place.image(), "ext4", MountMode::ReadOnly, "").unwrap();
    place.refuses_writers("disk.img", &["is in use", &mount.path().display().to_string()]);
    place.run("ls disk.img").succeeded();
}

#[test]
fn an_attached_loop_device_keeps_writers_out_of_its_file() {
    let place = Place::new();
    let attached = Loop::new(&place.image(), &[]);
    place.refuses_writers("disk.img", &["is in use", &attached.0]);
    // Nothing is written through it, so a reader finds nothing that changes.
    place.run("ls disk.img").succeeded();
    drop(attached);
    let _cannot_write = Loop::new(&place.image(), &["--read-only"]);
    place.run("mkfs ext4 --force disk.img").succeeded();
}

#[test]
fn a_file_that_was_unlinked_and_linked_again_is_found_by_its_inode() {
    let place = Place::new();
    let elsewhere = place.dir().join("elsewhere.img");
    fs::hard_link(place.image(), &elsewhere).unwrap();
    let attached = Loop::new(&elsewhere, &[]);
    fs::remove_file(&elsewhere).unwrap();
    place.refuses_writers("disk.img", &["is in use", &attached.0]);
}

#[test]
fn a_block_device_that_is_mounted_is_not_written_to() {
    let place = Place::new();
    let attached = Loop::new(&place.image(), &[]);
    let point = place.dir().join("point").display().to_string();
    tool(&format!("mount {} {point}", attached.0), place.dir());
    let refused = std::panic::catch_unwind(|| {
        place.refuses_writers(&attached.0, &["is in use", &attached.0, "mounted on", &point]);
        place.tells_readers(&attached.0, &point);
    });
    tool(&format!("umount {point}"), place.dir());
    refused.unwrap();
    // Whatever else was read meanwhile is not in the way.
    place.run(&format!("mkfs ext4 --force {}", attached.0)).succeeded();
}

/// The disk around a mounted partition, and a partition of a mounted disk.
#[test]
fn a_disk_is_in_use_by_what_is_in_its_partitions() {
    let place = Place::new();
    let disk = place.dir().join("parts.img");
    tool("truncate -s 64M parts.img", place.dir());
    let mut sfdisk = Command::new("sfdisk").arg("-q").arg(&disk).stdin(Stdio::piped()).spawn().unwrap();
    sfdisk.stdin.take().unwrap().write_all(b"label: gpt\n,32M\n,\n").unwrap();
    assert!(sfdisk.wait().unwrap().success());
    let attached = Loop::new(&disk, &[]);
    let partition = format!("{}p1", attached.0);
    // Not left to the kernel, which may know no partition tables.
    tool(&format!("addpart {} 1 2048 65536", attached.0), place.dir());
    tool(&format!("mke2fs -q -t ext4 {partition}"), place.dir());
    let point = place.dir().join("point").display().to_string();
    tool(&format!("mount {partition} {point}"), place.dir());
    let refused = std::panic::catch_unwind(|| {
        for image in
            [&attached.0, &format!("{}?part=2", attached.0), "parts.img", "parts.img?part=2", &partition]
        {
            place.refuses_writers(image, &["is in use", &partition, &point]);
        }
        place.tells_readers("parts.img?part=1", &point);
    });
    tool(&format!("umount {point}"), place.dir());
    // The device keeps what was added to it, whatever file it is given next.
    delete_partition(&attached.0);
    refused.unwrap();
}

/// Deletes the first partition of a device. Whatever looks through all block devices, as `blkid` does, has it open for a
/// moment, and is waited for.
fn delete_partition(device: &str) {
    let give_up = Instant::now() + Duration::from_secs(60);
    loop {
        let output = Command::new("delpart").args([device, "1"]).env("LC_ALL", "C").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return;
        }
        assert!(said.contains("busy") && Instant::now() < give_up, "{said}");
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn qemu_keeps_us_out() {
    let place = Place::new();
    let qemu = Qemu::io(&place.image(), &["-f", "raw"]);
    let process = format!("qemu-io (process {})", qemu.0.id());
    place.refuses_writers("disk.img", &["is in use", &process]);
    place.tells_readers("disk.img", &process);
    drop(qemu);
    place.run("mkfs ext4 --force disk.img").succeeded();
    // `-U` is QEMU's way to look at what another program writes.
    let _looks_on = Qemu::io(&place.image(), &["-f", "raw", "-r", "-U"]);
    place.run("mkfs ext4 --force disk.img").succeeded();

    // A reader of QEMU's that needs the image to stay as it is.
    tool("qemu-img create -q -f qcow2 disk.qcow2 32M", place.dir());
    let reader = Qemu::io(&place.dir().join("disk.qcow2"), &["-f", "qcow2", "-r"]);
    let message = place.run("mkfs ext4 -F disk.qcow2").failed(3);
    assert!(message.contains(&format!("qemu-io (process {})", reader.0.id())), "{message}");
    drop(reader);
    place.run("mkfs ext4 -F disk.qcow2").succeeded();
}

#[test]
fn we_keep_qemu_out() {
    let place = Place::new();
    place.run("mount -o rw disk.img point").succeeded();
    let refused = std::panic::catch_unwind(|| {
        let said = qemu_refused(place.dir(), "qemu-io -f raw -c quit disk.img");
        assert!(said.contains("lock"), "{said}");
        let said = qemu_refused(place.dir(), "qemu-img resize -f raw disk.img 64M");
        assert!(said.contains("lock"), "{said}");
        let socket = place.dir().join("sock");
        let said =
            qemu_refused(place.dir(), &format!("qemu-nbd -f raw --fork -k {} disk.img", socket.display()));
        assert!(said.contains("lock"), "{said}");
        tool("qemu-img info -U -f raw disk.img", place.dir());
    });
    place.run("unmount point").succeeded();
    refused.unwrap();
    tool("qemu-img info -f raw disk.img", place.dir());

    place.run("mount disk.img point").succeeded();
    let refused = std::panic::catch_unwind(|| {
        let said = qemu_refused(place.dir(), "qemu-io -f raw -c quit disk.img");
        assert!(said.contains("lock"), "{said}");
        // Readers are no trouble to each other.
        tool("qemu-img info -f raw disk.img", place.dir());
        tool("qemu-io -r -f raw -c quit disk.img", place.dir());
    });
    place.run("unmount point").succeeded();
    refused.unwrap();
    tool("qemu-io -f raw -c quit disk.img", place.dir());
}

/// A qcow2 image, which QEMU's server has open for writing.
#[test]
fn a_server_of_qemu_keeps_us_out_of_a_qcow2() {
    let place = Place::new();
    tool("qemu-img create -q -f qcow2 disk.qcow2 32M", place.dir());
    let socket = place.dir().join("sock");
    let mut server = Command::new("qemu-nbd");
    let server = server.args(["-t", "-f", "qcow2", "-k"]).arg(&socket).arg("disk.qcow2");
    let mut server = server.current_dir(place.dir()).spawn().unwrap();
    let end = Instant::now() + PATIENCE;
    let mut client = loop {
        assert!(Instant::now() < end, "qemu-nbd does not serve");
        match UnixStream::connect(&socket) {
            Ok(client) => break client,
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    // It listens before it opens the image, and greets afterwards.
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut greeting = [0; 8];
    client.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"NBDMAGIC");
    drop(client);
    let message = place.run("mkfs ext4 -F disk.qcow2");
    let note = place.run("md examine disk.qcow2").stderr;
    server.kill().unwrap();
    server.wait().unwrap();
    let message = message.failed(3);
    let process = format!("qemu-nbd (process {})", server.id());
    assert!(
        message.contains("disk.qcow2 for writing: it is in use") && message.contains(&process),
        "{message}"
    );
    assert!(note.contains(&process), "{note}");
    place.run("mkfs ext4 disk.qcow2").succeeded();
}

/// Other programs lock a file with `fcntl` or `flock`: virtlockd is one of the former.
#[test]
fn what_other_programs_lock_is_in_use() {
    let place = Place::new();
    let mut other = Command::new("flock");
    let other = other.arg(place.image()).args(["sh", "-c", "echo locked; read line"]);
    let mut other = other.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut word = [0; 6];
    other.stdout.as_mut().unwrap().read_exact(&mut word).unwrap();
    place.refuses_writers("disk.img", &["is in use", "(process "]);
    let message = place.run("ls disk.img").failed(3);
    assert!(message.contains("is in use") && message.contains("`--no-lock`"), "{message}");
    place.tells_readers("--no-lock disk.img", "(process ");
    // An option that the command has not is no advice.
    for args in [
        "tune disk.img -L x",
        "resize disk.img -M",
        "label disk.img x",
        "uuid disk.img random",
        "df disk.img",
    ] {
        let message = place.run(args).failed(3);
        assert!(message.contains("is in use") && !message.contains("--no-lock"), "{args}: {message}");
    }
    drop(other.stdin.take());
    other.wait().unwrap();

    let file = File::options().write(true).open(place.image()).unwrap();
    // Lost when this process closes the file anywhere, so nothing here looks into it.
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let process = format!("(process {})", std::process::id());
    for args in ["mkfs ext4 -F disk.img", "mount -o rw disk.img point"] {
        let message = place.run(args).failed(3);
        assert!(message.contains("is in use") && message.contains(&process), "{args}: {message}");
    }
    place.tells_readers("disk.img", &process);
}

#[test]
fn another_mount_of_ours_is_named() {
    let place = Place::new();
    place.run("mount -o rw disk.img point").succeeded();
    let message = place.run("mkfs ext4 -F disk.img");
    let reading = place.run("ls disk.img");
    place.run("unmount point").succeeded();
    let message = message.failed(3);
    assert!(message.contains("is in use: undercroft (process "), "{message}");
    let point = place.dir().join("point").display().to_string();
    assert!(message.contains(&format!(") and mounted on {point}")), "{message}");
    let reading = reading.failed(3);
    assert!(
        reading.contains("is in use: undercroft (process ") && reading.contains("`--no-lock`"),
        "{reading}"
    );
}

/// The name of the option says what may happen, and no other option will do.
#[test]
fn only_an_option_that_says_so_writes_to_what_is_in_use() {
    let place = Place::new();
    let attached = Loop::new(&place.image(), &[]);
    let message = place.run("mount --no-lock -o rw disk.img point").failed(2);
    assert!(message.contains("--write-while-in-use"), "{message}");
    for args in [
        "mkfs ext4 -F --write-while-in-use disk.img",
        "md create -l 1 -F --write-while-in-use disk.img missing",
    ] {
        let run = place.run(args);
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert!(
            run.stderr.contains("note: disk.img is in use") && run.stderr.contains(&attached.0),
            "{}",
            run.stderr
        );
    }
    let run = place.run("mkfs ext4 -F --write-while-in-use disk.img");
    assert_eq!(run.code, 0, "{}", run.stderr);
    let run = place.run("mount --write-while-in-use -o rw disk.img point");
    place.run("unmount point").succeeded();
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("note: disk.img is in use"), "{}", run.stderr);
    let point = place.dir().join("point").display().to_string();
    tool(&format!("mount {} {point}", attached.0), place.dir());
    let run = place.run(&format!("mkfs ext4 -F --write-while-in-use {}", attached.0));
    tool(&format!("umount {point}"), place.dir());
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains(&format!("mounted on {point}")), "{}", run.stderr);
}

/// One file twice in one array would be written by two that do not know of each other.
#[test]
fn one_program_does_not_open_a_device_twice_for_writing() {
    let place = Place::new();
    fs::hard_link(place.image(), place.dir().join("again.img")).unwrap();
    std::os::unix::fs::symlink("disk.img", place.dir().join("link.img")).unwrap();
    let message = place.run("md create -l 1 --force disk.img disk.img").failed(2);
    assert_eq!(message, "disk.img is named twice; each member is another file or device");
    for second in ["again.img", "link.img"] {
        let message = place.run(&format!("md create -l 1 --force disk.img {second}")).failed(3);
        assert!(message.contains("this program has it open for writing already"), "{message}");
        let option = "--write-while-in-use";
        let message = place.run(&format!("md create -l 1 --force {option} disk.img {second}")).failed(3);
        assert!(message.contains("this program has it open for writing already"), "{message}");
    }
    // Through a loop device it is the same bytes.
    let attached = Loop::new(&place.image(), &[]);
    for members in [format!("{} disk.img", attached.0), format!("disk.img {}", attached.0)] {
        let message = place.run(&format!("md create -l 1 --force {members}")).failed(3);
        assert!(message.contains("is in use"), "{message}");
    }
}

/// A loop device writes to its file, which others may use as well.
#[test]
fn a_loop_device_is_in_use_when_its_file_is() {
    let place = Place::new();
    let attached = Loop::new(&place.image(), &[]);
    let other = Loop::new(&place.image(), &[]);
    let point = place.dir().join("point").display().to_string();
    tool(&format!("mount {} {point}", other.0), place.dir());
    let message = place.run(&format!("mkfs ext4 -F {}", attached.0));
    tool(&format!("umount {point}"), place.dir());
    drop(other);
    let message = message.failed(3);
    assert!(message.contains("mounted on") && message.contains(&point), "{message}");
    let qemu = Qemu::io(&place.image(), &["-f", "raw"]);
    let message = place.run(&format!("mkfs ext4 -F {}", attached.0)).failed(3);
    assert!(message.contains(&format!("qemu-io (process {})", qemu.0.id())), "{message}");
}

/// An ordinary user sees less, and is refused what can be seen.
#[test]
fn an_ordinary_user_is_kept_out_of_what_root_has_mounted() {
    let place = Place::new();
    tool("chmod 755 .", place.dir());
    tool("chmod 666 disk.img", place.dir());
    let mount = LoopMount::new(&place.image(), "ext4", MountMode::ReadWrite, "").unwrap();
    let copy = tempfile::tempdir().unwrap();
    tool(&format!("chmod 755 {}", copy.path().display()), place.dir());
    let program = copy.path().join("undercroft");
    copy_program(&program);
    let before = place.bytes();
    let as_user = |args: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        run(command.args(args.split(' ')).current_dir(place.dir()))
    };
    let message = as_user("mkfs ext4 -F disk.img").failed(3);
    assert!(message.contains("is in use") && message.contains("/dev/loop"), "{message}");
    assert!(place.bytes() == before);
    assert!(as_user("ls disk.img").stderr.contains(&mount.path().display().to_string()));
}

/// What was found to be in use is not opened for writing, so that it keeps its bytes also where it is not recognised.
#[test]
fn a_refused_image_keeps_its_bytes() {
    let place = Place::new();
    let file = File::options().write(true).open(place.image()).unwrap();
    file.write_all_at(&[0; 4096], 0).unwrap();
    let _attached = Loop::new(&place.image(), &[]);
    place.refuses_writers("disk.img", &["is in use"]);
    let message = undercroft(["mkfs", "ext4", place.image().to_str().unwrap()]).failed(3);
    assert!(message.contains("two writers would destroy"), "{message}");
}
