//! Reading, and finding data and holes.
//!
//! A read that lies in one extent is one device read straight into the caller's buffer, without a lock and without
//! memory of its own. A read over several extents gathers them, joins those that follow each other on the device, and
//! hands them over in batches.

use std::fmt;
use std::iter::FusedIterator;
use std::ops::Range;

use undercroft_block::Request;

use super::{BATCH, Backing, Run, Source};
use crate::{Error, Result};

/// Fills `buf` from `offset` of a regular file, up to the end of the file.
pub(crate) fn read_at(backing: Backing<'_>, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let size = backing.inode.size_bytes();
    let len = size.saturating_sub(offset).min(buf.len() as u64) as usize;
    if len == 0 {
        return Ok(0);
    }
    let buf = &mut buf[..len];
    let run = backing.run_at(offset)?;
    if run.len < len as u64 {
        read_pieces(backing, offset, run, buf)?;
        return Ok(len);
    }
    match run.source {
        Source::Hole | Source::Unwritten(_) => buf.fill(0),
        Source::Device(from) | Source::Shared(from) => backing.device()?.read_at(from, buf)?,
        Source::Inline { bytes, skip } => copy_inline(&bytes, skip, buf),
        Source::Kept => backing.inode.read_kept(offset, buf)?,
    }
    Ok(len)
}

/// The first byte of data at or after `offset`.
pub(crate) fn seek_data(backing: Backing<'_>, offset: u64) -> Result<u64> {
    seek(backing, offset, |source| !source.is_hole())?.ok_or(Error::NoSuchOffset)
}

/// The first byte of a hole at or after `offset`; there is always one at the end.
pub(crate) fn seek_hole(backing: Backing<'_>, offset: u64) -> Result<u64> {
    let hole = seek(backing, offset, Source::is_hole)?;
    Ok(hole.unwrap_or_else(|| backing.inode.size_bytes()))
}

/// The first byte at or after `offset` and before the end whose source is `wanted`.
fn seek(backing: Backing<'_>, offset: u64, wanted: fn(&Source) -> bool) -> Result<Option<u64>> {
    let size = backing.inode.size_bytes();
    if offset >= size {
        return Err(Error::NoSuchOffset);
    }
    let mut at = offset;
    while at < size {
        let run = backing.run_at(at)?;
        if wanted(&run.source) {
            return Ok(Some(at));
        }
        at = at.saturating_add(run.len);
    }
    Ok(None)
}

/// The parts of a file that hold data, in order: see [`File::data_ranges`](crate::File::data_ranges). Each is as long as
/// data follows on data, and none is empty. The first error ends it, after the data before it was given.
pub struct DataRanges<'a> {
    backing: Backing<'a>,
    at: u64,
    end: u64,
}

impl<'a> DataRanges<'a> {
    pub(crate) fn new(backing: Backing<'a>, within: Range<u64>) -> Self {
        Self { backing, at: within.start, end: within.end }
    }

    /// Where the search stands: behind the last part that was given, or after an error at the first byte of which nothing
    /// is known.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.at
    }

    fn find(&mut self) -> Result<Option<Range<u64>>> {
        // It may have become shorter since.
        let end = self.end.min(self.backing.inode.size_bytes());
        while self.at < end {
            let run = self.backing.run_at(self.at)?;
            if !run.source.is_hole() {
                let mut after = self.at.saturating_add(run.len);
                // What is known is given out first: behind an error the next call looks again.
                while after < end
                    && let Ok(next) = self.backing.run_at(after)
                    && !next.source.is_hole()
                {
                    after = after.saturating_add(next.len);
                }
                let found = self.at..after.min(end);
                self.at = found.end;
                return Ok(Some(found));
            }
            self.at = self.at.saturating_add(run.len).min(end);
        }
        Ok(None)
    }
}

impl Iterator for DataRanges<'_> {
    type Item = Result<Range<u64>>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.find();
        if !matches!(found, Ok(Some(_))) {
            self.end = 0;
        }
        found.transpose()
    }
}

impl FusedIterator for DataRanges<'_> {}

impl fmt::Debug for DataRanges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataRanges").field("at", &self.at).field("end", &self.end).finish_non_exhaustive()
    }
}

