//! How large everything is: from the options and the device's size and topology to a [`Shape`].
//!
//! Decided as mkfs.xfs 6.1 decides it, so that both make the same filesystem of the same arguments. Source:
//! mkfs.xfs(8), and what mkfs.xfs prints of the filesystems that it would make (`mkfs.xfs -N`).

use undercroft_block::BlockDevice;
use undercroft_diskfs::making::{MkfsError, refuse};

use super::features::Chosen;
use super::log_size::Sizes;
use super::options::{Groups, MkfsOptions, Stripe};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// An allocation group has no fewer bytes.
const GROUP_MIN_BYTES: u64 = 16 * MIB;
/// An allocation group has fewer bytes.
const GROUP_END_BYTES: u64 = TIB;
/// Group numbers end before this one.
const GROUPS_END: u64 = 0xffff_fffe;
/// A smaller filesystem is small: its log is as small as can be, and it is made on demand only.
const SMALL_BYTES: u64 = 300 * MIB;
/// A smaller log is made on demand only.
const LOG_USUAL_BYTES: u64 = 64 * MIB;
const LOG_MAX_BLOCKS: u64 = 1 << 20;
const LOG_MAX_BYTES: u64 = 2 * GIB - 10 * MIB;
/// From this size on the log is a fixed part of the filesystem.
const LARGE_BYTES: u64 = 16 * GIB;
const LARGE_PART_OF_LOG: u64 = 2048;
/// A larger stripe unit of the log is replaced.
const LOG_STRIPE_MAX_BYTES: u64 = 256 << 10;
const LOG_STRIPE_BYTES: u64 = 32 << 10;
/// A smaller filesystem does not follow the device's stripe.
const STRIPE_FROM_BYTES: u64 = GIB;
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

    /// Blocks of a group's headers.
    pub(super) fn header_blocks(&self) -> u32 {
        (4_u32 << self.sector_log).div_ceil(1 << self.block_log)
    }

    /// Blocks at the start of each group that are taken: its headers and the roots of its trees.
    pub(super) fn taken_blocks(&self) -> u32 {
        let Chosen { finobt, rmapbt, reflink, .. } = self.chosen;
        self.header_blocks() + 3 + u32::from(finobt) + u32::from(rmapbt) + u32::from(reflink)
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
        let per_block = 1 << (self.block_log - self.inode_log);
        if per_block > CHUNK_INODES as u32 { per_block } else { CHUNK_INODES as u32 }
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

/// Sizes of blocks, sectors, inodes and directory blocks, as powers of two.
struct Units {
    block_log: u8,
    sector_log: u8,
    inode_log: u8,
    dir_block_log: u8,
}

impl Units {
    fn decide(options: &MkfsOptions, device: &dyn BlockDevice) -> Result<Self, MkfsError> {
        let block = options.block_bytes.unwrap_or(4096);
        let block_log = power("block", block, 1024, 65_536)?;
        let topology = device.topology();
        let (logical, physical) = (topology.logical_block_bytes, topology.physical_block_bytes);
        // A device without any preference is an image, which mkfs.xfs gives the smallest sectors.
        let knows = topology.minimum_io_bytes > 0 || logical > 512;
        let of_device = if knows && physical <= block { physical } else { logical };
        let sector = options.sector_bytes.unwrap_or(of_device);
        let sector_log = power("sector", sector, 512, 32_768)?;
        if sector < logical {
            return refuse(format!(
                "sectors of {sector} bytes are smaller than those of the device, {logical} bytes"
            ));
        }
        if block < sector {
            return refuse(format!("blocks of {block} bytes are smaller than sectors of {sector}"));
        }
        let inode_log = power("inode", options.inode_bytes.unwrap_or(512), 512, 2048.min(block / 2))?;
        let dir_block = options.dir_block_bytes.unwrap_or(block.max(4096));
        let dir_block_log = power("directory block", dir_block, block, 65_536)?;
        Ok(Self { block_log, sector_log, inode_log, dir_block_log })
    }

    const fn block_bytes(&self) -> u64 {
        1 << self.block_log
    }
}

fn power(what: &str, bytes: u32, least: u32, most: u32) -> Result<u8, MkfsError> {
    if !bytes.is_power_of_two() || bytes < least || bytes > most {
        return refuse(format!(
            "the {what} size is a power of two from {least} to {most} bytes, not {bytes}"
        ));
    }
    Ok(bytes.trailing_zeros() as u8)
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

/// Stripe unit and width, and the log's stripe unit, in blocks; 0 without.
struct Stripes {
    unit: u64,
    width: u64,
    log: u64,
}

impl Stripes {
    fn decide(
        options: &MkfsOptions,
        device: &dyn BlockDevice,
        units: &Units,
        blocks: u64,
    ) -> Result<Self, MkfsError> {
        let (unit, width) = match options.stripe {
            Stripe::OfDevice => Self::of_device(device, units, blocks),
            Stripe::None | Stripe::Bytes { unit: 0, width: 0 } => (0, 0),
            Stripe::Bytes { unit, width } => Self::given(unit, width, units)?,
        };
        let mut log = match options.log_stripe_bytes {
            Some(bytes) if bytes == 0 || bytes > LOG_STRIPE_MAX_BYTES => {
                return refuse(format!(
                    "the log's stripe unit has up to {LOG_STRIPE_MAX_BYTES} bytes, and not {bytes}"
                ));
            }
            Some(bytes) if !bytes.is_multiple_of(units.block_bytes()) => {
                let block = units.block_bytes();
                return refuse(format!(
                    "the log's stripe unit of {bytes} bytes is no multiple of the block size, {block} bytes"
                ));
            }
            Some(bytes) => bytes >> units.block_log,
            // Records fill whole sectors; blocks do.
            None if units.sector_log > 9 => 1,
            None => unit,
        };
        if log << units.block_log > LOG_STRIPE_MAX_BYTES {
            log = LOG_STRIPE_BYTES >> units.block_log;
        }
        Ok(Self { unit, width, log })
    }

    /// What the device reports, where it makes sense.
    fn of_device(device: &dyn BlockDevice, units: &Units, blocks: u64) -> (u64, u64) {
        let topology = device.topology();
        let physical = topology.physical_block_bytes;
        let reported = |bytes: u32| if bytes > physical { u64::from(bytes) } else { 0 };
        let (unit, width) = (reported(topology.minimum_io_bytes), reported(topology.optimal_io_bytes));
        let makes_sense = unit > 0
            && width >= unit
            && width.is_multiple_of(unit)
            && unit.is_multiple_of(units.block_bytes())
            && width.is_multiple_of(units.block_bytes())
            && blocks >= STRIPE_FROM_BYTES >> units.block_log;
        if makes_sense { (unit >> units.block_log, width >> units.block_log) } else { (0, 0) }
    }

    fn given(unit: u64, width: u64, units: &Units) -> Result<(u64, u64), MkfsError> {
        if unit == 0 || width == 0 || !width.is_multiple_of(unit) {
            return refuse(format!(
                "the stripe width of {width} bytes is no multiple of the stripe unit of {unit} bytes"
            ));
        }
        let block = units.block_bytes();
        if !unit.is_multiple_of(block) {
            return refuse(format!(
                "the stripe unit of {unit} bytes is no multiple of the block size, {block} bytes"
            ));
        }
        if width >> 9 > i32::MAX as u64 {
            return refuse(format!("the stripe width of {width} bytes is too large"));
        }
        Ok((unit >> units.block_log, width >> units.block_log))
    }
}

/// How the blocks are divided into groups.
#[derive(Clone, Copy)]
struct Division {
    blocks: u64,
    group_blocks: u64,
    groups: u64,
}

impl Division {
    fn decide(wanted: Groups, units: &Units, stripes: &Stripes, blocks: u64) -> Result<Self, MkfsError> {
        let group_blocks = match wanted {
            Groups::Usual => usual_group(blocks, units.block_log, stripes.unit > 0),
            Groups::Count(0) => return refuse("a filesystem has at least one group"),
            Groups::Count(count) => blocks.div_ceil(count),
            Groups::Bytes(bytes) if bytes == 0 || !bytes.is_multiple_of(units.block_bytes()) => {
                let block = units.block_bytes();
                return refuse(format!(
                    "groups of {bytes} bytes are no multiple of the block size, {block} bytes"
                ));
            }
            Groups::Bytes(bytes) => bytes >> units.block_log,
        };
        let groups = match wanted {
            Groups::Count(count) => count,
            Groups::Usual | Groups::Bytes(_) => blocks.div_ceil(group_blocks),
        };
        let mut division = Self { blocks, group_blocks, groups };
        if stripes.unit > 0 {
            division.align(wanted, units, stripes)?;
        }
        division.end(units)
    }

    /// Lets groups begin at stripe units, and on different members of an array.
    fn align(&mut self, wanted: Groups, units: &Units, stripes: &Stripes) -> Result<(), MkfsError> {
        let (least, most) = (GROUP_MIN_BYTES >> units.block_log, (GROUP_END_BYTES - 1) >> units.block_log);
        let unit = stripes.unit;
        if !self.group_blocks.is_multiple_of(unit) {
            let up = self.group_blocks.next_multiple_of(unit);
            let aligned = if up > most { up - unit } else { up };
            if !(least..=most).contains(&aligned) {
                return refuse(format!(
                    "allocation groups of {} blocks cannot be aligned to a stripe unit of {unit} blocks",
                    self.group_blocks
                ));
            }
            self.group_blocks = aligned;
            if !matches!(wanted, Groups::Count(_)) {
                self.groups = self.blocks.div_ceil(aligned);
            }
        }
        let on_one_member = self.group_blocks.is_multiple_of(stripes.width) && stripes.width != unit;
        if on_one_member && self.groups > 1 && wanted == Groups::Usual {
            let mut shifted = self.group_blocks - unit;
            if shifted < least {
                shifted = self.group_blocks + unit;
                if self.blocks < self.group_blocks {
                    shifted = self.group_blocks;
                }
            }
            self.group_blocks = shifted;
            self.groups = self.blocks.div_ceil(shifted);
        }
        Ok(())
    }

    /// Leaves out a last group that is too small, and refuses what Linux does not mount.
    fn end(mut self, units: &Units) -> Result<Self, MkfsError> {
        let (least, most) = (GROUP_MIN_BYTES >> units.block_log, (GROUP_END_BYTES - 1) >> units.block_log);
        let last = self.blocks % self.group_blocks;
        if last != 0 && last < least {
            self.blocks = (self.groups - 1) * self.group_blocks;
            self.groups -= 1;
        }
        let Self { blocks, group_blocks, groups } = self;
        if group_blocks < least || group_blocks > most {
            return refuse(format!(
                "an allocation group has {least} to {most} blocks, and not {group_blocks}"
            ));
        }
        if group_blocks > blocks {
            return refuse(format!(
                "an allocation group of {group_blocks} blocks does not fit into {blocks}"
            ));
        }
        if groups != blocks.div_ceil(group_blocks) || groups > GROUPS_END {
            return refuse(format!(
                "{blocks} blocks do not make {groups} allocation groups of {group_blocks} blocks"
            ));
        }
        Ok(self)
    }
}

/// Blocks of a group where nothing else is asked for: four groups on a single disk up to 4 TiB, more on an array.
fn usual_group(blocks: u64, block_log: u8, is_array: bool) -> u64 {
    let most = (GROUP_END_BYTES - 1) >> block_log;
    let bytes = |bytes: u64| bytes >> block_log;
    let largest = if is_array { 32 * TIB } else { 4 * TIB };
    if blocks >= bytes(largest) {
        return most;
    }
    let shift = if !is_array && blocks >= bytes(128 * MIB) {
        2
    } else {
        let fewer = [
            blocks <= bytes(512 * GIB),
            blocks <= bytes(8 * GIB),
            blocks < bytes(128 * MIB),
            blocks < bytes(64 * MIB),
            blocks < bytes(32 * MIB),
        ];
        5 - fewer.iter().filter(|&&is| is).count()
    };
    blocks.div_ceil(1 << shift).min(most)
}
