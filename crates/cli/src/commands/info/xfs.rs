//! What `info` shows of an XFS filesystem: its geometry in the words of xfs_info, how full its allocation groups are,
//! and its free space by the length of its pieces.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use serde::{Deserialize, Serialize};
use undercroft_vfs::{Error, FileSystem, StatFs};
use undercroft_xfs::{FreeExtents, Incompat, QuotaFlags, RoCompat, Superblock, Xfs};

use super::{PICTURE_COLUMNS, shade};
use crate::commands::mounts::MountRecord;
use crate::failure::Failure;
use crate::image::recovery::XfsRecovery;
use crate::text::human;
use crate::text::names::{Label, safe};
use crate::text::out::Out;
use crate::text::style;

/// The blocks in which a log is counted.
const LOG_BLOCK_BYTES: u64 = 512;
/// A column of groups that could not be read.
const UNREAD: char = '?';

/// What is shown of an XFS filesystem.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    filesystem: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
    #[serde(flatten)]
    pub(super) label: Label,
    uuid: String,
    /// The UUID that metadata carries, where it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_uuid: Option<String>,
    version: u8,
    /// Whether the log held nothing to replay; `None` where it was not read.
    log_clean: Option<bool>,
    /// Where the log begins and ends, in its blocks of 512 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    log_tail_block: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_head_block: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recovery: Option<XfsRecovery>,
    /// What keeps groups or their free space from being shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
    /// Groups that could not be read, or not all of what tells their free space, as behind the end of an image that is cut
    /// short.
    #[serde(default)]
    groups_unread: u32,
    /// Of these, those behind so many others that they were not tried.
    #[serde(default)]
    groups_untried: u32,
    size_bytes: u64,
    blocks_for_files: u64,
    blocks_free: u64,
    inodes: u64,
    inodes_free: u64,
    geometry: Geometry,
    quota: Vec<String>,
    /// How full the groups are in percent, first to last; neighbours are put together where there are many. `None` where
    /// none of them could be read.
    group_map_percent: Vec<Option<u8>>,
    /// Free space by the length of its pieces, in the groups that could be read.
    free_space: Vec<FreeSpace>,
    /// Where it is mounted now, and how it is doing there.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    mount: Option<MountRecord>,
}

/// The geometry, by the names that xfs_info has for its parts.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Geometry {
    isize: u32,
    agcount: u32,
    agsize: u32,
    sectsz: u32,
    attr: u8,
    projid32bit: u8,
    crc: u8,
    finobt: u8,
    sparse: u8,
    rmapbt: u8,
    reflink: u8,
    bigtime: u8,
    inobtcount: u8,
    nrext64: u8,
    exchange: u8,
    parent: u8,
    bsize: u32,
    blocks: u64,
    imaxpct: u8,
    sunit: u32,
    swidth: u32,
    naming_bsize: u32,
    ascii_ci: u8,
    ftype: u8,
    log_internal: bool,
    log_blocks: u32,
    log_version: u8,
    log_sectsz: u32,
    log_sunit: u32,
    lazy_count: u8,
}

/// Free pieces from this length on, to before the next power of two.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct FreeSpace {
    from_blocks: u32,
    extents: u64,
    blocks: u64,
}

impl Report {
    /// Of a filesystem that is open.
    pub(super) fn of(xfs: &Xfs, partition: Option<u32>) -> Result<Self, Error> {
        let superblock = xfs.superblock();
        let StatFs { blocks, blocks_free, inodes, inodes_free, .. } = xfs.statfs()?;
        let (uuid, metadata_uuid) = (superblock.uuid(), superblock.meta_uuid());
        let mut damage = None;
        let mut unread = Unread::new(superblock.geometry().ag_count());
        let group_map_percent = unless_damaged(group_map(xfs, &mut unread), &mut damage)?;
        let free_space = unless_damaged(free_space(xfs, &mut unread), &mut damage)?;
        Ok(Self {
            filesystem: xfs.kind().to_owned(),
            partition,
            label: superblock.label().to_vec().into(),
            uuid: uuid.to_string(),
            metadata_uuid: (metadata_uuid != uuid).then(|| metadata_uuid.to_string()),
            version: superblock.features().version(),
            log_clean: xfs.log_position().map(|_| xfs.recovery().is_none()),
            log_tail_block: xfs.log_position().map(|log| log.tail_block),
            log_head_block: xfs.log_position().map(|log| log.head_block),
            recovery: xfs.recovery().map(XfsRecovery::from),
            damage,
            groups_unread: unread.count(),
            groups_untried: unread.untried(),
            size_bytes: superblock.geometry().data_bytes(),
            blocks_for_files: blocks,
            blocks_free,
            inodes,
            inodes_free,
            geometry: Geometry::of(superblock),
            quota: quota_words(superblock.quota_flags()),
            group_map_percent,
            free_space,
            mount: None,
        })
    }

