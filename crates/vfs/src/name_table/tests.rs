//! The table against a model, and with threads.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use undercroft_sync::order;

use super::key::{HASH_MASK, KEY_BITS, least_key};
use super::leaf::{Below, Child, Entry, FANOUT_BITS, Node, SLOTS};
use super::retired::BATCH;
use super::{InsertError, NameTable};
use crate::HashedName;
use crate::conformance::mix;

fn table<V: Send + Sync + 'static>() -> NameTable<V> {
    NameTable::new(&order::NAME_TABLE)
}

/// A name of its own for each number; some are held in the entry and some are too long for that.
fn name(number: u64) -> Vec<u8> {
    format!("name {number:0>width$}", width = number as usize % 32).into_bytes()
}

fn listed<V: Copy + Send + Sync + 'static>(table: &NameTable<V>, from: u64) -> Vec<(u64, Vec<u8>, V)> {
    let mut all = Vec::new();
    let _ = table.scan(from, |key, name, value| {
        all.push((key, name.to_vec(), *value));
        ControlFlow::Continue(())
    });
    all
}

/// One name more than a leaf has room for, all with hashes that begin with the same bits: together they lie below three
/// branches or more, where a leaf that becomes empty is freed.
fn crowded_names() -> Vec<Vec<u8>> {
    let prefix = |number: u64| least_key(&HashedName::new(&name(number))) >> (KEY_BITS - 2 * FANOUT_BITS);
    let wanted = prefix(0);
    (0..).filter(|&number| prefix(number) == wanted).map(name).take(SLOTS + 1).collect()
}

/// How many rounds a test with threads makes; Miri is a thousand times slower.
const ROUNDS: u64 = if cfg!(miri) { 60 } else { 20_000 };

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 64 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_map(operations in prop::collection::vec((0_u8..40, 0_u64..200, any::<u32>()), 0..600)) {
        let table = table();
        let mut model = BTreeMap::new();
        for (operation, number, value) in operations {
            let name = name(number);
            match operation {
                // While it is one leaf.
                0 => table.spread(),
                1..=20 => {
                    let expected = if model.contains_key(&name) { Err(InsertError::Exists) } else { Ok(()) };
                    prop_assert_eq!(table.insert(&HashedName::new(&name), value), expected);
                    model.entry(name).or_insert(value);
                }
                21..=30 => prop_assert_eq!(table.remove(&HashedName::new(&name)), model.remove(&name).is_some()),
                _ => {
                    let there = model.get_mut(&name).map(|old| *old = value).is_some();
                    prop_assert_eq!(table.replace(&HashedName::new(&name), value), there);
                }
            }
            prop_assert_eq!(table.is_empty(), model.is_empty());
        }
        for number in 0..200 {
            let name = name(number);
            prop_assert_eq!(table.get(&HashedName::new(&name), |&value| value), model.get(&name).copied());
        }
        let all = listed(&table, 0);
        prop_assert!(all.is_sorted_by(|one, other| one.0 < other.0));
        let shown: BTreeMap<_, _> = all.iter().map(|(_, name, value)| (name.clone(), *value)).collect();
        prop_assert_eq!(shown, model);
        // From any key on, the rest.
        if let Some(&(key, ..)) = all.get(all.len() / 2) {
            prop_assert_eq!(&listed(&table, key)[..], &all[all.len() / 2..]);
            prop_assert_eq!(&listed(&table, key + 1)[..], &all[all.len() / 2 + 1..]);
        }
    }
}

#[test]
fn a_large_table_holds_and_gives_back() {
    let count = if cfg!(miri) { 300 } else { 200_000 };
    let table = table();
    for number in 0..count {
        table.insert(&HashedName::new(&name(number)), number).unwrap();
    }
    for number in 0..count {
        assert_eq!(table.get(&HashedName::new(&name(number)), |&value| value), Some(number));
    }
    assert_eq!(listed(&table, 0).len() as u64, count);
    for number in 0..count {
        assert!(table.remove(&HashedName::new(&name(number))));
    }
    assert!(table.is_empty());
    assert!(!table.remove(&HashedName::new(&name(0))));
}

