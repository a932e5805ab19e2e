//! Inodes: found by number, validated, and decoded.
//!
//! An inode's number says where it lies, and a number from a directory is not looked up in the inode trees. So the mode
//! distinguishes a free inode from one in use, and magic number, checksum and the inode's own number show whether there
//! is an inode at all. But a user can write bytes that look like an inode into a file: for a number that a user may
//! have made up, [`Inode::check_in_use`] looks into the tree, as Linux does (`XFS_IGET_UNTRUSTED`).
//!
//! An [`Inode`] holds its forks: small content, extent records, or the root of a B+tree of them. Unlinked inodes
//! are read like others.

mod checksum;
mod fork;
mod fresh;
mod incore_extents;
mod inheritance;
mod remapped;
mod room;
mod state;
mod store;
mod times;

use std::sync::Arc;

use undercroft_vfs::{DeviceNumber, Error, FileType, Ino, Result};

use crate::ag::Agi;
use crate::error::corrupt_inode;
use crate::format::dinode::{self, Dinode};
use crate::format::{AgBlock, FsBlock};
use crate::volume::Volume;
pub(crate) use checksum::{change_bytes, core_in, place, seal_new};
pub(crate) use fork::{ExtentTree, Fork, ForkKind, Found};
pub(crate) use fresh::{is_extent_size, new_flags2};
pub(crate) use incore_extents::{INCORE_EXTENTS_MAX, IncoreExtents};
pub(crate) use inheritance::Inheritance;
pub(crate) use remapped::{Remap, Remapped};
pub(crate) use state::{InodeState, STORE_CREDITS};
pub(crate) use store::write_identity;

const STRUCTURE: &str = "inode";

/// An inode in use that has been validated, with its forks.
#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub(crate) ino: Ino,
    pub(crate) core: Dinode,
    pub(crate) data: Fork,
    /// Extended attributes; `None` in an inode that never had one.
    pub(crate) attr: Option<Fork>,
}

impl Inode {
    /// Reads an inode in use by number.
    ///
    /// # Errors
    /// [`Error::Stale`] for one that is free or cannot exist; [`Error::Corrupt`]; I/O failure.
    pub(crate) fn read(volume: &Volume, ino: Ino) -> Result<Self> {
        let Some((block, byte)) = volume.geometry().inode_place(ino) else { return Err(Error::Stale) };
        prefetch_around(volume, block);
        let buffer = volume.read_block(block)?;
        let bytes = &buffer[byte..byte + volume.geometry().inode_bytes() as usize];
        let wrong = |detail| corrupt_inode(STRUCTURE, ino, Some(block), detail);
        let core = core_in(volume, &buffer, byte, ino)
            .and_then(|raw| dinode::validate_core(&raw, bytes.len(), volume.superblock()));
        let Some(core) = core.map_err(wrong)? else { return Err(Error::Stale) };
        let geometry = volume.geometry();
        let data_bytes = &bytes[core.data_fork.clone()];
        let data = Fork::new(data_bytes, core.data_format, core.data_extents, core.size_bytes, geometry)
            .map_err(|detail| corrupt_inode("data fork", ino, Some(block), detail))?;
        let attr_bytes = &bytes[core.attr_fork.clone()];
        let attr = if attr_bytes.is_empty() {
            None
        } else {
            let extents = u64::from(core.attr_extents);
            let fork = Fork::new(attr_bytes, core.attr_format, extents, attr_bytes.len() as u64, geometry);
            Some(fork.map_err(|detail| corrupt_inode("attribute fork", ino, Some(block), detail))?)
        };
        let mut inode = Self { ino, core, data, attr };
        inode.remap(volume.remapped());
        Ok(inode)
    }

    /// Replaces its maps by those that interrupted work was to give it.
    fn remap(&mut self, remapped: &Remapped) {
        if remapped.is_empty() {
            return;
        }
        for kind in [ForkKind::Data, ForkKind::Attr] {
            let Some(remap) = remapped.get(self.ino, kind) else { continue };
            let fork = Fork::Extents(Arc::clone(&remap.extents));
            match kind {
                ForkKind::Data => self.data = fork,
                ForkKind::Attr => self.attr = Some(fork),
            }
            self.core.blocks = self.core.blocks.saturating_add_signed(remap.more_blocks);
        }
    }

    /// Checks that a number which no directory gave is that of an inode in use: it lies in a chunk, and is not free there.
    ///
    /// # Errors
    /// [`Error::Stale`] when it is not; corruption of the inode tree; I/O failure.
    pub(crate) fn check_in_use(volume: &Volume, ino: Ino) -> Result<()> {
        let Some((ag, within)) = volume.geometry().split_ino(ino) else { return Err(Error::Stale) };
        let chunks = Agi::read(volume, ag)?.chunks(volume)?;
        let chunk = chunks.cursor().lookup_le(&within)?;
        if chunk.is_some_and(|chunk| chunk.has_in_use(within)) { Ok(()) } else { Err(Error::Stale) }
    }

