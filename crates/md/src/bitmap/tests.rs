//! The bitmap at work on a store that remembers what is durable, and bitmaps of Linux.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use undercroft_block::testing::Rng;
use undercroft_sync::{Mutex, order};
use uuid::Uuid;

use super::*;
use crate::assemble::Candidate;
use crate::fixtures;

/// What one member has, and how often it was written to and flushed.
struct Store {
    bytes: Mutex<Vec<u8>>,
    writes: AtomicUsize,
    flushes: AtomicUsize,
}

impl BitmapStore for Store {
    fn write(&self, offset: u64, bytes: &[u8]) -> Failures {
        self.bytes.lock()[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
        self.writes.fetch_add(1, Ordering::SeqCst);
        Failures::new()
    }

    fn flush(&self) -> Failures {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        Failures::new()
    }
}

const CHUNK: u64 = 4096;

fn header(chunks: u64) -> BitmapHeader {
    BitmapHeader {
        array_uuid: Uuid::from_u128(7),
        events: 10,
        events_cleared: 4,
        sync_bytes: chunks * CHUNK - 512,
        chunk_bytes: CHUNK,
        delay_seconds: 5,
        state: 0,
    }
}

impl Store {
    fn new(header: &BitmapHeader) -> Self {
        let mut bytes = vec![0; header.bytes() as usize];
        bytes[..HEADER_BYTES].copy_from_slice(zerocopy::IntoBytes::as_bytes(&header.encode()));
        Self {
            bytes: Mutex::new(&order::DEVICE, bytes),
            writes: AtomicUsize::new(0),
            flushes: AtomicUsize::new(0),
        }
    }

    fn writes(&self) -> usize {
        self.writes.swap(0, Ordering::SeqCst)
    }

    fn header(&self) -> BitmapHeader {
        let source = Source { member: "store", structure: STRUCTURE, offset: 0 };
        BitmapHeader::decode(&self.bytes.lock(), u64::MAX, source).unwrap()
    }

    fn set_chunks(&self) -> Vec<u64> {
        let bytes = self.bytes.lock();
        let is_set = |chunk: &u64| bytes[HEADER_BYTES + (chunk / 8) as usize] & 1 << (chunk % 8) != 0;
        (0..(bytes.len() - HEADER_BYTES) as u64 * 8).filter(is_set).collect()
    }

