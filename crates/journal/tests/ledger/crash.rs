//! Power cuts: after each request, and with each subset of what was not flushed lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use undercroft_block::testing::{Event, Recorder, Rng};
use undercroft_block::{Access, Device, MemoryDevice};
use undercroft_journal::{Client, Tid};

use crate::client::Ledger;
use crate::format::{self, ACCOUNTS, Account, Entry, Payment, Recovered, u64_at};

const BALANCE: u64 = 1000;
const TOTAL: u64 = BALANCE * ACCOUNTS as u64;
/// More unflushed requests than this at a time would make too many subsets.
const UNFLUSHED: usize = 16;

/// What a ledger holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    accounts: Vec<Account>,
    intents: BTreeMap<u64, Payment>,
}

impl Content {
    fn of(ledger: &Ledger) -> Self {
        Self { accounts: ledger.accounts(), intents: ledger.intents() }
    }

    fn total(&self) -> u64 {
        let balances: u64 = self.accounts.iter().map(|account| u64_at(account, 0)).sum();
        balances + self.intents.values().map(|payment| payment.amount).sum::<u64>()
    }
}

impl From<Recovered> for Content {
    fn from(found: Recovered) -> Self {
        Self { accounts: found.accounts, intents: found.intents }
    }
}

/// What one thread did, and what was promised to it.
struct History {
    /// As each transaction left the ledger.
    contents: BTreeMap<Tid, Content>,
    /// Requests when a commit returned, and its transaction.
    durable: Vec<(usize, Tid)>,
}

impl History {
    fn of(ledger: &Ledger) -> Self {
        // Opening logs a transaction that changes nothing, and a crash may lose that one.
        Self { contents: BTreeMap::from([(Tid(0), Content::of(ledger))]), durable: Vec::new() }
    }
}

/// Takes `amount` from an account, to be paid to another one later.
fn pay(ledger: &Ledger, random: &mut Rng, id: u64) -> Option<Tid> {
    let (from, to) = (random.below(ACCOUNTS as u64) as u8, random.below(ACCOUNTS as u64) as u8);
    let handle = ledger.start(Entry::ACCOUNT_BYTES + Entry::INTENT_BYTES).ok()?;
    let balance = u64_at(&ledger.account(from), 0);
    let amount = random.below(balance + 1);
    ledger.change(&handle, from, 0, &(balance - amount).to_le_bytes());
    ledger.intend(&handle, id, Payment { to, amount });
    Some(handle.tid())
}

/// The oldest payment arrives.
fn arrive(ledger: &Ledger) -> Option<Tid> {
    let (id, Payment { to, amount }) = ledger.oldest_intent()?;
    let handle = ledger.start(Entry::ACCOUNT_BYTES + Entry::DONE_BYTES).ok()?;
    let balance = u64_at(&ledger.account(to), 0);
    ledger.change(&handle, to, 0, &(balance + amount).to_le_bytes());
    ledger.done(&handle, id);
    Some(handle.tid())
}

/// Changes some text, in up to three places.
fn write(ledger: &Ledger, random: &mut Rng) -> Option<Tid> {
    let account = random.below(ACCOUNTS as u64) as u8;
    let handle = ledger.start(Entry::ACCOUNT_BYTES).ok()?;
    for _ in 0..=random.below(3) {
        let len = 1 + random.below(10) as usize;
        let at = 8 + random.below(40 - len as u64 + 1) as usize;
        ledger.change(&handle, account, at, &vec![random.below(256) as u8; len]);
    }
    Some(handle.tid())
}

fn work(ledger: &Ledger, recorder: &Recorder, random: &mut Rng, steps: u64, first_id: u64) -> History {
    let mut history = History::of(ledger);
    for step in 0..steps {
        let intents = ledger.intents().len() as u64;
        let done = match random.below(3) {
            0 if intents < Ledger::intents_max() => pay(ledger, random, first_id + step),
            // For long stretches none arrives, while the log goes around: the commits log them again.
            1 if intents > 0 && step / 400 % 2 == 1 => arrive(ledger),
            _ => write(ledger, random),
        };
        let tid = done.expect("nothing has failed");
        history.contents.insert(tid, Content::of(ledger));
        if random.below(40) == 0 {
            ledger.transactions().commit(tid).unwrap();
            history.durable.push((recorder.recording().events().len(), tid));
        }
    }
    while let Some(tid) = arrive(ledger) {
        history.contents.insert(tid, Content::of(ledger));
    }
    history
}