    /// Reads the root directory: that it is not in use is corruption.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; I/O failure.
    pub(crate) fn read_root(volume: &Volume) -> Result<Self> {
        let ino = volume.superblock().root();
        let root = Self::read(volume, ino).map_err(|error| match error {
            Error::Stale => corrupt_inode("root directory", ino, None, "is not in use"),
            error => error,
        })?;
        if root.core.kind != FileType::Directory {
            return Err(corrupt_inode("root directory", ino, None, "is not a directory"));
        }
        Ok(root)
    }

    /// The fork of a kind, if there is one.
    pub(crate) fn fork(&self, kind: ForkKind) -> Option<&Fork> {
        match kind {
            ForkKind::Data => Some(&self.data),
            ForkKind::Attr => self.attr.as_ref(),
        }
    }

    /// What a device node stands for; zero for every other kind.
    pub(crate) fn device_number(&self) -> DeviceNumber {
        match self.data {
            Fork::Device(number) => number,
            _ => DeviceNumber::default(),
        }
    }

    /// About how many bytes of memory the forks take.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.data.memory_bytes() + self.attr.as_ref().map_or(0, Fork::memory_bytes)
    }
}

/// Reads the inodes around a requested one into the cache, unless its block is there already: its neighbours were most
/// likely created with it and will be requested next. Chunks begin at multiples of their length where the filesystem
/// aligns them so; where it does not, some blocks are read in vain.
fn prefetch_around(volume: &Volume, block: FsBlock) {
    if volume.is_cached(block) {
        return;
    }
    let geometry = volume.geometry();
    let Some((ag, within)) = geometry.split(block) else { return };
    let chunk = geometry.chunk_blocks();
    let first = AgBlock(within.0 - within.0 % chunk);
    let count = chunk.min(geometry.ag_len(ag).saturating_sub(first.0));
    if let Some(first) = geometry.join(ag, first) {
        volume.prefetch(first, count);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use undercroft_block::{BlockDevice, MemoryDevice};

    use super::*;
    use crate::format::block_header::HeaderKind;
    use crate::format::{Superblock, crc, testing};

    /// Block 30 of group 1 has the tree's only leaf, blocks 16 to 23 its only chunk, of which inodes 128 and 130 are in
    /// use. Block 40 belongs to a file.
    fn volume() -> Volume {
        let device = Arc::new(MemoryDevice::new(512 << 20));
        device.write_at(0, &testing::superblock_sector(|_| {})).unwrap();
        let superblock = Superblock::read(&*device).unwrap();
        let group = u64::from(superblock.geometry().ag_blocks()) * 4096;
        let put = |bytes: &mut [u8], at: usize, value: &[u8]| {
            bytes[at..at + value.len()].copy_from_slice(value);
        };
        let mut agi = vec![0; 512];
        for (word, value) in [0x5841_4749, 1, 1, 32_768, 64, 30, 1, 62].into_iter().enumerate() {
            put(&mut agi, word * 4, &u32::to_be_bytes(value));
        }
        agi[40..296].fill(0xff);
        put(&mut agi, 296, superblock.meta_uuid().as_bytes());
        crc::seal(&mut agi, 312);
        device.write_at(group + 1024, &agi).unwrap();
        let mut leaf = vec![0; 4096];
        put(&mut leaf, 0, b"IAB3\0\0\0\x01\xff\xff\xff\xff\xff\xff\xff\xff");
        put(&mut leaf, 16, &((group + 30 * 4096) / 512).to_be_bytes());
        put(&mut leaf, 32, superblock.meta_uuid().as_bytes());
        put(&mut leaf, 48, &1_u32.to_be_bytes());
        put(&mut leaf, 56, &[0, 0, 0, 128, 0, 0, 64, 62]);
        put(&mut leaf, 64, &(!0b101_u64).to_be_bytes());
        crc::seal(&mut leaf, HeaderKind::ShortBtree.crc_offset());
        device.write_at(group + 30 * 4096, &leaf).unwrap();
        for within in [130, 131, 320] {
            let ino = Ino(1 << 18 | within);
            let bytes = testing::dinode(&superblock, ino, |_| {});
            device.write_at(group + within * 512, &bytes).unwrap();
        }
        Volume::new(device, superblock, 1 << 20)
    }

    #[test]
    fn a_number_that_no_directory_gave_must_be_in_use_in_the_inode_tree() {
        let volume = volume();
        let checked = |within: u64| Inode::check_in_use(&volume, Ino(1 << 18 | within));
        assert!(checked(130).is_ok());
        for within in [127, 131, 191, 192, 320] {
            assert!(matches!(checked(within), Err(Error::Stale)), "{within}");
        }
        // What a user wrote into a file is read as an inode by the number alone.
        assert!(Inode::read(&volume, Ino(1 << 18 | 320)).is_ok());
        assert!(matches!(Inode::check_in_use(&volume, Ino(u64::MAX)), Err(Error::Stale)));
    }
}
