//! Orphans go both ways: what our killed server or a power cut leaves is finished by the kernel, by e2fsck and by us,
//! and what the kernel leaves by us, all with the same free space in the end. On XFS, where they are called unlinked inodes,
//! the trees of the groups need not end alike, so a few blocks may differ.
//!
//! Orphans here are files that programs hold open without a name, and a file that is being cut short.
//! `UNDERCROFT_ORPHANS` says how many of the first kind.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use undercroft_block::testing::Recorder;
use undercroft_block::{Device, FileDevice, FileOptions};
use undercroft_ext4::{Ext4, OpenOptions, WriteOptions};
use undercroft_oracle::{
    How, Image, Mke2fs, MkfsXfs, MountMode, Served, Tool, open_ext4, open_xfs, populate,
};
use undercroft_vfs::{Credentials, FileSystem, Follow, NewKind, NewObject, Vfs, VfsOptions};
use undercroft_xfs::{Recovery, Xfs};

const PROGRAM: &str = env!("CARGO_BIN_EXE_serve_image");

/// Files that one program holds open.
const HELD_BY_ONE: u64 = 10_000;

/// Mebibytes of the file that is cut short, and bytes that are left of it.
const LARGE_MIB: u64 = 75;
const CUT_BYTES: u64 = 1000;

/// The homes that orphans have, with maps of both kinds.
const HOMES: [&str; 2] = ["orphan_file", "^orphan_file,^extent,^64bit"];

/// Shapes of XFS whose unlinked inodes have more and fewer trees to leave.
const XFS_SHAPES: [&str; 2] = ["-m rmapbt=1", "-d agcount=2 -m finobt=0,reflink=0 -i sparse=0"];

/// Blocks by which two trees of inode chunks, or of owners, may differ that hold the same.
const TREES_DIFFER: u64 = 16;

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

