//! Validating a node before it is used, once for as long as its block stays cached.

use undercroft_vfs::{Error, Result};
use zerocopy::FromBytes;

use super::raw::{self, ENTRY_BYTES, MAGIC, MAX_DEPTH, RawExtent, RawHeader, RawIndex, STRUCTURE};
use crate::checksum::crc32c;
use crate::error::corrupt_inode;
use crate::inode::Inode;
use crate::map::run::FILE_BLOCKS;
use crate::numbers::FsBlock;
use crate::volume::Volume;

/// A node's bytes and where they lie; `home` is `None` for the root.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    pub(super) inode: &'a Inode,
    pub(super) home: Option<FsBlock>,
    pub(super) bytes: &'a [u8],
}

impl Node<'_> {
    /// Validates the header and returns the node's depth.
    pub(super) fn check_header(&self, expected_depth: Option<u16>) -> Result<u16> {
        let Ok((header, _)) = RawHeader::ref_from_prefix(self.bytes) else {
            return Err(self.corrupt("no room for a header"));
        };
        let (magic, depth) = (header.eh_magic.get(), header.eh_depth.get());
        if magic != MAGIC {
            return Err(self.corrupt(format!("magic number is {magic:#06x}, not {MAGIC:#06x}")));
        }
        if expected_depth.is_some_and(|expected| expected != depth) || depth > MAX_DEPTH {
            let expected = expected_depth.map_or_else(|| format!("at most {MAX_DEPTH}"), |d| d.to_string());
            return Err(self.corrupt(format!("depth is {depth}, expected {expected}")));
        }
        let room = raw::room(self.bytes.len());
        let (entries, max) = (usize::from(header.eh_entries.get()), usize::from(header.eh_max.get()));
        if entries > max || max > room {
            return Err(self.corrupt(format!("{entries} entries of at most {max}, with room for {room}")));
        }
        Ok(depth)
    }

    pub(super) fn check_checksum(&self, volume: &Volume) -> Result<()> {
        if !volume.superblock().has_metadata_checksums() {
            return Ok(());
        }
        let (_, max) = raw::counts(self.bytes);
        let covered = ENTRY_BYTES * (1 + max);
        let Some(stored) = self.bytes.get(covered..).and_then(|tail| tail.first_chunk::<4>()) else {
            return Err(self.corrupt("no room for a checksum"));
        };
        let stored = u32::from_le_bytes(*stored);
        let computed = crc32c(self.inode.checksum_seed(volume), &self.bytes[..covered]);
        if stored != computed {
            return Err(
                self.corrupt(format!("checksum is {stored:#010x}, its content gives {computed:#010x}"))
            );
        }
        Ok(())
    }

    /// Validates that entries rise, do not overlap, and point into the filesystem.
    pub(super) fn check_entries(&self, volume: &Volume, depth: u16) -> Result<()> {
        let geometry = volume.superblock().geometry();
        let mut free_from = 0;
        if depth > 0 {
            for index in raw::entries::<RawIndex>(self.bytes) {
                let first = index.first();
                if first < free_from {
                    return Err(self.corrupt(format!("index entries do not rise at file block {first}")));
                }
                free_from = first + 1;
                if !geometry.contains(index.child(), 1) {
                    return Err(
                        self.corrupt(format!("points to block {} outside the filesystem", index.child()))
                    );
                }
            }
            return Ok(());
        }
        for extent in raw::entries::<RawExtent>(self.bytes).iter().map(RawExtent::get) {
            let (first, len) = (extent.first, extent.len);
            if len == 0 || first < free_from || extent.end() > FILE_BLOCKS {
                return Err(
                    self.corrupt(format!("extent of {len} blocks at file block {first} overlaps or wraps"))
                );
            }
            free_from = extent.end();
            if !geometry.contains(extent.start, len) {
                let detail = format!("maps {len} blocks from {} outside the filesystem", extent.start);
                return Err(self.corrupt(detail));
            }
        }
        Ok(())
    }

    /// Checks what matters only to changes of a node: that it can be split. A node that has hardly any room was
    /// not made by an honest writer.
    pub(super) fn check_room(&self) -> Result<()> {
        let (room, (_, max)) = (raw::room(self.bytes.len()), raw::counts(self.bytes));
        if max + 2 < room {
            return Err(self.corrupt(format!("is said to have room for {max} entries, not for {room}")));
        }
        Ok(())
    }

    pub(super) fn corrupt(&self, detail: impl Into<std::borrow::Cow<'static, str>>) -> Error {
        corrupt_inode(STRUCTURE, self.inode.number, self.home, detail)
    }
}
