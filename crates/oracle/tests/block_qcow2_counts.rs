//! A qcow2 image whose reference counts do not cover what is in use is read, and refused for writing, as the next
//! allocation would hand out a cluster that holds something. What QEMU's tools make and repair is taken.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use proptest::prelude::*;
use tempfile::TempDir;
use undercroft_block::{Device, ImageOptions, OpenError, open_image};

const MIB: usize = 1 << 20;
const COPIED: u64 = 1 << 63;
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;

fn directory() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn tool(program: &str, arguments: &[&str], directory: &Path) {
    let output = Command::new(program).args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
}

fn qemu_img(arguments: &[&str], directory: &Path) {
    tool("qemu-img", arguments, directory);
}

/// Data with a hole, all of it different.
fn content(len: usize) -> Vec<u8> {
    let hole = len / 3..len / 2;
    (0..len).map(|at| if hole.contains(&at) { 0 } else { (at / 512 + at % 7 + 1) as u8 }).collect()
}

/// An image `disk.qcow2` of `len` bytes with content.
fn image(directory: &Path, len: usize, arguments: &[&str]) -> PathBuf {
    fs::write(directory.join("disk.raw"), content(len)).unwrap();
    let arguments = [&["convert", "-O", "qcow2"], arguments, &["disk.raw", "disk.qcow2"]].concat();
    qemu_img(&arguments, directory);
    directory.join("disk.qcow2")
}

fn writable(path: &Path) -> Result<Device, OpenError> {
    open_image(path, ImageOptions { allow_backing: true, ..ImageOptions::read_write() })
}

fn all_of(device: &Device) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// What qemu-img finds, unless that is nothing or leaks.
fn damage(path: &Path) -> Option<String> {
    let output = Command::new("qemu-img")
        .args(["check", "-f", "qcow2"])
        .arg(path)
        .current_dir(path.parent().unwrap())
        .output()
        .unwrap();
    (!matches!(output.status.code(), Some(0 | 3))).then(|| format!("{output:?}"))
}

fn assert_taken(path: &Path) {
    let device = writable(path).unwrap_or_else(|error| panic!("{error}"));
    let size = device.size_bytes();
    for at in [0, size / 3, size - 5000] {
        device.write_at(at, &[0x5a; 5000]).unwrap();
    }
    device.flush().unwrap();
    drop(device);
    assert_eq!(damage(path), None);
}

fn assert_refused(path: &Path, why: &str) {
    let before = fs::read(path).unwrap();
    let error = writable(path).map(drop).expect_err(why);
    assert!(matches!(error, OpenError::Inconsistent { .. }), "{why}: {error}");
    let told = error.to_string();
    assert!(told.contains(why), "{why}: {told}");
    assert!(told.contains("qemu-img check -f qcow2 -r all"), "{told}");
    assert!(fs::read(path).unwrap() == before, "{why}: the image was changed");
}

/// The tables of a small image, by its header.
struct Image {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Image {
    fn read(path: &Path) -> Self {
        Self { path: path.to_owned(), bytes: fs::read(path).unwrap() }
    }

    fn write(&self) {
        fs::write(&self.path, &self.bytes).unwrap();
    }

    fn u32_at(&self, at: u64) -> u64 {
        u64::from(u32::from_be_bytes(self.bytes[at as usize..][..4].try_into().unwrap()))
    }

    fn u64_at(&self, at: u64) -> u64 {
        self.u32_at(at) << 32 | self.u32_at(at + 4)
    }

    fn set_u64(&mut self, at: u64, value: u64) {
        self.bytes[at as usize..][..8].copy_from_slice(&value.to_be_bytes());
    }

    fn cluster(&self) -> u64 {
        1 << self.u32_at(20)
    }

    fn order(&self) -> u64 {
        if self.u32_at(4) < 3 { 4 } else { self.u32_at(96) }
    }

    fn l1(&self) -> u64 {
        self.u64_at(40)
    }

    fn count_table(&self) -> u64 {
        self.u64_at(48)
    }

    /// The first byte of a cluster's count, and the lowest of its bits there.
    fn count_at(&self, cluster: u64) -> Option<(usize, u64)> {
        let in_block = (self.cluster() * 8) >> self.order();
        let block = self.u64_at(self.count_table() + cluster / in_block * 8);
        let bit = (cluster % in_block) << self.order();
        (block > 0).then_some(((block + bit / 8) as usize, bit % 8))
    }

