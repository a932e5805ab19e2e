//! Inodes: found by number, validated, and decoded.
//!
//! An [`Inode`] holds what the 128 to 256 bytes say and the 60 bytes of `i_block` as they are; extended
//! attributes inside the inode are read again from the (cached) inode table when they are asked for, so
//! that a handle stays small however many are in use.

mod flags;
mod fresh;
#[cfg(all(test, not(shuttle)))]
mod late_tests;
mod raw;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod time;

use std::ops::Range;

use undercroft_cache::Buffer;
use undercroft_vfs::{DeviceNumber, Error, FileType, Result, Timestamp};
use zerocopy::FromBytes;

use crate::checksum::{crc32c, crc32c_around};
use crate::error::{corrupt, corrupt_inode};
use crate::fast_commit::Incarnation;
use crate::features::{Incompat, RoCompat};
use crate::group::GroupDescriptor;
use crate::numbers::{FsBlock, Group};
use crate::volume::Volume;
pub(crate) use flags::InodeFlags;
pub(crate) use fresh::{Inheritance, holds_device, possible_flags};
pub(crate) use raw::RawInode;
use raw::{BASE_BYTES, CHECKSUM_HI, CHECKSUM_LO, GENERATION, RawInodeExtra};
pub(crate) use state::InodeState;
pub(crate) use store::{add_uses, clear_slot, mark_deleted, move_slot, put_checksums, set_deletion_time};

/// The root directory.
pub(crate) const ROOT_INODE: u32 = 2;

const STRUCTURE: &str = "inode";

/// An inode that has been validated: its kind exists, its checksum holds, its extra fields fit its size.
#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub(crate) number: u32,
    pub(crate) kind: FileType,
    pub(crate) permissions: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) links: u16,
    pub(crate) flags: InodeFlags,
    pub(crate) generation: u32,
    /// Rises with every change; in an inode that is an attribute's value, a part of its count of users.
    pub(crate) version: u64,
    pub(crate) size_bytes: u64,
    /// In units of 512 bytes.
    pub(crate) sectors: u64,
    pub(crate) accessed: Timestamp,
    pub(crate) modified: Timestamp,
    pub(crate) changed: Timestamp,
    pub(crate) created: Option<Timestamp>,
    pub(crate) project: u32,
    /// The block of extended attributes; 0 when there is none.
    pub(crate) xattr_block: FsBlock,
    /// `i_extra_isize`: how many bytes after the first 128 are fields. Attributes come after them.
    pub(crate) extra_bytes: u16,
    pub(crate) i_block: [u8; 60],
}

impl Inode {
    /// Reads an inode in use by number. Its links are those of the disk: [`crate::dir::links`] adds what fast commits
    /// do to those of a directory.
    ///
    /// # Errors
    /// [`Error::Stale`] for a number that is unused, [`Error::Corrupt`] for one that cannot exist.
    pub(crate) fn read(volume: &Volume, number: u32) -> Result<Self> {
        Self::read_located(volume, number, locate(volume, number)?)
    }