    pub(super) fn with_mount(self, label: Label, mount: MountRecord) -> Self {
        Self { label, mount: Some(mount), ..self }
    }

    /// As people read it.
    pub(super) fn text(&self, out: &mut Out) -> Result<(), Failure> {
        let palette = out.palette;
        let label = safe(&self.label.raw);
        let title = if label.is_empty() { "without a label".to_owned() } else { format!("\"{label}\"") };
        let place = self.partition.map_or_else(String::new, |number| format!(", partition {number}"));
        writeln!(out, "{} {title}{place}", palette.paint(style::HEADING, &self.filesystem))?;
        let mut line = |label: &str, value: &str| {
            writeln!(out, "  {} {value}", palette.paint(style::DIM, &format!("{label:<9}")))
        };
        line("uuid", &self.uuid)?;
        if let Some(uuid) = &self.metadata_uuid {
            line("", &format!("metadata carries {uuid}"))?;
        }
        let is_good = self.log_clean == Some(true) && self.damage.is_none() && self.groups_unread == 0;
        let colour = if is_good { style::GOOD } else { style::WARN };
        for (number, sentence) in self.state_sentences().into_iter().enumerate() {
            line(if number == 0 { "state" } else { "" }, &palette.paint(colour, &sentence))?;
        }
        if let Some(mount) = &self.mount {
            line("mount", &mount.place())?;
        }
        let block_bytes = u64::from(self.geometry.bsize);
        let bytes = |blocks: u64| human::size(blocks.saturating_mul(block_bytes));
        line(
            "size",
            &format!(
                "{} in {} of {}",
                human::size(self.size_bytes),
                human::counted(self.geometry.blocks, "block"),
                human::size(block_bytes)
            ),
        )?;
        let bar = |part, whole| {
            let bar = palette.paint(style::PICTURE, &human::bar(part, whole, PICTURE_COLUMNS));
            format!("{bar} {}", human::percent(part, whole))
        };
        let used = self.blocks_for_files.saturating_sub(self.blocks_free);
        line("space", &bar(used, self.blocks_for_files))?;
        line("", &format!("{} used, {} free", bytes(used), bytes(self.blocks_free)))?;
        let inodes_used = self.inodes.saturating_sub(self.inodes_free);
        line("inodes", &bar(inodes_used, self.inodes))?;
        let free = human::count(self.inodes_free);
        let inode_bytes = self.geometry.isize;
        line("", &format!("{} used, {free} free, of {inode_bytes} bytes", human::count(inodes_used)))?;
        let per_column = (self.geometry.agcount as usize).div_ceil(self.group_map_percent.len().max(1));
        let map: String =
            self.group_map_percent.iter().map(|percent| percent.map_or(UNREAD, shade)).collect();
        line(
            "groups",
            &if map.is_empty() { "damaged".to_owned() } else { palette.paint(style::PICTURE, &map) },
        )?;
        let legend =
            if per_column > 1 { format!("; a column is {per_column} groups") } else { String::new() };
        let unread = if map.contains(UNREAD) { format!(", {UNREAD} not read") } else { String::new() };
        let groups = human::counted(self.geometry.agcount.into(), "allocation group");
        let of = human::count(self.geometry.agsize.into());
        line("", &format!("{groups} of {of} blocks, the taller the fuller{unread}{legend}"))?;
        if let (Some(tail), Some(head)) = (self.log_tail_block, self.log_head_block) {
            let blocks = u64::from(self.geometry.log_blocks) * block_bytes / LOG_BLOCK_BYTES;
            let of = format!("of {} blocks of {LOG_BLOCK_BYTES} bytes", human::count(blocks));
            let words = match self.log_clean {
                Some(true) => format!("clean, it goes on at {} {of}", human::count(head.into())),
                _ => format!(
                    "holds changes from {} (tail) to {} (head) {of}",
                    human::count(tail.into()),
                    human::count(head.into())
                ),
            };
            line("log", &words)?;
        }
        if !self.quota.is_empty() {
            line("quota", &self.quota.join(", "))?;
        }
        self.free_space_text(&mut line)?;
        writeln!(out, "{}", self.geometry)?;
        Ok(())
    }

