//! Power is lost at any moment: what was flushed is there after the next start, and the redundancy is right again.
//!
//! Fault model: all members lose power at once. Of each, what a flush has promised survives, and of the rest any subset
//! of sectors. What was written but not flushed may be old or new, byte by byte; nothing else may differ. Where a
//! member was lost before, a partial parity log has to see to that. What it cannot promise, here as in Linux: blocks of
//! 4 KiB of the lost member that were being written, since all that is left of them is the parity.
//!
//! A member may also have blocks that take no writes, for some time. What lies there after the crash looks good and is
//! old: if the array did not know that, it would give it back.
//!
//! `UNDERCROFT_MD_CRASHES` says how many moments are tried of each run, `UNDERCROFT_MD_SEED` with what the first run
//! begins.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use undercroft_block::testing::{Recorder, Recording, Rng};
use undercroft_block::{BlockDevice, Device, MemoryDevice};
use undercroft_md::{Array, ArrayOptions, CreateOptions, Level};
use undercroft_sync::{Mutex, order};

use super::support::{LONG, Order, Tap, check, create, fill, modest, number_from, pattern, read_all, small};

const DATA: u64 = 64 << 10;
/// As `small` makes them.
const CHUNK: usize = 8192;
const WRITES: u64 = 40;

/// A write, or a flush, and when it began and ended in the common order.
struct Step {
    write: Option<(usize, Vec<u8>)>,
    begun: usize,
    ended: usize,
}

/// What was done to an array, with all that is needed to go back to any moment of it.
struct Run {
    seed: u64,
    /// The content that the members began with.
    before: Vec<u8>,
    steps: Vec<Step>,
    order: Vec<usize>,
    recordings: Vec<Recording>,
    harm: Harm,
    has_parity: bool,
}

/// What is wrong with an array from the beginning.
#[derive(Clone)]
enum Harm {
    None,
    /// This member left it before the first step.
    Lost(usize),
    /// This range of the data area of this member takes no writes in the first half of the steps.
    Bad(usize, Range<u64>),
}

impl Run {
    fn new(new: &CreateOptions, members: usize, harm: Harm, seed: u64) -> Self {
        let lost = harm.lost();
        let data_offset = new.data_offset.unwrap_or(0);
        let base: Vec<Device> =
            (0..members).map(|_| Arc::new(MemoryDevice::new(data_offset + DATA)) as Device).collect();
        let array = create(&base, new);
        let before = fill(&array, seed);
        array.flush().unwrap();
        if let Some(lost) = lost {
            array.fail(lost as u32).unwrap();
        }
        array.close().unwrap();
        drop(array);

        let order: Order = Arc::new(Mutex::new(&order::DEVICE_STACK, Vec::new()));
        let recorders: Vec<_> = base.into_iter().map(|base| Arc::new(Recorder::new(base))).collect();
        let is_bad = Arc::new(AtomicBool::new(true));
        let taps: Vec<Device> = recorders
            .iter()
            .enumerate()
            .filter(|(member, _)| Some(*member) != lost)
            .map(|(member, recorder)| {
                let bad = match &harm {
                    Harm::Bad(bad, range) if *bad == member => {
                        data_offset + range.start..data_offset + range.end
                    }
                    _ => 0..0,
                };
                let (recorder, order) = (Arc::clone(recorder), Arc::clone(&order));
                Arc::new(Tap { member, recorder, order, bad, is_bad: Arc::clone(&is_bad) }) as Device
            })
            .collect();
        let array = super::support::open(&taps);
        let (mut random, mut steps) = (Rng::new(seed), Vec::new());
        let size = array.size_bytes();
        for number in 0..WRITES {
            is_bad.store(number < WRITES / 2, Ordering::SeqCst);
            let begun = order.lock().len();
            let write = if random.below(5) == 0 {
                array.flush().unwrap();
                None
            } else {
                // Mostly small ones, in few places, so that they meet.
                let len =
                    if random.below(4) == 0 { 1 + random.below(size / 2) } else { 1 + random.below(6000) };
                let offset = random.below(size - len + 1);
                let data = pattern(seed ^ number << 32, len as usize);
                array.write_at(offset, &data).unwrap();
                Some((offset as usize, data))
            };
            steps.push(Step { write, begun, ended: order.lock().len() });
            if random.below(16) == 0 {
                // Long enough to be marked clean.
                while array.status().is_active {
                    std::thread::yield_now();
                }
            }
        }
        array.close().unwrap();
        drop(array);
        let recordings = recorders.iter().map(|recorder| recorder.recording()).collect();
        let order = order.lock().clone();
        Self { seed, before, steps, order, recordings, harm, has_parity: new.level == Level::Raid5 }
    }

