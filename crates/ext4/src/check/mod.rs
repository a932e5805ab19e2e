//! Checking a filesystem: every structure against every other, and nothing is ever written.
//!
//! | pass | module | what it looks at |
//! | --- | --- | --- |
//! | 1 | `groups` | group descriptors and where they say that things are; copies of the superblock |
//! | 2 | `inodes`, `map`, `attributes`, `encryption`, `special` | every inode in use and every block that it names |
//! | 3 | `directories`, `index` | every entry of every directory, and the index over them |
//! | 4 | `links` | whether everything has a name and leads to the root |
//! | 5 | `bitmaps` | bitmaps and counts, against what the other passes found |
//!
//! A journal that holds changes is replayed in memory first, fast commits included (`fast_commits`).
//!
//! Nothing on the disk is trusted except a validated superblock. Every loop is bounded by the number of blocks or
//! inodes, and nothing recurses. Memory: a bit for a cluster, a bit and some bytes for an inode, where a part of them
//! is in use; some words for a directory, an attribute block, and a run of one file.
//!
//! Uses no locks of its own. Left out: what quota files say of usage, and times in the future.

mod attributes;
mod bitmaps;
mod checker;
mod directories;
mod encryption;
mod fast_commits;
mod groups;
mod index;
mod inodes;
mod links;
mod map;
mod raw;
mod report;
mod sets;
mod special;

use undercroft_block::Device;
use undercroft_diskfs::{At, Findings};
use undercroft_vfs::{Error, Result};

use crate::error::corrupt;
use crate::features::{Compat, RoCompat};
use crate::mmp::MmpWait;
use crate::open::{OpenOptions, Probed};
use crate::superblock::Superblock;
use checker::Checker;
use fast_commits::Replayed;
pub use report::CheckReport;

/// How to check.
#[derive(Clone, Copy, Debug)]
pub struct CheckOptions {
    /// Bound of the metadata cache in bytes.
    pub buffer_bytes: usize,
    /// How many findings are kept; the others are counted.
    pub findings_max: usize,
    /// Called before a wait to see whether another host is using the filesystem.
    pub on_mmp_wait: fn(&MmpWait),
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { buffer_bytes: 32 << 20, findings_max: 10_000, on_mmp_wait: |_| {} }
    }
}

/// Checks a filesystem, and changes nothing.
///
/// # Errors
/// What keeps it from being checked at all: no superblock of the family, a feature that is unknown, another host that
/// uses it, I/O failure. Damage is no error: it is in the report.
pub fn check(device: Device, options: &CheckOptions) -> Result<CheckReport> {
    let open = OpenOptions {
        buffer_bytes: options.buffer_bytes,
        on_mmp_wait: options.on_mmp_wait,
        ..OpenOptions::default()
    };
    let is_present = Superblock::is_present(&*device)?;
    let findings = Findings::new(options.findings_max);
    let replayed = Probed::probe(device, open)
        .and_then(|probed| fast_commits::replay(&probed, options.buffer_bytes, &findings));
    let Replayed { volume, recovery, left_out } = match replayed {
        Ok(replayed) => replayed,
        // A superblock or a journal so wrong that nothing else can be looked at is a finding too.
        Err(Error::Corrupt(corruption)) if is_present => {
            findings.add("unusable", At::filesystem(), corruption.to_string());
            return Ok(CheckReport { findings: findings.finish().0, ..CheckReport::default() });
        }
        Err(error) => return Err(error),
    };
    let mut checker = Checker::new(&volume, findings, recovery.is_some());
    checker.run()?;
    let counts = CheckReport {
        orphans: checker.orphans.len() as u64,
        inodes: checker.inodes.len(),
        directories: checker.directories.len(),
        blocks: checker.clusters.len() * checker.per_cluster,
        recovery,
        fast_commits_left_out: left_out,
        ..CheckReport::default()
    };
    let (findings, findings_left_out) = checker.findings.finish();
    Ok(CheckReport { findings, findings_left_out, ..counts })
}

/// Refuses a filesystem in which a check finds damage, and which therefore `stays` as it is.
///
/// # Errors
/// [`Error::Corrupt`] with the first finding; those of [`check`].
pub(crate) fn refuse_damage(device: &Device, options: OpenOptions, stays: &str) -> Result<()> {
    let checked = CheckOptions { buffer_bytes: options.buffer_bytes, ..CheckOptions::default() };
    let report = check(std::sync::Arc::clone(device), &checked)?;
    let Some(finding) = report.findings.first() else { return Ok(()) };
    let detail = format!("it has damage, and {stays} before e2fsck -f has repaired it: {}", finding.detail);
    Err(corrupt("filesystem", detail))
}