#[test]
fn values_are_dropped_once_and_all() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let counted = || Counted(Arc::clone(&dropped));
    let table = table();
    for number in 0..100 {
        table.insert(&HashedName::new(&name(number)), counted()).unwrap();
    }
    assert!(table.insert(&HashedName::new(&name(0)), counted()).is_err());
    let change = || {
        for number in 0..40 {
            assert!(table.remove(&HashedName::new(&name(number))));
            assert!(table.replace(&HashedName::new(&name(number + 50)), counted()));
        }
    };
    // With the thread goes what it has not freed itself.
    thread::scope(|scope| scope.spawn(change).join().unwrap());
    drop(table);
    // What was removed goes when the epoch has moved on, which threads of other tests may hold up.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        crossbeam_epoch::pin().flush();
        if dropped.load(Ordering::Relaxed) == 100 + 1 + 40 {
            return;
        }
        thread::yield_now();
    }
    panic!("{} of 141 dropped", dropped.load(Ordering::Relaxed));
}

/// Those in a leaf whose place others have taken belong to those.
#[test]
fn what_was_handed_on_is_dropped_once() {
    let value = Arc::new(());
    let table = table();
    for number in 0..SLOTS as u64 {
        table.insert(&HashedName::new(&name(number)), Arc::clone(&value)).unwrap();
    }
    table.spread();
    for number in 0..SLOTS as u64 {
        assert!(table.get(&HashedName::new(&name(number)), |_| ()).is_some());
    }
    drop(table);
    assert_eq!(Arc::strong_count(&value), 1);
}

/// Though another thread learns as well when values may be dropped.
#[test]
fn a_thread_drops_itself_what_it_removes() {
    struct Counted(thread::ThreadId, Arc<[AtomicUsize; 2]>);
    impl Drop for Counted {
        fn drop(&mut self) {
            let by_another = thread::current().id() != self.0;
            self.1[usize::from(by_another)].fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped: Arc<[AtomicUsize; 2]> = Arc::default();
    let (table, done) = (table(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                crossbeam_epoch::pin().flush();
                thread::yield_now();
            }
        });
        scope.spawn(|| {
            for round in 0..if cfg!(miri) { 6 * BATCH as u64 } else { ROUNDS * 10 } {
                let name = name(round % 100);
                table
                    .insert(&HashedName::new(&name), Counted(thread::current().id(), Arc::clone(&dropped)))
                    .unwrap();
                assert!(table.remove(&HashedName::new(&name)));
            }
            // Before the thread ends, which leaves the rest to others.
            let [by_itself, by_another] = [0, 1].map(|caller| dropped[caller].load(Ordering::Relaxed));
            done.store(true, Ordering::Relaxed);
            assert!(by_itself > 0 && by_another == 0, "{by_itself} and {by_another}");
        });
    });
}

/// Each thread works on names of its own, all in the same small table.
#[test]
fn writers_of_different_names_do_not_disturb_each_other() {
    let table = table();
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let table = &table;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let name = name(thread * 10 + mix(round) % 5);
                    assert_eq!(table.get(&HashedName::new(&name), |_| ()), None);
                    table.insert(&HashedName::new(&name), round).unwrap();
                    assert_eq!(table.insert(&HashedName::new(&name), 0), Err(InsertError::Exists));
                    assert_eq!(table.get(&HashedName::new(&name), |&value| value), Some(round));
                    assert!(table.replace(&HashedName::new(&name), round + 1));
                    assert_eq!(table.get(&HashedName::new(&name), |&value| value), Some(round + 1));
                    assert!(table.remove(&HashedName::new(&name)));
                }
            });
        }
    });
    assert!(table.is_empty());
}

