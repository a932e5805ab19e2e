//! Crashes: at any moment, with any part of what was not flushed lost.
//!
//! A model keeps what every block holds after every transaction. After a crash and a recovery, by us and by Linux's
//! kernel, the blocks must be as they were after one transaction, no earlier than the last whose commit had returned; and
//! blocks that were forgotten and used for data since hold that data. Fault model: `undercroft_block::testing`, with
//! sectors that are written whole.

use std::collections::BTreeMap;

use undercroft_block::testing::Recorder;
use undercroft_oracle::MountMode;

use super::*;

/// What a block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    Metadata(u32),
    /// Freed after so many transactions, and data since it is written to.
    Data(usize),
}

/// A write of data: the events that had been recorded before it and once it was durable.
struct DataWrite {
    number: u64,
    version: u32,
    /// How many transactions there had been.
    transactions: usize,
    before: usize,
    durable: usize,
}

/// What should be on the disk.
#[derive(Default)]
struct Model {
    /// After each transaction, from the first on.
    states: Vec<BTreeMap<u64, Use>>,
    /// For each state, how many events had been recorded when its commit returned.
    durable: Vec<usize>,
    data: Vec<DataWrite>,
}

struct Workload {
    recorder: Arc<Recorder>,
    random: Rng,
    model: Model,
    now: BTreeMap<u64, Use>,
    version: u32,
    /// Blocks that are changed, after the one that counts transactions.
    blocks: u64,
}

impl Workload {
    fn events(&self) -> usize {
        self.recorder.recording().events().len()
    }

    fn transaction(&mut self, open: &Open) {
        let mut forgotten = Vec::new();
        let many = if self.random.below(10) == 0 { self.blocks } else { 12 };
        let handle = open.volume.start(many as u32 + 1).unwrap();
        for _ in 0..=self.random.below(many) {
            self.change(open, &handle, &mut forgotten);
        }
        open.make(&handle, 0, self.model.states.len() as u32 + 1);
        let tid = handle.tid();
        drop(handle);
        self.model.states.push(self.now.clone());
        open.commit(tid);
        self.model.durable.push(self.events());
        for number in forgotten {
            if self.random.below(3) > 0 {
                self.version += 1;
                let before = self.events();
                open.write_data(number, self.version);
                let (transactions, durable) = (self.model.states.len(), self.events());
                let version = self.version;
                self.model.data.push(DataWrite { number, version, transactions, before, durable });
            }
        }
    }

    fn change(&mut self, open: &Open, handle: &Handle<'_>, forgotten: &mut Vec<u64>) {
        let number = 1 + self.random.below(self.blocks - 1);
        self.version += 1;
        let version = self.version;
        match self.now.get(&number) {
            Some(Use::Data(_)) if forgotten.contains(&number) => {
                // Metadata again in the same transaction, as blocks of a free list may be.
                if self.random.below(2) == 0 {
                    return;
                }
                forgotten.retain(|other| *other != number);
                open.make(handle, number, version);
            }
            Some(Use::Data(_)) | None => open.make(handle, number, version),
            Some(Use::Metadata(_)) if self.random.below(6) == 0 => {
                handle.forget(open.block(number));
                forgotten.push(number);
                self.now.insert(number, Use::Data(self.model.states.len()));
                return;
            }
            Some(Use::Metadata(_)) => open.put(handle, number, version),
        }
        self.now.insert(number, Use::Metadata(version));
    }
}

impl Model {
    /// Compares a device, recovered after a crash that followed the first `cut` events.
    fn check(&self, open: &Open, device: &Device, cut: usize, what: &str) {
        let durable = self.durable.partition_point(|&events| events <= cut);
        let Some(last) = (durable..=self.states.len()).find(|&n| n > 0 && open.has(device, 0, n as u32))
        else {
            assert!(durable == 0, "{what}: {durable} transactions were durable");
            return;
        };
        for (&number, what_it_is) in &self.states[last - 1] {
            match *what_it_is {
                Use::Metadata(version) => {
                    let has = open.has(device, number, version);
                    assert!(has, "{what}: block {number} after {last} of {durable}.. transactions");
                }
                Use::Data(since) => {
                    let found = open.on_device(device, number);
                    let writes = || {
                        self.data.iter().filter(|write| write.number == number && write.transactions > since)
                    };
                    let Some(durable) = writes().rfind(|write| write.durable <= cut) else {
                        continue;
                    };
                    // It may be metadata again in a transaction that was lost; nothing of that transaction was written
                    // back then.
                    let possible =
                        writes().filter(|write| write.version >= durable.version && write.before <= cut);
                    let is_there = possible
                        .map(|write| data(&open.volume, number, write.version))
                        .any(|bytes| bytes == found);
                    assert!(is_there, "{what}: data in block {number} after {last} transactions");
                }
            }
        }
    }
}

fn run(mib: u64, args: &str, transactions: usize, crashes: u64, seed: u64) {
    let image = image(mib, args);
    let recorder = Arc::new(Recorder::new(in_memory(&image)));
    let open = Open::new(recorder.clone()).unwrap();
    let most = u64::from(open.transactions().room() / open.volume.credit_units()) - 2;
    let mut workload = Workload {
        recorder: Arc::clone(&recorder),
        random: Rng::new(seed),
        model: Model::default(),
        now: BTreeMap::new(),
        version: 0,
        blocks: BLOCKS.min(most),
    };
    for _ in 0..transactions {
        workload.transaction(&open);
    }
    let logged = open.transactions().stats().items_logged;
    let ring = u64::from(open.volume.superblock().log_blocks());
    eprintln!("{args}: {logged} blocks in a log of {ring}");
    open.service.close().unwrap();

    let Workload { mut random, model, .. } = workload;
    let recording = recorder.recording();
    let events = recording.events().len();
    let is_flush = |&at: &usize| !recording.events()[at].is_change();
    let flushes: Vec<_> = (0..events).filter(is_flush).collect();
    for crash in 0..crashes {
        // Half of them about a flush, half anywhere.
        let cut = if crash % 2 == 0 {
            (flushes[random.below(flushes.len() as u64) as usize] + random.below(3) as usize).min(events)
        } else {
            random.below(events as u64 + 1) as usize
        };
        let (device, outcome) = recording.crash_in_sectors(cut, seed ^ crash, 512).unwrap();
        let what = format!("{args}, seed {seed}, crash {crash}, cut {cut} of {events}, {outcome}");
        if crash % 4 == 0 {
            std::fs::write(image.path(), bytes_of(&device)).unwrap();
            let mounted = image.mount(MountMode::ReadWrite, "");
            mounted.unwrap_or_else(|error| panic!("{what}: {error}")).unmount().unwrap();
            model.check(&open, &in_memory(&image), cut, &format!("the kernel, {what}"));
        }
        let recovered = Open::new(Arc::clone(&device)).unwrap_or_else(|error| panic!("{what}: {error}"));
        model.check(&open, &device, cut, &what);
        recovered.service.close().unwrap();
        model.check(&open, &device, cut, &what);
        if crash % 4 == 0 {
            std::fs::write(image.path(), bytes_of(&device)).unwrap();
            image.xfs_repair_check().unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
    model.check(&open, &recording.cut(events).unwrap(), events, "closed");
}

#[test]
fn a_crash_leaves_whole_transactions_and_no_stale_metadata() {
    run(16, "", 250, 60, 1);
}

#[test]
fn so_it_does_with_a_stripe_unit_and_with_large_sectors() {
    run(32, "-l su=32k", 100, 30, 2);
    run(32, "-s size=4096", 100, 30, 3);
}
