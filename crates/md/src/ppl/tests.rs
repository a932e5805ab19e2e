//! Logs that Linux left behind, and ours at work.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use proptest::prelude::*;
use undercroft_block::testing::{FailNth, Repeat};
use undercroft_block::{Device, MemoryDevice, Operation};

use super::replay::last_record;
use super::*;
use crate::assemble::{Candidate, Plan, plan};
use crate::layout::ParityMap;
use crate::member::{Lineup, Member, Place, Role};
use crate::superblock::{IN_SYNC, PplArea};
use crate::{Geometry, Result, fixtures, parity};

const BLOCK: u64 = 4096;

/// An array that is opened as far as a replay needs it.
struct Opened {
    plan: Plan,
    lineup: Lineup,
    logs: Vec<MemberLog>,
}

/// Without the member of role `missing`.
fn open(array: &str, missing: Option<u32>) -> Opened {
    let candidates = fixtures::members(array).into_iter().map(|device| Candidate::read(device).unwrap());
    let is_missing = |candidate: &Candidate| {
        missing.is_some_and(|role| candidate.superblock.role() == crate::DeviceRole::Active(role))
    };
    let plan = plan(candidates.filter(|candidate| !is_missing(candidate)).collect(), false).unwrap();
    let (mut places, mut logs) = (Vec::new(), Vec::new());
    for (role, place) in (0..).map(Role).zip(&plan.places) {
        let member = place.member.as_ref().map(|joined| {
            let superblock = &joined.superblock;
            let device = Arc::clone(&joined.device);
            let member = Arc::new(Member::new(device, superblock.number, superblock.data.offset, IN_SYNC));
            logs.push(MemberLog { role, member: Arc::clone(&member), area: superblock.ppl.unwrap() });
            member
        });
        places.push(Place { member, replacement: None });
    }
    Opened { plan, lineup: Lineup { places }, logs }
}

impl Opened {
    fn replay(&self) -> Replayed {
        replay(&self.plan.geometry, &self.lineup, &self.logs, self.plan.array_uuid, &|_, _| false).unwrap()
    }

    fn read(&self, role: Role, offset: u64) -> Vec<u8> {
        let mut block = vec![0; BLOCK as usize];
        self.lineup.member(role).unwrap().read_at(offset, &mut block).unwrap();
        block
    }

    /// The XOR of a row of blocks, without one role.
    fn sum(&self, offset: u64, without: Option<Role>) -> Vec<u8> {
        let mut sum = vec![0; BLOCK as usize];
        for role in (0..self.plan.geometry.members).map(Role).filter(|&role| Some(role) != without) {
            parity::xor_into(&mut sum, &self.read(role, offset));
        }
        sum
    }

    fn inconsistent_rows(&self) -> usize {
        let bytes = self.plan.geometry.member_bytes[0];
        let is_wrong = |offset: &u64| self.sum(*offset, None).iter().any(|&byte| byte != 0);
        (0..bytes).step_by(BLOCK as usize).filter(is_wrong).count()
    }
}

/// What the logs say was being written, as blocks of the data areas by role.
fn written(opened: &Opened) -> Vec<(Role, u64)> {
    let map = ParityMap::new(&opened.plan.geometry);
    let mut blocks = Vec::new();
    for log in &opened.logs {
        let (header, _) = last_record(log, opened.plan.array_uuid).unwrap().unwrap();
        for entry in header.entries {
            // Linux wrote blocks of 4 KiB one at a time.
            assert_eq!(entry.data_bytes, entry.parity_bytes);
            for offset in (entry.array_offset..entry.array_offset + entry.data_bytes).step_by(BLOCK as usize)
            {
                let place = map.locate(offset);
                assert_eq!(map.p_role(place.stripe), log.role);
                blocks.push((place.role, place.member_offset));
            }
        }
    }
    blocks
}

#[test]
fn a_replay_mends_what_a_power_cut_left() {
    let opened = open("raid5-ppl-unclean", None);
    let manifest = fixtures::manifest("raid5-ppl-unclean");
    let before = opened.inconsistent_rows();
    assert_eq!(before.to_string(), manifest["inconsistent_rows"]);
    assert!(before > 0);
    let replayed = opened.replay();
    assert!(replayed.is_consistent() && replayed.entries > 0, "{replayed:?}");
    assert_eq!(opened.inconsistent_rows(), 0);
    // The logs are empty now, and replaying them again changes nothing.
    assert_eq!(opened.replay(), Replayed { entries: 0, mismatches: 0 });
    assert_eq!(opened.inconsistent_rows(), 0);
}

