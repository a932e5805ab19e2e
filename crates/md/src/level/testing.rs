//! What the tests of levels have in common: members in memory, a recorder that remembers, faults, a plain model.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use undercroft_block::testing::Rng;
use undercroft_block::{Access, BlockDevice, Device, Error, MemoryDevice, Operation, Request};
use undercroft_sync::{Mutex, order};

use super::{Personality, Shared};
use crate::member::{Lineup, Member, Place, Role};
use crate::recorder::Recorder;
use crate::{Geometry, Result};

/// Where data areas begin, so that code that forgets it is found out.
pub(crate) const DATA_OFFSET: u64 = 8192;

/// A device with sectors that cannot be read until they are written, or not even then.
#[derive(Debug)]
pub(crate) struct Faulty {
    base: MemoryDevice,
    /// By number of 512 bytes.
    bad: Mutex<BTreeSet<u64>>,
    /// Whether writing a bad sector does not help.
    pub(crate) is_stubborn: AtomicBool,
    /// Whether it takes no writes at all.
    pub(crate) is_dead: AtomicBool,
    writes: AtomicU32,
}

impl Faulty {
    fn new(size: u64) -> Self {
        Self {
            base: MemoryDevice::new(size),
            bad: Mutex::new(&order::DEVICE, BTreeSet::new()),
            is_stubborn: AtomicBool::new(false),
            is_dead: AtomicBool::new(false),
            writes: AtomicU32::new(0),
        }
    }

    /// Makes sectors of the data area bad.
    pub(crate) fn spoil(&self, range: Range<u64>) {
        let range = (range.start + DATA_OFFSET) / 512..(range.end + DATA_OFFSET).div_ceil(512);
        self.bad.lock().extend(range);
    }

    pub(crate) fn bad_sectors(&self) -> usize {
        self.bad.lock().len()
    }

    /// Reads or writes the data area without faults.
    pub(crate) fn peek(&self, offset: u64, buf: &mut [u8]) {
        self.base.read_at(DATA_OFFSET + offset, buf).unwrap();
    }

    pub(crate) fn poke(&self, offset: u64, data: &[u8]) {
        self.base.write_at(DATA_OFFSET + offset, data).unwrap();
    }

    fn fails(&self, operation: Operation, offset: u64, len: u64) -> undercroft_block::Error {
        let source = std::io::Error::from_raw_os_error(5);
        Error::Io { operation, offset, len, device: self.name(), source }
    }
}

impl BlockDevice for Faulty {
    fn name(&self) -> String {
        "faulty device".to_owned()
    }

    fn size_bytes(&self) -> u64 {
        self.base.size_bytes()
    }

    fn access(&self) -> Access {
        Access::ReadWrite
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> undercroft_block::Result<()> {
        let len = buf.len() as u64;
        if self.bad.lock().range(offset / 512..(offset + len).div_ceil(512)).next().is_some() {
            return Err(self.fails(Operation::Read, offset, len));
        }
        self.base.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> undercroft_block::Result<()> {
        // Opens up interleavings of threads: some yield, so that the thread that came first is not always first at the next.
        for _ in 0..self.writes.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9) >> 16 & 3 {
            std::thread::yield_now();
        }
        let len = data.len() as u64;
        let sectors = offset / 512..(offset + len).div_ceil(512);
        let is_stubborn = self.is_stubborn.load(Ordering::SeqCst);
        if self.is_dead.load(Ordering::SeqCst)
            || is_stubborn && self.bad.lock().range(sectors.clone()).next().is_some()
        {
            return Err(self.fails(Operation::Write, offset, len));
        }
        self.base.write_at(offset, data)?;
        // What is written in part only stays bad.
        let whole = offset.div_ceil(512)..(offset + len) / 512;
        self.bad.lock().retain(|sector| !whole.contains(sector));
        Ok(())
    }

    fn flush(&self) -> undercroft_block::Result<()> {
        Ok(())
    }
}

/// What the recorder was told.
#[derive(Debug)]
pub(crate) struct Told {
    /// Numbers of members that were left out.
    pub(crate) failed: Mutex<Vec<u32>>,
    /// Bad sectors of 512 bytes, with the number of their member.
    bad: Mutex<BTreeSet<(u32, u64)>>,
    /// Whether members have room for a list of bad blocks.
    pub(crate) has_lists: AtomicBool,
}

impl Told {
    pub(crate) fn bad_sectors(&self) -> usize {
        self.bad.lock().len()
    }

    fn list(&self, member: &Member, range: &Range<u64>) -> Vec<(u32, u64)> {
        let sectors = range.start / 512..range.end.div_ceil(512);
        let bad = self.bad.lock();
        bad.range((member.number(), sectors.start)..(member.number(), sectors.end)).copied().collect()
    }
}

#[derive(Debug)]
struct Remembers(Arc<Told>);

impl Recorder for Remembers {
    fn member_failed(&self, failed: &Member, _: &Lineup, _: &dyn std::fmt::Display) -> Result<()> {
        self.0.failed.lock().push(failed.number());
        Ok(())
    }

