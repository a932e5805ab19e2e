//! Random schedules of threads that take stripes, wait for them, hand work over and give stripes back.
//!
//!     RUSTFLAGS="--cfg shuttle" cargo test -p undercroft-md --lib model_tests
//!
//! A lost wake-up is a deadlock, which shuttle reports; two owners of one stripe are found by a flag. A failure prints
//! its schedule; `shuttle::replay` runs it again.

use std::sync::Arc;

use shuttle::rand::{Rng, thread_rng};
use undercroft_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use undercroft_sync::thread;

use super::StripeWake;
use super::set::{Entry, Owner, Released, Sets};
use super::slots::Content;

const SCHEDULES: usize = 4000;
/// Switches of priority that PCT places in a schedule.
const PCT_DEPTH: usize = 3;

fn explore(property: impl Fn() + Send + Sync + Copy + 'static) {
    shuttle::check_random(property, SCHEDULES);
    shuttle::check_pct(property, SCHEDULES, PCT_DEPTH);
}

/// A slot's content: the stripe that was left in it.
struct Left(Option<usize>);

impl Content for Left {
    type Work = usize;
    type Answer = bool;
    type Tally = usize;

    fn forget(&mut self) {
        self.0 = None;
    }

    fn abandoned() -> bool {
        false
    }

    fn take_tally(&mut self) -> usize {
        0
    }
}

struct World {
    sets: Sets<Left>,
    owned: [AtomicBool; 4],
    /// Work done on each stripe.
    done: [AtomicUsize; 4],
}

impl World {
    fn new(slots: usize, wake: StripeWake) -> Arc<Self> {
        let contents = (0..slots).map(|_| Left(None)).collect();
        Arc::new(Self {
            sets: Sets::new(contents, wake),
            owned: Default::default(),
            done: Default::default(),
        })
    }

    /// Does one piece of work on a stripe, itself or by another thread.
    fn work(&self, stripe: usize, hand_over: bool, keep: bool) {
        self.work_on(&[stripe], hand_over, keep);
    }

    /// The same on several stripes, one after the other.
    fn work_on(&self, stripes: &[usize], hand_over: bool, keep: bool) {
        let mut owner = None;
        for (at, &stripe) in stripes.iter().enumerate() {
            owner = self.work_once(owner, stripe, stripes.get(at + 1).copied(), hand_over, keep);
        }
    }

    /// Returns the owner of the `next` stripe, if the slot went on to that.
    fn work_once<'a>(
        &'a self,
        owner: Option<Owner<'a, Left>>,
        stripe: usize,
        next: Option<usize>,
        hand_over: bool,
        keep: bool,
    ) -> Option<Owner<'a, Left>> {
        let enter = || self.sets.enter(stripe as u64, || hand_over.then_some(1));
        let mut owner = match owner.map_or_else(enter, Entry::Owner) {
            Entry::Done(answer) => {
                assert!(answer && hand_over);
                return None;
            }
            Entry::Owner(owner) => owner,
        };
        assert!(owner.0.is_none_or(|left| left == stripe), "the content of another stripe");
        assert!(!self.owned[stripe].swap(true, Ordering::SeqCst), "two owners");
        owner.0 = Some(stripe);
        self.done[stripe].fetch_add(1, Ordering::SeqCst);
        loop {
            thread::yield_now();
            // Before it is given back: another one may have it before `release` returns.
            self.owned[stripe].store(false, Ordering::SeqCst);
            let handed = match owner.release(keep, next.map(|next| next as u64)) {
                Released::Gone => return None,
                Released::Moved(owner) => return Some(owner),
                Released::More(again, handed) => {
                    owner = again;
                    handed
                }
            };
            assert!(!self.owned[stripe].swap(true, Ordering::SeqCst), "two owners");
            for handed in handed {
                self.done[stripe].fetch_add(*handed.work(), Ordering::SeqCst);
                handed.answer(true);
            }
        }
    }
}

fn in_threads(count: usize, work: impl Fn(usize) + Send + Sync + 'static) {
    let work = Arc::new(work);
    let threads: Vec<_> = (0..count)
        .map(|number| {
            let work = Arc::clone(&work);
            thread::spawn(move || work(number))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

fn random_stripes_from_several_threads(slots: usize, wake: StripeWake) {
    const THREADS: usize = 4;
    const ROUNDS: usize = 3;
    let world = World::new(slots, wake);
    let seen = Arc::clone(&world);
    in_threads(THREADS, move |_| {
        for _ in 0..ROUNDS {
            let (stripe, hand_over, keep) =
                (thread_rng().gen_range(0..3), thread_rng().r#gen(), thread_rng().r#gen());
            world.work(stripe, hand_over, keep);
        }
    });
    let done: usize = seen.done.iter().map(|count| count.load(Ordering::SeqCst)).sum();
    assert_eq!(done, THREADS * ROUNDS);
    seen.sets.assert_quiet();
}

#[test]
fn one_slot_serves_all_threads() {
    explore(|| random_stripes_from_several_threads(1, StripeWake::One));
}

#[test]
fn two_slots_serve_all_threads() {
    explore(|| random_stripes_from_several_threads(2, StripeWake::One));
}

#[test]
fn the_plain_form_serves_all_threads() {
    explore(|| random_stripes_from_several_threads(2, StripeWake::All));
    explore(|| random_stripes_from_several_threads(2, StripeWake::AllSpinning));
}

#[test]
fn a_woken_thread_that_joins_a_stripe_wakes_the_next() {
    // Three threads wait for a slot, two of them for the same stripe: whichever comes second joins, and what was
    // released for it must reach the third.
    explore(|| {
        let world = World::new(2, StripeWake::One);
        let seen = Arc::clone(&world);
        in_threads(4, move |number| {
            world.work([0, 1, 2, 2][number], false, number % 2 == 0);
            world.work([1, 2, 3, 3][number], number < 2, true);
        });
        assert_eq!(seen.done.iter().map(|count| count.load(Ordering::SeqCst)).sum::<usize>(), 8);
        seen.sets.assert_quiet();
    });
}

#[test]
fn slots_that_move_between_stripes_serve_all_threads() {
    explore(|| {
        let world = World::new(2, StripeWake::One);
        let seen = Arc::clone(&world);
        in_threads(4, move |number| {
            let stripes = [[0, 1, 2], [2, 3, 0], [1, 3, 1], [3, 2, 2]][number];
            world.work_on(&stripes, number < 2, number % 2 == 0);
        });
        assert_eq!(seen.done.iter().map(|count| count.load(Ordering::SeqCst)).sum::<usize>(), 12);
        seen.sets.assert_quiet();
    });
}

#[test]
fn an_owner_that_dies_leaves_the_stripe_and_answers() {
    explore(|| {
        let world = World::new(1, StripeWake::One);
        let seen = Arc::clone(&world);
        in_threads(3, move |number| {
            if number == 0 {
                // Dropped, as by a panic, and what was handed over to it as well.
                let owner = world.sets.own(0);
                thread::yield_now();
                if let Released::More(owner, handed) = owner.release(true, None) {
                    drop(handed);
                    drop(owner);
                }
                return;
            }
            match world.sets.enter(0, || Some(1)) {
                Entry::Done(answer) => assert!(!answer || number > 0),
                Entry::Owner(owner) => drop(owner),
            }
        });
        seen.sets.assert_quiet();
    });
}