    /// The bitmap that is found after a crash.
    fn reread(&self, consistent: u64) -> Bitmap {
        let header = self.header();
        Bitmap::new(header, &self.bytes.lock()[HEADER_BYTES..], header.events, consistent)
    }
}

fn fresh(chunks: u64) -> (Bitmap, Store) {
    let header = header(chunks);
    let store = Store::new(&header);
    (store.reread(0), store)
}

fn write(bitmap: &Bitmap, store: &Store, range: Range<u64>, is_complete: bool) {
    if bitmap.start_write(range.clone()) {
        assert!(bitmap.make_durable(range.clone(), store).is_empty());
    }
    bitmap.end_write(range, is_complete);
}

fn clear(bitmap: &Bitmap, store: &Store, events: u64) {
    assert!(bitmap.clear_idle(events, false, store).is_empty());
}

#[test]
fn a_bit_is_durable_before_the_write_and_written_once() {
    let (bitmap, store) = fresh(100_000);
    let range = 3 * CHUNK + 1..5 * CHUNK + 1;
    assert!(bitmap.start_write(range.clone()));
    assert!(bitmap.make_durable(range.clone(), &store).is_empty());
    assert_eq!(store.set_chunks(), [3, 4, 5]);
    assert_eq!(store.writes(), 1);
    assert!(!bitmap.start_write(4 * CHUNK..4 * CHUNK + 1));
    assert_eq!(bitmap.dirty_ranges(), vec![3 * CHUNK..6 * CHUNK]);
    assert!(bitmap.needed_ranges().is_empty());
    assert_eq!(bitmap.counts(), (3, 100_000));
    // What is set when the power fails is needed.
    assert_eq!(store.reread(0).needed_ranges(), vec![3 * CHUNK..6 * CHUNK]);
}

#[test]
fn pages_are_written_where_they_belong() {
    // The first page has room for 30,720 chunks, the others for 32,768.
    let (bitmap, store) = fresh(100_000);
    for chunk in [0, 30_719, 30_720, 63_487, 63_488, 99_999] {
        write(&bitmap, &store, chunk * CHUNK..chunk * CHUNK + 1, true);
    }
    assert_eq!(store.set_chunks(), [0, 30_719, 30_720, 63_487, 63_488, 99_999]);
    assert_eq!(store.header(), header(100_000));
    store.writes();
    write(&bitmap, &store, 30_700 * CHUNK..30_740 * CHUNK, true);
    assert_eq!(store.writes(), 2);
    // The last chunk is cut off where the sync space ends.
    let ranges = bitmap.dirty_ranges();
    assert_eq!(ranges.last(), Some(&(99_999 * CHUNK..100_000 * CHUNK - 512)));
    assert_eq!(store.reread(0).dirty_ranges(), ranges);
    // What a new member is given is all of it.
    let mut copy = vec![0; store.bytes.lock().len()];
    copy[..HEADER_BYTES].copy_from_slice(&bitmap.header_bytes(10));
    for (offset, piece) in bitmap.contents() {
        copy[offset as usize..offset as usize + piece.len()].copy_from_slice(&piece);
    }
    assert_eq!(copy, *store.bytes.lock());
}

#[test]
fn bits_are_cleared_late_and_only_if_unused() {
    let (bitmap, store) = fresh(100);
    write(&bitmap, &store, 0..1, true);
    write(&bitmap, &store, 2 * CHUNK..2 * CHUNK + 1, false);
    assert!(bitmap.start_write(4 * CHUNK..4 * CHUNK + 1));
    assert!(bitmap.make_durable(4 * CHUNK..4 * CHUNK + 1, &store).is_empty());
    clear(&bitmap, &store, 12);
    assert_eq!(store.set_chunks(), [0, 2, 4], "not at once");
    assert_eq!(store.header().events_cleared, 4);
    // Written to again: it has to wait once more.
    write(&bitmap, &store, 0..1, true);
    clear(&bitmap, &store, 12);
    assert_eq!(store.set_chunks(), [0, 2, 4]);
    assert_eq!(store.flushes.load(Ordering::SeqCst), 0);
    clear(&bitmap, &store, 12);
    assert_eq!(store.set_chunks(), [2, 4], "one is needed, one written to");
    assert_eq!(store.flushes.load(Ordering::SeqCst), 1);
    assert_eq!((store.header().events_cleared, bitmap.events_cleared()), (12, 12));
    bitmap.end_write(4 * CHUNK..4 * CHUNK + 1, true);
    assert!(bitmap.has_bits_to_clear());
    assert!(bitmap.clear_idle(14, true, &store).is_empty());
    assert_eq!(store.set_chunks(), [2]);
    assert!(!bitmap.has_bits_to_clear());
    // Set again after it was cleared.
    write(&bitmap, &store, 0..1, true);
    assert_eq!(store.set_chunks(), [0, 2]);
}

#[test]
fn a_sync_takes_away_what_it_saw() {
    let (bitmap, store) = fresh(100);
    write(&bitmap, &store, 0..3 * CHUNK, false);
    assert_eq!(bitmap.needed_ranges(), vec![0..3 * CHUNK]);
    bitmap.begin_sync(0..2 * CHUNK);
    // A write that misses a member while the sync is under way.
    write(&bitmap, &store, CHUNK..CHUNK + 1, false);
    bitmap.end_sync(0..2 * CHUNK, true);
    assert_eq!(bitmap.needed_ranges(), vec![CHUNK..3 * CHUNK]);
    bitmap.begin_sync(CHUNK..3 * CHUNK);
    assert_eq!(bitmap.needed_ranges(), vec![CHUNK..3 * CHUNK], "still so until it ends");
    bitmap.end_sync(CHUNK..3 * CHUNK, false);
    assert_eq!(bitmap.needed_ranges(), vec![CHUNK..3 * CHUNK]);
    bitmap.begin_sync(CHUNK..3 * CHUNK);
    bitmap.end_sync(CHUNK..3 * CHUNK, true);
    assert!(bitmap.needed_ranges().is_empty());
    clear(&bitmap, &store, 12);
    clear(&bitmap, &store, 12);
    assert!(store.set_chunks().is_empty());
}

#[test]
fn a_bitmap_that_is_older_than_the_array_says_nothing() {
    let header = header(100);
    let store = Store::new(&header);
    let bits = store.bytes.lock()[HEADER_BYTES..].to_vec();
    assert!(Bitmap::new(header, &bits, 10, 0).needed_ranges().is_empty());
    let stale = Bitmap::new(header, &bits, 11, 0);
    assert_eq!(stale.needed_ranges(), vec![0..header.sync_bytes]);
    assert_eq!(stale.events_cleared(), 11);
    // Of a clean array nothing is needed, whatever is set.
    assert!(Bitmap::new(header, &bits, 11, u64::MAX).needed_ranges().is_empty());
}

/// Whatever threads do: when a write has begun, its bit is on the member; when all is over and cleared, none is.
#[test]
fn threads_that_write_while_bits_are_cleared() {
    const CHUNKS: u64 = 64;
    let (bitmap, store) = fresh(CHUNKS);
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (bitmap, store, done) = (&bitmap, &store, &done);
            scope.spawn(move || {
                let mut random = Rng::new(thread);
                for _ in 0..2000 {
                    let chunk = random.below(CHUNKS);
                    let range = chunk * CHUNK..chunk * CHUNK + 1;
                    if bitmap.start_write(range.clone()) {
                        assert!(bitmap.make_durable(range.clone(), store).is_empty());
                    }
                    let is_set =
                        store.bytes.lock()[HEADER_BYTES + (chunk / 8) as usize] & 1 << (chunk % 8) != 0;
                    assert!(is_set, "chunk {chunk} is written to and its bit is not set");
                    bitmap.end_write(range, true);
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        while done.load(Ordering::SeqCst) < 4 {
            clear(&bitmap, &store, 20);
        }
    });
    clear(&bitmap, &store, 20);
    clear(&bitmap, &store, 20);
    assert!(store.set_chunks().is_empty());
    assert_eq!(bitmap.counts().0, 0);
}

#[test]
fn bitmaps_of_linux_say_what_mdadm_says() {
    for (array, dirty, events, cleared) in [("raid5-bitmap", 0, 18, 18), ("raid5-bitmap-unclean", 13, 19, 19)]
    {
        for device in fixtures::members(array) {
            let candidate = Candidate::read(device).unwrap();
            let (area, header) = read_header(&*candidate.device, &candidate.superblock).unwrap().unwrap();
            assert_eq!(header.array_uuid, candidate.superblock.array_uuid);
            assert_eq!((header.events, header.events_cleared), (events, cleared), "{array}");
            assert_eq!(
                (header.chunk_bytes, header.sync_bytes, header.delay_seconds),
                (256 << 10, 63 << 20, 5)
            );
            let bits = read_bits(&*candidate.device, area, &header).unwrap();
            let bitmap =
                Bitmap::new(header, &bits, candidate.superblock.events, candidate.superblock.resynced);
            assert_eq!(bitmap.counts(), (dirty, 252));
            assert_eq!(bitmap.needed_ranges(), bitmap.dirty_ranges());
            // The header that we would write is the one that is there.
            let mut there = vec![0; HEADER_BYTES];
            candidate.device.read_at(area.offset, &mut there).unwrap();
            assert_eq!(bitmap.header_bytes(events), there);
        }
    }
}

#[test]
fn headers_that_cannot_be_are_refused() {
    use zerocopy::byteorder::little_endian::{U32, U64};
    let source = Source { member: "member", structure: STRUCTURE, offset: 0 };
    let refused = |change: &dyn Fn(&mut raw::RawBitmapSuperblock)| {
        let mut raw = header(100).encode();
        change(&mut raw);
        BitmapHeader::decode(zerocopy::IntoBytes::as_bytes(&raw), 4096, source).unwrap_err().to_string()
    };
    assert!(refused(&|raw| raw.magic = U32::new(1)).contains("magic number"));
    assert!(refused(&|raw| raw.version = U32::new(5)).contains("cluster"));
    assert!(refused(&|raw| raw.version = U32::new(6)).contains("lockless"));
    assert!(refused(&|raw| raw.nodes = U32::new(4)).contains("cluster"));
    assert!(refused(&|raw| raw.chunksize = U32::new(5000)).contains("5000 bytes"));
    assert!(refused(&|raw| raw.sync_size = U64::new(u64::MAX)).contains("covers"));
    assert!(refused(&|raw| raw.sync_size = U64::new(1 << 40)).contains("do not fit"));
    assert!(refused(&|raw| raw.sync_size = U64::new(0)).contains("covers 0"));
    assert!(BitmapHeader::decode(&[0; 100], 4096, source).is_err());
}
