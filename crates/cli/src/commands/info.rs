//! `info`: what a filesystem is, what state it was left in, and how full it is.

mod settings;
pub(crate) mod xfs;

use std::borrow::Cow;
use std::io::Write;

use serde::{Deserialize, Serialize};
use undercroft_ext4::{Ext4, State, Superblock};
use undercroft_vfs::{Error, FileSystem, StatFs, Timestamp};

use self::settings::Settings;
use super::disk::DiskReport;
use super::mounts::MountRecord;
use crate::control::client::{self, Live};
use crate::control::protocol::{Answer, Bytes, Request, Served, Space, no_answer};
use crate::exit::Kind;
use crate::failure::Failure;
use crate::image::recovery::Ext4Recovery;
use crate::image::{self, Filesystem, Opened};
use crate::plan::{Format, ImageSpec};
use crate::text::human;
use crate::text::names::{Label, MountedOn, safe};
use crate::text::out::Out;
use crate::text::style;

/// Columns of the bars and of the group map.
const PICTURE_COLUMNS: usize = 48;

/// What is shown of an ext filesystem.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// ext2, ext3 or ext4.
    filesystem: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
    #[serde(flatten)]
    label: Label,
    uuid: String,
    /// Where it was mounted last, from the superblock.
    #[serde(flatten)]
    last_mounted: MountedOn,
    state: Condition,
    #[serde(skip_serializing_if = "Option::is_none")]
    recovery: Option<Ext4Recovery>,
    size_bytes: u64,
    block_bytes: u32,
    blocks: u64,
    cluster_bytes: u32,
    blocks_for_files: u64,
    blocks_free: u64,
    blocks_available: u64,
    inode_bytes: u16,
    inodes: u64,
    inodes_free: u64,
    groups: u32,
    blocks_per_group: u32,
    inodes_per_group: u32,
    /// How full the groups are in percent, first to last; neighbours are put together where there are many.
    group_map_percent: Vec<u8>,
    journal: Journal,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<Cow<'static, str>>,
    created: Option<String>,
    mounted: Option<String>,
    written: Option<String>,
    checked: Option<String>,
    mounts_since_check: u16,
    /// Mounts after which it is to be checked; `None` for any number.
    #[serde(default)]
    mounts_most: Option<u16>,
    /// Seconds after which it is to be checked; `None` for any time.
    #[serde(default)]
    check_interval_seconds: Option<u32>,
    /// What the kernel does when it finds damage, by tune2fs's word.
    #[serde(default)]
    on_error: Option<Cow<'static, str>>,
    #[serde(flatten)]
    settings: Settings,
    lifetime_writes_kib: u64,
    features: Vec<String>,
    /// Where it is mounted now, and how it is doing there.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    mount: Option<MountRecord>,
    #[serde(skip)]
    times: [Timestamp; 4],
    /// The first superblock, which knows how it was left, is not there.
    #[serde(skip)]
    through_copy: bool,
}

/// What is shown of a filesystem, by its kind.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum AnyReport {
    Ext(Box<Report>),
    Xfs(Box<xfs::Report>),
}

impl AnyReport {
    fn of(opened: &Opened) -> Result<Self, Error> {
        Ok(match &opened.filesystem {
            Filesystem::Ext4(ext4) => Self::Ext(Box::new(report_of(ext4, opened.partition, None)?)),
            Filesystem::Xfs(xfs) => Self::Xfs(Box::new(xfs::Report::of(xfs, opened.partition)?)),
        })
    }

    fn text(&self, out: &mut Out) -> Result<(), Failure> {
        match self {
            Self::Ext(report) => report.text(out),
            Self::Xfs(report) => report.text(out),
        }
    }
}

/// What is shown of a mounted filesystem that has no report of its own kind.
#[derive(Debug, Serialize)]
struct Other {
    filesystem: String,
    size_bytes: u64,
    block_bytes: u32,
    blocks: u64,
    blocks_free: u64,
    blocks_available: u64,
    inodes: u64,
    inodes_free: u64,
    mount: MountRecord,
}

/// What the server of a mount tells.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LiveReport {
    served: Served,
    /// Of ext2, ext3 and ext4.
    report: Option<Report>,
    xfs: Option<xfs::Report>,
    label: Bytes,
    last_mounted: Bytes,
    times: [(i64, u32); 4],
}

