//! What a new block says about itself: the filesystem that it belongs to, its inode, and where it lies.

use undercroft_vfs::{Ino, Result};

use crate::error::corrupt_block;
use crate::format::FsBlock;
use crate::format::block_header::HeaderKind;
use crate::volume::Volume;

pub(super) struct Identity {
    uuid: [u8; 16],
    owner: u64,
    sector: u64,
}

impl Identity {
    pub(super) fn new(volume: &Volume, ino: Ino, home: FsBlock) -> Result<Self> {
        let Some(sector) = volume.geometry().daddr(home) else {
            return Err(corrupt_block("block number", home, "lies in no allocation group"));
        };
        let uuid = *volume.superblock().meta_uuid().as_bytes();
        Ok(Self { uuid, owner: ino.0, sector: sector.0 })
    }

    /// Writes it into a block that has room for its header. The kind is one of those whose owners are inodes.
    pub(super) fn write(&self, bytes: &mut [u8], kind: HeaderKind) {
        let (uuid, owner, sector) = match kind {
            HeaderKind::Remote => (16, 32, 40),
            _ => (32, 48, 16),
        };
        bytes[uuid..uuid + 16].copy_from_slice(&self.uuid);
        bytes[owner..owner + 8].copy_from_slice(&self.owner.to_be_bytes());
        bytes[sector..sector + 8].copy_from_slice(&self.sector.to_be_bytes());
    }
}
