//! The slots of the stripe cache, in sets: which stripe is in memory, which thread owns it, which ones wait.
//!
//! A stripe belongs to the set that its number hashes to. Each set has a lock, slots, and a queue of its own; two
//! threads meet only when their stripes are in the same set. This module does not depend on what a slot holds.
//!
//! States of a slot:
//!
//! | state | in the table | content | counted as available |
//! | --- | --- | --- | --- |
//! | free | no | in the slot, says nothing | yes |
//! | idle | yes | in the slot, holds what the stripe's owner left | yes, the oldest is taken for another stripe |
//! | owned | yes | with the [`Owner`]; or in the slot, on its way to the next owner | no |
//!
//! There is one owner at a time, because the owner moves the content out of the slot. A thread that wants an owned
//! stripe queues on its slot ([`Ticket`]); an owner that finds a queue when it is done carries out the work that the
//! queued threads have handed over, or passes the stripe to the first of them.
//!
//! A thread that finds no slot available waits in the set's queue; [`StripeWake`] selects how waiters are woken. With
//! `One`, each wait is exclusive, and three numbers are kept under the lock: slots available, threads asleep, and
//! wake-ups that were sent and have not arrived yet (`woken`). Whenever the lock is released,
//!
//! > available ≤ woken, or asleep = woken,
//!
//! so no slot is idle while a thread sleeps for it, and there are never more wake-ups on their way than slots. If a
//! woken thread joins a stripe that is in memory already, its slot stays available and the same rule wakes the next
//! thread. Newcomers need not queue behind sleepers. Where stripes are owned for microseconds only, a slot is taken and
//! released many times before a woken thread arrives, and that thread finds one all the same; keeping the slot idle
//! meanwhile would make each release a thread switch. Where stripes are owned for longer, a newcomer still has the slot
//! when the woken thread arrives, and the wake-up was in vain. So a wake-up in vain makes the set *orderly* for some
//! wake-ups to come: newcomers leave a slot to each woken thread. The thread that was woken in vain is woken first
//! then, so no thread is woken in vain twice in a row.
//!
//! While other threads wait for slots, a request of several stripes keeps its slot from one stripe to the next, so that
//! it hands the slot off and goes to sleep once for several stripes instead of for each. For this, runs of neighbouring
//! stripes are in one set. A slot that is kept does not become available in between, so no thread must be woken for it;
//! after some stripes it is released to the waiting threads.
//!
//! `All` and `AllSpinning` are the plain forms: one set, in which no request keeps a slot. Its waiters all sleep until
//! a quarter of the slots is available; then all are woken and contend for them.
//!
//! Locks: a set's `STRIPE`; under it none. All wake-ups are sent after it is given up.

use std::ops::{Deref, DerefMut};
use std::ptr;

use undercroft_sync::{Mutex, WaitQueue, order};

use super::options::StripeWake;
use super::slots::{Content, Counts, Found, HandedOver, Offer, SlotIndex, State, Visit, Wakes, take_work};
use super::ticket::{News, Ticket};

/// As many sets as there may be; fewer where there are few slots.
const MAX_SETS: usize = 8;
/// So many slots a set should have: a set of one would make strangers wait for each other.
const SLOTS_PER_SET: usize = 4;
/// So many stripes that follow each other are in one set, so that a long request may go on in the slot that it has.
const RUN: u64 = 16;
/// An owner carries out the work of others so many times before it gives the stripe away.
const ROUNDS: u32 = 4;
/// An owner takes its slot along to so many other stripes before it leaves it to the threads that wait.
const MOVES: u32 = 15;

/// See the module's description.
pub(super) struct Sets<C: Content> {
    sets: Box<[Set<C>]>,
    /// Number of sets is 2 to this power.
    bits: u32,
}

/// Aligned so that no two sets share a line of the processors' caches, nor a pair that is fetched together.
#[repr(align(128))]
struct Set<C: Content> {
    state: Mutex<State<C>>,
    sleepers: WaitQueue,
    wake: StripeWake,
}

/// What a thread gets that asks for a stripe.
pub(super) enum Entry<'a, C: Content> {
    /// The stripe.
    Owner(Owner<'a, C>),
    /// The answer to its work, which another thread did.
    Done(C::Answer),
}

/// A stripe in memory and the right to work on it. Given back by [`release`](Self::release); if dropped, its content
/// is forgotten.
pub(super) struct Owner<'a, C: Content> {
    sets: &'a Sets<C>,
    set: &'a Set<C>,
    slot: SlotIndex,
    /// Here until given back.
    content: Option<C>,
    rounds: u32,
    /// Stripes that it had in this slot before.
    moves: u32,
}