impl LiveReport {
    /// Of a filesystem that is open. It is mounted, so it is not clean on the disk; what matters is whether it failed.
    pub(crate) fn of(served: Served, filesystem: Option<&Filesystem>) -> Result<Self, Error> {
        let (mut report, mut xfs) = (None, None);
        match filesystem {
            Some(Filesystem::Ext4(ext4)) => report = Some(report_of(ext4, served.partition, Some(&served))?),
            Some(Filesystem::Xfs(open)) => xfs = Some(xfs::Report::of(open, served.partition)?),
            None => {}
        }
        let mut live = Self {
            served,
            report: None,
            xfs: None,
            label: Bytes::default(),
            last_mounted: Bytes::default(),
            times: [(0, 0); 4],
        };
        if let Some(report) = &report {
            live.label = Bytes(report.label.raw.clone());
            live.last_mounted = Bytes(report.last_mounted.raw.clone());
            live.times = report.times.map(|time| (time.seconds, time.nanoseconds));
        }
        if let Some(xfs) = &xfs {
            live.label = Bytes(xfs.label.raw.clone());
        }
        Ok(Self { report, xfs, ..live })
    }
}

/// How it was left.
#[derive(Debug, Serialize, Deserialize)]
struct Condition {
    /// Unmounted cleanly, and without errors.
    clean: bool,
    /// The kernel has recorded errors.
    errors: bool,
    error_count: u32,
    /// Files that were deleted while open, or were being cut, when the system stopped.
    /// `None`: what tells of them cannot be read.
    orphans: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
enum Journal {
    None,
    Internal { inode: u32 },
    External { uuid: String },
}

/// Shows what is in an image.
pub(crate) fn run(image: &ImageSpec, format: Format) -> Result<(), Failure> {
    if let Some(live) = client::find(image)? {
        return run_live(&live, format);
    }
    client::refuse_directory(image)?;
    let mut out = Out::stdout();
    let disk =
        image::partitioned(image)?.map(|partitioned| DiskReport::of(image, partitioned)).transpose()?;
    let meant = match &disk {
        None => Some(Cow::Borrowed(image)),
        // What the one partition that can be meant holds follows the table.
        Some(disk) => {
            disk.meant.map(|number| Cow::Owned(ImageSpec { partition: Some(number), ..image.clone() }))
        }
    };
    if let (Some(disk), Format::Text) = (&disk, format) {
        disk.text(&mut out)?;
        if meant.is_some() {
            writeln!(out)?;
        }
    }
    let report = meant.map(|meant| read(&meant)).transpose()?;
    match format {
        Format::Json => out.json(&Told { disk, report })?,
        Format::Text => report.map_or(Ok(()), |report| report.text(&mut out))?,
    }
    out.finish()
}

/// A disk, if it has several partitions, and the filesystem that is meant.
#[derive(Serialize)]
struct Told {
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<DiskReport>,
    #[serde(flatten)]
    report: Option<AnyReport>,
}

fn read(image: &ImageSpec) -> Result<AnyReport, Failure> {
    let opened = image::open(image)?;
    let mut report = AnyReport::of(&opened).map_err(|error| {
        Failure::new(Kind::of(&error), format!("cannot read {}", image.shown())).because(&error)
    })?;
    if let AnyReport::Ext(report) = &mut report
        && image.superblock.is_some()
    {
        report.through_copy = true;
        // The journal is looked at whatever the copy says, and there was nothing in it.
        report.features.retain(|feature| feature != "needs_recovery" || report.recovery.is_some());
    }
    Ok(report)
}

/// Shows what the server of a mount tells.
fn run_live(live: &Live, format: Format) -> Result<(), Failure> {
    let Answer::Info(told) = live.ask(&Request::Info, &mut |_| ())? else { return Err(no_answer()) };
    let LiveReport { served, report, xfs, label, last_mounted, times } = *told;
    let mount = MountRecord::of(&served, live.user);
    let mut out = Out::stdout();
    if let Some(xfs) = xfs {
        let report = xfs.with_mount(Label::from(label.0), mount);
        match format {
            Format::Json => out.json(&report)?,
            Format::Text => report.text(&mut out)?,
        }
        return out.finish();
    }
    let Some(report) = report else {
        let Space { block_bytes, blocks, blocks_free, blocks_available, inodes, inodes_free } = served.space;
        let filesystem = served.filesystem;
        let size_bytes = mount.size_bytes();
        let other = Other {
            filesystem,
            size_bytes,
            block_bytes,
            blocks,
            blocks_free,
            blocks_available,
            inodes,
            inodes_free,
            mount,
        };
        match format {
            Format::Json => out.json(&other)?,
            Format::Text => {
                writeln!(out, "{}", out.palette.paint(style::HEADING, &other.filesystem))?;
                other.mount.details(&mut out)?;
                let inodes_used = inodes.saturating_sub(inodes_free);
                let (used, free) = (human::count(inodes_used), human::count(inodes_free));
                writeln!(out, "  {} {used} used, {free} free", out.palette.paint(style::DIM, "inodes   "))?;
            }
        }
        return out.finish();
    };
    let times = times.map(|(seconds, nanoseconds)| Timestamp { seconds, nanoseconds });
    let (label, last_mounted) = (Label::from(label.0), MountedOn::from(last_mounted.0));
    let report = Report { label, last_mounted, times, mount: Some(mount), ..report };
    match format {
        Format::Json => out.json(&report)?,
        Format::Text => report.text(&mut out)?,
    }
    out.finish()
}

/// Reads what there is to tell of an ext filesystem.
pub(crate) fn report(ext4: &Ext4) -> Result<Report, Error> {
    report_of(ext4, None, None)
}

/// The same of a filesystem that is `mounted`, if it is.
fn report_of(ext4: &Ext4, partition: Option<u32>, mounted: Option<&Served>) -> Result<Report, Error> {
    let superblock = ext4.superblock();
    let geometry = superblock.geometry();
    let StatFs { blocks, blocks_free, blocks_available, inodes, inodes_free, .. } = ext4.statfs()?;
    let state = superblock.state();
    let errors = state.contains(State::ERRORS) || superblock.error_count() > 0;
    let has_failed = mounted.is_some_and(|mounted| mounted.failure.is_some());
    let time = |time: Timestamp| (time.seconds != 0).then(|| human::exact_time(time));
    let journal = match (superblock.journal_inode(), superblock.external_journal()) {
        (Some(inode), _) => Journal::Internal { inode },
        (None, Some(uuid)) => Journal::External { uuid: uuid.to_string() },
        (None, None) => Journal::None,
    };
    Ok(Report {
        filesystem: superblock.family().into(),
        partition,
        label: superblock.label().to_vec().into(),
        uuid: superblock.uuid().to_string(),
        last_mounted: superblock.last_mounted().to_vec().into(),
        state: Condition {
            clean: match mounted {
                None => state.contains(State::CLEAN) && !errors && ext4.recovery().is_none(),
                Some(_) => !errors && !has_failed,
            },
            errors,
            error_count: superblock.error_count(),
            // What is open without a name in a mount is in order.
            orphans: match (mounted, ext4.orphans()) {
                (Some(_), _) => Some(0),
                (None, Ok(orphans)) => Some(orphans.len() as u64),
                (None, Err(Error::Io(_))) => None,
                (None, Err(error)) => return Err(error),
            },
        },
        recovery: ext4.recovery().filter(|_| mounted.is_none()).map(Ext4Recovery::from),
        size_bytes: geometry.blocks().saturating_mul(geometry.block_bytes().into()),
        block_bytes: geometry.block_bytes(),
        blocks: geometry.blocks(),
        cluster_bytes: geometry.cluster_bytes(),
        blocks_for_files: blocks,
        blocks_free,
        blocks_available,
        inode_bytes: geometry.inode_bytes(),
        inodes,
        inodes_free,
        groups: geometry.groups(),
        blocks_per_group: geometry.blocks_per_group(),
        inodes_per_group: geometry.inodes_per_group(),
        group_map_percent: group_map(ext4)?,
        journal,
        encoding: superblock.encoding().map(Cow::from),
        created: time(superblock.created()),
        mounted: time(superblock.mounted()),
        written: time(superblock.written()),
        checked: time(superblock.checked()),
        mounts_since_check: superblock.mount_count(),
        mounts_most: superblock.mounts_most(),
        check_interval_seconds: superblock.check_interval_s(),
        on_error: superblock.on_error().map(|on_error| on_error.name().into()),
        settings: Settings::of(superblock),
        lifetime_writes_kib: superblock.lifetime_writes_kib(),
        features: superblock.features().names(),
        mount: None,
        times: [superblock.created(), superblock.mounted(), superblock.written(), superblock.checked()],
        through_copy: false,
    })
}

/// How full the groups are, put together to at most as many as a picture has columns.
fn group_map(ext4: &Ext4) -> Result<Vec<u8>, Error> {
    let groups = ext4.superblock().geometry().groups() as usize;
    let per_column = groups.div_ceil(PICTURE_COLUMNS).max(1);
    let mut columns: Vec<(u64, u64)> = vec![(0, 0); groups.div_ceil(per_column)];
    for (index, usage) in ext4.group_usage().enumerate() {
        let (free, blocks) = match usage {
            Ok(usage) => usage,
            // What is past the end of an image that is cut short counts as empty.
            Err(Error::Io(_)) => break,
            Err(error) => return Err(error),
        };
        let column = &mut columns[index / per_column];
        column.0 = column.0.saturating_add(free);
        column.1 = column.1.saturating_add(blocks);
    }
    Ok(columns
        .into_iter()
        .map(|(free, blocks)| {
            let used = u128::from(blocks.saturating_sub(free));
            (used * 100).checked_div(u128::from(blocks)).unwrap_or(0) as u8
        })
        .collect())
}

impl Report {
    /// Size of the filesystem.
    pub(crate) const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// As people read it.
    pub(crate) fn text(&self, out: &mut Out) -> Result<(), Failure> {
        let palette = out.palette;
        let label = safe(&self.label.raw);
        let title = if label.is_empty() { "without a label".to_owned() } else { format!("\"{label}\"") };
        let place = self.partition.map_or_else(String::new, |number| format!(", partition {number}"));
        writeln!(out, "{} {title}{place}", palette.paint(style::HEADING, &self.filesystem))?;
        let mut line = |label: &str, value: &str| {
            writeln!(out, "  {} {value}", palette.paint(style::DIM, &format!("{label:<9}")))
        };
        line("uuid", &self.uuid)?;
        for (number, sentence) in self.state_sentences().into_iter().enumerate() {
            let colour = if self.state.clean { style::GOOD } else { style::WARN };
            line(if number == 0 { "state" } else { "" }, &palette.paint(colour, &sentence))?;
        }
        if let Some(mount) = &self.mount {
            line("mount", &mount.place())?;
        }
        line(
            "size",
            &format!(
                "{} in {} of {}",
                human::size(self.size_bytes),
                human::counted(self.blocks, "block"),
                human::size(self.block_bytes.into())
            ),
        )?;
        let bytes = |blocks: u64| human::size(blocks.saturating_mul(self.block_bytes.into()));
        let used = self.blocks_for_files.saturating_sub(self.blocks_free);
        let bar = |part, whole| palette.paint(style::PICTURE, &human::bar(part, whole, PICTURE_COLUMNS));
        line(
            "space",
            &format!("{} {}", bar(used, self.blocks_for_files), human::percent(used, self.blocks_for_files)),
        )?;
        line(
            "",
            &format!(
                "{} used, {} free, {} of it for users",
                bytes(used),
                bytes(self.blocks_free),
                bytes(self.blocks_available)
            ),
        )?;
        let inodes_used = self.inodes.saturating_sub(self.inodes_free);
        line(
            "inodes",
            &format!("{} {}", bar(inodes_used, self.inodes), human::percent(inodes_used, self.inodes)),
        )?;
        line(
            "",
            &format!(
                "{} used, {} free, of {} bytes",
                human::count(inodes_used),
                human::count(self.inodes_free),
                self.inode_bytes
            ),
        )?;
        let per_column = (self.groups as usize).div_ceil(self.group_map_percent.len().max(1));
        let map: String = self.group_map_percent.iter().map(|percent| shade(*percent)).collect();
        let legend =
            if per_column > 1 { format!("; a column is {per_column} groups") } else { String::new() };
        line("groups", &palette.paint(style::PICTURE, &map))?;
        line(
            "",
            &format!(
                "{} of {} blocks and {} inodes, the taller the fuller{legend}",
                human::counted(self.groups.into(), "group"),
                human::count(self.blocks_per_group.into()),
                human::count(self.inodes_per_group.into())
            ),
        )?;
        line("journal", &self.journal_words())?;
        for (label, time) in ["created", "mounted", "written", "checked"].into_iter().zip(self.times) {
            let time = human::second_or_never(time);
            let mounted_on = safe(&self.last_mounted.raw);
            match label {
                "mounted" if !mounted_on.is_empty() => line(label, &format!("{time}, on {mounted_on}"))?,
                _ => line(label, &time)?,
            }
        }
        line("", &self.check_words())?;
        line("on error", self.on_error.as_deref().unwrap_or("not known"))?;
        for (label, value) in self.settings.lines() {
            line(label, &value)?;
        }
        if let Some(encoding) = &self.encoding {
            line("names", &format!("{encoding} where case is ignored"))?;
        }
        for (number, features) in wrap(&self.features, out.width.saturating_sub(12)).into_iter().enumerate() {
            let label = if number == 0 { "features" } else { "" };
            writeln!(out, "  {} {features}", palette.paint(style::DIM, &format!("{label:<9}")))?;
        }
        Ok(())
    }

