//! The list of bad blocks of one member: what does not hold what it should, because it could not be written or rebuilt.
//!
//! On disk, at the place that the superblock names: 64-bit little-endian words, 54 bits of block number and 10 of
//! count, blocks of `512 << shift` bytes, counted from the beginning of the device; the rest is all ones. The list is
//! in use only if the superblock says so. Here: ranges in bytes, from the beginning of the data area, in rising order,
//! not touching each other.
//!
//! The owner of the list locks it. A block that is only partly good is bad: what is added is rounded outwards, what is
//! taken away inwards.
//!
//! Source: `drivers/md/md.c` (`super_1_load`, `super_1_sync`) and `include/linux/badblocks.h`, read for facts.

use std::ops::Range;

use undercroft_block::BlockDevice;

use crate::Result;
use crate::superblock::{BadBlockLog, Source, Superblock};

/// A word that ends the list.
const END: u64 = u64::MAX;
const COUNT_BITS: u32 = 10;
/// Linux reads larger counts and writes none.
const MOST_BLOCKS: u64 = 512;
const WORD_BYTES: usize = 8;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct BadBlocks {
    ranges: Vec<Range<u64>>,
    data_offset: u64,
    block_bytes: u64,
    /// So many words the list on disk has room for; 0: there is none.
    room: usize,
    /// Counts the changes, and how many of them are on disk.
    changes: u64,
    written: u64,
}

/// The list as it goes to its place on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListPage {
    pub(crate) bytes: Vec<u8>,
    /// For [`BadBlocks::set_written`].
    changes: u64,
}

impl BadBlocks {
    /// The list of a member all of whose blocks are good.
    pub(crate) fn empty(superblock: &Superblock) -> Self {
        let log = superblock.bad_blocks;
        Self {
            ranges: Vec::new(),
            data_offset: superblock.data.offset,
            block_bytes: 512 << log.map_or(0, |log| u32::from(log.shift)),
            room: log.map_or(0, |log| log.area.bytes as usize / WORD_BYTES),
            changes: 0,
            written: 0,
        }
    }

    /// Reads a member's list.
    ///
    /// # Errors
    /// When it names blocks that the member does not have, or the device fails.
    pub(crate) fn read(device: &dyn BlockDevice, superblock: &Superblock) -> Result<Self> {
        let mut list = Self::empty(superblock);
        let Some(log) = superblock.bad_blocks.filter(|log| log.in_use) else { return Ok(list) };
        let mut page = vec![0; log.area.bytes as usize];
        device.read_at(log.area.offset, &mut page)?;
        let member = device.name();
        let source = Source { member: &member, structure: "list of bad blocks", offset: log.area.offset };
        list.decode(&page, device.size_bytes(), source)?;
        Ok(list)
    }

