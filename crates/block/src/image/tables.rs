//! Where the tables of a qcow2 image lie, and which clusters an entry that is about to be written begins to use.
//!
//! An entry of the L1 table points to an L2 table, one of the table of reference counts to a block of counts. Each takes a
//! cluster, whose own count must be on the disk before the entry is. Entries of L2 tables are not looked at here: imago
//! writes the counts of data first.
//!
//! Where the tables lie is also what `counts.rs` begins with.
//!
//! Source: the description of the format in QEMU's documentation, "Header", "Host cluster management", "Cluster mapping".
//!
//! Left out: tables that move. A table of counts that grows is copied to a new place, all counts before it, by imago.

use std::io;
use std::ops::Range;

const HEADER_BYTES: usize = 104;
const VERSION_AT: usize = 4;
const CLUSTER_BITS_AT: usize = 20;
const L1_ENTRIES_AT: usize = 36;
const L1_AT: usize = 40;
const COUNTS_AT: usize = 48;
const COUNTS_CLUSTERS_AT: usize = 56;
const SNAPSHOTS_AT: usize = 60;
const SNAPSHOT_TABLE_AT: usize = 64;
const INCOMPATIBLE_AT: usize = 72;
/// The bit of images whose data lies in another file, where it is not counted.
const DATA_FILE: u64 = 1 << 2;
const COUNT_ORDER_AT: usize = 96;
/// The order of a count's bits in images of the second version.
const COUNT_ORDER_2: u32 = 4;

pub(super) const ENTRY_BYTES: u64 = 8;
/// The part of an entry of an L1 or L2 table that is a place in the file.
pub(super) const L1_OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
pub(super) const COUNTS_OFFSET: u64 = !0x1ff;

/// What the header says.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) cluster_bits: u32,
    /// A count has as many bits as 2 to the power of this.
    pub(super) count_order: u32,
    pub(super) l1: Range<u64>,
    pub(super) counts: Range<u64>,
    pub(super) snapshots: u32,
    pub(super) snapshots_at: u64,
    pub(super) has_data_file: bool,
}

/// Bytes that make the count of a cluster 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

impl Tables {
    /// Reads the header by `read`.
    ///
    /// # Errors
    /// The system's; a header that contradicts itself.
    pub(super) fn read(read: impl Fn(u64, &mut [u8]) -> io::Result<()>) -> io::Result<Self> {
        let mut head = [0; HEADER_BYTES];
        read(0, &mut head)?;
        let (count_order, incompatible) = match u32_at(&head, VERSION_AT) {
            ..3 => (COUNT_ORDER_2, 0),
            _ => (u32_at(&head, COUNT_ORDER_AT), u64_at(&head, INCOMPATIBLE_AT)),
        };
        let cluster_bits = u32_at(&head, CLUSTER_BITS_AT);
        if !(9..=21).contains(&cluster_bits) || count_order > 6 {
            return Err(invalid("its header has changed while it was open"));
        }
        let l1 = u64_at(&head, L1_AT);
        let counts = u64_at(&head, COUNTS_AT);
        let l1_end = l1.checked_add(u64::from(u32_at(&head, L1_ENTRIES_AT)) * ENTRY_BYTES);
        let counts_end = counts.checked_add(u64::from(u32_at(&head, COUNTS_CLUSTERS_AT)) << cluster_bits);
        match (l1_end, counts_end) {
            (Some(l1_end), Some(counts_end)) => Ok(Self {
                cluster_bits,
                count_order,
                l1: l1..l1_end,
                counts: counts..counts_end,
                snapshots: u32_at(&head, SNAPSHOTS_AT),
                snapshots_at: u64_at(&head, SNAPSHOT_TABLE_AT),
                has_data_file: incompatible & DATA_FILE != 0,
            }),
            _ => Err(invalid("a table of it lies past its end")),
        }
    }

    /// Bytes of a cluster.
    pub(super) fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Whether a range has bytes in common with the tables of first level.
    pub(super) fn concerns(&self, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        [&self.l1, &self.counts].into_iter().any(|table| offset < table.end && table.start < end)
    }

    /// The counts that must be on the disk before `new` is written at `offset`, and are not.
    ///
    /// # Errors
    /// The system's; a cluster whose count has no place.
    pub(super) fn missing_counts(
        &self,
        read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
        offset: u64,
        new: &[u8],
    ) -> io::Result<Vec<Count>> {
        let mut old = vec![0; new.len()];
        read(offset, &mut old)?;
        let mut missing = Vec::new();
        for (table, mask) in [(&self.l1, L1_OFFSET), (&self.counts, COUNTS_OFFSET)] {
            let first = table.start.max(offset).next_multiple_of(ENTRY_BYTES);
            let end = table.end.min(offset + new.len() as u64);
            for at in (first..end.saturating_sub(ENTRY_BYTES - 1)).step_by(ENTRY_BYTES as usize) {
                let here = (at - offset) as usize;
                let (was, is) = (u64_at(&old, here) & mask, u64_at(new, here) & mask);
                if is != 0 && is != was {
                    missing.extend(self.count(&read, is, at)?);
                }
            }
        }
        Ok(missing)
    }

    /// What makes the count of a cluster 1 that is 0; for an entry at `entry`.
    fn count(
        &self,
        read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
        cluster: u64,
        entry: u64,
    ) -> io::Result<Option<Count>> {
        let index = cluster >> self.cluster_bits;
        // Counts of a block: its bits by the bits of a count.
        let in_block_bits = self.cluster_bits + 3 - self.count_order;
        let block_entry = self.counts.start + (index >> in_block_bits) * ENTRY_BYTES;
        if block_entry == entry {
            // A block of counts that counts itself has been written before.
            return Ok(None);
        }
        let mut block = [0; ENTRY_BYTES as usize];
        if block_entry + ENTRY_BYTES <= self.counts.end {
            read(block_entry, &mut block)?;
        }
        let block = u64::from_be_bytes(block) & COUNTS_OFFSET;
        if block == 0 {
            return Err(invalid("a cluster of its tables is not counted"));
        }
        let bit = (index & ((1 << in_block_bits) - 1)) << self.count_order;
        let width = 1_usize << self.count_order;
        let offset = block + bit / 8;
        let mut bytes = vec![0; width.div_ceil(8)];
        read(offset, &mut bytes)?;
        // Counts of less than a byte are numbered from its lowest bit; longer ones have their highest byte first.
        let (mask, one) = match width {
            8.. => (u8::MAX, 1),
            _ => (((1_u16 << width) - 1) as u8, 1_u8),
        };
        let shift = if width < 8 { bit % 8 } else { 0 };
        if bytes.iter().any(|byte| byte >> shift & mask != 0) {
            return Ok(None);
        }
        if let Some(last) = bytes.last_mut() {
            *last |= one << shift;
        }
        Ok(Some(Count { offset, bytes }))
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}
