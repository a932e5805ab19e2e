//! Crashes: at any moment, with any part of what was not flushed lost.
//!
//! A model keeps what every block holds after every transaction. After a crash and a recovery the blocks must be as
//! they were after one transaction, no earlier than the last whose commit had returned; and blocks that were
//! forgotten and used for data since hold that data. Fault model: `undercroft_block::testing`. A superblock that is
//! torn cannot be read, whatever the log says of it, so such a crash only counts.

use std::collections::BTreeMap;

use undercroft_block::testing::Recorder;

use super::*;

/// Blocks that the workload changes, after the one that counts transactions.
const BLOCKS: u64 = 120;

/// What a block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    Metadata(u32),
    /// Freed after so many transactions, and data since it is written to.
    Data(usize),
}

/// A write of data: the events that had been recorded before it and once it was durable.
struct DataWrite {
    block: u64,
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
    may_forget: bool,
}

impl Workload {
    fn events(&self) -> usize {
        self.recorder.recording().events().len()
    }

    fn transaction(&mut self, open: &Open) {
        let mut tid = None;
        let mut forgotten = Vec::new();
        for _ in 0..=self.random.below(4) {
            let handle = open.volume.start(40).unwrap();
            for _ in 0..=self.random.below(30) {
                self.change(&handle, &mut forgotten);
            }
            tid = Some(handle.tid());
        }
        let handle = open.volume.start(1).unwrap();
        put(&handle, FREE, self.model.states.len() as u32 + 1);
        assert_eq!(tid, Some(handle.tid()), "no other thread commits");
        let tid = handle.tid();
        drop(handle);
        self.model.states.push(self.now.clone());
        open.commit(tid);
        self.model.durable.push(self.events());
        for block in forgotten {
            if self.random.below(3) > 0 {
                self.version += 1;
                let before = self.events();
                open.volume.device().write_at(block * 1024, &content(block, self.version)).unwrap();
                open.volume.device().flush().unwrap();
                let (transactions, durable) = (self.model.states.len(), self.events());
                self.model.data.push(DataWrite {
                    block,
                    version: self.version,
                    transactions,
                    before,
                    durable,
                });
            }
        }
    }

    fn change(&mut self, handle: &Handle<'_>, forgotten: &mut Vec<u64>) {
        let block = FREE + 1 + self.random.below(BLOCKS);
        self.version += 1;
        let version = self.version;
        match self.now.get(&block) {
            Some(Use::Data(_)) if forgotten.contains(&block) => return,
            Some(Use::Data(_)) | None => {
                handle
                    .make(FsBlock(block), Seal::Plain, |bytes| {
                        bytes.copy_from_slice(&content(block, version));
                    })
                    .unwrap();
            }
            Some(Use::Metadata(_)) if self.may_forget && self.random.below(6) == 0 => {
                handle.forget(FsBlock(block));
                forgotten.push(block);
                self.now.insert(block, Use::Data(self.model.states.len()));
                return;
            }
            Some(Use::Metadata(_)) => put(handle, block, version),
        }
        self.now.insert(block, Use::Metadata(version));
    }
}

impl Model {
    /// Compares a device, recovered after a crash that followed the first `cut` events.
    fn check(&self, device: &Device, cut: usize, what: &str) {
        let counter = on_device(device, FREE);
        let durable = self.durable.partition_point(|&events| events <= cut);
        let Some(last) = (durable..=self.states.len()).find(|&n| n > 0 && counter == content(FREE, n as u32))
        else {
            assert!(durable == 0 && counter == [0; 1024], "{what}: {durable} transactions were durable");
            return;
        };
        for (&block, what_it_is) in &self.states[last - 1] {
            let found = on_device(device, block);
            match *what_it_is {
                Use::Metadata(version) => {
                    assert!(
                        found == content(block, version),
                        "{what}: block {block} after {last} transactions"
                    );
                }
                Use::Data(since) => {
                    let writes = || {
                        self.data.iter().filter(|write| write.block == block && write.transactions > since)
                    };
                    let Some(durable) = writes().rfind(|write| write.durable <= cut) else {
                        continue;
                    };
                    // It may be metadata again in a transaction that was lost; nothing of that transaction was written
                    // back then.
                    let possible =
                        writes().filter(|write| write.version >= durable.version && write.before <= cut);
                    let is_there =
                        possible.map(|write| content(block, write.version)).any(|bytes| bytes == found);
                    assert!(is_there, "{what}: data in block {block} after {last} transactions");
                }
            }
        }
    }
}

fn run(features: &str, transactions: usize, crashes: u64, seed: u64) {
    let recorder = Arc::new(Recorder::new(in_memory(&image(features))));
    let mut workload = Workload {
        recorder: Arc::clone(&recorder),
        random: Rng::new(seed),
        model: Model::default(),
        now: BTreeMap::new(),
        version: 0,
        may_forget: true,
    };
    let open = Open::new(recorder.clone()).unwrap();
    for _ in 0..transactions {
        workload.transaction(&open);
    }
    let logged = open.transactions().stats().items_logged;
    assert!(logged > 3 * 1024, "the log went around {} times", logged / 1024);
    open.service.close().unwrap();

    let Workload { mut random, model, .. } = workload;
    let recording = recorder.recording();
    let events = recording.events().len();
    let is_flush = |&at: &usize| !recording.events()[at].is_change();
    let flushes: Vec<_> = (0..events).filter(is_flush).collect();
    let mut torn = 0;
    for crash in 0..crashes {
        // Half of them about a flush, half anywhere.
        let cut = if crash % 2 == 0 {
            (flushes[random.below(flushes.len() as u64) as usize] + random.below(3) as usize).min(events)
        } else {
            random.below(events as u64 + 1) as usize
        };
        let (device, outcome) = recording.crash(cut, seed ^ crash).unwrap();
        let what = format!("seed {seed}, cut {cut} of {events}, {outcome}");
        let recovered = match Open::new(Arc::clone(&device)) {
            Ok(open) => open,
            Err(error) if outcome.torn > 0 && error.to_string().contains("corrupt superblock: checksum") => {
                torn += 1;
                continue;
            }
            Err(error) => panic!("{what}: {error}"),
        };
        model.check(&device, cut, &what);
        recovered.service.close().unwrap();
        model.check(&device, cut, &what);
    }
    assert!(torn <= crashes / 20, "{torn} of {crashes}");
    model.check(&recording.cut(events).unwrap(), events, "closed");
}

#[test]
fn a_crash_leaves_whole_transactions_and_no_stale_metadata() {
    for (features, seed) in [("metadata_csum", 1), ("^metadata_csum,^64bit", 2)] {
        run(features, 160, 150, seed);
    }
}
