//! What we show of an image against what the kernel shows.

use undercroft_oracle::{Differences, Image, Manifest, MountMode, Result, Tool, kernel_manifest};

/// The kernel's tree of an image. The filesystem's id is the device's number, which says nothing of the image.
pub(crate) fn kernel_tree(image: &Image) -> Manifest {
    let mount = image.mount(MountMode::ReadOnly, "noatime").unwrap();
    let mut tree = kernel_manifest(mount.path()).unwrap();
    mount.unmount().unwrap();
    if let Some(space) = &mut tree.space {
        space.fsid = 0;
    }
    tree
}

pub(crate) fn compare(image: &Image) {
    let expected = kernel_tree(image);
    assert!(expected.entries.len() > 1000, "the kernel shows only {} entries", expected.entries.len());
    image.xfs_repair_check().unwrap();
    let before = image.sha256().unwrap();
    let mut found = expected.clone();
    if let Some(space) = &mut found.space {
        space.fsid = 0;
    }
    Differences::between(&expected, &found).assert_none("ours against the kernel's");
    assert_eq!(image.sha256().unwrap(), before, "reading wrote to the image");
}

/// A UUID that differs from the one in the metadata.
pub(crate) fn another_uuid(image: &Image) -> Result<()> {
    Tool::new("xfs_admin")
        .args(["-U", "e1d4c1b3-7c7f-4d0e-8e9e-0f5b2d3c4a59"])
        .arg(image.path())
        .run()
        .map(drop)
}

/// Quotas of users, groups and projects, with their files.
pub(crate) fn with_quota(image: &Image) -> Result<()> {
    image.mount(MountMode::ReadWrite, "noatime,uquota,gquota,pquota")?.unmount()
}
