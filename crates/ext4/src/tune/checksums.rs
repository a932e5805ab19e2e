//! The feature `metadata_csum`: all metadata gets checksums, or loses them.
//!
//! Where a filesystem has no checksums yet, most places for them mean nothing, and can be filled before it has them: in inodes,
//! extent nodes, blocks of attributes, and blocks of directory entries, where a checksum looks like an unused entry. Index blocks
//! of directories have room for one entry more without a checksum, group descriptors carry another one, and e2fsck wants none in
//! the orphan file. So this is done, in this order:
//!
//! 1. The filesystem is checked, and all that can be refused is. Nothing has changed by then.
//! 2. Directories without room for checksums get it ([`dir::make_room`]).
//! 3. Checksums are put where they mean nothing yet.
//! 4. One transaction changes the superblock, the group descriptors with the checksums of the bitmaps, all index blocks, and the
//!    orphan file.
//! 5. When that is durable, copies of the superblock and the descriptors are written.
//!
//! A crash before step 4 leaves a filesystem without checksums, and after it one with them. To switch them off takes steps 1, 4
//! and 5; the places keep what was in them. Descriptors keep checksums then, those of `uninit_bg`.
//!
//! What Linux verifies before it replays the journal may belong to the other side of step 4: after a crash e2fsck, or this
//! program, must look at the filesystem before Linux mounts it. Without a journal the parts of step 4 follow one another, and a
//! crash between them leaves what `e2fsck -y` repairs.
//!
//! Locks: none of its own; the filesystem is known to no other thread.

use std::sync::Arc;

use undercroft_block::Device;
use undercroft_vfs::{Error, FileType, Result};

use super::features::Switches;
use super::{Tuning, refuse};
use crate::check::refuse_damage;
use crate::checksum::crc32c;
use crate::dir::{self, IndexBlock};
use crate::error::{Verdict, corrupt_block};
use crate::features::{Compat, Incompat, RoCompat};
use crate::group::{self, GroupDescriptor, GroupDetails, GroupFlags};
use crate::grow::{copies, switch};
use crate::inode::{self, Inode, NamedBy};
use crate::numbers::{FsBlock, Group};
use crate::open::{OpenOptions, Probed, Ready};
use crate::shrink::for_each_inode;
use crate::superblock::{self, RawSuperblock, State, Superblock};
use crate::transaction::{Handle, Seal};
use crate::volume::Volume;
use crate::writer::Mounted;
use crate::{map, orphan, xattr};

/// Why all changes end if some of these have been made.
const HALF_DONE: &str = "switching the checksums of metadata failed half way";
/// Blocks of a journal that fast commits have, unless its superblock says otherwise.
const FAST_COMMIT_BLOCKS: u64 = 256;
/// Blocks of one transaction of those that change before the switch.
const BATCH: u32 = 256;
/// Blocks of inode tables that are read together.
const TABLE_READAHEAD_BLOCKS: u64 = 16;

/// What a filesystem needs for the switch.
#[derive(Debug, Default)]
struct Needs {
    /// Blocks that the transaction of the switch changes.
    at_once: u64,
    /// Blocks that directories get.
    more: u64,
}

impl Needs {
    /// `logged`: there is a journal by then.
    fn of(volume: &Volume, logged: bool) -> Result<Self> {
        let orphans = Orphans::read(volume)?.map_or(0, |orphans| orphans.blocks.len() as u64);
        let mut needs = Self { at_once: switched_at_least(volume.superblock()) + orphans, more: 0 };
        for_each_inode(volume, &mut |inode| {
            if has_blocks_of_entries(inode) {
                let survey = dir::survey(volume, inode, logged)?;
                if survey.is_full && !logged {
                    return refuse(format!(
                        "directory {} has blocks without room for a checksum, and entries move only under a journal: add one too \
                         (has_journal), or run e2fsck -fD",
                        inode.number
                    ));
                }
                needs.at_once += survey.index.len() as u64 + survey.more_index;
                // With nodes of its map.
                needs.more += survey.more + if survey.is_full { 4 + survey.more / 64 } else { 0 };
            }
            Ok(())
        })?;
        Ok(needs)
    }
}

