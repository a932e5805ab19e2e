//! Files and directories so small that their inode holds them.
//!
//! Source: kernel documentation, section "Inline Data". The first 60 bytes lie in `i_block`, what is more in the
//! value of the attribute `system.data`, which must lie in the inode too.

use std::sync::Arc;

use undercroft_vfs::Result;

use crate::inode::{Inode, Location};
use crate::transaction::Handle;
use crate::volume::Volume;
use crate::xattr;

/// What the inode holds of a file's data, cut to the file's size. What the size promises beyond it reads as
/// zeroes.
///
/// # Errors
/// Corruption of the attributes; I/O failure.
pub(crate) fn read(volume: &Volume, inode: &Inode) -> Result<Arc<[u8]>> {
    let size = usize::try_from(inode.size_bytes).unwrap_or(usize::MAX);
    let in_inode = &inode.i_block[..inode.i_block.len().min(size)];
    if size <= inode.i_block.len() {
        return Ok(in_inode.into());
    }
    let in_attribute = read_attribute(volume, inode)?.unwrap_or_default();
    let kept = in_attribute.len().min(size - in_inode.len());
    Ok([in_inode, &in_attribute[..kept]].concat().into())
}

/// The part of inline data that does not fit `i_block`.
pub(crate) fn read_attribute(volume: &Volume, inode: &Inode) -> Result<Option<Vec<u8>>> {
    xattr::ibody_value(volume, inode, xattr::INDEX_SYSTEM, b"data")
}

/// Removes the part that does not lie in `i_block`, which the caller has stored elsewhere, and stores the inode.
///
/// # Errors
/// Corruption of the attributes; I/O failure. Nothing has changed then.
pub(crate) fn clear(handle: &Handle<'_>, inode: &Inode, location: Location) -> Result<()> {
    xattr::remove_inline_data(handle, inode, location)
}

#[cfg(all(test, feature = "oracle"))]
mod tests {
    use undercroft_block::{Access, Device, MemoryDevice};
    use undercroft_oracle::{Image, Mke2fs, MountMode};

    use super::*;
    use crate::dir;
    use crate::inode::ROOT_INODE;
    use crate::superblock::Superblock;

    const CONTENT: &[u8] = &[b'c'; 100];

    fn read_file(image: &Image) -> Result<Arc<[u8]>> {
        let bytes = std::fs::read(image.path()).unwrap();
        let device: Device = Arc::new(MemoryDevice::from_bytes(bytes, Access::ReadOnly));
        let superblock = Superblock::read(&*device).unwrap();
        let volume = Volume::new(device, superblock, 1 << 20);
        let root = Inode::read(&volume, ROOT_INODE).unwrap();
        let number = dir::lookup(&volume, &root, b"f").unwrap().unwrap();
        let inode = Inode::read(&volume, number).unwrap();
        assert!(inode.has_inline_data());
        read(&volume, &inode)
    }

    #[test]
    fn the_size_cuts_and_never_allocates() {
        let image = Mke2fs::new("ext4", 4).inode_bytes(256).features("inline_data").make().unwrap();
        let mount = image.mount(MountMode::ReadWrite, "").unwrap();
        std::fs::write(mount.path().join("f"), CONTENT).unwrap();
        mount.unmount().unwrap();
        assert_eq!(*read_file(&image).unwrap(), *CONTENT);
        for (size, there) in [(0, 0), (40, 40), (60, 60), (61, 61), (99, 99), (i64::MAX, 100)] {
            image.debugfs_write(&[&format!("set_inode_field /f size {size}")]).unwrap();
            assert_eq!(*read_file(&image).unwrap(), CONTENT[..there], "size {size}");
        }
    }
}
