//! Wait queues with exclusive and non-exclusive waiters, as Linux has them.
//!
//! The waking thread changes what the condition reads and then wakes; a waiter enters the queue and then evaluates its
//! condition. So either the waker finds the waiter or the waiter finds the change, and no wakeup is lost. Between the
//! two stand fences, since the condition may read anything: see `wake_one`.
//!
//! Used where many waiters of one lock would be woken in vain: RAID stripes, journal space, write-back. No lock of the
//! queue is held while a condition runs or a thread sleeps.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::primitives::atomic::{AtomicUsize, Ordering, fence};
use crate::primitives::{Deadline, Mutex};
use crate::waiter::Waiter;

/// Threads that sleep until a condition holds.
///
/// Non-exclusive waiters are all woken by any wake. Exclusive waiters wait for something that only one of them
/// can have: [`wake_one`](Self::wake_one) wakes one, the one that came first. All exclusive waiters of a queue
/// must wait for the same thing, because the one that is woken is the only one to learn of it.
///
/// A condition is evaluated by the waiting thread, any number of times, the last time with the result `true`; it may
/// take what it found (a free slot, say) and it may take locks. A new thread whose condition holds at once does not
/// queue, even if other threads do.
pub struct WaitQueue {
    /// How many are in the queue: lets a wake without waiters pass by without the lock. Written under it.
    waiting: AtomicUsize,
    queue: Mutex<Queue>,
}

struct Queue {
    /// Place in line for the next waiter that comes.
    next_ticket: Ticket,
    /// Woken together, in no order.
    non_exclusive: Vec<Place>,
    /// By rising ticket; woken from the front.
    exclusive: VecDeque<Place>,
}

/// When a waiter came; it keeps its ticket when it was woken in vain and waits on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ticket(u64);

struct Place {
    ticket: Ticket,
    waiter: Arc<Waiter>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    NonExclusive,
    Exclusive,
}

impl WaitQueue {
    const_unless_loom! {
        /// A queue without waiters.
        #[must_use]
        pub const fn new() -> Self {
            Self {
                waiting: AtomicUsize::new(0),
                queue: Mutex::new(Queue {
                    next_ticket: Ticket(0),
                    non_exclusive: Vec::new(),
                    exclusive: VecDeque::new(),
                }),
            }
        }
    }

    /// Waits until `condition` holds, as a non-exclusive waiter.
    pub fn wait(&self, mut condition: impl FnMut() -> bool) {
        self.wait_until(Kind::NonExclusive, None, &mut condition);
    }

    /// Waits until `condition` holds, as an exclusive waiter.
    pub fn wait_exclusive(&self, mut condition: impl FnMut() -> bool) {
        self.wait_until(Kind::Exclusive, None, &mut condition);
    }

    /// Waits until `condition` holds or `timeout` has passed, as a non-exclusive waiter. Tells whether it held.
    pub fn wait_timeout(&self, timeout: Duration, mut condition: impl FnMut() -> bool) -> bool {
        self.wait_until(Kind::NonExclusive, Some(timeout), &mut condition)
    }

    /// Waits until `condition` holds or `timeout` has passed, as an exclusive waiter. Tells whether it held; if
    /// not, a wake-up that came too late has gone on to the next one.
    pub fn wait_exclusive_timeout(&self, timeout: Duration, mut condition: impl FnMut() -> bool) -> bool {
        self.wait_until(Kind::Exclusive, Some(timeout), &mut condition)
    }

    /// Wakes every non-exclusive waiter and the exclusive one that came first. To be called after the change
    /// that the waiters wait for.
    pub fn wake_one(&self) {
        self.wake(|queue| queue.exclusive.pop_front());
    }

    /// Wakes every waiter. To be called after the change that the waiters wait for.
    pub fn wake_all(&self) {
        self.wake(|queue| mem::take(&mut queue.exclusive));
    }

