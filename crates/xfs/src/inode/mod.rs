//! Inodes: found by number, validated, and put into plain numbers.
//!
//! An inode's number says where it lies; the inode trees are not asked. So a free inode is found and told from one in
//! use by its mode, and what is no inode by its magic number, its checksum and its own number.
//!
//! An [`Inode`] holds its forks: small content, extent records, or the root of a B+tree of them. Inodes without names
//! are read like others.

mod fork;
mod remapped;

use undercroft_vfs::{DeviceNumber, Error, FileType, Ino, Result};

use crate::error::corrupt_inode;
use crate::format::dinode::{self, Dinode, ForkFormat};
use crate::format::{AgBlock, FsBlock};
use crate::volume::Volume;
pub(crate) use fork::{Fork, ForkKind};
pub(crate) use remapped::{Remap, Remapped};

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
        let Some(core) = dinode::validate(bytes, volume.superblock(), ino).map_err(wrong)? else {
            return Err(Error::Stale);
        };
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
        volume.remapped().apply(&mut inode);
        Ok(inode)
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

    /// Whether the data fork is one of `format`.
    pub(crate) fn data_is(&self, format: ForkFormat) -> bool {
        self.core.data_format == format
    }
}

/// Brings the inodes around one that was asked for into the cache, unless its block is there already: what lies beside
/// it was most likely created with it and will be asked for next. Chunks begin at multiples of their length where the
/// filesystem aligns them so; where it does not, a neighbour is fetched in vain.
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