    fn keeps_bad_blocks(&self, _: &Member) -> bool {
        self.0.has_lists.load(Ordering::SeqCst)
    }

    fn bad_blocks_found(&self, member: &Member, ranges: &[Range<u64>]) -> Result<bool> {
        if !self.keeps_bad_blocks(member) {
            return Ok(false);
        }
        for range in ranges {
            let sectors = range.start / 512..range.end.div_ceil(512);
            self.0.bad.lock().extend(sectors.map(|sector| (member.number(), sector)));
        }
        Ok(true)
    }

    fn bad_blocks_written(&self, member: &Member, range: Range<u64>) {
        let whole = range.start.div_ceil(512)..range.end / 512;
        self.0.bad.lock().retain(|&(number, sector)| number != member.number() || !whole.contains(&sector));
    }

    fn has_bad_blocks(&self, member: &Member, range: Range<u64>) -> bool {
        !self.0.list(member, &range).is_empty()
    }
}

/// The members of an array, from outside.
#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) all: Vec<Arc<Faulty>>,
    pub(crate) told: Arc<Told>,
}

impl Members {
    /// A member of the right size for each role.
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let member = |&size: &u64| Arc::new(Faulty::new(DATA_OFFSET + size));
        let told = Told {
            failed: Mutex::new(&order::DEVICE, Vec::new()),
            bad: Mutex::new(&order::DEVICE, BTreeSet::new()),
            has_lists: AtomicBool::new(true),
        };
        Self { all: geometry.member_bytes.iter().map(member).collect(), told: Arc::new(told) }
    }

    /// What a level is made of.
    pub(crate) fn share(&self, geometry: Geometry) -> Arc<Shared> {
        let places = (0..).zip(&self.all).map(|(number, device)| {
            let device = Arc::clone(device) as Device;
            let member = Member::new(device, number, DATA_OFFSET, u64::MAX);
            Place { member: Some(Arc::new(member)), replacement: None }
        });
        let lineup = Lineup { places: places.collect() };
        Arc::new(Shared::new(geometry, lineup, Box::new(Remembers(Arc::clone(&self.told)))))
    }

    /// An empty device in place of a member, right up to `recovered`.
    pub(crate) fn spare(&mut self, role: Role, recovered: u64) -> Arc<Member> {
        let size = self.all[role.0 as usize].size_bytes();
        let device = Arc::new(Faulty::new(size));
        self.all[role.0 as usize] = Arc::clone(&device);
        Arc::new(Member::new(device, 100 + role.0, DATA_OFFSET, recovered))
    }

    /// Random requests to the level and to a plain array of bytes, which begins as what is read; returns that.
    pub(crate) fn exercise(
        &self,
        level: &dyn Personality,
        rng: &mut Rng,
        rounds: usize,
        size: u64,
    ) -> Vec<u8> {
        let mut model = vec![0; size as usize];
        level.read(0, &mut model).unwrap();
        for round in 0..rounds {
            let longest = if rng.below(8) == 0 { size } else { size.min(20_000) };
            let offset = rng.below(size);
            let len = (1 + rng.below(longest)).min(size - offset) as usize;
            let range = offset as usize..offset as usize + len;
            match rng.below(5) {
                0 | 1 => {
                    let data = rng.bytes(len);
                    level.write(offset, &data).unwrap();
                    model[range].copy_from_slice(&data);
                }
                2 | 3 => {
                    let mut buf = vec![0; len];
                    level.read(offset, &mut buf).unwrap();
                    assert!(buf == model[range], "round {round}: {len} bytes at {offset}");
                }
                _ => batch(level, rng, &mut model),
            }
        }
        let mut all = vec![0; size as usize];
        level.read(0, &mut all).unwrap();
        assert!(all == model);
        model
    }
}

/// A batch of reads and writes that do not overlap, in no order.
fn batch(level: &dyn Personality, rng: &mut Rng, model: &mut [u8]) {
    let mut pieces = Vec::new();
    let mut at = rng.below(model.len() as u64) as usize;
    while at < model.len() && pieces.len() < 20 {
        let len = (1 + rng.below(6000) as usize).min(model.len() - at);
        let data = (rng.below(2) == 0).then(|| rng.bytes(len));
        pieces.insert(rng.below(pieces.len() as u64 + 1) as usize, (at, data, vec![0; len]));
        at += len + rng.below(3000) as usize;
    }
    let mut requests: Vec<Request<'_>> = pieces
        .iter_mut()
        .map(|(at, data, buf)| match data {
            Some(data) => Request::Write { offset: *at as u64, data },
            None => Request::Read { offset: *at as u64, buf },
        })
        .collect();
    level.run_batch(&mut requests).unwrap();
    drop(requests);
    for (at, data, buf) in pieces {
        match data {
            Some(data) => model[at..at + data.len()].copy_from_slice(&data),
            None => assert!(buf == model[at..at + buf.len()]),
        }
    }
}
