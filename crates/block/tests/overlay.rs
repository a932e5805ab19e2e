//! What an overlay adds to the contract: the base stays as it is, untouched ranges cost next to nothing, and what is
//! written takes as much space as it must.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use undercroft_block::testing::{FailNth, Repeat};
use undercroft_block::{
    Access, BlockDevice, Device, Error, FileDevice, FileOptions, MemoryDevice, Operation, Overlay,
    OverlayStore, Request, Result,
};
use undercroft_sync::{Mutex, order};

/// A device that remembers the reads it was asked for.
#[derive(Debug)]
struct Watched {
    inner: MemoryDevice,
    reads: Mutex<Vec<(u64, usize)>>,
    batches: AtomicUsize,
}

impl Watched {
    fn new(content: Vec<u8>) -> Arc<Self> {
        let inner = MemoryDevice::from_bytes(content, Access::ReadOnly);
        Arc::new(Self { inner, reads: Mutex::new(&order::DEVICE, Vec::new()), batches: AtomicUsize::new(0) })
    }

    fn take_reads(&self) -> Vec<(u64, usize)> {
        std::mem::take(&mut self.reads.lock())
    }
}

impl BlockDevice for Watched {
    fn name(&self) -> String {
        "watched".to_owned()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn access(&self) -> Access {
        self.inner.access()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.reads.lock().push((offset, buf.len()));
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        panic!("an overlay never writes to its base");
    }

    fn flush(&self) -> Result<()> {
        panic!("an overlay has nothing to flush in its base");
    }

    fn run_batch(&self, batch: &mut [Request<'_>]) -> Result<()> {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.inner.run_batch(batch)
    }
}

fn stores() -> [OverlayStore; 2] {
    [OverlayStore::Memory, OverlayStore::TempFile(env!("CARGO_TARGET_TMPDIR").into())]
}

#[test]
fn a_read_only_file_becomes_writable_and_stays_as_it_is() {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(file.path(), vec![7; 100_000]).unwrap();
    for store in stores() {
        let base: Device = Arc::new(FileDevice::open(file.path(), FileOptions::read_only()).unwrap());
        let overlay = Overlay::with_store(base, &store).unwrap();
        overlay.write_at(50_000, &[8; 1000]).unwrap();
        overlay.write_zeroes(0, 10_000).unwrap();
        overlay.flush().unwrap();
        let mut found = vec![0; 100_000];
        overlay.read_at(0, &mut found).unwrap();
        assert_eq!(found, [vec![0; 10_000], vec![7; 40_000], vec![8; 1000], vec![7; 49_000]].concat());
        assert_eq!(std::fs::read(file.path()).unwrap(), vec![7; 100_000]);
    }
}

#[test]
fn untouched_ranges_are_read_from_the_base_in_one_request() {
    for store in stores() {
        let base = Watched::new(vec![1; 1 << 20]);
        let overlay = Overlay::with_store(base.clone(), &store).unwrap();
        let mut buf = vec![0; 1 << 20];
        overlay.read_at(0, &mut buf).unwrap();
        assert_eq!(base.take_reads(), [(0, 1 << 20)]);

        // One chunk written as a whole and one in part: only the latter needs the base, and only the first time.
        overlay.write_at(8192, &[2; 4096]).unwrap();
        assert_eq!(base.take_reads(), []);
        overlay.write_at(40_960 + 100, &[3; 10]).unwrap();
        overlay.write_at(40_960 + 200, &[4; 10]).unwrap();
        assert_eq!(base.take_reads(), [(40_960, 4096)]);
        overlay.read_at(0, &mut buf).unwrap();
        assert_eq!(base.take_reads(), [(0, 8192), (12_288, 28_672), (45_056, (1 << 20) - 45_056)]);
        assert_eq!((buf[8192], buf[12_288], buf[41_060], buf[41_070], buf[41_160]), (2, 1, 3, 1, 4));
        assert_eq!(overlay.changed_bytes(), 8192);
    }
}

#[test]
fn reads_of_a_batch_stay_together() {
    let base = Watched::new(vec![1; 1 << 20]);
    let overlay = Overlay::new(base.clone());
    overlay.write_at(0, &[2; 100]).unwrap();
    base.take_reads();
    let mut bufs = vec![[0; 512]; 50];
    let mut batch: Vec<_> =
        (0..).zip(&mut bufs).map(|(n, buf)| Request::Read { offset: n * 8192, buf }).collect();
    overlay.run_batch(&mut batch).unwrap();
    assert_eq!(base.batches.load(Ordering::Relaxed), 1);
    assert_eq!(base.take_reads(), []);
    assert_eq!((bufs[0][99], bufs[0][100], bufs[49][0]), (2, 1, 1));
}

#[test]
fn discarding_gives_memory_back_and_leaves_the_rest_to_the_base() {
    let base = Watched::new(vec![1; 1 << 20]);
    let overlay = Overlay::new(base.clone());
    overlay.write_at(4096, &[2; 8192]).unwrap();
    overlay.discard(0, 1 << 20).unwrap();
    assert_eq!(overlay.changed_bytes(), 8192, "nothing was added");
    let mut buf = vec![9; 16_384];
    overlay.read_at(0, &mut buf).unwrap();
    assert_eq!((buf[4095], buf[4096], buf[12_287], buf[12_288]), (1, 0, 0, 1));
}

#[test]
fn an_overlay_on_an_overlay_is_a_second_snapshot() {
    let first: Device = Arc::new(Overlay::new(Arc::new(MemoryDevice::new(100_000))));
    first.write_at(500, b"first").unwrap();
    let second = Overlay::new(first.clone());
    second.write_at(505, b"second").unwrap();
    let read = |device: &dyn BlockDevice| {
        let mut buf = [0; 11];
        device.read_at(500, &mut buf).unwrap();
        buf
    };
    assert_eq!(&read(&second), b"firstsecond");
    assert_eq!(&read(&*first), b"first\0\0\0\0\0\0");
}

#[test]
fn a_huge_base_costs_nothing_until_it_is_written_to() {
    let overlay = Overlay::new(Arc::new(MemoryDevice::new(1 << 60)));
    overlay.write_at((1 << 60) - 5, b"end").unwrap();
    overlay.discard(0, (1 << 60) - 1).unwrap();
    let mut buf = [1; 5];
    overlay.read_at((1 << 60) - 5, &mut buf).unwrap();
    assert_eq!(&buf, b"end\0\0");
    assert_eq!(overlay.changed_bytes(), 4096);
}

#[test]
fn a_failing_base_fails_the_write_that_needs_it() {
    /// Its reads fail.
    #[derive(Debug)]
    struct Unreadable;
    impl BlockDevice for Unreadable {
        fn name(&self) -> String {
            "unreadable".to_owned()
        }
        fn size_bytes(&self) -> u64 {
            1 << 20
        }
        fn access(&self) -> Access {
            Access::ReadOnly
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
            let source = std::io::Error::other("broken");
            Err(Error::Io {
                operation: Operation::Read,
                offset,
                len: buf.len() as u64,
                device: self.name(),
                source,
            })
        }
        fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
            panic!("an overlay never writes to its base");
        }
        fn flush(&self) -> Result<()> {
            Ok(())
        }
    }
    let overlay = Overlay::new(Arc::new(Unreadable));
    overlay.write_at(4096, &[1; 4096]).unwrap();
    let error = overlay.write_at(100, &[1]).unwrap_err();
    assert!(matches!(error, Error::Io { operation: Operation::Read, offset: 0, len: 4096, .. }), "{error}");
    overlay.write_at(4100, &[2]).unwrap();
    let mut buf = [0; 5];
    overlay.read_at(4096, &mut buf).unwrap();
    assert_eq!(buf, [1, 1, 1, 1, 2]);
}

#[test]
fn a_missing_directory_is_named() {
    let store = OverlayStore::TempFile("/nonexistent/directory".into());
    let error = Overlay::with_store(Arc::new(MemoryDevice::new(1)), &store).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/directory"), "{error}");
}

/// A snapshot over a writable image writes nothing to it, and asks nothing of it that may fail: a base that cannot be
/// flushed is as good as any.
#[test]
fn the_base_is_neither_written_nor_flushed() {
    let content: Vec<u8> = (0..100_000).map(|at| (at % 251) as u8).collect();
    let base: Device = Arc::new(MemoryDevice::from_bytes(content.clone(), Access::ReadWrite));
    let flushes = Arc::new(FailNth::new(base, Operation::Flush, 1, Repeat::FromThenOn));
    let writes =
        Arc::new(FailNth::new(Arc::clone(&flushes) as Device, Operation::Write, 1, Repeat::FromThenOn));
    let directory = tempfile::tempdir().unwrap();
    for store in [OverlayStore::Memory, OverlayStore::TempFile(directory.path().to_owned())] {
        let overlay = Overlay::with_store(Arc::clone(&writes) as Device, &store).unwrap();
        overlay.write_at(5000, &[7; 20_000]).unwrap();
        overlay.write_zeroes(40_000, 10_000).unwrap();
        overlay.discard(60_000, 8192).unwrap();
        overlay.flush().unwrap();
        drop(overlay);
        assert_eq!((writes.seen(), flushes.seen()), (0, 0), "{store:?}");
    }
}

#[test]
fn what_has_changed_is_told_in_order() {
    let overlay = Overlay::new(Arc::new(MemoryDevice::new(100_000)));
    assert!(overlay.changed_ranges().is_empty());
    for offset in [99_999, 50_000, 4096, 8191, 12_288] {
        overlay.write_at(offset, b"x").unwrap();
    }
    assert_eq!(overlay.changed_ranges(), [4096..8192, 12_288..16_384, 49_152..53_248, 98_304..100_000]);
}