    fn state_sentences(&self) -> Vec<String> {
        let mut sentences: Vec<String> = self.mount.iter().map(MountRecord::state).collect();
        if let Some(recovery) = &self.recovery {
            sentences.push(format!("was not unmounted; replayed in memory: {}", recovery.words()));
            sentences.push("the image itself was not written".to_owned());
            if recovery.unlinked_inodes > 0 {
                let deleted = human::counted(recovery.unlinked_inodes, "deleted file");
                sentences.push(format!("{deleted} still held space when the system stopped"));
            }
            if recovery.broken_unlinked_lists > 0 {
                let lists = human::counted(recovery.broken_unlinked_lists, "list");
                sentences.push(format!("{lists} of deleted files cannot be followed; use xfs_repair"));
            }
            if recovery.unfinished_steps > 0 {
                let steps = human::counted(recovery.unfinished_steps, "interrupted step");
                sentences.push(format!("{steps} will be finished by the next mount"));
            }
        }
        if let Some(damage) = &self.damage {
            sentences.push(safe(damage.as_bytes()));
            sentences.push("is damaged; `undercroft check` tells more".to_owned());
        }
        if self.log_clean.is_none() {
            sentences.push("not known: the log was not read".to_owned());
        }
        if self.groups_unread > 0 {
            sentences.push(unread_sentence(self.geometry.agcount, self.groups_unread, self.groups_untried));
        }
        if sentences.is_empty() {
            sentences.push("clean".to_owned());
        }
        sentences
    }

    fn free_space_text(
        &self,
        line: &mut impl FnMut(&str, &str) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let all: u64 = self.free_space.iter().map(|part| part.blocks).sum();
        for (number, part) in self.free_space.iter().enumerate() {
            let label = if number == 0 { "free" } else { "" };
            let to = (u64::from(part.from_blocks) * 2).saturating_sub(1);
            let range = match part.from_blocks {
                1 => "1".to_owned(),
                from => format!("{from}-{to}"),
            };
            let pieces = human::counted(part.extents, "piece");
            let bar = human::bar(part.blocks, all, PICTURE_COLUMNS / 2);
            line(label, &format!("{range:>21} blocks {bar} {pieces}"))?;
        }
        Ok(())
    }
}

impl Geometry {
    pub(crate) fn of(superblock: &Superblock) -> Self {
        let (features, geometry) = (superblock.features(), superblock.geometry());
        let log_sunit = match superblock.log_stripe_bytes() {
            0 | 1 => 0,
            bytes => bytes / geometry.block_bytes(),
        };
        let (ro_compat, incompat) = (features.ro_compat(), features.incompat());
        Self {
            isize: geometry.inode_bytes(),
            agcount: geometry.ag_count(),
            agsize: geometry.ag_blocks(),
            sectsz: geometry.sector_bytes(),
            attr: match (features.has_attr2(), features.has_attr()) {
                (true, _) => 2,
                (false, true) => 1,
                (false, false) => 0,
            },
            projid32bit: features.has_projid32().into(),
            crc: features.has_crc().into(),
            finobt: features.has_finobt().into(),
            sparse: features.has_sparse_inodes().into(),
            rmapbt: features.has_rmapbt().into(),
            reflink: features.has_reflink().into(),
            bigtime: incompat.contains(Incompat::BIGTIME).into(),
            inobtcount: ro_compat.contains(RoCompat::INOBTCOUNT).into(),
            nrext64: incompat.contains(Incompat::NREXT64).into(),
            exchange: incompat.contains(Incompat::EXCHANGE_RANGE).into(),
            parent: incompat.contains(Incompat::PARENT).into(),
            bsize: geometry.block_bytes(),
            blocks: geometry.blocks(),
            imaxpct: superblock.inode_percent(),
            sunit: superblock.stripe_unit_blocks(),
            swidth: superblock.stripe_width_blocks(),
            naming_bsize: geometry.dir_block_bytes(),
            ascii_ci: features.has_ascii_ci().into(),
            ftype: features.has_ftype().into(),
            log_internal: !superblock.has_external_log(),
            log_blocks: superblock.log_blocks(),
            log_version: if features.has_log_v2() { 2 } else { 1 },
            log_sectsz: superblock.log_sector_bytes(),
            log_sunit,
            lazy_count: features.has_lazy_counters().into(),
        }
    }
}

