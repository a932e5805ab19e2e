//! Pass 3: copies what the log holds to where it belongs.
//!
//! Everything is validated before the first write: each place lies within the filesystem and outside the log,
//! and each copy that would count has the checksum its tag promises, also one that a later copy supersedes.
//! So a log that is refused leaves the device as it was. Then each block is written once, with its latest
//! copy.

use std::collections::HashMap;

use undercroft_block::{BlockDevice, Request};
use undercroft_vfs::Result;

use super::descriptor::LoggedBlock;
use super::format::MAGIC;
use super::location::{LogLocation, Volume};
use super::revoke::Revokes;
use super::scan::Scan;
use super::superblock::Superblock;
use crate::error::corrupt_block;
use crate::numbers::FsBlock;

/// Copies in flight at once.
const BATCH_BLOCKS: usize = 64;

/// What will be written, validated.
#[derive(Debug)]
pub(super) struct Replay<'a> {
    location: &'a LogLocation,
    superblock: &'a Superblock,
    /// The latest copy of each block that is not revoked, in the order of the log.
    copies: Vec<LoggedBlock>,
    /// Copies that a revocation keeps out.
    pub(super) revoked: u64,
}

impl<'a> Replay<'a> {
    /// Decides what to write and checks all of it.
    ///
    /// # Errors
    /// `Corrupt` when a copy belongs outside the filesystem or into the log, or its checksum is wrong; `Io`.
    pub(super) fn prepare(
        device: &dyn BlockDevice,
        location: &'a LogLocation,
        superblock: &'a Superblock,
        volume: &Volume,
        scan: &Scan,
        revokes: &Revokes,
    ) -> Result<Self> {
        let mut live: Vec<_> = scan.blocks.iter().copied().filter(|block| !revokes.holds(block)).collect();
        let revoked = (scan.blocks.len() - live.len()) as u64;
        for block in &live {
            check_home(location, volume, block)?;
        }
        let mut replay = Self { location, superblock, copies: Vec::new(), revoked };
        if superblock.checksums.per_block() {
            let mut buf = replay.buffer();
            for batch in live.chunks(BATCH_BLOCKS) {
                for (block, copy) in batch.iter().zip(replay.read(device, batch, &mut buf)?) {
                    block.check(superblock, copy)?;
                }
            }
        }
        let latest: HashMap<FsBlock, usize> =
            live.iter().enumerate().map(|(index, block)| (block.tag.home, index)).collect();
        let mut index = 0;
        live.retain(|block| {
            index += 1;
            latest[&block.tag.home] == index - 1
        });
        replay.copies = live;
        Ok(replay)
    }

    /// Writes the copies to their homes. Nothing is durable before the caller flushes.
    ///
    /// Doing it again has the same result, so a crash in the middle does no harm while the log still says
    /// that it is dirty.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn write(&self, device: &dyn BlockDevice) -> Result<()> {
        let mut buf = self.buffer();
        for batch in self.copies.chunks(BATCH_BLOCKS) {
            for (block, copy) in batch.iter().zip(self.read(device, batch, &mut buf)?) {
                if block.tag.escaped {
                    copy[..4].copy_from_slice(&MAGIC.to_be_bytes());
                }
            }
            let block_bytes = self.superblock.block_bytes as usize;
            let mut writes: Vec<_> = batch
                .iter()
                .zip(buf.chunks_exact(block_bytes))
                .map(|(block, data)| Request::Write { offset: block.tag.home.0 * block_bytes as u64, data })
                .collect();
            device.run_batch(&mut writes)?;
        }
        Ok(())
    }

    /// Blocks that [`write`](Self::write) writes.
    pub(super) fn blocks(&self) -> u64 {
        self.copies.len() as u64
    }

    fn buffer(&self) -> Vec<u8> {
        vec![0; BATCH_BLOCKS * self.superblock.block_bytes as usize]
    }

    /// Reads a batch of copies from the log; the answer yields one block each.
    fn read<'b>(
        &self,
        device: &dyn BlockDevice,
        batch: &[LoggedBlock],
        buf: &'b mut [u8],
    ) -> Result<std::slice::ChunksExactMut<'b, u8>> {
        let block_bytes = self.superblock.block_bytes as usize;
        let buf = &mut buf[..batch.len() * block_bytes];
        let mut reads = Vec::with_capacity(batch.len());
        for (block, buf) in batch.iter().zip(buf.chunks_exact_mut(block_bytes)) {
            reads.push(Request::Read { offset: self.location.offset_bytes(block.log)?, buf });
        }
        device.run_batch(&mut reads)?;
        drop(reads);
        Ok(buf.chunks_exact_mut(block_bytes))
    }
}

fn check_home(location: &LogLocation, volume: &Volume, block: &LoggedBlock) -> Result<()> {
    let home = block.tag.home;
    let detail = if home.0 >= volume.device_blocks {
        format!("outside the device of {} blocks", volume.device_blocks)
    } else if location.holds(home) {
        "which is part of the log itself".to_owned()
    } else {
        return Ok(());
    };
    let log = block.log;
    Err(corrupt_block(
        "journal descriptor",
        location.home(log)?,
        format!("transaction {} would write log block {log} to block {home}, {detail}", block.sequence),
    ))
}