    fn count(&self, cluster: u64) -> u64 {
        let Some((at, shift)) = self.count_at(cluster) else { return 0 };
        match self.order() {
            order @ ..3 => u64::from(self.bytes[at]) >> shift & ((1 << (1 << order)) - 1),
            order => {
                self.bytes[at..][..1 << (order - 3)].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
            }
        }
    }

    fn set_count(&mut self, cluster: u64, count: u64) {
        let (at, shift) = self.count_at(cluster).unwrap();
        match self.order() {
            order @ ..3 => {
                let mask = ((1_u64 << (1 << order)) - 1) << shift;
                self.bytes[at] = self.bytes[at] & !(mask as u8) | (count << shift) as u8;
            }
            order => {
                let len = 1 << (order - 3);
                self.bytes[at..][..len].copy_from_slice(&count.to_be_bytes()[8 - len..]);
            }
        }
    }

    fn clusters(&self) -> std::ops::Range<u64> {
        0..(self.bytes.len() as u64).div_ceil(self.cluster())
    }

    /// Where the entries of the first L2 table stand that lead to data.
    fn data_entries(&self) -> Vec<u64> {
        let table = self.u64_at(self.l1()) & OFFSET;
        (table..table + self.cluster()).step_by(8).filter(|&at| self.u64_at(at) & OFFSET != 0).collect()
    }
}

#[test]
fn what_qemu_makes_is_written_to() {
    let directory = directory();
    for cluster in ["512", "4k", "64k", "2M"] {
        for bits in ["1", "2", "8", "16", "32", "64"] {
            let options = format!("cluster_size={cluster},refcount_bits={bits}");
            assert_taken(&image(directory.path(), 3 * MIB / 2 + 512, &["-o", &options]));
            assert_taken(&image(directory.path(), 3 * MIB / 2, &["-c", "-o", &options]));
        }
        let options = format!("compat=0.10,cluster_size={cluster}");
        assert_taken(&image(directory.path(), MIB, &["-o", &options]));
    }
}

#[test]
fn space_that_is_reserved_is_in_use() {
    let directory = directory();
    for preallocation in ["off", "metadata", "falloc", "full"] {
        for lazy in ["on", "off"] {
            let options = format!("preallocation={preallocation},lazy_refcounts={lazy},cluster_size=4k");
            let arguments = ["create", "-q", "-f", "qcow2", "-o", &options, "new.qcow2", "3M"];
            qemu_img(&arguments, directory.path());
            assert_taken(&directory.path().join("new.qcow2"));
        }
    }
}

#[test]
fn snapshots_inside_an_image_share_what_their_counts_allow() {
    let directory = directory();
    for options in ["cluster_size=512", "cluster_size=4k,refcount_bits=32", "compat=0.10"] {
        for compress in [&[][..], &["-c"]] {
            let path = image(directory.path(), MIB, &[compress, &["-o", options]].concat());
            for (number, name) in ["one", "two", "three"].into_iter().enumerate() {
                qemu_img(&["snapshot", "-c", name, "disk.qcow2"], directory.path());
                let write = format!("write -P 7 {} 70000", number * 50_000);
                tool("qemu-io", &["-f", "qcow2", "-c", &write, "disk.qcow2"], directory.path());
            }
            assert_taken(&path);
            qemu_img(&["snapshot", "-d", "two", "disk.qcow2"], directory.path());
            assert_taken(&path);
            qemu_img(&["snapshot", "-a", "one", "disk.qcow2"], directory.path());
            drop(writable(&path).unwrap());
            assert_eq!(damage(&path), None);
        }
    }
}

#[test]
fn images_with_other_files_are_written_to() {
    let directory = directory();
    let options = format!("data_file={}/data.raw,cluster_size=4k", directory.path().display());
    let path = image(directory.path(), MIB, &["-o", &options]);
    assert_taken(&path);
    let arguments = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "disk.raw", "top.qcow2"];
    qemu_img(&arguments, directory.path());
    assert_taken(&directory.path().join("top.qcow2"));
}