#[test]
fn with_a_member_lost_too_nothing_else_is() {
    let whole = open("raid5-ppl-unclean", None);
    let in_flight = written(&whole);
    let bytes = whole.plan.geometry.member_bytes[0];
    let map = ParityMap::new(&whole.plan.geometry);
    let (mut lost_without, mut torn) = (0, 0);
    for missing in (0..4).map(Role) {
        let opened = open("raid5-ppl-unclean", Some(missing.0));
        let unreplayed = open("raid5-ppl-unclean", Some(missing.0));
        assert!(opened.replay().is_consistent());
        for offset in (0..bytes).step_by(BLOCK as usize) {
            if map.p_role(offset / map.chunk_bytes()) == missing {
                continue;
            }
            let truth = whole.read(missing, offset);
            if in_flight.contains(&(missing, offset)) {
                torn += usize::from(opened.sum(offset, Some(missing)) != truth);
                continue;
            }
            assert_eq!(opened.sum(offset, Some(missing)), truth, "role {missing:?} at byte {offset}");
            lost_without += usize::from(unreplayed.sum(offset, Some(missing)) != truth);
        }
    }
    // The test would have noticed: without the log other blocks are lost.
    assert!(lost_without > 0, "{lost_without} blocks, {torn} that were being written");
}

#[test]
fn headers_of_linux_are_the_ones_we_write() {
    for array in ["raid5-ppl", "raid5-ppl-unclean"] {
        let opened = open(array, None);
        for log in &opened.logs {
            let Some((header, at)) = last_record(log, opened.plan.array_uuid).unwrap() else {
                panic!("{array} has no record");
            };
            let mut there = vec![0; raw::HEADER_BYTES];
            log.member.device().read_at(at, &mut there).unwrap();
            let raw_entries: Vec<raw::RawEntry> = header
                .entries
                .iter()
                .map(|entry| raw::RawEntry {
                    data_sector: (entry.array_offset / 512).into(),
                    pp_size: (entry.parity_bytes as u32).into(),
                    data_size: (entry.data_bytes as u32).into(),
                    parity_disk: entry.parity_role.into(),
                    checksum: entry.checksum.into(),
                })
                .collect();
            let ours = raw::encode(raw::signature(opened.plan.array_uuid), header.generation, &raw_entries);
            assert_eq!(ours.as_bytes(), there, "{array}");
        }
    }
}

/// A log on a device of its own, which begins `AT` bytes into it.
const AT: u64 = 8192;

fn area(bytes: u64, multiple: bool) -> PplArea {
    PplArea { area: Area { offset: AT, bytes }, multiple }
}

fn fresh(area: PplArea) -> (Device, Log, MemberLog) {
    let device: Device = Arc::new(MemoryDevice::new(AT + area.area.bytes));
    let uuid = Uuid::from_u128(9);
    format(&*device, area.area, uuid).unwrap();
    let member = Arc::new(Member::new(Arc::clone(&device), 0, 0, IN_SYNC));
    let log = Log::new(Arc::clone(&device), area, 2, uuid, 64 << 10);
    (device, log, MemberLog { role: Role(2), member, area })
}

fn entry(array_offset: u64, partial_parity: &[u8], roles: u64) -> LogEntry<'_> {
    LogEntry { array_offset, data_bytes: partial_parity.len() as u32, partial_parity, roles }
}

fn found(log: &MemberLog) -> raw::Header {
    last_record(log, Uuid::from_u128(9)).unwrap().unwrap().0
}

const NO_FLUSH: &dyn Fn(u64) -> Result<()> = &|_| panic!("nothing was written, so nothing is to be flushed");

#[test]
fn the_last_record_counts_wherever_it_lies() {
    for multiple in [false, true] {
        let (_, log, reader) = fresh(area(256 << 10, multiple));
        assert!(found(&reader).entries.is_empty());
        let mut flushed = 0;
        for turn in 1..50_u64 {
            let partial = vec![turn as u8; 4096 * (1 + turn as usize % 7)];
            let roles = 0b101;
            let flush = |wanted| {
                assert_eq!(wanted, roles);
                Ok(())
            };
            let logged =
                log.write(&[entry(turn * 65536, &partial, roles)], if turn == 1 { NO_FLUSH } else { &flush });
            flushed += 1;
            let header = found(&reader);
            assert_eq!(header.generation, turn);
            assert_eq!(header.entries.len(), 1);
            assert_eq!(header.entries[0].array_offset, turn * 65536);
            assert_eq!(header.entries[0].checksum, crc32c::crc32c(&partial));
            assert_eq!(header.entries[0].parity_role, 2);
            drop(logged);
        }
        assert_eq!(flushed, 49);
    }
}

#[test]
fn more_than_the_log_takes_is_refused() {
    let (_, log, _) = fresh(area(1 << 20, true));
    assert_eq!(log.capacity(), 128 << 10);
    let large = vec![0; log.capacity() + 4096];
    assert!(log.write(&[entry(0, &large, 1)], NO_FLUSH).is_err());
    let many = vec![entry(0, &[], 1); raw::MAX_ENTRIES + 1];
    assert!(log.write(&many, NO_FLUSH).is_err());
    let (_, small, _) = fresh(area(12 << 10, false));
    assert_eq!(small.capacity(), 8 << 10);
}

#[test]
fn a_log_that_failed_stays_so() {
    let memory: Device = Arc::new(MemoryDevice::new(AT + (1 << 20)));
    let failing: Device = Arc::new(FailNth::new(memory, Operation::Flush, 2, Repeat::Once));
    let log = Log::new(failing, area(1 << 20, true), 0, Uuid::nil(), 4096);
    drop(log.write(&[entry(0, &[1; 4096], 1)], NO_FLUSH).unwrap());
    let flush = |_| Ok(());
    assert!(log.write(&[entry(0, &[1; 4096], 1)], &flush).is_err());
    // The device would answer again, and what it lost is unknown.
    let error = log.write(&[entry(0, &[1; 4096], 1)], &flush).unwrap_err().to_string();
    assert!(error.contains("log of"), "{error}");
}

