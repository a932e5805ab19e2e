//! What the lock of one set of the stripe cache guards: its slots, the table that finds stripes in them, and the
//! numbers that decide which threads are woken. The rules are in [`set`](super::set). Nothing here waits or takes a
//! lock.

use std::collections::{HashMap, VecDeque};
use std::ops::AddAssign;
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::options::StripeWake;
use super::ticket::{Handed, Ticket};

/// After a wake-up that came to nothing newcomers stand back for so many more; for more if there are more slots.
const ORDERLY_WAKES: usize = 64;

/// What slots hold, and what threads can do for each other on it.
pub(super) trait Content {
    /// Work that a waiting thread may hand over.
    type Work;
    /// What it is answered.
    type Answer;
    /// What owners count.
    type Tally: Default + AddAssign;

    /// Holds nothing that is known any more.
    fn forget(&mut self);

    /// The answer when the thread that did the work died over it.
    fn abandoned() -> Self::Answer;

    /// What was counted since it was last asked.
    fn take_tally(&mut self) -> Self::Tally;
}

pub(super) type HandedOver<C> = Handed<<C as Content>::Work, <C as Content>::Answer>;

/// What happened in the sets so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Slots that became available.
    pub(crate) released: u64,
    /// Sleepers woken because slots had become available.
    pub(crate) wakeups: u64,
    /// Wake-ups after which the thread found nothing and slept again.
    pub(crate) vain_wakeups: u64,
    /// Threads that slept, each time counted.
    pub(crate) sleeps: u64,
    /// Stripes given from one owner to the next that stood in line for it.
    pub(crate) given: u64,
    /// Pieces of work carried out for another thread.
    pub(crate) gathered: u64,
    /// Slots that their owners took along to another stripe.
    pub(crate) moved: u64,
    /// Stripes found in memory.
    pub(crate) hits: u64,
    /// Stripes that took a slot.
    pub(crate) misses: u64,
}

/// What a set's lock guards.
pub(super) struct State<C: Content> {
    pub(super) slots: Box<[Slot<C>]>,
    table: HashMap<u64, SlotIndex, FixedState>,
    /// Slots without a stripe; the last one was used last, and lies in the processor's cache.
    free: Vec<SlotIndex>,
    /// The idle ones, from the oldest to the newest.
    oldest: Option<SlotIndex>,
    newest: Option<SlotIndex>,
    idle: usize,
    wake: StripeWake,
    /// Threads in the queue that have looked in vain since they entered it.
    asleep: usize,
    /// Wake-ups sent to sleepers and not yet arrived.
    woken: usize,
    /// For so many wake-ups to come newcomers leave a slot to each thread on its way.
    orderly: usize,
    /// Plain form: a thread found nothing, and a quarter of the slots has not come free since.
    blocked: bool,
    pub(super) counts: Counts,
    pub(super) tally: C::Tally,
}

pub(super) type SlotIndex = u32;

pub(super) struct Slot<C: Content> {
    stripe: u64,
    pub(super) content: Option<C>,
    owned: bool,
    /// Neighbours among the idle ones.
    older: Option<SlotIndex>,
    newer: Option<SlotIndex>,
    pub(super) line: VecDeque<InLine<C>>,
}

pub(super) struct InLine<C: Content> {
    pub(super) ticket: Arc<Ticket<C::Answer>>,
    /// `None`: wants the stripe itself.
    pub(super) work: Option<C::Work>,
}

/// One wait for an available slot.
#[derive(Default)]
pub(super) struct Visit {
    looks: u32,
}

/// What a look at a set finds.
pub(super) enum Found<C> {
    /// The stripe, ours now.
    Taken(SlotIndex, C),
    /// It is owned, and we stand in line.
    InLine(SlotIndex),
    /// It is owned, and to stand in line takes a ticket.
    NeedsTicket,
    /// No slot is available.
    Nothing,
}

pub(super) type Offer<C> = (Arc<Ticket<<C as Content>::Answer>>, Option<<C as Content>::Work>);

#[derive(Clone, Copy)]
pub(super) enum Wakes {
    Some(usize),
    All,
}

