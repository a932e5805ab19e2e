//! How large everything is: from the options and the device's size and topology to a [`Shape`].
//!
//! Decided as mkfs.xfs 6.1 decides it, so that both make the same filesystem of the same arguments. Source:
//! mkfs.xfs(8), and what mkfs.xfs prints of the filesystems that it would make (`mkfs.xfs -N`).

use undercroft_block::BlockDevice;
use undercroft_diskfs::mkfs::{MkfsError, refuse};

use super::division::{Division, GROUP_MIN_BYTES};
use super::features::Chosen;
use super::groups::Form;
use super::log_size::Sizes;
use super::options::MkfsOptions;
use super::stripes::Stripes;
use super::units::Units;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// A smaller filesystem is small: its log is as small as can be, and it is made on demand only.
const SMALL_BYTES: u64 = 300 * MIB;
/// A smaller log is made on demand only.
const LOG_USUAL_BYTES: u64 = 64 * MIB;
const LOG_MAX_BLOCKS: u64 = 1 << 20;
const LOG_MAX_BYTES: u64 = 2 * GIB - 10 * MIB;
/// From this size on the log is a fixed part of the filesystem.
const LARGE_BYTES: u64 = 16 * GIB;
const LARGE_PART_OF_LOG: u64 = 2048;
/// Blocks that a group's free list has room for before there are trees of free space of more than a level.
const FREE_LIST_RESERVE: u64 = 4;
/// So many times the room that the first inodes need is left for them where the log lies in their group.
const FIRST_INODES_ROOM: u64 = 4;
/// Inodes of a chunk, which its B+tree has a record for.
pub(super) const CHUNK_INODES: u64 = 64;
/// Inodes are written in clusters of so many.
const CLUSTER_INODES: u64 = 32;
/// The label's length at most.
const LABEL_MAX: usize = 12;

/// Sizes and counts of a new filesystem, all consistent. Lengths are in blocks unless the name says otherwise.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) chosen: Chosen,
    pub(super) block_log: u8,
    pub(super) sector_log: u8,
    pub(super) inode_log: u8,
    pub(super) dir_block_log: u8,
    pub(super) blocks: u64,
    pub(super) group_blocks: u32,
    pub(super) groups: u32,
    pub(super) stripe_unit: u32,
    pub(super) stripe_width: u32,
    pub(super) log_group: u32,
    /// Within its group.
    pub(super) log_start: u32,
    pub(super) log_blocks: u32,
    /// 0 without a stripe unit.
    pub(super) log_stripe_bytes: u32,
    pub(super) inode_percent: u8,
    pub(super) inode_alignment: u32,
    pub(super) sparse_alignment: u32,
    /// Blocks on a group's free list.
    pub(super) free_list: u32,
}

impl Shape {
    pub(super) fn decide(options: &MkfsOptions, device: &dyn BlockDevice) -> Result<Self, MkfsError> {
        if options.label.len() > LABEL_MAX {
            let len = options.label.len();
            return refuse(format!("the label has {len} bytes, {LABEL_MAX} are possible"));
        }
        if options.inode_percent > 100 {
            return refuse(format!("inodes cannot take {} percent of the space", options.inode_percent));
        }
        let chosen = Chosen::decide(options)?;
        let units = Units::decide(options, device)?;
        let block_bytes = units.block_bytes();
        let least_group = GROUP_MIN_BYTES >> units.block_log;
        let blocks = blocks_of(options, device, units.block_log, least_group)?;
        let stripes = Stripes::decide(options, device, &units, blocks)?;
        let division = Division::decide(options.groups, &units, &stripes, blocks)?;
        let Division { blocks, group_blocks, groups } = division;
        let inode_percent = match options.inode_percent {
            0 if blocks < TIB >> units.block_log => 25,
            0 if blocks < 50 * (TIB >> units.block_log) => 5,
            0 => 1,
            percent => percent,
        };
        let sizes = Sizes {
            block_bytes,
            sector_bytes: 1 << units.sector_log,
            inode_bytes: 1 << units.inode_log,
            dir_block_bytes: 1 << units.dir_block_log,
            group_blocks,
            log_stripe_bytes: stripes.log * block_bytes,
            chosen,
        };
        let cluster = (CLUSTER_INODES << units.inode_log) >> units.block_log;
        let chunk = (CHUNK_INODES << units.inode_log) >> units.block_log;
        let (inode_alignment, sparse_alignment) = if chosen.sparse { (chunk, cluster) } else { (cluster, 0) };
        let most = sizes.free_space_levels().min(2) * 2 + sizes.rmap_levels().min(2);
        let mut shape = Self {
            chosen,
            block_log: units.block_log,
            sector_log: units.sector_log,
            inode_log: units.inode_log,
            dir_block_log: units.dir_block_log,
            blocks,
            group_blocks: group_blocks as u32,
            groups: groups as u32,
            stripe_unit: stripes.unit as u32,
            stripe_width: stripes.width as u32,
            log_group: (groups / 2) as u32,
            log_start: 0,
            log_blocks: 0,
            log_stripe_bytes: (stripes.log * block_bytes) as u32,
            inode_percent,
            inode_alignment: inode_alignment as u32,
            sparse_alignment: sparse_alignment as u32,
            free_list: most as u32,
        };
        shape.place_log(options, &sizes, stripes.log)?;
        if !options.small {
            shape.refuse_small()?;
        }
        Ok(shape)
    }

