//! Writing inodes: fields go into the inode's slot of the inode table, which also gets its checksum.
//!
//! Bytes of a slot that no field here stands for (the attributes in it, the deletion time, what a newer Linux may
//! keep there) stay as they are; a new inode's slot is cleared first. Source: kernel documentation, "Index Nodes", and
//! what Linux writes where that leaves a choice.

use undercroft_vfs::{Error, Result, Timestamp};
use zerocopy::FromBytes;

use super::{
    BASE_BYTES, CHECKSUM_HI, CHECKSUM_LO, Inode, InodeFlags, Location, RawInode, RawInodeExtra,
    has_large_size, has_whole_checksum, record_seed, time,
};
use crate::checksum::crc32c;
use crate::features::{Incompat, RoCompat};
use crate::transaction::{Handle, Seal};
use crate::volume::Volume;

/// Blocks of a file as the inode counts them.
#[derive(Clone, Copy, Debug)]
struct BlockCount {
    count: u64,
    /// In blocks of the filesystem, not of 512 bytes.
    in_fs_blocks: bool,
}

impl Inode {
    /// Writes the fields into the inode's slot. One block changes.
    ///
    /// # Errors
    /// [`FileTooLarge`](Error::FileTooLarge) for more blocks than can be counted; I/O failure. Nothing has changed
    /// then.
    pub(crate) fn store(&self, handle: &Handle<'_>, location: Location) -> Result<()> {
        self.store_with(handle, location, |_| {})
    }

    /// As [`store`](Self::store), and lets `change` change the bytes that are left for attributes.
    ///
    /// # Errors
    /// As for [`store`](Self::store).
    pub(crate) fn store_with(
        &self,
        handle: &Handle<'_>,
        location: Location,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let volume = handle.volume();
        let blocks = self.block_count(volume)?;
        change_slot(handle, self.number, location, |slot| {
            self.encode(volume, blocks, slot);
            let area = self.inline_xattrs(slot.len());
            change(&mut slot[area]);
        })
    }

    /// Writes a new inode into its slot: nothing of what was there stays.
    ///
    /// # Errors
    /// As for [`store`](Self::store).
    pub(crate) fn store_new(&self, handle: &Handle<'_>, location: Location) -> Result<()> {
        let volume = handle.volume();
        let blocks = self.block_count(volume)?;
        change_slot(handle, self.number, location, |slot| {
            slot.fill(0);
            if let Some(extra) = slot[BASE_BYTES..].first_chunk_mut() {
                *extra = self.extra_bytes.to_le_bytes();
            }
            self.encode(volume, blocks, slot);
        })
    }

    /// Writes an inode into its slot whose bytes are known as a whole: the fields go over them. With `linked` the
    /// deletion time, in which the list of orphans goes on, stays as it is.
    ///
    /// # Errors
    /// As for [`store`](Self::store).
    pub(crate) fn store_over(
        &self,
        handle: &Handle<'_>,
        location: Location,
        bytes: &[u8],
        linked: bool,
    ) -> Result<()> {
        let volume = handle.volume();
        let blocks = self.block_count(volume)?;
        change_slot(handle, self.number, location, |slot| {
            let next = RawInode::ref_from_prefix(slot).map_or(0, |(raw, _)| raw.i_dtime.get());
            slot.copy_from_slice(bytes);
            if let Ok((raw, _)) = RawInode::mut_from_prefix(slot) {
                raw.i_dtime.set(if linked { next } else { 0 });
            }
            self.encode(volume, blocks, slot);
        })
    }

    fn block_count(&self, volume: &Volume) -> Result<BlockCount> {
        let superblock = volume.superblock();
        let narrow = self.sectors <= u64::from(u32::MAX);
        if !narrow && !superblock.features().ro_compat.contains(RoCompat::HUGE_FILE) {
            return Err(Error::FileTooLarge);
        }
        if self.sectors < 1 << 48 {
            return Ok(BlockCount { count: self.sectors, in_fs_blocks: false });
        }
        let count = self.sectors >> (superblock.geometry().block_bits() - 9);
        if count < 1 << 48 { Ok(BlockCount { count, in_fs_blocks: true }) } else { Err(Error::FileTooLarge) }
    }

