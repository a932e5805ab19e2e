//! What was done, when, and what came of it.

use std::fmt;

use super::model::{Answer, Name, Operation};
use crate::Ino;

/// An operation that was done. Moments are numbers that rise over all threads.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) thread: usize,
    pub(super) began: u64,
    pub(super) ended: u64,
    pub(super) operation: Operation,
    pub(super) answer: Answer,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread, began, ended, operation, answer } = self;
        write!(f, "thread {thread}, {began} to {ended}: {operation:?} answers {answer:?}")
    }
}

impl Event {
    /// Whether it may have changed names of `dir`.
    pub(super) fn changes(&self, dir: Ino) -> bool {
        self.changed_names().iter().flatten().any(|&(changed, _)| changed == dir)
    }

    /// The names it may have changed.
    pub(super) fn changed_names(&self) -> [Option<(Ino, Name)>; 2] {
        if matches!(self.answer, Answer::Refused(_)) {
            return [None; 2];
        }
        match self.operation {
            Operation::Lookup { .. } | Operation::List { .. } => [None; 2],
            Operation::Create { dir, name }
            | Operation::Mkdir { dir, name }
            | Operation::Link { dir, name, .. }
            | Operation::Unlink { dir, name }
            | Operation::Rmdir { dir, name } => [Some((dir, name)), None],
            Operation::Rename { from, name, to, to_name, .. } => [Some((from, name)), Some((to, to_name))],
        }
    }

    /// Whether some moment lies within both.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.began < other.ended && other.began < self.ended
    }
}
