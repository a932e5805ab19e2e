//! The examples do what they say, by Linux's tools and kernel.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::Arc;

use undercroft_block::{Device, FileDevice, FileOptions};
use undercroft_md::{Array, ArrayOptions};
use undercroft_oracle::{Image, LoopMount, Mke2fs, MountMode, Scratch, Tool};

#[expect(dead_code, reason = "main is for cargo run")]
#[path = "../examples/build_image.rs"]
mod build_image;
#[expect(dead_code, reason = "main is for cargo run")]
#[path = "../examples/hash_tree.rs"]
mod hash_tree;
#[expect(dead_code, reason = "main is for cargo run")]
#[path = "../examples/patch_partition.rs"]
mod patch_partition;
#[expect(dead_code, reason = "main is for cargo run")]
#[path = "../examples/write_image.rs"]
mod write_image;

fn open(path: &Path) -> Device {
    Arc::new(FileDevice::open(path, FileOptions::read_only()).unwrap())
}

/// What e2fsck has nothing to say about, mounted by Linux.
fn mount(device: &Device) -> (Image, LoopMount) {
    let image = Image::of_device("ext4", &**device).unwrap();
    image.check().unwrap();
    let mount = image.mount(MountMode::ReadOnly, "").unwrap();
    (image, mount)
}

#[test]
fn write_image_makes_what_linux_mounts() {
    let dir = Scratch::new("examples").unwrap();
    let path = dir.path().join("disk.img");
    write_image::run(std::slice::from_ref(&path)).unwrap();
    let (_image, mount) = mount(&open(&path));
    assert_eq!(fs::read(mount.path().join("var/log/first")).unwrap(), b"one line\n");
    assert_eq!(fs::read(mount.path().join("var/log/second")).unwrap(), b"line 1\nline 2\nline 3\n");
    write_image::run(std::slice::from_ref(&path)).expect_err("a file that is there was overwritten");
}

#[test]
fn write_image_makes_an_array_that_mdadm_knows() {
    let dir = Scratch::new("examples").unwrap();
    let paths = ["a", "b", "c"].map(|name| dir.path().join(name));
    write_image::run(&paths).unwrap();
    for path in &paths {
        let told = Tool::new("mdadm").arg("--examine").arg(path).run_text().unwrap();
        assert!(told.contains("Raid Level : raid5") && told.contains("State : clean"), "{told}");
    }
    // One member is enough to miss.
    let members = paths[1..].iter().map(|path| open(path)).collect();
    let options = ArrayOptions { read_only: true, start_degraded: true, ..ArrayOptions::default() };
    let array: Device = Arc::new(Array::open(members, options).unwrap());
    let (_image, mount) = mount(&array);
    assert_eq!(fs::read(mount.path().join("var/log/second")).unwrap(), b"line 1\nline 2\nline 3\n");
}

#[test]
fn build_image_and_hash_tree_agree_with_linux() {
    let dir = Scratch::new("examples").unwrap();
    let (from, path) = (dir.path().join("from"), dir.path().join("disk.img"));
    fs::create_dir_all(from.join("etc/deep")).unwrap();
    for (name, content) in [("etc/hosts", vec![7; 100_000]), ("etc/deep/empty", Vec::new()), ("x", vec![1])] {
        fs::write(from.join(name), content).unwrap();
    }
    fs::set_permissions(from.join("x"), fs::Permissions::from_mode(0o4711)).unwrap();
    chown(from.join("etc/deep"), Some(12), Some(70_000)).unwrap();
    symlink("../etc/hosts", from.join("link")).unwrap();
    build_image::run(&from, &path).unwrap();

    let (_image, mount) = mount(&open(&path));
    for name in ["etc", "etc/hosts", "etc/deep", "etc/deep/empty", "x", "link"] {
        let told = |dir: &Path| {
            let data = dir.join(name).symlink_metadata().unwrap();
            (data.mode(), data.uid(), data.gid(), data.mtime(), data.mtime_nsec())
        };
        assert_eq!(told(mount.path()), told(&from), "{name}");
    }
    assert_eq!(fs::read_link(mount.path().join("link")).unwrap(), Path::new("../etc/hosts"));

    let mut hashes = Vec::new();
    hash_tree::run(&path, &mut hashes).unwrap();
    let expected = Tool::new("sha256sum")
        .args(["etc/deep/empty", "etc/hosts", "x"])
        .current_dir(mount.path())
        .run_text()
        .unwrap();
    assert_eq!(String::from_utf8(hashes).unwrap(), expected);
}

#[test]
fn patch_partition_changes_one_file_of_one_partition() {
    const START: u64 = 1 << 20;
    let dir = Scratch::new("examples").unwrap();
    let (raw, disk) = (dir.path().join("raw"), dir.path().join("disk.qcow2"));
    let filesystem = Mke2fs::new("ext4", 32).make().unwrap();
    fs::write(dir.path().join("hostname"), "my-old-name.example\n").unwrap();
    let write = format!("write {} hostname", dir.path().join("hostname").display());
    filesystem.debugfs_write(&[&write]).unwrap();
    File::create(&raw).unwrap().set_len(64 << 20).unwrap();
    Tool::new("sfdisk")
        .arg("--quiet")
        .arg(&raw)
        .input(b"label: gpt\nstart=2048, size=65536\n")
        .run()
        .unwrap();
    let copy = [format!("if={}", filesystem.path().display()), format!("of={}", raw.display())];
    let place = ["bs=1M", "seek=1", "conv=notrunc", "status=none"];
    Tool::new("dd").args(&copy).args(place).run().unwrap();
    Tool::new("qemu-img").args(["convert", "-O", "qcow2"]).arg(&raw).arg(&disk).run().unwrap();

    patch_partition::run(&disk, 1, "/hostname", "old-name", "new").unwrap();
    patch_partition::run(&disk, 2, "/hostname", "old", "new").expect_err("there is one partition");

    Tool::new("qemu-img").args(["convert", "-O", "raw"]).arg(&disk).arg(&raw).run().unwrap();
    let part = undercroft_block::PartitionDevice::new(open(&raw), START, 32 << 20).unwrap();
    let part: Device = Arc::new(part);
    let (_image, mount) = mount(&part);
    assert_eq!(fs::read(mount.path().join("hostname")).unwrap(), b"my-new.example\n");
}
