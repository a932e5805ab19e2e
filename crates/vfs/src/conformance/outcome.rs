//! What checks find.

use std::fmt;

use crate::Result;

/// What the suite found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// How many single expectations were checked.
    pub checked: u64,
    /// Those that did not hold: what, what was expected, what came. The first hundred of them.
    pub failures: Vec<String>,
}

/// Failures beyond this number are dropped.
const FAILURES_MAX: usize = 100;

impl Outcome {
    /// Ends a test.
    ///
    /// # Panics
    /// When anything failed, listing it.
    pub fn assert_passed(&self) {
        assert!(
            self.failures.is_empty(),
            "{} failures in {} checks:\n  {}",
            self.failures.len(),
            self.checked,
            self.failures.join("\n  ")
        );
    }

    fn fail(&mut self, failure: String) {
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(failure);
        }
    }
}

impl Finds for Outcome {
    fn outcome(&mut self) -> &mut Outcome {
        self
    }
}

/// Code that runs checks: has an outcome, and adds to it.
pub(super) trait Finds {
    fn outcome(&mut self) -> &mut Outcome;

    /// Joins what another thread found.
    fn absorb(&mut self, other: Outcome) {
        self.outcome().checked += other.checked;
        for failure in other.failures {
            self.outcome().fail(failure);
        }
    }

    fn that(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        self.outcome().checked += 1;
        if !holds {
            self.outcome().fail(otherwise());
        }
    }

    fn equal<T: PartialEq + fmt::Debug>(&mut self, what: impl FnOnce() -> String, got: &T, expected: &T) {
        self.that(got == expected, || format!("{}: expected {expected:?}, got {got:?}", what()));
    }

    /// The value, unless it is an error, which is a failure of the suite then.
    fn ok<T>(&mut self, what: impl FnOnce() -> String, result: Result<T>) -> Option<T> {
        self.outcome().checked += 1;
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.outcome().fail(format!("{}: {error}", what()));
                None
            }
        }
    }

    /// Expects a certain refusal; `expected` names the variant of [`Error`](crate::Error).
    fn refused<T>(&mut self, what: impl FnOnce() -> String, result: Result<T>, expected: &str) {
        let got = match result {
            Ok(_) => "success".to_owned(),
            Err(error) => format!("{error:?}"),
        };
        self.that(got.starts_with(expected), || format!("{}: expected {expected}, got {got}", what()));
    }
}