    /// What the first blocks of all groups have in common.
    pub(super) const fn form(&self) -> Form {
        let Self { chosen, block_log, sector_log, inode_log, group_blocks, .. } = *self;
        Form { chosen, block_log, sector_log, inode_log, group_blocks }
    }

    /// Blocks at the start of each group that are taken: its headers and the roots of its trees.
    pub(super) fn taken_blocks(&self) -> u32 {
        self.form().taken_blocks()
    }

    /// Blocks of one group; the last one may have fewer.
    pub(super) fn group_len(&self, group: u32) -> u32 {
        let start = u64::from(group) * u64::from(self.group_blocks);
        (self.blocks - start).min(self.group_blocks.into()) as u32
    }

    /// Bits of a block's number within its group.
    pub(super) const fn group_block_log(&self) -> u8 {
        self.group_blocks.next_power_of_two().trailing_zeros() as u8
    }

    /// Inodes that are allocated together: a chunk, or a block where that holds more.
    pub(super) const fn first_inodes(&self) -> u32 {
        self.form().first_inodes()
    }

    /// Blocks of the first inodes.
    pub(super) const fn first_inode_blocks(&self) -> u32 {
        self.first_inodes() >> (self.block_log - self.inode_log)
    }

    /// Where xfs_repair expects the first inodes, in the first group: behind everything that it begins with.
    pub(super) fn first_inodes_expected(&self) -> u32 {
        let log = if self.log_group == 0 { self.log_blocks } else { 0 };
        (self.taken_blocks() + self.free_list + log).next_multiple_of(self.first_inode_alignment())
    }

    /// The first inodes begin at a multiple of so many blocks.
    pub(super) fn first_inode_alignment(&self) -> u32 {
        let alignment = self.inode_alignment;
        if self.stripe_unit > 0 && alignment > 1 && self.stripe_unit.is_multiple_of(alignment) {
            return self.stripe_unit;
        }
        alignment.max(1)
    }