fn xfs(args: &str) -> Image {
    MkfsXfs::new(400 + orphans() * 6 / 1024, args).make().unwrap()
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

/// How many inodes an image that was not closed has without a name.
fn left(image: &Image) -> u64 {
    let left = match How::of(image) {
        How::Ext4(_) => open_ext4(image.path()).unwrap().0.orphans().unwrap().len(),
        How::Xfs(_) => open_xfs(image.path()).unwrap().0.recovery().map_or(0, Recovery::unlinked_inodes),
    };
    left as u64
}

/// What is free, in blocks and inodes; nothing is left to finish, and the checker of Linux finds nothing.
fn free(image: &Image) -> (u64, u64) {
    let how = How::of(image);
    how.check(image.path()).unwrap();
    if let How::Ext4(_) = how {
        assert_eq!(open_ext4(image.path()).unwrap().0.orphans().unwrap(), []);
    }
    let space = how.read(image.path()).filesystem().statfs().unwrap();
    // XFS makes inodes as they are needed, so those in use tell more than the free ones.
    let inodes = match how {
        How::Ext4(_) => space.inodes_free,
        How::Xfs(_) => space.inodes - space.inodes_free,
    };
    (space.blocks_free, inodes)
}

fn by_the_kernel(image: &Image) -> (u64, u64) {
    image.mount(MountMode::ReadWrite, How::of(image).mounted()).unwrap().unmount().unwrap();
    free(image)
}

fn by_e2fsck(image: &Image) -> (u64, u64) {
    // Preening gives up where more is wrong than a crash explains.
    Tool::new("e2fsck").args(["-f", "-p"]).arg(image.path()).accept(&[0, 1]).run().unwrap();
    free(image)
}

fn by_us(image: &Image) -> (u64, u64) {
    Served::image(PROGRAM, image).unwrap().unmount().unwrap();
    free(image)
}

/// Our server is killed with all orphans held open.
fn left_by_our_server(image: &Image) {
    let server = Served::image(PROGRAM, image).unwrap();
    let held = leave_orphans(server.path());
    sync(server.path());
    server.kill().unwrap();
    drop(held);
}

/// The image as the kernel has it with all orphans held open.
fn left_by_the_kernel(image: &Image) -> Image {
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    let held = leave_orphans(mount.path());
    sync(mount.path());
    let copy = image.copy_between_writes(&mount).unwrap();
    drop(held);
    mount.unmount().unwrap();
    copy
}

#[test]
fn what_our_server_leaves_is_finished_by_every_reader() {
    for features in HOMES {
        let image = image(features);
        left_by_our_server(&image);
        let left = left(&image);
        eprintln!("{features}: {left} orphans left");
        assert_eq!(left, orphans(), "{features}");
        let (kernel, e2fsck, us) = finished(&image);
        assert_eq!((us, e2fsck), (kernel, kernel), "{features}: free blocks and inodes");
    }
}

/// We and the kernel finish what an image of XFS has left, and end alike.
fn finished_alike_on_xfs(left_behind: &Image, args: &str) {
    let left = left(left_behind);
    eprintln!("{args}: {left} unlinked inodes left");
    assert_eq!(left, orphans(), "{args}");
    // Linux is given nothing that our recovery finds fault with.
    let for_kernel = left_behind.copy().unwrap();
    let (us, kernel) = (by_us(left_behind), by_the_kernel(&for_kernel));
    assert_eq!(us.1, kernel.1, "{args}: inodes in use");
    assert!(us.0.abs_diff(kernel.0) <= TREES_DIFFER, "{args}: free blocks {} and {}", us.0, kernel.0);
}

#[test]
fn unlinked_inodes_that_our_server_leaves_are_deleted_by_us_and_by_the_kernel() {
    for args in XFS_SHAPES {
        let image = xfs(args);
        left_by_our_server(&image);
        finished_alike_on_xfs(&image, args);
    }
}

#[test]
fn unlinked_inodes_that_the_kernel_leaves_are_deleted_by_us_and_by_the_kernel() {
    for args in XFS_SHAPES {
        finished_alike_on_xfs(&left_by_the_kernel(&xfs(args)), args);
    }
}

/// A filesystem that is closed while a program that embeds it still has files open.
#[test]
fn unlinked_inodes_in_use_when_xfs_is_closed_are_deleted_by_us_and_by_the_kernel() {
    for args in XFS_SHAPES {
        let image = xfs(args);
        let device: Device = Arc::new(FileDevice::open(image.path(), FileOptions::read_write()).unwrap());
        let fs = Xfs::open(
            device,
            undercroft_xfs::OpenOptions::default(),
            undercroft_xfs::WriteOptions::default(),
        )
        .unwrap();
        let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
        let (root, caller) = (vfs.root().unwrap(), Credentials::root());
        let new = NewObject { kind: NewKind::Regular, permissions: 0o644, umask: 0 };
        let held: Vec<_> = (0..orphans())
            .map(|number| {
                let name = format!("file-{number}");
                let node = vfs.create(&caller, &root, name.as_bytes(), &new).unwrap();
                let file = vfs.open_node_for_writing(&node).unwrap();
                file.write_at(0, name.as_bytes()).unwrap();
                vfs.unlink(&caller, &root, name.as_bytes()).unwrap();
                file
            })
            .collect();
        fs.close().unwrap();
        drop((held, root, vfs, fs));
        finished_alike_on_xfs(&image, args);
    }
}

/// The file lies in so many small groups that a transaction has no room for all of their bitmaps. Its map is no deeper
/// than e2fsck can cut: that of 1.47 spoils a tree of extents with more than one level of blocks, ours and the
/// kernel's.
#[test]
fn a_truncation_that_a_power_cut_ends_half_way_is_finished_by_every_reader() {
    for features in HOMES {
        let mke2fs =
            Mke2fs::new("ext4", 128).block_bytes(1024).inodes(4096).args(["-J", "size=1", "-g", "256"]);
        let image = mke2fs.features(&format!("{features},^resize_inode")).make().unwrap();
        let base: Device = Arc::new(FileDevice::open(image.path(), FileOptions::read_only()).unwrap());
        let recorder = Arc::new(Recorder::new(base));
        let device: Device = Arc::clone(&recorder) as Device;
        let fs = Ext4::open(device, OpenOptions::default(), WriteOptions::default()).unwrap();
        let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
        let (root, caller) = (vfs.root().unwrap(), Credentials::root());
        let new = NewObject { kind: NewKind::Regular, permissions: 0o644, umask: 0 };
        vfs.create(&caller, &root, b"large", &new).unwrap();
        let node = vfs.resolve(&caller, b"/large", Follow::NoFollow).unwrap();
        let file = vfs.open_node_for_writing(&node).unwrap();
        let mib = vec![b'l'; 1 << 20];
        for at in 0..LARGE_MIB {
            assert_eq!(file.write_at(at << 20, &mib).unwrap(), mib.len());
        }
        fs.sync().unwrap();
        let whole = fs.statfs().unwrap().blocks_free;
        let begin = recorder.recording().events().len();
        file.truncate(CUT_BYTES).unwrap();
        fs.sync().unwrap();
        let cut = fs.statfs().unwrap().blocks_free;
        assert!(cut >= whole + (LARGE_MIB << 10) - 1, "{features}: {whole} blocks were free, and {cut} are");

        let recording = recorder.recording();
        let mut half_way = 0;
        for (at, event) in recording.events().iter().enumerate().skip(begin) {
            if event.is_change() {
                continue;
            }
            let (device, _) = recording.crash(at + 1, at as u64).unwrap();
            let left = Image::of_device("ext4", &*device).unwrap();
            let (found, _) = open_ext4(left.path()).unwrap();
            let free = found.statfs().unwrap().blocks_free;
            if found.orphans().unwrap() == [node.ino()] && (whole + 1..cut).contains(&free) {
                drop(found);
                let (kernel, e2fsck, us) = finished(&left);
                assert_eq!(e2fsck, kernel, "{features}: free blocks and inodes");
                // A leaf of the map that an inode has room for is given back by us, and kept by Linux.
                assert_eq!(us.1, kernel.1, "{features}: free inodes");
                assert!(
                    (kernel.0..=kernel.0 + 1).contains(&us.0),
                    "{features}: {} blocks, {}",
                    us.0,
                    kernel.0
                );
                half_way += 1;
            }
        }
        eprintln!("{features}: half way after {half_way} flushes");
        assert!(half_way > 0, "{features}: the truncation was one step");
        drop((file, node, root, vfs));
        fs.close().unwrap();
    }
}

/// What is free when the kernel, e2fsck and we have finished what an image has left.
fn finished(image: &Image) -> ((u64, u64), (u64, u64), (u64, u64)) {
    let [for_kernel, for_e2fsck] = [image.copy().unwrap(), image.copy().unwrap()];
    (by_the_kernel(&for_kernel), by_e2fsck(&for_e2fsck), by_us(image))
}

#[test]
fn what_the_kernel_leaves_is_finished_by_us() {
    for features in HOMES {
        let copy = left_by_the_kernel(&image(features));
        assert_eq!(left(&copy), orphans(), "{features}");
        let kernel = by_the_kernel(&copy.copy().unwrap());
        assert_eq!(by_us(&copy), kernel, "{features}: free blocks and inodes");
    }
}
