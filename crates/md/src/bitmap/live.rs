//! The bitmap of a running array.
//!
//! Before data is written, the bits of its chunks are set and durable on all members ([`Bitmap::start_write`], and
//! [`Bitmap::make_durable`] where it says so); a write to a chunk whose bit is set already touches one atomic word and
//! takes no lock. Bits are cleared late and lazily by the array's worker ([`Bitmap::clear_idle`]), and only while the
//! array lacks no member: a member that comes back needs nothing but what is set.
//!
//! Order, and so what a crash may leave: a bit is durable before data of its chunk is written; all data of a chunk is
//! durable, and the header says at which event count bits were cleared, before its bit is cleared anywhere.
//!
//! The header (256 bytes) and the bits are written apart. Bits are written in pages of 4 KiB, counted from the header's
//! beginning, by the holder of the page; a thread that waits for a page finds its bits written by the one before.
//!
//! Over writes to members, which may be arrays with bitmaps of their own, an `IoMutex` is held and no lock (see
//! [`quiesce`](crate::quiesce)): `tick`, then that of a page. A page's locks are held only to look at it or to change it: the
//! image, the list. An implementation of [`BitmapStore`] must not come back here; members that fail are returned to the
//! caller, which leaves them out once all of them are released.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use undercroft_block as block;
use undercroft_sync::{Mutex, order};
use zerocopy::IntoBytes as _;

use super::chunk::Chunk;
use super::{BitmapHeader, HEADER_BYTES};
use crate::member::Member;
use crate::quiesce::IoMutex;

const PAGE_BYTES: usize = 4096;
const PAGE_CHUNKS: u64 = PAGE_BYTES as u64 * 8;
/// The first page begins with the header; its bits would be those of so many chunks.
const HEADER_CHUNKS: u64 = HEADER_BYTES as u64 * 8;

/// Members that failed, and of what. The caller leaves them out of the array before it goes on.
pub(crate) type Failures = Vec<(Arc<Member>, block::Error)>;

/// Where a bitmap is kept: the array, which knows the members and their places.
pub(crate) trait BitmapStore {
    /// Writes to the bitmap of every member, at `offset` bytes from its beginning, durably.
    fn write(&self, offset: u64, bytes: &[u8]) -> Failures;

    /// Makes all that was written to members durable.
    fn flush(&self) -> Failures;
}

/// See the module.
pub(crate) struct Bitmap {
    header: BitmapHeader,
    chunk_shift: u32,
    /// The array's event count when bits were last cleared.
    events_cleared: AtomicU64,
    pages: Box<[Page]>,
    /// One clears at a time.
    tick: IoMutex,
}

struct Page {
    /// Of the thread that writes the page to the members.
    writing: IoMutex,
    /// By bit of the page, from the header's beginning. Made when the first bit is set.
    chunks: OnceLock<Box<[Chunk]>>,
    /// The bits as they are on the members, or are being written to them.
    image: Mutex<Box<[u8; PAGE_BYTES]>>,
    /// Chunks that want their bits set, so that the next thread that writes the page sets them all.
    wanted: Mutex<Vec<u32>>,
}

impl fmt::Debug for Bitmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bitmap").field("header", &self.header).finish_non_exhaustive()
    }
}

impl Page {
    fn new() -> Self {
        Self {
            writing: IoMutex::new(),
            chunks: OnceLock::new(),
            image: Mutex::new(&order::BITMAP_PAGE, Box::new([0; PAGE_BYTES])),
            wanted: Mutex::new(&order::BITMAP_WANTED, Vec::new()),
        }
    }

    fn chunks(&self) -> &[Chunk] {
        self.chunks.get_or_init(|| (0..PAGE_CHUNKS).map(|_| Chunk::default()).collect())
    }

    /// Those that were ever set.
    fn known(&self) -> &[Chunk] {
        self.chunks.get().map_or(&[], |chunks| chunks)
    }
}

fn has_bit(image: &[u8], bit: usize) -> bool {
    image[bit / 8] & 1 << (bit % 8) != 0
}