/// Compares what recovery finds after a crash that followed the first `cut` requests.
fn check(device: &[u8], history: &History, cut: usize, what: &dyn Fn() -> String) -> Tid {
    let found = format::recover(device);
    let last = Tid(found.next - 1);
    let durable = history.durable.iter().rev().find(|(events, _)| *events <= cut);
    assert!(
        durable.is_none_or(|(_, tid)| *tid <= last),
        "{}: {durable:?} is lost, {last:?} is there",
        what()
    );
    let (_, content) = history.contents.range(..=last).next_back().expect("it began with something");
    let found = Content::from(found);
    assert_eq!(found.total(), TOTAL, "{}", what());
    assert!(found == *content, "{}: {last:?} left\n{content:?}\nand recovery found\n{found:?}", what());
    last
}

/// Calls `check` with every state that a power cut may leave: after each request, each subset of those that were not
/// flushed is there. Answers with their number.
fn every_crash(
    base: &[u8],
    events: &[Event],
    mut check: impl FnMut(&[u8], usize, &dyn Fn() -> String),
) -> u64 {
    let mut states = 0;
    let mut flushed = base.to_vec();
    let mut unflushed: Vec<(usize, &Event)> = Vec::new();
    for (at, event) in events.iter().enumerate() {
        if let Event::Flush { covers } = event {
            let is_covered = |&&(at, _): &&(usize, &Event)| at < *covers;
            unflushed.iter().filter(is_covered).for_each(|(_, event)| apply(&mut flushed, event));
            unflushed.retain(|(at, _)| at >= covers);
            continue;
        }
        unflushed.push((at, event));
        assert!(unflushed.len() <= UNFLUSHED, "{} requests are not flushed", unflushed.len());
        // The newest one is there in half of the subsets; the other half was had before it.
        for subset in 0..1_u32 << (unflushed.len() - 1) {
            let mut device = flushed.clone();
            let chosen = |bit: usize| bit + 1 == unflushed.len() || subset >> bit & 1 == 1;
            let survivors = unflushed.iter().enumerate().filter(|(bit, _)| chosen(*bit));
            survivors.for_each(|(_, (_, event))| apply(&mut device, event));
            check(&device, at + 1, &|| {
                format!("cut after {at}, of the unflushed {subset:b} and the newest survive")
            });
            states += 1;
        }
    }
    states
}

fn apply(device: &mut [u8], event: &Event) {
    let Event::Write { offset, data } = event else { panic!("a ledger only writes and flushes") };
    device[*offset as usize..][..data.len()].copy_from_slice(data);
}

fn on(bytes: &[u8]) -> Device {
    Arc::new(MemoryDevice::from_bytes(bytes.to_vec(), Access::ReadWrite))
}

fn run(seed: u64) {
    let base = format::make(BALANCE);
    let mut random = Rng::new(seed);
    let recorder = Arc::new(Recorder::new(on(&base)));
    let (ledger, service) = Ledger::open(recorder.clone()).unwrap();
    let history = work(&ledger, &recorder, &mut random, 6000, 0);
    let stats = ledger.transactions().stats();
    assert!(stats.checkpoints > 5 && stats.commits > 60, "{stats:?}");
    service.close().unwrap();
    let closed = Content::of(&ledger);
    drop((service, ledger));

    let recording = recorder.recording();
    let mut again = Vec::new();
    let states = every_crash(&base, recording.events(), |device, cut, what| {
        let last = check(device, &history, cut, what);
        if random.below(200) == 0 {
            again.push((device.to_vec(), history.contents.range(..=last).next_back().unwrap().1.clone()));
        }
    });
    println!("seed {seed}: {states} states, {} of them opened", again.len());
    assert!(states > 2000 && !again.is_empty(), "{states}, {}", again.len());

    let all = recording.cut(recording.events().len()).unwrap();
    let mut bytes = vec![0; format::DEVICE];
    all.read_at(0, &mut bytes).unwrap();
    let found = format::recover(&bytes);
    assert!(found.superblock.is_clean);
    assert_eq!(Content::from(found), closed);

    for (base, content) in again {
        go_on(seed, &base, &content);
    }
}

