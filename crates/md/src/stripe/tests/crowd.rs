//! Many threads at once, few stripes, members that come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use undercroft_block::MemoryDevice;
use undercroft_block::testing::{Latency, Slow};

use super::harness::{Plan, Rig, Rng, check_equal};
use crate::Level;
use crate::level::{Personality as _, SyncWork};
use crate::stripe::StripeWake;

const THREADS: usize = 16;
const ROUNDS: usize = 300;

/// Each thread has every sixteenth block of so many bytes: all share stripes with all.
const BLOCK: usize = 1536;

/// Reads and writes of one thread on blocks of its own, compared with what it wrote.
fn work(rig: &Rig, thread: usize, seed: u64) -> Vec<(usize, Vec<u8>)> {
    let mut rng = Rng::new(seed);
    let blocks = rig.model.len() / BLOCK / THREADS;
    let mut mine: Vec<(usize, Vec<u8>)> = (0..blocks)
        .map(|block| {
            let offset = (block * THREADS + thread) * BLOCK;
            (offset, rig.model[offset..offset + BLOCK].to_vec())
        })
        .collect();
    for _ in 0..ROUNDS {
        let (offset, bytes) = &mut mine[rng.below(blocks)];
        let (start, len) = rng.range(BLOCK, BLOCK);
        if rng.below(3) > 0 {
            let new = rng.bytes(len);
            let _inside = rig.shared.enter().unwrap();
            rig.raid.write((*offset + start) as u64, &new).unwrap();
            bytes[start..start + len].copy_from_slice(&new);
        } else {
            let mut buf = vec![0; len];
            rig.raid.read((*offset + start) as u64, &mut buf).unwrap();
            check_equal(&buf, &bytes[start..start + len], &format!("seed {seed}, thread {thread}"));
        }
    }
    mine
}

fn crowd(plan: Plan, seed: u64, come_and_go: bool) {
    println!("seed {seed}, {plan:?}");
    let mut rig = Rig::new(plan);
    let data = Rng::new(seed).bytes(rig.model.len());
    rig.write(0, &data);
    let running = AtomicUsize::new(THREADS);
    let mut rounds = 0;
    let results = thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|number| {
                let (rig, running) = (&rig, &running);
                scope.spawn(move || {
                    let done = work(rig, number, seed ^ ((number as u64) << 8));
                    running.fetch_sub(1, Ordering::SeqCst);
                    done
                })
            })
            .collect();
        let mut rng = Rng::new(!seed);
        let mut goes_on = come_and_go;
        while goes_on {
            let role = rng.below(plan.members as usize) as u32;
            rig.lose(role);
            thread::yield_now();
            // A member joins while nothing is written.
            let new = {
                let _quiet = rig.shared.quiesce();
                rig.join(role)
            };
            let mut at = 0;
            while at < plan.rows * u64::from(plan.chunk_bytes) {
                at += rig.raid.sync(at, 32768, SyncWork::Recover).unwrap().done;
                new.set_recovered(at);
            }
            new.set_recovered(u64::MAX);
            rounds += 1;
            goes_on = running.load(Ordering::SeqCst) > 0;
        }
        workers.into_iter().map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    for (offset, bytes) in results.into_iter().flatten() {
        rig.model[offset..offset + BLOCK].copy_from_slice(&bytes);
    }
    println!("{rounds} members lost and rebuilt");
    rig.check_members();
    rig.check_reads();
    assert_eq!(rig.sync(SyncWork::Check).unwrap(), 0);
    rig.raid.sets.assert_quiet();
    let counts = rig.raid.counts().0;
    assert!(plan.wake != StripeWake::One || counts.wakeups <= counts.released, "{counts:?}");
}

#[test]
fn threads_that_share_stripes_keep_their_bytes() {
    for (seed, wake) in [(1, StripeWake::One), (2, StripeWake::All), (5, StripeWake::AllSpinning)] {
        for (level, members, chunk_bytes) in [(Level::Raid5, 4, 4096), (Level::Raid6, 6, 65536)] {
            crowd(
                Plan { wake, cache_bytes: 64 << 10, ..Plan::new(level, members, chunk_bytes) },
                seed,
                false,
            );
        }
    }
}

#[test]
fn threads_keep_their_bytes_while_members_are_lost_and_rebuilt() {
    for (seed, wake) in [(3, StripeWake::One), (4, StripeWake::All)] {
        for (level, members, chunk_bytes) in
            [(Level::Raid4, 3, 8192), (Level::Raid5, 4, 4096), (Level::Raid6, 6, 16384)]
        {
            crowd(
                Plan { wake, cache_bytes: 128 << 10, ..Plan::new(level, members, chunk_bytes) },
                seed,
                true,
            );
        }
    }
}

#[test]
fn slow_members_that_are_called_at_the_same_time_get_what_they_should() {
    let plan = Plan { rows: 5, ..Plan::new(Level::Raid6, 5, 8192) };
    let mut rig = Rig::on(plan, |_| {
        let memory = Arc::new(MemoryDevice::new(plan.device_bytes()));
        Arc::new(Slow::new(memory, Latency::of_all(Duration::from_micros(150))))
    });
    let mut rng = Rng::new(5);
    for round in 0..40 {
        if round == 20 {
            assert!(rig.member(0).unwrap().transfer_pace.is_slow());
            rig.lose(1);
        }
        let (start, len) = rng.range(rig.model.len(), 40_000);
        rig.write(start, &rng.bytes(len));
        let (start, len) = rng.range(rig.model.len(), 40_000);
        check_equal(&rig.read(start, len).unwrap(), &rig.model[start..start + len], "read");
    }
    rig.check_members();
}

#[test]
fn writers_of_one_stripe_are_gathered() {
    let mut rig = Rig::new(Plan::new(Level::Raid5, 4, 65536));
    let owner = rig.raid.sets.own(0);
    let hits = rig.raid.counts().0.hits;
    let failed = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (rig, failed) = (&rig, Arc::clone(&failed));
            scope.spawn(move || {
                let written = rig.raid.write(number as u64 * 4096, &[number as u8 + 1; 4096]);
                failed.fetch_or(written.is_err(), Ordering::SeqCst);
            });
        }
        while rig.raid.counts().0.hits < hits + THREADS as u64 {
            thread::yield_now();
        }
        rig.raid.leave(owner, 0, true, None);
    });
    assert!(!failed.load(Ordering::SeqCst));
    for number in 0..THREADS {
        rig.model[number * 4096..][..4096].fill(number as u8 + 1);
    }
    let (counts, writes) = rig.raid.counts();
    assert_eq!(counts.gathered, THREADS as u64);
    assert_eq!(writes.whole + writes.modified + writes.reconstructed, 1, "{writes:?}");
    rig.check_members();
}
