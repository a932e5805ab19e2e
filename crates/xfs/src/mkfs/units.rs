//! Block, sector, inode and directory block sizes. Source: as for `shape`.

use undercroft_block::BlockDevice;
use undercroft_diskfs::mkfs::{MkfsError, refuse};

use super::options::MkfsOptions;

/// Sizes of blocks, sectors, inodes and directory blocks, as powers of two.
pub(super) struct Units {
    pub(super) block_log: u8,
    pub(super) sector_log: u8,
    pub(super) inode_log: u8,
    pub(super) dir_block_log: u8,
}

impl Units {
    pub(super) fn decide(options: &MkfsOptions, device: &dyn BlockDevice) -> Result<Self, MkfsError> {
        let block = options.block_bytes.unwrap_or(4096);
        let block_log = power("block", block, 1024, 65_536)?;
        let topology = device.topology();
        let (logical, physical) = (topology.logical_block_bytes, topology.physical_block_bytes);
        // A device without any preference is an image, which mkfs.xfs gives the smallest sectors.
        let knows = topology.minimum_io_bytes > 0 || logical > 512;
        let of_device = if knows && physical <= block { physical } else { logical };
        let sector = options.sector_bytes.unwrap_or(of_device);
        let sector_log = power("sector", sector, 512, 32_768)?;
        if sector < logical {
            return refuse(format!(
                "sectors of {sector} bytes are smaller than those of the device, {logical} bytes"
            ));
        }
        if block < sector {
            return refuse(format!("blocks of {block} bytes are smaller than sectors of {sector}"));
        }
        let inode_log = power("inode", options.inode_bytes.unwrap_or(512), 512, 2048.min(block / 2))?;
        let dir_block = options.dir_block_bytes.unwrap_or(block.max(4096));
        let dir_block_log = power("directory block", dir_block, block, 65_536)?;
        Ok(Self { block_log, sector_log, inode_log, dir_block_log })
    }

    pub(super) const fn block_bytes(&self) -> u64 {
        1 << self.block_log
    }
}

fn power(what: &str, bytes: u32, least: u32, most: u32) -> Result<u8, MkfsError> {
    if !bytes.is_power_of_two() || bytes < least || bytes > most {
        return refuse(format!(
            "the {what} size is a power of two from {least} to {most} bytes, not {bytes}"
        ));
    }
    Ok(bytes.trailing_zeros() as u8)
}