/// The orphan file's blocks, and what their checksums begin with.
struct Orphans {
    seed: u32,
    blocks: Vec<FsBlock>,
}

impl Orphans {
    fn read(volume: &Volume) -> Result<Option<Self>> {
        let Some(number) = volume.superblock().orphan_file_inode() else { return Ok(None) };
        let inode = Inode::read_own(volume, number, NamedBy::SuperblockAsOrphanFile)?;
        let blocks = orphan::blocks_of(volume, &inode)?.collect();
        Ok(Some(Self { seed: inode.checksum_seed(volume), blocks }))
    }
}

/// The superblock and the descriptors.
fn switched_at_least(superblock: &Superblock) -> u64 {
    1 + u64::from(superblock.geometry().descriptor_blocks())
}

fn has_blocks_of_entries(inode: &Inode) -> bool {
    inode.kind == FileType::Directory && !inode.has_inline_data()
}

/// Refuses a filesystem on which the checksums cannot be switched as the list of features says; nothing changes.
///
/// # Errors
/// [`Unsupported`](Error::Unsupported) saying why; [`NoSpace`](Error::NoSpace); corruption: a check finds damage; I/O failure.
pub(super) fn check(
    device: &Device,
    options: OpenOptions,
    found: &Superblock,
    tuning: &Tuning,
) -> Result<()> {
    // What is in the journal may say otherwise.
    let is_recovered = !found.features().incompat.contains(Incompat::RECOVER);
    if is_recovered && Switches::decide(found, &tuning.features)?.checksums().is_none() {
        return Ok(());
    }
    let recovered = || Probed::probe(Arc::clone(device), options)?.recover_in_memory();
    let Ready { volume, .. } = recovered()?;
    let switches = Switches::decide(volume.superblock(), &tuning.features)?;
    if switches.checksums().is_none() {
        return Ok(());
    }
    drop(volume);
    refuse_damage(device, options, "keeps its checksums as they are")?;
    let Ready { volume, .. } = recovered()?;
    let superblock = volume.superblock();
    if superblock.state().contains(State::ERRORS) {
        return refuse("the filesystem has errors: run e2fsck -f before its checksums are switched");
    }
    let adds_journal = switches.on.compat.contains(Compat::HAS_JOURNAL);
    let mut needs = Needs::of(&volume, has_journal(superblock) || adds_journal)?;
    // Of what is added before, with nodes of their maps.
    let mut added = 0;
    if switches.on.compat.contains(Compat::ORPHAN_FILE) {
        let blocks = u64::from(super::orphan_file::blocks(&volume));
        (needs.at_once, added) = (needs.at_once + blocks, added + blocks + blocks / 32 + 4);
    }
    if let Some(number) = superblock.journal_inode() {
        let inode = Inode::read(&volume, number)?;
        let fast_commits =
            if superblock.features().compat.contains(Compat::FAST_COMMIT) { FAST_COMMIT_BLOCKS } else { 0 };
        let blocks = (inode.size_bytes >> superblock.geometry().block_bits()).saturating_sub(fast_commits);
        refuse_too_many(needs.at_once, room_of(blocks))?;
    } else if adds_journal {
        let blocks = super::journal::blocks_to_add(superblock, tuning.journal_bytes)?;
        refuse_too_many(needs.at_once, room_of(blocks))?;
        added += blocks + blocks / 32 + 4;
    }
    let mut free = 0;
    for group in (0..superblock.geometry().groups()).map(Group) {
        free += u64::from(GroupDescriptor::read(&volume, group)?.free_clusters);
    }
    if needs.more + added > free { Err(Error::NoSpace) } else { Ok(()) }
}

fn has_journal(superblock: &Superblock) -> bool {
    superblock.features().compat.contains(Compat::HAS_JOURNAL)
}

/// Blocks that one transaction changes at most, in a journal of so many: of its room for two usual ones, as the transactions have
/// it, which leave its superblock and one block free.
const fn room_of(journal_blocks: u64) -> u64 {
    journal_blocks.saturating_sub(2) / 4 * 2
}

