//! How a FAT filesystem is divided, and where everything lies in it.
//!
//! Boot sectors, two tables, in FAT12 and FAT16 the root directory, then clusters, which are counted from 2. The number of
//! clusters decides which of the three kinds it is.

use std::ops::Range;

use super::SECTOR_BYTES;
use super::names;
use super::tree::{Content, Tree};
use crate::Error;

/// From here on it is FAT32, which has 65525 clusters at least.
const FAT32_BYTES: u64 = 34 << 20;
/// From here on it is FAT16.
const FAT16_BYTES: u64 = 8 << 20;
/// Smaller ones have no room for anything.
const LEAST_BYTES: u64 = 64 << 10;
/// The format counts sectors in 32 bits.
const MOST_BYTES: u64 = u32::MAX as u64 * SECTOR_BYTES;
/// Clusters of FAT12 and FAT16 at most, with some distance to the limits, at which programs disagree.
const FAT12_CLUSTERS: u64 = 4085 - 16;
const FAT16_CLUSTERS: u64 = 65525 - 16;

pub(super) const TABLES: u64 = 2;
pub(super) const FIRST_CLUSTER: u32 = 2;
/// Entries of the root directory in FAT12 and FAT16.
pub(super) const ROOT_ENTRIES: u64 = 512;
/// Directories have at most so many bytes.
const DIRECTORY_MAX_BYTES: u64 = 65536 * names::ENTRY_BYTES;
/// Sizes that are tried are multiples of this.
const STEP_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Fat12,
    Fat16,
    Fat32,
}

impl Kind {
    fn bits(self) -> u64 {
        match self {
            Self::Fat12 => 12,
            Self::Fat16 => 16,
            Self::Fat32 => 32,
        }
    }

    /// What stands for the last cluster of a chain.
    pub(super) fn end(self) -> u32 {
        match self {
            Self::Fat12 => 0xfff,
            Self::Fat16 => 0xffff,
            Self::Fat32 => 0x0fff_ffff,
        }
    }
}

/// All numbers count sectors, unless they say otherwise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    pub(super) sectors: u64,
    pub(super) reserved: u64,
    pub(super) per_table: u64,
    pub(super) root: u64,
    pub(super) per_cluster: u64,
    pub(super) clusters: u64,
}

impl Shape {
    /// Of a device of this size.
    pub(super) fn of(size_bytes: u64) -> Result<Self, Error> {
        if !(LEAST_BYTES..=MOST_BYTES).contains(&size_bytes) {
            return Err(Error::Refused(format!(
                "FAT takes {LEAST_BYTES} to {MOST_BYTES} bytes, and not {size_bytes}"
            )));
        }
        if size_bytes >= FAT32_BYTES {
            return Ok(Self::with(Kind::Fat32, size_bytes, sectors_per_cluster(size_bytes)));
        }
        let (kind, most) = if size_bytes >= FAT16_BYTES {
            (Kind::Fat16, FAT16_CLUSTERS)
        } else {
            (Kind::Fat12, FAT12_CLUSTERS)
        };
        let mut shape = Self::with(kind, size_bytes, 1);
        while shape.clusters > most {
            shape = Self::with(kind, size_bytes, shape.per_cluster * 2);
        }
        Ok(shape)
    }

    fn with(kind: Kind, size_bytes: u64, per_cluster: u64) -> Self {
        let sectors = size_bytes / SECTOR_BYTES;
        let (reserved, root) = match kind {
            Kind::Fat32 => (32, 0),
            _ => (1, ROOT_ENTRIES * names::ENTRY_BYTES / SECTOR_BYTES),
        };
        // As many as there would be without tables: they are a little longer than need be.
        let entries = (sectors - reserved - root) / per_cluster + u64::from(FIRST_CLUSTER);
        let per_table = (entries * kind.bits()).div_ceil(8 * SECTOR_BYTES);
        // Clusters begin at multiples of their size.
        let front = reserved + TABLES * per_table + root;
        let reserved = reserved + front.next_multiple_of(per_cluster) - front;
        let front = reserved + TABLES * per_table + root;
        let clusters = sectors.saturating_sub(front) / per_cluster;
        Self { kind, sectors, reserved, per_table, root, per_cluster, clusters }
    }