    fn encode(&self, volume: &Volume, blocks: BlockCount, slot: &mut [u8]) {
        let features = volume.superblock().features();
        let Ok((raw, rest)) = RawInode::mut_from_prefix(slot) else { return };
        // Whether an extra field, which ends at this offset, is there.
        let has = |field_end: u16| self.extra_bytes >= field_end;

        raw.i_mode.set(self.kind.mode_bits() as u16 | self.permissions);
        raw.i_uid_lo.set(self.uid as u16);
        raw.i_uid_high.set((self.uid >> 16) as u16);
        raw.i_gid_lo.set(self.gid as u16);
        raw.i_gid_high.set((self.gid >> 16) as u16);
        raw.i_links_count.set(self.links);
        let mut flags = self.flags;
        flags.set(InodeFlags::HUGE_FILE, blocks.in_fs_blocks);
        raw.i_flags.set(flags.bits());
        raw.i_generation.set(self.generation);
        raw.i_version_lo.set(self.version as u32);
        raw.i_size_lo.set(self.size_bytes as u32);
        if has_large_size(volume, self.kind) {
            raw.i_size_high.set((self.size_bytes >> 32) as u32);
        }
        raw.i_blocks_lo.set(blocks.count as u32);
        if features.ro_compat.contains(RoCompat::HUGE_FILE) {
            raw.i_blocks_high.set((blocks.count >> 32) as u16);
        }
        raw.i_file_acl_lo.set(self.xattr_block.0 as u32);
        if features.incompat.contains(Incompat::SIXTY_FOUR_BIT) {
            raw.i_file_acl_high.set((self.xattr_block.0 >> 32) as u16);
        }
        raw.i_block = self.i_block;

        let mut extra = RawInodeExtra::of(rest, self.extra_bytes);
        let (seconds, more) = time::encode(self.accessed, has(16));
        raw.i_atime.set(seconds);
        extra.i_atime_extra.set(more);
        let (seconds, more) = time::encode(self.modified, has(12));
        raw.i_mtime.set(seconds);
        extra.i_mtime_extra.set(more);
        let (seconds, more) = time::encode(self.changed, has(8));
        raw.i_ctime.set(seconds);
        extra.i_ctime_extra.set(more);
        if let Some(created) = self.created {
            let (seconds, more) = time::encode(created, has(24));
            extra.i_crtime.set(seconds);
            extra.i_crtime_extra.set(more);
        }
        extra.i_version_hi.set((self.version >> 32) as u32);
        if features.ro_compat.contains(RoCompat::PROJECT) {
            extra.i_projid.set(self.project);
        }
        extra.put(rest, self.extra_bytes);
    }

    /// The time that the inode keeps when it is given `time`.
    pub(crate) fn nearest_time(&self, time: Timestamp) -> Timestamp {
        time::nearest(time, self.extra_bytes >= 16)
    }

    /// Whether the inode can be given to a project.
    pub(crate) fn has_room_for_project(&self) -> bool {
        self.extra_bytes >= 32
    }

    /// Notes a change at `now` that is not one of content.
    pub(crate) fn note_change(&mut self, now: Timestamp) {
        self.changed = self.nearest_time(now);
        self.note_version();
    }

    /// Notes a change whose time is set by another caller.
    pub(crate) fn note_version(&mut self) {
        self.version = self.version.wrapping_add(1);
    }

    /// Sets how many entries use the value that the inode holds.
    pub(crate) fn set_uses(&mut self, uses: u64) {
        self.changed = Timestamp { seconds: (uses >> 32) as i64, nanoseconds: 0 };
        self.version = uses & u64::from(u32::MAX);
    }

    /// Notes a change of content at `now`.
    pub(crate) fn note_modification(&mut self, now: Timestamp) {
        self.note_change(now);
        self.modified = self.changed;
    }
}

/// Marks an inode as deleted; its content and attributes have been removed. It keeps its kind and its owner, and
/// nothing else that matters. It must not be on the list of orphans any more, which keeps its links in the field of the
/// deletion time. The caller frees its number.
///
/// # Errors
/// I/O failure.
pub(crate) fn mark_deleted(
    handle: &Handle<'_>,
    inode: &mut Inode,
    location: Location,
    now: Timestamp,
) -> Result<()> {
    inode.links = 0;
    inode.size_bytes = 0;
    let blocks = inode.block_count(handle.volume())?;
    change_slot(handle, inode.number, location, |slot| {
        inode.encode(handle.volume(), blocks, slot);
        let Ok((raw, _)) = RawInode::mut_from_prefix(slot) else { return };
        raw.i_dtime.set(now.seconds as u32);
        // As Linux does, for old kernels that would not clear them in the number's next use.
        raw.i_uid_high.set(0);
        raw.i_gid_high.set(0);
    })
}