    /// The same at the place that [`locate`] gave for it.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub(crate) fn read_located(volume: &Volume, number: u32, location: Location) -> Result<Self> {
        let inode = Self::read_linked_or_not(volume, number, location)?;
        if inode.links == 0 { Err(Error::Stale) } else { Ok(inode) }
    }

    /// Reads one of the filesystem's own inodes, which `named_by` names: that it is not in use is corruption.
    ///
    /// # Errors
    /// [`Error::Corrupt`]; I/O failure.
    pub(crate) fn read_own(volume: &Volume, number: u32, named_by: NamedBy) -> Result<Self> {
        Self::read_own_located(volume, number, locate(volume, number)?, named_by)
    }

    /// The same at a place that is known.
    ///
    /// # Errors
    /// As for [`read_own`](Self::read_own).
    pub(crate) fn read_own_located(
        volume: &Volume,
        number: u32,
        location: Location,
        named_by: NamedBy,
    ) -> Result<Self> {
        Self::read_located(volume, number, location).map_err(|error| match error {
            Error::Stale => {
                let (structure, detail) = match named_by {
                    NamedBy::Format => ("root directory", "is not in use, and every filesystem has one"),
                    NamedBy::SuperblockAsJournal => {
                        ("journal", "is not in use, and the superblock names it as the journal")
                    }
                    NamedBy::SuperblockAsOrphanFile => {
                        ("orphan file", "is not in use, and the superblock names it as the orphan file")
                    }
                };
                corrupt_inode(structure, number, None, detail)
            }
            error => error,
        })
    }

    /// Reads an inode that may have no name any more: an orphan, say.
    ///
    /// # Errors
    /// As for [`read`](Self::read), but that an unlinked inode is found too.
    pub(crate) fn read_linked_or_not(volume: &Volume, number: u32, location: Location) -> Result<Self> {
        Self::validate(volume, number, &InodeBytes::read_at(volume, number, location)?)
    }

    fn validate(volume: &Volume, number: u32, bytes: &InodeBytes) -> Result<Self> {
        let superblock = volume.superblock();
        let wrong = |detail: String| Err(corrupt_inode(STRUCTURE, number, None, detail));
        let Ok((raw, rest)) = RawInode::read_from_prefix(bytes) else {
            return wrong(format!("only {} bytes", bytes.len()));
        };
        let mode = u32::from(raw.i_mode.get());
        if mode == 0 && raw.i_links_count.get() == 0 {
            return Err(Error::Stale);
        }

        let extra_bytes = extra_bytes(rest);
        if usize::from(extra_bytes) > rest.len() || !extra_bytes.is_multiple_of(4) {
            return wrong(format!("extra fields take {extra_bytes} of {} bytes", rest.len()));
        }
        let extra = RawInodeExtra::of(rest, extra_bytes);
        // Whether an extra field, which ends at this offset, is there.
        let has = |field_end: u16| extra_bytes >= field_end;

        if superblock.has_metadata_checksums() && bytes.carry_checksum() {
            let (stored, computed) = checksums(volume, number, bytes);
            if stored != computed {
                return wrong(format!("checksum is {stored:#010x}, its content gives {computed:#010x}"));
            }
        }
        let Some(kind) = FileType::from_mode(mode) else {
            return wrong(format!("mode {mode:#o} is no kind of file"));
        };

        let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        let features = superblock.features();
        let size_high = if has_large_size(volume, kind) { u64::from(raw.i_size_high.get()) << 32 } else { 0 };
        let size_bytes = u64::from(raw.i_size_lo.get()) | size_high;
        if size_bytes > i64::MAX as u64 {
            return wrong(format!("size is {size_bytes} bytes"));
        }
        let huge = features.ro_compat.contains(RoCompat::HUGE_FILE);
        let blocks_high = if huge { u64::from(raw.i_blocks_high.get()) << 32 } else { 0 };
        let block_count = u64::from(raw.i_blocks_lo.get()) | blocks_high;
        let in_fs_blocks = huge && flags.contains(InodeFlags::HUGE_FILE);
        let sectors =
            if in_fs_blocks { block_count << (superblock.geometry().block_bits() - 9) } else { block_count };

        let high_file_acl = u64::from(raw.i_file_acl_high.get()) << 32;
        let sixty_four_bit = features.incompat.contains(Incompat::SIXTY_FOUR_BIT);
        let xattr_block = u64::from(raw.i_file_acl_lo.get()) | if sixty_four_bit { high_file_acl } else { 0 };
        let wide16 = |lo: u16, hi: u16| u32::from(lo) | u32::from(hi) << 16;
        Ok(Self {
            number,
            kind,
            permissions: (mode & 0o7777) as u16,
            uid: wide16(raw.i_uid_lo.get(), raw.i_uid_high.get()),
            gid: wide16(raw.i_gid_lo.get(), raw.i_gid_high.get()),
            links: raw.i_links_count.get(),
            flags,
            generation: raw.i_generation.get(),
            version: u64::from(raw.i_version_lo.get())
                | if has(28) { u64::from(extra.i_version_hi.get()) << 32 } else { 0 },
            size_bytes,
            sectors,
            accessed: time::decode(raw.i_atime.get(), has(16).then(|| extra.i_atime_extra.get())),
            modified: time::decode(raw.i_mtime.get(), has(12).then(|| extra.i_mtime_extra.get())),
            changed: time::decode(raw.i_ctime.get(), has(8).then(|| extra.i_ctime_extra.get())),
            created: has(20)
                .then(|| time::decode(extra.i_crtime.get(), has(24).then(|| extra.i_crtime_extra.get()))),
            project: if has(32) && features.ro_compat.contains(RoCompat::PROJECT) {
                extra.i_projid.get()
            } else {
                0
            },
            xattr_block: FsBlock(xattr_block),
            extra_bytes,
            i_block: raw.i_block,
        })
    }

    /// Seed of the checksums of everything that belongs to this inode: extent nodes, directory blocks.
    pub(crate) fn checksum_seed(&self, volume: &Volume) -> u32 {
        checksum_seed(volume, self.number, self.generation.to_le_bytes())
    }

    /// The bytes after the fixed fields, where attributes may be; empty in inodes of 128 bytes.
    pub(crate) fn read_inline_xattrs(&self, volume: &Volume) -> Result<InodeBytes> {
        self.read_inline_xattrs_at(volume, locate(volume, self.number)?)
    }

    /// As [`read_inline_xattrs`](Self::read_inline_xattrs), of an inode whose place is known.
    pub(crate) fn read_inline_xattrs_at(&self, volume: &Volume, location: Location) -> Result<InodeBytes> {
        let mut bytes = InodeBytes::read_at(volume, self.number, location)?;
        bytes.range.start += self.inline_xattrs(bytes.len()).start;
        Ok(bytes)
    }

    /// Which of the inode's bytes are left for attributes.
    fn inline_xattrs(&self, inode_bytes: usize) -> Range<usize> {
        let start =
            if self.extra_bytes == 0 { inode_bytes } else { BASE_BYTES + usize::from(self.extra_bytes) };
        start.min(inode_bytes)..inode_bytes
    }

    /// What a device node stands for; zero for every other kind.
    pub(crate) fn device_number(&self) -> DeviceNumber {
        if !matches!(self.kind, FileType::CharDevice | FileType::BlockDevice) {
            return DeviceNumber::default();
        }
        let word = |n: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| self.i_block[n * 4 + i]));
        // Linux has had two encodings: 8 bits each in the first word, or 12 and 20 bits in the second.
        match (word(0), word(1)) {
            (0, new) => DeviceNumber { major: new >> 8 & 0xfff, minor: new & 0xff | new >> 12 & 0xf_ff00 },
            (old, _) => DeviceNumber { major: old >> 8 & 0xff, minor: old & 0xff },
        }
    }

    pub(crate) fn has_inline_data(&self) -> bool {
        self.flags.contains(InodeFlags::INLINE_DATA)
    }

    /// Whether a symbolic link's target lies in `i_block`: by size with `ea_inode`, else by having no blocks but
    /// attributes'.
    pub(crate) fn is_fast_link(&self, volume: &Volume) -> bool {
        let superblock = volume.superblock();
        if superblock.features().incompat.contains(Incompat::EA_INODE) {
            return self.size_bytes < self.i_block.len() as u64;
        }
        let cluster_sectors = u64::from(superblock.geometry().cluster_bytes() >> 9);
        let xattr_sectors = if self.xattr_block == FsBlock(0) { 0 } else { cluster_sectors };
        self.sectors.saturating_sub(xattr_sectors) == 0
    }
}

