//! The conformance suite that every filesystem shares, on images that the kernel filled with its standard tree.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use undercroft_block::{FileDevice, FileOptions};
use undercroft_ext4::{Ext4, OpenOptions};
use undercroft_oracle::{Mke2fs, MkfsXfs, MountMode};
use undercroft_vfs::conformance::{Object, Profile, check, populate, standard_tree};
use undercroft_vfs::{Vfs, VfsOptions};
use undercroft_xfs::Xfs;

fn conforms(mke2fs: &Mke2fs, profile: &Profile) {
    let tree = standard_tree(profile);
    let image = mke2fs.make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "noatime").unwrap();
    let top = mount.path().join("tree");
    std::fs::create_dir(&top).unwrap();
    populate(&top, &tree).unwrap();
    mount.unmount().unwrap();
    let device = FileDevice::open(image.path(), FileOptions::read_only()).unwrap();
    let fs = Ext4::open_read_only(Arc::new(device), OpenOptions::default()).unwrap();
    check(&Vfs::new(fs, VfsOptions::default()), b"/tree", &tree).assert_passed();
}

/// The same for an XFS.
fn xfs_conforms(args: &str, profile: &Profile) {
    let mut tree = standard_tree(profile);
    for entry in &mut tree.entries {
        // On XFS Linux takes nine bits of a device's major number and 18 of its minor.
        if let Object::CharDevice(number) | Object::BlockDevice(number) = &mut entry.object {
            number.major = number.major.min((1 << 9) - 1);
            number.minor = number.minor.min((1 << 18) - 1);
        }
    }
    let image = MkfsXfs::new(256, args).make().unwrap();
    let mount = image.mount(MountMode::ReadWrite, "noatime").unwrap();
    let top = mount.path().join("tree");
    std::fs::create_dir(&top).unwrap();
    populate(&top, &tree).unwrap();
    // To root Linux shows an access control list by its name on the disk, too.
    for entry in &mut tree.entries {
        let path = top.join(OsStr::from_bytes(&entry.path));
        for (name, _) in entry.xattrs.clone() {
            let on_disk = match &name[..] {
                b"system.posix_acl_access" => "trusted.SGI_ACL_FILE",
                b"system.posix_acl_default" => "trusted.SGI_ACL_DEFAULT",
                _ => continue,
            };
            let mut value = vec![0; 65_536];
            let len = rustix::fs::lgetxattr(&path, on_disk, &mut value[..]).unwrap();
            entry.xattr(on_disk, &value[..len]);
        }
    }
    mount.unmount().unwrap();
    let device = FileDevice::open(image.path(), FileOptions::read_only()).unwrap();
    let fs = Xfs::open_read_only(Arc::new(device), undercroft_xfs::OpenOptions::default()).unwrap();
    check(&Vfs::new(fs, VfsOptions::default()), b"/tree", &tree).assert_passed();
}

fn new(kind: &'static str, block_bytes: u32) -> Mke2fs {
    Mke2fs::new(kind, 256).inodes(16_384).block_bytes(block_bytes)
}

#[test]
fn ext2_passes() {
    let profile = Profile { block_bytes: 1024, wide_times: false, ..Profile::default() };
    conforms(&new("ext2", 1024).inode_bytes(128), &profile);
}

#[test]
fn ext3_passes() {
    conforms(&new("ext3", 4096), &Profile::default());
}

#[test]
fn ext4_passes() {
    conforms(&new("ext4", 4096), &Profile::default());
}

#[test]
fn ext4_with_inline_data_passes() {
    let profile = Profile { block_bytes: 1024, ..Profile::default() };
    conforms(&new("ext4", 1024).features("inline_data,ea_inode"), &profile);
}

#[test]
fn ext4_with_clusters_passes() {
    let profile = Profile { block_bytes: 16_384, ..Profile::default() };
    conforms(&new("ext4", 4096).features("bigalloc,large_dir").args(["-C", "16384"]), &profile);
}

#[test]
fn xfs_passes() {
    xfs_conforms("", &Profile::default());
}

#[test]
fn xfs_with_small_blocks_and_large_directories_passes() {
    let profile = Profile { block_bytes: 1024, ..Profile::default() };
    xfs_conforms("-b size=1024 -n size=8192 -m rmapbt=1 -i nrext64=1", &profile);
}

/// Without the feature `bigtime` times end in 2038, and go to the nanosecond all the same.
#[test]
fn xfs_without_newer_features_passes() {
    let profile = Profile { wide_times: false, ..Profile::default() };
    xfs_conforms("-m finobt=0,reflink=0,bigtime=0,inobtcount=0 -i sparse=0", &profile);
}
