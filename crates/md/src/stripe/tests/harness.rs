//! An array on devices in memory, and what it should hold.
//!
//! The model is written differently from what it validates: it takes where a byte lies from the map of the layout
//! (which has its own tests against Linux), and computes parity by the definition, byte after byte.

use std::ops::Range;
use std::sync::Arc;

use undercroft_block::{Device, MemoryDevice, testing};
use undercroft_sync::{Mutex, order};

use crate::layout::{ParityMap, Slot};
use crate::level::{Personality as _, Shared, SyncWork};
use crate::member::{Lineup, Member, Place, Role};
use crate::recorder::Recorder;
use crate::stripe::{ParityRaid, StripeOptions, StripeWake};
use crate::{Geometry, Layout, Level, ParityLayout, Result};

/// Where data begins on each member: not where the device does.
pub(super) const DATA_OFFSET: u64 = 40960;

pub(super) const LAYOUTS: [ParityLayout; 6] = [
    ParityLayout::LeftAsymmetric,
    ParityLayout::RightAsymmetric,
    ParityLayout::LeftSymmetric,
    ParityLayout::RightSymmetric,
    ParityLayout::ParityFirst,
    ParityLayout::ParityLast,
];

/// What was told to the recorder of the state of the array.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) failed: Mutex<Vec<u32>>,
    /// Bad blocks: number of the member and range of its data area.
    pub(super) bad: Mutex<Vec<(u32, Range<u64>)>>,
    /// Whether bad blocks can be recorded.
    pub(super) has_list: bool,
}

#[derive(Clone, Debug)]
struct Teller(Arc<Told>);

impl Recorder for Teller {
    fn member_failed(&self, failed: &Member, _: &Lineup, _: &dyn std::fmt::Display) -> Result<()> {
        self.0.failed.lock().push(failed.number());
        Ok(())
    }

    fn keeps_bad_blocks(&self, _: &Member) -> bool {
        self.0.has_list
    }

    fn bad_blocks_found(&self, member: &Member, ranges: &[Range<u64>]) -> Result<bool> {
        if self.0.has_list {
            self.0.bad.lock().extend(ranges.iter().map(|range| (member.number(), range.clone())));
        }
        Ok(self.0.has_list)
    }

    fn bad_blocks_written(&self, member: &Member, range: Range<u64>) {
        self.0.bad.lock().retain(|(number, bad)| {
            *number != member.number() || bad.end <= range.start || range.end <= bad.start
        });
    }

    fn has_bad_blocks(&self, member: &Member, range: Range<u64>) -> bool {
        let bad = self.0.bad.lock();
        bad.iter()
            .any(|(number, bad)| *number == member.number() && bad.start < range.end && range.start < bad.end)
    }
}

/// What an array is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) level: Level,
    pub(super) layout: ParityLayout,
    pub(super) members: u32,
    pub(super) chunk_bytes: u32,
    pub(super) rows: u64,
    pub(super) cache_bytes: usize,
    /// No longer than a chunk.
    pub(super) piece_bytes: usize,
    pub(super) wake: StripeWake,
}

impl Plan {
    pub(super) fn new(level: Level, members: u32, chunk_bytes: u32) -> Self {
        Self {
            level,
            layout: ParityLayout::LeftSymmetric,
            members,
            chunk_bytes,
            rows: u64::from(members) + 1,
            cache_bytes: 1 << 20,
            piece_bytes: 65536.min(chunk_bytes as usize),
            wake: StripeWake::One,
        }
    }

