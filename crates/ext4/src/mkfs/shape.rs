//! How large everything is: from the options and the device's size to a superblock that says so.
//!
//! Decided as mke2fs 1.47 decides it, so that both make the same groups, inodes and reserves of the same
//! arguments. Source: mke2fs(8), mke2fs.conf(5), and what dumpe2fs shows of what mke2fs makes.

use undercroft_block::BlockDevice;
use zerocopy::FromZeros;

use super::conf::Usual;
use super::features::Chosen;
use super::files::resize_inode_bytes;
use super::options::MkfsOptions;
use crate::checksum::crc32c;
use crate::features::{Compat, Incompat, RoCompat};
use crate::mmp;
use crate::superblock::RawSuperblock;
use undercroft_diskfs::mkfs::{MkfsError, random_uuid, refuse};

/// A page of memory.
const PAGE_BYTES: u64 = 4096;
/// The least inodes with which reserved ones, `lost+found` and the orphan file have one each.
const INODES_MIN: u64 = 16;
/// A last group with fewer blocks to spare is left out of the filesystem.
const LAST_GROUP_MIN_BLOCKS: u64 = 50;
/// Groups of fewer blocks are not made smaller for more inodes.
const SMALLER_GROUP_MIN_BLOCKS: u32 = 256;
/// The kernel takes no larger orphan file.
const ORPHAN_FILE_MAX_BYTES: u32 = 8 << 20;
/// The longest time between two marks that the filesystem is in use.
const MMP_INTERVAL_MAX_S: u16 = 300;
/// Mounts until a check is due, where checks are periodic, and as many more at most.
const CHECKED_MOUNTS: u16 = 20;
/// Where checks are periodic, one is due after 180 days.
const CHECK_INTERVAL_S: u32 = 180 * 24 * 3600;
/// Group descriptors count blocks in 16 bits, and Linux wants whole bytes of bitmap.
const CLUSTERS_PER_GROUP_MAX: u32 = (1 << 16) - 8;
const JOURNAL_MIN_BLOCKS: u64 = 1024;
const JOURNAL_MAX_BLOCKS: u64 = 10_240_000;
/// The default journal has so many blocks for each one of its area of fast commits.
const JOURNAL_BLOCKS_PER_FAST_COMMIT_BLOCK: u64 = 64;

/// A filesystem's sizes, and what follows from them.
#[derive(Debug)]
pub(super) struct Shape {
    /// Without free counts, journal and orphan file, which the layout adds.
    pub(super) superblock: RawSuperblock,
    pub(super) chosen: Chosen,
    /// Blocks of the log, its area of fast commits included; 0 without a journal.
    pub(super) journal_blocks: u32,
    pub(super) fast_commit_blocks: u32,
    /// 0 without an orphan file.
    pub(super) orphan_file_blocks: u32,
    /// Whether inode tables are left to Linux to zero.
    pub(super) lazy_inode_tables: bool,
    /// Whether the device is discarded first.
    pub(super) discard: bool,
}

