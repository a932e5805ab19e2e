//! Whether the reference counts of a qcow2 image cover what is in use, asked once before it is opened for writing.
//!
//! imago allocates the clusters whose count is 0, and frees those whose count falls to 0. A count that is too small lets
//! it hand out a cluster that holds tables or data, and both users then overwrite each other without an error. An entry
//! whose flag says that its cluster has no other user is written in place, also when there is another one.
//!
//! What is found:
//! - a cluster that is in use and not counted, or has more users than its count;
//! - a cluster that has other users beside its header, a table of the first level, a block of counts, the list of
//!   snapshots, or an active entry with the flag "copied";
//! - a table, or a cluster of data, that does not begin at a cluster or lies past the end of the file.
//!
//! Counts that are too high waste space and do no harm. Reserved bits are left to imago, bitmaps are left out: imago
//! marks them as out of date when it opens the image for writing, and QEMU then does not read them.
//!
//! Memory is bounded whatever the image says: counts are held for one window of clusters at a time ([`Limits::counts`]),
//! and the tables are walked once for each window. One window is enough for 2 TiB of clusters of 64 KiB. Time is
//! proportional to the tables that exist: holes are skipped, and an L2 table that many entries point to is read once
//! ([`Limits::entries`]).
//!
//! Source: the description of the format in QEMU's documentation. No locks: the file is opened for writing by its caller
//! only.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::ops::{ControlFlow, Range};

use super::header::read_or_zeroes;
use super::tables::{COUNTS_OFFSET, ENTRY_BYTES, L1_OFFSET, Tables, u16_at, u32_at, u64_at};
use crate::{BlockDevice, NextData};

/// Bytes of a table that are read in one piece at most.
const PIECE_BYTES: u64 = 1 << 20;
/// Bytes of counts that are held or left out together at most.
const GRAIN_BYTES: u64 = 4096;

/// An entry is the only one that points to its cluster; meaningful in active tables.
const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
const HOST_OFFSET: u64 = 0x00ff_ffff_ffff_ffff;
const SECTOR: u64 = 512;
/// Marks an entry of the active L1 table, among bits that no offset has.
const ACTIVE: u64 = 1;

const SNAPSHOT_BYTES: usize = 40;
/// QEMU's limits; that of the refcount table is imago's.
const SNAPSHOTS_MAX: u32 = 65536;
const SNAPSHOT_EXTRA_MAX: u32 = 1024;
const TABLE_BYTES_MAX: u64 = 32 << 20;

/// How much is held in memory.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Bytes of counts, held twice.
    counts: usize,
    /// Entries of L1 tables.
    entries: usize,
}

impl Limits {
    pub(super) const USUAL: Self = Self { counts: 64 << 20, entries: 4 << 20 };
}

/// What a cluster is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Header,
    CountTable,
    Counts,
    L1,
    L2,
    Snapshots,
    /// For the entry of an L2 table at this byte.
    Data(u64),
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("the header"),
            Self::CountTable => f.write_str("the refcount table"),
            Self::Counts => f.write_str("a refcount block"),
            Self::L1 => f.write_str("an L1 table"),
            Self::L2 => f.write_str("an L2 table"),
            Self::Snapshots => f.write_str("the snapshot table"),
            Self::Data(entry) => write!(f, "data of the L2 entry at byte {entry}"),
        }
    }
}

/// Why an image must not be written to.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Finding {
    #[error("the cluster at byte {at} is in use ({user}), and its refcount is 0")]
    Free { at: u64, user: String },
    #[error(
        "the cluster at byte {at} ({user}) has more users than its refcount of {count} and the flags of its users say"
    )]
    Shared { at: u64, user: String, count: u64 },
    #[error("two of its tables share the cluster at byte {at}")]
    Overlap { at: u64 },
    #[error("{user} is said to be at byte {at}, where no cluster begins")]
    Unaligned { at: u64, user: String },
    #[error("{user} is said to be at byte {at}, past the end of the file")]
    PastEnd { at: u64, user: String },
    #[error("the {what} is {found}, more than {most}")]
    TooMuch { what: &'static str, found: u64, most: u64 },
}

