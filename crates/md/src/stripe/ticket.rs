//! One thread that waits for a stripe on which another one works.
//!
//! A ticket stands in the stripe's queue until the stripe's owner takes it out and either gives the stripe to the
//! waiting thread or tells it that its work is done. The owner keeps the ticket alive while it wakes, so the waiting
//! thread may go on, and away, at once.
//!
//! Locks: class `STRIPE_TICKET`, one at a time, never with that of a set.

use std::mem;
use std::sync::Arc;

use undercroft_sync::{Mutex, WaitQueue, order};

/// See the module's description. `A` is the answer to work that another thread did.
pub(super) struct Ticket<A> {
    news: Mutex<News<A>>,
    /// Where its one thread sleeps.
    sleeper: WaitQueue,
}

/// What a waiting thread learns.
pub(super) enum News<A> {
    /// Nothing so far.
    None,
    /// The stripe is its own; the content lies in the slot.
    Turn,
    /// Another thread did the work that it handed over.
    Done(A),
}

impl<A> Ticket<A> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { news: Mutex::new(&order::STRIPE_TICKET, News::None), sleeper: WaitQueue::new() })
    }

    /// Tells the waiting thread; once only.
    pub(super) fn tell(&self, news: News<A>) {
        *self.news.lock() = news;
        self.sleeper.wake_one();
    }

    /// Sleeps until told.
    pub(super) fn wait(&self) -> News<A> {
        let mut told = News::None;
        self.sleeper.wait(|| {
            told = mem::replace(&mut *self.news.lock(), News::None);
            !matches!(told, News::None)
        });
        told
    }
}

/// Work that its thread has handed over, and the duty to answer it: a thread that drops it unanswered, because of a panic,
/// answers that it was abandoned.
pub(super) struct Handed<W, A> {
    work: W,
    ticket: Option<Arc<Ticket<A>>>,
    abandoned: fn() -> A,
}

impl<W, A> Handed<W, A> {
    pub(super) fn new(work: W, ticket: Arc<Ticket<A>>, abandoned: fn() -> A) -> Self {
        Self { work, ticket: Some(ticket), abandoned }
    }

    pub(super) fn work(&self) -> &W {
        &self.work
    }

    pub(super) fn answer(mut self, answer: A) {
        if let Some(ticket) = self.ticket.take() {
            ticket.tell(News::Done(answer));
        }
    }
}

impl<W, A> Drop for Handed<W, A> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            ticket.tell(News::Done((self.abandoned)()));
        }
    }
}