/// Moves an inode to another number, whose slot is free, and clears the old slot. Two blocks change.
///
/// Where metadata has checksums the inode gets another generation: the one with which the checksums of its blocks, which
/// begin with number and generation, come out as they are.
///
/// # Errors
/// I/O failure.
pub(crate) fn move_slot(
    handle: &Handle<'_>,
    (from, old): (u32, Location),
    (to, new): (u32, Location),
) -> Result<()> {
    let volume = handle.volume();
    let bytes = volume.read_block(old.block)?[old.range(volume)].to_vec();
    let seed = volume.superblock().checksum_seed();
    // The checksum of four bytes depends on them and on what went before only by the sum of both.
    let difference = crc32c(seed, &from.to_le_bytes()) ^ crc32c(seed, &to.to_le_bytes());
    let has_checksums = volume.superblock().has_metadata_checksums();
    change_slot(handle, to, new, |slot| {
        slot.copy_from_slice(&bytes);
        if let Ok((raw, _)) = RawInode::mut_from_prefix(slot)
            && has_checksums
        {
            raw.i_generation.set(raw.i_generation.get() ^ difference);
        }
    })?;
    clear_slot(handle, from, old)
}

/// Clears the slot of an inode that is not in use any more.
///
/// # Errors
/// I/O failure.
pub(crate) fn clear_slot(handle: &Handle<'_>, number: u32, location: Location) -> Result<()> {
    change_slot(handle, number, location, |slot| slot.fill(0))
}

/// Sets an inode's deletion time, which for a member of the list of orphans is the number of the next one.
///
/// # Errors
/// I/O failure.
pub(crate) fn set_deletion_time(
    handle: &Handle<'_>,
    number: u32,
    location: Location,
    time: u32,
) -> Result<()> {
    change_slot(handle, number, location, |slot| {
        if let Ok((raw, _)) = RawInode::mut_from_prefix(slot) {
            raw.i_dtime.set(time);
        }
    })
}

/// Adds `by` to the number of uses of the value that an inode holds, and returns the new number; `None` if it would be
/// negative. With `only` the old number counts as one, whatever the inode says.
///
/// # Errors
/// I/O failure.
pub(crate) fn add_uses(
    handle: &Handle<'_>,
    number: u32,
    location: Location,
    by: i64,
    only: bool,
) -> Result<Option<u64>> {
    change_slot(handle, number, location, |slot| {
        let (raw, _) = RawInode::mut_from_prefix(slot).ok()?;
        let counted = u64::from(raw.i_ctime.get()) << 32 | u64::from(raw.i_version_lo.get());
        let uses = if only { 1 } else { counted }.checked_add_signed(by)?;
        raw.i_ctime.set((uses >> 32) as u32);
        raw.i_version_lo.set(uses as u32);
        Some(uses)
    })
}

/// Changes the bytes of one inode, and makes its checksum right.
fn change_slot<R>(
    handle: &Handle<'_>,
    number: u32,
    location: Location,
    change: impl FnOnce(&mut [u8]) -> R,
) -> Result<R> {
    let volume = handle.volume();
    let range = location.range(volume);
    handle.change(location.block, Seal::Plain, |bytes| {
        let slot = &mut bytes[range];
        let result = change(slot);
        seal(volume, number, slot);
        result
    })
}

fn seal(volume: &Volume, number: u32, slot: &mut [u8]) {
    if volume.superblock().has_metadata_checksums() {
        put_checksum(volume, number, slot);
    }
}

/// Puts checksums into `count` inodes of a table, the first of which has the number `first`, in a filesystem that is going to
/// have them. A slot that is all zero needs none.
pub(crate) fn put_checksums(volume: &Volume, first: u32, count: u32, table: &mut [u8]) {
    let inode_bytes = usize::from(volume.superblock().geometry().inode_bytes());
    for (number, slot) in (first..first + count).zip(table.chunks_exact_mut(inode_bytes)) {
        if slot.iter().any(|&byte| byte != 0) {
            put_checksum(volume, number, slot);
        }
    }
}

fn put_checksum(volume: &Volume, number: u32, slot: &mut [u8]) {
    // The checksum covers its own fields as zeroes. They are zeroed first, so that one call sums the whole record.
    let is_whole = has_whole_checksum(slot);
    slot[CHECKSUM_LO].fill(0);
    if is_whole {
        slot[CHECKSUM_HI].fill(0);
    }
    let sum = crc32c(record_seed(volume, number, slot), slot);
    slot[CHECKSUM_LO].copy_from_slice(&(sum as u16).to_le_bytes());
    if is_whole {
        slot[CHECKSUM_HI].copy_from_slice(&((sum >> 16) as u16).to_le_bytes());
    }
}