/// What an owner may not leave behind.
pub(super) enum Released<'a, C: Content> {
    /// Nothing.
    Gone,
    /// The slot, which is the next stripe's now.
    Moved(Owner<'a, C>),
    /// There is work from others; the stripe stays with its owner until that is done.
    More(Owner<'a, C>, Vec<HandedOver<C>>),
}

impl<C: Content> Sets<C> {
    /// As many slots as there are contents, at least 1.
    pub(super) fn new(contents: Vec<C>, wake: StripeWake) -> Self {
        assert!(!contents.is_empty(), "a stripe cache has at least one slot");
        let most = match wake {
            StripeWake::One => (contents.len() / SLOTS_PER_SET).clamp(1, MAX_SETS),
            StripeWake::All | StripeWake::AllSpinning => 1,
        };
        let bits = most.ilog2();
        let count = 1 << bits;
        let mut shares: Vec<Vec<C>> = (0..count).map(|_| Vec::new()).collect();
        for (index, content) in contents.into_iter().enumerate() {
            shares[index % count].push(content);
        }
        Self { sets: shares.into_iter().map(|share| Set::new(share, wake)).collect(), bits }
    }

    fn set(&self, stripe: u64) -> &Set<C> {
        // Fibonacci hashing: neighbouring runs go to different sets, and so do those at any regular distance.
        let hash = (stripe / RUN).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.sets[hash.checked_shr(u64::BITS - self.bits).unwrap_or(0) as usize]
    }

    /// Waits until the stripe is the caller's own, or until another thread has done the work that `hand_over` makes.
    /// That is called only if the stripe is owned; if it makes nothing, the caller wants the stripe itself.
    pub(super) fn enter(&self, stripe: u64, hand_over: impl Fn() -> Option<C::Work>) -> Entry<'_, C> {
        let set = self.set(stripe);
        let owner = |slot, content| Owner { sets: self, set, slot, content, rounds: 0, moves: 0 };
        let mut offer = None;
        loop {
            match set.look_until_found(stripe, &mut offer) {
                Found::Taken(slot, content) => return Entry::Owner(owner(slot, Some(content))),
                Found::InLine(slot) => {
                    let (ticket, _) = offer.expect("a thread in line has a ticket");
                    return match ticket.wait() {
                        News::Turn => Entry::Owner(owner(slot, Some(set.take_left(slot)))),
                        News::Done(answer) => Entry::Done(answer),
                        News::None => unreachable!("a ticket's wait ends with news"),
                    };
                }
                Found::NeedsTicket => offer = Some((Ticket::new(), hand_over())),
                Found::Nothing => unreachable!("the wait goes on while nothing is found"),
            }
        }
    }

    /// Waits until the stripe is the caller's own.
    pub(super) fn own(&self, stripe: u64) -> Owner<'_, C> {
        match self.enter(stripe, || None) {
            Entry::Owner(owner) => owner,
            Entry::Done(_) => unreachable!("no work was handed over"),
        }
    }

    /// What happened, and what owners counted.
    pub(super) fn counts(&self) -> (Counts, C::Tally)
    where
        C::Tally: Copy,
    {
        let (mut sum, mut tally) = (Counts::default(), C::Tally::default());
        for set in &self.sets {
            let (counts, counted) = {
                let state = set.state.lock();
                (state.counts, state.tally)
            };
            tally += counted;
            sum.released += counts.released;
            sum.wakeups += counts.wakeups;
            sum.vain_wakeups += counts.vain_wakeups;
            sum.sleeps += counts.sleeps;
            sum.given += counts.given;
            sum.gathered += counts.gathered;
            sum.moved += counts.moved;
            sum.hits += counts.hits;
            sum.misses += counts.misses;
        }
        (sum, tally)
    }

    /// Everything was given back and no thread waits.
    #[cfg(test)]
    pub(super) fn assert_quiet(&self) {
        for set in &self.sets {
            set.state.lock().assert_quiet();
            assert_eq!(set.sleepers.waiting(), 0);
        }
    }

    pub(super) fn slots(&self) -> usize {
        self.sets.iter().map(|set| set.state.lock().slots.len()).sum()
    }

    pub(super) fn set_count(&self) -> usize {
        self.sets.len()
    }
}