/// A name that stands all along is found by every look-up and shown once by every scan, while others come and go and
/// leaves are split and freed around it.
#[test]
fn names_that_stay_are_always_found_and_listed_exactly_once() {
    let table = table();
    let standing: Vec<Vec<u8>> =
        (0..if cfg!(miri) { 10 } else { 100 }).map(|number| format!("stays {number}").into_bytes()).collect();
    for name in &standing {
        table.insert(&HashedName::new(name), 7_u64).unwrap();
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (table, done) = (&table, &done);
            scope.spawn(move || {
                for round in 0..ROUNDS / 20 {
                    for number in 0..20 {
                        table
                            .insert(
                                &HashedName::new(&name(thread * 1_000_000 + round % 50 * 1000 + number)),
                                1,
                            )
                            .unwrap();
                    }
                    for number in 0..20 {
                        assert!(table.remove(&HashedName::new(&name(
                            thread * 1_000_000 + round % 50 * 1000 + number
                        ))));
                    }
                }
                done.store(true, Ordering::Relaxed);
            });
        }
        while !done.load(Ordering::Relaxed) {
            let mut shown = BTreeSet::new();
            let mut last = None;
            let _ = table.scan(0, |key, name, _| {
                assert!(last.replace(key) < Some(key));
                assert!(shown.insert(name.to_vec()), "{} twice", name.escape_ascii());
                ControlFlow::Continue(())
            });
            for name in &standing {
                assert!(shown.contains(name), "{} not shown", name.escape_ascii());
                assert_eq!(table.get(&HashedName::new(name), |&value| value), Some(7));
            }
        }
    });
}

/// The only leaf of a small table gives way to many while names come and go there and are looked for.
#[test]
fn a_table_that_is_spread_meanwhile_loses_nothing() {
    for round in 0..if cfg!(miri) { 6 } else { 400 } {
        let table = table();
        let standing: Vec<Vec<u8>> = (0..5).map(|number| format!("stays {number}").into_bytes()).collect();
        for name in &standing {
            table.insert(&HashedName::new(name), round).unwrap();
        }
        let begun = std::sync::Barrier::new(4);
        thread::scope(|scope| {
            for thread in 0..2_u64 {
                let (table, begun) = (&table, &begun);
                scope.spawn(move || {
                    begun.wait();
                    for number in 0..30 {
                        let name = name(thread * 100 + number % 4);
                        table.insert(&HashedName::new(&name), number).unwrap();
                        assert_eq!(table.get(&HashedName::new(&name), |&value| value), Some(number));
                        assert!(table.remove(&HashedName::new(&name)));
                    }
                });
            }
            scope.spawn(|| {
                begun.wait();
                for _ in 0..10 {
                    for name in &standing {
                        assert_eq!(table.get(&HashedName::new(name), |&value| value), Some(round));
                    }
                    let shown = listed(&table, 0);
                    assert_eq!(shown.iter().filter(|(_, name, _)| standing.contains(name)).count(), 5);
                }
            });
            begun.wait();
            table.spread();
        });
        assert_eq!(listed(&table, 0).len(), 5);
    }
}

/// A name whose value is replaced is never missing.
#[test]
fn a_replaced_name_is_never_missing() {
    let table = table();
    table.insert(&HashedName::new(b"name"), 0_u64).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                assert!(table.replace(&HashedName::new(b"name"), round));
            }
        });
        scope.spawn(|| {
            let mut last = 0;
            while last < ROUNDS {
                let seen = table.get(&HashedName::new(b"name"), |&value| value).unwrap();
                assert!(seen >= last);
                last = seen;
            }
        });
    });
}