    pub(super) fn parities(&self) -> u32 {
        if self.level == Level::Raid6 { 2 } else { 1 }
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            level: self.level,
            layout: if self.level == Level::Raid4 { Layout::None } else { Layout::Parity(self.layout) },
            members: self.members,
            chunk_bytes: self.chunk_bytes,
            member_bytes: vec![self.rows * u64::from(self.chunk_bytes); self.members as usize],
        }
    }

    fn raid(&self, shared: &Arc<Shared>) -> ParityRaid {
        let options = StripeOptions { cache_bytes: self.cache_bytes, wake: self.wake };
        ParityRaid::with_pieces(Arc::clone(shared), options, self.piece_bytes).unwrap()
    }

    pub(super) fn device_bytes(&self) -> u64 {
        DATA_OFFSET + self.rows * u64::from(self.chunk_bytes)
    }
}

/// An array and its model.
pub(super) struct Rig {
    pub(super) plan: Plan,
    pub(super) shared: Arc<Shared>,
    pub(super) raid: ParityRaid,
    pub(super) told: Arc<Told>,
    pub(super) map: ParityMap,
    /// What the array should hold.
    pub(super) model: Vec<u8>,
}

impl Rig {
    /// On zeroes, whose parity is right.
    pub(super) fn new(plan: Plan) -> Self {
        Self::on(plan, |_| Arc::new(MemoryDevice::new(plan.device_bytes())))
    }

    /// On devices of the test's own, which hold zeroes.
    pub(super) fn on(plan: Plan, device: impl FnMut(u32) -> Device) -> Self {
        Self::with(plan, false, device)
    }

    pub(super) fn with(plan: Plan, has_list: bool, mut device: impl FnMut(u32) -> Device) -> Self {
        let geometry = plan.geometry();
        let told = Arc::new(Told {
            failed: Mutex::new(&order::DEVICE, Vec::new()),
            bad: Mutex::new(&order::DEVICE, Vec::new()),
            has_list,
        });
        let places = (0..plan.members)
            .map(|role| Place { member: Some(member(device(role), role, u64::MAX)), replacement: None })
            .collect();
        let map = ParityMap::new(&geometry);
        let model = vec![0; (plan.rows * map.stripe_data_bytes()) as usize];
        let shared = Arc::new(Shared::new(geometry, Lineup { places }, Box::new(Teller(Arc::clone(&told)))));
        let raid = plan.raid(&shared);
        Self { plan, shared, raid, told, map, model }
    }

    /// Begins anew with an empty cache.
    pub(super) fn forget(&mut self) {
        self.raid = self.plan.raid(&self.shared);
    }

    pub(super) fn row_bytes(&self) -> usize {
        self.map.stripe_data_bytes() as usize
    }

    /// Writes to the array and to the model.
    pub(super) fn write(&mut self, offset: usize, data: &[u8]) {
        self.raid.write(offset as u64, data).unwrap();
        self.model[offset..offset + data.len()].copy_from_slice(data);
    }

    pub(super) fn read(&self, offset: usize, len: usize) -> Result<Vec<u8>> {
        let mut buf = vec![0xee; len];
        self.raid.read(offset as u64, &mut buf)?;
        Ok(buf)
    }

    /// The array reads as the model.
    pub(super) fn check_reads(&self) {
        let all = self.read(0, self.model.len()).unwrap();
        check_equal(&all, &self.model, "read from the array");
    }

    pub(super) fn member(&self, role: u32) -> Option<Arc<Member>> {
        self.shared.lineup().member(Role(role)).cloned()
    }

    pub(super) fn lose(&self, role: u32) {
        self.shared.change_lineup(|lineup| lineup.places[role as usize].member = None);
    }

    /// Puts a new member full of garbage into an empty role.
    pub(super) fn join(&self, role: u32) -> Arc<Member> {
        let garbage = vec![0xa5; self.plan.device_bytes() as usize];
        let device = Arc::new(MemoryDevice::from_bytes(garbage, undercroft_block::Access::ReadWrite));
        let new = member(device, 1000 + role, 0);
        self.shared.change_lineup(|lineup| lineup.places[role as usize].member = Some(Arc::clone(&new)));
        new
    }