    fn decode(&mut self, page: &[u8], device_bytes: u64, source: Source<'_>) -> Result<()> {
        for word in page.chunks_exact(WORD_BYTES) {
            let word = word.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
            if word == END {
                break;
            }
            let (block, count) = (word >> COUNT_BITS, word & ((1 << COUNT_BITS) - 1));
            let start = block.checked_mul(self.block_bytes).filter(|&start| start < device_bytes);
            let len = count.checked_mul(self.block_bytes);
            let (Some(start), Some(len)) = (start, len) else {
                return Err(source.corrupt(format!("it names block {block}, past the end of the device")));
            };
            // What lies before the data holds none of it.
            let end = (start + len).saturating_sub(self.data_offset);
            let start = start.saturating_sub(self.data_offset);
            if start < end {
                self.insert(start..end);
            }
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The bad ranges, in rising order.
    pub(crate) fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Whether any byte of the range is bad.
    pub(crate) fn overlaps(&self, range: Range<u64>) -> bool {
        let at = self.ranges.partition_point(|bad| bad.end <= range.start);
        self.ranges.get(at).is_some_and(|bad| bad.start < range.end)
    }

    /// Adds what is bad. Returns whether there was room for all of it; if not, nothing has changed.
    pub(crate) fn add(&mut self, ranges: &[Range<u64>]) -> bool {
        let before = self.ranges.clone();
        for range in ranges {
            let block = self.block_bytes;
            let first = self.data_offset + range.start;
            let last = (self.data_offset + range.end).next_multiple_of(block);
            let start = (first - first % block).saturating_sub(self.data_offset);
            let end = last - self.data_offset;
            if start < end {
                self.insert(start..end);
            }
        }
        if self.ranges == before {
            return self.room > 0;
        }
        if self.words().count() > self.room {
            self.ranges = before;
            return false;
        }
        self.changes += 1;
        true
    }

    fn insert(&mut self, range: Range<u64>) {
        let first = self.ranges.partition_point(|bad| bad.end < range.start);
        let last = self.ranges.partition_point(|bad| bad.start <= range.end);
        let joined = match self.ranges.get(first..last) {
            Some([]) | None => range,
            Some(touched) => {
                let end = touched.last().map_or(range.end, |bad| bad.end.max(range.end));
                touched[0].start.min(range.start)..end
            }
        };
        self.ranges.splice(first..last, [joined]);
    }

    /// Takes away what is good again; whole blocks only. Where that would need more room than there is, the block stays
    /// on the list.
    pub(crate) fn remove(&mut self, range: Range<u64>) {
        let block = self.block_bytes;
        let start = (self.data_offset + range.start).next_multiple_of(block) - self.data_offset;
        let end = self.data_offset + range.end;
        let end = (end - end % block).saturating_sub(self.data_offset);
        if start >= end || !self.overlaps(start..end) {
            return;
        }
        let before = self.ranges.clone();
        let left = before.iter().flat_map(|bad| [bad.start..bad.end.min(start), bad.start.max(end)..bad.end]);
        self.ranges = left.filter(|bad| bad.start < bad.end).collect();
        if self.words().count() > self.room {
            self.ranges = before;
            return;
        }
        self.changes += 1;
    }

    /// Whether the list on disk is this one.
    pub(crate) fn is_written(&self) -> bool {
        self.written == self.changes
    }

    /// What is to be written to the list's place, if there is another list on disk.
    pub(crate) fn unwritten_page(&self, log: &BadBlockLog) -> Option<ListPage> {
        if self.is_written() {
            return None;
        }
        let mut bytes = vec![0xff; log.area.bytes as usize];
        for (place, word) in bytes.chunks_exact_mut(WORD_BYTES).zip(self.words()) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        Some(ListPage { bytes, changes: self.changes })
    }

    /// This page is on disk, durably.
    pub(crate) fn set_written(&mut self, page: &ListPage) {
        self.written = page.changes;
    }

    /// The list as it is on disk.
    fn words(&self) -> impl Iterator<Item = u64> + '_ {
        let blocks = |bytes: u64| (self.data_offset + bytes) / self.block_bytes;
        let block_bytes = self.block_bytes;
        self.ranges.iter().flat_map(move |bad| {
            let (first, end) = (blocks(bad.start), (self.data_offset + bad.end).div_ceil(block_bytes));
            let count = move |at: u64| (end - at).min(MOST_BLOCKS);
            (first..end).step_by(MOST_BLOCKS as usize).map(move |at| at << COUNT_BITS | count(at))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CreateOptions;
    use crate::superblock::Area;
    use crate::{Level, create};
    use proptest::prelude::*;
    use std::slice;
    use std::sync::Arc;
    use undercroft_block::{Device, MemoryDevice};

    const MIB: u64 = 1 << 20;

    fn member() -> (Device, Superblock) {
        let device: Device = Arc::new(MemoryDevice::new(64 * MIB));
        let devices = [device];
        let options = CreateOptions::new(Level::Raid1);
        let superblock = create::plan(&options, &devices).unwrap().superblocks.remove(0);
        let [device] = devices;
        (device, superblock)
    }

    fn add(list: &mut BadBlocks, range: Range<u64>) -> bool {
        list.add(slice::from_ref(&range))
    }

    fn log(superblock: &Superblock) -> BadBlockLog {
        superblock.bad_blocks.unwrap()
    }

    #[test]
    fn ranges_join_split_and_survive_the_disk() {
        let (device, mut superblock) = member();
        let mut list = BadBlocks::empty(&superblock);
        assert!(
            list.add(&[1000..1001, 2048..4096]) && add(&mut list, 1024..2048) && add(&mut list, MIB..2 * MIB)
        );
        assert_eq!(list.ranges(), [512..4096, MIB..2 * MIB]);
        list.remove(1000..3000);
        assert_eq!(list.ranges(), [512..1024, 2560..4096, MIB..2 * MIB]);
        assert!(list.overlaps(0..513) && list.overlaps(1023..1025) && !list.overlaps(1024..2560));
        let page = list.unwritten_page(&log(&superblock)).unwrap();
        // What changes while the page is on its way goes with the next one.
        assert!(add(&mut list, 0..512));
        list.set_written(&page);
        assert!(!list.is_written());
        list.remove(0..512);
        list.set_written(&list.unwritten_page(&log(&superblock)).unwrap());
        assert!(list.unwritten_page(&log(&superblock)).is_none());
        assert!(add(&mut list, 512..1024) && list.is_written(), "nothing new");
        let page = page.bytes;
        // The first sector of the device that is bad is number 1 of its data; it is one sector long.
        let first = (superblock.data.offset / 512 + 1) << 10 | 1;
        assert_eq!(page[..8], first.to_le_bytes());
        device.write_at(log(&superblock).area.offset, &page).unwrap();
        assert!(
            BadBlocks::read(&*device, &superblock).unwrap().is_empty(),
            "the superblock says there is none"
        );
        superblock.bad_blocks = Some(BadBlockLog { in_use: true, ..log(&superblock) });
        assert_eq!(BadBlocks::read(&*device, &superblock).unwrap().ranges(), list.ranges());
    }

    #[test]
    fn a_full_list_takes_no_more() {
        let (_, superblock) = member();
        let mut list = BadBlocks::empty(&superblock);
        for at in 0..512 {
            assert!(add(&mut list, at * 2048..at * 2048 + 512));
        }
        // All or nothing.
        assert!(!list.add(&[512..1024, 600 * 2048..600 * 2048 + 512]));
        assert!(!list.overlaps(600 * 2048..601 * 2048));
        assert_eq!(list.len(), 512);
        // A range may grow, but not beyond what one word holds.
        assert!(add(&mut list, 512..1024));
        assert!(!add(&mut list, 0..MIB / 2 + 1) || list.len() < 512);
    }

    #[test]
    fn larger_blocks_are_bad_as_a_whole() {
        let (_, mut superblock) = member();
        superblock.bad_blocks = Some(BadBlockLog { shift: 3, ..log(&superblock) });
        let mut list = BadBlocks::empty(&superblock);
        assert!(add(&mut list, 5000..5001));
        assert_eq!(list.ranges(), [Range { start: 4096, end: 8192 }]);
        list.remove(4096..8191);
        assert_eq!(list.len(), 1);
        list.remove(4096..8192);
        assert!(list.is_empty());
    }

    #[test]
    fn a_member_without_a_list_takes_none() {
        let (_, mut superblock) = member();
        superblock.bad_blocks = None;
        assert!(!add(&mut BadBlocks::empty(&superblock), 0..512));
    }

    proptest! {
        #[test]
        fn it_is_a_set_of_sectors(changes in prop::collection::vec((any::<bool>(), 0_u64..200, 1_u64..40), 1..40)) {
            let (_, superblock) = member();
            let mut list = BadBlocks::empty(&superblock);
            let mut model = [false; 256];
            for (is_bad, at, len) in changes {
                model[at as usize..(at + len) as usize].fill(is_bad);
                if is_bad {
                    prop_assert!(add(&mut list, at * 512..(at + len) * 512));
                } else {
                    list.remove(at * 512..(at + len) * 512);
                }
                for (sector, is_bad) in (0_u64..).zip(model) {
                    prop_assert_eq!(list.overlaps(sector * 512..sector * 512 + 512), is_bad);
                }
                prop_assert!(list.ranges().windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(page in prop::collection::vec(any::<u8>(), 4096), shift in 0_u8..=32) {
            let (device, mut superblock) = member();
            let area = Area { bytes: 4096, ..log(&superblock).area };
            superblock.bad_blocks = Some(BadBlockLog { area, shift, in_use: true });
            device.write_at(area.offset, &page).unwrap();
            let _ = BadBlocks::read(&*device, &superblock);
        }
    }
}