impl Shape {
    pub(super) fn decide(options: &MkfsOptions, device: &dyn BlockDevice) -> Result<Self, MkfsError> {
        // A whole device counts in pages, as for mke2fs.
        let size = options.size_bytes.unwrap_or(device.size_bytes() / PAGE_BYTES * PAGE_BYTES);
        if size > device.size_bytes() {
            let (name, room) = (device.name(), device.size_bytes());
            return refuse(format!("a filesystem of {size} bytes does not fit on {name}, which has {room}"));
        }
        let usual = usual(options, size)?;
        let mut chosen = Chosen::new(&usual, &options.features, &options.implied_features)?;
        if chosen.compat(Compat::SPARSE_SUPER2) && usual.copies < 2 {
            return refuse(format!(
                "num_backup_sb = {}, which the configuration asks for, cannot be made: with sparse_super2 there are two \
                 copies of the superblock",
                usual.copies
            ));
        }
        let units = Units::decide(options, &usual, device, &chosen)?;
        let block_bytes = u64::from(units.block_bytes);
        let blocks = size / block_bytes;
        if blocks > u64::from(u32::MAX) && usual.grows_to_64bit {
            if !chosen.incompat(Incompat::EXTENTS) {
                return refuse(format!(
                    "{blocks} blocks of {block_bytes} bytes take the feature 64bit, which takes extent; add it with -O \
                     extent, or take larger blocks"
                ));
            }
            chosen.add(Incompat::SIXTY_FOUR_BIT.into());
        }
        if blocks > u64::from(u32::MAX) && !chosen.incompat(Incompat::SIXTY_FOUR_BIT) {
            return refuse(format!(
                "{blocks} blocks of {block_bytes} bytes cannot be counted without the feature 64bit; add it or \
                 take larger blocks"
            ));
        }
        if units.inode_bytes == 128 {
            chosen.give_up_if_set(Incompat::INLINE_DATA.into(), "inodes of 128 bytes have no room for it")?;
            chosen.give_up_if_set(RoCompat::PROJECT.into(), "inodes of 128 bytes have no room for it")?;
        }
        let groups = Groups::decide(options, &usual, &units, &mut chosen, size, blocks)?;
        if chosen.compat(Compat::RESIZE_INODE) && resize_inode_bytes(block_bytes) > i32::MAX as u64 {
            chosen.add(RoCompat::LARGE_FILE.into());
        }
        let (journal_blocks, fast_commit_blocks) = journal(options, &mut chosen, &groups, &units)?;
        let orphan_file_blocks = orphan_file(options, &chosen, &groups, &units)?;
        let superblock = encode(options, &usual, device, &chosen, &units, &groups)?;
        let lazy_inode_tables = options.lazy_inode_tables.unwrap_or(usual.lazy_inode_tables);
        let discard = options.discard.unwrap_or(usual.discard);
        Ok(Self {
            superblock,
            chosen,
            journal_blocks,
            fast_commit_blocks,
            orphan_file_blocks,
            lazy_inode_tables,
            discard,
        })
    }
}

/// What is made of these options where nothing is asked for, on a filesystem of this size.
fn usual(options: &MkfsOptions, size_bytes: u64) -> Result<Usual, MkfsError> {
    let view = options.conf.of(options.family, &options.usage, size_bytes);
    view.and_then(|view| Usual::of(&view)).or_else(refuse)
}

impl MkfsOptions {
    /// The block size of a filesystem of this size, on a device with sectors of 512 bytes.
    ///
    /// # Errors
    /// [`MkfsError::Refused`], if [`conf`](Self::conf) asks for what cannot be made.
    pub fn block_bytes_at(&self, size_bytes: u64) -> Result<u32, MkfsError> {
        self.block_bytes.map_or_else(|| Ok(usual(self, size_bytes)?.block_bytes), Ok)
    }
}

/// Sizes of the pieces.
#[derive(Clone, Copy, Debug)]
struct Units {
    block_bytes: u32,
    cluster_bytes: u32,
    inode_bytes: u16,
    /// There is one inode for as many bytes at least, where no ratio is asked for.
    least_bytes_per_inode: u32,
}

