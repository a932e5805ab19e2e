//! Looks for an order of the operations in which the model gives the answers that were given.
//!
//! Depth first, one operation after the other: next can be each one that began before every other one left ended.
//! Sets of done operations that were reached with the same state before are not tried again.

use std::collections::HashSet;

use super::history::Event;
use super::model::{Answer, Operation, State};

/// Looks for an order that explains all answers and ends in a state that `check` finds to be what is there. Several
/// orders may explain the answers and end differently.
///
/// # Errors
/// What is wrong: there is no order, or what `check` said of the last one.
pub(super) fn explain(
    start: State,
    events: &[Event],
    check: impl Fn(&State) -> Result<(), String>,
) -> Result<(), String> {
    assert!(events.len() <= 64, "a schedule has at most 64 operations");
    let weak: Vec<bool> = events.iter().map(|event| is_weak(event, events)).collect();
    let mut tried = HashSet::new();
    let mut stack = vec![(0_u64, start)];
    let mut wrong = "no order of these operations gives these answers".to_owned();
    while let Some((done, state)) = stack.pop() {
        let left = || events.iter().enumerate().filter(|(at, _)| done & 1 << at == 0);
        let Some(first_end) = left().map(|(_, event)| event.ended).min() else {
            match check(&state) {
                Ok(()) => return Ok(()),
                Err(difference) => wrong = difference,
            }
            continue;
        };
        for (at, event) in left().filter(|(_, event)| event.began < first_end) {
            let mut next = state.clone();
            if next.step(&event.operation, &event.answer) != event.answer && !weak[at] {
                continue;
            }
            let done = done | 1 << at;
            if tried.insert((done, next.clone())) {
                stack.push((done, next));
            }
        }
    }
    Err(wrong)
}

/// Whether it is a listing during which names of the directory changed.
fn is_weak(event: &Event, events: &[Event]) -> bool {
    let Operation::List { dir } = event.operation else { return false };
    events.iter().any(|other| other.changes(dir) && other.overlaps(event))
}

/// What is wrong with the listings, on their own.
pub(super) fn wrong_listing(events: &[Event]) -> Option<String> {
    events.iter().find_map(|event| {
        let (Operation::List { dir }, Answer::Names(names)) = (event.operation, &event.answer) else {
            return None;
        };
        let changed = |name| {
            let mut around = events.iter().filter(|other| other.overlaps(event));
            around.any(|other| other.changed_names().iter().flatten().any(|&changed| changed == (dir, name)))
        };
        let twice = names
            .iter()
            .enumerate()
            .find(|(at, (name, _))| names[..*at].iter().any(|(other, _)| other == name) && !changed(*name));
        twice.map(|(_, (name, _))| format!("{event:?} shows {name} twice, which did not change meanwhile"))
    })
}
