//! What we show of an image against what the kernel shows.

use std::path::Path;
use std::sync::Arc;

use undercroft_block::{Device, FileDevice, FileOptions};
use undercroft_oracle::{
    Differences, Image, Manifest, MountMode, Result, Tool, kernel_manifest, open_xfs, our_manifest,
};
use undercroft_xfs::{CheckOptions, CheckReport, check};

/// The kernel's tree of an image.
fn kernel_tree(image: &Image) -> Manifest {
    let mount = image.mount(MountMode::ReadOnly, "noatime").unwrap();
    let tree = kernel_manifest(mount.path()).unwrap();
    mount.unmount().unwrap();
    without_id(tree)
}

/// The tree of an image as we show it.
pub(crate) fn our_tree(image: &Image) -> Manifest {
    let (_, vfs) = open_xfs(image.path()).unwrap();
    without_id(our_manifest(&vfs).unwrap())
}

/// The kernel makes the filesystem's id from the device's number, which says nothing of the image.
fn without_id(mut tree: Manifest) -> Manifest {
    if let Some(space) = &mut tree.space {
        space.fsid = 0;
    }
    tree
}

pub(crate) fn compare(image: &Image) {
    let expected = kernel_tree(image);
    assert!(expected.entries.len() > 1000, "the kernel shows only {} entries", expected.entries.len());
    Differences::between(&expected, &our_tree(image)).assert_none("ours against the kernel's");
    image.xfs_repair_check().unwrap();
    is_clean(image);
}

/// A UUID that differs from the one in the metadata.
pub(crate) fn another_uuid(image: &Image) -> Result<()> {
    Tool::new("xfs_admin")
        .args(["-U", "e1d4c1b3-7c7f-4d0e-8e9e-0f5b2d3c4a59"])
        .arg(image.path())
        .run()
        .map(drop)
}

/// Our check of an image.
pub(crate) fn our_check(path: &Path) -> undercroft_vfs::Result<CheckReport> {
    let device: Device = Arc::new(FileDevice::open(path, FileOptions::read_only()).unwrap());
    check(&device, &CheckOptions::default())
}

pub(crate) fn told(report: &CheckReport) -> String {
    report.findings.iter().take(30).map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Fails if our check finds anything.
pub(crate) fn is_clean(image: &Image) {
    let report = our_check(image.path()).unwrap();
    assert!(report.is_clean(), "{} findings:\n{}", report.findings.len(), told(&report));
    assert!(report.inodes > 1000 && report.directories > 10, "{report:?}");
}