impl Units {
    fn decide(
        options: &MkfsOptions,
        usual: &Usual,
        device: &dyn BlockDevice,
        chosen: &Chosen,
    ) -> Result<Self, MkfsError> {
        let sector = device.topology().logical_block_bytes;
        let block_bytes = options.block_bytes.unwrap_or(usual.block_bytes.max(sector));
        if !block_bytes.is_power_of_two() || !(1 << 10..=1 << 16).contains(&block_bytes) {
            return refuse(format!("blocks of {block_bytes} bytes: take a power of two from 1024 to 65536"));
        }
        // mke2fs rounds what the configuration has down to a power of two. What is less than 2 KiB is no size for it:
        // libext2fs takes 16 blocks then, after inodes were counted.
        let configured = usual.cluster_bytes.filter(|_| options.cluster_bytes.is_none());
        let kib = configured.map(|bytes| bytes >> 10);
        let is_left_open = kib.is_some_and(|kib| kib < 2);
        let configured = kib.filter(|&kib| kib >= 2).map(|kib| 1024 << kib.ilog2());
        let cluster_bytes = if chosen.ro_compat(RoCompat::BIGALLOC) {
            let bytes = options.cluster_bytes.or(configured).unwrap_or(block_bytes * 16);
            if !bytes.is_power_of_two() || bytes <= block_bytes || bytes > 1 << 29 {
                return refuse(format!(
                    "clusters of {bytes} bytes: take a power of two over {block_bytes}, 536870912 at most"
                ));
            }
            bytes
        } else if options.cluster_bytes.is_some() {
            return refuse(
                "a cluster size means nothing without the feature bigalloc; add it with -O bigalloc",
            );
        } else {
            block_bytes
        };
        let inode_bytes = options.inode_bytes.unwrap_or(usual.inode_bytes);
        if !inode_bytes.is_power_of_two() || inode_bytes < 128 || u32::from(inode_bytes) > block_bytes {
            return refuse(format!(
                "inodes of {inode_bytes} bytes: take a power of two from 128 to the block size, {block_bytes}"
            ));
        }
        let least_bytes_per_inode = if is_left_open { block_bytes } else { cluster_bytes };
        Ok(Self { block_bytes, cluster_bytes, inode_bytes, least_bytes_per_inode })
    }

    fn blocks_per_cluster(&self) -> u32 {
        self.cluster_bytes / self.block_bytes
    }

    fn descriptors_per_block(&self, chosen: &Chosen) -> u32 {
        self.block_bytes / if chosen.incompat(Incompat::SIXTY_FOUR_BIT) { 64 } else { 32 }
    }
}

/// How the blocks fall into groups.
#[derive(Clone, Copy, Debug)]
struct Groups {
    blocks: u64,
    /// The blocks that were asked for.
    asked: u64,
    /// The blocks that were left when a last group was left out. As in mke2fs, it may have been one of larger groups that
    /// had no room for the inodes.
    without_last: Option<u64>,
    first_data_block: u32,
    clusters_per_group: u32,
    blocks_per_group: u32,
    groups: u32,
    inodes_per_group: u32,
    reserved_descriptor_blocks: u32,
}

