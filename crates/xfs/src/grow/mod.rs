//! Growing a filesystem, while it is in use or not: there is one way for both, on a writable volume.
//!
//! In this order:
//!
//! 1. The size is decided, and everything that can be refused is.
//! 2. The first blocks of the new groups are written, a copy of the superblock among them, where nothing leads yet. Then
//!    the device is flushed.
//! 3. One transaction changes the superblock and, as far as the log has room, its copies in the groups there are, and makes
//!    the last of these as long as it is going to be. A crash leaves the old size or the new one.
//! 4. When that is durable, copies that had no room are changed. Everything is written back, and what is new is given out
//!    then ([`alloc`](crate::alloc)).
//!
//! Linux before version 6.13 compares what it recovers with the superblock that it read when it began, and refuses blocks
//! past the end that this one has. So no change of a new block may be in a log from which the growth is recovered.
//!
//! An error or a crash in step 4 can leave old copies in some groups, which xfs_repair complains about. Growing again
//! replaces them, also where there is nothing else to do.
//!
//! Groups are as long as they were, but for the last one. The block of a group's superblock is logged with the superblock
//! in it from then on, which takes a sector more.
//!
//! # A short last group
//!
//! Linux, while it recovers a log, refuses the header of a group that is shorter than others and not the last one of the
//! superblock that it knows by then. So no transaction that changes such a header may be in the log when the superblock that
//! counts more groups is written home. Everything is written back first; where other threads have committed changes
//! meanwhile, the filesystem grows in two steps, the first of which makes the last group as long as the others.
//!
//! Locks: class `resize`, while a filesystem grows. No operation waits for it. Left out: making a filesystem smaller, and
//! what is not opened for writing (logs on other devices, real-time sections, version 4).
//!
//! Sources: "XFS Algorithms & Data Structures"; what xfs_growfs makes of images.

mod size;

use undercroft_vfs::Result;

use self::size::Larger;
use crate::Xfs;
use crate::format::{AgNumber, Geometry};
use crate::mkfs::{Form, Group};
use crate::superblocks::{self, Superblocks};
use crate::transaction::Tid;
use crate::volume::Volume;
use crate::writer::{Mounted, Writer};

/// More than the blocks that are ever read ahead of those that are asked for.
const READ_AHEAD_BLOCKS: u64 = 1024;

/// How a filesystem has grown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grown {
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// Blocks before and now; the same if there was nothing to do.
    pub blocks: (u64, u64),
    /// Allocation groups before and now.
    pub groups: (u32, u32),
}

impl Grown {
    fn between(old: &Geometry, new: &Geometry) -> Self {
        Self {
            block_bytes: new.block_bytes(),
            blocks: (old.blocks(), new.blocks()),
            groups: (old.ag_count(), new.ag_count()),
        }
    }
}

impl Xfs {
    /// Makes the filesystem as large as `size_bytes`, or as its device. It may be in use meanwhile, and is durably larger
    /// when this returns. A last group of less than 64 blocks is left out, as by Linux. `progress` is called with the blocks
    /// that have been dealt with and how many there are to deal with.
    ///
    /// # Errors
    /// [`Error::Unsupported`](undercroft_vfs::Error::Unsupported) says what cannot be done: making it smaller, for one.
    /// [`Error::ReadOnly`](undercroft_vfs::Error::ReadOnly); corruption; I/O failure. The size has not changed then, unless
    /// the filesystem has turned read-only.
    pub fn grow(&self, size_bytes: Option<u64>, progress: &mut dyn FnMut(u64, u64)) -> Result<Grown> {
        grow(self.volume(), size_bytes, progress)
    }
}

fn grow(volume: &Mounted, size_bytes: Option<u64>, progress: &mut dyn FnMut(u64, u64)) -> Result<Grown> {
    let Writer { transactions, resizing, .. } = volume.writer()?;
    let _resizing = resizing.lock();
    transactions.check()?;
    let old = *volume.geometry();
    let Some(blocks) = size::decide(volume, size_bytes)? else {
        superblocks::replace_old_copies(volume)?;
        return Ok(Grown::between(&old, &old));
    };
    let larger = Larger::of(volume, blocks)?;
    make_groups(volume, &larger, progress)?;
    volume.flush()?;
    let filled = u64::from(old.ag_count()) * u64::from(old.ag_blocks());
    if old.blocks() == filled || blocks <= filled {
        switch(volume, &larger, None)?;
    } else if !switch(volume, &larger, Some(transactions.write_everything_back(volume)?))? {
        switch(volume, &Larger::of(volume, filled)?, None)?;
        switch(volume, &Larger::of(volume, blocks)?, None)?;
    }
    Ok(Grown::between(&old, larger.superblock.geometry()))
}

/// Writes the first blocks of the groups that are new, where nothing leads yet.
fn make_groups(volume: &Volume, larger: &Larger, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    let (old, new) = (volume.geometry(), larger.superblock.geometry());
    // Blocks that were read ahead past the old end are out of date now.
    let end = new.blocks().min(old.blocks() + READ_AHEAD_BLOCKS);
    (old.blocks()..end).for_each(|block| volume.buffers().forget(block));
    let form = Form::of(&larger.superblock);
    for number in old.ag_count()..new.ag_count() {
        let group = Group::unused(&form, number, new.ag_len(AgNumber(number)));
        let bytes = group.encode(&form, larger.superblock.meta_uuid(), &larger.sector);
        let first = u64::from(number) * u64::from(new.ag_blocks());
        volume.device().write_at(first << new.block_log(), &bytes)?;
        let taken = bytes.len() as u64 >> new.block_log();
        (first..first + taken).for_each(|block| volume.buffers().forget(block));
        let done = (first + u64::from(new.ag_blocks())).min(new.blocks());
        progress(done - old.blocks(), new.blocks() - old.blocks());
    }
    Ok(())
}

/// Changes what leads to the new blocks, and lets them be used; everything has been written back by then. With `only_behind` nothing is done, and the answer is
/// `false`, if there is a transaction between that one and the one that would do it.
///
/// # Errors
/// Corruption; I/O failure. If something had changed by then, the changes have ended.
fn switch(volume: &Mounted, larger: &Larger, only_behind: Option<Tid>) -> Result<bool> {
    let Writer { transactions, allocator, .. } = volume.writer()?;
    let groups = volume.geometry().ag_count();
    let with_first = groups.min(Superblocks::at_once(volume)?);
    let first = Superblocks::read(volume, 0..with_first)?;
    {
        let handle = volume.start(allocator.extent_credits() + with_first)?;
        if only_behind.is_some_and(|tid| handle.tid() != tid.next()) {
            return Ok(false);
        }
        allocator.lengthen_last_group(&handle, &larger.superblock)?;
        first.replace(&handle, &larger.sector);
    }
    transactions.commit_everything(volume)?;
    let opened = superblocks::replace(volume, with_first..groups, &larger.sector)
        .and_then(|()| transactions.write_everything_back(volume))
        .and_then(|_| open(volume, groups));
    if let Err(error) = &opened {
        transactions.abort_with("growing the filesystem failed half way", error);
    }
    opened.map(|()| true)
}

/// Lets blocks be given out behind what was the last group, and in groups behind it.
fn open(volume: &Mounted, groups: u32) -> Result<()> {
    let allocator = &volume.writer()?.allocator;
    allocator.open_longer_group(volume, AgNumber(groups - 1))?;
    allocator.add_groups(volume)
}