fn refuse_too_many(blocks: u64, room: u64) -> Result<()> {
    if blocks <= room {
        return Ok(());
    }
    refuse(format!(
        "switching metadata_csum changes {blocks} blocks at once, descriptors and indexes of directories, and the journal has \
         room for {room}: remove it (^has_journal), and add a larger one (has_journal, -J size=) first"
    ))
}

/// Switches the checksums of a filesystem that is open.
///
/// # Errors
/// [`Unsupported`](Error::Unsupported), [`NoSpace`](Error::NoSpace): nothing has been switched. Corruption; I/O failure.
pub(super) fn switch(volume: &Arc<Mounted>, switches: &Switches) -> Result<()> {
    let transactions = &volume.writer()?.transactions;
    let is_on = switches.checksums() == Some(true);
    if is_on {
        volume.writer()?.allocator.hold_nothing_back();
        make_room(volume)?;
        Before::new(volume)?.put_all()?;
    }
    // So that the log is empty, and descriptors on the disk count what is free now.
    transactions.write_everything_back(volume)?;
    let switch = Switch::new(volume, switches)?;
    if has_journal(volume.superblock()) {
        switch.make_at_once(volume)?;
    } else {
        switch.make_in_order(volume, is_on)?;
    }
    copies::write_all(volume)?;
    volume.flush()
}

fn make_room(volume: &Arc<Mounted>) -> Result<()> {
    let mut full = Vec::new();
    for_each_inode(volume, &mut |inode| {
        if has_blocks_of_entries(inode)
            && dir::survey(volume, inode, has_journal(volume.superblock()))?.is_full
        {
            full.push(inode.number);
        }
        Ok(())
    })?;
    full.into_iter().try_for_each(|number| dir::make_room(volume, number))
}

/// Puts checksums where they mean nothing yet, a batch of blocks in each transaction.
struct Before<'a> {
    volume: &'a Mounted,
    handle: Option<Handle<'a>>,
}

impl<'a> Before<'a> {
    fn new(volume: &'a Mounted) -> Result<Self> {
        volume.writer()?.transactions.write_everything_back(volume)?;
        Ok(Self { volume, handle: None })
    }

    fn put_all(mut self) -> Result<()> {
        self.put_into_tables()?;
        let volume = self.volume;
        for_each_inode(volume, &mut |inode| self.put_into_blocks_of(inode))
    }