/// A thread that reads a value keeps it, and its name, though the name is removed meanwhile, its leaf split and the
/// leaf that came after freed.
#[test]
fn what_is_being_read_outlives_its_name_and_its_leaf() {
    let names = crowded_names();
    let table = table();
    // As many as one leaf has room for: the reader finds them in a leaf that is then split.
    for name in &names[1..] {
        table.insert(&HashedName::new(name), name.clone()).unwrap();
    }
    let mut shown = 0;
    let _ = table.scan(0, |_, name, value| {
        if shown == 0 {
            table.insert(&HashedName::new(&names[0]), names[0].clone()).unwrap();
            for name in &names {
                assert!(table.replace(&HashedName::new(name), b"other".to_vec()));
                assert!(table.remove(&HashedName::new(name)));
            }
            assert!(table.is_empty());
            for _ in 0..if cfg!(miri) { 10 } else { 1000 } {
                crossbeam_epoch::pin().flush();
            }
        }
        assert_eq!(name, value);
        shown += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(shown, SLOTS);
}

/// Leaves that become empty and are freed, and made again, by several threads at once, while others read.
#[test]
fn freed_leaves_lose_nothing() {
    let names = crowded_names();
    let (standing, others) = names.split_first().unwrap();
    let table = table();
    table.insert(&HashedName::new(standing), 7_u64).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for half in others.chunks(others.len() / 2) {
            let (table, done) = (&table, &done);
            scope.spawn(move || {
                for round in 0..ROUNDS / 20 {
                    for name in half {
                        table.insert(&HashedName::new(name), round).unwrap();
                    }
                    for name in half {
                        assert_eq!(table.get(&HashedName::new(name), |&value| value), Some(round));
                        assert!(table.remove(&HashedName::new(name)));
                    }
                }
                done.store(true, Ordering::Relaxed);
            });
        }
        while !done.load(Ordering::Relaxed) {
            assert_eq!(table.get(&HashedName::new(standing), |&value| value), Some(7));
            assert_eq!(listed(&table, 0).iter().filter(|(_, name, _)| name == standing).count(), 1);
        }
    });
    assert_eq!(listed(&table, 0).len(), 1);
}

/// Names of one hash cannot be made on purpose, so this goes to a leaf directly.
#[test]
fn names_of_one_hash_have_keys_of_their_own() {
    let child = Child::empty();
    let guard = crossbeam_epoch::pin();
    let Below::Leaf(leaf) = child.get_or_leaf(&order::NAME_TABLE, &guard) else {
        panic!("a new child is a leaf")
    };
    let hash = HASH_MASK;
    let entry = |name: &[u8]| crossbeam_epoch::Owned::new(Entry { key: hash, name: name.into(), value: () });
    let keys = || {
        let mut keys: Vec<u64> = leaf.entries(&guard).map(|entry| entry.key - hash).collect();
        keys.sort_unstable();
        keys
    };
    let mut locked = leaf.lock().unwrap();
    for number in 0..SLOTS as u64 {
        assert!(leaf.find(hash, &name(number), &guard).is_none());
        locked.add(entry(&name(number)), &guard).unwrap();
        assert_eq!(locked.add(entry(&name(number)), &guard), Err(InsertError::Exists));
    }
    assert_eq!(keys(), (0..SLOTS as u64).collect::<Vec<_>>());
    assert_eq!(locked.add(entry(b"one more"), &guard), Err(InsertError::Full));
    let Some(gone) = locked.remove(hash, &name(5), &guard) else { panic!("it was there") };
    super::retired::retire(gone, &guard);
    assert_eq!(locked.len(), SLOTS - 1);
    // The key of the one that went, and found by its name.
    locked.add(entry(b"one more"), &guard).unwrap();
    assert_eq!(leaf.find(hash, b"one more", &guard).map(|entry| entry.key), Some(hash | 5));
    assert!(leaf.find(hash, &name(5), &guard).is_none());
    assert_eq!(keys(), (0..SLOTS as u64).collect::<Vec<_>>());
    drop(locked);
    // Entries belong to a table, which frees them; here is none.
    let mut child = child;
    if let Some(Node::Leaf(mut leaf)) = child.take().map(|node| *node) {
        assert_eq!(leaf.take_entries().count(), SLOTS);
    }
}