impl Groups {
    fn decide(
        options: &MkfsOptions,
        usual: &Usual,
        units: &Units,
        chosen: &mut Chosen,
        size: u64,
        mut blocks: u64,
    ) -> Result<Self, MkfsError> {
        let mut clusters_per_group = clusters_per_group(options, units)?;
        let Some(mut blocks_per_group) = clusters_per_group.checked_mul(units.blocks_per_cluster()) else {
            return refuse(format!(
                "{clusters_per_group} clusters in a group make too many blocks; take fewer"
            ));
        };
        let first_data_block = u32::from(units.cluster_bytes == 1024);
        let asked = blocks;
        let all_blocks = blocks - blocks % u64::from(units.blocks_per_cluster());
        blocks = all_blocks;
        let mut without_last = None;
        let wanted_inodes = wanted_inodes(options, usual, units, size)?;
        let grows_to = options.grows_to.map(|amount| amount.in_blocks(units.block_bytes));
        if let Some(wanted) = grows_to.filter(|&wanted| wanted <= asked) {
            return refuse(format!(
                "room for growth to {wanted} blocks: take more than the {asked} that are made"
            ));
        }
        // As mke2fs: what there is room for without more reserves as usual.
        let for_growth = grows_to.map(|wanted| for_growth(options, units, chosen, asked, wanted));
        let for_growth = for_growth.filter(|&reserved| reserved > 0 && asked <= u64::from(u32::MAX));
        if for_growth.is_some() {
            chosen.add_resize_inode()?;
        }
        let too_small = || refuse(format!("{size} bytes are too small for this filesystem; give it more"));
        loop {
            let Some(in_groups) = blocks.checked_sub(u64::from(first_data_block)).filter(|&n| n > 0) else {
                return too_small();
            };
            let Ok(groups) = u32::try_from(in_groups.div_ceil(u64::from(blocks_per_group))) else {
                return refuse("that makes more block groups than can be counted; take larger blocks");
            };
            // Smaller groups have room for more inodes, and for another part of the last one.
            if wanted_inodes.div_ceil(groups.into()) > u64::from(units.block_bytes) * 8 {
                if chosen.ro_compat(RoCompat::BIGALLOC) || blocks_per_group < SMALLER_GROUP_MIN_BLOCKS {
                    return refuse(format!(
                        "{wanted_inodes} inodes are too many for {groups} groups; take fewer (-N), or more bytes \
                         for each (-i)"
                    ));
                }
                blocks_per_group -= 8;
                clusters_per_group = blocks_per_group;
                blocks = all_blocks;
                continue;
            }
            let inodes_per_group = inodes_per_group(options, units, wanted_inodes, groups)?;
            let per_block = units.descriptors_per_block(chosen);
            let descriptor_blocks = groups.div_ceil(per_block);
            if blocks > u64::from(u32::MAX) {
                let reason = "it cannot name blocks past 2^32";
                chosen.give_up_if_set(Compat::RESIZE_INODE.into(), reason)?;
            }
            let reserved_descriptor_blocks = if chosen.compat(Compat::RESIZE_INODE) {
                for_growth.unwrap_or_else(|| {
                    let largest = (blocks * 1024).min(u64::from(u32::MAX)) - u64::from(first_data_block);
                    let all = largest.div_ceil(blocks_per_group.into()).div_ceil(per_block.into());
                    all.saturating_sub(descriptor_blocks.into()).min(u64::from(units.block_bytes / 4)) as u32
                })
            } else {
                0
            };
            let at_start = 1 + descriptor_blocks + reserved_descriptor_blocks;
            if !chosen.incompat(Incompat::META_BG) && at_start - 1 > blocks_per_group / 4 * 3 {
                let reason = "the group descriptors would fill whole groups";
                chosen.give_up_if_set(Compat::RESIZE_INODE.into(), reason)?;
                chosen.add(Incompat::META_BG.into());
                continue;
            }
            // The last group must have room for what it would keep, and some more.
            let table = (u64::from(inodes_per_group) * u64::from(units.inode_bytes))
                .div_ceil(u64::from(units.block_bytes));
            let mut kept = 2 + table;
            if has_backup(chosen, groups - 1, groups) {
                kept += u64::from(at_start);
            }
            let front = if chosen.incompat(Incompat::META_BG) { 2 } else { at_start };
            if 2 + table + u64::from(front) > u64::from(blocks_per_group) {
                return refuse(format!(
                    "{wanted_inodes} inodes are too many for groups of {blocks_per_group} blocks; take fewer (-N), or \
                     more bytes for each (-i)"
                ));
            }
            let rest = in_groups % u64::from(blocks_per_group);
            if rest != 0 && groups == 1 && rest < kept {
                return too_small();
            }
            if rest != 0 && groups > 1 && rest < kept + LAST_GROUP_MIN_BLOCKS {
                blocks -= rest;
                without_last = Some(blocks);
                continue;
            }
            return Ok(Self {
                blocks,
                asked,
                without_last,
                first_data_block,
                clusters_per_group,
                blocks_per_group,
                groups,
                inodes_per_group,
                reserved_descriptor_blocks,
            });
        }
    }
}

/// Blocks of descriptors that are reserved for growth from `asked` blocks to `wanted`. As in mke2fs, in groups of as many
/// blocks as a bitmap counts or `-g` says, whatever groups are made, and although `-g` counts clusters with `bigalloc`.
fn for_growth(options: &MkfsOptions, units: &Units, chosen: &Chosen, asked: u64, wanted: u64) -> u32 {
    let per_group = u64::from(options.per_group.unwrap_or(units.block_bytes * 8));
    let per_block = u64::from(units.descriptors_per_block(chosen));
    let descriptor_blocks = |blocks: u64| blocks.div_ceil(per_group).div_ceil(per_block);
    let more = descriptor_blocks(wanted).saturating_sub(descriptor_blocks(asked));
    more.min(u64::from(units.block_bytes / 4)) as u32
}

fn clusters_per_group(options: &MkfsOptions, units: &Units) -> Result<u32, MkfsError> {
    let most = (units.block_bytes * 8).min(CLUSTERS_PER_GROUP_MAX);
    let Some(count) = options.per_group else { return Ok(most) };
    if count < 256 || count > most || !count.is_multiple_of(8) {
        return refuse(format!("groups of {count}: take a multiple of 8 from 256 to {most}"));
    }
    Ok(count)
}