/// Fills `buf` from more than one run, of which the first is given.
fn read_pieces(backing: Backing<'_>, offset: u64, first: Run, buf: &mut [u8]) -> Result<()> {
    let mut batch = Vec::new();
    let mut rest = buf;
    let mut at = offset;
    let mut run = first;
    // The range that ends where `rest` begins would begin: it is cut off `rest` when it cannot grow any more.
    let mut joined: Option<(u64, usize)> = None;
    loop {
        let ahead = joined.map_or(0, |(_, len)| len);
        let step = run.len.min((rest.len() - ahead) as u64) as usize;
        let follows = match (&run.source, joined) {
            (Source::Device(from) | Source::Shared(from), Some((start, len))) => {
                start.checked_add(len as u64) == Some(*from)
            }
            _ => false,
        };
        if !follows && let Some((start, len)) = joined.take() {
            let (piece, after) = rest.split_at_mut(len);
            rest = after;
            batch.push(Request::Read { offset: start, buf: piece });
            if batch.len() == BATCH {
                backing.device()?.run_batch(&mut batch)?;
                batch.clear();
            }
        }
        match run.source {
            Source::Device(from) | Source::Shared(from) => {
                let (start, len) = joined.unwrap_or((from, 0));
                joined = Some((start, len + step));
            }
            Source::Hole | Source::Unwritten(_) => {
                let (piece, after) = rest.split_at_mut(step);
                rest = after;
                piece.fill(0);
            }
            Source::Inline { bytes, skip } => {
                let (piece, after) = rest.split_at_mut(step);
                rest = after;
                copy_inline(&bytes, skip, piece);
            }
            Source::Kept => {
                let (piece, after) = rest.split_at_mut(step);
                rest = after;
                backing.inode.read_kept(at, piece)?;
            }
        }
        at += step as u64;
        if rest.len() == joined.map_or(0, |(_, len)| len) {
            break;
        }
        run = backing.run_at(at)?;
    }
    if let Some((start, _)) = joined {
        batch.push(Request::Read { offset: start, buf: rest });
    }
    match &mut *batch {
        [] => Ok(()),
        [Request::Read { offset, buf }] => Ok(backing.device()?.read_at(*offset, buf)?),
        several => Ok(backing.device()?.run_batch(several)?),
    }
}

