//! A check under way: what has been seen so far.

use std::collections::{HashMap, HashSet};

use undercroft_diskfs::Findings;

use super::encryption::{Policies, Policy};
use super::sets::{BitSet, Kinds, LinkCounts};
use crate::group::GroupFlags;
use crate::volume::Volume;

/// A descriptor's numbers. A place that cannot be is 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupState {
    pub(super) block_bitmap: u64,
    pub(super) inode_bitmap: u64,
    pub(super) inode_table: u64,
    pub(super) free_clusters: u32,
    pub(super) free_inodes: u32,
    pub(super) used_directories: u32,
    pub(super) unused_inodes: u32,
    pub(super) flags: GroupFlags,
    pub(super) block_bitmap_sum: u32,
    pub(super) inode_bitmap_sum: u32,
}

/// What a directory's entries say of where it is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    /// The directory that has an entry for it; 0 when none has been found.
    pub(super) parent: u32,
    /// Where its `..` leads.
    pub(super) dot_dot: u32,
}

/// A block of attributes: how many inodes it says it serves, and how many have been seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    pub(super) stored: u32,
    pub(super) seen: u32,
    /// Clusters of values in inodes, which count as those of each inode that it serves.
    pub(super) value_clusters: u64,
    pub(super) policy: Option<Policy>,
}

/// A check under way: what has been seen so far.
pub(super) struct Checker<'a> {
    pub(super) volume: &'a Volume,
    pub(super) findings: Findings,
    /// Whether a journal was replayed, which leaves the superblock's counts old.
    pub(super) recovered: bool,
    pub(super) per_cluster: u64,
    pub(super) groups: Vec<GroupState>,
    /// Clusters in use, counted from the first group's start.
    pub(super) clusters: BitSet,
    /// Clusters of each group that groups themselves use.
    pub(super) own_clusters: HashMap<u32, u32>,
    pub(super) inodes: BitSet,
    pub(super) directories: BitSet,
    /// Directories and files whose maps cannot be walked again.
    pub(super) damaged: BitSet,
    pub(super) kinds: Kinds,
    pub(super) links: LinkCounts,
    pub(super) orphans: HashSet<u32>,
    pub(super) places: HashMap<u32, Place>,
    pub(super) attribute_blocks: HashMap<u64, Shared>,
    /// Inodes that hold values of attributes: how many they say they serve, and how many have been seen.
    pub(super) value_inodes: HashMap<u32, (Option<u64>, u64)>,
    pub(super) policies: Policies,
}

impl<'a> Checker<'a> {
    pub(super) fn new(volume: &'a Volume, findings: Findings, recovered: bool) -> Self {
        let geometry = volume.superblock().geometry();
        let per_cluster = u64::from(geometry.blocks_per_cluster());
        let numbers = u64::from(geometry.inodes()) + 1;
        Self {
            volume,
            findings,
            recovered,
            per_cluster,
            groups: Vec::new(),
            clusters: BitSet::new(geometry.blocks().div_ceil(per_cluster)),
            own_clusters: HashMap::new(),
            inodes: BitSet::new(numbers),
            directories: BitSet::new(numbers),
            damaged: BitSet::new(numbers),
            kinds: Kinds::new(geometry.inodes()),
            links: LinkCounts::new(geometry.inodes()),
            orphans: HashSet::new(),
            places: HashMap::new(),
            attribute_blocks: HashMap::new(),
            value_inodes: HashMap::new(),
            policies: Policies::default(),
        }
    }
}
