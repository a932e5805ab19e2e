//! Everything that can be asked of an image, good or not.

use std::sync::Arc;

use undercroft_block::Device;
use undercroft_ext4::{Ext4, OpenOptions};
use undercroft_vfs::{
    Access as Want, Credentials, FileSystem, FileType, Vfs, VfsOptions, WalkEvent, WalkFlow, WalkOptions,
};

/// Opens whatever it is, and asks it everything.
pub(crate) fn walk(device: Device) {
    let Ok(fs) =
        Ext4::open_read_only(device, OpenOptions { buffer_bytes: 4 << 20, ..OpenOptions::default() })
    else {
        return;
    };
    let _ = fs.orphans();
    let _: usize = fs.group_usage().count();
    walk_all(fs);
}

/// Asks an opened filesystem everything.
pub(crate) fn walk_all(fs: Arc<dyn FileSystem>) {
    let vfs = Vfs::new(fs, VfsOptions::default());
    let _ = vfs.filesystem().statfs();
    let Ok(root) = vfs.root() else { return };
    let stranger = Credentials { uid: 1000, gid: 1000, groups: vec![1001], override_dac: false };
    let mut buf = [0; 4096];
    let mut left = 2_000;
    vfs.walk_sorted(&root, WalkOptions::default(), &mut |event| {
        left -= 1;
        if left == 0 {
            return WalkFlow::Stop;
        }
        if let WalkEvent::Entry(entry) = event
            && let Ok(node) = entry.node()
        {
            for name in node.list_xattrs().unwrap_or_default() {
                let _ = node.xattr(&name);
            }
            let _ = undercroft_vfs::check_access(&stranger, &node, Want::READ | Want::WRITE);
            match node.kind() {
                FileType::Symlink => drop(node.read_link()),
                FileType::Directory => drop(vfs.lookup(&node, b"a name that is not there")),
                FileType::Regular => {
                    if let Ok(file) = vfs.open_node(&node) {
                        let _ = file.read_at(0, &mut buf);
                        let _ = file.read_at(node.attr().size_bytes.saturating_sub(4096), &mut buf);
                        let _ = file.seek_data(0);
                    }
                }
                _ => {}
            }
        }
        WalkFlow::Continue
    });
}