/// Whether inodes of this kind have the upper half of a size.
fn has_large_size(volume: &Volume, kind: FileType) -> bool {
    kind == FileType::Regular || volume.superblock().features().incompat.contains(Incompat::LARGE_DIR)
}

/// What the bytes after the first 128 say of how many of them are fields.
fn extra_bytes(rest: &[u8]) -> u16 {
    rest.first_chunk().map_or(0, |size| u16::from_le_bytes(*size))
}

/// Whether the inode has room for both halves of a checksum.
fn has_whole_checksum(bytes: &[u8]) -> bool {
    bytes.len() >= CHECKSUM_HI.end && extra_bytes(&bytes[BASE_BYTES..]) >= 4
}

/// Seed of the checksums of an inode and of what belongs to it. Both numbers in one go: a call costs more than they do.
fn checksum_seed(volume: &Volume, number: u32, generation: [u8; 4]) -> u32 {
    let mut words = [0; 8];
    let (first, second) = words.split_at_mut(4);
    first.copy_from_slice(&number.to_le_bytes());
    second.copy_from_slice(&generation);
    crc32c(volume.superblock().checksum_seed(), &words)
}

/// As [`checksum_seed`], for an inode whose record this is.
fn record_seed(volume: &Volume, number: u32, bytes: &[u8]) -> u32 {
    let generation = bytes[GENERATION].first_chunk().copied().unwrap_or_default();
    checksum_seed(volume, number, generation)
}