impl std::fmt::Display for Geometry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { isize, agcount, agsize, sectsz, attr, projid32bit, crc, finobt, sparse, rmapbt, .. } =
            self;
        writeln!(
            f,
            "meta-data=                       isize={isize:<6} agcount={agcount}, agsize={agsize} blks"
        )?;
        writeln!(
            f,
            "         =                       sectsz={sectsz:<5} attr={attr}, projid32bit={projid32bit}"
        )?;
        writeln!(
            f,
            "         =                       crc={crc:<8} finobt={finobt}, sparse={sparse}, rmapbt={rmapbt}"
        )?;
        let Self { reflink, bigtime, inobtcount, nrext64, exchange, parent, .. } = self;
        writeln!(
            f,
            "         =                       reflink={reflink:<4} bigtime={bigtime} inobtcount={inobtcount} nrext64={nrext64}"
        )?;
        if *exchange > 0 || *parent > 0 {
            writeln!(f, "         =                       exchange={exchange:<3} parent={parent}")?;
        }
        let Self { bsize, blocks, imaxpct, sunit, swidth, naming_bsize, ascii_ci, ftype, .. } = self;
        writeln!(f, "data     =                       bsize={bsize:<6} blocks={blocks}, imaxpct={imaxpct}")?;
        writeln!(f, "         =                       sunit={sunit:<6} swidth={swidth} blks")?;
        writeln!(
            f,
            "naming   =version 2              bsize={naming_bsize:<6} ascii-ci={ascii_ci}, ftype={ftype}"
        )?;
        let Self { log_internal, log_blocks, log_version, log_sectsz, log_sunit, lazy_count, .. } = self;
        let log = if *log_internal { "internal log" } else { "external" };
        writeln!(f, "log      ={log:<22} bsize={bsize:<6} blocks={log_blocks}, version={log_version}")?;
        writeln!(
            f,
            "         =                       sectsz={log_sectsz:<5} sunit={log_sunit} blks, lazy-count={lazy_count}"
        )?;
        write!(f, "realtime =none                   extsz=4096   blocks=0, rtextents=0")
    }
}

/// `users accounted and enforced`, for each kind of quota that is accounted.
fn quota_words(flags: QuotaFlags) -> Vec<String> {
    [
        ("users", QuotaFlags::USER_ACCOUNTED, QuotaFlags::USER_ENFORCED),
        ("groups", QuotaFlags::GROUP_ACCOUNTED, QuotaFlags::GROUP_ENFORCED),
        ("projects", QuotaFlags::PROJECT_ACCOUNTED, QuotaFlags::PROJECT_ENFORCED),
    ]
    .into_iter()
    .filter(|&(_, accounted, _)| flags.contains(accounted))
    .map(|(whose, _, enforced)| {
        let enforced = if flags.contains(enforced) { " and enforced" } else { "" };
        format!("{whose} accounted{enforced}")
    })
    .collect()
}

/// What was read, or nothing and in `damage` why not.
fn unless_damaged<T>(read: Result<Vec<T>, Error>, damage: &mut Option<String>) -> Result<Vec<T>, Error> {
    match read {
        Err(Error::Corrupt(corruption)) => {
            damage.get_or_insert(corruption.to_string());
            Ok(Vec::new())
        }
        read => read,
    }
}

/// How many groups do not count for free space, and why.
fn unread_sentence(all: u32, unread: u32, untried: u32) -> String {
    let of = human::counted(all.into(), "allocation group");
    let tried = human::count(unread.saturating_sub(untried).into());
    let untried = match untried {
        0 => String::new(),
        untried => format!(", and {} behind them were not tried", human::count(untried.into())),
    };
    format!("{tried} of {of} cannot be read{untried}; free space there is not counted by its pieces")
}