    /// Chooses the log's size and place.
    fn place_log(&mut self, options: &MkfsOptions, sizes: &Sizes, stripe: u64) -> Result<(), MkfsError> {
        let group_blocks = u64::from(self.group_blocks);
        let taken = u64::from(self.taken_blocks());
        if let Some(group) = options.log_group {
            if group >= self.groups.into() {
                return refuse(format!("the log cannot lie in group {group} of {} groups", self.groups));
            }
            self.log_group = group as u32;
        }
        // All of a group but what is always taken, the free list, and a block.
        let mut most = (group_blocks - taken).saturating_sub(FREE_LIST_RESERVE + 1);
        let least = sizes.least_log_blocks();
        if most < least {
            return refuse(format!(
                "the log needs {least} blocks and an allocation group has room for {most}: larger groups are needed"
            ));
        }
        let asked = options.log_bytes.map(|bytes| bytes >> self.block_log);
        if asked.is_some_and(|blocks| blocks < least) {
            return refuse(format!(
                "a log of {} blocks is too small, {least} are needed",
                asked.unwrap_or(0)
            ));
        }
        if self.log_group == 0 {
            // The first inodes need room beside it, aligned.
            let chunk = (CHUNK_INODES << self.inode_log) >> self.block_log;
            most = most.saturating_sub((FIRST_INODES_ROOM * chunk).max(2 * u64::from(self.stripe_unit)));
        }
        let mut blocks = match asked {
            Some(blocks) if blocks > most => {
                return refuse(format!(
                    "a log of {blocks} blocks does not fit into an allocation group, which has room for {most}"
                ));
            }
            Some(blocks) if blocks > LOG_MAX_BLOCKS || blocks << self.block_log > LOG_MAX_BYTES => {
                return refuse(format!(
                    "a log of {blocks} blocks is too large, {LOG_MAX_BLOCKS} blocks or {LOG_MAX_BYTES} bytes are possible"
                ));
            }
            Some(blocks) => blocks,
            None => self.usual_log_blocks(least).min(most),
        };
        let mut start = taken;
        let unit = if stripe > 0 { stripe } else { self.stripe_unit.into() };
        if unit > 0 {
            // The block's number in the filesystem is aligned, which is its place on the device only where groups are.
            let group = u64::from(self.log_group) << self.group_block_log();
            start = (group + start).next_multiple_of(unit) - group;
            if start >= self.group_len(self.log_group).into() {
                return refuse("no allocation group has room for a log that begins at a stripe unit");
            }
            if !blocks.is_multiple_of(unit) {
                if options.log_bytes.is_some() {
                    return refuse(format!(
                        "a log of {blocks} blocks is no multiple of its stripe unit of {unit} blocks"
                    ));
                }
                let up = blocks.next_multiple_of(unit);
                let fits = up <= LOG_MAX_BLOCKS && up << self.block_log <= LOG_MAX_BYTES && up <= most;
                blocks = if fits { up } else { up - unit };
            }
        }
        let room = u64::from(self.group_len(self.log_group)) - start;
        if blocks > room && unit > 0 {
            blocks = blocks.saturating_sub(unit);
        }
        if blocks == 0 || blocks > room {
            return refuse(format!(
                "a log of {blocks} blocks from block {start} of its group on does not fit into the group"
            ));
        }
        self.log_start = start as u32;
        self.log_blocks = blocks as u32;
        Ok(())
    }

    fn usual_log_blocks(&self, least: u64) -> u64 {
        let mut blocks = least;
        if self.blocks >= SMALL_BYTES >> self.block_log {
            blocks = blocks.max(LOG_USUAL_BYTES >> self.block_log);
        }
        if self.blocks >= LARGE_BYTES >> self.block_log {
            blocks = blocks.max(self.blocks / LARGE_PART_OF_LOG);
        }
        blocks.min(LOG_MAX_BLOCKS).min(LOG_MAX_BYTES >> self.block_log)
    }

    /// Refuses what mkfs.xfs does not support, though it can be made.
    fn refuse_small(&self) -> Result<(), MkfsError> {
        if self.blocks < SMALL_BYTES >> self.block_log {
            return refuse("an XFS of less than 300 MiB is not supported");
        }
        if u64::from(self.log_blocks) < LOG_USUAL_BYTES >> self.block_log {
            return refuse("a log of less than 64 MiB is not supported");
        }
        if self.groups < 2 {
            return refuse(
                "an XFS of one allocation group, which has no copy of its superblock, is not supported",
            );
        }
        Ok(())
    }
}

/// Blocks of the filesystem, before its division.
fn blocks_of(
    options: &MkfsOptions,
    device: &dyn BlockDevice,
    block_log: u8,
    least: u64,
) -> Result<u64, MkfsError> {
    let room = device.size_bytes();
    let bytes = options.size_bytes.unwrap_or(room);
    if options.size_bytes.is_some_and(|bytes| !bytes.is_multiple_of(512)) {
        return refuse(format!("a size of {bytes} bytes is no multiple of 512 bytes"));
    }
    if bytes > room {
        return refuse(format!("{} has {room} bytes, too few for {bytes}", device.name()));
    }
    let blocks = bytes >> block_log;
    if blocks < least {
        return refuse(format!("{bytes} bytes are too few: an XFS has 16 MiB at least"));
    }
    Ok(blocks)
}
