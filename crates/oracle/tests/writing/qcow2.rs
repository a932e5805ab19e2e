//! An ext4 and an XFS in a qcow2 image, and power is lost after each request that the image makes of its disk: `qemu-img check`
//! finds nothing worse than clusters that nothing uses, and what was synced is there after the recovery.
//!
//! The image is small and so are its clusters, so that each run makes tables of every kind.
//! `UNDERCROFT_SEED` replays a seed.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use undercroft_block::testing::Recorder;
use undercroft_block::{Access, Device, MemoryDevice, Qcow2Device};
use undercroft_oracle::{How, Make, Mke2fs, MkfsXfs, Scratch, Tool, save_device};
use undercroft_vfs::{Credentials, Durable, FileSystem, Follow, NewKind, NewObject, Vfs, VfsOptions};

use crate::number;

/// What the disk has beyond the image, for what grows.
const SPARE_BYTES: usize = 12 << 20;
const FILES: u8 = 6;
/// As for crashes: a superblock is written in place.
const WHOLE_BYTES: u32 = 1024;

fn mount(image: Device, how: How) -> (Arc<dyn FileSystem>, Arc<Vfs>) {
    let fs = how.without_clock().open(image).unwrap();
    let vfs = Vfs::new(Arc::clone(&fs), VfsOptions::default());
    (fs, vfs)
}

fn content(file: u8) -> Vec<u8> {
    vec![file + 1; 3000 + usize::from(file) * 1700]
}

/// Makes files, each of them synced. Answers with the number of requests after each.
fn work(vfs: &Arc<Vfs>, requests: impl Fn() -> usize) -> Vec<usize> {
    let caller = Credentials::root();
    let root = vfs.root().unwrap();
    (0..FILES)
        .map(|file| {
            let new = NewObject { kind: NewKind::Regular, permissions: 0o644, umask: 0 };
            let node = vfs.create(&caller, &root, format!("file-{file}").as_bytes(), &new).unwrap();
            let open = vfs.open_node_for_writing(&node).unwrap();
            assert_eq!(open.write_at(0, &content(file)).unwrap(), content(file).len());
            open.sync(Durable::Everything).unwrap();
            if file == FILES / 2 {
                vfs.unlink(&caller, &root, b"file-0").unwrap();
            }
            requests()
        })
        .collect()
}

fn read(vfs: &Arc<Vfs>, file: u8) -> Option<Vec<u8>> {
    let path = format!("/file-{file}");
    let node = vfs.resolve(&Credentials::root(), path.as_bytes(), Follow::NoFollow).ok()?;
    let mut found = vec![0; node.attr().size_bytes as usize];
    let len = vfs.open_node(&node).unwrap().read_at(0, &mut found).unwrap();
    found.truncate(len);
    Some(found)
}

/// Corruption; clusters that nothing uses are none.
fn damage(image: &Path) -> Option<String> {
    let output = Command::new("qemu-img").args(["check", "-f", "qcow2"]).arg(image).output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    (!matches!(output.status.code(), Some(0 | 3))).then(|| String::from_utf8_lossy(&told).into_owned())
}

/// Power is lost after every request, or after every so many of them.
fn survives_a_power_cut(make: &Make, step: usize) {
    let how = How::usual(make);
    let scratch = Scratch::new("qcow2").unwrap();
    let plain = make.make().unwrap();
    let made = scratch.path().join("image.qcow2");
    let convert = ["convert", "-O", "qcow2", "-o", "cluster_size=1k"];
    Tool::new("qemu-img").args(convert).arg(plain.path()).arg(&made).run().unwrap();
    let mut bytes = std::fs::read(&made).unwrap();
    bytes.resize(bytes.len() + SPARE_BYTES, 0);
    let disk: Device = Arc::new(MemoryDevice::from_bytes(bytes, Access::ReadWrite));
    let recorder = Arc::new(Recorder::new(disk));
    let image = Arc::new(Qcow2Device::on_device(Arc::clone(&recorder) as Device).unwrap());
    let (fs, vfs) = mount(image, how);
    let synced = work(&vfs, || recorder.recording().events().len());
    drop(vfs);
    fs.close().unwrap();
    let recording = recorder.recording();
    let requests = recording.events().len();
    let seed = number("UNDERCROFT_SEED").unwrap_or(1);
    let cut_image = scratch.path().join("cut.qcow2");
    for cut in (seed as usize % step..=requests).step_by(step) {
        let (disk, crash) = recording.crash_in_sectors(cut, seed << 20 | cut as u64, WHOLE_BYTES).unwrap();
        let what = format!("UNDERCROFT_SEED={seed}, after {cut} of {requests} requests, {crash}");
        save_device(&*disk, &cut_image).unwrap();
        if let Some(damage) = damage(&cut_image) {
            panic!("{what}: {damage}");
        }
        let image: Device = Arc::new(Qcow2Device::on_device(Arc::clone(&disk)).unwrap());
        let (fs, vfs) = mount(image, how);
        for (file, &at) in (0..FILES).zip(&synced) {
            if at <= cut {
                let found = read(&vfs, file);
                let is_gone = file == 0 && found.is_none();
                assert!(is_gone || found.as_ref() == Some(&content(file)), "{what}: file {file} was synced");
            }
        }
        drop(vfs);
        fs.close().unwrap();
        save_device(&*disk, &cut_image).unwrap();
        assert_eq!(damage(&cut_image), None, "{what}, and after the recovery");
    }
    eprintln!("{requests} requests, recovered from after each {step}");
}

#[test]
fn a_qcow2_image_survives_a_power_cut_after_any_request() {
    let mke2fs = Mke2fs::new("ext4", 4).block_bytes(1024).inodes(128).args(["-J", "size=1"]);
    survives_a_power_cut(&Make::Ext4(mke2fs), 1);
}

#[test]
fn a_qcow2_image_of_xfs_survives_a_power_cut_after_any_request() {
    survives_a_power_cut(&Make::Xfs(MkfsXfs::new(16, "-d agcount=1 -m reflink=0")), 7);
}