    pub(super) fn cluster_bytes(&self) -> u64 {
        self.per_cluster * SECTOR_BYTES
    }

    pub(super) fn table_offset(&self, table: u64) -> u64 {
        (self.reserved + table * self.per_table) * SECTOR_BYTES
    }

    pub(super) fn root_offset(&self) -> u64 {
        self.table_offset(TABLES)
    }

    /// First byte of a cluster.
    pub(super) fn cluster_offset(&self, cluster: u32) -> u64 {
        let first = self.root_offset() + self.root * SECTOR_BYTES;
        first + u64::from(cluster.saturating_sub(FIRST_CLUSTER)) * self.cluster_bytes()
    }

    /// The clusters of every node: directories first.
    pub(super) fn place(&self, tree: &Tree, has_label: bool) -> Result<Vec<Range<u32>>, Error> {
        let mut places = vec![0..0; tree.nodes().len()];
        let mut next = u64::from(FIRST_CLUSTER);
        for directories in [true, false] {
            for (index, place) in places.iter_mut().enumerate() {
                if tree.is_directory(index) != directories {
                    continue;
                }
                let clusters = self.clusters_of(tree, index, has_label)?;
                let end = next + clusters;
                if end > self.clusters + u64::from(FIRST_CLUSTER) {
                    return Err(Error::Refused(format!(
                        "the files need more than the {} bytes that the FAT filesystem has",
                        self.clusters * self.cluster_bytes()
                    )));
                }
                // The format has at most 28 bits for them.
                *place = if clusters == 0 { 0..0 } else { next as u32..end as u32 };
                next = end;
            }
        }
        Ok(places)
    }

    fn clusters_of(&self, tree: &Tree, index: usize, has_label: bool) -> Result<u64, Error> {
        let bytes = match tree.content(index) {
            Content::File(bytes) => return Ok(bytes.div_ceil(self.cluster_bytes())),
            Content::Directory => names::directory_bytes(tree, index, has_label),
        };
        if bytes > DIRECTORY_MAX_BYTES {
            let name = &tree.nodes()[index].name;
            return Err(Error::Refused(format!("the directory \"{name}\" has too many names for FAT")));
        }
        if index == 0 && self.kind != Kind::Fat32 {
            return if bytes > ROOT_ENTRIES * names::ENTRY_BYTES {
                Err(Error::Refused("the root directory has too many names for so small a FAT".to_owned()))
            } else {
                Ok(0)
            };
        }
        Ok(bytes.div_ceil(self.cluster_bytes()).max(1))
    }
}

/// As Microsoft's and Linux's tools choose, or less.
fn sectors_per_cluster(size_bytes: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    match size_bytes {
        _ if size_bytes < 132 * MIB => 1,
        _ if size_bytes < 260 * MIB => 2,
        _ if size_bytes < 8 * GIB => 8,
        _ if size_bytes < 16 * GIB => 16,
        _ if size_bytes < 32 * GIB => 32,
        _ => 64,
    }
}

/// The least size of a FAT32 for a tree, with room for a label.
pub(super) fn least_bytes(tree: &Tree) -> Result<u64, Error> {
    let files = tree.nodes().iter().map(|node| match node.content {
        Content::File(bytes) => bytes,
        Content::Directory => 0,
    });
    let mut size = FAT32_BYTES.max(files.sum::<u64>().next_multiple_of(STEP_BYTES));
    loop {
        let shape = Shape::of(size)?;
        if shape.place(tree, true).is_ok() {
            return Ok(size);
        }
        size += (size / 256).next_multiple_of(STEP_BYTES);
    }
}