/// The checksum that an inode carries, and the one that its content gives.
fn checksums(volume: &Volume, number: u32, bytes: &[u8]) -> (u32, u32) {
    let half =
        |range: Range<usize>| u32::from(u16::from_le_bytes([bytes[range.start], bytes[range.start + 1]]));
    let base = crc32c_around(record_seed(volume, number, bytes), &bytes[..BASE_BYTES], CHECKSUM_LO);
    if !has_whole_checksum(bytes) {
        return (half(CHECKSUM_LO), crc32c(base, &bytes[BASE_BYTES..]) & 0xffff);
    }
    let hole = CHECKSUM_HI.start - BASE_BYTES..CHECKSUM_HI.end - BASE_BYTES;
    (half(CHECKSUM_LO) | half(CHECKSUM_HI) << 16, crc32c_around(base, &bytes[BASE_BYTES..], hole))
}

/// The bytes of one inode, within a buffer of the inode table or as a fast commit has them.
#[derive(Debug)]
pub(crate) struct InodeBytes {
    home: Home,
    range: Range<usize>,
}

#[derive(Debug)]
enum Home {
    Table(Buffer),
    FastCommit(Box<[u8]>),
}

impl InodeBytes {
    /// An inode's bytes, with what fast commits say.
    pub(crate) fn read(volume: &Volume, number: u32) -> Result<Self> {
        Self::read_at(volume, number, locate(volume, number)?)
    }

    fn read_at(volume: &Volume, number: u32, location: Location) -> Result<Self> {
        let Some(change) = volume.fast_commits().inode(number) else {
            return Self::read_on_disk_at(volume, location);
        };
        let mut bytes: Box<[u8]> = volume.read_block(location.block)?[location.range(volume)].into();
        change.apply(&mut bytes);
        Ok(Self { range: 0..bytes.len(), home: Home::FastCommit(bytes) })
    }

    /// The bytes without what fast commits say.
    pub(crate) fn read_on_disk(volume: &Volume, number: u32) -> Result<Self> {
        Self::read_on_disk_at(volume, locate(volume, number)?)
    }

    /// The bytes without what fast commits say; `None` in the part of the table that was never used, which may hold
    /// anything.
    fn read_used_on_disk(volume: &Volume, number: u32) -> Result<Option<Self>> {
        let (location, used) = locate_and_validate(volume, number)?;
        if used { Self::read_on_disk_at(volume, location).map(Some) } else { Ok(None) }
    }

    fn read_on_disk_at(volume: &Volume, location: Location) -> Result<Self> {
        Ok(Self { home: Home::Table(volume.read_block(location.block)?), range: location.range(volume) })
    }

    /// Whether the bytes are as they were written, with a checksum. The others were verified in the log.
    fn carry_checksum(&self) -> bool {
        matches!(self.home, Home::Table(_))
    }
}

impl std::ops::Deref for InodeBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.home {
            Home::Table(buffer) => &buffer[self.range.clone()],
            Home::FastCommit(bytes) => &bytes[self.range.clone()],
        }
    }
}