/// A finding or a failure to read ends the walk.
enum Stop {
    Finding(Finding),
    Io(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Finding> for Stop {
    fn from(finding: Finding) -> Self {
        Self::Finding(finding)
    }
}

/// Looks for a reason not to write to the image in `file`, whose header imago has accepted.
///
/// # Errors
/// The system's.
pub(super) fn check(file: &dyn BlockDevice, limits: Limits) -> io::Result<Option<Finding>> {
    let tables = Tables::read(|at, buf| read_or_zeroes(file, at, buf))?;
    match (Walk { file, tables, limits }).check() {
        Ok(()) => Ok(None),
        Err(Stop::Finding(finding)) => Ok(Some(finding)),
        Err(Stop::Io(error)) => Err(error),
    }
}

struct Walk<'a> {
    file: &'a dyn BlockDevice,
    tables: Tables,
    limits: Limits,
}

impl Walk<'_> {
    fn check(&self) -> Result<(), Stop> {
        let mut sole = vec![
            (0..1, Use::Header),
            (self.tables.l1.clone(), Use::L1),
            (self.tables.counts.clone(), Use::CountTable),
        ];
        self.collect_snapshots(&mut sole)?;
        self.collect_blocks(&mut sole)?;
        self.check_ranges(&sole)?;
        let mut next = Some(0);
        while let Some(first) = next {
            let mut window;
            (window, next) = self.load(first)?;
            for (range, user) in &sole {
                let clusters = range.start >> self.bits()..range.end.div_ceil(self.tables.cluster_bytes());
                for cluster in window.within(&clusters) {
                    window.take(cluster, 1, true, *user)?;
                }
            }
            self.walk_l1s(&mut window, &sole)?;
        }
        Ok(())
    }

    fn bits(&self) -> u32 {
        self.tables.cluster_bits
    }

    /// Adds the L1 tables of snapshots, and their list.
    fn collect_snapshots(&self, ranges: &mut Vec<(Range<u64>, Use)>) -> Result<(), Stop> {
        let (number, start) = (self.tables.snapshots, self.tables.snapshots_at);
        if number == 0 {
            return Ok(());
        }
        limit("number of snapshots", u64::from(number), u64::from(SNAPSHOTS_MAX))?;
        let mut at = start;
        for _ in 0..number {
            self.must_lie_within(at, Use::Snapshots)?;
            let mut head = [0; SNAPSHOT_BYTES];
            read_or_zeroes(self.file, at, &mut head)?;
            let (l1, entries) = (u64_at(&head, 0), u32_at(&head, 8));
            let bytes = u64::from(entries) * ENTRY_BYTES;
            limit("size in bytes of the L1 table of a snapshot", bytes, TABLE_BYTES_MAX)?;
            limit(
                "size in bytes of the extra data of a snapshot",
                u64::from(u32_at(&head, 36)),
                u64::from(SNAPSHOT_EXTRA_MAX),
            )?;
            if bytes > 0 {
                let end = l1.checked_add(bytes).ok_or(past_end(l1, Use::L1))?;
                ranges.push((l1..end, Use::L1));
            }
            let names = u64::from(u16_at(&head, 12)) + u64::from(u16_at(&head, 14));
            at += (SNAPSHOT_BYTES as u64 + u64::from(u32_at(&head, 36)) + names).next_multiple_of(8);
        }
        ranges.push((start..at, Use::Snapshots));
        Ok(())
    }

    /// Adds the blocks of counts.
    fn collect_blocks(&self, ranges: &mut Vec<(Range<u64>, Use)>) -> Result<(), Stop> {
        let table = &self.tables.counts;
        limit("size in bytes of the refcount table", table.end - table.start, TABLE_BYTES_MAX)?;
        self.entries(table, |_, entry| {
            let block = entry & COUNTS_OFFSET;
            let end = block.checked_add(self.tables.cluster_bytes()).ok_or(past_end(block, Use::Counts))?;
            if block > 0 {
                ranges.push((block..end, Use::Counts));
            }
            Ok(())
        })
    }

    /// Tables that are written in place, each with clusters of its own.
    fn check_ranges(&self, ranges: &[(Range<u64>, Use)]) -> Result<(), Stop> {
        let mut clusters = Vec::with_capacity(ranges.len());
        for (range, user) in ranges.iter().filter(|(range, _)| !range.is_empty()) {
            self.must_be_aligned(range.start, *user)?;
            self.must_lie_within(range.start, *user)?;
            self.must_lie_within((range.end - 1) & !(self.tables.cluster_bytes() - 1), *user)?;
            clusters.push(range.start..range.end.next_multiple_of(self.tables.cluster_bytes()));
        }
        clusters.sort_unstable_by_key(|range| range.start);
        for pair in clusters.windows(2) {
            if pair[1].start < pair[0].end {
                return Err(Finding::Overlap { at: pair[1].start }.into());
            }
        }
        Ok(())
    }

    fn must_be_aligned(&self, at: u64, user: Use) -> Result<(), Finding> {
        if at & (self.tables.cluster_bytes() - 1) != 0 {
            return Err(Finding::Unaligned { at, user: user.to_string() });
        }
        Ok(())
    }