impl Bitmap {
    /// A bitmap as it was read: its header and its bits. The array has `array_events` events and is known to be
    /// consistent up to byte `consistent` of its sync space: what is set beyond is needed, all else can be cleared. On
    /// an array that lacks a member, everything that is set is needed (`consistent` is 0).
    ///
    /// A bitmap that is older than the array counts as set everywhere.
    pub(crate) fn new(header: BitmapHeader, bits: &[u8], array_events: u64, consistent: u64) -> Self {
        let is_stale = header.is_stale(array_events);
        let events_cleared = if is_stale { array_events } else { header.events_cleared };
        let pages = (header.chunks() + HEADER_CHUNKS).div_ceil(PAGE_CHUNKS);
        let mut pages: Box<[Page]> = (0..pages).map(|_| Page::new()).collect();
        let chunk_shift = header.chunk_bytes.trailing_zeros();
        for chunk in 0..header.chunks() {
            let byte = bits.get((chunk / 8) as usize).copied().unwrap_or(0);
            if !is_stale && byte & 1 << (chunk % 8) == 0 {
                continue;
            }
            let end = (chunk + 1) << chunk_shift;
            let (page, bit) = place(chunk);
            let page = &mut pages[page];
            page.chunks();
            if let Some(chunks) = page.chunks.get_mut() {
                chunks[bit] = Chunk::new(true, end > consistent);
            }
            page.image.get_mut()[bit / 8] |= 1 << (bit % 8);
        }
        Self {
            chunk_shift,
            events_cleared: AtomicU64::new(events_cleared),
            pages,
            tick: IoMutex::new(),
            header: BitmapHeader { state: 0, ..header },
        }
    }

    /// How long the worker waits between two calls of [`clear_idle`](Self::clear_idle).
    pub(crate) fn delay_seconds(&self) -> u32 {
        self.header.delay_seconds
    }

