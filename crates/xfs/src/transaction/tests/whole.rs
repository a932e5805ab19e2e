//! A whole filesystem, opened for writing, changed through the vfs, and closed or left by a crash.

use std::fs;

use undercroft_oracle::MountMode;
use undercroft_vfs::{Credentials, FileSystem, Vfs, VfsOptions};

use super::*;
use crate::fs::Xfs;

fn open(device: Device) -> (Arc<Xfs>, Arc<Vfs>) {
    let options = WriteOptions { commit_seconds: 3600, ..WriteOptions::default() };
    let fs = Xfs::open(device, OpenOptions::default(), options).unwrap();
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
    (fs, vfs)
}

/// Makes files and directories, and deletes some.
fn work(vfs: &Vfs, name: &str) {
    let root = Credentials::root();
    let dir = format!("/{name}");
    vfs.create_dir(&root, dir.as_bytes()).unwrap();
    for n in 0..300 {
        let path = format!("{dir}/file-with-a-name-{n}");
        vfs.write(&root, path.as_bytes(), vec![n as u8; n * 100]).unwrap();
    }
    for n in (0..300).step_by(3) {
        vfs.remove_file(&root, format!("{dir}/file-with-a-name-{n}").as_bytes()).unwrap();
    }
}

/// Compares what the kernel shows.
fn check(image: &Image, name: &str) {
    let mount = image.mount(MountMode::ReadWrite, "").unwrap();
    let dir = mount.path().join(name);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 200);
    for n in (0..300).filter(|n| n % 3 > 0) {
        let content = fs::read(dir.join(format!("file-with-a-name-{n}"))).unwrap();
        assert!(content == vec![n as u8; n * 100], "{name}, file {n}");
    }
    mount.unmount().unwrap();
    image.xfs_repair_check().unwrap();
}

#[test]
fn what_is_written_is_there_after_a_close_and_after_a_crash() {
    for args in ["", "-s size=4096", "-m rmapbt=1,reflink=1", "-m finobt=0,reflink=0,inobtcount=0"] {
        let image = image(64, args);
        let device = in_memory(&image);
        let (fs, vfs) = open(Arc::clone(&device));
        work(&vfs, "closed");
        let counted = fs.statfs().unwrap();
        drop(vfs);
        fs.close().unwrap();
        fs::write(image.path(), bytes_of(&device)).unwrap();
        image.xfs_repair_check().unwrap_or_else(|error| panic!("{args}: {error}"));
        check(&image, "closed");

        let device = in_memory(&image);
        let (fs, vfs) = open(Arc::clone(&device));
        assert_eq!(fs.statfs().unwrap().blocks_free, counted.blocks_free, "{args}");
        work(&vfs, "synced");
        fs.sync().unwrap();
        let crashed = bytes_of(&device);
        fs::write(image.path(), &crashed).unwrap();
        check(&image, "synced");
        drop(vfs);
        drop(fs);

        let device: Device = Arc::new(MemoryDevice::from_bytes(crashed, Access::ReadWrite));
        let (fs, vfs) = open(Arc::clone(&device));
        assert!(fs.recovery().unwrap().transactions > 0);
        work(&vfs, "recovered");
        drop(vfs);
        fs.close().unwrap();
        fs::write(image.path(), bytes_of(&device)).unwrap();
        image.xfs_repair_check().unwrap_or_else(|error| panic!("{args}: {error}"));
        for name in ["closed", "synced", "recovered"] {
            check(&image, name);
        }
    }
}

#[test]
fn what_cannot_be_written_is_named() {
    for (args, word) in [
        ("-m crc=0", "version 4"),
        ("-n version=ci", "ascii-ci"),
        ("-n size=8192", "directory blocks of 8192 bytes"),
        ("-b size=1024", "directory blocks of 4096 bytes"),
    ] {
        let image = image(64, args);
        let before = image.sha256().unwrap();
        let device =
            undercroft_block::FileDevice::open(image.path(), undercroft_block::FileOptions::read_write())
                .unwrap();
        let refused = Xfs::open(Arc::new(device), OpenOptions::default(), WriteOptions::default());
        let error = refused.err().unwrap().to_string();
        assert!(error.contains(word), "{error}");
        assert_eq!(image.sha256().unwrap(), before);
    }
}