    /// The last cluster may be there in part.
    fn must_lie_within(&self, at: u64, user: Use) -> Result<(), Finding> {
        if at >= self.file.size_bytes() {
            return Err(past_end(at, user));
        }
        Ok(())
    }

    /// The counts from a place on, as many as may be held, and the place where the next window begins. Places are
    /// numbers of grains, all grains of a block one after the other.
    fn load(&self, first: u64) -> Result<(Window, Option<u64>), Stop> {
        let grain_bytes = self.tables.cluster_bytes().min(GRAIN_BYTES);
        let grains_of_block = self.tables.cluster_bytes() / grain_bytes;
        let in_grain_bits = grain_bytes.trailing_zeros() + 3 - self.tables.count_order;
        let mut window = Window {
            order: self.tables.count_order,
            cluster_bits: self.bits(),
            in_grain_bits,
            clusters: first << in_grain_bits..u64::MAX,
            grains: HashMap::new(),
            last: (u64::MAX, None),
            counts: Vec::new(),
            left: Vec::new(),
        };
        let from = self.tables.counts.start + first / grains_of_block * ENTRY_BYTES;
        let blocks = from.min(self.tables.counts.end)..self.tables.counts.end;
        let last = self.file.size_bytes() >> self.bits() >> in_grain_bits;
        let mut next = None;
        self.pieces(&blocks, |at, table| {
            for (index, entry) in entries_of(table) {
                let block = entry & COUNTS_OFFSET;
                let place = at + index as u64 * ENTRY_BYTES - self.tables.counts.start;
                let base = place / ENTRY_BYTES * grains_of_block;
                if base > last {
                    return Ok(ControlFlow::Break(()));
                }
                if block == 0 {
                    continue;
                }
                self.pieces(&(block..block + self.tables.cluster_bytes()), |at, piece| {
                    for (number, grain) in piece.chunks(grain_bytes as usize).enumerate() {
                        let number = base + (at - block) / grain_bytes + number as u64;
                        if number < first || grain.iter().all(|&byte| byte == 0) {
                            continue;
                        }
                        if !window.grains.is_empty() && window.counts.len() + grain.len() > self.limits.counts
                        {
                            next = Some(number);
                            return Ok(ControlFlow::Break(()));
                        }
                        window.grains.insert(number, window.counts.len());
                        window.counts.extend_from_slice(grain);
                    }
                    Ok(ControlFlow::Continue(()))
                })?;
                if next.is_some() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if let Some(next) = next {
            window.clusters.end = next << in_grain_bits;
        }
        window.left.clone_from(&window.counts);
        Ok((window, next))
    }

    /// Collects what L1 tables point to, so that an L2 table with many users is walked once.
    fn walk_l1s(&self, window: &mut Window, tables: &[(Range<u64>, Use)]) -> Result<(), Stop> {
        let mut found = Vec::new();
        for (range, _) in tables.iter().filter(|(_, user)| *user == Use::L1) {
            let is_active = *range == self.tables.l1;
            self.entries(range, |_, entry| {
                let flags = if is_active { entry & COPIED | ACTIVE } else { 0 };
                found.push(entry & L1_OFFSET | flags);
                if found.len() >= self.limits.entries {
                    self.walk_l2s(window, &mut found)?;
                }
                Ok(())
            })?;
        }
        self.walk_l2s(window, &mut found)
    }

    fn walk_l2s(&self, window: &mut Window, found: &mut Vec<u64>) -> Result<(), Stop> {
        found.retain(|entry| entry & L1_OFFSET != 0);
        found.sort_unstable_by_key(|entry| entry & L1_OFFSET);
        for users in found.chunk_by(|one, other| one & L1_OFFSET == other & L1_OFFSET) {
            let (table, times) = (users[0] & L1_OFFSET, users.len() as u64);
            let has = |flag| users.iter().any(|entry| entry & flag != 0);
            self.take_one(window, table, times, has(COPIED), Use::L2)?;
            if self.tables.has_data_file {
                continue;
            }
            let is_active = has(ACTIVE);
            self.entries(&(table..table + self.tables.cluster_bytes()), |at, entry| {
                self.take_data(window, at, entry, times, is_active)
            })?;
        }
        found.clear();
        Ok(())
    }

    /// What the entry at `at` of an L2 table with so many users points to.
    fn take_data(
        &self,
        window: &mut Window,
        at: u64,
        entry: u64,
        times: u64,
        is_active: bool,
    ) -> Result<(), Stop> {
        let user = Use::Data(at);
        if entry & COMPRESSED == 0 {
            return self.take_one(window, entry & L1_OFFSET, times, is_active && entry & COPIED != 0, user);
        }
        let sectors_at = 62 - (self.bits() - 8);
        let start = entry & ((1 << sectors_at) - 1) & HOST_OFFSET;
        let sectors = (entry & !(COPIED | COMPRESSED)) >> sectors_at;
        let last = (start / SECTOR + sectors) * SECTOR + SECTOR - 1;
        for cluster in start >> self.bits()..=last >> self.bits() {
            self.must_lie_within(cluster << self.bits(), user)?;
            window.take(cluster, times, false, user)?;
        }
        Ok(())
    }

    fn take_one(
        &self,
        window: &mut Window,
        at: u64,
        times: u64,
        is_sole: bool,
        user: Use,
    ) -> Result<(), Stop> {
        if at == 0 {
            return Ok(());
        }
        self.must_be_aligned(at, user)?;
        self.must_lie_within(at, user)?;
        window.take(at >> self.bits(), times, is_sole, user)
    }

    /// The entries of a table that are not zero, each with its place.
    fn entries(
        &self,
        table: &Range<u64>,
        mut each: impl FnMut(u64, u64) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        self.pieces(table, |at, piece| {
            for (index, entry) in entries_of(piece).filter(|(_, entry)| *entry != 0) {
                each(at + index as u64 * ENTRY_BYTES, entry)?;
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// A range of the file without its holes. Pieces begin at multiples of [`GRAIN_BYTES`], or where the range does.
    fn pieces(
        &self,
        range: &Range<u64>,
        mut each: impl FnMut(u64, &[u8]) -> Result<ControlFlow<()>, Stop>,
    ) -> Result<(), Stop> {
        let end = range.end.min(self.file.size_bytes());
        let mut at = range.start;
        let mut buf = Vec::new();
        while at < end {
            let data = match self.file.next_data(at).map_err(io::Error::other)? {
                NextData::Nowhere => break,
                NextData::Unknown => at..end,
                NextData::At(data) => data.start.max(at)..data.end.min(end),
            };
            if data.is_empty() {
                break;
            }
            at = (data.start / GRAIN_BYTES * GRAIN_BYTES).max(at);
            while at < data.end {
                let next = (at / GRAIN_BYTES * GRAIN_BYTES + PIECE_BYTES)
                    .min(data.end.next_multiple_of(GRAIN_BYTES))
                    .min(range.end);
                buf.resize((next - at) as usize, 0);
                read_or_zeroes(self.file, at, &mut buf)?;
                if each(at, &buf)?.is_break() {
                    return Ok(());
                }
                at = next;
            }
        }
        Ok(())
    }
}

/// Counts of some clusters, as the file has them and as much of them as has no user yet.
struct Window {
    order: u32,
    cluster_bits: u32,
    in_grain_bits: u32,
    /// Clusters whose users are looked at.
    clusters: Range<u64>,
    /// Where the counts of a grain stand. Those of a grain that is missing are 0.
    grains: HashMap<u64, usize>,
    /// The grain of the cluster that was taken last, and where its counts stand: most clusters lie side by side.
    last: (u64, Option<usize>),
    counts: Vec<u8>,
    left: Vec<u8>,
}

impl Window {
    fn within(&self, clusters: &Range<u64>) -> Range<u64> {
        clusters.start.max(self.clusters.start)..clusters.end.min(self.clusters.end)
    }

    /// Takes a cluster for users, or for one that must have it to itself.
    fn take(&mut self, cluster: u64, times: u64, is_sole: bool, user: Use) -> Result<(), Stop> {
        if !self.clusters.contains(&cluster) {
            return Ok(());
        }
        let at = cluster << self.cluster_bits;
        let index = cluster & ((1 << self.in_grain_bits) - 1);
        let number = cluster >> self.in_grain_bits;
        if self.last.0 != number {
            self.last = (number, self.grains.get(&number).copied());
        }
        let grain = self.last.1;
        let count = grain.map_or(0, |grain| get(&self.counts[grain..], index, self.order));
        let Some(grain) = grain.filter(|_| count > 0) else {
            return Err(Finding::Free { at, user: user.to_string() }.into());
        };
        let left = get(&self.left[grain..], index, self.order);
        if times > left || is_sole && (times > 1 || left < count) {
            return Err(Finding::Shared { at, user: user.to_string(), count }.into());
        }
        set(&mut self.left[grain..], index, self.order, if is_sole { 0 } else { left - times });
        Ok(())
    }
}

/// Counts of less than a byte are numbered from its lowest bit; longer ones have their highest byte first.
fn get(counts: &[u8], index: u64, order: u32) -> u64 {
    let bit = (index << order) as usize;
    if order < 3 {
        return u64::from(counts[bit / 8] >> (bit % 8)) & ((1 << (1 << order)) - 1);
    }
    counts[bit / 8..][..1 << (order - 3)].iter().fold(0, |count, &byte| count << 8 | u64::from(byte))
}

fn set(counts: &mut [u8], index: u64, order: u32, count: u64) {
    let bit = (index << order) as usize;
    if order < 3 {
        let mask = ((1_u16 << (1 << order)) - 1) as u8;
        let byte = &mut counts[bit / 8];
        *byte = *byte & !(mask << (bit % 8)) | (count as u8 & mask) << (bit % 8);
    } else {
        let len = 1 << (order - 3);
        counts[bit / 8..][..len].copy_from_slice(&count.to_be_bytes()[8 - len..]);
    }
}

fn entries_of(piece: &[u8]) -> impl Iterator<Item = (usize, u64)> + '_ {
    piece.chunks_exact(ENTRY_BYTES as usize).map(|entry| u64_at(entry, 0)).enumerate()
}

fn past_end(at: u64, user: Use) -> Finding {
    Finding::PastEnd { at, user: user.to_string() }
}

fn limit(what: &'static str, found: u64, most: u64) -> Result<(), Finding> {
    if found > most {
        return Err(Finding::TooMuch { what, found, most });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_widths_are_kept_apart() {
        for order in 0..=6 {
            let mut counts = [0xa5; 64];
            let number = (counts.len() as u64 * 8) >> order;
            let most = u64::MAX >> (64 - (1 << order));
            for index in 0..number {
                set(&mut counts, index, order, index.wrapping_mul(0x0123_4567_89ab_cdef) & most);
            }
            for index in 0..number {
                assert_eq!(get(&counts, index, order), index.wrapping_mul(0x0123_4567_89ab_cdef) & most);
            }
        }
    }
}

/// On images of `qemu-img`.
#[cfg(all(test, feature = "oracle"))]
mod oracle_tests {
    use std::fs;
    use std::process::Command;

    use tempfile::TempDir;

    use super::*;
    use crate::{Access, FileDevice, FileOptions, MemoryDevice};

    fn qemu_img(arguments: &str, directory: &TempDir) {
        let arguments = arguments.split(' ');
        assert!(Command::new("qemu-img").args(arguments).current_dir(directory).status().unwrap().success());
    }

    fn sized(counts: usize, entries: usize) -> Limits {
        Limits { counts, entries }
    }

    #[test]
    fn many_small_windows_find_what_a_large_one_finds() {
        let directory = TempDir::new().unwrap();
        let content: Vec<u8> = (0..200_000).map(|at| (at / 512 + at % 7 + 1) as u8).collect();
        fs::write(directory.path().join("raw"), content).unwrap();
        for bits in [8, 64] {
            let options = format!("cluster_size=512,refcount_bits={bits}");
            qemu_img(&format!("convert -O qcow2 -o {options} raw image"), &directory);
            qemu_img("snapshot -c before image", &directory);
            let path = directory.path().join("image");
            let mut bytes = fs::read(&path).unwrap();
            let tables = {
                let file = FileDevice::open(&path, FileOptions::read_only()).unwrap();
                assert_eq!(check(&file, Limits::USUAL).unwrap(), None);
                Tables::read(|at, buf| read_or_zeroes(&file, at, buf)).unwrap()
            };
            let (block_counts, mut found) = (512 * 8 / bits, 0);
            for cluster in (0..bytes.len() / 512).step_by(11) {
                let block = u64_at(&bytes, tables.counts.start as usize + cluster / block_counts * 8);
                let at = block as usize + (cluster % block_counts + 1) * bits / 8 - 1;
                let was = std::mem::replace(&mut bytes[at], 0);
                let file = MemoryDevice::from_bytes(bytes.clone(), Access::ReadOnly);
                let finding = check(&file, Limits::USUAL).unwrap();
                assert_eq!(finding.is_some(), was > 0, "{bits} bits, cluster {cluster}");
                found += usize::from(was > 0);
                for limits in [sized(1, 1), sized(1500, 7), sized(1, 1000)] {
                    let again = check(&file, limits).unwrap();
                    assert_eq!(again.is_some(), was > 0, "{bits} bits, cluster {cluster}: {again:?}");
                }
                bytes[at] = was;
            }
            assert!(found > 30, "{found}");
        }
    }
}