    /// How many threads are in the queue at this moment.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn wake<E: IntoIterator<Item = Place>>(&self, take_exclusive: impl FnOnce(&mut Queue) -> E) {
        // Pairs with the fence in `Stay::enter`. Caller: change, fence, read `waiting`. Waiter: write `waiting`,
        // fence, read the condition. Whichever fence is second, its thread sees what the other one wrote.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let (non_exclusive, exclusive) = {
            let mut queue = self.queue.lock();
            let taken = (mem::take(&mut queue.non_exclusive), take_exclusive(&mut queue));
            self.waiting.store(queue.len(), Ordering::Relaxed);
            taken
        };
        // Without the lock: a woken thread may want it at once.
        for place in non_exclusive.into_iter().chain(exclusive) {
            place.waiter.wake();
        }
    }

    fn wait_until(&self, kind: Kind, timeout: Option<Duration>, condition: &mut dyn FnMut() -> bool) -> bool {
        if condition() {
            return true;
        }
        let deadline = timeout.map_or(Deadline::NEVER, Deadline::after);
        let mut stay = Stay::new(self, kind);
        loop {
            stay.enter();
            if condition() {
                stay.satisfied = true;
                return true;
            }
            let woken = stay.sleep(deadline);
            if condition() {
                stay.satisfied = true;
                return true;
            }
            if !woken {
                return false;
            }
        }
    }
}

impl Default for WaitQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for WaitQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitQueue").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl Queue {
    fn len(&self) -> usize {
        self.non_exclusive.len() + self.exclusive.len()
    }

    fn draw_ticket(&mut self) -> Ticket {
        let ticket = self.next_ticket;
        self.next_ticket = Ticket(ticket.0 + 1);
        ticket
    }

    fn insert(&mut self, kind: Kind, place: Place) {
        match kind {
            Kind::NonExclusive => self.non_exclusive.push(place),
            Kind::Exclusive => {
                // At the end, unless it was here before.
                let at = self.exclusive.partition_point(|other| other.ticket < place.ticket);
                self.exclusive.insert(at, place);
            }
        }
    }

    /// Tells whether the ticket was there.
    fn remove(&mut self, kind: Kind, ticket: Ticket) -> bool {
        match kind {
            Kind::NonExclusive => {
                let found = self.non_exclusive.iter().position(|place| place.ticket == ticket);
                found.map(|at| self.non_exclusive.swap_remove(at)).is_some()
            }
            Kind::Exclusive => {
                let found = self.exclusive.binary_search_by_key(&ticket, |place| place.ticket);
                found.is_ok_and(|at| self.exclusive.remove(at).is_some())
            }
        }
    }
}

/// One call of a wait; leaves the queue when dropped.
struct Stay<'a> {
    queue: &'a WaitQueue,
    kind: Kind,
    /// Drawn at the first entry.
    ticket: Option<Ticket>,
    position: Position,
    satisfied: bool,
    /// Whether the next wake would be ours when we entered.
    is_next: bool,
}

enum Position {
    Outside,
    /// Unless a waking thread has taken us out.
    Queued(Arc<Waiter>),
    /// Taken out and woken.
    Woken,
}

impl<'a> Stay<'a> {
    fn new(queue: &'a WaitQueue, kind: Kind) -> Self {
        Self { queue, kind, ticket: None, position: Position::Outside, satisfied: false, is_next: false }
    }

    /// Takes a place in the queue. The condition has to be looked at after this.
    fn enter(&mut self) {
        let waiter = Waiter::for_this_thread();
        self.position = Position::Queued(Arc::clone(&waiter));
        let mut queue = self.queue.queue.lock();
        let ticket = *self.ticket.get_or_insert_with(|| queue.draw_ticket());
        queue.insert(self.kind, Place { ticket, waiter });
        self.is_next = match self.kind {
            Kind::NonExclusive => true,
            Kind::Exclusive => queue.exclusive.front().is_some_and(|first| first.ticket == ticket),
        };
        self.queue.waiting.store(queue.len(), Ordering::Relaxed);
        drop(queue);
        // Pairs with the fence in `WaitQueue::wake`.
        fence(Ordering::SeqCst);
    }