/// Which inode has a number on disk, whatever fast commits say; `None` when none ever had it.
///
/// # Errors
/// Corruption of the group's descriptor; I/O failure.
pub(crate) fn incarnation_on_disk(volume: &Volume, number: u32) -> Result<Option<Incarnation>> {
    Ok(InodeBytes::read_used_on_disk(volume, number)?.and_then(|bytes| Incarnation::of(&bytes)))
}

/// Whether an inode is a directory on disk, whatever fast commits say.
///
/// # Errors
/// Corruption of the group's descriptor; I/O failure.
pub(crate) fn is_directory_on_disk(volume: &Volume, number: u32) -> Result<bool> {
    let Some(bytes) = InodeBytes::read_used_on_disk(volume, number)? else { return Ok(false) };
    let mode = bytes.first_chunk().map_or(0, |mode| u16::from_le_bytes(*mode));
    Ok(FileType::from_mode(u32::from(mode)) == Some(FileType::Directory))
}

/// Where an inode lies in its group's table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Location {
    /// The block of the inode table that holds it.
    pub(crate) block: FsBlock,
    /// The byte at which it begins there.
    pub(crate) byte: usize,
}

impl Location {
    /// The place of a number that is in use or about to be: `slot` counts within its group, whose inodes lie in
    /// `table`.
    pub(crate) fn in_table(volume: &Volume, table: FsBlock, slot: u32) -> Self {
        let geometry = volume.superblock().geometry();
        let byte = u64::from(slot) * u64::from(geometry.inode_bytes());
        Self {
            block: FsBlock(table.0 + (byte >> geometry.block_bits())),
            byte: (byte % u64::from(geometry.block_bytes())) as usize,
        }
    }

    fn range(&self, volume: &Volume) -> Range<usize> {
        self.byte..self.byte + usize::from(volume.superblock().geometry().inode_bytes())
    }
}

/// The structure that says that one of the filesystem's own inodes is in use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NamedBy {
    /// The format: the root directory.
    Format,
    SuperblockAsJournal,
    SuperblockAsOrphanFile,
}

/// Finds an inode's place by its number, which takes its group's descriptor. The descriptor's count of inodes that were
/// never used is ignored, as in Linux: only allocation uses it, and if it is wrong the inodes behind it can still be
/// read.
///
/// # Errors
/// Corruption: the number cannot exist, or the descriptor is wrong; I/O failure.
pub(crate) fn locate(volume: &Volume, number: u32) -> Result<Location> {
    let (group, slot) = place_in_tables(volume, number)?;
    let table = match volume.inode_table(group) {
        Some(table) => table,
        None => GroupDescriptor::read(volume, group)?.inode_table,
    };
    Ok(Location::in_table(volume, table, slot))
}

/// Finds the place of the journal's inode before the journal is replayed, which may hold the checksum that fits the descriptor.
///
/// # Errors
/// As for [`locate`].
pub(crate) fn locate_before_recovery(volume: &Volume, number: u32) -> Result<Location> {
    let (group, slot) = place_in_tables(volume, number)?;
    let table = GroupDescriptor::read_before_recovery(volume, group)?.inode_table;
    Ok(Location::in_table(volume, table, slot))
}

/// Finds an inode's place, and whether it lies in the part of the table that the descriptor says was used.
fn locate_and_validate(volume: &Volume, number: u32) -> Result<(Location, bool)> {
    let (group, slot) = place_in_tables(volume, number)?;
    let descriptor = GroupDescriptor::read(volume, group)?;
    let used = slot < volume.superblock().geometry().inodes_per_group() - descriptor.unused_inodes;
    Ok((Location::in_table(volume, descriptor.inode_table, slot), used))
}

/// The group of an inode, and its place in the group's table.
fn place_in_tables(volume: &Volume, number: u32) -> Result<(Group, u32)> {
    let geometry = volume.superblock().geometry();
    if number == 0 || number > geometry.inodes() {
        let detail = format!("there is no inode {number}; they count from 1 to {}", geometry.inodes());
        return Err(corrupt("inode number", detail));
    }
    let index = number - 1;
    Ok((Group(index / geometry.inodes_per_group()), index % geometry.inodes_per_group()))
}
