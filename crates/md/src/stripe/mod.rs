//! RAID4, 5 and 6 at work: the stripe cache.
//!
//! Parity is right or wrong for a row of bytes across all members, so a thread that writes one byte of a row must have the
//! row for itself. The unit for that is a *stripe*: the same piece (up to 64 KiB) of all chunks of a row (`shape`).
//! What a stripe holds is counted in pages of 4 KiB (`pages`, `buffer`): large requests take few stripes, small ones
//! move few bytes. A thread that needs a stripe gets it from the sets (`set`, `slots`, `ticket`), which hold a fixed
//! amount of memory and in which threads wait for a free stripe or for one that another thread has. The thread itself
//! does all the work (`work`, `rebuild`, `write`, `store`, `background`); requests complete in the call.
//!
//! Reads of members that are right go past all this (`read`).
//!
//! What always holds:
//! - A thread that writes to members, or reads them to rebuild something, is the owner of the stripe.
//! - Valid pages in memory are what the array holds there, whether or not a member holds it: the cache writes through.
//! - A write is answered when every member of the lineup has it, or what a member lacks, or that it failed, is recorded.
//! - An owner waits for no other stripe.
//!
//! A crash in the middle of a write leaves any of its bytes on the members old or new, parity among them. While no
//! member is missing a resync makes parity right; a degraded array survives it with a log (`logged`).
//!
//! Locks: a set's `STRIPE`, and `STRIPE_TICKET`; none is held over I/O.

use std::fmt;
use std::ops::AddAssign;
use std::sync::Arc;

use undercroft_block as block;

use self::buffer::StripeBuffer;
use self::pages::PAGE_BYTES;
use self::set::Sets;
use self::shape::Shape;
use crate::Result;
use crate::level::{self, Personality, Shared, SyncStep, SyncWork};
use crate::member::Place;

mod background;
mod buffer;
mod logged;
#[cfg(all(test, shuttle))]
mod model_tests;
mod options;
mod pages;
mod read;
mod rebuild;
mod set;
mod shape;
mod slots;
mod store;
#[cfg(all(test, not(shuttle)))]
mod tests;
mod ticket;
mod work;
mod write;

pub(crate) use options::StripeOptions;
pub use options::StripeWake;
pub(crate) use slots::Counts;

/// How stripes were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteCounts {
    /// Whole: nothing read.
    pub(crate) whole: u64,
    /// In parts, with a row of pages by read-modify-write.
    pub(crate) modified: u64,
    /// In parts, by reconstruct-write only.
    pub(crate) reconstructed: u64,
}

impl AddAssign for WriteCounts {
    fn add_assign(&mut self, other: Self) {
        self.whole += other.whole;
        self.modified += other.modified;
        self.reconstructed += other.reconstructed;
    }
}

/// The personality of RAID4, 5 and 6.
pub(crate) struct ParityRaid {
    shared: Arc<Shared>,
    shape: Shape,
    sets: Sets<StripeBuffer>,
}

impl ParityRaid {
    /// For a checked geometry of one of these levels.
    ///
    /// # Errors
    /// When there is no memory for the cache.
    pub(crate) fn new(shared: Arc<Shared>, options: StripeOptions) -> Result<Self> {
        let mut piece_bytes = Shape::best_piece_bytes(&shared.geometry, options.cache_bytes);
        // What a write to a stripe leaves as it is goes into a log at once.
        for capacity in shared.lineup().places.iter().filter_map(log_capacity) {
            while piece_bytes > capacity.max(PAGE_BYTES) {
                piece_bytes /= 2;
            }
        }
        Self::with_pieces(shared, options, piece_bytes)
    }

    fn with_pieces(shared: Arc<Shared>, options: StripeOptions, piece_bytes: usize) -> Result<Self> {
        let shape = Shape::new(&shared.geometry, piece_bytes);
        let stripe_bytes = shape.columns() * shape.piece_bytes;
        let slots = (options.cache_bytes / stripe_bytes).max(1);
        let buffers = (0..slots).map(|_| StripeBuffer::new(shape.columns(), shape.piece_bytes));
        let sets = Sets::new(buffers.collect::<Result<Vec<_>>>()?, options.wake);
        Ok(Self { shared, shape, sets })
    }

    /// What happened in the cache so far.
    pub(crate) fn counts(&self) -> (Counts, WriteCounts) {
        self.sets.counts()
    }
}

/// Bytes that the log of the role's member takes at once.
fn log_capacity(place: &Place) -> Option<usize> {
    Some(place.member.as_ref()?.log()?.capacity())
}

impl fmt::Debug for ParityRaid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParityRaid")
            .field("piece_bytes", &self.shape.piece_bytes)
            .field("slots", &self.sets.slots())
            .field("sets", &self.sets.set_count())
            .finish_non_exhaustive()
    }
}

impl Personality for ParityRaid {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_range(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut segments = Vec::with_capacity(self.shape.segments_of(data.len()));
        self.shape.cut(offset, data, &mut segments);
        self.write_segments(&mut segments)
    }

    fn run_batch(&self, batch: &mut [block::Request<'_>]) -> Result<()> {
        let has_logs = self.has_logs();
        let mut segments = Vec::new();
        for request in batch.iter() {
            if let block::Request::Write { offset, data } = request {
                self.shape.cut(*offset, data, &mut segments);
                if has_logs {
                    // What is carried out as one must have no gaps.
                    self.write_segments(&mut segments)?;
                    segments.clear();
                }
            }
        }
        self.write_segments(&mut segments)?;
        self.read_many(batch.iter_mut().filter_map(|request| match request {
            block::Request::Read { offset, buf } => Some((*offset, &mut **buf)),
            block::Request::Write { .. } => None,
        }))
    }

    fn sync(&self, position: u64, len: u64, work: SyncWork) -> Result<SyncStep> {
        self.sync_range(position, len, work)
    }

    fn memory_bytes(&self) -> u64 {
        (self.sets.slots() * self.shape.columns() * self.shape.piece_bytes) as u64
    }

    fn counters(&self) -> level::Counters {
        let (counts, writes) = self.counts();
        level::Counters {
            released_stripes: counts.released,
            wake_ups: counts.wakeups,
            vain_wake_ups: counts.vain_wakeups,
            whole_stripe_writes: writes.whole,
            read_modify_writes: writes.modified,
            reconstruct_writes: writes.reconstructed,
        }
    }
}
