//! The sets by themselves: how many threads are woken, and which gets what.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::stripe::StripeWake;
use crate::stripe::set::{Entry, Owner, Released, Sets};
use crate::stripe::slots::Content;

/// Which stripe's the content is.
#[derive(Debug)]
struct Mark(Option<u64>);

impl Content for Mark {
    type Work = u32;
    type Answer = u32;
    type Tally = u64;

    fn forget(&mut self) {
        self.0 = None;
    }

    fn abandoned() -> u32 {
        u32::MAX
    }

    fn take_tally(&mut self) -> u64 {
        1
    }
}

fn sets(slots: usize, wake: StripeWake) -> Sets<Mark> {
    Sets::new((0..slots).map(|_| Mark(None)).collect(), wake)
}

fn own_marked(sets: &Sets<Mark>, stripe: u64) -> Owner<'_, Mark> {
    let mut owner = sets.own(stripe);
    owner.0 = Some(stripe);
    owner
}

fn release(owner: Owner<'_, Mark>, keep: bool) {
    assert!(matches!(owner.release(keep, None), Released::Gone));
}

fn until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

#[test]
fn as_many_are_woken_as_stripes_come_free() {
    // One set, all of whose slots are owned; more threads wait than will be served.
    const SLOTS: u64 = 3;
    const WAITERS: u64 = 10;
    for released in 1..=SLOTS {
        let sets = sets(SLOTS as usize, StripeWake::One);
        let (served, may_go) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            let mut owners: Vec<_> = (0..SLOTS).map(|stripe| sets.own(stripe)).collect();
            for waiter in 0..WAITERS {
                let (sets, served, may_go) = (&sets, &served, &may_go);
                scope.spawn(move || {
                    let owner = sets.own(100 + waiter);
                    served.fetch_add(1, Ordering::SeqCst);
                    until(|| may_go.load(Ordering::SeqCst) > 0);
                    release(owner, false);
                });
            }
            until(|| sets.counts().0.sleeps == WAITERS);
            owners.drain(..released as usize).for_each(|owner| release(owner, false));
            until(|| served.load(Ordering::SeqCst) == released as usize);
            let counts = sets.counts().0;
            assert_eq!((counts.wakeups, counts.vain_wakeups, counts.released), (released, 0, released));
            may_go.store(1, Ordering::SeqCst);
            owners.into_iter().for_each(|owner| release(owner, false));
        });
        let counts = sets.counts().0;
        assert!(counts.wakeups <= counts.released, "{counts:?}");
        sets.assert_quiet();
    }
}

#[test]
fn newcomers_stand_back_after_a_wake_up_in_vain() {
    // One slot, for which more threads fight than there are processors; each keeps it for a while.
    const ROUNDS: u64 = 400;
    const THREADS: u64 = 8;
    let sets = sets(1, StripeWake::One);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let sets = &sets;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let owner = sets.own(number * ROUNDS + round);
                    (0..3).for_each(|_| thread::yield_now());
                    release(owner, false);
                }
            });
        }
    });
    let counts = sets.counts().0;
    assert_eq!(counts.released, THREADS * ROUNDS);
    assert!(counts.vain_wakeups <= 1 + counts.wakeups / 64, "{counts:?}");
    sets.assert_quiet();
}

#[test]
fn an_owner_takes_its_slot_along_while_others_wait_but_not_for_ever() {
    let sets = sets(2, StripeWake::One);
    let (mut owner, other) = (own_marked(&sets, 0), own_marked(&sets, 99));
    assert!(matches!(owner.release(true, Some(1)), Released::Gone), "no thread waits");
    owner = own_marked(&sets, 0);
    thread::scope(|scope| {
        scope.spawn(|| release(sets.own(100), false));
        until(|| sets.counts().0.sleeps == 1);
        let Released::Moved(mut moved) = owner.release(true, Some(1)) else { panic!("a thread waits") };
        assert_eq!(moved.0, None, "the content of another stripe is forgotten");
        assert_eq!((sets.counts().0.released, sets.counts().0.wakeups), (1, 0));
        let mut stripe = 2;
        while let Released::Moved(again) = moved.release(false, Some(stripe)) {
            stripe += 1;
            moved = again;
        }
    });
    let counts = sets.counts().0;
    assert_eq!((counts.moved, counts.released, counts.wakeups, counts.vain_wakeups), (15, 3, 1, 0));
    release(other, true);
    sets.assert_quiet();
}