    /// Bytes of the sync space that one bit stands for.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        self.header.chunk_bytes
    }

    /// Members that have fewer events than this cannot come back by bitmap.
    pub(crate) fn events_cleared(&self) -> u64 {
        self.events_cleared.load(Ordering::SeqCst)
    }

    /// Bits that are set, and in all.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let set = self.pages.iter().flat_map(Page::known).filter(|chunk| chunk.is_set()).count();
        (set as u64, self.header.chunks())
    }

    /// The header for an array of so many events: 256 bytes that are written to the beginning of every bitmap together
    /// with the superblocks, before them.
    pub(crate) fn header_bytes(&self, array_events: u64) -> Vec<u8> {
        let events_cleared = self.events_cleared().min(array_events);
        let header = BitmapHeader { events: array_events, events_cleared, ..self.header };
        header.encode().as_bytes().to_vec()
    }

    /// All of the bits, as pieces with their offsets: what a device gets that joins the array.
    pub(crate) fn contents(&self) -> Vec<(u64, Vec<u8>)> {
        let piece = |(number, page): (usize, &Page)| {
            let _writing = page.writing.lock();
            self.piece(number, &page.image.lock()[..])
        };
        self.pages.iter().enumerate().map(piece).collect()
    }

    /// The bytes of a page that hold bits, and their offset.
    fn piece(&self, page: usize, image: &[u8]) -> (u64, Vec<u8>) {
        let start = if page == 0 { HEADER_BYTES } else { 0 };
        let offset = (page * PAGE_BYTES + start) as u64;
        let end = (self.header.bytes() - (page * PAGE_BYTES) as u64).min(PAGE_BYTES as u64) as usize;
        (offset, image[start..end].to_vec())
    }

    /// The chunks of a range, page by page.
    fn each_page(&self, range: Range<u64>) -> impl Iterator<Item = (&Page, usize, Range<usize>)> {
        let first = range.start >> self.chunk_shift;
        let last = if range.is_empty() { first } else { ((range.end - 1) >> self.chunk_shift) + 1 };
        let last = last.min(self.header.chunks());
        let (first, last) = (first.min(last) + HEADER_CHUNKS, last + HEADER_CHUNKS);
        let pages = (first / PAGE_CHUNKS)..last.div_ceil(PAGE_CHUNKS);
        pages.map(move |page| {
            let begin = page * PAGE_CHUNKS;
            let bits = (first.max(begin) - begin) as usize..(last.min(begin + PAGE_CHUNKS) - begin) as usize;
            (&self.pages[page as usize], page as usize, bits)
        })
    }

    /// A write to a range of the sync space begins. Returns whether bits must be made durable before data is written.
    /// [`end_write`](Self::end_write) must follow in any case.
    #[must_use]
    pub(crate) fn start_write(&self, range: Range<u64>) -> bool {
        let mut must_wait = false;
        for (page, _, bits) in self.each_page(range) {
            for chunk in &page.chunks()[bits] {
                must_wait |= !chunk.start();
            }
        }
        must_wait
    }

    /// Sets the bits of a range for which [`start_write`](Self::start_write) said so.
    #[must_use]
    pub(crate) fn make_durable(&self, range: Range<u64>, store: &dyn BitmapStore) -> Failures {
        let mut failures = Failures::new();
        for (page, number, bits) in self.each_page(range) {
            let chunks = page.chunks();
            let missing = bits.clone().filter(|&bit| !chunks[bit].is_set()).map(|bit| bit as u32);
            page.wanted.lock().extend(missing);
            let _writing = page.writing.lock();
            // Taken with the page's mutex held: what is on the list from here on is in this write or the next.
            let wanted = std::mem::take(&mut *page.wanted.lock());
            let new: Vec<usize> =
                wanted.into_iter().map(|bit| bit as usize).filter(|&bit| !chunks[bit].is_set()).collect();
            if new.is_empty() {
                continue;
            }
            let (offset, bytes) = {
                let mut image = page.image.lock();
                for &bit in &new {
                    image[bit / 8] |= 1 << (bit % 8);
                }
                self.piece(number, &image[..])
            };
            failures.extend(store.write(offset, &bytes));
            for bit in new {
                chunks[bit].set();
            }
        }
        failures
    }

    /// A write ends. `is_complete`: it is on all members of the array, and none is missing.
    pub(crate) fn end_write(&self, range: Range<u64>, is_complete: bool) {
        for (page, _, bits) in self.each_page(range) {
            for chunk in &page.chunks()[bits] {
                chunk.end(is_complete);
            }
        }
    }

    /// Clears bits that were not needed since the last call, and marks those that are not needed now. To be called
    /// every so many seconds, by one thread, while no member is missing or being recovered. `now`: clears all that
    /// are not needed, as an array does that closes. `array_events`: what the superblocks say.
    #[must_use]
    pub(crate) fn clear_idle(&self, array_events: u64, now: bool, store: &dyn BitmapStore) -> Failures {
        let _tick = self.tick.lock();
        let mut failures = Failures::new();
        let may_clear = |page: &&Page| page.known().iter().any(|chunk| chunk.may_be_cleared(now));
        if self.pages.iter().any(|page| may_clear(&page)) {
            failures.extend(store.flush());
            if !failures.is_empty() {
                return failures;
            }
            if self.events_cleared.swap(array_events, Ordering::SeqCst) != array_events {
                failures.extend(store.write(0, &self.header_bytes(array_events)));
            }
            // With a member gone in between, its return depends on these bits.
            for (number, page) in self.pages.iter().enumerate() {
                if failures.is_empty() && may_clear(&page) {
                    failures.extend(self.clear_page(number, page, now, store));
                }
            }
        }
        for chunk in self.pages.iter().flat_map(Page::known) {
            chunk.mark_idle();
        }
        failures
    }

    fn clear_page(&self, number: usize, page: &Page, now: bool, store: &dyn BitmapStore) -> Failures {
        let _writing = page.writing.lock();
        let (offset, bytes) = {
            let mut image = page.image.lock();
            for (bit, chunk) in page.known().iter().enumerate() {
                if has_bit(&image[..], bit) && chunk.clear(now) {
                    image[bit / 8] &= !(1 << (bit % 8));
                }
            }
            self.piece(number, &image[..])
        };
        store.write(offset, &bytes)
    }

    /// Whether [`clear_idle`](Self::clear_idle) has, or will have, anything to do if nothing is written.
    pub(crate) fn has_bits_to_clear(&self) -> bool {
        self.pages.iter().flat_map(Page::known).any(|chunk| chunk.is_set() && !chunk.is_needed())
    }

    /// Ranges of the sync space in which members may differ even without a write: what a resync has to look at.
    pub(crate) fn needed_ranges(&self) -> Vec<Range<u64>> {
        self.ranges(Chunk::is_needed)
    }

    /// Ranges of the sync space whose bits are set: what a member has to be given that comes back.
    pub(crate) fn dirty_ranges(&self) -> Vec<Range<u64>> {
        self.ranges(Chunk::is_set)
    }

    fn ranges(&self, wanted: impl Fn(&Chunk) -> bool) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (number, page) in (0_u64..).zip(&self.pages) {
            for (bit, _) in page.known().iter().enumerate().filter(|(_, chunk)| wanted(chunk)) {
                let chunk = number * PAGE_CHUNKS + bit as u64 - HEADER_CHUNKS;
                let start = chunk << self.chunk_shift;
                let end = (start + self.header.chunk_bytes).min(self.header.sync_bytes);
                match ranges.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => ranges.push(start..end),
                }
            }
        }
        ranges
    }

    /// A sync of these chunks begins: what writes leave to be done from here on stays needed when it ends.
    pub(crate) fn begin_sync(&self, range: Range<u64>) {
        for (page, _, bits) in self.each_page(range) {
            page.known().get(bits).unwrap_or_default().iter().for_each(Chunk::begin_sync);
        }
    }

    /// A sync of whole chunks that was begun ends. `is_done`: the members agree, none is missing, and that is durable.
    pub(crate) fn end_sync(&self, range: Range<u64>, is_done: bool) {
        for (page, _, bits) in self.each_page(range) {
            page.known().get(bits).unwrap_or_default().iter().for_each(|chunk| chunk.end_sync(is_done));
        }
    }
}

/// The page of a chunk, and its bit there.
fn place(chunk: u64) -> (usize, usize) {
    let at = chunk + HEADER_CHUNKS;
    ((at / PAGE_CHUNKS) as usize, (at % PAGE_CHUNKS) as usize)
}