    /// The members, but for the lost one, as a crash after so many events leaves them.
    fn crash(&self, events: usize, seed: u64) -> Vec<Device> {
        let mut devices = Vec::new();
        for (member, recording) in self.recordings.iter().enumerate() {
            if Some(member) != self.harm.lost() {
                let count = self.order[..events].iter().filter(|&&other| other == member).count();
                devices.push(recording.crash(count, seed.wrapping_add(member as u64)).unwrap().0);
            }
        }
        devices
    }

    /// Whether a byte belongs to the lost member, or to the bad blocks of one, and its block was being written.
    fn may_be_lost(&self, at: usize, possible: &[&(usize, Vec<u8>)]) -> bool {
        let members = self.recordings.len();
        let chunk = at / CHUNK;
        let (row, index) = (chunk / (members - 1), chunk % (members - 1));
        // Left-symmetric: data goes on behind the parity.
        let parity = members - 1 - row % members;
        let block = at / 4096 * 4096..(at / 4096 + 1) * 4096;
        let (member, place) = ((parity + 1 + index) % members, (row * CHUNK + at % CHUNK) as u64);
        let is_harmed = match &self.harm {
            Harm::None => false,
            Harm::Lost(lost) => member == *lost,
            Harm::Bad(bad, range) => member == *bad && range.contains(&place),
        };
        self.has_parity
            && is_harmed
            && possible.iter().any(|(offset, data)| *offset < block.end && offset + data.len() > block.start)
    }

    /// Panics if `found` cannot have come of a crash after so many events.
    fn check_content(&self, found: &[u8], events: usize, what: &str) {
        // What the last flush has promised, then what may have come over it.
        let is_flushed = |step: &Step| step.write.is_none() && step.ended <= events;
        let flushed = self.steps.iter().rposition(is_flushed).map_or(0, |at| at + 1);
        let mut certain = self.before.clone();
        for (offset, data) in self.steps[..flushed].iter().filter_map(|step| step.write.as_ref()) {
            certain[*offset..*offset + data.len()].copy_from_slice(data);
        }
        let possible: Vec<_> = self.steps[flushed..]
            .iter()
            .filter(|step| step.begun < events)
            .filter_map(|step| step.write.as_ref())
            .collect();
        for at in 0..found.len() {
            let is_possible = self.may_be_lost(at, &possible)
                || found[at] == certain[at]
                || possible.iter().any(|(offset, data)| {
                    at.checked_sub(*offset).and_then(|at| data.get(at)).is_some_and(|byte| *byte == found[at])
                });
            assert!(
                is_possible,
                "{what}: byte {at} is {:#04x}, was {:#04x} when flushed",
                found[at], certain[at]
            );
        }
    }

    /// Tries some of the moments.
    fn try_crashes(&self, name: &str, options: ArrayOptions) {
        let mut random = Rng::new(self.seed ^ 0xc4a5);
        for _ in 0..number_from("UNDERCROFT_MD_CRASHES", 25) {
            let events = random.below(self.order.len() as u64 + 1) as usize;
            let seed = random.below(u64::MAX);
            let what = format!(
                "{name}, run {}, crash {seed} after {events} of {} events",
                self.seed,
                self.order.len()
            );
            let devices = self.crash(events, seed);
            // To look only: what the log says is replayed in memory.
            let before = bytes_of(&devices);
            let array = Array::open(devices.clone(), ArrayOptions { read_only: true, ..options })
                .unwrap_or_else(|error| panic!("{what}, to look only: {error}"));
            self.check_content(&read_all(&array), events, &format!("{what}, to look only"));
            drop(array);
            assert!(bytes_of(&devices) == before, "{what}: something was written");
            let array =
                Array::open(devices.clone(), options).unwrap_or_else(|error| panic!("{what}: {error}"));
            // Before and after the redundancy is made right.
            let found = read_all(&array);
            self.check_content(&found, events, &what);
            assert!(array.wait_for_sync(LONG), "{what}");
            assert!(read_all(&array) == found, "{what}: background work changed the data");
            if self.harm.lost().is_none() {
                assert_eq!(check(&array), 0, "{what}");
            }
            array.close().unwrap();
            drop(array);
            let again = Array::open(devices, options).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(!again.status().needs_resync, "{what}");
            assert!(read_all(&again) == found, "{what}: the next start changed the data");
        }
    }
}

