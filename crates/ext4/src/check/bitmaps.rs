//! The last pass: bitmaps and counts against what was found.

use undercroft_diskfs::At;
use undercroft_vfs::Result;

use super::checker::Checker;
use crate::features::{Incompat, RoCompat};
use crate::group::{GroupFlags, bitmap_checksum};
use crate::numbers::{FsBlock, Group};

/// Differences are reported as runs, at most this many for each bitmap.
const RUNS_SHOWN: usize = 4;

/// A kind of bitmap.
#[derive(Clone, Copy)]
struct Kind {
    differs: &'static str,
    checksum: &'static str,
    padding: &'static str,
    what: &'static str,
}

const BLOCKS: Kind = Kind {
    differs: "block-bitmap-differs",
    checksum: "block-bitmap-checksum",
    padding: "block-bitmap-padding",
    what: "blocks",
};

const INODES: Kind = Kind {
    differs: "inode-bitmap-differs",
    checksum: "inode-bitmap-checksum",
    padding: "inode-bitmap-padding",
    what: "inodes",
};

impl Checker<'_> {
    pub(super) fn check_bitmaps(&mut self) -> Result<()> {
        let geometry = self.volume.superblock().geometry().clone();
        let per_cluster = self.per_cluster;
        let (mut free_clusters, mut free_inodes) = (0, 0);
        for group in 0..geometry.groups() {
            let state = self.groups[group as usize];
            let start = geometry.group_start(Group(group)).0;
            let end = geometry.blocks().min(start + u64::from(geometry.blocks_per_group()));
            let clusters = (end - start).div_ceil(per_cluster);
            let first_cluster = (start - u64::from(geometry.first_data_block())) / per_cluster;
            let own = first_cluster..first_cluster + clusters;
            let used = self.clusters.count_in(own.clone()) as u32;
            if state.flags.contains(GroupFlags::BLOCK_UNINIT) {
                self.check_untouched(group, used);
            } else if state.block_bitmap != 0 {
                let used: Vec<bool> = own.map(|n| self.clusters.contains(n)).collect();
                let sum = (geometry.clusters_per_group(), state.block_bitmap_sum);
                let name = |n: usize| start + n as u64 * per_cluster;
                self.compare(BLOCKS, group, state.block_bitmap, &used, sum, name)?;
            }
            let free = clusters as u32 - used;
            free_clusters += u64::from(free);
            self.compare_count("group-free-blocks", group, "free clusters", state.free_clusters, free);

            let first_inode = u64::from(group) * u64::from(geometry.inodes_per_group()) + 1;
            let own = first_inode..first_inode + u64::from(geometry.inodes_per_group());
            if state.inode_bitmap != 0 && !state.flags.contains(GroupFlags::INODE_UNINIT) {
                let used: Vec<bool> = own.clone().map(|n| self.inodes.contains(n)).collect();
                let sum = (geometry.inodes_per_group(), state.inode_bitmap_sum);
                let name = |n: usize| first_inode + n as u64;
                self.compare(INODES, group, state.inode_bitmap, &used, sum, name)?;
            }
            let free = geometry.inodes_per_group() - self.inodes.count_in(own.clone()) as u32;
            free_inodes += u64::from(free);
            self.compare_count("group-free-inodes", group, "free inodes", state.free_inodes, free);
            let directories = self.directories.count_in(own) as u32;
            self.compare_count(
                "group-directories",
                group,
                "directories",
                state.used_directories,
                directories,
            );
        }
        self.check_totals(free_clusters, free_inodes);
        Ok(())
    }

    /// A group whose block bitmap was never written has nothing in it but what the groups themselves need.
    fn check_untouched(&mut self, group: u32, found: u32) {
        let expected = self.own_clusters.get(&group).copied().unwrap_or(0);
        if found != expected {
            let detail = format!(
                "its block bitmap was never written, but files have {} of it",
                found.saturating_sub(expected)
            );
            self.findings.add(BLOCKS.differs, At::group(group), detail);
        }
    }

    fn compare(
        &mut self,
        kind: Kind,
        group: u32,
        home: u64,
        used: &[bool],
        (covered, stored_sum): (u32, u32),
        name: impl Fn(usize) -> u64,
    ) -> Result<()> {
        let at = At::group(group).block(home);
        let buffer = self.volume.read_block(FsBlock(home))?;
        let bit = |n: usize| buffer[n / 8] >> (n % 8) & 1 == 1;
        let mut runs: Vec<(usize, usize, bool)> = Vec::new();
        for (n, &used) in used.iter().enumerate() {
            if bit(n) == used {
                continue;
            }
            match runs.last_mut() {
                Some((_, last, kind)) if *last + 1 == n && *kind == used => *last = n,
                _ => runs.push((n, n, used)),
            }
        }
        if !runs.is_empty() {
            let shown: Vec<String> = runs
                .iter()
                .take(RUNS_SHOWN)
                .map(|&(first, last, used)| {
                    let (first, last) = (name(first), name(last));
                    let range = if first == last { first.to_string() } else { format!("{first} to {last}") };
                    format!("{range} {}", if used { "are in use" } else { "are free" })
                })
                .collect();
            let more = runs.len() - shown.len();
            let more = if more > 0 { format!(", and {more} more differences") } else { String::new() };
            let detail = format!("the bitmap is wrong: {} {}{more}", kind.what, shown.join(", "));
            self.findings.add(kind.differs, at, detail);
        }
        if (used.len()..buffer.len() * 8).any(|n| !bit(n)) {
            self.findings.add(kind.padding, at, "bits past the bitmap's end are clear");
        }
        if self.volume.superblock().has_metadata_checksums() {
            let computed = bitmap_checksum(self.volume.superblock(), &buffer, covered);
            if stored_sum != computed {
                let detail = format!("checksum is {stored_sum:#010x}, the bitmap gives {computed:#010x}");
                self.findings.add(kind.checksum, at, detail);
            }
        }
        Ok(())
    }

    fn compare_count(&mut self, code: &'static str, group: u32, what: &str, stored: u32, counted: u32) {
        if stored != counted {
            let detail = format!("says that it has {stored} {what}; it has {counted}");
            self.findings.add(code, At::group(group), detail);
        }
    }

    /// After a replay the superblock's counts are old, and the next mount puts them right.
    fn check_totals(&mut self, free_clusters: u64, free_inodes: u64) {
        let superblock = self.volume.superblock();
        if self.recovered {
            return;
        }
        let raw = superblock.raw();
        let wide = superblock.features().incompat.contains(Incompat::SIXTY_FOUR_BIT);
        let high = if wide { u64::from(raw.s_free_blocks_count_hi.get()) << 32 } else { 0 };
        let stored = u64::from(raw.s_free_blocks_count_lo.get()) | high;
        let counted = free_clusters
            * if superblock.features().ro_compat.contains(RoCompat::BIGALLOC) { self.per_cluster } else { 1 };
        let stored_inodes = u64::from(raw.s_free_inodes_count.get());
        if stored != counted {
            let detail = format!("the superblock says that {stored} blocks are free; {counted} are");
            self.findings.add("superblock-free-blocks", At::filesystem(), detail);
        }
        if stored_inodes != free_inodes {
            let detail =
                format!("the superblock says that {stored_inodes} inodes are free; {free_inodes} are");
            self.findings.add("superblock-free-inodes", At::filesystem(), detail);
        }
    }
}