/// Copies inline bytes from `skip` on; what is missing at the end is zeroes.
fn copy_inline(bytes: &[u8], skip: u64, buf: &mut [u8]) {
    let bytes = usize::try_from(skip).ok().and_then(|skip| bytes.get(skip..)).unwrap_or_default();
    let len = bytes.len().min(buf.len());
    buf[..len].copy_from_slice(&bytes[..len]);
    buf[len..].fill(0);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use undercroft_block::{Access, BlockDevice, MemoryDevice};

    use super::*;
    use crate::conformance::{Content, Object, Tree};
    use crate::memory_fs::MemoryFs;
    use crate::{Credentials, Extent, File, Mapping};

    /// Counts what arrives at the device.
    #[derive(Debug)]
    struct Counting {
        inner: MemoryDevice,
        single: AtomicUsize,
        batches: AtomicUsize,
        batched: AtomicUsize,
        largest: AtomicUsize,
    }

    impl BlockDevice for Counting {
        fn name(&self) -> String {
            self.inner.name()
        }
        fn size_bytes(&self) -> u64 {
            self.inner.size_bytes()
        }
        fn access(&self) -> Access {
            self.inner.access()
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> undercroft_block::Result<()> {
            self.single.fetch_add(1, Ordering::Relaxed);
            self.inner.read_at(offset, buf)
        }
        fn write_at(&self, offset: u64, data: &[u8]) -> undercroft_block::Result<()> {
            self.inner.write_at(offset, data)
        }
        fn flush(&self) -> undercroft_block::Result<()> {
            self.inner.flush()
        }
        fn run_batch(&self, batch: &mut [Request<'_>]) -> undercroft_block::Result<()> {
            self.batches.fetch_add(1, Ordering::Relaxed);
            self.batched.fetch_add(batch.len(), Ordering::Relaxed);
            self.largest.fetch_max(batch.len(), Ordering::Relaxed);
            self.inner.run_batch(batch)
        }
    }

    fn device(offset: u64) -> Mapping {
        Mapping::Device { offset }
    }

    /// Its offset must not be read.
    fn unwritten() -> Mapping {
        Mapping::Unwritten { offset: u64::MAX - 1000 }
    }

    /// A file of this size that is mapped by these extents, on a device whose byte at `n` is `n * 7`.
    fn file(size: u64, extents: Vec<(u64, u64, Mapping)>) -> (File, Arc<Counting>) {
        let bytes = (0..1_u32 << 16).map(|at| (at * 7) as u8).collect();
        let counting = Arc::new(Counting {
            inner: MemoryDevice::from_bytes(bytes, Access::ReadOnly),
            single: AtomicUsize::new(0),
            batches: AtomicUsize::new(0),
            batched: AtomicUsize::new(0),
            largest: AtomicUsize::new(0),
        });
        let mut tree = Tree::new();
        tree.add("file", Object::File(Content::default()));
        let mut fs = MemoryFs::new(&tree);
        let inode = fs.inode_mut("file");
        inode.attr.size_bytes = size;
        inode.extents =
            extents.into_iter().map(|(start, len, mapping)| Extent { start, len, mapping }).collect();
        fs.device = Some(counting.clone());
        let (vfs, _) = fs.mount(1 << 20, 1 << 20);
        (vfs.open(&Credentials::root(), b"file").unwrap(), counting)
    }

    fn read(file: &File, offset: u64, len: usize) -> Vec<u8> {
        let mut buf = vec![0xa5; len];
        let count = file.read_at(offset, &mut buf).unwrap();
        buf.truncate(count);
        buf
    }

    fn device_bytes(from: u32, len: u32) -> Vec<u8> {
        (from..from + len).map(|at| (at * 7) as u8).collect()
    }

    #[test]
    fn a_read_in_one_extent_is_one_read_of_the_device() {
        let (file, device) = file(5000, vec![(0, 5000, device(100))]);
        assert_eq!(read(&file, 11, 300), device_bytes(111, 300));
        assert_eq!(read(&file, 4990, 300), device_bytes(5090, 10));
        assert_eq!((device.single.load(Ordering::Relaxed), device.batches.load(Ordering::Relaxed)), (2, 0));
    }

    #[test]
    fn neighbours_on_the_device_are_read_together() {
        let extents =
            vec![(0, 10, device(0)), (10, 10, device(10)), (20, 10, device(20)), (30, 10, Mapping::Hole)];
        let (file, device) = file(40, extents);
        assert_eq!(read(&file, 5, 40), [device_bytes(5, 25), vec![0; 10]].concat());
        assert_eq!((device.single.load(Ordering::Relaxed), device.batches.load(Ordering::Relaxed)), (1, 0));
    }

    #[test]
    fn pieces_that_do_not_touch_go_in_batches_of_limited_size() {
        // Backwards on the device, with a gap of 5 bytes: nothing can be joined.
        let place = |number: u64| 60_000 - number * 15;
        let extents = (0..200).map(|number| (number * 10, 10, device(place(number)))).collect();
        let (file, device) = file(2000, extents);
        let expected: Vec<u8> = (0..200).flat_map(|number| device_bytes(place(number) as u32, 10)).collect();
        assert_eq!(read(&file, 0, 3000), expected);
        assert_eq!(device.largest.load(Ordering::Relaxed), BATCH);
        assert_eq!(device.batched.load(Ordering::Relaxed) + device.single.load(Ordering::Relaxed), 200);
        for start in (0..2000).step_by(77) {
            assert_eq!(read(&file, start, 150), expected[start as usize..][..150.min(2000 - start as usize)]);
        }
    }

    #[test]
    fn every_mapping_in_one_read() {
        let inline: Arc<[u8]> = vec![1, 2, 3].into();
        let (file, _) = file(
            60,
            vec![
                (0, 10, unwritten()),
                (10, 10, device(50)),
                (20, 5, Mapping::Hole),
                (25, 10, device(60)),
                (35, 5, Mapping::Inline(inline)),
                (40, 20, device(500)),
            ],
        );
        let whole = [
            vec![0; 10],
            device_bytes(50, 10),
            vec![0; 5],
            device_bytes(60, 10),
            vec![1, 2, 3, 0, 0],
            device_bytes(500, 20),
        ]
        .concat();
        for start in 0..60 {
            for end in start..=60 {
                assert_eq!(read(&file, start as u64, end - start), whole[start..end], "{start}..{end}");
            }
        }
        assert_eq!(file.seek_data(0).unwrap(), 10);
        assert_eq!(file.seek_hole(10).unwrap(), 20);
        assert_eq!(file.seek_data(20).unwrap(), 25);
        assert_eq!(file.seek_hole(25).unwrap(), 60);
        assert_eq!(ranges(&file, 0..u64::MAX), [(10, 20), (25, 60)]);
        let found: [(_, &[_]); 6] = [
            (0..60, &[(10, 20), (25, 60)]),
            (12..41, &[(12, 20), (25, 41)]),
            (20..25, &[]),
            (59..60, &[(59, 60)]),
            (60..90, &[]),
            (30..30, &[]),
        ];
        for (within, found) in found {
            assert_eq!(ranges(&file, within.clone()), found, "{within:?}");
        }
    }

    /// Where each part begins and ends.
    fn ranges(file: &File, within: Range<u64>) -> Vec<(u64, u64)> {
        file.data_ranges(within).map(Result::unwrap).map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn a_hole_of_exabytes_is_one_step() {
        let (file, _) =
            file(u64::MAX, vec![(0, u64::MAX - 10, Mapping::Hole), (u64::MAX - 10, 10, device(0))]);
        assert_eq!(file.seek_data(0).unwrap(), u64::MAX - 10);
        assert_eq!(file.seek_hole(u64::MAX - 5).unwrap(), u64::MAX);
        assert_eq!(ranges(&file, 0..u64::MAX).len(), 1);
        assert_eq!(file.data_ranges(0..u64::MAX).next().unwrap().unwrap(), u64::MAX - 10..u64::MAX);
        assert_eq!(read(&file, u64::MAX - 12, 100), [vec![0; 2], device_bytes(0, 10)].concat());
    }

    #[test]
    fn an_extent_elsewhere_is_corrupt_and_no_endless_loop() {
        for (start, len, mapping) in [
            (105, 0, Mapping::Hole),
            (100, 0, Mapping::Hole),
            (100, 5, device(0)),
            (106, 10, unwritten()),
            (106, u64::MAX, Mapping::Hole),
            (100, u64::MAX, device(u64::MAX - 4)),
        ] {
            let lie = Extent { start, len, mapping };
            let file = lying_file(lie.clone());
            for result in [
                file.read_at(105, &mut [0; 50]).map(|count| count as u64),
                file.seek_data(105),
                file.seek_hole(105),
                file.data_ranges(105..300).next().unwrap_or(Ok(0..0)).map(|found| found.start),
            ] {
                match result {
                    Err(Error::Corrupt(corruption)) => assert_eq!(corruption.structure, "extent"),
                    other => panic!("{lie:?} gave {other:?}"),
                }
            }
        }
    }

    #[test]
    fn ranges_end_at_what_cannot_be_known() {
        // Its fifth byte and those behind it would lie past the last byte that a device can have.
        let impossible = || device(u64::MAX - 3);
        for (first, data) in [(device(0), Some(0..10)), (Mapping::Hole, None)] {
            let (file, _) = file(100, vec![(0, 10, first), (5, 95, impossible())]);
            let mut ranges = file.data_ranges(0..100);
            if let Some(data) = data {
                assert_eq!(ranges.next().unwrap().unwrap(), data);
            }
            assert!(matches!(ranges.next(), Some(Err(Error::Corrupt(_)))));
            assert_eq!(ranges.position(), 10);
            assert!(ranges.next().is_none() && ranges.next().is_none());
        }
        let (file, _) = file(100, vec![(0, 10, device(0)), (10, 10, Mapping::Hole), (15, 85, impossible())]);
        let mut ranges = file.data_ranges(0..100);
        assert_eq!(ranges.next().unwrap().unwrap(), 0..10);
        assert!(ranges.next().unwrap().is_err() && ranges.next().is_none());
        assert_eq!(ranges.position(), 20);
    }

    /// A file whose every byte is said to lie in the same extent.
    fn lying_file(lie: Extent) -> File {
        let mut tree = Tree::new();
        tree.add("file", Object::File(Content::default()));
        let mut fs = MemoryFs::new(&tree);
        let inode = fs.inode_mut("file");
        inode.attr.size_bytes = 1000;
        inode.lie = Some(lie);
        let (vfs, _) = fs.mount(1 << 20, 1 << 20);
        vfs.open(&Credentials::root(), b"file").unwrap()
    }

    #[test]
    fn a_device_range_needs_a_device() {
        let (file, _) = file(1000, vec![(0, 500, device(0)), (500, 500, device(700))]);
        for len in [10, 600] {
            let result = read_at(Backing { inode: file.node().inode(), device: None }, 0, &mut vec![0; len]);
            assert!(matches!(result, Err(Error::Corrupt(_))), "{result:?}");
        }
    }

    #[test]
    fn a_range_outside_the_device_is_an_error() {
        let (file, _) = file(1000, vec![(0, 500, device(65_000)), (500, 500, device(65_300))]);
        assert!(matches!(file.read_at(0, &mut [0; 100]), Ok(100)));
        assert!(matches!(file.read_at(500, &mut [0; 500]), Err(Error::Io(_))));
        assert!(matches!(file.read_at(0, &mut [0; 1000]), Err(Error::Io(_))));
    }
}
