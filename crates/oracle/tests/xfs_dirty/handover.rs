//! We and Linux take a log over from each other without an unmount between: what either made durable stays.
//!
//! A recovery that has nothing to write back leaves its log's last record as the tail of the first one that follows, so
//! records of both lie in one log.

use std::fs::{self, File};
use std::io::Write;
use std::sync::Arc;

use undercroft_block::{Device, FileDevice, FileOptions};
use undercroft_oracle::{How, Image, MkfsXfs, MountMode, open_xfs, save_device};
use undercroft_vfs::{Credentials, FileSystem, Follow, NewKind, NewObject, Vfs, VfsOptions};
use undercroft_xfs::{OpenOptions, WriteOptions, Xfs};

/// Logs for which the usual records are large and small, and those with a stripe unit.
const SHAPES: [(u64, &str); 4] =
    [(300, "-l size=64m"), (300, "-l size=12m"), (300, "-l size=64m,su=64k"), (300, "-l size=48m,su=256k")];

/// Makes a file, has it durable, and leaves the image as a crash would.
fn left_by_us(image: &Image, name: &[u8]) {
    let device: Device = Arc::new(FileDevice::open(image.path(), FileOptions::read_write()).unwrap());
    let fs = Xfs::open(Arc::clone(&device), OpenOptions::default(), WriteOptions::default()).unwrap();
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>, VfsOptions::default());
    let (root, caller) = (vfs.root().unwrap(), Credentials::root());
    let new = NewObject { kind: NewKind::Regular, permissions: 0o644, umask: 0 };
    let node = vfs.create(&caller, &root, name, &new).unwrap();
    vfs.open_node_for_writing(&node).unwrap().write_all_at(0, name).unwrap();
    fs.sync().unwrap();
    let crashed = image.path().with_extension("crashed");
    save_device(&*device, &crashed).unwrap();
    drop((node, root, vfs));
    fs.close().unwrap();
    drop((fs, device));
    fs::rename(&crashed, image.path()).unwrap();
}

/// The same by Linux, which has written one record since its recovery.
fn left_by_linux(image: &Image, name: &str) -> Image {
    let mount = image.mount(MountMode::ReadWrite, How::of(image).mounted()).unwrap();
    let mut file = File::create(mount.path().join(name)).unwrap();
    file.write_all(name.as_bytes()).unwrap();
    file.sync_all().unwrap();
    let copy = image.copy_between_writes(&mount).unwrap();
    drop(file);
    mount.unmount().unwrap();
    copy
}

fn check(image: &Image, names: &[&str], what: &str) {
    let (_fs, vfs) = open_xfs(image.path()).unwrap();
    for name in names {
        let path = format!("/{name}");
        let node = vfs.resolve(&Credentials::root(), path.as_bytes(), Follow::NoFollow);
        let node = node.unwrap_or_else(|error| panic!("{what}: {name}: {error}"));
        assert_eq!(node.attr().size_bytes, name.len() as u64, "{what}: {name}");
    }
    let copy = image.copy().unwrap();
    let mount = copy.mount(MountMode::ReadWrite, How::of(&copy).mounted()).unwrap();
    for name in names {
        let found = fs::read(mount.path().join(name));
        assert_eq!(found.map_err(|error| format!("{what}: {name}: {error}")), Ok(name.as_bytes().to_vec()));
    }
    mount.unmount().unwrap();
    copy.xfs_repair_check().unwrap();
}

#[test]
fn what_each_made_durable_stays() {
    for (mib, args) in SHAPES {
        let image = MkfsXfs::new(mib, args).make().unwrap();
        left_by_us(&image, b"first by us");
        let image = left_by_linux(&image, "then by Linux");
        check(&image, &["first by us", "then by Linux"], args);
        left_by_us(&image, b"by us again");
        let image = left_by_linux(&image, "and by Linux");
        check(&image, &["first by us", "then by Linux", "by us again", "and by Linux"], args);
    }
}