    fn put_into_tables(&mut self) -> Result<()> {
        let volume = self.volume;
        let geometry = volume.superblock().geometry();
        let per_block = geometry.block_bytes() / u32::from(geometry.inode_bytes());
        for group in 0..geometry.groups() {
            let descriptor = GroupDescriptor::read(volume, Group(group))?;
            let used = geometry.inodes_per_group() - descriptor.unused_inodes;
            for index in 0..used.div_ceil(per_block) {
                let home = FsBlock(descriptor.inode_table.0 + u64::from(index));
                if u64::from(index).is_multiple_of(TABLE_READAHEAD_BLOCKS) {
                    volume.buffers().prefetch(home.0, TABLE_READAHEAD_BLOCKS);
                }
                let first = group * geometry.inodes_per_group() + index * per_block + 1;
                let count = per_block.min(used - index * per_block);
                self.put(home, |bytes| {
                    inode::put_checksums(volume, first, count, bytes);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    fn put_into_blocks_of(&mut self, inode: &Inode) -> Result<()> {
        let volume = self.volume;
        let seed = inode.checksum_seed(volume);
        if map::is_mapped(volume, inode) && map::has_extents(inode) {
            let mut nodes = Vec::new();
            map::for_each_node(volume, inode, &mut |node| nodes.push(node))?;
            for node in nodes {
                self.put(node, |bytes| {
                    map::seal_extent_node(seed, bytes);
                    Ok(())
                })?;
            }
        }
        if inode.xattr_block != FsBlock(0) {
            self.put(inode.xattr_block, |bytes| {
                xattr::seal_block(volume, inode.xattr_block, bytes);
                Ok(())
            })?;
        }
        if has_blocks_of_entries(inode) {
            for leaf in dir::survey(volume, inode, true)?.leaves {
                self.put(leaf, |bytes| dir::put_leaf_checksum(volume, inode, bytes))?;
            }
        }
        Ok(())
    }

    /// Changes a block, if `change` makes a difference.
    fn put(&mut self, home: FsBlock, change: impl FnOnce(&mut [u8]) -> Verdict<()>) -> Result<()> {
        let now = self.volume.read_block(home)?;
        let mut bytes = now.to_vec();
        change(&mut bytes).map_err(|detail| corrupt_block("directory block", home, detail))?;
        if bytes == *now {
            return Ok(());
        }
        if !self.handle.as_ref().is_some_and(|handle| handle.has_room(1)) {
            self.handle = None;
        }
        let handle = match self.handle.take() {
            Some(handle) => handle,
            None => self.volume.start(BATCH.min(self.volume.writer()?.transactions.room()))?,
        };
        let changed = handle.change(home, Seal::Plain, |block| block.copy_from_slice(&bytes));
        self.handle = Some(handle);
        changed
    }
}

/// What changes together, decided before any of it does.
struct Switch {
    new: Superblock,
    descriptors: Vec<GroupDetails>,
    index: Vec<IndexBlock>,
    orphans: Option<Orphans>,
}

impl Switch {
    fn new(volume: &Mounted, switches: &Switches) -> Result<Self> {
        let old = volume.superblock();
        let new = switched(old, switches)?;
        let mut index = Vec::new();
        for_each_inode(volume, &mut |inode| {
            if has_blocks_of_entries(inode) {
                index.extend(dir::index_blocks(volume, inode)?);
            }
            Ok(())
        })?;
        let groups = (0..old.geometry().groups()).map(Group);
        let descriptors = groups.map(|group| descriptor(volume, &new, group)).collect::<Result<_>>()?;
        Ok(Self { new, descriptors, index, orphans: Orphans::read(volume)? })
    }

    /// In one transaction.
    fn make_at_once(&self, volume: &Mounted) -> Result<()> {
        let transactions = &volume.writer()?.transactions;
        let orphans = self.orphans.as_ref().map_or(0, |orphans| orphans.blocks.len());
        let blocks = switched_at_least(&self.new) + (self.index.len() + orphans) as u64;
        let room = transactions.room() * 2;
        refuse_too_many(blocks, room.into())?;
        {
            let handle = volume.start(blocks as u32)?;
            let changed = self
                .change_index(&handle, &self.index)
                .and_then(|()| self.change_orphans(&handle))
                .and_then(|()| self.change_descriptors(&handle))
                .and_then(|()| self.change_superblock(&handle));
            handle.or_abort(HALF_DONE, changed)?;
        }
        transactions.commit_everything(volume)
    }

    /// One after the other, so that at a crash index blocks are wrong only while nothing has a checksum.
    fn make_in_order(&self, volume: &Mounted, is_on: bool) -> Result<()> {
        let transactions = &volume.writer()?.transactions;
        let change_superblock = || {
            let handle = volume.start(1)?;
            handle.or_abort(HALF_DONE, self.change_superblock(&handle))?;
            drop(handle);
            transactions.commit_everything(volume)
        };
        if !is_on {
            change_superblock()?;
        }
        for part in self.index.chunks(BATCH as usize) {
            let handle = volume.start(part.len() as u32)?;
            handle.or_abort(HALF_DONE, self.change_index(&handle, part))?;
        }
        {
            let handle = volume.start(self.new.geometry().descriptor_blocks())?;
            handle.or_abort(HALF_DONE, self.change_descriptors(&handle))?;
        }
        transactions.commit_everything(volume)?;
        if is_on { change_superblock() } else { Ok(()) }
    }

    fn change_index(&self, handle: &Handle<'_>, blocks: &[IndexBlock]) -> Result<()> {
        let has_checksums = self.new.has_metadata_checksums();
        blocks.iter().try_for_each(|block| {
            handle.change(block.home, Seal::Plain, |bytes| block.switch(bytes, has_checksums))
        })
    }

    fn change_orphans(&self, handle: &Handle<'_>) -> Result<()> {
        let Some(Orphans { seed, blocks }) = &self.orphans else { return Ok(()) };
        let has_checksums = self.new.has_metadata_checksums();
        blocks.iter().try_for_each(|&home| {
            handle.change(home, Seal::Plain, |bytes| match has_checksums {
                true => orphan::seal_block(*seed, home, bytes),
                false => orphan::remove_checksum(bytes),
            })
        })
    }

    fn change_descriptors(&self, handle: &Handle<'_>) -> Result<()> {
        let geometry = self.new.geometry();
        let length = usize::from(geometry.descriptor_bytes());
        let per_block = geometry.descriptors_per_block();
        for (index, part) in (0..).zip(self.descriptors.chunks(per_block as usize)) {
            handle.change(switch::home_of(&self.new, index), Seal::Plain, |bytes| {
                for (slot, details) in (0..).zip(part) {
                    let group = Group(index * per_block + slot);
                    let byte = geometry.descriptor_location(group).1;
                    details.put(&self.new, group, &mut bytes[byte..byte + length]);
                }
            })?;
        }
        Ok(())
    }

    fn change_superblock(&self, handle: &Handle<'_>) -> Result<()> {
        superblock::change(handle, |raw| {
            put_features(raw, self.new.raw());
        })?;
        handle.volume().grow(self.new.clone(), std::iter::empty());
        Ok(())
    }
}

/// The descriptor of a group as it will be.
fn descriptor(volume: &Volume, new: &Superblock, group: Group) -> Result<GroupDetails> {
    let geometry = new.geometry();
    let mut details = GroupDetails::read_on_disk(volume, group)?;
    details.check_bitmaps(volume, group)?;
    if !group::are_checked(volume.superblock()) {
        // All of the tables were written when the filesystem was made.
        details.flags = GroupFlags::INODE_ZEROED;
    }
    if new.has_metadata_checksums() {
        let sum =
            |bitmap, bits| volume.read_block(bitmap).map(|buffer| group::bitmap_checksum(new, &buffer, bits));
        if !details.flags.contains(GroupFlags::BLOCK_UNINIT) {
            details.block_bitmap_checksum = sum(details.block_bitmap, geometry.clusters_per_group())?;
        }
        if !details.flags.contains(GroupFlags::INODE_UNINIT) {
            details.inode_bitmap_checksum = sum(details.inode_bitmap, geometry.inodes_per_group())?;
        }
    }
    Ok(details)
}

/// The superblock after the switch.
fn switched(old: &Superblock, switches: &Switches) -> Result<Superblock> {
    const CRC32C: u8 = 1;
    let mut features = *old.features();
    let mut raw = old.raw().clone();
    if switches.checksums() == Some(true) {
        features.ro_compat = features.ro_compat.difference(RoCompat::GDT_CSUM) | RoCompat::METADATA_CSUM;
        raw.s_checksum_type = CRC32C;
        if switches.on.incompat.contains(Incompat::CSUM_SEED) {
            features.incompat |= Incompat::CSUM_SEED;
            raw.s_checksum_seed.set(crc32c(!0, old.uuid().as_bytes()));
        }
    } else {
        features.ro_compat = features.ro_compat.difference(RoCompat::METADATA_CSUM) | RoCompat::GDT_CSUM;
        features.incompat = features.incompat.difference(Incompat::CSUM_SEED);
        raw.s_checksum_type = 0;
        raw.s_checksum_seed.set(0);
    }
    raw.s_feature_incompat.set(features.incompat.bits());
    raw.s_feature_ro_compat.set(features.ro_compat.bits());
    superblock::seal_raw(&mut raw);
    Superblock::from_raw(raw, u64::MAX)
}

fn put_features(raw: &mut RawSuperblock, new: &RawSuperblock) {
    raw.s_feature_incompat = new.s_feature_incompat;
    raw.s_feature_ro_compat = new.s_feature_ro_compat;
    raw.s_checksum_type = new.s_checksum_type;
    raw.s_checksum_seed = new.s_checksum_seed;
}