/// Threads that log and finish: a record is not followed by another before all its writes are finished and flushed, and
/// those that come meanwhile go together.
#[test]
fn writes_that_come_together_go_together() {
    const THREADS: u64 = 8;
    const TURNS: u64 = 200;
    let (_, log, reader) = fresh(area(1 << 20, true));
    // Threads whose writes are logged and not finished; members that are written to and not flushed.
    let (open, unflushed) = (AtomicU32::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (log, open, unflushed, reader) = (&log, &open, &unflushed, &reader);
            scope.spawn(move || {
                for turn in 0..TURNS {
                    let partial = vec![thread as u8; 4096];
                    let flush = |roles: u64| {
                        assert_eq!(open.load(Ordering::SeqCst), 0, "a record is followed while it is needed");
                        assert_eq!(unflushed.swap(0, Ordering::SeqCst) & !roles, 0);
                        Ok(())
                    };
                    let offset = (thread * TURNS + turn) * 65536;
                    let logged = log.write(&[entry(offset, &partial, 1 << thread)], &flush).unwrap();
                    open.fetch_add(1, Ordering::SeqCst);
                    assert!(found(reader).entries.iter().any(|entry| entry.array_offset == offset));
                    unflushed.fetch_or(1 << thread, Ordering::SeqCst);
                    open.fetch_sub(1, Ordering::SeqCst);
                    drop(logged);
                }
            });
        }
    });
    let records = found(&reader).generation;
    assert!(records <= THREADS * TURNS, "{records}");
}

#[test]
fn waiters_share_the_next_record() {
    let (_, log, reader) = fresh(area(1 << 20, true));
    let flushed = AtomicBool::new(false);
    let first = log.write(&[entry(0, &[1; 4096], 1)], NO_FLUSH).unwrap();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (1..5_u64)
            .map(|thread| {
                let (log, flushed) = (&log, &flushed);
                scope.spawn(move || {
                    let flush = |_| {
                        assert!(!flushed.swap(true, Ordering::SeqCst), "once for all");
                        Ok(())
                    };
                    drop(log.write(&[entry(thread * 65536, &[2; 4096], 2)], &flush).unwrap());
                })
            })
            .collect();
        while log.gathered() < 4 {
            std::thread::yield_now();
        }
        drop(first);
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let header = found(&reader);
    assert_eq!((header.generation, header.entries.len()), (2, 4));
}

fn ranges() -> impl Strategy<Value = Range<u64>> {
    (0_u64..3 * 64, 1_u64..64).prop_map(|(at, len)| at * 1024..(at + len) * 1024)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Entries that make no sense are counted, and nothing else happens.
    #[test]
    fn any_entry_is_replayed_or_refused(
        range in ranges(), sector in prop_oneof![0_u64..600, Just(u64::MAX / 512), any::<u64>()],
        pp in 0_u32..40, data in prop_oneof![0_u32..200, any::<u32>()], role in 0_u32..4,
    ) {
        let geometry = Geometry {
            level: crate::Level::Raid5,
            layout: crate::Layout::Parity(crate::ParityLayout::LeftSymmetric),
            members: 4,
            chunk_bytes: 16 << 10,
            member_bytes: vec![64 << 10; 4],
        };
        let uuid = Uuid::from_u128(9);
        let area = area(64 << 10, true);
        let member = |_| {
            let device: Device = Arc::new(MemoryDevice::new(1 << 20));
            format(&*device, area.area, uuid).unwrap();
            Arc::new(Member::new(device, 0, 256 << 10, IN_SYNC))
        };
        let members: Vec<Arc<Member>> = (0..4).map(member).collect();
        let places = members.iter().map(|member| Place { member: Some(Arc::clone(member)), replacement: None });
        let lineup = Lineup { places: places.collect() };
        let partial = vec![0; pp as usize * 512];
        let raw = raw::RawEntry {
            data_sector: sector.into(),
            pp_size: (pp * 512).into(),
            data_size: data.wrapping_mul(512).into(),
            parity_disk: role.into(),
            checksum: crc32c::crc32c(&partial).into(),
        };
        let header = raw::encode(raw::signature(uuid), 1, &[raw]);
        members[role as usize].device().write_at(AT, header.as_bytes()).unwrap();
        let noise = vec![0x5a; (range.end - range.start) as usize];
        members[0].device().write_at((256 << 10) + range.start % (32 << 10), &noise).unwrap();
        let logs: Vec<MemberLog> = (0..4)
            .map(|role| MemberLog { role: Role(role), member: Arc::clone(&members[role as usize]), area })
            .collect();
        let replayed = replay(&geometry, &lineup, &logs, uuid, &|_, _| false).unwrap();
        prop_assert_eq!(replayed.entries + replayed.mismatches, 1);
    }
}
