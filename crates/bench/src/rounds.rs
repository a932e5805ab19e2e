//! Two measurements taken in turn, so that a machine whose speed drifts slows both alike.

use std::num::NonZeroU32;

use serde::Serialize;

use crate::{BenchError, Job, Outcome};

/// What to compare, and how often.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// Measured first in each round.
    pub a: Job,
    /// Measured second.
    pub b: Job,
    /// How often both are measured.
    pub rounds: NonZeroU32,
}

/// Medians, and how they compare.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The first one's measurement with the median throughput.
    pub a: Outcome,
    /// The second one's.
    pub b: Outcome,
    /// Throughput of the first over that of the second.
    pub ratio: f64,
    /// How often both were measured.
    pub rounds: NonZeroU32,
}

impl Rounds {
    /// Measures all, each by `measure`.
    ///
    /// # Errors
    /// The first that `measure` returns.
    pub fn run(
        &self,
        mut measure: impl FnMut(&Job) -> Result<Outcome, BenchError>,
    ) -> Result<Comparison, BenchError> {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds.get() {
            a.push(measure(&self.a)?);
            b.push(measure(&self.b)?);
        }
        let (a, b) = (Outcome::median(a), Outcome::median(b));
        let ratio = a.ops_per_second / b.ops_per_second;
        Ok(Comparison { a, b, ratio, rounds: self.rounds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::{job, outcome};
    use crate::{Target, Workload};

    #[test]
    fn both_are_measured_in_turn_and_their_medians_compared() {
        let a = job(Workload::Rename);
        let b = Job { target: Target::Mounted("/other".into()), ..a.clone() };
        let rounds = Rounds { a, b, rounds: NonZeroU32::new(3).unwrap() };
        let mut op_us = [1, 10, 3, 20, 2, 40].into_iter();
        let mut measured = Vec::new();
        let comparison = rounds.run(|job| {
            measured.push(job.target.to_string());
            Ok(Outcome {
                target: job.target.to_string(),
                ..outcome(job.workload, op_us.next().unwrap() * 1000)
            })
        });
        let comparison = comparison.unwrap();
        assert_eq!(measured, ["dir:/t", "dir:/other"].repeat(3));
        assert_eq!((comparison.a.latency_us.max, comparison.b.latency_us.max), (2.0, 20.0));
        assert!((comparison.ratio - 10.0).abs() < 1e-9, "{}", comparison.ratio);

        let value = serde_json::to_value(&comparison).unwrap();
        let fields: Vec<_> = value.as_object().unwrap().keys().collect();
        assert_eq!(fields, ["a", "b", "ratio", "rounds"]);
        assert_eq!((&value["rounds"], &value["b"]["target"]), (&3.into(), &"dir:/other".into()));
    }

    #[test]
    fn a_failure_ends_it() {
        let a = job(Workload::Rename);
        let rounds = Rounds { b: a.clone(), a, rounds: NonZeroU32::new(3).unwrap() };
        let mut left = 2;
        let result = rounds.run(|job| {
            left -= 1;
            if left == 0 { Err(BenchError::NotYet("x".into())) } else { Ok(outcome(job.workload, 1000)) }
        });
        assert!(matches!(result, Err(BenchError::NotYet(_))), "{result:?}");
        assert_eq!(left, 0);
    }
}