    fn state_sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        sentences.extend(self.mount.as_ref().map(MountRecord::state));
        if let Some(recovery) = &self.recovery {
            sentences.push(format!("was not unmounted; replayed in memory: {}", recovery.words()));
            sentences.push("the image itself was not written".to_owned());
            if recovery.recorded_error != 0 {
                sentences.push(format!(
                    "its last writer gave up with error {}; run e2fsck",
                    recovery.recorded_error
                ));
            }
        }
        if self.state.errors {
            sentences.push(error_words(self.state.error_count));
        }
        if let Some(orphans) = self.state.orphans.filter(|&orphans| orphans > 0) {
            let orphans = human::counted(orphans, "deleted file");
            sentences.push(format!("{orphans} still held space when the system stopped"));
        }
        if sentences.is_empty() {
            let state = match (self.through_copy, self.state.clean) {
                (true, _) => "not known: a copy of the superblock does not tell; nothing is to be replayed",
                (false, true) => "clean",
                (false, false) => "was not unmounted, and nothing is to be replayed",
            };
            sentences.push(state.to_owned());
        }
        sentences
    }

    /// How often it was mounted since it was checked, and when it is to be checked.
    fn check_words(&self) -> String {
        const DAY_S: u32 = 86_400;
        let most = self.mounts_most.map(|most| human::counted(most.into(), "mount"));
        let interval = self.check_interval_seconds.map(|seconds| match seconds % DAY_S {
            0 => human::counted((seconds / DAY_S).into(), "day"),
            _ => human::counted(seconds.into(), "second"),
        });
        let due: Vec<String> = most.into_iter().chain(interval).collect();
        let mounts = human::counted(self.mounts_since_check.into(), "mount");
        match &due[..] {
            [] => format!("{mounts} since; never due"),
            due => format!("{mounts} since; due after {}", due.join(" or ")),
        }
    }