fn wanted_inodes(options: &MkfsOptions, usual: &Usual, units: &Units, size: u64) -> Result<u64, MkfsError> {
    let block_bytes = u64::from(units.block_bytes);
    let size = size / block_bytes * block_bytes;
    let wanted = match (options.inodes, options.bytes_per_inode) {
        (Some(count @ 1..), _) => u64::from(count),
        // Where there would be none, as many as libext2fs has by itself.
        (_, Some(ratio)) if (1024..=1 << 26).contains(&ratio) && size < ratio => size / 4096,
        (_, Some(ratio)) if (1024..=1 << 26).contains(&ratio) => size / ratio,
        (_, Some(ratio)) => {
            return refuse(format!("an inode for every {ratio} bytes: take 1024 to 67108864"));
        }
        _ => size / usual.bytes_per_inode.max(units.least_bytes_per_inode.into()),
    };
    let wanted = wanted.clamp(INODES_MIN, u64::from(u32::MAX));
    if wanted * u64::from(units.inode_bytes) >= size {
        return refuse(format!(
            "{wanted} inodes of {} bytes are too many for {size} bytes; take fewer (-N), or more bytes for each (-i)",
            units.inode_bytes
        ));
    }
    Ok(wanted)
}

/// As many as fill whole blocks of inode table, in eights.
fn inodes_per_group(
    options: &MkfsOptions,
    units: &Units,
    wanted: u64,
    groups: u32,
) -> Result<u32, MkfsError> {
    let (block_bytes, inode_bytes) = (u64::from(units.block_bytes), u64::from(units.inode_bytes));
    let most = (block_bytes * 8).min((1 << 16) - block_bytes / inode_bytes);
    let share = wanted.div_ceil(u64::from(groups));
    if share > most && options.inodes.is_some() {
        let all = most * u64::from(groups);
        return refuse(format!("{wanted} inodes are too many for {groups} groups; {all} are the most"));
    }
    let table_blocks = (share.min(most) * inode_bytes).div_ceil(block_bytes);
    if u64::from(groups) * 8 > u64::from(u32::MAX) {
        return refuse(format!(
            "{groups} groups of 8 inodes each have more inodes than can be counted; take larger groups (-g), or larger \
             blocks (-b)"
        ));
    }
    let mut count = ((table_blocks * block_bytes / inode_bytes).min(most) & !7).max(8);
    while count * u64::from(groups) > u64::from(u32::MAX) {
        count -= 8;
    }
    Ok(count as u32)
}

/// Whether a group will begin with a copy of the superblock; decided here before there is one to ask.
fn has_backup(chosen: &Chosen, group: u32, groups: u32) -> bool {
    let power_of = |base: u32| {
        let mut n = group;
        while n > 1 && n.is_multiple_of(base) {
            n /= base;
        }
        n == 1
    };
    if group == 0 {
        true
    } else if chosen.compat(Compat::SPARSE_SUPER2) {
        backup_groups(groups).contains(&group)
    } else if chosen.ro_compat(RoCompat::SPARSE_SUPER) {
        [3, 5, 7].into_iter().any(power_of)
    } else {
        true
    }
}

/// With `sparse_super2`: the second group and the last.
fn backup_groups(groups: u32) -> [u32; 2] {
    match groups {
        0 | 1 => [0, 0],
        2 => [1, 0],
        _ => [1, groups - 1],
    }
}

/// Blocks of the orphan file of a filesystem of so many blocks.
pub(crate) fn orphan_file_blocks(blocks: u64) -> u32 {
    (blocks / 4096).clamp(32, 512) as u32
}