    /// Sleeps until taken out of the queue. Spins before only if the next wakeup is ours: other waiters would spin for
    /// nothing, at the cost of the threads that they wait for. `false` if the deadline passed before.
    fn sleep(&mut self, deadline: Deadline) -> bool {
        let Position::Queued(waiter) = &self.position else {
            return true;
        };
        let woken = waiter.sleep(deadline, self.is_next);
        if woken {
            self.position = Position::Woken;
        }
        woken
    }

    /// Gives the place up. Tells whether it was gone already because of a wake.
    fn leave(&mut self) -> bool {
        match mem::replace(&mut self.position, Position::Outside) {
            Position::Outside => false,
            Position::Woken => true,
            Position::Queued(_) => {
                let mut queue = self.queue.queue.lock();
                let found = self.ticket.is_some_and(|ticket| queue.remove(self.kind, ticket));
                self.queue.waiting.store(queue.len(), Ordering::Relaxed);
                !found
            }
        }
    }
}

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        let queued = matches!(self.position, Position::Queued(_));
        let woken = self.leave();
        // A wake is used up by an exclusive waiter that was woken, looked, and found what it waits for. One that
        // gave up has no use for it, and neither has one that found it while still in the queue: that was there
        // without the wake, which announced another one. So the next waiter gets the wake.
        let used = self.satisfied && !queued;
        if self.kind == Kind::Exclusive && woken && !used {
            self.queue.wake_one();
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Takes one of what the counter counts.
    fn take(free: &AtomicU32) -> bool {
        free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
    }

    /// Returns when `count` threads are in the queue.
    fn until_waiting(queue: &WaitQueue, count: usize) {
        while queue.waiting() != count {
            thread::yield_now();
        }
    }

    #[test]
    fn a_condition_that_holds_needs_no_wake() {
        let queue = WaitQueue::new();
        queue.wait(|| true);
        queue.wait_exclusive(|| true);
        assert!(queue.wait_timeout(Duration::ZERO, || true));
        assert!(queue.wait_exclusive_timeout(Duration::ZERO, || true));
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn wake_one_wakes_all_non_exclusive_and_the_first_exclusive_waiter() {
        let (queue, open, free) = (WaitQueue::new(), AtomicBool::new(false), AtomicU32::new(0));
        let (done, finished) = mpsc::channel();
        thread::scope(|scope| {
            for name in ["first", "second"] {
                let (queue, free, done) = (&queue, &free, done.clone());
                let before = queue.waiting();
                scope.spawn(move || {
                    queue.wait_exclusive(|| take(free));
                    done.send(name).unwrap();
                });
                until_waiting(queue, before + 1);
            }
            for name in ["reader", "reader"] {
                let (queue, open, done) = (&queue, &open, done.clone());
                let before = queue.waiting();
                scope.spawn(move || {
                    queue.wait(|| open.load(Ordering::Relaxed));
                    done.send(name).unwrap();
                });
                until_waiting(queue, before + 1);
            }

            open.store(true, Ordering::Relaxed);
            free.store(1, Ordering::Relaxed);
            queue.wake_one();
            let mut woken: Vec<_> = (0..3).map(|_| finished.recv().unwrap()).collect();
            woken.sort_unstable();
            assert_eq!(woken, ["first", "reader", "reader"]);
            assert_eq!(queue.waiting(), 1, "the second exclusive waiter was left asleep");

            free.store(1, Ordering::Relaxed);
            queue.wake_one();
            assert_eq!(finished.recv().unwrap(), "second");
        });
    }

    #[test]
    fn exclusive_waiters_are_served_in_the_order_they_came_even_when_woken_in_vain() {
        let (queue, free) = (WaitQueue::new(), AtomicU32::new(0));
        let (done, finished) = mpsc::channel();
        thread::scope(|scope| {
            for number in 0..5 {
                let (queue, free, done) = (&queue, &free, done.clone());
                scope.spawn(move || {
                    queue.wait_exclusive(|| take(free));
                    done.send(number).unwrap();
                });
                until_waiting(queue, number + 1);
            }
            // In vain: nothing is free. The first waiter comes back to its old place.
            queue.wake_one();
            until_waiting(&queue, 5);
            for number in 0..5 {
                free.fetch_add(1, Ordering::Relaxed);
                queue.wake_one();
                assert_eq!(finished.recv().unwrap(), number);
            }
        });
    }

    #[test]
    fn wake_all_wakes_everyone() {
        let (queue, open) = (WaitQueue::new(), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| queue.wait(|| open.load(Ordering::Relaxed)));
                scope.spawn(|| queue.wait_exclusive(|| open.load(Ordering::Relaxed)));
            }
            until_waiting(&queue, 4);
            open.store(true, Ordering::Relaxed);
            queue.wake_all();
        });
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn a_time_out_leaves_the_queue_empty() {
        let queue = WaitQueue::new();
        assert!(!queue.wait_timeout(Duration::from_millis(2), || false));
        assert!(!queue.wait_exclusive_timeout(Duration::from_millis(2), || false));
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn a_timed_wait_is_ended_by_a_wake() {
        let (queue, open) = (WaitQueue::new(), AtomicBool::new(false));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| queue.wait_timeout(LONG, || open.load(Ordering::Relaxed)));
            until_waiting(&queue, 1);
            open.store(true, Ordering::Relaxed);
            queue.wake_one();
            assert!(waiter.join().unwrap());
        });
    }

    #[test]
    fn an_exclusive_waiter_that_gives_up_passes_its_wake_on() {
        let (queue, free) = (WaitQueue::new(), AtomicU32::new(0));
        thread::scope(|scope| {
            // By hand what a waiter does whose time runs out just after it was woken.
            let mut gives_up = Stay::new(&queue, Kind::Exclusive);
            gives_up.enter();
            let next = scope.spawn(|| queue.wait_exclusive_timeout(LONG, || take(&free)));
            until_waiting(&queue, 2);
            free.store(1, Ordering::Relaxed);
            queue.wake_one();
            assert_eq!(queue.waiting(), 1);
            drop(gives_up);
            assert!(next.join().unwrap());
        });
    }

    #[test]
    fn an_exclusive_waiter_that_was_satisfied_before_its_wake_passes_it_on() {
        let (queue, free) = (WaitQueue::new(), AtomicU32::new(1));
        thread::scope(|scope| {
            // Queued, it finds the slot that was free already, and is woken for the next slot before it can leave.
            let mut satisfied = Stay::new(&queue, Kind::Exclusive);
            satisfied.enter();
            satisfied.satisfied = take(&free);
            let next = scope.spawn(|| queue.wait_exclusive_timeout(LONG, || take(&free)));
            until_waiting(&queue, 2);
            free.store(1, Ordering::Relaxed);
            queue.wake_one();
            assert_eq!(queue.waiting(), 1);
            drop(satisfied);
            assert!(next.join().unwrap());
        });
    }

    #[test]
    fn a_condition_that_panics_leaves_the_queue_and_passes_its_wake_on() {
        let (queue, free) = (WaitQueue::new(), AtomicU32::new(0));
        thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let mut looked = 0;
                queue.wait_exclusive(|| {
                    looked += 1;
                    assert!(looked < 3, "at the look after the wake");
                    false
                });
            });
            until_waiting(&queue, 1);
            let next = scope.spawn(|| queue.wait_exclusive_timeout(LONG, || take(&free)));
            until_waiting(&queue, 2);
            free.store(1, Ordering::Relaxed);
            queue.wake_one();
            assert!(panics.join().is_err());
            assert!(next.join().unwrap());
        });
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn no_wake_is_lost_under_load() {
        const ROUNDS: u32 = 5000;
        let (queue, free) = (WaitQueue::new(), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..ROUNDS).for_each(|_| queue.wait_exclusive(|| take(&free))));
            }
            for _ in 0..ROUNDS * 3 {
                free.fetch_add(1, Ordering::Relaxed);
                queue.wake_one();
            }
        });
        assert_eq!((free.into_inner(), queue.waiting()), (0, 0));
    }
}