/// Opens what a crash left, works, and crashes again at every request.
fn go_on(seed: u64, base: &[u8], content: &Content) {
    let recorder = Arc::new(Recorder::new(on(base)));
    let (ledger, service) = Ledger::open(recorder.clone()).unwrap();
    assert_eq!(Content::of(&ledger), *content, "seed {seed}");
    let history = work(&ledger, &recorder, &mut Rng::new(seed), 200, 1 << 32);
    service.close().unwrap();
    let recording = recorder.recording();
    every_crash(base, recording.events(), |device, cut, what| {
        let what = || format!("seed {seed}, opened again, {}", what());
        check(device, &history, cut, &what);
    });
}

#[test]
fn recovery_finds_whole_transactions_and_every_one_that_was_durable() {
    for seed in 1..=3 {
        run(seed);
    }
}

/// Threads whose changes meet in common transactions: whatever survives, no money is made or lost.
#[test]
fn transactions_of_several_threads_are_whole() {
    let base = format::make(BALANCE);
    let recorder = Arc::new(Recorder::new(on(&base)));
    let (ledger, service) = Ledger::open(recorder.clone()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let ledger = &ledger;
            scope.spawn(move || {
                let mut random = Rng::new(thread);
                for _ in 0..100 {
                    let tid = exchange(ledger, &mut random, thread);
                    if random.below(4) == 0 {
                        ledger.transactions().commit(tid).unwrap();
                    }
                }
            });
        }
    });
    service.close().unwrap();
    let recording = recorder.recording();
    let mut seeds = Rng::new(5);
    for cut in 0..=recording.events().len() {
        let (device, outcome) = recording.crash(cut, seeds.below(u64::MAX)).unwrap();
        let mut bytes = vec![0; format::DEVICE];
        device.read_at(0, &mut bytes).unwrap();
        assert_eq!(Content::from(format::recover(&bytes)).total(), TOTAL, "cut {cut}, {outcome}");
    }
}

/// Moves money between two accounts of a thread, in one transaction.
fn exchange(ledger: &Ledger, random: &mut Rng, thread: u64) -> Tid {
    let (from, to) = (thread as u8 * 3, thread as u8 * 3 + 1 + random.below(2) as u8);
    let handle = ledger.start(2 * Entry::ACCOUNT_BYTES).unwrap();
    let (a, b) = (u64_at(&ledger.account(from), 0), u64_at(&ledger.account(to), 0));
    let sum = a + b;
    let a = random.below(sum + 1);
    ledger.change(&handle, from, 0, &a.to_le_bytes());
    ledger.change(&handle, to, 0, &(sum - a).to_le_bytes());
    handle.tid()
}

/// An intent keeps its place in the log even when everything else is written back.
#[test]
fn a_ledger_that_is_closed_with_an_intent_under_way_still_has_it() {
    let device = on(&format::make(BALANCE));
    let (ledger, service) = Ledger::open(Arc::clone(&device)).unwrap();
    let mut random = Rng::new(3);
    pay(&ledger, &mut random, 9).unwrap();
    write(&ledger, &mut random).unwrap();
    let content = Content::of(&ledger);
    let error = service.close().unwrap_err().to_string();
    assert!(error.contains("an intent that was never done"), "{error}");
    let mut bytes = vec![0; format::DEVICE];
    device.read_at(0, &mut bytes).unwrap();
    let found = format::recover(&bytes);
    assert!(!found.superblock.is_clean);
    assert_eq!(Content::from(found), content);

    let (ledger, service) = Ledger::open(device).unwrap();
    arrive(&ledger).unwrap();
    service.close().unwrap();
    assert_eq!(Content::of(&ledger).total(), TOTAL);
}