impl<C: Content> State<C> {
    pub(super) fn new(contents: Vec<C>, wake: StripeWake) -> Self {
        let count = contents.len();
        Self {
            slots: contents.into_iter().map(Slot::new).collect(),
            // Twice the room: removals leave traces, and the table must not grow.
            table: HashMap::with_capacity_and_hasher(2 * count, FixedState::default()),
            free: (0..count as SlotIndex).rev().collect(),
            oldest: None,
            newest: None,
            idle: 0,
            wake,
            asleep: 0,
            woken: 0,
            orderly: 0,
            blocked: false,
            counts: Counts::default(),
            tally: C::Tally::default(),
        }
    }

    /// Everything was given back and no thread waits.
    #[cfg(test)]
    pub(super) fn assert_quiet(&self) {
        assert_eq!(self.available(), self.slots.len(), "slots are missing");
        assert_eq!((self.asleep, self.woken), (0, 0), "asleep, woken");
        assert!(self.slots.iter().all(|slot| slot.line.is_empty() && slot.content.is_some()));
        assert_eq!(self.table.len(), self.idle);
    }

    /// Takes the stripe, or stands in line for it, if that is possible now.
    pub(super) fn look(&mut self, stripe: u64, offer: &mut Option<Offer<C>>, visit: &Visit) -> Found<C> {
        let known = self.table.get(&stripe).copied();
        if let Some(index) = known.filter(|&index| self.slots[index as usize].owned) {
            let Some((ticket, work)) = offer else {
                return Found::NeedsTicket;
            };
            let ticket = Arc::clone(ticket);
            self.slots[index as usize].line.push_back(InLine { ticket, work: work.take() });
            self.counts.hits += 1;
            return Found::InLine(index);
        }
        if !self.may_take(visit) {
            return Found::Nothing;
        }
        let index = match known {
            Some(index) => {
                self.remove_idle(index);
                self.counts.hits += 1;
                index
            }
            None => {
                let Some(index) = self.free.pop().or_else(|| self.reclaim()) else {
                    return Found::Nothing;
                };
                self.table.insert(stripe, index);
                self.slots[index as usize].stripe = stripe;
                self.counts.misses += 1;
                index
            }
        };
        let slot = &mut self.slots[index as usize];
        slot.owned = true;
        let content = slot.content.take().expect("what is available lies in its slot");
        Found::Taken(index, content)
    }

    fn available(&self) -> usize {
        self.free.len() + self.idle
    }

    /// Whether the thread may take one of the available slots.
    fn may_take(&self, visit: &Visit) -> bool {
        let available = self.available();
        match self.wake {
            StripeWake::One if visit.was_woken() || self.orderly == 0 => available > 0,
            StripeWake::One => available > self.woken,
            StripeWake::All | StripeWake::AllSpinning => {
                available > 0 && (!self.blocked || available >= self.quarter())
            }
        }
    }

    fn quarter(&self) -> usize {
        (self.slots.len() / 4).max(1)
    }

    /// The oldest idle slot, free now.
    fn reclaim(&mut self) -> Option<SlotIndex> {
        let index = self.oldest?;
        self.remove_idle(index);
        let slot = &mut self.slots[index as usize];
        self.table.remove(&slot.stripe);
        if let Some(content) = &mut slot.content {
            content.forget();
        }
        Some(index)
    }

    fn add_idle(&mut self, index: SlotIndex) {
        let older = self.newest.replace(index);
        let slot = &mut self.slots[index as usize];
        (slot.older, slot.newer) = (older, None);
        match older {
            Some(older) => self.slots[older as usize].newer = Some(index),
            None => self.oldest = Some(index),
        }
        self.idle += 1;
    }

    fn remove_idle(&mut self, index: SlotIndex) {
        let slot = &mut self.slots[index as usize];
        let (older, newer) = (slot.older.take(), slot.newer.take());
        match older {
            Some(older) => self.slots[older as usize].newer = newer,
            None => self.oldest = newer,
        }
        match newer {
            Some(newer) => self.slots[newer as usize].older = older,
            None => self.newest = older,
        }
        self.idle -= 1;
    }

