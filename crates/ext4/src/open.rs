//! From a device to a filesystem that may be believed.
//!
//! The states are types. A [`Probed`] volume may have changes in its journal that its blocks do not show yet;
//! only [`Probed::recover_in_memory`] leads to a [`Ready`] one, so "mounted without replay" cannot be written.

use std::sync::Arc;

use undercroft_block::{Device, Overlay};
use undercroft_vfs::{Error, Result};

use crate::error::{corrupt, corrupt_inode};
use crate::inode::{self, Inode};
use crate::journal::{self, FastCommitView, Log, LogBlock, LogLocation, LogRun, RecoveryReport};
use crate::map;
use crate::mmp::{self, MmpWait};
use crate::superblock::Superblock;
use crate::volume::Volume;

/// How to open.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Bound of the metadata cache in bytes.
    pub buffer_bytes: usize,
    /// Told before the opening waits, for up to a minute, to see whether another host is using the filesystem.
    pub on_mmp_wait: fn(&MmpWait),
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { buffer_bytes: 32 << 20, on_mmp_wait: |_| {} }
    }
}

/// A volume whose superblock is good and whose journal has not been looked at.
pub(crate) struct Probed {
    volume: Volume,
    options: OpenOptions,
}

/// A volume that shows what a mount by Linux would show.
pub(crate) struct Ready {
    pub(crate) volume: Volume,
    pub(crate) recovery: Option<RecoveryReport>,
}

impl Probed {
    pub(crate) fn probe(device: Device, options: OpenOptions) -> Result<Self> {
        let superblock = Superblock::read(&*device)?;
        mmp::check(&*device, &superblock, options.on_mmp_wait)?;
        Ok(Self { volume: Volume::new(device, superblock, options.buffer_bytes), options })
    }

    /// Replays the journal, if it holds changes, into a copy-on-write layer over the device.
    ///
    /// Without the superblock's word that recovery is needed the log's content is older than the filesystem,
    /// and Linux does not look at it either.
    pub(crate) fn recover_in_memory(self) -> Result<Ready> {
        if !self.volume.superblock().needs_recovery() {
            return Ok(Ready { volume: self.volume, recovery: None });
        }
        let (location, params) = locate_log(&self.volume)?;
        let overlay: Device = Arc::new(Overlay::new(Arc::clone(self.volume.device())));
        let dirty = match Log::open(&*overlay, location, params)? {
            Log::Clean(_) => return Ok(Ready { volume: self.volume, recovery: None }),
            Log::Dirty(dirty) => dirty,
        };
        let replayed = dirty.recover(&*overlay)?;
        let recovery = Some(*replayed.report());
        let operations = replayed.fast_commits().to_vec();
        replayed.finish(&*overlay)?;
        let superblock = Superblock::read(&*overlay)?;
        let volume = Volume::new(overlay, superblock, self.options.buffer_bytes);
        let fast_commits = FastCommitView::fold(&operations, |ino| inode::incarnation_on_disk(&volume, ino))?;
        Ok(Ready { volume: volume.with_fast_commits(fast_commits), recovery })
    }
}

/// Where the journal's blocks lie, by the map of the journal's inode as the device has it now: the journal
/// never moves, so no transaction in it can change that.
fn locate_log(volume: &Volume) -> Result<(LogLocation, journal::Volume)> {
    let superblock = volume.superblock();
    if let Some(uuid) = superblock.external_journal() {
        let message =
            format!("the filesystem needs recovery from its external journal {uuid}, on another device");
        return Err(Error::Unsupported(message.into()));
    }
    let Some(number) = superblock.journal_inode() else {
        return Err(corrupt("superblock", "recovery is needed, but there is no journal"));
    };
    let geometry = superblock.geometry();
    let inode = Inode::read(volume, number)?;
    let blocks = inode.size_bytes >> geometry.block_bits();
    if u32::try_from(blocks).is_err() || blocks > geometry.blocks() {
        return Err(corrupt_inode("journal", number, None, format!("is {blocks} blocks long")));
    }
    let runs = map::collect_whole(volume, &inode, blocks)?
        .into_iter()
        .map(|(log, home, count)| LogRun { log: LogBlock(log.0), home, count: count as u32 })
        .collect();
    let params = journal::Volume {
        block_bytes: geometry.block_bytes(),
        blocks: geometry.blocks(),
        inodes: geometry.inodes(),
        inode_bytes: geometry.inode_bytes(),
    };
    Ok((LogLocation::new(runs, &params)?, params))
}