impl<C: Content> Set<C> {
    fn new(contents: Vec<C>, wake: StripeWake) -> Self {
        let state = State::new(contents, wake);
        Self { state: Mutex::new(&order::STRIPE, state), sleepers: WaitQueue::new(), wake }
    }

    /// Looks, and sleeps while nothing is available.
    fn look_until_found(&self, stripe: u64, offer: &mut Option<Offer<C>>) -> Found<C> {
        let mut found = Found::Nothing;
        let mut visit = Visit::default();
        let look = || {
            let mut state = self.state.lock();
            visit.begin(&mut state);
            found = state.look(stripe, offer, &visit);
            let satisfied = !matches!(found, Found::Nothing);
            visit.end(&mut state, satisfied);
            let wakes = state.due_wakes();
            drop(state);
            self.send(wakes);
            satisfied
        };
        match self.wake {
            // Of exclusive waiters only the first in line spins before it sleeps.
            StripeWake::One | StripeWake::All => self.sleepers.wait_exclusive(look),
            StripeWake::AllSpinning => self.sleepers.wait(look),
        }
        found
    }

    /// Takes the content of a stripe that its last owner has left for us.
    fn take_left(&self, slot: SlotIndex) -> C {
        let content = self.state.lock().slots[slot as usize].content.take();
        content.expect("a stripe given away lies in its slot")
    }

    fn send(&self, wakes: Wakes) {
        match wakes {
            Wakes::Some(count) => (0..count).for_each(|_| self.sleepers.wake_one()),
            Wakes::All => self.sleepers.wake_all(),
        }
    }
}

impl<'a, C: Content> Owner<'a, C> {
    /// Gives the stripe back, remembered in memory if `keep`. If others have handed work over in the meantime, and it
    /// is not some other thread's turn, the stripe stays and the work has to be done. Otherwise the owner may go on to
    /// the stripe that it needs `next`, in the same slot.
    pub(super) fn release(mut self, keep: bool, next: Option<u64>) -> Released<'a, C> {
        match self.leave(keep, self.rounds < ROUNDS, next.filter(|_| self.moves < MOVES)) {
            Left::Nothing => Released::Gone,
            Left::Moved => {
                self.moves += 1;
                self.rounds = 0;
                Released::Moved(self)
            }
            Left::Work(handed) => {
                self.rounds += 1;
                Released::More(self, handed)
            }
        }
    }

    /// Leaves the stripe, unless there is work and the owner `may_stay`.
    fn leave(&mut self, keep: bool, may_stay: bool, next: Option<u64>) -> Left<C> {
        let Some(mut content) = self.content.take() else {
            return Left::Nothing;
        };
        if !keep {
            content.forget();
        }
        let tally = content.take_tally();
        let next = next.filter(|&next| ptr::eq(self.sets.set(next), self.set));
        let mut state = self.set.state.lock();
        state.tally += tally;
        if state.slots[self.slot as usize].line.is_empty() {
            if next.is_some_and(|next| state.move_to(self.slot, next)) {
                drop(state);
                content.forget();
                self.content = Some(content);
                return Left::Moved;
            }
            state.slots[self.slot as usize].content = Some(content);
            state.make_available(self.slot, keep);
            let wakes = state.due_wakes();
            drop(state);
            self.set.send(wakes);
            return Left::Nothing;
        }
        let slot = &mut state.slots[self.slot as usize];
        if may_stay && slot.line.front().is_some_and(|first| first.work.is_some()) {
            self.content = Some(content);
            let handed = take_work(&mut slot.line);
            state.counts.gathered += handed.len() as u64;
            return Left::Work(handed);
        }
        slot.content = Some(content);
        let first = slot.line.pop_front();
        state.counts.given += 1;
        drop(state);
        if let Some(first) = first {
            first.ticket.tell(News::Turn);
        }
        Left::Nothing
    }
}

/// What is still the owner's when it has left a stripe.
enum Left<C: Content> {
    Nothing,
    /// The slot, for another stripe.
    Moved,
    /// The stripe, and this to do.
    Work(Vec<HandedOver<C>>),
}

impl<C: Content> Drop for Owner<'_, C> {
    fn drop(&mut self) {
        self.leave(false, false, None);
    }
}

impl<C: Content> Deref for Owner<'_, C> {
    type Target = C;
    fn deref(&self) -> &C {
        self.content.as_ref().expect("the content is with the owner until it is given back")
    }
}

impl<C: Content> DerefMut for Owner<'_, C> {
    fn deref_mut(&mut self) -> &mut C {
        self.content.as_mut().expect("the content is with the owner until it is given back")
    }
}