impl Checker<'_> {
    fn run(&mut self) -> Result<()> {
        self.check_superblock();
        self.check_groups()?;
        self.collect_orphans()?;
        self.check_inodes()?;
        self.check_sharing();
        self.check_directories()?;
        self.check_links();
        self.check_bitmaps()
    }

    /// Fields that readers ignore.
    fn check_superblock(&mut self) {
        let superblock = self.volume.superblock();
        let (raw, geometry) = (superblock.raw(), superblock.geometry());
        let at = At::filesystem();
        if superblock.uuid().is_nil() {
            self.findings.add("superblock-field", at, "the filesystem has no UUID");
        }
        if let Some(fault) = superblock.flex_group_fault() {
            self.findings.add("superblock-field", at, fault);
        }
        let reserved = u64::from(raw.s_r_blocks_count_lo.get());
        if reserved > geometry.blocks() {
            let detail = format!("{reserved} of {} blocks are reserved", geometry.blocks());
            self.findings.add("superblock-field", at, detail);
        }
        let for_descriptors = raw.s_reserved_gdt_blocks.get();
        if for_descriptors != 0 && !superblock.features().compat.contains(Compat::RESIZE_INODE) {
            let detail = format!(
                "{for_descriptors} blocks are reserved for descriptors without the feature resize_inode"
            );
            self.findings.add("superblock-field", at, detail);
        }
        for number in superblock.quota_inodes() {
            let is_own = [superblock.journal_inode(), superblock.orphan_file_inode()].contains(&Some(number));
            let is_free = raw::QUOTA_INODES.contains(&number) || number >= geometry.first_inode();
            if number != 0 && (is_own || !is_free || number > geometry.inodes()) {
                let detail = format!("usage is accounted in inode {number}, which cannot be a quota file");
                self.findings.add("superblock-field", at, detail);
            }
        }
    }

    /// The cluster that a block lies in; `None` for one before the first group.
    fn cluster(&self, block: u64) -> Option<u64> {
        let first = u64::from(self.volume.superblock().geometry().first_data_block());
        Some(block.checked_sub(first)? / self.per_cluster)
    }

    /// Gives blocks of content to an inode. The feature `shared_blocks` lets several inodes have the same.
    fn claim_content(&mut self, inode: u32, first: u64, count: u64) {
        if self.volume.superblock().features().ro_compat.contains(RoCompat::SHARED_BLOCKS) {
            if let Some((start, end)) = self.cluster(first).zip(self.cluster(first + count - 1)) {
                for cluster in start..=end {
                    self.clusters.insert(cluster);
                }
            }
        } else {
            self.claim(inode, first, count);
        }
    }

    /// Assigns bad blocks to the list of bad blocks. The place of a group's structure cannot be changed, so blocks of
    /// copies of the superblock and descriptors, of inode tables and reserved ones may be bad; bitmaps may not.
    fn claim_bad(&mut self, inode: u32, first: u64, count: u64) {
        for block in first..first + count {
            if let Some(cluster) = self.cluster(block) {
                self.clusters.insert(cluster);
            }
        }
        let bad = first..first + count;
        let hit = self.groups.iter().flat_map(|group| [group.block_bitmap, group.inode_bitmap]);
        for bitmap in hit.filter(|bitmap| bad.contains(bitmap)).collect::<Vec<_>>() {
            let detail = "a bitmap lies in a block that is on the list of bad blocks";
            self.findings.add("bad-blocks", At::inode(inode).block(bitmap), detail);
        }
    }

    /// Gives blocks to an inode; `false` if any is another's already.
    fn claim(&mut self, inode: u32, first: u64, count: u64) -> bool {
        let Some((start, end)) = self.cluster(first).zip(self.cluster(first + count - 1)) else {
            return false;
        };
        let mut taken: Option<(u64, u64)> = None;
        let mut all_free = true;
        for cluster in start..=end {
            let is_free = self.clusters.insert(cluster);
            all_free &= is_free;
            match &mut taken {
                _ if is_free => self.report_taken(inode, taken.take()),
                Some((_, last)) => *last = cluster,
                None => taken = Some((cluster, cluster)),
            }
        }
        self.report_taken(inode, taken);
        all_free
    }

    fn report_taken(&mut self, inode: u32, taken: Option<(u64, u64)>) {
        let Some((first, last)) = taken else { return };
        let start = u64::from(self.volume.superblock().geometry().first_data_block());
        let (first, count) = (start + first * self.per_cluster, (last - first + 1) * self.per_cluster);
        let detail = if count == 1 {
            "the block is in use for something else too".to_owned()
        } else {
            format!("{count} blocks from there on are in use for something else too")
        };
        self.findings.add("block-claimed-twice", At::inode(inode).block(first), detail);
    }

    /// Gives blocks to the groups' own structures, which may share clusters.
    fn claim_for_groups(&mut self, at: At, first: u64, count: u64) {
        let per_group = u64::from(self.volume.superblock().geometry().clusters_per_group());
        for block in first..first + count {
            let Some(cluster) = self.cluster(block) else { continue };
            if self.clusters.insert(cluster) {
                *self.own_clusters.entry((cluster / per_group) as u32).or_default() += 1;
            } else if self.per_cluster == 1 {
                self.findings.add("group-overlap", at.block(block), "two structures of groups share a block");
            }
        }
    }
}