    /// Background work on everything; returns the bytes that did not agree.
    pub(super) fn sync(&self, work: SyncWork) -> Result<u64> {
        let end = self.plan.rows * u64::from(self.plan.chunk_bytes);
        let (mut at, mut mismatched) = (0, 0);
        while at < end {
            let step = self.raid.sync(at, 100_000, work)?;
            assert!(step.done > 0 && step.done <= 100_000);
            at += step.done;
            mismatched += step.mismatched;
        }
        assert_eq!(at, end);
        Ok(mismatched)
    }

    pub(super) fn rebuild(&self, role: u32) {
        let new = self.join(role);
        self.sync(SyncWork::Recover).unwrap();
        new.set_recovered(u64::MAX);
    }

    /// The members hold the model and its parity, where they are there and `right`.
    pub(super) fn check_members(&self) {
        self.check_rows(0..self.plan.rows);
    }

    pub(super) fn check_rows(&self, rows: Range<u64>) {
        for row in rows {
            let (p, q) = self.parity_of(row);
            for role in 0..self.plan.members {
                let Some(member) = self.member(role) else { continue };
                let mut found = vec![0; self.plan.chunk_bytes as usize];
                member.device().read_at(DATA_OFFSET + self.map.member_offset(row), &mut found).unwrap();
                let slot = self.map.slot(row, Role(role));
                let right: &[u8] = match slot {
                    Slot::Data(index) => {
                        let begin = self.map.array_offset(row, index) as usize;
                        &self.model[begin..begin + found.len()]
                    }
                    Slot::P => &p,
                    Slot::Q => &q,
                };
                check_equal(&found, right, &format!("row {row}, role {role}, {slot:?}, {:?}", self.plan));
            }
        }
    }

    /// P and Q of a row, by their definition.
    fn parity_of(&self, row: u64) -> (Vec<u8>, Vec<u8>) {
        let chunk_bytes = self.plan.chunk_bytes as usize;
        let (mut p, mut q) = (vec![0; chunk_bytes], vec![0; chunk_bytes]);
        for index in 0..self.map.data_members() {
            let begin = self.map.array_offset(row, index) as usize;
            let times: Vec<u8> = (0..=255).map(|x| times_power(x, self.map.exponent(row, index))).collect();
            for (at, &byte) in self.model[begin..begin + chunk_bytes].iter().enumerate() {
                p[at] ^= byte;
                q[at] ^= times[byte as usize];
            }
        }
        (p, q)
    }
}

pub(super) fn member(device: Device, number: u32, recovered: u64) -> Arc<Member> {
    Arc::new(Member::new(device, number, DATA_OFFSET, recovered))
}

/// 2^exponent * x in GF(2^8) with the polynomial 0x11d, one doubling after the other.
fn times_power(x: u8, exponent: u32) -> u8 {
    (0..exponent).fold(x, |x, _| (x << 1) ^ if x & 0x80 == 0 { 0 } else { 0x1d })
}

#[track_caller]
pub(super) fn check_equal(found: &[u8], right: &[u8], what: &str) {
    if let Some(at) = found.iter().zip(right).position(|(a, b)| a != b) {
        panic!("{what}: byte {at} is {:#x}, not {:#x}", found[at], right[at]);
    }
    assert_eq!(found.len(), right.len());
}

/// Random numbers that a seed replays.
pub(super) struct Rng(testing::Rng);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(testing::Rng::new(seed))
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }

    pub(super) fn bytes(&mut self, len: usize) -> Vec<u8> {
        self.0.bytes(len)
    }

    /// A range of up to `longest` bytes below `end`, often aligned.
    pub(super) fn range(&mut self, end: usize, longest: usize) -> (usize, usize) {
        let unit = [1, 512, 4096, 4096][self.below(4)];
        let start = self.below(end) / unit * unit;
        let len = (1 + self.below(longest)).next_multiple_of(unit).min(end - start);
        (start, len)
    }
}
