//! What large structures show of themselves with `{:?}`: a line, without a lock, so that it can be had anywhere.
//!
//! The only test of its program: it counts the acquisitions of all locks. What has threads of its own is opened for
//! reading, which starts none.

use std::fmt::Debug;
use std::sync::Arc;

use undercroft_block::{
    Device, FileDevice, FileOptions, ImageOptions, LatchedDevice, MemoryDevice, Overlay, PartitionDevice,
    open_image,
};
use undercroft_ext4::{Ext4, OpenOptions};
use undercroft_md::{Array, ArrayOptions, CreateOptions, Level};
use undercroft_oracle::{Mke2fs, Tool};
use undercroft_sync::stats;
use undercroft_vfs::{Credentials, Vfs, VfsOptions};

/// Three lines of a terminal.
const LINE_MAX: usize = 240;

fn shown(what: &dyn Debug, expected: &str) {
    stats::reset();
    stats::enable();
    let line = format!("{what:?}");
    stats::disable();
    let report = stats::report();
    assert!(report.rows.iter().all(|row| row.acquisitions == 0), "{line}\n{report}");
    assert!(line.len() <= LINE_MAX && line.contains(expected), "{} bytes: {line}", line.len());
}

#[test]
fn large_structures_show_a_line_and_take_no_lock() {
    let image = Mke2fs::new("ext4", 16).make().unwrap();
    let qcow2 = image.path().with_extension("qcow2");
    Tool::new("qemu-img").args(["convert", "-O", "qcow2"]).arg(image.path()).arg(&qcow2).run().unwrap();

    let file = Arc::new(FileDevice::open(image.path(), FileOptions::read_only()).unwrap());
    shown(&file, "size_bytes: 16777216");
    shown(&open_image(&qcow2, ImageOptions::read_only()).unwrap(), "Qcow2Device");
    shown(&PartitionDevice::new(file.clone(), 512, 1024).unwrap(), "start_bytes: 512");
    shown(&LatchedDevice::new(file.clone()), "FileDevice");
    shown(&Overlay::new(file.clone()), "FileDevice");

    let ext4 = Ext4::open_read_only(file, OpenOptions::default()).unwrap();
    shown(&ext4, "family: \"ext4\"");
    let vfs = Vfs::new(ext4, VfsOptions::default());
    shown(&vfs, "kind: \"ext4\"");
    shown(&vfs.root().unwrap(), "ino: 2");
    shown(&vfs.read_dir(&Credentials::root(), "/").unwrap(), "ReadDir");

    let disks: Vec<Device> = (0..3).map(|_| Arc::new(MemoryDevice::new(16 << 20)) as Device).collect();
    shown(&disks[0], "access: ReadWrite");
    let new = CreateOptions::new(Level::Raid5);
    Array::create(disks.clone(), &new, ArrayOptions::default()).unwrap().close().unwrap();
    let options = ArrayOptions { read_only: true, ..ArrayOptions::default() };
    shown(&Array::open(disks, options).unwrap(), "level: Raid5");
}