#[test]
fn a_slot_does_not_move_to_a_stripe_that_has_one() {
    let sets = sets(2, StripeWake::One);
    let (owner, other) = (own_marked(&sets, 0), own_marked(&sets, 9));
    thread::scope(|scope| {
        scope.spawn(|| release(sets.own(10), false));
        until(|| sets.counts().0.sleeps == 1);
        assert!(matches!(owner.release(true, Some(9)), Released::Gone));
    });
    release(other, true);
    assert_eq!(sets.counts().0.moved, 0);
    sets.assert_quiet();
}

#[test]
fn in_the_plain_form_all_are_woken_when_a_quarter_is_free() {
    const SLOTS: u64 = 8;
    const WAITERS: u64 = 12;
    let sets = sets(SLOTS as usize, StripeWake::All);
    assert_eq!(sets.set_count(), 1);
    thread::scope(|scope| {
        let mut owners: Vec<_> = (0..SLOTS).map(|stripe| sets.own(stripe)).collect();
        for waiter in 0..WAITERS {
            let sets = &sets;
            scope.spawn(move || release(sets.own(100 + waiter), true));
        }
        until(|| sets.counts().0.sleeps == WAITERS);
        release(owners.pop().unwrap(), true);
        thread::yield_now();
        assert_eq!(sets.counts().0.wakeups, 0, "an eighth is free");
        release(owners.pop().unwrap(), true);
        assert!(sets.counts().0.wakeups >= WAITERS);
        owners.into_iter().for_each(|owner| release(owner, true));
    });
    sets.assert_quiet();
}

#[test]
fn a_stripe_that_was_kept_is_found_again_until_its_slot_is_the_oldest() {
    let sets = sets(3, StripeWake::One);
    for stripe in 0..3 {
        release(own_marked(&sets, stripe), true);
    }
    // Used again: now 1 is the oldest.
    release(sets.own(0), true);
    let owner = sets.own(9);
    assert_eq!(owner.0, None, "forgotten before it is another one's");
    release(owner, true);
    let (counts, tally) = sets.counts();
    assert_eq!((counts.hits, counts.misses, counts.released, tally), (1, 4, 5, 5));
    assert_eq!(sets.own(0).0, Some(0));
    assert_eq!(sets.own(2).0, Some(2));
    assert_eq!(sets.own(1).0, None);
    sets.assert_quiet();
}

#[test]
fn what_is_not_kept_or_dropped_is_forgotten() {
    let sets = sets(2, StripeWake::One);
    release(own_marked(&sets, 7), false);
    assert_eq!(sets.own(7).0, None);
    drop(own_marked(&sets, 7));
    assert_eq!(sets.own(7).0, None);
    sets.assert_quiet();
}

#[test]
fn the_owner_carries_out_handed_over_writes() {
    const FRIENDS: u64 = 5;
    let sets = sets(4, StripeWake::One);
    let owner = sets.own(3);
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        for friend in 0..FRIENDS as u32 {
            let (sets, inside) = (&sets, &inside);
            scope.spawn(move || {
                let entry = sets.enter(3, || {
                    inside.fetch_add(1, Ordering::SeqCst);
                    Some(friend)
                });
                assert!(matches!(entry, Entry::Done(answer) if answer == friend + 10));
            });
        }
        until(|| sets.counts().0.hits == FRIENDS);
        let Released::More(owner, handed) = owner.release(true, None) else { panic!("there is work") };
        assert_eq!(handed.len() as u64, FRIENDS);
        for one in handed {
            let answer = one.work() + 10;
            one.answer(answer);
        }
        release(owner, true);
    });
    assert_eq!(inside.into_inner() as u64, FRIENDS);
    assert_eq!(sets.counts().0.gathered, FRIENDS);
    sets.assert_quiet();
}

#[test]
fn a_thread_that_needs_the_stripe_itself_gets_it_in_turn() {
    let sets = Arc::new(sets(4, StripeWake::One));
    let owner = own_marked(&sets, 3);
    thread::scope(|scope| {
        for waiting in 1..=3 {
            let sets = &sets;
            scope.spawn(move || {
                let owner = sets.own(3);
                assert_eq!(owner.0, Some(3), "as the one before has left it");
                release(owner, true);
            });
            until(|| sets.counts().0.hits == waiting);
        }
        // The first in line wants the stripe: no work is done before.
        release(owner, true);
    });
    assert_eq!(sets.counts().0.given, 3);
    sets.assert_quiet();
}

#[test]
fn there_are_fewer_sets_where_there_are_few_slots() {
    for (slots, count) in [(1, 1), (7, 1), (8, 2), (31, 4), (32, 8), (1000, 8)] {
        let sets = sets(slots, StripeWake::One);
        assert_eq!((sets.slots(), sets.set_count()), (slots, count));
        for stripe in 0..100 {
            release(sets.own(stripe), stripe % 2 == 0);
        }
        sets.assert_quiet();
    }
}
