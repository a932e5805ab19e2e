//! Directory blocks that lie in several extents, as Linux logs them: each extent is a buffer of its own, of the kind that the
//! whole block has.
//!
//! The checksum is one for all of the block, so the parts are replayed as they are, and when all of the log is replayed the
//! blocks are put together by the maps of their directories and sealed. The directory of each is in the log too: a change of
//! its names changes its times. Linux's own recovery takes the first part for a whole block, and faults.
//!
//! A part gets no position. So older parts may be replayed into a block that is newer on the device; the log has the newer
//! ones as well, behind them, for a change that is not in the log any more is one that was written home with all before it.
//!
//! A node of the hash index that is as long as a filesystem block may be one of extended attributes, which is whole. It is
//! sealed where its header has its own address, and once more if it turns out to be a part.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use undercroft_vfs::{Error, FileType, Ino, Result};

use super::buffer::{BufferItem, Role};
use super::sealing;
use super::target::Target;
use crate::format::{Daddr, FsBlock, Superblock};
use crate::inode::Inode;
use crate::map;
use crate::volume::Volume;

/// Sectors of 512 bytes, in which lengths are counted.
const SECTOR: u64 = 512;

/// Metadata in memory while directories are read, in bytes.
const CACHE_BYTES: usize = 4 << 20;

/// Parts and directories that are remembered, at most: of each.
const MAX_KNOWN: usize = 1 << 20;

/// Parts that were replayed, and the directories that the log names.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// By their first sectors: how many sectors each has, and what it is.
    parts: BTreeMap<Daddr, (u64, Role)>,
    directories: BTreeSet<u64>,
}

impl Parts {
    /// Notes a buffer that was replayed, if it is a part.
    ///
    /// # Errors
    /// `Unsupported` for more parts than are remembered.
    pub(super) fn note(&mut self, buffer: &BufferItem<'_>, superblock: &Superblock) -> Result<()> {
        let part = buffer.role(superblock);
        if part != Role::Whole {
            let (daddr, sectors) = buffer.key();
            self.parts.insert(daddr, (sectors.into(), part));
            check_known(self.parts.len())?;
        }
        Ok(())
    }

    /// Notes a directory that the log changes.
    ///
    /// # Errors
    /// `Unsupported` for more of them than are remembered.
    pub(super) fn note_directory(&mut self, ino: Ino) -> Result<()> {
        self.directories.insert(ino.0);
        check_known(self.directories.len())
    }

    /// Seals the blocks of which parts were replayed.
    ///
    /// # Errors
    /// `Unsupported` where the directory of a part is not in the log; `Corrupt`; `Io`.
    pub(super) fn seal(mut self, target: &mut Target) -> Result<()> {
        if self.parts.is_empty() {
            return Ok(());
        }
        let superblock = Arc::clone(&target.superblock);
        let volume = Volume::new(Arc::clone(target.device()), (*superblock).clone(), CACHE_BYTES);
        for ino in std::mem::take(&mut self.directories) {
            match Inode::read(&volume, Ino(ino)) {
                Ok(inode) if inode.core.kind == FileType::Directory => {
                    self.seal_directory(target, &volume, &inode)?;
                }
                // It was removed, or its reader will report what is wrong with it.
                Ok(_) | Err(Error::Stale | Error::Corrupt(_)) => {}
                Err(error) => return Err(error),
            }
        }
        match self.parts.iter().find(|(_, (_, part))| *part == Role::Part) {
            None => Ok(()),
            Some((daddr, _)) => {
                let what = format!(
                    "a log that changes a part of a directory block, at sector {daddr}, and not the directory"
                );
                Err(Error::Unsupported(what.into()))
            }
        }
    }

    fn seal_directory(&mut self, target: &mut Target, volume: &Volume, inode: &Inode) -> Result<()> {
        let unit = u64::from(volume.geometry().dir_block_fsblocks());
        // The pieces of the directory block in which the last extent ends.
        let (mut number, mut pieces) = (0, Vec::new());
        let found = map::for_each_extent(volume, inode.ino, &inode.data, |extent| {
            let mut at = extent.file.0;
            while at < extent.end() {
                let end = extent.end().min((at / unit + 1) * unit);
                if at / unit != number || at.is_multiple_of(unit) {
                    (number, pieces) = (at / unit, Vec::new());
                }
                pieces.push((extent.block_of(at), end - at));
                let is_all = pieces.iter().map(|(_, count)| count).sum::<u64>() == unit;
                if is_all && pieces.len() > 1 && self.take_part_of(volume, &pieces) {
                    seal_block(target, volume, &pieces)?;
                }
                // Blocks that lie together are of no interest.
                at = if end.is_multiple_of(unit) { end.max(extent.end() / unit * unit) } else { end };
            }
            Ok(())
        });
        match found {
            Err(Error::Corrupt(_)) => Ok(()),
            found => found,
        }
    }

    /// Whether a part was replayed that lies in these pieces; all of those are taken out.
    fn take_part_of(&mut self, volume: &Volume, pieces: &[(FsBlock, u64)]) -> bool {
        let mut any = false;
        for &(first, count) in pieces {
            let Some(begin) = volume.geometry().daddr(first) else { continue };
            let end = Daddr(begin.0 + count * u64::from(volume.geometry().block_bytes()) / SECTOR);
            let within = |at: &Daddr, sectors: u64| at.0 + sectors > begin.0;
            let found: Vec<_> = self
                .parts
                .range(..end)
                .rev()
                .take_while(|(at, (sectors, _))| within(at, *sectors))
                .map(|(at, _)| *at)
                .collect();
            any |= !found.is_empty();
            found.iter().for_each(|at| {
                self.parts.remove(at);
            });
        }
        any
    }
}

fn check_known(count: usize) -> Result<()> {
    if count <= MAX_KNOWN {
        return Ok(());
    }
    let what =
        format!("a log that changes more than {MAX_KNOWN} directories whose blocks lie in several extents");
    Err(Error::Unsupported(what.into()))
}

/// Seals a block that lies in these pieces, if its content is that of a directory block which lies there.
fn seal_block(target: &mut Target, volume: &Volume, pieces: &[(FsBlock, u64)]) -> Result<()> {
    let geometry = volume.geometry();
    let mut homes = Vec::with_capacity(pieces.len());
    for &(first, count) in pieces {
        let Some(daddr) = geometry.check_run(first, count).and_then(|_| geometry.daddr(first)) else {
            return Ok(());
        };
        homes.push((daddr, (count * u64::from(geometry.block_bytes())) as usize));
    }
    let mut before = Vec::with_capacity(geometry.dir_block_bytes() as usize);
    for &(daddr, len) in &homes {
        before.extend_from_slice(&target.read(daddr, (len as u64 / SECTOR) as u32)?);
    }
    let mut after = before.clone();
    if !sealing::seal_directory_block(&mut after, homes[0].0, *volume.superblock().meta_uuid().as_bytes()) {
        return Ok(());
    }
    let (mut before, mut after) = (&before[..], &after[..]);
    for (daddr, len) in homes {
        target.write_changes(daddr, &before[..len], &after[..len])?;
        (before, after) = (&before[len..], &after[len..]);
    }
    Ok(())
}