/// Each cluster in turn, and then all of one kind of image are mended by qemu-img.
#[test]
fn a_cluster_in_use_that_is_not_counted_is_refused() {
    let directory = directory();
    for (options, len) in [
        ("cluster_size=512", MIB / 8),
        ("cluster_size=512,refcount_bits=1", MIB / 8),
        ("cluster_size=4k,refcount_bits=64", MIB),
        ("cluster_size=64k,compat=0.10", MIB),
        ("cluster_size=2M,refcount_bits=2", 8 * MIB),
    ] {
        let path = image(directory.path(), len, &["-o", options]);
        let good = Image::read(&path);
        let used: Vec<_> = good.clusters().filter(|&cluster| good.count(cluster) > 0).collect();
        assert!(used.len() > 4, "{options}");
        for &cluster in &used {
            let mut bad = Image::read(&path);
            bad.set_count(cluster, 0);
            bad.write();
            assert_refused(&path, &format!("the cluster at byte {} is in use", cluster * good.cluster()));
            let reader = open_image(&path, ImageOptions::read_only()).unwrap();
            assert!(all_of(&reader) == content(len), "{options}: cluster {cluster}");
            good.write();
        }
        let mut bad = Image::read(&path);
        used.iter().for_each(|&cluster| bad.set_count(cluster, 0));
        bad.write();
        assert_refused(&path, "its refcount is 0");
        let repair = ["check", "-q", "-f", "qcow2", "-r", "all", "disk.qcow2"];
        Command::new("qemu-img").args(repair).current_dir(directory.path()).output().unwrap();
        let device = writable(&path).unwrap_or_else(|error| panic!("{options}: {error}"));
        assert!(all_of(&device) == content(len), "{options}");
        drop(device);
        assert_taken(&path);
    }
}

#[test]
fn clusters_that_are_not_in_use_may_be_counted() {
    let directory = directory();
    let path = image(directory.path(), MIB / 8, &["-o", "cluster_size=512"]);
    let mut leaky = Image::read(&path);
    for cluster in leaky.clusters() {
        leaky.set_count(cluster, leaky.count(cluster) + cluster % 3);
    }
    leaky.write();
    drop(writable(&path).unwrap());
}

#[test]
fn a_cluster_with_more_users_than_it_counts_is_refused() {
    let directory = directory();
    let path = image(directory.path(), MIB, &["-o", "cluster_size=4k"]);
    let good = Image::read(&path);
    let entries = good.data_entries();
    let (first, second) = (entries[0], entries[9]);
    let data = good.u64_at(first) & OFFSET;
    let shared = format!("the cluster at byte {data}");
    for (copied, count, is_fit) in [
        (COPIED, 1, false),
        (0, 1, false),
        // Counted, and said to have no other user.
        (COPIED, 2, false),
        (0, 2, true),
    ] {
        let mut image = Image::read(&path);
        image.set_u64(first, data | copied);
        image.set_u64(second, data);
        image.set_count(data / image.cluster(), count);
        image.write();
        if is_fit {
            drop(writable(&path).unwrap());
        } else {
            assert_refused(&path, &shared);
        }
        good.write();
    }
}

#[test]
fn a_snapshot_shares_nothing_that_is_written_in_place() {
    let directory = directory();
    let path = image(directory.path(), MIB, &["-o", "cluster_size=4k"]);
    qemu_img(&["snapshot", "-c", "before", "disk.qcow2"], directory.path());
    let good = Image::read(&path);
    let entry = good.data_entries()[3];
    let table = good.u64_at(good.l1()) & OFFSET;
    for (at, cluster) in [(entry, good.u64_at(entry) & OFFSET), (good.l1(), table)] {
        let mut bad = Image::read(&path);
        bad.set_u64(at, good.u64_at(at) | COPIED);
        bad.write();
        assert_refused(&path, &format!("the cluster at byte {cluster}"));
        let mut bad = Image::read(&path);
        bad.set_u64(at, good.u64_at(at));
        bad.set_count(cluster / good.cluster(), 1);
        bad.write();
        assert_refused(&path, &format!("the cluster at byte {cluster}"));
        good.write();
    }
    // The snapshot's own table is the active one.
    let mut bad = Image::read(&path);
    let snapshot = bad.u64_at(64);
    bad.set_u64(snapshot, bad.l1());
    bad.set_count(bad.l1() / bad.cluster(), 2);
    bad.write();
    assert_refused(&path, &format!("two of its tables share the cluster at byte {}", good.l1()));
}