    /// Lets the owner of a slot in whose line no thread stands go on to another stripe in it, if threads wait for slots
    /// and that stripe has none. Tells whether it did; then the content has to be forgotten.
    pub(super) fn move_to(&mut self, index: SlotIndex, stripe: u64) -> bool {
        if self.wake != StripeWake::One || self.asleep == 0 || self.table.contains_key(&stripe) {
            return false;
        }
        let slot = &mut self.slots[index as usize];
        self.table.remove(&slot.stripe);
        slot.stripe = stripe;
        self.table.insert(stripe, index);
        self.counts.moved += 1;
        self.counts.misses += 1;
        true
    }

    /// The owner has put the content back and no thread stands in line.
    pub(super) fn make_available(&mut self, index: SlotIndex, keep: bool) {
        self.slots[index as usize].owned = false;
        if keep {
            self.add_idle(index);
        } else {
            self.table.remove(&self.slots[index as usize].stripe);
            self.free.push(index);
        }
        self.counts.released += 1;
    }

    /// A woken thread has found nothing: newcomers were quicker. Before it is woken again there arrive those that are on
    /// their way now, and those that stand before it in the queue since they were woken in vain as well: no more than
    /// there are slots each.
    fn be_orderly(&mut self) {
        self.orderly = ORDERLY_WAKES.max(2 * self.slots.len());
    }

    /// What has to be woken so that the rule in the module's description holds; counts it as sent.
    pub(super) fn due_wakes(&mut self) -> Wakes {
        match self.wake {
            StripeWake::One => {
                let unwoken = self.asleep - self.woken;
                let due = self.available().saturating_sub(self.woken).min(unwoken);
                self.woken += due;
                self.counts.wakeups += due as u64;
                Wakes::Some(due)
            }
            StripeWake::All | StripeWake::AllSpinning
                if self.blocked && self.available() >= self.quarter() =>
            {
                self.blocked = false;
                self.counts.wakeups += (self.asleep - self.woken) as u64;
                self.woken = self.asleep;
                Wakes::All
            }
            StripeWake::All | StripeWake::AllSpinning => Wakes::Some(0),
        }
    }
}

impl<C: Content> Slot<C> {
    fn new(content: C) -> Self {
        Self {
            stripe: 0,
            content: Some(content),
            owned: false,
            older: None,
            newer: None,
            line: VecDeque::new(),
        }
    }
}

impl Visit {
    /// A wait looks once at once, then once after it has entered the queue and once after each wake-up, in turn: so
    /// the third look and every second one after it come from a wake-up.
    fn was_woken(&self) -> bool {
        self.looks >= 3 && self.looks % 2 == 1
    }

    fn is_queued(&self) -> bool {
        self.looks.is_multiple_of(2)
    }

    pub(super) fn begin<C: Content>(&mut self, state: &mut State<C>) {
        self.looks += 1;
        if self.was_woken() {
            state.asleep -= 1;
            // All together: also a thread that had just come is woken, and was not counted.
            state.woken = state.woken.saturating_sub(1);
        }
    }

    pub(super) fn end<C: Content>(&self, state: &mut State<C>, satisfied: bool) {
        match (self.was_woken(), satisfied) {
            (true, true) => state.orderly = state.orderly.saturating_sub(1),
            (true, false) => {
                state.counts.vain_wakeups += 1;
                state.be_orderly();
            }
            (false, _) => {}
        }
        if satisfied {
            return;
        }
        state.blocked = true;
        if self.is_queued() {
            state.asleep += 1;
            state.counts.sleeps += 1;
        }
    }
}

/// Takes each thread out of line that has handed work over.
pub(super) fn take_work<C: Content>(line: &mut VecDeque<InLine<C>>) -> Vec<HandedOver<C>> {
    let (mut handed, mut rest) = (Vec::with_capacity(line.len()), VecDeque::new());
    for InLine { ticket, work } in line.drain(..) {
        match work {
            Some(work) => handed.push(Handed::new(work, ticket, C::abandoned)),
            None => rest.push_back(InLine { ticket, work: None }),
        }
    }
    *line = rest;
    handed
}