fn bytes_of(devices: &[Device]) -> Vec<Vec<u8>> {
    let bytes = |device: &Device| {
        let mut bytes = vec![0; device.size_bytes() as usize];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    };
    devices.iter().map(bytes).collect()
}

impl Harm {
    fn lost(&self) -> Option<usize> {
        match self {
            Self::Lost(lost) => Some(*lost),
            Self::None | Self::Bad(..) => None,
        }
    }
}

fn crashes(name: &str, new: &CreateOptions, members: usize, harm: Harm) {
    let run = Run::new(new, members, harm, number_from("UNDERCROFT_MD_SEED", 1));
    run.try_crashes(name, modest());
}

#[test]
fn mirrors_survive_crashes() {
    crashes("RAID1", &small(Level::Raid1), 2, Harm::None);
    crashes("RAID10", &small(Level::Raid10), 4, Harm::None);
}

#[test]
fn arrays_of_parity_survive_crashes() {
    crashes("RAID4", &small(Level::Raid4), 3, Harm::None);
    crashes("RAID5", &small(Level::Raid5), 4, Harm::None);
    crashes("RAID6", &small(Level::Raid6), 5, Harm::None);
}

#[test]
fn arrays_with_a_bitmap_survive_crashes() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid10, 4)] {
        let new = CreateOptions { bitmap: true, bitmap_chunk_bytes: Some(8192), ..small(level) };
        crashes("with a bitmap", &new, members, Harm::None);
    }
}

fn with_log() -> CreateOptions {
    CreateOptions { ppl: true, data_offset: Some(2 << 20), ..small(Level::Raid5) }
}

#[test]
fn arrays_with_a_partial_parity_log_survive_crashes() {
    crashes("with a log", &with_log(), 4, Harm::None);
}

#[test]
fn a_partial_parity_log_keeps_what_was_not_written_when_a_member_is_missing_too() {
    for lost in 0..4 {
        crashes("degraded, with a log", &with_log(), 4, Harm::Lost(lost));
    }
}

#[test]
fn mirrors_survive_crashes_without_a_member() {
    crashes("RAID1 degraded", &small(Level::Raid1), 3, Harm::Lost(1));
}

/// The blocks are bad in the first half of a run, so that writes are missed, recorded, and made up for.
#[test]
fn bad_blocks_are_known_after_a_crash() {
    for bad in 0..2 {
        let harm = Harm::Bad(bad, 12_288..28_672);
        crashes("RAID1 with bad blocks", &small(Level::Raid1), 2, harm.clone());
        crashes("RAID10 with bad blocks", &small(Level::Raid10), 4, harm.clone());
        let new = CreateOptions { bitmap: true, bitmap_chunk_bytes: Some(8192), ..small(Level::Raid1) };
        crashes("with a bitmap and bad blocks", &new, 2, harm.clone());
        crashes("with a log and bad blocks", &with_log(), 4, harm);
    }
}

#[test]
fn unclean_degraded_raid5_without_ppl_starts_only_by_force() {
    let run = Run::new(&small(Level::Raid5), 4, Harm::Lost(2), 1);
    let middle = run.order.len() / 2;
    let devices = run.crash(middle, 5);
    let refused = Array::open(devices.clone(), modest()).unwrap_err().to_string();
    assert!(refused.contains("force"), "{refused}");
    let forced = Array::open(devices, ArrayOptions { force: true, ..modest() }).unwrap();
    assert!(!forced.status().warnings.is_empty());
}