/// Blocks of a journal where no size is asked for; `None` where a filesystem of so many blocks has no room for one.
pub(crate) fn usual_journal_blocks(blocks: u64) -> Option<u64> {
    match blocks {
        0..2048 => None,
        2048..0x8000 => Some(1024),
        0x8000..0x4_0000 => Some(4096),
        0x4_0000..0x8_0000 => Some(8192),
        0x8_0000..0x40_0000 => Some(16384),
        0x40_0000..0x80_0000 => Some(0x8000),
        0x80_0000..0x100_0000 => Some(0x1_0000),
        0x100_0000..0x200_0000 => Some(0x2_0000),
        _ => Some(0x4_0000),
    }
}

/// Blocks of the log, and of its area of fast commits among them.
fn journal(
    options: &MkfsOptions,
    chosen: &mut Chosen,
    groups: &Groups,
    units: &Units,
) -> Result<(u32, u32), MkfsError> {
    if !chosen.compat(Compat::HAS_JOURNAL) {
        return if options.journal_bytes.is_some() {
            refuse("a journal size means nothing without the feature has_journal; add it with -O has_journal")
        } else {
            Ok((0, 0))
        };
    }
    let usual = usual_journal_blocks(groups.blocks);
    let asked = options.journal_bytes.map(|bytes| bytes / u64::from(units.block_bytes));
    let (Some(log), usual) = (asked.or(usual), usual.unwrap_or(JOURNAL_MIN_BLOCKS)) else {
        chosen.give_up_without_journal("2048 blocks are the least that have room for a journal")?;
        return Ok((0, 0));
    };
    if !(JOURNAL_MIN_BLOCKS..=JOURNAL_MAX_BLOCKS).contains(&log) {
        return refuse(format!(
            "a journal of {log} blocks: take {JOURNAL_MIN_BLOCKS} to {JOURNAL_MAX_BLOCKS} blocks of {} bytes",
            units.block_bytes
        ));
    }
    if log >= groups.blocks {
        return refuse(format!(
            "a journal of {log} blocks does not fit into a filesystem of {}; make it smaller",
            groups.blocks
        ));
    }
    // As for mke2fs, a size for them means nothing without the feature.
    let asked = options.fast_commit_bytes.filter(|&bytes| bytes > 0 && chosen.compat(Compat::FAST_COMMIT));
    let fast_commits = match asked {
        None if !chosen.compat(Compat::FAST_COMMIT) => 0,
        None => usual / JOURNAL_BLOCKS_PER_FAST_COMMIT_BLOCK,
        Some(bytes) => bytes / u64::from(units.block_bytes),
    };
    if asked.is_some() && !(1..=log).contains(&fast_commits) {
        return refuse(format!(
            "{fast_commits} blocks for fast commits: take 1 to {log}, as the journal has"
        ));
    }
    if log + fast_commits >= groups.blocks {
        return refuse(format!(
            "a journal of {log} blocks, and {fast_commits} for fast commits, do not fit into a filesystem of {}; make \
             them smaller",
            groups.blocks
        ));
    }
    Ok(((log + fast_commits) as u32, fast_commits as u32))
}

/// Blocks of the orphan file that is made; 0 without one.
fn orphan_file(
    options: &MkfsOptions,
    chosen: &Chosen,
    groups: &Groups,
    units: &Units,
) -> Result<u32, MkfsError> {
    let asked = options.orphan_file.map(|amount| amount.in_blocks(units.block_bytes));
    match (chosen.compat(Compat::ORPHAN_FILE), asked) {
        (true, None) => Ok(orphan_file_blocks(groups.blocks)),
        (true, Some(blocks)) => {
            let most = ORPHAN_FILE_MAX_BYTES / units.block_bytes;
            match u32::try_from(blocks) {
                Ok(blocks) if (1..=most).contains(&blocks) => Ok(blocks),
                _ => refuse(format!("an orphan file of {blocks} blocks: take 1 to {most}")),
            }
        }
        (false, None) => Ok(0),
        (false, Some(_)) => refuse(
            "a size of the orphan file means nothing without the feature orphan_file; add it with -O orphan_file",
        ),
    }
}

