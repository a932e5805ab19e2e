//! How long a cache line takes from one processor to another and back, halved: what every contended lock costs at least.
//!
//! Two threads, each pinned to a processor, take turns at adding one to a number. Measured between representatives of each
//! relation that the machine has. On a virtual machine whose processors do not run at the same time a turn lasts as long
//! as the host likes: a pair has a time limit, and the median of many batches is told beside the lowest.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

use super::topology::{Processor, Relation, Topology};

/// Batches of which the median is taken.
const BATCHES: usize = 201;
/// Round trips in a batch: few, so that both threads run for all of it also where other programs want the processors.
const ROUND_TRIPS: u64 = 200;
/// What a pair may take.
const LIMIT: Duration = Duration::from_millis(400);

/// One way from one processor to another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LineTransfer {
    /// One processor.
    pub from: u32,
    /// The other.
    pub to: u32,
    /// What both share.
    pub between: Relation,
    /// The median of all batches.
    pub median_ns: f64,
    /// The quickest batch.
    pub lowest_ns: f64,
}

/// A number that both threads write to, on lines of its own.
#[repr(align(128))]
struct Line(AtomicU64);

/// Measures one pair of processors of each relation, of those that this process may run on. None if there is but one, or
/// if the two did not run at the same time for long enough.
#[must_use]
pub fn line_transfers(topology: &Topology) -> Vec<LineTransfer> {
    let Ok(allowed) = sched_getaffinity(None) else { return Vec::new() };
    let usable: Vec<Processor> = topology
        .processors
        .iter()
        .copied()
        .filter(|processor| {
            (processor.number as usize) < CpuSet::MAX_CPU && allowed.is_set(processor.number as usize)
        })
        .collect();
    pairs(&usable).into_iter().filter_map(|(one, other)| measure(one, other)).collect()
}

/// The first processor with the first of each relation to it.
fn pairs(processors: &[Processor]) -> Vec<(Processor, Processor)> {
    let Some((&one, others)) = processors.split_first() else { return Vec::new() };
    [Relation::Threads, Relation::Cores, Relation::Packages]
        .into_iter()
        .filter_map(|relation| {
            let other = others.iter().find(|&&other| Topology::relation(one, other) == relation)?;
            Some((one, *other))
        })
        .collect()
}

fn measure(one: Processor, other: Processor) -> Option<LineTransfer> {
    let (line, over) = (Line(AtomicU64::new(0)), AtomicBool::new(false));
    let mut batches_ns = thread::scope(|scope| {
        let (line, over) = (&line, &over);
        let answering = scope.spawn(move || pin(other).is_some() && answer(line, over));
        let asking = scope.spawn(move || {
            let batches = pin(one).map(|()| ask(line, || answering.is_finished()));
            over.store(true, Ordering::Release);
            batches
        });
        asking.join().ok().flatten()
    })?;
    batches_ns.sort_by(f64::total_cmp);
    let lowest_ns = *batches_ns.first()?;
    let median_ns = batches_ns[(batches_ns.len() - 1) / 2];
    let between = Topology::relation(one, other);
    Some(LineTransfer { from: one.number, to: other.number, between, median_ns, lowest_ns })
}

fn pin(processor: Processor) -> Option<()> {
    let mut set = CpuSet::new();
    set.set(processor.number as usize);
    sched_setaffinity(None, &set).ok()
}

/// Makes even numbers odd, and says how long one way took in each batch. The first batch warms up.
fn ask(line: &Line, is_alone: impl Fn() -> bool) -> Vec<f64> {
    let begun = Instant::now();
    let mut batches_ns = Vec::new();
    for batch in 0..=BATCHES {
        let batch_begun = Instant::now();
        for _ in 0..ROUND_TRIPS {
            let even = line.0.load(Ordering::Acquire);
            line.0.store(even + 1, Ordering::Release);
            let mut looks = 0_u32;
            while line.0.load(Ordering::Acquire) != even + 2 {
                std::hint::spin_loop();
                looks = looks.wrapping_add(1);
                // Nothing answers where the other thread could not be pinned, or in time where it does not run.
                if looks == 0 || looks.is_multiple_of(65_536) && (is_alone() || begun.elapsed() > LIMIT) {
                    return batches_ns;
                }
            }
        }
        if batch > 0 {
            batches_ns.push(batch_begun.elapsed().as_secs_f64() * 1e9 / (2 * ROUND_TRIPS) as f64);
        }
        if begun.elapsed() > LIMIT {
            break;
        }
    }
    batches_ns
}

/// Makes odd numbers even until it is over.
fn answer(line: &Line, over: &AtomicBool) -> bool {
    loop {
        let number = line.0.load(Ordering::Acquire);
        if number % 2 == 1 {
            line.0.store(number + 1, Ordering::Release);
        } else if over.load(Ordering::Acquire) {
            return true;
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processor(number: u32, package: u32, core: u32) -> Processor {
        Processor { number, package, core, node: 0 }
    }

    #[test]
    fn each_relation_is_measured_once() {
        let all = [processor(0, 0, 0), processor(1, 0, 1), processor(2, 1, 0), processor(3, 0, 0)];
        let numbers = |all: &[Processor]| {
            pairs(all).iter().map(|(one, other)| (one.number, other.number)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&all), [(0, 3), (0, 1), (0, 2)]);
        assert_eq!(numbers(&all[..1]), []);
        assert_eq!(numbers(&[]), []);
    }

    #[test]
    fn a_line_goes_to_and_fro_or_there_is_no_pair_to_carry_it() {
        let topology = super::super::Machine::this().topology;
        for transfer in line_transfers(&topology) {
            assert!(transfer.from != transfer.to, "{transfer:?}");
            assert!(0.0 < transfer.lowest_ns && transfer.lowest_ns <= transfer.median_ns, "{transfer:?}");
        }
        assert_eq!(line_transfers(&Topology::default()), []);
    }
}
