//! Where a thread that serves a processor's queue runs.
//!
//! On that processor, as a rule: the client falls asleep there, and the server runs in its place. A client that reads or
//! writes much works on meanwhile, because the kernel reads ahead and writes behind: client and server would copy on one
//! processor while another one is idle. So after some long requests in a row the thread may run anywhere, and after some
//! short ones it comes back.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A request or a reply of so many bytes takes longer to copy than it takes to wake a thread elsewhere.
const LONG_BYTES: usize = 64 * 1024;

/// After so many requests of the other kind in a row the thread moves.
const STREAK: u32 = 4;

/// Of one thread, to be made and used there.
#[derive(Debug)]
pub(in crate::transport) struct Placement {
    /// The queue's processor, and those that the thread had at first; `None` where it stays as it was.
    sets: Option<(CpuSet, CpuSet)>,
    is_home: bool,
    /// How many requests came in a row that speak for moving.
    streak: u32,
}

impl Placement {
    /// On a processor, if that is allowed; otherwise the queue is served from elsewhere.
    pub(in crate::transport) fn on(processor: Option<usize>) -> Self {
        let sets = processor.filter(|processor| *processor < CpuSet::MAX_CPU).and_then(|processor| {
            let mut home = CpuSet::new();
            home.set(processor);
            Some((home, sched_getaffinity(None).ok()?))
        });
        let sets = sets.filter(|(home, _)| sched_setaffinity(None, home).is_ok());
        Self { sets, is_home: true, streak: 0 }
    }

    /// A request was answered, and the longer of the two had so many bytes.
    pub(in crate::transport) fn note(&mut self, bytes: usize) {
        let Some((home, anywhere)) = &self.sets else { return };
        let speaks_for_home = bytes < LONG_BYTES;
        if speaks_for_home == self.is_home {
            self.streak = 0;
            return;
        }
        self.streak += 1;
        if self.streak == STREAK {
            self.is_home = !self.is_home;
            self.streak = 0;
            // The processor may be gone by now; the thread then stays where it is.
            let _ = sched_setaffinity(None, if self.is_home { home } else { anywhere });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn long_requests_unpin_the_thread_and_short_ones_pin_it_again() {
        // In a thread of its own, which may be bound.
        let processors = || sched_getaffinity(None).unwrap();
        let moves = move || {
            let anywhere = processors();
            let home = (0..CpuSet::MAX_CPU).find(|processor| anywhere.is_set(*processor)).unwrap();
            let mut placement = Placement::on(Some(home));
            let at_home = processors();
            assert_eq!(at_home.count(), 1);
            assert!(at_home.is_set(home));
            let mut after = |bytes: &[usize]| {
                bytes.iter().for_each(|bytes| placement.note(*bytes));
                processors()
            };
            let long = [LONG_BYTES; STREAK as usize];
            assert_eq!(after(&long[1..]), at_home);
            assert_eq!(after(&[0]), at_home);
            assert_eq!(after(&long[1..]), at_home);
            assert_eq!(after(&long[..1]), anywhere);
            assert_eq!(after(&[0, LONG_BYTES]), anywhere);
            assert_eq!(after(&[0; STREAK as usize]), at_home);
        };
        thread::spawn(moves).join().unwrap();
    }

    #[test]
    fn a_thread_without_a_processor_is_not_moved() {
        let before = sched_getaffinity(None).unwrap();
        let mut placement = Placement::on(None);
        (0..2 * STREAK).for_each(|_| placement.note(LONG_BYTES));
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
