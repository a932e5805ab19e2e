//! Orphans go both ways: what our killed server leaves is finished by the kernel, by e2fsck and by us, and what the kernel
//! leaves by us, all with the same free space in the end.
//!
//! Orphans here are files that programs hold open without a name; `UNDERCROFT_ORPHANS` says how many.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use undercroft_oracle::{Image, Mke2fs, MountMode, Served, Tool, open_ext4, populate};
use undercroft_vfs::FileSystem;

const PROGRAM: &str = env!("CARGO_BIN_EXE_serve_ext4");

/// Files that one program holds open.
const HELD_BY_ONE: u64 = 10_000;

/// The homes that orphans have, with maps of both kinds.
const HOMES: [&str; 2] = ["orphan_file", "^orphan_file,^extent,^64bit"];

fn orphans() -> u64 {
    let value = std::env::var("UNDERCROFT_ORPHANS").ok();
    value.map_or(1500, |value| value.parse().expect("UNDERCROFT_ORPHANS is a number"))
}

fn image(features: &str) -> Image {
    let orphans = orphans();
    let inodes = u32::try_from(orphans + 1000).unwrap();
    let size_mib = 256 + orphans * 4 / 1024;
    Mke2fs::new("ext4", size_mib).block_bytes(1024).inodes(inodes).features(features).make().unwrap()
}

/// Makes files, and takes their names away while programs have them open.
fn leave_orphans(root: &Path) -> Vec<Holder> {
    let mut bytes = vec![0; 3000];
    for number in 0..orphans() {
        populate::noise(number, &mut bytes);
        fs::write(root.join(format!("file-{number}")), &bytes).unwrap();
    }
    let starts = (0..orphans()).step_by(HELD_BY_ONE as usize);
    let holders = starts.map(|first| Holder::new(root, first..orphans().min(first + HELD_BY_ONE))).collect();
    (0..orphans()).for_each(|number| fs::remove_file(root.join(format!("file-{number}"))).unwrap());
    holders
}

/// A program that has files open, which one process may have only so many of.
struct Holder(Child);

impl Holder {
    fn new(root: &Path, numbers: Range<u64>) -> Self {
        let script = format!(
            "for ((n = {}; n < {}; n++)); do exec {{file}}< file-$n; done; echo held; read -r",
            numbers.start, numbers.end
        );
        let mut shell = Command::new("bash");
        shell.args(["-ec", &script]).current_dir(root).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "held\n");
        Self(shell)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Makes every change of names durable. FUSE does not hear of syncfs.
fn sync(root: &Path) {
    File::open(root).unwrap().sync_all().unwrap();
}

/// What is free, in blocks and inodes; nothing is left to finish.
fn free(image: &Image) -> (u64, u64) {
    let (fs, _) = open_ext4(image.path()).unwrap();
    assert_eq!(fs.orphans().unwrap(), []);
    let space = fs.statfs().unwrap();
    (space.blocks_free, space.inodes_free)
}

fn by_the_kernel(image: &Image) -> (u64, u64) {
    image.mount(MountMode::ReadWrite, "").unwrap().unmount().unwrap();
    image.check().unwrap();
    free(image)
}

fn by_e2fsck(image: &Image) -> (u64, u64) {
    // Preening gives up where more is wrong than a crash explains.
    Tool::new("e2fsck").args(["-f", "-p"]).arg(image.path()).accept(&[0, 1]).run().unwrap();
    image.check().unwrap();
    free(image)
}

fn by_us(image: &Image) -> (u64, u64) {
    Served::ext4(PROGRAM, image.path()).unwrap().unmount().unwrap();
    image.check().unwrap();
    free(image)
}

#[test]
fn what_our_server_leaves_is_finished_by_everybody() {
    for features in HOMES {
        let image = image(features);
        let server = Served::ext4(PROGRAM, image.path()).unwrap();
        let held = leave_orphans(server.path());
        sync(server.path());
        server.kill().unwrap();
        drop(held);

        let left = open_ext4(image.path()).unwrap().0.orphans().unwrap().len() as u64;
        eprintln!("{features}: {left} orphans left");
        assert_eq!(left, orphans(), "{features}");
        finished_alike(&image, features);
    }
}

/// What an image has left to finish, the kernel, e2fsck and we finish alike.
fn finished_alike(image: &Image, what: &str) {
    let [for_kernel, for_e2fsck] = [image.copy().unwrap(), image.copy().unwrap()];
    let (kernel, e2fsck, us) = (by_the_kernel(&for_kernel), by_e2fsck(&for_e2fsck), by_us(image));
    assert_eq!((us, e2fsck), (kernel, kernel), "{what}: free blocks and inodes");
}

#[test]
fn what_the_kernel_leaves_is_finished_by_us() {
    for features in HOMES {
        let image = image(features);
        let mount = image.mount(MountMode::ReadWrite, "").unwrap();
        let held = leave_orphans(mount.path());
        sync(mount.path());
        let copy = image.copy_between_writes(&mount).unwrap();
        drop(held);
        mount.unmount().unwrap();
        let left = open_ext4(copy.path()).unwrap().0.orphans().unwrap().len() as u64;
        assert_eq!(left, orphans(), "{features}");
        let kernel = by_the_kernel(&copy.copy().unwrap());
        assert_eq!(by_us(&copy), kernel, "{features}: free blocks and inodes");
    }
}
