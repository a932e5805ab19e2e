//! Adding a journal to a filesystem that has none, and removing it.

use undercroft_block::BlockDevice;
use undercroft_vfs::Result;
use zerocopy::IntoBytes;

use super::{own_file, refuse};
use crate::alloc::{ALLOCATE_CREDITS, Reservation};
use crate::error::corrupt_inode;
use crate::features::{Compat, Incompat};
use crate::grow::{copies, size};
use crate::inode::{self, Inode};
use crate::jbd2;
use crate::map::{self, Progress, Removed};
use crate::mkfs;
use crate::numbers::{FsBlock, Group};
use crate::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, State, Superblock};
use crate::writer::Mounted;

const NUMBER: u32 = 8;
const JOURNAL_MIN_BLOCKS: u64 = 1024;
const JOURNAL_MAX_BLOCKS: u64 = 10_240_000;
/// Pieces that a new journal may be in.
const PIECES_MAX: usize = 256;

/// A journal that was made, and that the superblock does not lead to yet.
pub(super) struct Added {
    i_block: [u8; 60],
    size_bytes: u64,
}

impl Added {
    /// Lets the superblock lead to it.
    pub(super) fn put(&self, raw: &mut RawSuperblock) {
        raw.s_feature_compat.set(raw.s_feature_compat.get() | Compat::HAS_JOURNAL.bits());
        raw.s_journal_inum.set(NUMBER);
        raw.s_jnl_backup_type = 1;
        // Left for Linux to work out.
        raw.s_overhead_clusters.set(0);
        // The superblock keeps a copy of where it is.
        for (word, bytes) in raw.s_jnl_blocks.iter_mut().zip(self.i_block.chunks_exact(4)) {
            word.as_mut_bytes().copy_from_slice(bytes);
        }
        raw.s_jnl_blocks[15].set((self.size_bytes >> 32) as u32);
        raw.s_jnl_blocks[16].set(self.size_bytes as u32);
    }
}

/// Makes a journal.
///
/// # Errors
/// [`NoSpace`](Error::NoSpace); [`Unsupported`](Error::Unsupported) for a size that it cannot have; corruption; I/O failure.
pub(super) fn add(volume: &Mounted, bytes: Option<u64>) -> Result<Added> {
    let geometry = volume.superblock().geometry();
    let blocks = blocks_to_add(volume.superblock(), bytes)?;
    let location = inode::locate(volume, NUMBER)?;
    if Inode::read_linked_or_not(volume, NUMBER, location).is_ok_and(|inode| inode.links > 0) {
        return Err(corrupt_inode("journal", NUMBER, None, "is in use, in a filesystem without a journal"));
    }
    // In the middle, to keep seeks short.
    let near = geometry.group_start(Group(geometry.groups() / 2));
    let places = own_file::reserve(volume, near, blocks, PIECES_MAX)?;
    write_log(volume, &places, blocks)?;
    let mut inode = own_file::fresh(volume, NUMBER, blocks << geometry.block_bits());
    // A map may need a node for so many entries each.
    let nodes = 4 + if map::has_extents(&inode) {
        places.len() as u64
    } else {
        blocks / u64::from(geometry.block_bytes() / 4)
    };
    let credits = (places.len() as u32 + nodes as u32 + 4) * (ALLOCATE_CREDITS + 2);
    let handle = volume.start(credits)?;
    let made = own_file::enter(&handle, &mut inode, places).and_then(|()| inode.store_new(&handle, location));
    handle.or_abort("making a journal failed half way", made)?;
    drop(handle);
    volume.writer()?.transactions.commit_everything(volume)?;
    Ok(Added { i_block: inode.i_block, size_bytes: inode.size_bytes })
}

/// The blocks of a journal that is added.
///
/// # Errors
/// [`Unsupported`](Error::Unsupported) for a size that it cannot have.
pub(super) fn blocks_to_add(superblock: &Superblock, bytes: Option<u64>) -> Result<u64> {
    let geometry = superblock.geometry();
    let blocks = match bytes {
        Some(bytes) => bytes >> geometry.block_bits(),
        None => match mkfs::usual_journal_blocks(geometry.blocks()) {
            Some(blocks) => blocks,
            None => return refuse("2048 blocks are the least that have room for a journal"),
        },
    };
    if !(JOURNAL_MIN_BLOCKS..=JOURNAL_MAX_BLOCKS).contains(&blocks) || blocks >= geometry.blocks() / 2 {
        return refuse(format!(
            "a journal of {blocks} blocks: take {JOURNAL_MIN_BLOCKS} to {JOURNAL_MAX_BLOCKS} blocks of {} bytes, less than \
             half of the filesystem",
            geometry.block_bytes()
        ));
    }
    Ok(blocks)
}

fn write_log(volume: &Mounted, places: &[Reservation], blocks: u64) -> Result<()> {
    let superblock = volume.superblock();
    let block_bytes = u64::from(volume.block_bytes());
    for place in places {
        volume.device().write_zeroes(place.first().0 * block_bytes, place.len() * block_bytes)?;
    }
    let first: FsBlock = places[0].first();
    let uuid = superblock.uuid().into_bytes();
    let bytes = jbd2::empty_superblock(volume.block_bytes(), blocks as u32, 0, uuid);
    volume.device().write_at(first.0 * block_bytes, &bytes)?;
    volume.flush()
}

/// Lets the superblock of a filesystem that is clean and not in use forget its journal.
///
/// # Errors
/// Corruption: it is not clean; I/O failure.
pub(super) fn forget(device: &dyn BlockDevice) -> Result<()> {
    let superblock = Superblock::read(device)?;
    if superblock.needs_recovery() || !superblock.state().contains(State::CLEAN) {
        return refuse("the filesystem was not left clean, and keeps its journal: run e2fsck");
    }
    let mut raw = superblock.raw().clone();
    raw.s_feature_compat.set((superblock.features().compat - Compat::HAS_JOURNAL).bits());
    raw.s_feature_incompat.set((superblock.features().incompat - Incompat::RECOVER).bits());
    raw.s_journal_inum.set(0);
    raw.s_jnl_backup_type = 0;
    raw.s_overhead_clusters.set(0);
    raw.s_jnl_blocks.fill(0.into());
    size::seal(&superblock, &mut raw);
    device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes())?;
    Ok(device.flush()?)
}

/// Frees what the journal had, which `old` leads to, and writes the copies of the superblock.
///
/// # Errors
/// Corruption; I/O failure.
pub(super) fn remove(volume: &Mounted, old: &Superblock) -> Result<()> {
    let Some(number) = old.journal_inode() else { return Ok(()) };
    const HALF_DONE: &str = "removing the journal failed half way";
    let location = inode::locate(volume, number)?;
    let mut inode = Inode::read_linked_or_not(volume, number, location)?;
    let mut from = 0;
    loop {
        let handle = volume.start(map::remove_credits(&inode) * 4 + 4)?;
        match handle.or_abort(HALF_DONE, map::remove(&handle, &mut inode, from, u64::MAX, Removed::Data))? {
            Progress::From(next) => {
                handle.or_abort(HALF_DONE, inode.store(&handle, location))?;
                from = next;
            }
            Progress::Done => {
                handle.or_abort(HALF_DONE, inode::clear_slot(&handle, number, location))?;
                break;
            }
        }
    }
    volume.writer()?.transactions.commit_everything(volume)?;
    copies::write_superblocks(volume)?;
    volume.flush()
}
