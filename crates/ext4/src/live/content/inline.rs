//! Moving a file's bytes out of its inode.
//!
//! A small file that lies in its inode gets a block when it is written to, and its size is set. The block has the bytes
//! before the handle is started that puts it into the map.

use undercroft_vfs::Result;

use super::write::{INODE_CREDITS, retry_when_full};
use super::{Live, block_bits, store_keeping_times};
use crate::features::Incompat;
use crate::inline;
use crate::inode::InodeFlags;
use crate::map;
use crate::numbers::FileBlock;

/// Puts the first `keep` bytes into a block. The size stays. The caller holds the inode's state exclusively, or shared
/// with threads that all call this.
///
/// # Errors
/// [`NoSpace`](undercroft_vfs::Error::NoSpace); corruption of the attributes; I/O failure. Nothing has changed then.
pub(super) fn to_blocks(live: &Live, keep: u64) -> Result<()> {
    let volume = &live.volume;
    let allocator = &volume.writer()?.allocator;
    let (bytes, goal) = {
        let inode = live.fields.read();
        if !inode.has_inline_data() {
            return Ok(());
        }
        (inline::read(volume, &inode)?, allocator.goal_for(volume, inode.number, inode.kind))
    };
    let kept = &bytes[..bytes.len().min(usize::try_from(keep).unwrap_or(usize::MAX))];
    let mut reserved = None;
    if !kept.is_empty() {
        let blocks = retry_when_full(live, || allocator.reserve(volume, goal, 1, 1))?;
        let mut block = vec![0; volume.block_bytes() as usize];
        block[..kept.len()].copy_from_slice(kept);
        volume.device().write_at(blocks.first().0 << block_bits(live), &block)?;
        reserved = Some(blocks);
    }
    let credits = map::credits(&live.fields.read()) + INODE_CREDITS;
    let handle = volume.start(credits)?;
    let mut fields = live.fields.write();
    if !fields.has_inline_data() {
        return Ok(());
    }
    let extents = volume.superblock().features().incompat.contains(Incompat::EXTENTS);
    let mut moved = fields.clone();
    moved.flags.remove(InodeFlags::INLINE_DATA);
    moved.flags.set(InodeFlags::EXTENTS, extents);
    moved.i_block = map::empty(extents);
    let mut home = None;
    if let Some(mut blocks) = reserved {
        let first = allocator.take(&handle, &mut blocks, 1)?;
        map::insert(&handle, &mut moved, FileBlock(0), first, 1, true)?;
        home = Some(first);
    }
    // The inode is changed last: damage in the attributes is found here, and then the file stays as it was.
    if let Err(error) = inline::clear(&handle, &moved, live.location) {
        if let Some(home) = home {
            allocator.free(&handle, home, 1)?;
        }
        return Err(error);
    }
    *fields = moved;
    store_keeping_times(live, &handle, &mut fields, None)
}

#[cfg(all(test, feature = "oracle"))]
mod tests {
    use std::sync::Arc;

    use undercroft_block::{Access, BlockDevice, MemoryDevice};
    use undercroft_oracle::{Mke2fs, MountMode};
    use undercroft_vfs::{Error, Vfs, VfsOptions};

    use crate::inode::{self, Inode};
    use crate::superblock::Superblock;
    use crate::volume::Volume;
    use crate::{Ext4, OpenOptions, WriteOptions, dir};

    const CONTENT: &[u8] = b"lies in the inode";

    /// The attributes of a short file are looked at only when its bytes leave the inode.
    #[test]
    fn a_file_with_damaged_attributes_stays_as_it_is() {
        let mke2fs = Mke2fs::new("ext4", 8).inode_bytes(256).features("inline_data,^metadata_csum");
        let image = mke2fs.make().unwrap();
        let mount = image.mount(MountMode::ReadWrite, "").unwrap();
        let file = mount.path().join("file");
        std::fs::write(&file, CONTENT).unwrap();
        rustix::fs::setxattr(&file, "user.note", b"value", rustix::fs::XattrFlags::empty()).unwrap();
        mount.unmount().unwrap();
        let bytes = std::fs::read(image.path()).unwrap();
        let device = Arc::new(MemoryDevice::from_bytes(bytes, Access::ReadWrite));
        let slot = {
            let volume = Volume::new(device.clone(), Superblock::read(&*device).unwrap(), 1 << 20);
            let root = Inode::read(&volume, inode::ROOT_INODE).unwrap();
            let number = dir::lookup(&volume, &root, b"file").unwrap().unwrap();
            let location = inode::locate(&volume, number).unwrap();
            location.block.0 * u64::from(volume.block_bytes()) + location.byte as u64
        };
        // Behind the inode's own 160 bytes and the magic number: how long the first value is.
        device.write_at(slot + 160 + 4 + 8, &[0xff; 4]).unwrap();
        let fs = Ext4::open(device, OpenOptions::default(), WriteOptions::default()).unwrap();
        let vfs = Vfs::new(fs.clone(), VfsOptions::default());
        let node = vfs.lookup(&vfs.root().unwrap(), b"file").unwrap();
        let free = vfs.filesystem().statfs().unwrap().blocks_free;
        let file = vfs.open_node_for_writing(&node).unwrap();
        let refusal =
            file.write_at(0, b"other bytes, more than the inode holds ............................");
        assert!(matches!(refusal, Err(Error::Corrupt(_))), "{refusal:?}");
        let mut read = [0; CONTENT.len()];
        assert_eq!(file.read_at(0, &mut read).unwrap(), CONTENT.len());
        assert_eq!(read, CONTENT);
        assert_eq!(vfs.filesystem().statfs().unwrap().blocks_free, free);
        drop((file, node, vfs));
        fs.close().unwrap();
    }

    /// A search for data must not take all that a damaged size promises for data.
    #[test]
    fn behind_what_an_inode_holds_there_is_a_hole() {
        let image = Mke2fs::new("ext4", 8).inode_bytes(256).features("inline_data").make().unwrap();
        let mount = image.mount(MountMode::ReadWrite, "").unwrap();
        std::fs::write(mount.path().join("file"), CONTENT).unwrap();
        mount.unmount().unwrap();
        image.debugfs_write(&["set_inode_field /file size 9223372036854775807"]).unwrap();
        let bytes = std::fs::read(image.path()).unwrap();
        let device = Arc::new(MemoryDevice::from_bytes(bytes, Access::ReadOnly));
        let vfs =
            Vfs::new(Ext4::open_read_only(device, OpenOptions::default()).unwrap(), VfsOptions::default());
        let file = vfs.open_node(&vfs.lookup(&vfs.root().unwrap(), b"file").unwrap()).unwrap();
        assert_eq!(file.seek_data(0).unwrap(), 0);
        assert_eq!(file.seek_hole(0).unwrap(), 1024, "a block");
        assert!(matches!(file.seek_data(1024), Err(Error::NoSuchOffset)));
        let mut read = [7; 100];
        file.read_at(1020, &mut read).unwrap();
        assert_eq!(read, [0; 100]);
    }
}