fn encode(
    options: &MkfsOptions,
    usual: &Usual,
    device: &dyn BlockDevice,
    chosen: &Chosen,
    units: &Units,
    groups: &Groups,
) -> Result<RawSuperblock, MkfsError> {
    let mut raw = RawSuperblock::new_zeroed();
    encode_sizes(&mut raw, options, usual, chosen, units, groups)?;
    encode_identity(&mut raw, options, chosen)?;
    encode_settings(&mut raw, options, usual, chosen)?;
    encode_stripe(&mut raw, options, device, units);
    Ok(raw)
}

fn encode_sizes(
    raw: &mut RawSuperblock,
    options: &MkfsOptions,
    usual: &Usual,
    chosen: &Chosen,
    units: &Units,
    groups: &Groups,
) -> Result<(), MkfsError> {
    let percent = options.reserved_percent.unwrap_or(usual.reserved_percent);
    if !(0.0..=50.0).contains(&percent) {
        return refuse(format!("{percent}% kept for the superuser: take 0 to 50"));
    }
    // Exact as far as a double is, as in mke2fs, whose numbers these are to be: rounded down once, and once more where a
    // last group is left out.
    let mut reserved = (percent * groups.asked as f64 / 100.0) as u64;
    if let Some(left) = groups.without_last {
        reserved = (reserved as f64 / groups.asked as f64 * left as f64) as u64;
    }
    if let Some(together) = options.groups_per_flex.filter(|together| !together.is_power_of_two()) {
        return refuse(format!("flex groups of {together}: take a power of two"));
    }
    raw.s_inodes_count.set(groups.inodes_per_group * groups.groups);
    raw.s_blocks_count_lo.set(groups.blocks as u32);
    raw.s_blocks_count_hi.set((groups.blocks >> 32) as u32);
    raw.s_r_blocks_count_lo.set(reserved as u32);
    raw.s_r_blocks_count_hi.set((reserved >> 32) as u32);
    raw.s_first_data_block.set(groups.first_data_block);
    raw.s_log_block_size.set(units.block_bytes.ilog2() - 10);
    raw.s_log_cluster_size.set(units.cluster_bytes.ilog2() - 10);
    raw.s_blocks_per_group.set(groups.blocks_per_group);
    raw.s_clusters_per_group.set(groups.clusters_per_group);
    raw.s_inodes_per_group.set(groups.inodes_per_group);
    raw.s_first_ino.set(super::FIRST_INODE);
    raw.s_inode_size.set(units.inode_bytes);
    raw.s_reserved_gdt_blocks.set(groups.reserved_descriptor_blocks as u16);
    if chosen.incompat(Incompat::SIXTY_FOUR_BIT) {
        raw.s_desc_size.set(64);
    }
    if units.inode_bytes > 128 {
        raw.s_min_extra_isize.set(super::EXTRA_INODE_BYTES);
        raw.s_want_extra_isize.set(super::EXTRA_INODE_BYTES);
    }
    if chosen.compat(Compat::SPARSE_SUPER2) {
        raw.s_backup_bgs = backup_groups(groups.groups).map(Into::into);
    }
    if chosen.incompat(Incompat::FLEX_BG) {
        let together = options.groups_per_flex.unwrap_or(usual.groups_per_flex);
        raw.s_log_groups_per_flex = together.checked_ilog2().unwrap_or(0) as u8;
    } else if options.groups_per_flex.is_some() {
        return refuse(
            "the size of flex groups means nothing without the feature flex_bg; add it with -O flex_bg",
        );
    }
    Ok(())
}