    fn journal_words(&self) -> String {
        match &self.journal {
            Journal::None => "none".to_owned(),
            Journal::Internal { inode } => format!("internal, inode {inode}"),
            Journal::External { uuid } => format!("on another device, {uuid}"),
        }
    }
}

/// What is recorded of errors in a filesystem, if anything is.
pub(crate) fn recorded_errors(superblock: &Superblock) -> Option<String> {
    let count = superblock.error_count();
    (superblock.state().contains(State::ERRORS) || count > 0).then(|| error_words(count))
}

/// Of a filesystem that is marked, or has a count.
fn error_words(count: u32) -> String {
    if count == 0 {
        return "is marked as having errors; run e2fsck".to_owned();
    }
    format!("Linux has recorded {}; run e2fsck", human::counted(count.into(), "error"))
}

/// A column as tall as a share is large; an empty one keeps its place.
pub(crate) fn shade(percent: u8) -> char {
    const STEPS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    // Anything used at all shows, and only what is full looks full.
    STEPS[match percent {
        0 => 0,
        100.. => 8,
        percent => (usize::from(percent) * 7 / 100) + 1,
    }]
}

/// Words in lines of at most `columns`.
fn wrap(words: &[String], columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.clone()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{shade, wrap};

    #[test]
    fn a_little_use_shows_and_only_full_looks_full() {
        assert_eq!([0, 1, 50, 99, 100].map(shade), ['·', '▁', '▄', '▇', '█']);
    }

    #[test]
    fn words_wrap_between_words() {
        let words: Vec<String> = ["aa", "bb", "cccccc", "d"].map(str::to_owned).into();
        assert_eq!(wrap(&words, 5), ["aa bb", "cccccc", "d"]);
    }
}