#[test]
fn tables_that_share_a_cluster_or_lie_elsewhere_are_refused() {
    let directory = directory();
    let path = image(directory.path(), MIB, &["-o", "cluster_size=4k,refcount_bits=64"]);
    let good = Image::read(&path);
    let end = good.bytes.len() as u64;
    let entry = good.data_entries()[0];
    let beyond = end.next_multiple_of(good.cluster()) + good.cluster();
    let block = good.u64_at(good.count_table());
    for (at, value, why) in [
        (good.l1(), good.l1(), "the cluster at byte"),
        (entry, good.count_table() | COPIED, "the cluster at byte"),
        (entry, block, "the cluster at byte"),
        (good.count_table() + 8, block, "two of its tables share"),
        (good.count_table() + 8, good.l1(), "two of its tables share"),
        (entry, beyond | COPIED, "past the end of the file"),
        (good.l1(), beyond | COPIED, "past the end of the file"),
        (good.count_table() + 8, beyond, "past the end of the file"),
        (entry, good.u64_at(entry) + 512, "where no cluster begins"),
    ] {
        let mut bad = Image::read(&path);
        bad.set_u64(at, value);
        bad.write();
        assert_refused(&path, why);
        good.write();
    }
}

#[test]
fn an_encrypted_image_is_refused_by_name() {
    let directory = directory();
    let options = "encrypt.format=luks,encrypt.key-secret=key,encrypt.iter-time=10";
    let arguments = [
        "create",
        "-q",
        "--object",
        "secret,id=key,data=abc",
        "-f",
        "qcow2",
        "-o",
        options,
        "new.qcow2",
        "1M",
    ];
    // qemu-img measures how long a key takes, and gives up where the processor's clock has not moved meanwhile.
    let clock_stood =
        |output: &Output| String::from_utf8_lossy(&output.stderr).contains("accurate CPU usage");
    let made = || Command::new("qemu-img").args(arguments).current_dir(directory.path()).output().unwrap();
    let output = (0..20).map(|_| made()).find(|output| !clock_stood(output)).expect("a clock that moves");
    assert!(output.status.success(), "qemu-img {arguments:?}: {output:?}");
    for options in [ImageOptions::read_only(), ImageOptions::read_write()] {
        let error = open_image(directory.path().join("new.qcow2"), options).unwrap_err().to_string();
        assert!(error.contains("encrypted"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    /// What qemu-img finds in order is taken, and what is taken keeps what is written.
    #[test]
    fn what_is_taken_keeps_what_is_written(
        snapshot in any::<bool>(),
        place in 0..4_usize,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0..64_u32), 1..4),
    ) {
        let directory = directory();
        let path = image(directory.path(), MIB / 8, &["-o", "cluster_size=512"]);
        if snapshot {
            qemu_img(&["snapshot", "-c", "before", "disk.qcow2"], directory.path());
        }
        let mut image = Image::read(&path);
        let table = image.u64_at(image.l1()) & OFFSET;
        let block = image.u64_at(image.count_table());
        let start = [image.l1(), image.count_table(), table, block][place];
        for (at, bit) in flips {
            let at = start + at.index(64) as u64 * 8;
            image.set_u64(at, image.u64_at(at) ^ 1 << bit);
        }
        image.write();
        let taken = writable(&path);
        if damage(&path).is_none() {
            prop_assert!(taken.is_ok(), "{}", taken.unwrap_err());
        }
        let Ok(device) = taken else { return Ok(()) };
        let written = vec![0x77; 3000];
        let mut done = Vec::new();
        for at in (0..device.size_bytes() - 3000).step_by(3000) {
            if device.write_at(at, &written).is_ok() {
                done.push(at);
            }
        }
        prop_assert!(device.flush().is_ok() || done.len() < 40);
        let mut found = vec![0; 3000];
        for at in done {
            device.read_at(at, &mut found).unwrap();
            prop_assert!(found == written, "byte {}", at);
        }
    }
}
