//! qcow2 images, made by QEMU's own tool, keep the contract of block devices.

use std::io::Write;
use std::process::Command;

use undercroft_block::{Access, Device, FileOptions, ImageOptions, block_conformance, open_image};

fn options(access: Access) -> FileOptions {
    FileOptions { access, ..FileOptions::read_only() }
}

/// A qcow2 image with this content, made by QEMU's own tool.
fn qcow2_made_with(content: &[u8], access: Access, arguments: &[&str]) -> Device {
    let mut raw = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    raw.write_all(content).unwrap();
    let image = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Command::new("qemu-img")
        .args(["convert", "-q", "-f", "raw", "-O", "qcow2"])
        .args(arguments)
        .args([raw.path(), image.path()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    open_image(image.path(), ImageOptions { file: options(access), ..ImageOptions::read_only() }).unwrap()
}

fn qcow2(content: &[u8], access: Access) -> Option<Device> {
    Some(qcow2_made_with(content, access, &[]))
}

fn qcow2_compressed(content: &[u8], access: Access) -> Option<Device> {
    Some(qcow2_made_with(content, access, &["-c", "-o", "cluster_size=4096"]))
}

block_conformance!(qcow2_device, qcow2);
block_conformance!(qcow2_device_compressed, qcow2_compressed);
