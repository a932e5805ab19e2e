//! Threads that change their own blocks in common transactions, and crashes in the middle of that.
//!
//! Each operation writes one version to several blocks of its thread and notes the transaction. After a crash the log
//! has the number of the last transaction, and every thread's blocks must have the version of its last operation up to
//! then: an operation belongs to one transaction as a whole, however the threads and the commits met.

use undercroft_block::testing::Recorder;
use undercroft_sync::thread;

use super::*;

const THREADS: u64 = 4;
const BLOCKS_EACH: u64 = 12;

/// The transaction and the version of each operation of a thread, in order; and what had been recorded when a commit
/// that it waited for returned, with that transaction.
#[derive(Default)]
struct History {
    operations: Vec<(Tid, u32)>,
    durable: Vec<(usize, Tid)>,
}

fn blocks(thread: u64) -> std::ops::Range<u64> {
    FREE + thread * BLOCKS_EACH..FREE + (thread + 1) * BLOCKS_EACH
}

/// Works; about one operation in ten waits until it is durable.
fn work(open: &Open, recorder: &Recorder, thread: u64, operations: u32) -> History {
    let mut random = Rng::new(thread);
    let mut history = History::default();
    for version in 1..=operations {
        let handle = open.volume.start(BLOCKS_EACH as u32).unwrap();
        blocks(thread).for_each(|block| put(&handle, block, version));
        let tid = handle.tid();
        drop(handle);
        history.operations.push((tid, version));
        if random.below(10) == 0 {
            open.commit(tid);
            history.durable.push((recorder.recording().events().len(), tid));
        }
    }
    history
}

#[test]
fn each_operation_is_in_one_transaction() {
    let recorder = Arc::new(Recorder::new(in_memory(&image("has_journal"))));
    let open = Open::new(recorder.clone()).unwrap();
    let histories: Vec<History> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let (open, recorder) = (&open, &recorder);
                    move || work(open, recorder, thread, 800)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let stats = open.transactions().stats();
    assert!(stats.handles_started >= THREADS * 800 && stats.items_logged > 3 * 1024, "{stats:?}");
    assert!(stats.checkpoints > 0, "{stats:?}");
    open.service.close().unwrap();

    let recording = recorder.recording();
    let events = recording.events().len();
    let mut random = Rng::new(7);
    // After the first events, which say that the filesystem is in use, and before the last, which say that it is not.
    for seed in 0..60 {
        let cut = 10 + random.below(events as u64 - 20) as usize;
        let (device, outcome) = recording.crash(cut, seed).unwrap();
        let recovered = Open::new(Arc::clone(&device)).unwrap();
        let last = Tid(1 << 32 | u64::from(recovered.recovery.unwrap().end_sequence - 1));
        for (thread, history) in (0..).zip(&histories) {
            let what = format!("thread {thread}, cut {cut} of {events}, {outcome}, recovered to {last:?}");
            let durable =
                history.durable.iter().filter(|(events, _)| *events <= cut).map(|&(_, tid)| tid).max();
            assert!(durable <= Some(last), "{what}: {durable:?} was durable");
            let version =
                history.operations.iter().filter(|(tid, _)| *tid <= last).map(|&(_, version)| version).max();
            for block in blocks(thread) {
                let expected = version.map_or_else(|| vec![0; 1024], |version| content(block, version));
                assert!(on_device(&device, block) == expected, "{what}: block {block}, version {version:?}");
            }
        }
        recovered.service.close().unwrap();
    }
}

#[test]
fn freed_space_is_usable_before_waiters_return() {
    let open = Open::new(in_memory(&image("has_journal"))).unwrap();
    let handed_out = Arc::new(undercroft_sync::atomic::AtomicU32::new(0));
    for round in 1..=50 {
        let handle = open.volume.start(2).unwrap();
        put(&handle, FREE, round);
        let counter = Arc::clone(&handed_out);
        handle.after_commit(move |_| {
            counter.fetch_add(1, undercroft_sync::atomic::Ordering::SeqCst);
        });
        let tid = handle.tid();
        drop(handle);
        open.commit(tid);
        assert_eq!(handed_out.load(undercroft_sync::atomic::Ordering::SeqCst), round);
    }
}

/// Threads that wait for the next transaction, or for room in this one, get an error when there will be none.
#[test]
fn closing_wakes_all_waiters() {
    for round in 0..20 {
        let open = Open::new(in_memory(&image("has_journal"))).unwrap();
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let open = &open;
                scope.spawn(move || {
                    for version in 1.. {
                        let Ok(handle) = open.volume.start(100) else { return };
                        blocks(worker).for_each(|block| put(&handle, block, version));
                        let tid = handle.tid();
                        drop(handle);
                        if version % 7 == 0 && open.transactions().commit(tid).is_err() {
                            return;
                        }
                    }
                });
            }
            thread::sleep(std::time::Duration::from_millis(round));
            open.service.close().unwrap();
        });
    }
}
