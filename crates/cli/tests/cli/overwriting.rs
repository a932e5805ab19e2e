//! What is overwritten only with `--force`: whatever is there, known or not, by `mkfs` and by `md`.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{PROGRAM, Run, run, tool};

const MIB: u64 = 1 << 20;

/// A directory in which everything runs.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn dir(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, args: &str) -> Run {
        run(Command::new(PROGRAM).args(args.split(' ')).current_dir(self.dir()))
    }

    /// A sparse file with these bytes at these places.
    fn file(&self, name: &str, size: u64, content: &[(u64, &[u8])]) {
        let file = File::create(self.dir().join(name)).unwrap();
        file.set_len(size).unwrap();
        for (at, bytes) in content {
            file.write_all_at(bytes, *at).unwrap();
        }
    }

    /// Neither makes a filesystem nor an array on it without force, says what is there, and changes no byte.
    fn keeps(&self, name: &str, words: &[&str]) {
        let before = fs::read(self.dir().join(name)).unwrap();
        for args in [format!("mkfs ext4 {name}"), format!("md create -l 1 {name} missing")] {
            let message = self.run(&args).failed(8);
            for word in words.iter().chain(&[name, "--force"]) {
                assert!(message.contains(word), "{args}: {word}: {message}");
            }
        }
        assert!(fs::read(self.dir().join(name)).unwrap() == before, "a refusal wrote to {name}");
    }
}

#[test]
fn an_archive_a_database_and_a_program_are_kept() {
    let place = Place::new();
    // As large as a filesystem, so that size is no reason to refuse.
    tool("tar --create --file files.tar /bin/ls", place.dir());
    tool("sqlite3 data.db CREATE\ttable\tt(x);", place.dir());
    fs::copy("/bin/ls", place.dir().join("program")).unwrap();
    for (name, word) in
        [("files.tar", "a tar archive"), ("data.db", "an SQLite database"), ("program", "a program")]
    {
        tool(&format!("truncate -s 8M {name}"), place.dir());
        place.keeps(name, &[&format!("{name} holds {word}")]);
    }
}

#[test]
fn data_that_is_not_known_is_kept_wherever_it_is() {
    let place = Place::new();
    let end = 64 * MIB - 1;
    for (name, at) in [("first", 0), ("second", 700), ("middle", 33 * MIB + 5), ("last", end)] {
        place.file(name, 64 * MIB, &[(at, b"\x01")]);
        place.keeps(name, &[&format!("{name} holds data that is not known, from byte {at} on")]);
    }
    place.run("mkfs ext4 middle --force").succeeded();
    tool("e2fsck -fn middle", place.dir());
    place.run("md create -l 1 -F last missing").succeeded();
}

#[test]
fn zeroes_are_nothing_that_could_be_missed() {
    let place = Place::new();
    place.file("holes", 1 << 40, &[]);
    fs::write(place.dir().join("zeroes"), vec![0; 32 << 20]).unwrap();
    tool("fallocate -l 32M allocated", place.dir());
    for name in ["zeroes", "allocated"] {
        place.run(&format!("mkfs ext4 {name}")).succeeded();
    }
    place.run("mkfs ext4 holes --size 64M").succeeded();
    fs::write(place.dir().join("member"), vec![0; 32 << 20]).unwrap();
    place.run("md create -l 1 member missing").succeeded();
}

#[test]
fn a_member_that_is_added_is_looked_at_as_well() {
    let place = Place::new();
    place.run("md create -l 1 --member-size 16M a missing").succeeded();
    place.file("b", 16 * MIB, &[(9 * MIB, b"a letter")]);
    let before = fs::read(place.dir().join("b")).unwrap();
    let added = place.run("md add md:a b");
    assert_eq!(added.code, 8, "{}", added.stderr);
    assert!(
        added.stderr.contains("b holds data that is not known, from byte 9437184 on"),
        "{}",
        added.stderr
    );
    assert!(fs::read(place.dir().join("b")).unwrap() == before);
    assert_eq!(place.run("md add --force md:a b").code, 0);
}

#[test]
fn a_partition_is_looked_at_and_its_neighbours_are_not() {
    let place = Place::new();
    place.file("disk", 64 * MIB, &[]);
    let mut sfdisk = Command::new("sfdisk");
    let sfdisk = sfdisk.args(["-q", "disk"]).current_dir(place.dir()).stdin(Stdio::piped());
    let mut sfdisk = sfdisk.spawn().unwrap();
    sfdisk.stdin.take().unwrap().write_all(b"label: gpt\nstart=2048,size=65536\n,\n").unwrap();
    assert!(sfdisk.wait().unwrap().success());
    let file = File::options().write(true).open(place.dir().join("disk")).unwrap();
    file.write_all_at(b"a letter", 20 * MIB).unwrap();
    let message = place.run("mkfs ext4 disk?part=1").failed(8);
    assert!(message.contains("data that is not known, from byte 19922944 on"), "{message}");
    place.run("mkfs ext4 disk?part=2").succeeded();
    let message = place.run("mkfs ext4 disk").failed(8);
    assert!(message.contains("a GPT partition table"), "{message}");
}

/// Disks are too large to be read as a whole: their ends tell, where programs put their marks.
#[test]
fn a_block_device_is_looked_at_at_both_ends() {
    let place = Place::new();
    for (at, is_kept) in [(MIB - 1, true), (63 * MIB, true), (32 * MIB, false)] {
        place.file("disk", 64 * MIB, &[(at, b"\x01")]);
        let device = tool("losetup --find --show disk", place.dir());
        let device = device.trim();
        let made = place.run(&format!("mkfs ext4 {device}"));
        tool(&format!("losetup --detach {device}"), place.dir());
        if is_kept {
            let message = made.failed(8);
            assert!(
                message.contains(&format!("{device} holds data that is not known, from byte {at} on")),
                "{message}"
            );
        } else {
            made.succeeded();
        }
    }
}

/// A qcow2's own tables are no content of the disk in it; what is on the disk is.
#[test]
fn the_disk_in_a_qcow2_is_looked_at() {
    let place = Place::new();
    tool("qemu-img create -q -f qcow2 new.qcow2 1T", place.dir());
    place.run("mkfs ext4 new.qcow2 --size 64M").succeeded();
    place.file("raw", 64 * MIB, &[(33 * MIB, b"a letter")]);
    tool("qemu-img convert -f raw -O qcow2 raw disk.qcow2", place.dir());
    let message = place.run("mkfs ext4 disk.qcow2").failed(8);
    assert!(message.contains("data that is not known, from byte 34603008 on"), "{message}");
    place.run("mkfs ext4 disk.qcow2 --force").succeeded();
}