fn encode_identity(raw: &mut RawSuperblock, options: &MkfsOptions, chosen: &Chosen) -> Result<(), MkfsError> {
    let Some(label) = raw.s_volume_name.get_mut(..options.label.len()) else {
        return refuse(format!("the label has {} bytes; 16 are the most", options.label.len()));
    };
    label.copy_from_slice(&options.label);
    raw.s_magic.set(crate::superblock::MAGIC);
    raw.s_rev_level.set(1);
    raw.s_state.set(crate::superblock::State::CLEAN.bits());
    raw.s_feature_compat.set(chosen.features.compat.bits());
    raw.s_feature_incompat.set(chosen.features.incompat.bits());
    raw.s_feature_ro_compat.set(chosen.features.ro_compat.bits());
    raw.s_uuid = options.uuid.map_or_else(random_uuid, Ok)?.into_bytes();
    let seed = options.hash_seed.map_or_else(random_uuid, Ok)?.into_bytes();
    for (word, bytes) in raw.s_hash_seed.iter_mut().zip(seed.chunks_exact(4)) {
        word.set(bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte)));
    }
    if chosen.ro_compat(RoCompat::METADATA_CSUM) {
        raw.s_checksum_type = 1;
    }
    if chosen.incompat(Incompat::CSUM_SEED) {
        raw.s_checksum_seed.set(crc32c(!0, &raw.s_uuid));
    }
    let seconds = super::now(options).seconds;
    let (low, high) = (seconds as u32, (seconds >> 32) as u8);
    for (field, field_high) in [
        (&mut raw.s_mkfs_time, &mut raw.s_mkfs_time_hi),
        (&mut raw.s_wtime, &mut raw.s_wtime_hi),
        (&mut raw.s_lastcheck, &mut raw.s_lastcheck_hi),
    ] {
        field.set(low);
        *field_high = high;
    }
    Ok(())
}

/// How the kernel treats it. Comes after the UUID, which decides after how many mounts a check is due.
fn encode_settings(
    raw: &mut RawSuperblock,
    options: &MkfsOptions,
    usual: &Usual,
    chosen: &Chosen,
) -> Result<(), MkfsError> {
    let on_error = options.on_error.unwrap_or(usual.on_error);
    raw.s_errors.set(on_error as u16);
    let mounts = if usual.periodic_check {
        raw.s_checkinterval.set(CHECK_INTERVAL_S);
        let sum: u16 = raw.s_uuid.iter().map(|&byte| u16::from(byte)).sum();
        CHECKED_MOUNTS + sum % CHECKED_MOUNTS
    } else {
        u16::MAX
    };
    raw.s_max_mnt_count.set(mounts);
    raw.s_def_hash_version = usual.hash as u8;
    // Names are hashed as signed characters, as on x86; 4 says that the filesystem is for tests.
    raw.s_flags.set(if options.for_tests { 1 | 4 } else { 1 });
    raw.s_default_mount_opts.set(usual.mount_options);
    let Some(mounted) = raw.s_last_mounted.get_mut(..options.last_mounted.len()) else {
        return refuse(format!(
            "the last mount point has {} bytes; 64 are the most",
            options.last_mounted.len()
        ));
    };
    mounted.copy_from_slice(&options.last_mounted);
    if chosen.incompat(Incompat::CASEFOLD) {
        // UTF-8 of Unicode 12.1.
        raw.s_encoding.set(1);
        raw.s_encoding_flags.set(options.strict_encoding.into());
    } else if options.strict_encoding {
        return refuse("an encoding means nothing without the feature casefold; add it with -O casefold");
    }
    let asked_s = options.mmp_interval_s.filter(|&seconds| seconds > 0);
    let interval_s = asked_s.unwrap_or(mmp::DEFAULT_INTERVAL_SECONDS);
    if chosen.incompat(Incompat::MMP) {
        if !(1..=MMP_INTERVAL_MAX_S).contains(&interval_s) {
            return refuse(format!("marks every {interval_s} seconds: take 1 to {MMP_INTERVAL_MAX_S}"));
        }
        raw.s_mmp_interval.set(interval_s);
    } else if asked_s.is_some() {
        return refuse("an interval of marks means nothing without the feature mmp; add it with -O mmp");
    }
    Ok(())
}

/// The device's stripes, unless others were given. A chunk of one block is no stripe.
fn encode_stripe(raw: &mut RawSuperblock, options: &MkfsOptions, device: &dyn BlockDevice, units: &Units) {
    let topology = device.topology();
    let (chunk, stripe) = if topology.minimum_io_bytes > units.block_bytes {
        (topology.minimum_io_bytes / units.block_bytes, topology.optimal_io_bytes / units.block_bytes)
    } else {
        (0, 0)
    };
    raw.s_raid_stride.set(options.stride_blocks.unwrap_or(chunk.try_into().unwrap_or(0)));
    raw.s_raid_stripe_width.set(options.stripe_width_blocks.unwrap_or(stripe));
}