/// Groups that cannot be read, because they lie behind the end of an image that is cut short or the device fails. A damaged
/// superblock may claim billions, so groups behind [`TRIED_MAX`](Self::TRIED_MAX) of them are not tried.
struct Unread {
    tried: BTreeSet<u32>,
    /// How many groups there are before those that are not tried.
    tried_end: u32,
    all: u32,
}

impl Unread {
    const TRIED_MAX: usize = 100;

    fn new(all: u32) -> Self {
        Self { tried: BTreeSet::new(), tried_end: all, all }
    }

    /// Adds a group; whether the next one is to be tried.
    fn add(&mut self, group: u32) -> bool {
        if self.tried.insert(group) && self.tried.len() >= Self::TRIED_MAX {
            self.tried_end = self.tried_end.min(group.saturating_add(1));
        }
        group.saturating_add(1) < self.tried_end
    }

    fn count(&self) -> u32 {
        self.tried.range(..self.tried_end).count() as u32 + self.untried()
    }

    fn untried(&self) -> u32 {
        self.all - self.tried_end
    }
}

/// How full the groups are, put together to at most as many as a picture has columns. Groups that cannot be read do not
/// count.
fn group_map(xfs: &Xfs, unread: &mut Unread) -> Result<Vec<Option<u8>>, Error> {
    let usage = xfs.ag_usage();
    let groups = usage.len();
    let per_column = groups.div_ceil(PICTURE_COLUMNS).max(1);
    let mut columns: Vec<(u64, u64)> = vec![(0, 0); groups.div_ceil(per_column)];
    for (group, usage) in (0..).zip(usage) {
        let usage = match usage {
            Err(Error::Io(_)) if unread.add(group) => continue,
            Err(Error::Io(_)) => break,
            usage => usage?,
        };
        let column = &mut columns[group as usize / per_column];
        column.0 += u64::from(usage.blocks.saturating_sub(usage.free_blocks));
        column.1 += u64::from(usage.blocks);
    }
    let percent = |(used, all): (u64, u64)| (used * 100).checked_div(all).map(|percent| percent as u8);
    Ok(columns.into_iter().map(percent).collect())
}

/// The free space of all groups by the length of its pieces, but of those that cannot be read.
fn free_space(xfs: &Xfs, unread: &mut Unread) -> Result<Vec<FreeSpace>, Error> {
    let mut by_length: BTreeMap<u32, FreeSpace> = BTreeMap::new();
    for group in 0..xfs.superblock().geometry().ag_count() {
        let found = match xfs.free_extents(group) {
            Err(Error::Io(_)) if unread.add(group) => continue,
            Err(Error::Io(_)) => break,
            found => found?,
        };
        for FreeExtents { from_blocks, extents, blocks } in found {
            let part =
                by_length.entry(from_blocks).or_insert(FreeSpace { from_blocks, extents: 0, blocks: 0 });
            part.extents += extents;
            part.blocks += blocks;
        }
    }
    Ok(by_length.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::{Unread, unread_sentence};

    #[test]
    fn not_all_of_billions_of_groups_are_tried() {
        let mut unread = Unread::new(4);
        assert!(unread.add(2) && unread.add(1) && unread.add(2));
        assert_eq!(unread.count(), 2);
        let mut unread = Unread::new(u32::MAX);
        assert!(unread.add(3));
        let tried = (10..u32::MAX).find(|&group| !unread.add(group)).unwrap();
        assert_eq!((tried, unread.count(), unread.untried()), (108, u32::MAX - 9, u32::MAX - 109));
        // What looks at the groups once more stops at the same one.
        assert!(unread.add(3) && (10..108).all(|group| unread.add(group)) && !unread.add(108));
        assert_eq!(unread.count(), u32::MAX - 9);
    }

    #[test]
    fn groups_that_were_not_tried_are_not_called_unreadable() {
        assert_eq!(
            unread_sentence(4, 2, 0),
            "2 of 4 allocation groups cannot be read; free space there is not counted by its pieces"
        );
        let sentence = unread_sentence(1000, 700, 600);
        assert!(
            sentence.contains(
                "100 of 1,000 allocation groups cannot be read, and 600 behind them were not tried"
            )
        );
    }
}
